package sim

import (
	"fmt"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler"
	"github.com/berth-scheduler/berth/scheduler/sim/slowdown"
	"github.com/berth-scheduler/berth/scheduler/site"
)

// Planner decides; it is the interface of package policies.
type Planner interface {
	// Name is its name in reports.
	Name() string
	// Plan decides what starts now. It may modify what the slices of waiting and
	// running jobs hold, but neither the ledger and maps nor the jobs, and keeps
	// nothing of the snapshot.
	Plan(snap *dispatch.Snapshot) dispatch.Plan
}

// Starter is a Planner that may know that its plans hold nothing but starts. Then
// it is not called while no GPU has room for any waiting job.
type Starter interface {
	Planner
	StartsOnly() bool
}

// Rememberer is a Planner that can make the same plans with memory of earlier ones,
// for one run.
type Rememberer interface {
	Planner
	Remember() interface {
		Name() string
		Plan(snap *dispatch.Snapshot) dispatch.Plan
	}
}

// Releaser is a Planner with a fast path after ends, as the coordinator uses it:
// between two full passes only new jobs are planned.
type Releaser interface {
	Planner
	OnRelease(v scheduler.View, gpus []cluster.GPUID) dispatch.Plan
}

// Sizer is a Planner that may restart running jobs with more GPUs, and is called
// every Tick as long as some run.
type Sizer interface {
	Planner
	Sizes() bool
}

// Arriver is a Planner that can decide about jobs that arrive one at a time without
// a pass for each, for Fill. It decides the same.
type Arriver interface {
	Planner
	// Arrivals starts with nodes on which nothing runs. It reports false if only a
	// pass will do.
	Arrivals(nodes []*cluster.Node, led *dispatch.Ledger) (scheduler.Offers, bool)
}

// Errors is how far predictions are from the truth: each factor is log-normal with
// this sigma, drawn for each job from the seed and its id. Zero is exact.
type Errors struct {
	Mem, Util, Duration float64
	// Bias is the part of the true duration around which predictions lie; 0 is 1.
	Bias float64
	// MemMargin is what the upper quantile of memory adds to the expected
	// value, as a fraction of it: 0.0898 is SchedTune's.
	MemMargin float64
	// Hide leaves out what is known, so that jobs run alone.
	Hide bool
	// NoDuration leaves out how long jobs run, for all.
	NoDuration bool
}

// Options configure a run. The zero value with a Planner is a world with exact
// predictions, the default curve of interference and no overheads.
type Options struct {
	Planner Planner
	Seed    uint64
	// World says what neighbours cost; nil is DefaultCurve.
	World  slowdown.Interference
	Errors Errors
	// Know is what planners know of jobs that slow each other down, by signature;
	// nil is nothing. Learned computes it from a world.
	Know *dispatch.Interference
	// Learn tells planners what ended runs have shown of that; they start knowing
	// nothing. It replaces Know.
	Learn bool
	// Log drives the replicated state machine with the commands of its log
	// instead of the stand-in that keeps the same rules.
	Log bool
	// PassEvery is the least virtual time between two full passes; arrivals in
	// between are planned on their own. 0 is a full pass at every event.
	PassEvery time.Duration
	// Tick makes a pass at least this often while a job waits and one runs, for
	// planners that depend on time; 0 does not.
	Tick time.Duration
	// Tell has jobs report their steps: how many are done when an attempt begins, of how
	// many, and how fast they go alone.
	Tell bool
	// Fetch is what it costs to start where a node lacks what a job reads.
	Fetch Fetch
	// Exchange is which part of an iteration jobs on several nodes communicate, while
	// they have their links alone; 0 is none. The uplink of a node carries one of them
	// at that speed, that of a switch Uplink.
	Exchange float64
	Uplink   int
	// Start is lost at each start. PreemptSmall and PreemptLarge are lost by a
	// preempted job of up to 8 and of more GPUs.
	Start, PreemptSmall, PreemptLarge time.Duration
	// Save is how long a preempted job holds its GPUs while it saves its state.
	Save time.Duration
	// Profile runs each job alone for so long before it is known: then it is ended
	// and waits again with what was measured. 0 does not.
	Profile time.Duration
	// Preemptible lets planners end attempts: every job can continue from where it
	// was, at the price of the two above.
	Preemptible bool
	// Promise admits jobs with deadlines as a coordinator of that site does, and
	// refuses those whose deadline cannot be met; nil admits all, and only orders know
	// of deadlines.
	Promise *site.Site
	// Declare makes every job declare the memory that is predicted for it. Jobs of
	// several GPUs share only with a declared memory.
	Declare bool
	// OOMAfter is how far into an attempt its memory reaches the peak.
	OOMAfter time.Duration
	// OOMFatal hides the cause of an out-of-memory: the job is over, as under
	// schedulers that do not watch GPUs.
	OOMFatal bool
	// CapMemory ends an attempt that takes more than its share, as agents do on
	// GPUs with a memory cap; otherwise only a full GPU ends its newest.
	CapMemory bool
	// Rise is how the memory of jobs reaches its peak.
	Rise Rise
	// Resize reduces what running jobs hold of GPUs to what they use, and lets it
	// grow again, as in a partition with that setting; "" does not, and neither
	// does off. It needs a Rise. A reduced job that takes more than others leave it
	// is ended at once, as agents do.
	Resize cluster.ResizeMode
	// MTBF and Repair break nodes: both are means of exponential times. A job there
	// restarts from its last checkpoint; Checkpoint 0 is never.
	MTBF, Repair, Checkpoint time.Duration
	// Partitions divide the fleet, for planners that know of them, such as Sited:
	// jobs say where they go.
	Partitions []*cluster.Partition
	// Power powers idle nodes down and up again; nil leaves all of them up.
	Power *Power
	// NoZoom plans each arrival over the whole fleet, even if only a few GPUs
	// matter, calls Starters also when nothing fits, and allows no memory.
	NoZoom bool
	// Paranoid checks the ledger after each event, for tests.
	Paranoid bool
	// Observe receives what happens, for drawings; nil is none.
	Observe Observer
	// Progress is called now and then with how many jobs of all ended.
	Progress func(done, all int)
	// Clock measures planning; nil leaves the rates out.
	Clock func() time.Duration
}

// Fetch is what it costs to start where a node lacks what a job reads.
type Fetch struct {
	// Image is lost at a start on nodes one of which has not got the job's image; from
	// then on they have it. Data is lost at each start for each of its data sets that
	// one of its nodes has not got.
	Image, Data time.Duration
	// Blind keeps planners from knowing what jobs read.
	Blind bool
}

// Observer receives what happens, in order of virtual time.
type Observer interface {
	// Attempt is an attempt that ended, with the GPUs it had.
	Attempt(job string, cards []int, from, to time.Duration, how cluster.JobState)
	// Level is the state of the fleet from a time on: allocated and used
	// thousandths of all GPUs, memory in MiB, and how many jobs wait.
	Level(at time.Duration, allocated, used, memMiB int64, waiting int)
}

// Check returns an error for an option that makes no sense.
func (o *Options) Check() error {
	if o.Planner == nil {
		return fmt.Errorf("planner: is missing")
	}
	for _, d := range []struct {
		name string
		v    time.Duration
	}{
		{"pass-every", o.PassEvery}, {"tick", o.Tick}, {"start-overhead", o.Start}, {"preempt-small", o.PreemptSmall}, {"preempt-large", o.PreemptLarge}, {"save", o.Save},
		{"profile", o.Profile}, {"oom-after", o.OOMAfter}, {"image-fetch", o.Fetch.Image}, {"data-fetch", o.Fetch.Data}, {"mtbf", o.MTBF}, {"repair", o.Repair}, {"checkpoint", o.Checkpoint},
	} {
		if d.v < 0 {
			return fmt.Errorf("%s: %s is below 0", d.name, d.v)
		}
	}
	for _, s := range []struct {
		name string
		v    float64
	}{{"mem error", o.Errors.Mem}, {"util error", o.Errors.Util}, {"duration error", o.Errors.Duration}, {"mem margin", o.Errors.MemMargin}} {
		if !(s.v >= 0 && s.v <= 4) {
			return fmt.Errorf("%s: %g is outside 0 to 4", s.name, s.v)
		}
	}
	if err := o.Rise.check(); err != nil {
		return err
	}
	if o.resizes() && (!o.Rise.set() || o.OOMFatal) {
		return fmt.Errorf("resize: needs jobs whose memory takes a part of their run to come to its peak, and that run again after an out-of-memory")
	}
	if o.MTBF > 0 && o.Repair == 0 {
		return fmt.Errorf("repair: is missing; a node that breaks must come back after some time")
	}
	if o.Power != nil {
		if err := o.Power.check(); err != nil {
			return err
		}
	}
	if o.Power != nil && o.MTBF > 0 {
		return fmt.Errorf("power: nodes that break are not told from those that are powered down; leave one of the two out")
	}
	if o.Log && (o.Know != nil || o.Learn) {
		return fmt.Errorf("fsm: the state machine learns by itself; run without it to tell the planner what is known")
	}
	if o.Log && o.Promise != nil {
		return fmt.Errorf("fsm: deadlines are promised without it")
	}
	if o.Log && o.Tell {
		return fmt.Errorf("fsm: no job reports its progress there; run without it, or without progress")
	}
	if o.Log && o.Profile > 0 {
		return fmt.Errorf("fsm: the state machine has no trials that tell what a job needs; run without it, or without profiles")
	}
	return nil
}

// resizes reports whether shares follow what jobs use.
func (o *Options) resizes() bool { return o.Resize != "" && o.Resize != cluster.ResizeOff }

// Berth is the production scheduler, with its fast path.
type Berth struct{ Policy scheduler.Policy }

// Name implements Planner.
func (b Berth) Name() string { return string(b.Policy.Mode) }

// Plan implements Planner.
func (b Berth) Plan(snap *dispatch.Snapshot) dispatch.Plan { return scheduler.Schedule(snap, b.Policy) }

// OnRelease implements Releaser.
func (b Berth) OnRelease(v scheduler.View, gpus []cluster.GPUID) dispatch.Plan {
	return scheduler.OnRelease(v, gpus, b.Policy)
}

// Arrivals implements Arriver.
func (b Berth) Arrivals(nodes []*cluster.Node, led *dispatch.Ledger) (scheduler.Offers, bool) {
	return scheduler.NewArrivals(nodes, led, b.Policy), b.Policy.PatienceMilli <= 0
}

// NewBerth returns the scheduler in a mode, with at most so many jobs per GPU; 0 is
// the default.
func NewBerth(mode scheduler.Mode, maxShares int) Berth {
	pol := scheduler.Default()
	pol.Mode = mode
	pol.MaxReasons = -1 // unused here
	if maxShares > 0 {
		pol.MaxShares = maxShares
	}
	return Berth{pol}
}
