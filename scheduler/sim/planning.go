package sim

import (
	"slices"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler/sim/slowdown"
	"github.com/berth-scheduler/berth/scheduler/site"
)

// maxRounds bounds how often one instant is planned again after preemptions.
const maxRounds = 8

// maxIdleTries is how many hours of an empty fleet a planner may let pass.
const maxIdleTries = 48

// plan lets the planner decide at this time.
func (e *engine) plan() error {
	freed, fresh := e.freed, e.fresh
	e.freed, e.fresh = e.freed[:0], nil
	if idles(e) {
		e.arrived, e.changed = false, false
		return nil
	}
	if r, ok := e.opt.Planner.(Releaser); ok && len(freed) > 0 {
		slices.Sort(freed)
		began := e.clock()
		plan := r.OnRelease(e.st, slices.Compact(freed))
		e.sums.took(e.clock() - began)
		if err := e.commit(&plan); err != nil {
			return err
		}
	}
	if !e.arrived && !e.changed || idles(e) {
		return nil
	}
	if done, err := e.glance(fresh); done || err != nil {
		return err
	}
	if e.now >= e.nextFull {
		return e.fullPass()
	}
	if _, ok := e.opt.Planner.(Releaser); ok && e.arrived {
		e.arrived = false
		snap := e.st.snapshot(e.wallTime(), true)
		if len(snap.Waiting) > 0 {
			if _, err := e.ask(snap); err != nil {
				return err
			}
		}
	}
	e.passBy(e.nextFull)
	return nil
}

// idles reports whether there is nothing to plan: no job waits, nor runs with a
// size that may change.
func idles(e *engine) bool {
	if e.st.waiting() > 0 {
		return false
	}
	s, ok := e.opt.Planner.(Sizer)
	return !ok || !s.Sizes() || e.here.running == 0
}

// glance plans a job that arrived alone by considering only where it can go. A job
// that fits nowhere now waits for the next full pass to be queued; true means that
// no other pass is due.
func (e *engine) glance(fresh []*cluster.Job) (bool, error) {
	if e.zoom == nil || len(fresh) != 1 {
		return false, nil
	}
	j, ok := e.st.Job(fresh[0].ID)
	if !ok {
		return false, nil
	}
	switch e.zoom.look(j) {
	case fitsNowhere:
		e.arrived = false
		e.passBy(max(e.nextFull, e.now+e.opt.PassEvery.Microseconds()))
		return !e.changed, nil
	case zoomed:
		if e.st.waiting() > 1 {
			return false, nil
		}
		began := e.clock()
		plan := e.opt.Planner.Plan(e.zoom.snapshot(j))
		e.sums.took(e.clock() - began)
		if !e.zoom.decided(&plan) {
			return false, nil
		}
		e.sums.passes++
		e.arrived, e.changed = false, false
		return true, e.commit(&plan)
	}
	return false, nil
}

// fullPass plans all jobs; preemptions make room for another round.
func (e *engine) fullPass() error {
	e.arrived, e.changed = false, false
	e.nextFull = e.now + e.opt.PassEvery.Microseconds()
	for range maxRounds {
		if e.roomy.nobodyFits() {
			break
		}
		plan, err := e.ask(e.full())
		if err != nil {
			return err
		}
		if len(plan.Preempt) == 0 || !e.opt.Preemptible || idles(e) {
			break
		}
		for i := range plan.Preempt {
			if err := e.preempt(&plan.Preempt[i]); err != nil {
				return err
			}
		}
		e.freed = e.freed[:0]
		if e.opt.Save > 0 {
			break // they hold what they have until they have saved their state
		}
	}
	e.arrived, e.changed = false, false
	if idles(e) {
		return nil
	}
	switch {
	case e.here.running == 0 && e.next == len(e.tasks):
		return e.retryIdle()
	case e.opt.Tick > 0:
		e.passBy(e.now + e.opt.Tick.Microseconds())
	}
	return nil
}

// retryIdle handles a planner that leaves all jobs waiting in an empty fleet, as
// one does that waits for better GPUs: time alone may change its mind. If it does
// not, those jobs never run, and the simulation ends.
func (e *engine) retryIdle() error {
	if e.here.idleTries++; e.here.idleTries > maxIdleTries {
		for i := range e.tasks {
			if e.tasks[i].state == waits {
				e.tasks[i].state = unplaced
				e.sums.unplaced++
				e.doneN++
			}
		}
		return nil
	}
	e.passBy(e.now + max(e.opt.PassEvery.Microseconds(), time.Hour.Microseconds()))
	return nil
}

// full returns the whole state with what policies may need besides.
func (e *engine) full() *dispatch.Snapshot {
	snap := e.st.snapshot(e.wallTime(), false)
	if snap.Terms = e.terms(); e.opt.Promise != nil {
		snap.Terms = nil
		site.Prepare(snap, e.opt.Promise, site.Full)
	}
	snap.Service = e.service(snap)
	snap.Partitions = e.opt.Partitions
	return snap
}

// terms returns those of all jobs, computed once.
func (e *engine) terms() map[cluster.JobID]dispatch.Terms {
	if e.here.terms != nil {
		return e.here.terms
	}
	e.here.terms = map[cluster.JobID]dispatch.Terms{}
	for i := range e.tasks {
		t := dispatch.Terms{Preemptible: e.opt.Preemptible && !e.tasks[i].job.Serves}
		if d := e.tasks[i].job.Deadline; d > 0 {
			t.Deadline = epoch.Add(d)
		}
		if p := e.tasks[i].job.Priority; p > 0 {
			t.WeightMilli = int64(1000 * (p + 1))
		}
		if j := e.tasks[i].job; !e.opt.Errors.Hide {
			t.Stages, t.Iteration = slowdown.StagesOf(j.Stages, j.Iteration), j.Iteration
		}
		if t != (dispatch.Terms{}) {
			e.here.terms[cluster.JobID(i+1)] = t
		}
	}
	return e.here.terms
}

// service returns the GPU time that each user had, without decay; nil if the
// workload names no users.
func (e *engine) service(snap *dispatch.Snapshot) map[cluster.UID]int64 {
	if e.here.users == nil {
		return nil
	}
	out := make(map[cluster.UID]int64, len(e.here.users))
	for u, v := range e.here.users {
		out[u] = v / 1_000_000
	}
	for _, j := range snap.Running {
		out[j.Owner.UID] += (int64(snap.Now-j.Started) / 1_000_000) * int64(j.Spec.GPUs)
	}
	return out
}

func (e *engine) ask(snap *dispatch.Snapshot) (*dispatch.Plan, error) {
	snap.Images = e.held
	began := e.clock()
	plan := e.asks.Plan(snap)
	e.sums.took(e.clock() - began)
	e.sums.passes++
	return &plan, e.commit(&plan)
}

func (e *engine) commit(plan *dispatch.Plan) error {
	e.sums.moves += len(plan.Moves)
	if len(plan.Starts)+len(plan.Moves) == 0 {
		return nil
	}
	started, err := e.st.apply(e.wallTime(), plan)
	if err != nil {
		return err
	}
	for _, a := range started {
		e.here.running++
		e.begin(a)
	}
	if len(started) > 0 {
		e.here.idleTries = 0
	}
	return nil
}

// passBy requests a pass by a time.
func (e *engine) passBy(at int64) {
	if e.passAt >= 0 && e.passAt <= at {
		return
	}
	e.passAt = at
	e.events.push(event{at: at, k: evPass})
}
