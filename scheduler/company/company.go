// Package company predicts how much jobs that share a GPU slow each other down, and
// decides whether one more may join them.
package company

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler/say"
)

// Sharer is a job on a shared GPU, as far as co-located jobs slow each other down.
type Sharer struct {
	Job    cluster.JobID // 0 for one that is not there yet
	util   float64       // alone, of the GPU
	nature *Nature
	owner  *cluster.Owner
}

// maxMates is the largest set considered; no job joins a larger one.
const maxMates = 8

// slowdown returns how many times longer than alone the i-th of those on a GPU
// takes, or with len(on) the newcomer. See dispatch.Interference.
func slowdown(x *dispatch.Interference, s *dispatch.Sharing, on []Sharer, newcomer *Sharer, i int) float64 {
	v := newcomer
	if i < len(on) {
		v = &on[i]
	}
	slow, all, pairs := 1.0, 0.0, 0.0
	for k := range len(on) + 1 {
		n := newcomer
		if k < len(on) {
			n = &on[k]
		}
		all += x.BandwidthPerUtil * n.util
		if k == i {
			continue
		}
		beyond := max(0, x.BandwidthPerUtil*(v.util+n.util)-1)
		pairs += beyond
		prior := 1 + s.Switch + s.Compute*v.util*n.util + s.Memory*v.util*x.BandwidthPerUtil*n.util + s.Bandwidth*beyond
		slow += max(1, prior*bend(offset(s, v.nature, n.nature), x.MaxBend)) - 1
	}
	if len(on) > 1 {
		slow += s.Bandwidth * max(0, max(0, all-1)-pairs)
	}
	return slow
}

// bend is the factor of an offset.
func bend(x, most float64) float64 {
	x = max(-most, min(most, x))
	return (2 + x) / (2 - x)
}

// Verdict is what speaks against one more job on a GPU. The zero verdict is
// nothing.
type Verdict struct {
	never    bool
	crowded  bool
	slowdown float64       // of the job hit worst
	of       cluster.JobID // 0 for the newcomer
	Strange  *cluster.GPU  // set if it is not shared with the owner of job of
}

// Against reports whether anything does.
func (v *Verdict) Against() bool {
	return v.never || v.slowdown > 0 || v.crowded || v.Strange != nil
}

// Words says why, with the numbers that decided. s is nil for a crowd.
func (v *Verdict) Words(s *dispatch.Sharing, limitMilli int64) string {
	switch {
	case v.Strange != nil:
		return fmt.Sprintf("GPU %s, capped by %s, is shared %s; job %d there is not of them", v.Strange.ID, orNothing(v.Strange.CapMode), v.Strange.Scope.Among(), v.of)
	case v.never:
		return fmt.Sprintf("two jobs on one %s get less done than by turns: their speeds add up to %.2f in %d pairs", s.GPUType, s.SpeedSum, s.Pairs)
	case v.crowded:
		return "more jobs there than slowdowns can be told for"
	case v.of == 0:
		return fmt.Sprintf("would itself be slowed down %.1f×, the limit is %s×", v.slowdown, say.Times(limitMilli))
	}
	return fmt.Sprintf("would slow job %d down %.1f×, the limit is %s×", v.of, v.slowdown, say.Times(limitMilli))
}

// Judge returns what speaks against a newcomer on a GPU where others run.
func Judge(x *dispatch.Interference, s *dispatch.Sharing, on []Sharer, newcomer Sharer, limitMilli int64) Verdict {
	switch { // strangers were already rejected; see strangers
	case len(on) == 0 || s == nil || limitMilli <= 0:
		return Verdict{}
	case s.Never:
		return Verdict{never: true}
	case len(on) >= maxMates:
		return Verdict{crowded: true}
	}
	worst := Verdict{}
	for i := range len(on) + 1 {
		if v := slowdown(x, s, on, &newcomer, i); v*1000 > float64(limitMilli) && v > worst.slowdown {
			worst = Verdict{slowdown: v, of: newcomer.Job}
			if i < len(on) {
				worst.of = on[i].Job
			}
		}
	}
	return worst
}

// SharerOf returns a job as a sharer of a GPU of whose compute it takes so much; id
// is 0 until it runs there.
func SharerOf(j *cluster.Job, id cluster.JobID, milli int64, nature *Nature) Sharer {
	return Sharer{Job: id, util: float64(min(max(milli, 0), cluster.WholeGPU)) / cluster.WholeGPU, nature: nature, owner: &j.Owner}
}

// Suits reports whether nothing speaks against a newcomer on a GPU; it is Judge for
// when the reason does not matter.
func Suits(x *dispatch.Interference, s *dispatch.Sharing, on []Sharer, newcomer *Sharer, limitMilli int64) bool {
	switch {
	case len(on) == 0 || s == nil || limitMilli <= 0:
		return true
	case s.Never || len(on) >= maxMates:
		return false
	}
	for i := len(on); i >= 0; i-- {
		if slowdown(x, s, on, newcomer, i)*1000 > float64(limitMilli) {
			return false
		}
	}
	return true
}

// Insert keeps mates in order of their ids, so that sums do not depend on the order
// in which they came.
func Insert(on []Sharer, m Sharer) []Sharer {
	i, _ := slices.BinarySearchFunc(on, m, func(a, b Sharer) int { return cmp.Compare(a.Job, b.Job) })
	return slices.Insert(on, i, m)
}

// Strangers reports whether a GPU may not be shared between its residents and an
// owner.
func Strangers(g *cluster.GPU, on []Sharer, owner *cluster.Owner) Verdict {
	if g.Scope == cluster.ScopeAnyone {
		return Verdict{}
	}
	for i := range on {
		if !g.Scope.Allows(on[i].owner, owner) {
			return Verdict{Strange: g, of: on[i].Job}
		}
	}
	return Verdict{}
}

func orNothing(s string) string {
	return cmp.Or(s, "nothing")
}
