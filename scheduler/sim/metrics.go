package sim

import (
	"math"
	"slices"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/scheduler/sim/optimum"
	"github.com/berth-scheduler/berth/scheduler/sim/workload"
)

// sums add up over a run. Areas are thousandths (or MiB) times microseconds.
type sums struct {
	area
	end                         area // up to the last end of a job
	last                        int64
	unplaced                    int
	crowd                       []point // integral of demand over capacity, at least 1
	events, starts, moves       int
	passes                      int
	ooms, preemptions, failures int
	cuts, growths, harmed       int
	fetched, elsewhere          int
	planned, wall               time.Duration
	asked                       durations
	powered                     bool
	first                       int64
	begun                       bool
}

// area is levels integrated over time.
type area struct{ alloc, used, mem, reserved, frag, energy, off, nodes float64 }

// point is the value of an integral at a time.
type point struct {
	at int64
	v  float64
}

// advance moves the clock and integrates the levels over that time.
func (e *engine) advance(at int64) {
	if !e.sums.begun {
		e.now = at
		if at < e.tasks[0].job.Submit.Microseconds() {
			return // a node may break before any job arrives
		}
		e.sums.begun, e.sums.first = true, at
		e.sums.crowd = append(e.sums.crowd, point{at, 0})
		return
	}
	dt := float64(at - e.now)
	if dt == 0 {
		return
	}
	e.sums.alloc += dt * float64(e.cur.alloc)
	e.sums.used += dt * float64(e.cur.used)
	e.sums.mem += dt * float64(e.cur.mem)
	e.sums.reserved += dt * float64(e.cur.reserved)
	e.sums.frag += dt * float64(e.cur.frag)
	e.sums.energy += dt * e.cur.powerW
	e.sums.off += dt * float64(e.plugs.off)
	e.sums.nodes += dt * float64(e.cur.nodes)
	last := e.sums.crowd[len(e.sums.crowd)-1].v
	e.sums.crowd = append(e.sums.crowd, point{at, last + dt*max(1, float64(e.here.demand)/float64(max(1, len(e.slots))))})
	e.now = at
}

// crowded returns the mean over a span of requested GPUs over the fleet's, at least
// 1.
func (s *sums) crowded(from, to int64) float64 {
	if to <= from {
		return 1
	}
	at := func(t int64) float64 {
		i, ok := slices.BinarySearchFunc(s.crowd, t, func(p point, t int64) int { return int(min(1, max(-1, p.at-t))) })
		if ok || i == 0 {
			return s.crowd[min(i, len(s.crowd)-1)].v
		}
		return s.crowd[i-1].v
	}
	return max(1, (at(to)-at(from))/float64(to-from))
}

// report tells the observer what the fleet does.
func (e *engine) report() {
	if e.opt.Observe != nil {
		e.opt.Observe.Level(time.Duration(e.now)*time.Microsecond, e.cur.alloc, e.cur.used, e.cur.mem, e.st.waiting())
	}
}

// Result is the outcome of a run. A nil figure is one that the workload or the
// fleet cannot determine. Percentages are means over the time from the first
// arrival to the last end, weighted by time.
type Result struct {
	Policy string `json:"policy"`
	Trace  string `json:"trace"`
	Seed   uint64 `json:"seed"`
	GPUs   int    `json:"gpus"`
	Jobs   int    `json:"jobs"`
	// Completed ended well; Failed ended otherwise.
	Completed int `json:"completed"`
	Failed    int `json:"failed"`
	// Unplaced never ran: they fit no GPU, by their predictions, or were refused.
	Unplaced int `json:"unplaced"`
	// InTime ended by their deadlines; nil if none has one.
	InTime *float64 `json:"in_time,omitempty"`
	// AllocationPct is the compute that was allocated, of all. FragmentationPct is
	// the part of what was free that was on GPUs in use.
	AllocationPct *float64 `json:"allocation_pct"`
	MeanJCT       *float64 `json:"mean_jct_s"`
	MedianJCT     *float64 `json:"median_jct_s"`
	P99JCT        *float64 `json:"p99_jct_s"`
	Makespan      *float64 `json:"makespan_s"`
	// WideP99JCT is that of jobs of more than WideGPUs GPUs.
	WideP99JCT *float64 `json:"wide_p99_jct_s"`
	// BoundedSlowdown is the mean of completion time over run time alone, at
	// least 10 s (Feitelson et al., JSSPP 1997), at least 1.
	BoundedSlowdown *float64 `json:"bounded_slowdown"`
	MeanWait        *float64 `json:"mean_wait_s"`
	MedianWait      *float64 `json:"median_wait_s"`
	P90Wait         *float64 `json:"p90_wait_s"`
	P99Wait         *float64 `json:"p99_wait_s"`
	GPUUtilPct      *float64 `json:"gpu_util_pct"`
	MemUtilPct      *float64 `json:"mem_util_pct"`
	// ReservedMemPct is the memory that jobs were promised, of all.
	ReservedMemPct   *float64 `json:"reserved_mem_pct"`
	FragmentationPct *float64 `json:"fragmentation_pct"`
	OOMs             int      `json:"ooms"`
	Preemptions      int      `json:"preemptions"`
	// MeanSlowdown is the time in attempts over the run time alone, mean of
	// the jobs that completed; waiting does not count.
	MeanSlowdown *float64 `json:"mean_slowdown"`
	// EnergyKWh is what all GPUs draw from the first arrival to the last end: idle
	// draw, and above it in proportion to utilization. Jobs of unknown utilization
	// count as keeping busy all they were given.
	EnergyKWh *float64 `json:"energy_kwh"`
	// FinishTimeFairness is the mean of completion time over what an equal share of
	// the fleet would have taken (Themis, NSDI 2020): the run time alone times the
	// mean of requested GPUs over the fleet's meanwhile.
	FinishTimeFairness *float64 `json:"finish_time_fairness"`
	// WorstFairness is the largest of these ratios.
	WorstFairness *float64 `json:"finish_time_fairness_max"`
	// DecisionsPerS are starts and queue moves per second of planning,
	// EventsPerS arrivals, ends and the like per second of the whole run.
	DecisionsPerS *float64 `json:"decisions_per_s"`
	EventsPerS    *float64 `json:"events_per_s"`
	// DecisionP50 and DecisionP99 are of the time of one call of the planner, in
	// microseconds.
	DecisionP50 *float64 `json:"decision_p50_us"`
	DecisionP99 *float64 `json:"decision_p99_us"`
	// LowerBoundMakespan holds for any schedule on this fleet with this sharing
	// limit and interference model; LowerBoundAlone for one job per GPU;
	// LowerBoundJCT is that of the mean completion time alone.
	LowerBoundMakespan *float64 `json:"lower_bound_makespan_s"`
	LowerBoundAlone    *float64 `json:"lower_bound_alone_makespan_s"`
	LowerBoundJCT      *float64 `json:"lower_bound_alone_mean_jct_s"`
	// LowerBoundSharedJCT is that of the mean completion time with sharing.
	// GapMakespanPct and GapJCTPct are by how much the run is above the bounds with
	// sharing; they are nil if some job did not complete.
	LowerBoundSharedJCT *float64 `json:"lower_bound_mean_jct_s"`
	GapMakespanPct      *float64 `json:"gap_makespan_pct"`
	GapJCTPct           *float64 `json:"gap_mean_jct_pct"`
	// MeanRun is the mean time from first start to end: the completion time without
	// waiting.
	MeanRun *float64 `json:"mean_run_s"`
	// RejectedPods are jobs that a filling protocol could not place.
	RejectedPods *int `json:"rejected,omitempty"`
	Events       int  `json:"events"`
	Passes       int  `json:"passes"`
	NodeFailures int  `json:"node_failures"`
	// Cuts and Growths are how often shares of running jobs were reduced to what
	// they used and grew again, Harmed how many jobs lost an attempt to that, each
	// counted once; nil if shares are fixed.
	Cuts    *int `json:"cuts,omitempty"`
	Growths *int `json:"growths,omitempty"`
	Harmed  *int `json:"harmed,omitempty"`
	// ReservedOverUsed is the memory that shares held, over what jobs did, if
	// memory has a curve.
	ReservedOverUsed *float64 `json:"reserved_over_used,omitempty"`
	// NodeHoursOff is how long nodes were powered down, in all, NodesOffPct which
	// part of the time of all nodes that is, and WakeUps how often one was powered
	// up; nil if all stay up.
	NodeHoursOff *float64 `json:"node_hours_off,omitempty"`
	NodesOffPct  *float64 `json:"nodes_off_pct,omitempty"`
	WakeUps      *int     `json:"wake_ups,omitempty"`
	// NodesOff is how many nodes were off on average, NodesBusyPct which part of
	// the time of the others a job held them. WakeUpsPerDay is how many nodes were
	// powered up per day, WakeCallsPerDay how often some were, those within ten
	// minutes counting once. JobsLate are the jobs that waited for a node to be
	// powered up, and MeanLate how long from when that was known until they began,
	// in seconds.
	NodesOff        *float64 `json:"nodes_off,omitempty"`
	NodesBusyPct    *float64 `json:"nodes_busy_pct,omitempty"`
	WakeUpsPerDay   *float64 `json:"wake_ups_per_day,omitempty"`
	WakeCallsPerDay *float64 `json:"wake_calls_per_day,omitempty"`
	JobsLate        *int     `json:"jobs_late,omitempty"`
	MeanLate        *float64 `json:"mean_late_s,omitempty"`
	// ImagesFetched is how often a node fetched an image, DataElsewhere how often an
	// attempt began on nodes without one of its data sets; nil if jobs name none.
	ImagesFetched *int   `json:"images_fetched,omitempty"`
	DataElsewhere *int   `json:"data_elsewhere,omitempty"`
	World         string `json:"interference"`
	// Completions are the completion times in seconds of the jobs that ended
	// well, in ascending order.
	Completions []float64 `json:"-"`
}

// WideGPUs is the most GPUs of a job that is not wide: those of one usual node.
const WideGPUs = 8

// boundedRun is the least run time that bounded slowdowns count.
const boundedRun = 10.0

func figure(v float64) *float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return &v
}

// result computes the result of a run.
func (e *engine) result(w *workload.Workload, f *workload.Fleet) *Result {
	r := &Result{
		Policy: e.opt.Planner.Name(), Trace: w.Name, Seed: e.opt.Seed, GPUs: len(e.slots), Jobs: len(e.tasks),
		OOMs: e.sums.ooms, Preemptions: e.sums.preemptions, Events: e.sums.events, Passes: e.sums.passes,
		NodeFailures: e.sums.failures, Unplaced: e.sums.unplaced, World: e.world.Name(),
	}
	if e.opt.resizes() {
		r.Cuts, r.Growths, r.Harmed = &e.sums.cuts, &e.sums.growths, &e.sums.harmed
	}
	if slices.ContainsFunc(w.Jobs, reads) {
		r.ImagesFetched, r.DataElsewhere = &e.sums.fetched, &e.sums.elsewhere
	}
	if end := e.sums.end; e.opt.Rise.set() && end.mem > 0 {
		r.ReservedOverUsed = figure(end.reserved / end.mem)
	}
	e.plugs.into(e, r)
	e.perJob(r)
	e.sums.overTime(r, w, e.cur.memAll)
	e.sums.speeds(r, e.sums.starts+e.sums.moves)
	if slices.ContainsFunc(w.Jobs, func(j workload.Job) bool { return j.Elastic() }) {
		return r // the bounds are for jobs with a fixed number of GPUs
	}
	if b, ok := optimum.Of(w, f, e.world, r.OOMs > 0); ok {
		r.bound(&b, len(w.Jobs))
	}
	return r
}

// bound sets what no schedule can beat, and how far from it the run was if it ended
// all.
func (r *Result) bound(b *optimum.Bounds, jobs int) {
	r.LowerBoundAlone, r.LowerBoundJCT = figure(b.MakespanAlone), figure(b.JCTAlone)
	r.LowerBoundMakespan, r.LowerBoundSharedJCT = figure(b.Makespan), figure(b.JCT)
	if r.Completed == jobs {
		r.GapMakespanPct, r.GapJCTPct = gap(r.Makespan, r.LowerBoundMakespan), gap(r.MeanJCT, r.LowerBoundSharedJCT)
	}
}

// perJob fills in the figures about jobs.
func (e *engine) perJob(r *Result) {
	var jct, waits, wide []float64
	var sum, wait, slow, fair, worst, ran, bounded float64
	if slices.ContainsFunc(e.tasks, func(t task) bool { return t.job.Deadline > 0 }) {
		r.InTime = new(float64)
	}
	for i := range e.tasks {
		t := &e.tasks[i]
		if t.state == failed {
			r.Failed++
		}
		if t.state != done {
			continue
		}
		r.Completed++
		if by := t.job.Deadline.Microseconds(); r.InTime != nil && 0 < by && t.ended <= by {
			*r.InTime++
		}
		took := float64(t.ended-t.arrived) / 1e6
		jct = append(jct, took)
		sum += took
		waits = append(waits, float64(t.ended-t.arrived-t.busy)/1e6)
		wait += waits[len(waits)-1]
		ran += float64(t.ended-t.began) / 1e6
		slow += float64(t.busy) / t.solution
		bounded += max(1, took/max(boundedRun, t.solution/1e6))
		if t.job.GPUs > WideGPUs {
			wide = append(wide, took)
		}
		rho := float64(t.ended-t.arrived) / (t.solution * e.sums.crowded(t.arrived, t.ended))
		fair, worst = fair+rho, max(worst, rho)
	}
	n := float64(len(jct))
	if n == 0 {
		return
	}
	slices.Sort(jct)
	slices.Sort(waits)
	if slices.Sort(wide); len(wide) > 0 {
		r.WideP99JCT = figure(Quantile(wide, 0.99))
	}
	r.BoundedSlowdown = figure(bounded / n)
	r.Completions, r.WorstFairness, r.P99Wait = jct, figure(worst), figure(Quantile(waits, 0.99))
	r.MedianWait, r.P90Wait = figure(Quantile(waits, 0.5)), figure(Quantile(waits, 0.9))
	r.MeanJCT, r.MedianJCT, r.P99JCT = figure(sum/n), figure(Quantile(jct, 0.5)), figure(Quantile(jct, 0.99))
	r.MeanWait, r.MeanSlowdown, r.FinishTimeFairness, r.MeanRun = figure(wait/n), figure(slow/n), figure(fair/n), figure(ran/n)
}

// Quantile returns the nearest rank of a sorted non-empty list.
func Quantile(sorted []float64, q float64) float64 {
	i := int(math.Ceil(q*float64(len(sorted)))) - 1
	return sorted[min(len(sorted)-1, max(0, i))]
}

// overTime fills in the means over time; memAll is all memory of the fleet.
func (s *sums) overTime(r *Result, w *workload.Workload, memAll int64) {
	span := float64(max(0, s.last-s.first))
	r.Makespan = figure(span / 1e6)
	if span == 0 || r.GPUs == 0 {
		return
	}
	all := span * float64(r.GPUs) * cluster.WholeGPU
	r.AllocationPct = figure(100 * s.end.alloc / all)
	if free := all - s.end.alloc; free > 0 {
		r.FragmentationPct = figure(100 * s.end.frag / free)
	}
	knowsUtil, knowsMem := true, true
	for i := range w.Jobs {
		if j := &w.Jobs[i]; j.GPUs > 0 {
			knowsUtil = knowsUtil && (j.UsedMilli > 0 || len(j.On) > 0 && j.On[0].UsedMilli > 0)
			knowsMem = knowsMem && (j.MemMiB > 0 || len(j.On) > 0 && j.On[0].MemMiB > 0)
		}
	}
	if knowsUtil {
		r.GPUUtilPct = figure(100 * s.end.used / all)
	}
	if s.powered {
		r.EnergyKWh = figure(s.end.energy / 1e6 / 3.6e6)
	}
	if memAll > 0 {
		r.ReservedMemPct = figure(100 * s.end.reserved / (span * float64(memAll)))
	}
	if knowsMem && memAll > 0 {
		r.MemUtilPct = figure(100 * s.end.mem / (span * float64(memAll)))
	}
}

// gap returns by how many per cent a figure is above its bound.
func gap(v, bound *float64) *float64 {
	if v == nil || bound == nil || *bound <= 0 {
		return nil
	}
	return figure(100 * (*v / *bound - 1))
}
