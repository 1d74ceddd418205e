package optimum

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"time"

	"github.com/berth-scheduler/berth/scheduler/sim/slowdown"
	"github.com/berth-scheduler/berth/scheduler/sim/workload"
)

// MaxExact is up to how many jobs exact optima are searched.
const MaxExact = 12

// small is an instance that can be solved exactly: jobs of one GPU that are all
// present, on GPUs of one type.
type small struct {
	jobs   []smallJob // longest first
	cards  int
	memMiB int64
	milli  int64 // of compute that jobs on a GPU may use together, 0 for any
	shares int
	world  slowdown.Interference
	gpu    string
	// price is the least part of a GPU's time that a second of a job takes.
	price []float64
	memo  map[uint]float64 // shortest time of a set on one GPU
	// together are the sets that may run on a GPU at once, larger ones first.
	together []company
}

// company is a set of jobs that run on one GPU at once, and the speed of each.
type company struct {
	set    uint
	speeds [MaxExact]float64
}

type smallJob struct {
	d     float64
	load  slowdown.Load
	milli int64
}

func newSmall(w *workload.Workload, f *workload.Fleet, world slowdown.Interference) (*small, error) {
	types := cardTypes(f, true, 0)
	if len(types) != 1 || len(w.Jobs) == 0 || len(w.Jobs) > MaxExact {
		return nil, fmt.Errorf("%d jobs on %d types of card: exact optima are for 1 to %d jobs on one type", len(w.Jobs), len(types), MaxExact)
	}
	t := types[0]
	s := &small{cards: t.cards, memMiB: t.memMiB, shares: t.shares, world: world, gpu: t.name, memo: map[uint]float64{}}
	for i := range w.Jobs {
		j := &w.Jobs[i]
		o := j.Figures(t.name)
		if j.GPUs != 1 || j.Submit != 0 || j.Milli != 0 || o.MemMiB > t.memMiB {
			return nil, fmt.Errorf("job %s: exact optima are for jobs of one card that fit it, declare no share and are there at the start", j.ID)
		}
		l := slowdown.Load{Milli: cmp.Or(o.UsedMilli, 1000), MemMiB: o.MemMiB, Model: j.Model, Stages: j.Stages}
		s.jobs = append(s.jobs, smallJob{o.Duration.Seconds(), l, cmp.Or(o.UsedMilli, 1000)})
	}
	slices.SortStableFunc(s.jobs, func(a, b smallJob) int { return cmp.Compare(b.d, a.d) })
	s.price = make([]float64, len(s.jobs))
	one := *f
	one.Nodes = []workload.NodeSpec{f.Nodes[0]}
	one.Nodes[0].Count, one.Nodes[0].GPUs = 1, 1
	sorted := &workload.Workload{Jobs: slices.Clone(w.Jobs)}
	slices.SortStableFunc(sorted.Jobs, func(a, b workload.Job) int {
		return cmp.Compare(b.Figures(t.name).Duration, a.Figures(t.name).Duration)
	})
	if p := prices(sorted, &one, world, true, 0); p != nil {
		s.price = p
	}
	return s, nil
}

// ShortestMakespan returns the shortest time in which a schedule can end all jobs
// that starts jobs at the beginning or when others end, never ends one early, and
// keeps to the memory and the sharing limit of the GPUs: by branch and bound over
// which job goes to which GPU, and in which order there.
func ShortestMakespan(w *workload.Workload, f *workload.Fleet, world slowdown.Interference) (time.Duration, error) {
	s, err := newSmall(w, f, world)
	if err != nil {
		return 0, err
	}
	return s.shortest(), nil
}

// ShortestMakespanWithin is ShortestMakespan among the schedules that place no more
// on a GPU than it has compute for: those allowed by a ledger that does not
// oversell.
func ShortestMakespanWithin(w *workload.Workload, f *workload.Fleet, world slowdown.Interference) (time.Duration, error) {
	s, err := newSmall(w, f, world)
	if err != nil {
		return 0, err
	}
	s.milli = 1000
	return s.shortest(), nil
}

func (s *small) shortest() time.Duration {
	s.companies()
	best := math.Inf(1)
	sets := make([]uint, s.cards)
	s.assign(0, sets, &best)
	return time.Duration(math.Round(best * float64(time.Second)))
}

// assign puts job i on each GPU in turn, GPUs with equal sets once.
func (s *small) assign(i int, sets []uint, best *float64) {
	for _, set := range sets {
		if s.bound(set) >= *best {
			return
		}
	}
	if i == len(s.jobs) {
		longest := 0.0
		for _, set := range sets {
			if longest = max(longest, s.oneCard(set)); longest >= *best {
				return
			}
		}
		*best = longest
		return
	}
	for c := range sets {
		if slices.Contains(sets[:c], sets[c]) {
			continue
		}
		sets[c] |= 1 << i
		s.assign(i+1, sets, best)
		sets[c] &^= 1 << i
	}
}

// bound returns the least time a set takes on one GPU.
func (s *small) bound(set uint) float64 {
	if v, ok := s.memo[set]; ok {
		return v
	}
	longest, sum := 0.0, 0.0
	for i := range s.jobs {
		if set>>i&1 == 1 {
			longest, sum = max(longest, s.jobs[i].d), sum+s.price[i]*s.jobs[i].d
		}
	}
	return max(longest, sum)
}

// oneCard returns the shortest time of a set on one GPU.
func (s *small) oneCard(set uint) float64 {
	if v, ok := s.memo[set]; ok {
		return v
	}
	best := math.Inf(1)
	var left [MaxExact]float64
	for i := range left {
		left[i] = 1
	}
	s.search(0, 0, set, &left, &best)
	s.memo[set] = best
	return best
}

// search decides which jobs start now, and continues at the next end. left is the
// part of each job still to be done.
func (s *small) search(now float64, running, waiting uint, left *[MaxExact]float64, best *float64) {
	if running|waiting == 0 {
		*best = min(*best, now)
		return
	}
	longest, sum := 0.0, 0.0
	for i := range s.jobs {
		if (running|waiting)>>i&1 == 1 {
			d := left[i] * s.jobs[i].d
			longest, sum = max(longest, d), sum+s.price[i]*d
		}
	}
	if now+max(longest, sum) >= *best-1e-9 {
		return
	}
	for k := range s.together {
		if c := &s.together[k]; c.set&running == running && c.set&^(running|waiting) == 0 {
			s.step(now, c, waiting&^c.set, left, best)
		}
	}
}

// step runs a set until the first of it ends.
func (s *small) step(now float64, c *company, waiting uint, left *[MaxExact]float64, best *float64) {
	running, dt := c.set, math.Inf(1)
	for set := c.set; set != 0; set &= set - 1 {
		i := bits.TrailingZeros(set)
		dt = min(dt, left[i]*s.jobs[i].d/c.speeds[i])
	}
	next := *left
	for set := c.set; set != 0; set &= set - 1 {
		i := bits.TrailingZeros(set)
		next[i] -= dt * c.speeds[i] / s.jobs[i].d
		if next[i] < 1e-12 {
			next[i], running = 0, running&^(1<<i)
		}
	}
	s.search(now+dt, running, waiting, &next, best)
}

// companies lists which jobs may run at once. Larger sets are first, since they
// lead to short schedules early.
func (s *small) companies() {
	for set := uint(1)<<len(s.jobs) - 1; set != 0; set-- {
		if !s.fits(set) {
			continue
		}
		var at []int
		var loads []slowdown.Load
		for i := range s.jobs {
			if set>>i&1 == 1 {
				at, loads = append(at, i), append(loads, s.jobs[i].load)
			}
		}
		speeds := make([]float64, len(at))
		for k := range speeds {
			speeds[k] = 1
		}
		if len(at) > 1 {
			s.world.Speeds(s.gpu, loads, speeds)
		}
		c := company{set: set}
		for k, i := range at {
			c.speeds[i] = max(1e-6, speeds[k])
		}
		s.together = append(s.together, c)
	}
	slices.SortStableFunc(s.together, func(a, b company) int { return cmp.Compare(bits.OnesCount(b.set), bits.OnesCount(a.set)) })
}

func (s *small) fits(set uint) bool {
	n, mem, milli := 0, int64(0), int64(0)
	for i := range s.jobs {
		if set>>i&1 == 1 {
			n, mem, milli = n+1, mem+s.jobs[i].load.MemMiB, milli+s.jobs[i].milli
		}
	}
	return n <= s.shares && mem <= s.memMiB && (n == 1 || s.milli == 0 || milli <= s.milli)
}

// FewestCards returns the least number of GPUs that hold all jobs at once, each
// within its memory, its time and its sharing limit.
func FewestCards(w *workload.Workload, f *workload.Fleet) (int, error) {
	s, err := newSmall(w, f, slowdown.Free{})
	if err != nil {
		return 0, err
	}
	best := len(s.jobs) + 1
	var sets []uint
	var place func(i int)
	place = func(i int) {
		if len(sets) >= best {
			return
		}
		if i == len(s.jobs) {
			best = len(sets)
			return
		}
		for c := range sets {
			if s.holds(sets[c] | 1<<i) {
				sets[c] |= 1 << i
				place(i + 1)
				sets[c] &^= 1 << i
			}
		}
		sets = append(sets, 1<<i)
		place(i + 1)
		sets = sets[:len(sets)-1]
	}
	place(0)
	return best, nil
}

// holds reports whether a GPU holds a set at once without one waiting for time.
func (s *small) holds(set uint) bool {
	milli := int64(0)
	for i := range s.jobs {
		if set>>i&1 == 1 {
			milli += s.jobs[i].milli
		}
	}
	return s.fits(set) && milli <= 1000
}
