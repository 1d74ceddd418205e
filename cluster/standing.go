package cluster

import "slices"

// Assoc is a user in an account.
type Assoc struct {
	Account string
	UID     UID
}

// Standing is what the order of who waits takes from accounts and qualities of
// service. It is not changed; nil says nothing of anybody.
type Standing struct {
	// QOS are the qualities of service by name.
	QOS map[string]*QOS
	// Fair is each user's place in the order of fair shares, the least served
	// first from 1, and FairOf how many places there are. It is nil where fair
	// shares do not count.
	Fair   map[Assoc]int32
	FairOf int32
}

// Priority is the class of a job: the greater go first.
func (s *Standing) Priority(j *Job) int64 {
	if s == nil || j.Spec.QOS == "" {
		return 0
	}
	if q := s.QOS[j.Spec.QOS]; q != nil {
		return q.Priority
	}
	return 0
}

// Place is the place of a job's owner in the order of fair shares; who has none
// stands in the middle.
func (s *Standing) Place(j *Job) int32 {
	if n, ok := s.Fair[Assoc{j.Spec.Account, j.Owner.UID}]; ok {
		return n
	}
	return (s.FairOf + 1) / 2
}

// MayPreempt tells whether jobs like a may end jobs like b to have their room.
func (s *Standing) MayPreempt(a, b *Job) bool {
	if s == nil || a.Spec.QOS == "" || b.Spec.QOS == "" {
		return false
	}
	q := s.QOS[a.Spec.QOS]
	return q != nil && slices.Contains(q.Preempts, b.Spec.QOS)
}
