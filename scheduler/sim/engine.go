package sim

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler/resize"
	"github.com/berth-scheduler/berth/scheduler/sim/slowdown"
	"github.com/berth-scheduler/berth/scheduler/sim/workload"
	"github.com/berth-scheduler/berth/scheduler/site"
)

// epoch is when virtual time begins; to the scheduler 0 is unknown.
const epoch = cluster.Time(1_000_000_000_000_000)

// task is a job in the simulation.
type task struct {
	job  *workload.Job
	view *cluster.Job // what the scheduler sees
	// left is the fraction of the job still to be done, overhead what precedes it
	// in this attempt, in microseconds.
	left, overhead float64
	rate, solo     float64
	since          int64
	ver            uint32 // of the next end
	attempt        uint32
	cards          []int32
	load           slowdown.Load
	state          taskState
	profiled       bool

	arrived, began, ended int64 // began is of the first attempt
	placed                int64 // of this attempt
	saved                 float64
	solution              float64 // solo time on the GPU of the last attempt
	steps                 []step  // of memory, still to come
	seen                  resize.Steady
	looks                 uint32
	busy                  int64 // time in attempts
}

type taskState uint8

const (
	future taskState = iota
	waits
	runs
	done
	failed
	unplaced // it fits nowhere, by its predictions, or was refused
)

// engine runs one workload once.
type engine struct {
	cards
	sight
	asks   Planner // opt.Planner, or its version with memory
	st     store
	tasks  []task
	nodeAt map[cluster.NodeID]int32
	events agenda
	next   int // the next arrival
	now    int64
	sums   sums
	freed  []cluster.GPUID
	// What the next pass must consider.
	arrived, changed bool
	nextFull         int64
	passAt           int64
	doneN            int
	nodeVer          []uint32
	here             present
	touched          []int32
	zoom             *zoom
	learner          *slowdown.Learner // nil if nothing is learned
	plugs            plugs
	links            links
	fresh            []*cluster.Job              // arrived at this time
	held             map[string][]cluster.NodeID // nodes by the images that they have, sorted
}

// present is which jobs are in the system now.
type present struct {
	demand    int64 // GPUs requested by present jobs
	running   int
	idleTries int
	terms     map[cluster.JobID]dispatch.Terms
	users     map[cluster.UID]int64 // GPU microseconds of ended attempts
}

// Run replays w on f. It returns an error for an invalid option or job, or if ctx
// ends. Jobs that the planner leaves waiting in an empty fleet are counted as
// unplaced.
func Run(ctx context.Context, w *workload.Workload, f *workload.Fleet, opt Options) (*Result, error) {
	if err := opt.Check(); err != nil {
		return nil, err
	}
	if err := f.Check(); err != nil {
		return nil, err
	}
	jobs := &workload.Workload{Name: w.Name, Jobs: slices.Clone(w.Jobs)}
	jobs.Sort()
	if err := jobs.Check(); err != nil {
		return nil, err
	}
	e, err := newEngine(jobs, f, &opt)
	if err != nil {
		return nil, err
	}
	began := e.clock()
	if err := e.loop(ctx); err != nil {
		return nil, err
	}
	e.sums.wall = e.clock() - began
	return e.result(jobs, f), nil
}

// clock returns the time that planning takes, 0 if it is not measured.
func (e *engine) clock() time.Duration {
	if e.opt.Clock == nil {
		return 0
	}
	return e.opt.Clock()
}

func newEngine(w *workload.Workload, f *workload.Fleet, opt *Options) (*engine, error) {
	nodes, watts, world := f.Build(), f.Power(), opt.World
	if world == nil {
		world = slowdown.DefaultCurve()
	}
	e := &engine{
		sight: sight{opt: opt, nodes: nodes, types: f.Types(), owners: map[string]cluster.UID{}}, cards: newCards(nodes, watts, world),
		nodeAt: map[cluster.NodeID]int32{}, held: map[string][]cluster.NodeID{}, passAt: -1, asks: opt.Planner, sums: sums{powered: watts != nil},
	}
	for i, n := range nodes {
		e.nodeAt[n.ID] = int32(i)
	}
	if opt.Power != nil {
		e.cur.powerW += float64(int64(len(nodes)) * opt.Power.HostW)
	}
	if (opt.Log || opt.resizes() || opt.MTBF > 0) && slices.ContainsFunc(w.Jobs, wide) {
		return nil, fmt.Errorf("nodes: jobs on several are simulated without the state machine, changes of shares and failures of nodes")
	}
	if opt.Log {
		st, err := newReplica(e.nodes, opt)
		if err != nil {
			return nil, err
		}
		e.st = st
	} else {
		st := newPlain(e.nodes)
		if st.know = opt.Know; opt.Learn {
			e.learner = slowdown.NewLearner(w, f, world)
			st.know = e.learner.Know()
		}
		e.st = st
	}
	if p, ok := opt.Planner.(Starter); ok {
		e.roomy.on = p.StartsOnly() && !opt.NoZoom && !slices.ContainsFunc(w.Jobs, wide)
	}
	if r, ok := opt.Planner.(Rememberer); ok && !opt.NoZoom {
		e.asks = r.Remember()
	}
	if !opt.NoZoom && opt.Know == nil && !opt.Learn && opt.Power == nil && !slices.ContainsFunc(w.Jobs, reads) && !slices.ContainsFunc(w.Jobs, wide) { // it does not consider residents, nor what jobs read
		e.zoom = newZoom(e)
	}
	e.tasks = make([]task, len(w.Jobs))
	for i := range w.Jobs {
		t := &e.tasks[i]
		t.job, t.left, t.saved = &w.Jobs[i], 1, 1
		t.profiled = opt.Profile == 0
		t.view = e.viewOf(cluster.JobID(i+1), t.job)
	}
	if len(e.owners) > 1 {
		e.here.users = map[cluster.UID]int64{}
	}
	e.nodeVer = make([]uint32, len(e.nodes))
	for i := range e.nodes {
		e.planFailure(int32(i))
	}
	return e, nil
}

// loop runs until nothing is left to happen.
func (e *engine) loop(ctx context.Context) error {
	for n := 0; ; n++ {
		if n%1024 == 0 {
			if err := ctx.Err(); err != nil {
				return err
			}
			if e.opt.Progress != nil {
				e.opt.Progress(e.doneN, len(e.tasks))
			}
		}
		at, ok := e.nextTime()
		if !ok {
			break
		}
		e.advance(at)
		if err := e.happen(at); err != nil {
			return err
		}
		if err := e.plan(); err != nil {
			return err
		}
		if err := e.plugs.save(e); err != nil {
			return err
		}
		if e.opt.Paranoid {
			if err := e.st.check(); err != nil {
				return fmt.Errorf("at %s: %w", time.Duration(at)*time.Microsecond, err)
			}
		}
		e.report()
	}
	return nil
}

// nextTime returns when something happens next; false if nothing does. Broken nodes
// alone do not keep a run going.
func (e *engine) nextTime() (int64, bool) {
	for len(e.events) > 0 && e.stale(e.events[0]) {
		e.events.pop()
	}
	if e.doneN == len(e.tasks) {
		return 0, false
	}
	at, ok := int64(0), false
	if e.next < len(e.tasks) {
		at, ok = e.tasks[e.next].job.Submit.Microseconds(), true
	}
	if len(e.events) > 0 && (!ok || e.events[0].at < at) {
		at, ok = e.events[0].at, true
	}
	return at, ok
}

func (e *engine) stale(ev event) bool {
	switch ev.k {
	case evEnd, evMemory:
		t := &e.tasks[ev.id]
		return t.state != runs || t.ver != ev.ver
	case evLook:
		t := &e.tasks[ev.id]
		return t.state != runs && t.state != waits || t.looks != ev.ver
	case evOOM, evProfiled, evSaved:
		t := &e.tasks[ev.id]
		return t.state != runs || t.attempt != ev.ver
	case evNodeUp, evNodeDown:
		return e.nodeVer[ev.id] != ev.ver
	case evPowerUp:
		return false
	case evPower:
		return ev.at != e.plugs.tick
	}
	return ev.at != e.passAt
}

// happen processes everything at one time: ends first, then arrivals.
func (e *engine) happen(at int64) error {
	for len(e.events) > 0 && e.events[0].at == at {
		ev := e.events.pop()
		if e.stale(ev) {
			continue
		}
		e.sums.events++
		if err := e.handle(ev); err != nil {
			return err
		}
	}
	var batch []*cluster.Job
	for e.next < len(e.tasks) && e.tasks[e.next].job.Submit.Microseconds() == at {
		t := &e.tasks[e.next]
		t.state, t.arrived, t.began = waits, at, -1
		e.roomy.wait(t.job, 1)
		e.here.demand += int64(t.job.GPUs)
		batch = append(batch, t.view)
		e.next++
		e.sums.events++
	}
	if len(batch) == 0 {
		return nil
	}
	e.arrived, e.fresh = true, batch
	return submit(e, batch)
}

// submit adds the jobs that arrived, one by one if deadlines are promised: those
// whose deadline cannot be met are refused.
func submit(e *engine, batch []*cluster.Job) error {
	if e.opt.Promise == nil {
		return e.st.submit(e.wallTime(), batch)
	}
	for _, j := range batch {
		_, refused := site.Admit(e.full(), []*cluster.Job{j}, e.opt.Promise)
		if err := e.st.submit(e.wallTime(), []*cluster.Job{j}); err != nil {
			return err
		}
		if refused == nil {
			continue
		}
		t := &e.tasks[j.ID-1]
		e.st.(*plain).refuse(j)
		t.state = unplaced
		e.roomy.wait(t.job, -1)
		e.here.demand -= int64(t.job.GPUs)
		e.sums.unplaced++
		e.doneN++
	}
	return nil
}

func (e *engine) wallTime() cluster.Time { return epoch + cluster.Time(e.now) }

func (e *engine) handle(ev event) error {
	switch ev.k {
	case evEnd:
		return e.finish(ev.id, cluster.JobCompleted)
	case evMemory:
		return e.rise(ev.id)
	case evLook:
		return e.look(ev.id)
	case evOOM:
		return e.outOfMemory(ev.id)
	case evProfiled:
		return e.profiledNow(ev.id)
	case evSaved:
		return leaver{e}.gone(ev.id)
	case evNodeUp, evNodeDown:
		return e.nodeTurns(ev.id, ev.k == evNodeUp)
	case evPowerUp:
		return e.plugs.booted(e, ev.id)
	case evPass:
		e.passAt, e.changed = -1, true
	}
	return nil
}
