package attempts

import (
	"cmp"
	"slices"
	"strings"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/fsm/learned"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

// learn keeps what an attempt taught that has just ended. It returns false when the
// figures cannot be.
func (s *Steward) learn(j *cluster.Job, a *cluster.Attempt, r *logv1.ReportAttempt) bool {
	run := learned.Run{Job: j, Attempt: a, Report: r, Company: func() []learned.Company { return s.companyOf(a) }}
	if len(a.Berth.GPUs) > 0 {
		run.Card = s.fleet.Card(a.Berth.Node, a.Berth.GPUs[0].GPU)
	}
	return s.learned.Learn(*s.at, run)
}

// companyOf says with whom an attempt that has just ended shared its GPUs, and
// how long: nobody when one of them is not known any more, since the others
// would then be blamed for what it did.
func (s *Steward) companyOf(a *cluster.Attempt) []learned.Company {
	if len(a.Neighbours) == 0 || len(a.Neighbours) >= cluster.MaxNeighbours {
		return nil
	}
	began := max(a.Started, a.Placed)
	var out []learned.Company
	for _, id := range a.Neighbours {
		j := s.roll.Jobs.Get(id)
		if j == nil {
			return nil
		}
		for i := range j.Attempts {
			b := &j.Attempts[i]
			if !sharesGPU(a, b) {
				continue
			}
			to := a.Ended
			if b.State.Terminal() {
				to = min(to, b.Ended)
			}
			if overlap := to.Sub(max(began, b.Started, b.Placed)); overlap > 0 {
				k := slices.IndexFunc(out, func(c learned.Company) bool { return c.Signature == j.Spec.Signature })
				if k < 0 {
					k = len(out)
					out = append(out, learned.Company{Signature: j.Spec.Signature})
				}
				out[k].Overlap += overlap
				out[k].Milli = b.Estimate.Milli
			}
		}
	}
	slices.SortFunc(out, func(a, b learned.Company) int {
		return cmp.Or(cmp.Compare(b.Overlap, a.Overlap), strings.Compare(a.Signature, b.Signature))
	})
	return slices.Clip(out[:min(len(out), learned.MaxCompany)])
}

func sharesGPU(a, b *cluster.Attempt) bool {
	for _, x := range a.Berths() {
		for _, y := range b.Berths() {
			if x.Node == y.Node && slices.ContainsFunc(x.GPUs, func(g cluster.GPUShare) bool {
				return slices.ContainsFunc(y.GPUs, func(h cluster.GPUShare) bool { return g.GPU == h.GPU })
			}) {
				return true
			}
		}
	}
	return false
}
