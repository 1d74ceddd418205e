package accounting

import (
	"slices"

	"github.com/berth-scheduler/berth/cluster"
)

// Assoc is a user in an account.
type Assoc struct {
	Account string
	UID     cluster.UID
}

// Standing is what the order of who waits takes from accounts and qualities of
// service. It is not changed; nil says nothing of anybody.
type Standing struct {
	// QOS are the qualities of service by name.
	QOS map[string]*QOS
	// Fair is each user's place in the order of fair shares, nil where fair shares
	// do not count.
	Fair *Fair
}

// Fair is the order of fair shares. It is not changed.
type Fair struct {
	// Index says where in Places a user's place stands: from 1, the least served
	// first. Of is how many places there are.
	Index  map[Assoc]int32
	Places []int32
	Of     int32
}

// Place is the place of a user; who has none stands in the middle.
func (f *Fair) Place(who Assoc) int32 {
	if i, ok := f.Index[who]; ok && int(i) < len(f.Places) {
		return f.Places[i]
	}
	return (f.Of + 1) / 2
}

// Priority is the class of a job: the greater go first.
func (s *Standing) Priority(j *cluster.Job) int64 {
	if s == nil || j.Spec.QOS == "" {
		return 0
	}
	if q := s.QOS[j.Spec.QOS]; q != nil {
		return q.Priority
	}
	return 0
}

// MayPreempt reports whether jobs like a may end jobs like b to have their room.
func (s *Standing) MayPreempt(a, b *cluster.Job) bool {
	if s == nil || a.Spec.QOS == "" || b.Spec.QOS == "" {
		return false
	}
	q := s.QOS[a.Spec.QOS]
	return q != nil && slices.Contains(q.Preempts, b.Spec.QOS)
}

// Preempts reports whether others make room for a job by its QOS.
func (s *Standing) Preempts(j *cluster.Job) bool {
	return s != nil && s.QOS[j.Spec.QOS] != nil && len(s.QOS[j.Spec.QOS].Preempts) > 0
}
