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

// Standing is what accounts and qualities of service contribute to the order of
// waiting jobs. It is not changed; nil ranks all jobs equally.
type Standing struct {
	// QOS holds the qualities of service by name.
	QOS map[string]*QOS
	// Fair is the fair-share order of users, nil if fair shares do not count.
	Fair *Fair
}

// Fair is the fair-share order. It is not changed.
type Fair struct {
	// Index maps a user to an index in Places, from 1, the least served first. Of
	// is how many places there are.
	Index  map[Assoc]int32
	Places []int32
	Of     int32
	// Parts maps an account to the part of all shares that is its own users', Single is
	// that of a user without an account. They count relative to each other.
	Parts  map[string]float64
	Single float64
}

// Part returns the name and the part of the account of a job, or of its user if it has
// none.
func (f *Fair) Part(j *cluster.Job) (name string, part float64) {
	if j.Spec.Account == "" {
		return "user " + j.Owner.Name, f.Single
	}
	return j.Spec.Account, f.Parts[j.Spec.Account]
}

// Place returns the place of a user; one without a place is put in the middle.
func (f *Fair) Place(who Assoc) int32 {
	if i, ok := f.Index[who]; ok && int(i) < len(f.Places) {
		return f.Places[i]
	}
	return (f.Of + 1) / 2
}

// Priority returns the priority class of a job: higher goes first.
func (s *Standing) Priority(j *cluster.Job) int64 {
	if s == nil || j.Spec.QOS == "" {
		return 0
	}
	if q := s.QOS[j.Spec.QOS]; q != nil {
		return q.Priority
	}
	return 0
}

// MayPreempt reports whether jobs like a may preempt jobs like b.
func (s *Standing) MayPreempt(a, b *cluster.Job) bool {
	if s == nil || a.Spec.QOS == "" || b.Spec.QOS == "" {
		return false
	}
	q := s.QOS[a.Spec.QOS]
	return q != nil && slices.Contains(q.Preempts, b.Spec.QOS)
}

// Preempts reports whether a job may preempt others by its QOS.
func (s *Standing) Preempts(j *cluster.Job) bool {
	return s != nil && s.QOS[j.Spec.QOS] != nil && len(s.QOS[j.Spec.QOS].Preempts) > 0
}
