package scheduler_test

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/scheduler/rules"
)

// The order of a pass written down once more: lengths beside the time that all
// takes that runs and waits.

type naivePlace struct {
	tier          int
	first, second int64
}

// option is what a job takes of each card of a class, and how long it runs.
type naiveOption struct {
	class int
	dur   int64
	part  int64 // thousandths of the card
}

// choices are the classes on which a job may run.
func (v *naive) choices(j *cluster.Job) (out []naiveOption) {
	classes := v.classes()
	for i, c := range classes {
		s, e, r := rules.ShareOn(j, c.rep, v.pol)
		if r.Code != "" || v.spared(j, c) {
			continue
		}
		part := int64(1000)
		if !s.Exclusive {
			part = min(1000, max(s.Milli, s.MemMiB*1000/c.sellable))
		}
		out = append(out, naiveOption{i, v.lasts(j, e.Duration).Microseconds(), part})
	}
	return out
}

// spared reports whether the job leaves cards of a class to others, since it ran
// out of memory or may do so there and larger ones could ever run it.
func (v *naive) spared(j *cluster.Job, c naiveClass) bool {
	any := func(good func(naiveClass) bool) bool {
		return slices.ContainsFunc(v.classes(), func(c naiveClass) bool {
			_, _, r := rules.ShareOn(j, c.rep, v.pol)
			return r.Code == "" && good(c) && slices.ContainsFunc(v.nodes, func(n *cluster.Node) bool { return v.ever(n, j, c) })
		})
	}
	large := func(c naiveClass) bool { return c.sellable >= j.MinGPUMemMiB }
	leaves := any(large)
	roomy := func(c naiveClass) bool {
		e, _ := cluster.EstimateFor(j.Estimates, c.gpuType)
		return j.Spec.GPUMemMiB > 0 || e.ConfidenceMilli < v.pol.MinConfidenceMilli || e.GPUMemP95MiB <= c.sellable
	}
	return leaves && !large(c) || !roomy(c) && any(func(c naiveClass) bool { return roomy(c) && (!leaves || large(c)) })
}

func (v *naive) lasts(j *cluster.Job, predicted time.Duration) time.Duration {
	d := cmp.Or(predicted, j.Spec.Duration, j.Spec.TimeLimit, v.pol.AssumedDuration)
	if j.Spec.TimeLimit > 0 {
		d = min(d, j.Spec.TimeLimit)
	}
	return d
}

// drains is how long each class takes for all that runs and waits.
func (v *naive) drains(waiting []*cluster.Job) []int64 {
	classes := v.classes()
	cards, out, left := make([]int64, len(classes)), make([]int64, len(classes)), make([]int64, len(classes))
	classOf := map[cluster.GPUID]int{}
	for _, n := range v.nodes {
		for i := range n.GPUs {
			g := &n.GPUs[i]
			if k := slices.IndexFunc(classes, func(c naiveClass) bool {
				return n.Schedulable() && c.same(naiveClass{g.Type, g.SellableMiB, g.Shareable(), nil})
			}); k >= 0 {
				cards[k]++
				classOf[g.ID] = k
			}
		}
	}
	for _, j := range waiting {
		rate, able := 0.0, v.choices(j)
		if j.Spec.GPUs == 0 || len(able) == 0 {
			continue
		}
		for _, o := range able {
			rate += float64(cards[o.class]) * 1000 / (float64(o.part+1) * float64(o.dur))
		}
		for _, o := range able {
			out[o.class] += int64(math.Min(float64(j.Spec.GPUs)/rate, 1e12))
		}
	}
	for _, j := range v.running {
		a := j.Live()
		end := int64(a.Started) + v.lasts(j, a.Estimate.Duration).Microseconds()
		if end <= v.now {
			end = v.now + max(1_000_000, (v.now-int64(a.Started))/4)
		}
		if l := j.Spec.TimeLimit; l > 0 {
			end = min(end, max(int64(a.Started)+l.Microseconds(), v.now+1_000_000))
		}
		for _, g := range a.Berth.GPUs {
			if k, ok := classOf[g.GPU]; ok {
				part := int64(1000)
				if !g.Share.Exclusive {
					part = min(1000, max(g.Share.Milli, g.Share.MemMiB*1000/classes[k].sellable))
				}
				left[k] += (end - v.now) / 1000 * part
			}
		}
	}
	for k := range out {
		out[k] += left[k] / max(1, cards[k])
	}
	return out
}

// stream is for how long jobs have kept coming, 0 when they do not.
func (v *naive) stream(waiting []*cluster.Job) int64 {
	var came []int64
	for _, j := range slices.Concat(waiting, v.running) {
		came = append(came, int64(j.Submitted))
	}
	slices.Sort(came)
	if came = slices.Compact(came); len(came) < 4 {
		return 0
	}
	last := came[max(0, len(came)-17):]
	if v.now-last[len(last)-1] >= 8*(last[len(last)-1]-last[0])/int64(len(last)-1) {
		return 0
	}
	return v.now - came[0]
}

// place is where a job stands in the order.
func (v *naive) place(j *cluster.Job, drains []int64, stream int64) naivePlace {
	able := v.choices(j)
	switch {
	case j.Spec.GPUs == 0:
		return naivePlace{3, -host(j.Spec.CPUMilli, v.pol.DefaultCPUMilli), 0}
	case len(able) == 0:
		return naivePlace{tier: 3}
	}
	fast, size := able[0], int64(1000)
	for _, o := range able {
		if o.dur < fast.dur {
			fast = o
		}
		size = min(size, o.part)
	}
	n := int64(j.Spec.GPUs)
	work := int64(bits.Len64(uint64(fast.dur / 1000 * fast.part / 1000 * n)))
	switch drain := drains[fast.class]; {
	case v.pol.ShortPart > 0 && fast.dur <= drain/v.pol.ShortPart:
		return naivePlace{0, work, -size * n}
	case v.pol.LongPart > 0 && stream < drain && fast.dur >= drain/v.pol.LongPart:
		return naivePlace{1, -fast.dur, -size * n}
	}
	return naivePlace{2, work, -size * n}
}

// plenty reports whether each who waits could have empty cards of any class that
// will do.
func (v *naive) plenty(waiting []*cluster.Job) bool {
	wanted := map[int]int{}
	for _, j := range waiting {
		for _, o := range v.choices(j) {
			wanted[o.class] += j.Spec.GPUs
		}
	}
	for k, n := range wanted {
		idle := 0
		for _, node := range v.nodes {
			for i := range node.GPUs {
				g := &node.GPUs[i]
				u, _ := v.led.GPU(g.ID)
				if node.Schedulable() && u.Shares == 0 && v.classes()[k].same(naiveClass{g.Type, g.SellableMiB, g.Shareable(), nil}) {
					idle++
				}
			}
		}
		if n > idle {
			return false
		}
	}
	return true
}

func (v *naive) order(waiting []*cluster.Job) []*cluster.Job {
	drains, stream, places := v.drains(waiting), v.stream(waiting), map[cluster.JobID]naivePlace{}
	plenty := v.plenty(waiting)
	for _, j := range waiting {
		places[j.ID] = v.place(j, drains, stream)
		if able := v.choices(j); plenty && j.Spec.GPUs > 0 && len(able) > 0 {
			fast, size, n := able[0], int64(1000), int64(j.Spec.GPUs)
			for _, o := range able {
				if o.dur < fast.dur {
					fast = o
				}
				size = min(size, o.part)
			}
			places[j.ID] = naivePlace{0, -size * n, fast.dur / 1000 * fast.part / 1000 * n}
		}
	}
	out := slices.Clone(waiting)
	slices.SortFunc(out, func(a, b *cluster.Job) int {
		x, y := places[a.ID], places[b.ID]
		return cmp.Or(cmp.Compare(x.tier, y.tier), cmp.Compare(x.first, y.first), cmp.Compare(x.second, y.second), cmp.Compare(a.ID, b.ID))
	})
	return out
}
