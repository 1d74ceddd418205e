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
	temper dispatch.Temper
	owner  *cluster.Owner
}

// maxMates is the largest set considered; no job joins a larger one.
const maxMates = 8

// slowdowns appends how many times longer each of a set takes than alone. See
// dispatch.Interference.
func slowdowns(x *dispatch.Interference, s *dispatch.Sharing, set []Sharer, out []float64) []float64 {
	for i := range set {
		v := &set[i]
		slow, all, pairs := 1.0, 0.0, 0.0
		for k := range set {
			all += x.BandwidthPerUtil * set[k].util
			if k == i {
				continue
			}
			n := &set[k]
			beyond := max(0, x.BandwidthPerUtil*(v.util+n.util)-1)
			pairs += beyond
			prior := 1 + s.Switch + s.Compute*v.util*n.util + s.Memory*v.util*x.BandwidthPerUtil*n.util + s.Bandwidth*beyond
			slow += max(1, prior*bend(s.Offset(v.temper, n.temper), x.MaxBend)) - 1
		}
		if len(set) > 2 {
			slow += s.Bandwidth * max(0, max(0, all-1)-pairs)
		}
		out = append(out, slow)
	}
	return out
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

// Judge returns what speaks against a newcomer on a GPU where others run; set is
// scratch.
func Judge(x *dispatch.Interference, s *dispatch.Sharing, on []Sharer, newcomer Sharer, limitMilli int64) Verdict {
	switch { // strangers were already rejected; see strangers
	case len(on) == 0 || s == nil || limitMilli <= 0:
		return Verdict{}
	case s.Never:
		return Verdict{never: true}
	case len(on) >= maxMates:
		return Verdict{crowded: true}
	}
	var set [maxMates]Sharer
	var slow [maxMates]float64
	n := copy(set[:], on)
	set[n] = newcomer
	worst := Verdict{}
	for i, v := range slowdowns(x, s, set[:n+1], slow[:0]) {
		if v*1000 > float64(limitMilli) && v > worst.slowdown {
			worst = Verdict{slowdown: v, of: set[i].Job}
		}
	}
	return worst
}

// SharerOf returns a job as a sharer of a GPU of whose compute it takes so much; id
// is 0 until it runs there.
func SharerOf(x *dispatch.Interference, j *cluster.Job, id cluster.JobID, milli int64) Sharer {
	m := Sharer{Job: id, util: float64(min(max(milli, 0), cluster.WholeGPU)) / cluster.WholeGPU, owner: &j.Owner}
	if x != nil {
		m.temper = x.Jobs[j.Spec.Signature]
	}
	return m
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
