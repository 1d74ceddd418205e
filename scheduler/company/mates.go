package company

import (
	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler/rules"
)

// Mate is a job on a shared GPU, as far as co-located jobs slow each other down.
type Mate struct {
	Job       cluster.JobID
	Signature string
	Owner     *cluster.Owner
	// Milli is the utilization of the GPU in thousandths, alone.
	Milli int64
}

// Slowdowns appends to out how many times longer each of a set is predicted to
// take, if it shared a GPU like gpu, than alone. It returns false if nothing is
// known of sharing such a GPU, and for sets of more than eight.
func Slowdowns(know *dispatch.Interference, gpu *cluster.GPU, set []Mate, out []float64) ([]float64, bool) {
	s := know.SharingOn(gpu)
	if s == nil || len(set) > maxMates {
		return out, false
	}
	var buf [maxMates]Sharer
	ms := buf[:0]
	for i := range set {
		ms = append(ms, set[i].mate(know, s))
	}
	for i := range ms {
		out = append(out, slowdown(know, s, ms[:len(ms)-1], &ms[len(ms)-1], i))
	}
	return out, true
}

// Bears reports whether newcomer may run on a GPU like gpu next to others: their
// owners may share it, and by what was learned of sharing no job is predicted to be
// slowed down beyond Policy.MaxSlowdownMilli. If nothing was learned, or no limit
// is set, only the first counts. It is Schedule's rule, for other policies.
func Bears(know *dispatch.Interference, gpu *cluster.GPU, on []Mate, newcomer Mate, pol *rules.Policy) bool {
	for i := range on {
		if gpu.Scope != cluster.ScopeAnyone && !gpu.Scope.Allows(on[i].Owner, newcomer.Owner) {
			return false
		}
	}
	s := know.SharingOn(gpu)
	if s == nil || len(on) == 0 || pol.MaxSlowdownMilli <= 0 {
		return true
	}
	if len(on) >= maxMates {
		return false
	}
	var buf [maxMates]Sharer
	ms := buf[:0]
	for i := range on {
		ms = Insert(ms, on[i].mate(know, s))
	}
	v := Judge(know, s, ms, newcomer.mate(know, s), pol.MaxSlowdownMilli)
	return !v.Against()
}

func (m *Mate) mate(know *dispatch.Interference, s *dispatch.Sharing) Sharer {
	milli := min(max(m.Milli, 0), cluster.WholeGPU)
	nature := NatureOf(know, s, m.Signature, nil)
	return Sharer{Job: m.Job, util: float64(milli) / cluster.WholeGPU, nature: &nature}
}
