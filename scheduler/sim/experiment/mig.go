package experiment

import (
	"container/heap"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler/mig"
	"github.com/berth-scheduler/berth/scheduler/sim"
	"github.com/berth-scheduler/berth/scheduler/sim/workload"
)

// The parameters of the experiment. A cut takes migCut, and as on live clusters a GPU is left
// alone for migPause after one, and a job is held back for migHold from an instance that is
// larger than it needs.
const (
	migWork  = 6.0 // GPUs that are busy on average, if no part of one is wasted
	migShift = 6 * time.Hour
	migWait  = time.Minute // the longest mean wait
	migMost  = 64          // GPUs
	migCut   = 2 * time.Second
	migPause = 3 * time.Second
	migHold  = 20 * time.Second
)

// migSizes are what jobs need: that part of a GPU's multiprocessors, and memory.
var migSizes = [...]struct {
	milli, mem int64
	sevenths   float64
}{{130, 8_000, 1}, {260, 18_000, 2}, {400, 35_000, 3}, {900, 70_000, 7}}

// migMixes are how often jobs have each size. In "shifting" the two follow each other.
var migMixes = [...]struct {
	name string
	part [2][len(migSizes)]float64
}{
	{"steady", [2][len(migSizes)]float64{{0.6, 0.2, 0.12, 0.08}, {0.6, 0.2, 0.12, 0.08}}},
	{"shifting", [2][len(migSizes)]float64{{0.75, 0.2, 0.05, 0}, {0.1, 0.1, 0.2, 0.6}}},
}

// migCard returns an A100 of 80 GB with a 7g.80gb instance, or cut into one for each of the
// smaller sizes and one more of the smallest.
func migCard(n int, whole bool) mig.Card {
	c := mig.Card{Node: "n", UUID: fmt.Sprint("g", n), Type: "A100", Profiles: []mig.Profile{
		{Name: "1g.10gb", MemMiB: 9_700, Compute: 1, Size: 1, Starts: []int{0, 1, 2, 3, 4, 5, 6}}, {Name: "2g.20gb", MemMiB: 19_900, Compute: 2, Size: 2, Starts: []int{0, 2, 4}},
		{Name: "3g.40gb", MemMiB: 40_200, Compute: 3, Size: 4, Starts: []int{0, 4}}, {Name: "4g.40gb", MemMiB: 40_200, Compute: 4, Size: 4, Starts: []int{0}},
		{Name: "7g.80gb", MemMiB: 80_900, Compute: 7, Size: 8, Starts: []int{0}},
	}}
	of := []mig.Instance{{Profile: "7g.80gb", Size: 8}}
	if !whole {
		of = []mig.Instance{{Profile: "2g.20gb", Size: 2}, {Profile: "1g.10gb", Start: 2, Size: 1}, {Profile: "1g.10gb", Start: 3, Size: 1}, {Profile: "3g.40gb", Start: 4, Size: 4}}
	}
	for _, in := range of {
		c.Instances = append(c.Instances, named(&c, in))
	}
	return c
}

// named gives an instance the id that it has there.
func named(c *mig.Card, in mig.Instance) mig.Instance {
	in.ID = cluster.GPUID(fmt.Sprintf("%s/%s@%d", c.UUID, in.Profile, in.Start))
	return in
}

// migJobs draws jobs whose work keeps migWork GPUs busy.
func migJobs(seed uint64, mix, n int) []workload.Job {
	out, at := make([]workload.Job, n), time.Duration(0)
	for i := range out {
		j := &out[i]
		r := workload.Chance(seed, fmt.Sprint(i), "mig")
		part := &migMixes[mix].part[int(at/migShift)%2]
		u, size, mean := r.Float64(), 0, 0.0
		for k := range part {
			mean += part[k] * migSizes[k].sevenths / 7
			if u >= part[k] && size == k && k+1 < len(part) {
				u, size = u-part[k], k+1
			}
		}
		d := min(4*3600, max(60, math.Exp(math.Log(900)+r.NormFloat64())))
		*j = workload.Job{ID: fmt.Sprint(i), Submit: at, Duration: time.Duration(d * float64(time.Second)).Round(time.Second), GPUs: 1, Milli: migSizes[size].milli, MemMiB: migSizes[size].mem}
		at += time.Duration(r.ExpFloat64() * 900 * math.Exp(0.5) * mean / migWork * float64(time.Second)).Round(time.Second)
	}
	return out
}

// migRun is a run of jobs, first come first served where they fit, on GPUs in MIG mode.
type migRun struct {
	recut bool
	cards []mig.Card
	// busy are instances that run a job or are being made, left is until when a GPU is left
	// alone, held since when a job is held back.
	busy    map[cluster.GPUID]bool
	left    map[string]time.Duration
	held    map[cluster.JobID]time.Duration
	waiting []*cluster.Job
	agenda  migAgenda
	cuts    int
	// most is the sum of waits after which a run ends, since it is known to be too long.
	most time.Duration
}

// migEvent frees an instance, or none where only time passes.
type migEvent struct {
	at    time.Duration
	frees cluster.GPUID
}

type migAgenda []migEvent

func (a migAgenda) Len() int           { return len(a) }
func (a migAgenda) Less(i, j int) bool { return a[i].at < a[j].at }
func (a migAgenda) Swap(i, j int)      { a[i], a[j] = a[j], a[i] }
func (a *migAgenda) Push(e any)        { *a = append(*a, e.(migEvent)) }
func (a *migAgenda) Pop() any {
	last := (*a)[len(*a)-1]
	*a = (*a)[:len(*a)-1]
	return last
}

// migFigures are the mean time to the end and the waits of a run.
type migFigures struct {
	jct, wait time.Duration
	waits     []time.Duration // sorted
	cuts      int
}

// run runs jobs on so many GPUs, whole ones and others cut.
func (r *migRun) run(jobs []workload.Job, whole, cut int) migFigures {
	for n := range whole + cut {
		r.cards = append(r.cards, migCard(n, n < whole))
	}
	r.busy, r.left, r.held = map[cluster.GPUID]bool{}, map[string]time.Duration{}, map[cluster.JobID]time.Duration{}
	var f migFigures
	began := func(id cluster.JobID, at time.Duration) time.Duration {
		j := &jobs[id]
		f.waits = append(f.waits, at-j.Submit)
		f.wait += at - j.Submit
		f.jct += at - j.Submit + j.Duration
		return at + j.Duration
	}
	for next := 0; next < len(jobs) || len(r.agenda) > 0; {
		if f.wait > r.most {
			return migFigures{jct: math.MaxInt64, wait: math.MaxInt64}
		}
		now := time.Duration(math.MaxInt64)
		if next < len(jobs) {
			now = jobs[next].Submit
		}
		if len(r.agenda) > 0 {
			now = min(now, r.agenda[0].at)
		}
		for ; next < len(jobs) && jobs[next].Submit == now; next++ {
			r.waiting = append(r.waiting, &cluster.Job{ID: cluster.JobID(next), Spec: &cluster.Spec{GPUs: 1, GPUMemMiB: jobs[next].MemMiB, GPUMilli: jobs[next].Milli}})
		}
		for len(r.agenda) > 0 && r.agenda[0].at == now {
			delete(r.busy, heap.Pop(&r.agenda).(migEvent).frees)
		}
		r.start(now, began)
		if r.recut {
			r.cut(now)
		}
	}
	slices.Sort(f.waits)
	n := time.Duration(len(f.waits))
	f.jct, f.wait, f.cuts = f.jct/n, f.wait/n, r.cuts
	return f
}

// start starts the jobs for which there is an idle instance, each on the smallest.
func (r *migRun) start(now time.Duration, began func(cluster.JobID, time.Duration) time.Duration) {
	none := map[int64]bool{} // by what jobs need
	r.waiting = slices.DeleteFunc(r.waiting, func(j *cluster.Job) bool {
		if none[j.Spec.GPUMilli] {
			return false
		}
		id, wastes := r.smallest(j)
		if id == "" {
			none[j.Spec.GPUMilli] = true
			return false
		}
		if wastes && r.recut {
			since, was := r.held[j.ID]
			if !was {
				r.held[j.ID], since = now, now
				heap.Push(&r.agenda, migEvent{at: now + migHold})
			}
			if now < since+migHold {
				return false
			}
		}
		r.busy[id] = true
		heap.Push(&r.agenda, migEvent{began(j.ID, now), id})
		return true
	})
}

// smallest returns the smallest idle instance that a job can use, "" if there is none, and
// whether its GPU could be cut into a smaller one.
func (r *migRun) smallest(j *cluster.Job) (id cluster.GPUID, wastes bool) {
	size := math.MaxInt
	for i := range r.cards {
		c := &r.cards[i]
		for _, in := range c.Instances {
			if in.Size < size && !r.busy[in.ID] && c.Holds(in.ID, j) {
				id, size, wastes = in.ID, in.Size, c.Wastes(in.ID, j)
			}
		}
	}
	return id, wastes
}

// cut cuts GPUs for the jobs that wait.
func (r *migRun) cut(now time.Duration) {
	wanted := slices.Clone(r.waiting)
	for len(wanted) > 0 {
		n := &cluster.Node{ID: "n", State: cluster.NodeReady}
		var cards []mig.Card
		for i := range r.cards {
			c := &r.cards[i]
			for _, in := range c.Instances {
				if !r.busy[in.ID] {
					n.GPUs = append(n.GPUs, cluster.GPU{ID: in.ID, State: cluster.GPUOK})
				}
			}
			if now >= r.left[c.UUID] {
				cards = append(cards, *c)
			}
		}
		cut := mig.Plan(cards, dispatch.NewLedger([]*cluster.Node{n}), wanted)
		if cut == nil {
			return
		}
		wanted = slices.DeleteFunc(wanted, func(j *cluster.Job) bool { return slices.Contains(cut.For, j.ID) })
		c := &r.cards[slices.IndexFunc(r.cards, func(c mig.Card) bool { return c.UUID == cut.Card.UUID })]
		c.Instances = slices.DeleteFunc(slices.Clone(c.Instances), func(in mig.Instance) bool { return slices.Contains(cut.Drop, in.ID) })
		for _, in := range cut.Make {
			in = named(c, in)
			c.Instances = append(c.Instances, in)
			r.busy[in.ID] = true
			heap.Push(&r.agenda, migEvent{now + migCut, in.ID})
		}
		r.cuts++
		r.left[c.UUID] = now + migCut + migPause
		heap.Push(&r.agenda, migEvent{at: r.left[c.UUID]})
	}
}

// migWays are the ways to cut so many GPUs; the best of several fixed ones counts. Runs in
// which jobs wait longer in sum are given up.
var migWays = [...]struct {
	name string
	of   func(jobs []workload.Job, cards int, most time.Duration) migFigures
}{
	{"whole", func(jobs []workload.Job, cards int, most time.Duration) migFigures {
		return (&migRun{most: most}).run(jobs, cards, 0)
	}},
	{"fixed", func(jobs []workload.Job, cards int, most time.Duration) (best migFigures) {
		for whole := 1; whole <= cards; whole++ {
			f := (&migRun{most: most}).run(jobs, whole, cards-whole)
			if best.jct == 0 || f.jct < best.jct {
				best = f
			}
			if n := time.Duration(len(jobs)); f.wait < most/n {
				most = (f.wait + 1) * n
			}
		}
		return best
	}},
	{"recut", func(jobs []workload.Job, cards int, most time.Duration) migFigures {
		return (&migRun{recut: true, most: most}).run(jobs, cards, 0)
	}},
}

// recut compares GPUs in MIG mode that are cut by demand with GPUs cut once.
func recut(ctx context.Context, c Config) (*Report, error) {
	n, seeds := 2_000, c.seeds(10, 2)
	if c.Quick {
		n = 400
	}
	rep := &Report{
		Name: "mig", Title: "GPUs in MIG mode cut by demand (MIG-Serving, 2021)",
		Columns: []string{"gpus", "mean_jct_s", "mean_wait_s", "p99_wait_s", "cuts"},
		Assumptions: []string{
			fmt.Sprintf("invented: %d jobs of 1, 2, 3 and 7 sevenths of an A100 of 80 GB and its memory, exponential times between arrivals, run times LogNormal with a median of 15 min and a sigma of 1, from 1 min to 4 h; they keep %.0f GPUs busy; the paper has services with objectives instead", n, migWork),
			fmt.Sprintf("steady: 60, 20, 12 and 8 %% of the jobs have these sizes; shifting: 75, 20, 5 and 0 %%, and 10, 10, 20 and 60 %%, each for %s", migShift),
			"whole: an instance of all of each GPU; fixed: some GPUs whole and the others as 3g, 2g, 1g, 1g, as many of each as give the least mean time to the end, known beforehand; recut: by the code of gpus.recut",
			fmt.Sprintf("first come, first served where an instance suits; a job is no faster on a larger one; a cut takes %s, and the rest is as gpus.recut has it; sizes are known exactly", migCut),
			fmt.Sprintf("gpus are the fewest with a mean wait of at most %s; the other figures are with as many as recut needs", migWait),
		},
	}
	for mix := range migMixes {
		sums := map[string]map[string][]float64{}
		for seed := uint64(1); seed <= seeds; seed++ {
			c.note("mig: %s, seed %d", migMixes[mix].name, seed)
			if err := migSeed(ctx, migJobs(seed, mix, n), sums); err != nil {
				return nil, err
			}
		}
		for _, way := range migWays {
			l := Line{Variant: migMixes[mix].name + ", " + way.name, Seeds: int(seeds), Mean: map[string]float64{}, CI95: map[string]float64{}} // #nosec G115 -- a few
			for name, vs := range sums[way.name] {
				l.Mean[name], l.CI95[name] = sim.MeanCI(vs)
			}
			rep.Lines = append(rep.Lines, l)
		}
		rep.claimCuts(migMixes[mix].name)
	}
	return rep, nil
}

// claimCuts compares with what the paper says of whole GPUs, and with fixed instances.
func (r *Report) claimCuts(mix string) {
	r.Claims = append(r.Claims,
		atLeast(mix+": recut against whole, fewer GPUs, %", 40, -r.change(mix+", whole", mix+", recut", "gpus")),
		atLeast(mix+": recut against fixed, fewer GPUs, %", 0, -r.change(mix+", fixed", mix+", recut", "gpus")),
		atLeast(mix+": recut against fixed, less mean time to the end, %", 0, -r.change(mix+", fixed", mix+", recut", "mean_jct_s")))
}

// migSeed appends the figures of one list of jobs, by way and column.
func migSeed(ctx context.Context, jobs []workload.Job, sums map[string]map[string][]float64) error {
	needs := map[string]int{}
	for _, way := range migWays {
		cards := int(migWork)
		for ; cards < migMost && way.of(jobs, cards, migWait*time.Duration(len(jobs))).wait > migWait; cards++ {
			if ctx.Err() != nil {
				return ctx.Err()
			}
		}
		needs[way.name] = cards
	}
	for _, way := range migWays {
		f := way.of(jobs, needs["recut"], math.MaxInt64)
		if sums[way.name] == nil {
			sums[way.name] = map[string][]float64{}
		}
		for name, v := range map[string]float64{
			"gpus": float64(needs[way.name]), "mean_jct_s": f.jct.Seconds(), "mean_wait_s": f.wait.Seconds(),
			"p99_wait_s": f.waits[len(f.waits)*99/100].Seconds(), "cuts": float64(f.cuts),
		} {
			sums[way.name][name] = append(sums[way.name][name], v)
		}
	}
	return nil
}
