package sim

import (
	"math"
	"slices"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler/resize"
	"github.com/berth-scheduler/berth/scheduler/sim/slowdown"
)

// settle updates a running task's progress to now.
func (t *task) settle(now int64) {
	dt := float64(now - t.since)
	t.since = now
	lost := min(dt, t.overhead)
	t.overhead -= lost
	t.left = max(0, t.left-(dt-lost)*t.rate/t.solo)
}

// expect schedules the task's end.
func (e *engine) expect(id int32) {
	t := &e.tasks[id]
	t.ver++
	e.events.push(event{at: e.now + t.until(0), id: id, ver: t.ver, k: evEnd})
	e.expectRise(id)
}

// until returns how long it takes, from when the task was settled, until so much of
// it is left.
func (t *task) until(left float64) int64 {
	return max(0, int64(math.Ceil(t.overhead+(t.left-left)*t.solo/t.rate-1e-6)))
}

// elasticSteps is the number of steps of elastic jobs: more than a few, so that the
// step time is known at once.
const elasticSteps = 1000

// tells has a task report its step time if that is looked at, having many steps, and
// how many are done if all jobs report that.
func tells(e *engine, t *task, a *cluster.Attempt) {
	if e.opt.Log || !e.opt.Tell && (!t.job.Elastic() || a.Progress != nil) {
		return
	}
	p := &cluster.Progress{At: e.wallTime(), StepTime: time.Duration(t.solo) * time.Microsecond / elasticSteps}
	if e.opt.Tell {
		p.Step, p.Total = int64((1-t.left)*elasticSteps), elasticSteps
	}
	a.Progress = p
}

// begin starts a task where the store put it.
func (e *engine) begin(a cluster.AttemptID) {
	id := int32(a.Job - 1)
	t := &e.tasks[id]
	view, _ := e.st.Job(a.Job)
	berth := &view.Last().Berth
	t.state, t.attempt, t.since, t.placed = runs, a.No, e.now, e.now
	if t.began < 0 {
		t.began = e.now
	}
	e.roomy.wait(t.job, -1)
	if e.zoom != nil {
		e.zoom.book(berth, e.nodeAt[berth.Node], 1)
	}
	t.cards = t.cards[:0]
	gpuType := ""
	held := view.Last().AllGPUs()
	for _, g := range held {
		c := e.slotAt[g.GPU]
		t.cards = append(t.cards, c)
		gpuType = e.slots[c].gpuType
		e.give(c, g.Share, 1)
	}
	f := t.job.Figures(gpuType)
	t.solo = float64(max(1, f.Duration.Microseconds())) * t.job.Slower(len(held))
	t.solution = t.solo
	tells(e, t, view.Last())
	t.overhead += float64((e.opt.Start + fetch(e, t.job, view.Last())).Microseconds())
	t.rate = 1
	t.load = slowdown.LoadOf(t.job, gpuType)
	if t.steps = e.opt.Rise.steps(e.opt.Seed, t.job, t.left, t.load.MemMiB); len(t.steps) > 0 {
		t.load.MemMiB, t.steps = t.steps[0].mib, t.steps[1:]
	}
	e.touched = e.touched[:0]
	for _, c := range t.cards {
		e.touched = e.lying(e.touched, c)
		e.lay(c, resident{id, &t.load})
	}
	if e.learner != nil {
		e.learner.Begin(id, e.now, t.job, gpuType, e.touched)
	}
	e.links.change(e, id, 1)
	e.retime(t.cards)
	e.expect(id)
	e.sums.starts++
	t.seen = resize.Steady{}
	e.watch(id)
	e.dangers(id, t, berth)
}

// dangers schedules what may end the attempt early.
func (e *engine) dangers(id int32, t *task, berth *cluster.Berth) {
	if !t.profiled {
		e.events.push(event{at: e.now + e.opt.Profile.Microseconds(), id: id, ver: t.attempt, k: evProfiled})
	}
	switch {
	case e.opt.Rise.set():
		pressure{e}.press(id)
	case t.load.MemMiB > 0 && (e.overfull(t.cards) || e.opt.CapMemory && t.overShare(berth)):
		e.events.push(event{at: e.now + e.opt.OOMAfter.Microseconds(), id: id, ver: t.attempt, k: evOOM})
	}
}

// overShare reports whether a job holds more memory than its share of some GPU.
func (t *task) overShare(b *cluster.Berth) bool {
	return slices.ContainsFunc(b.GPUs, func(g cluster.GPUShare) bool { return t.load.MemMiB > g.Share.MemMiB })
}

// retime recomputes how fast all tasks on the given GPUs run.
func (e *engine) retime(cards []int32) {
	e.touched = e.touched[:0]
	for _, c := range cards {
		e.touched = e.lying(e.touched, c)
	}
	slices.Sort(e.touched)
	for _, id := range slices.Compact(e.touched) {
		t := &e.tasks[id]
		rate := 1.0
		for _, c := range t.cards {
			rate = min(rate, e.speedOn(c, id))
		}
		if rate *= e.links.rate(e, t); rate == t.rate {
			continue
		}
		t.settle(e.now)
		t.rate = rate
		e.expect(id)
	}
}

// finish ends the attempt of a task.
func (e *engine) finish(id int32, how cluster.JobState) error {
	t := &e.tasks[id]
	t.settle(e.now)
	view, _ := e.st.Job(cluster.JobID(id + 1))
	berth, held := view.Last().Berth, view.Last().AllGPUs()
	tells(e, t, view.Last())
	told := how
	if how == cluster.JobOutOfMemory && e.opt.OOMFatal {
		told = cluster.JobFailed
	}
	end := outcome{state: told, usage: cluster.Usage{
		GPUMemPeakMiB: t.load.MemMiB, Milli: t.load.Milli, Duration: time.Duration(e.now-t.placed) * time.Microsecond, GPUOOM: told == cluster.JobOutOfMemory,
	}}
	if e.zoom != nil {
		e.zoom.book(&berth, e.nodeAt[berth.Node], -1)
	}
	for _, g := range held {
		e.give(e.slotAt[g.GPU], g.Share, -1)
		e.freed = append(e.freed, g.GPU)
	}
	for _, c := range t.cards {
		e.lift(c, resident{id, &t.load})
	}
	again, err := e.st.finish(e.wallTime(), cluster.JobID(id+1), end)
	if err != nil {
		return err
	}
	if e.learner != nil && e.learner.End(id, e.now, how == cluster.JobCompleted) {
		e.st.(*plain).know = e.learner.Know()
	}
	e.changed = true
	e.here.running--
	t.busy += e.now - t.placed
	if e.here.users != nil {
		e.here.users[view.Owner.UID] += (e.now - t.placed) * int64(len(t.cards))
	}
	t.overhead = 0
	if e.opt.Observe != nil {
		e.opt.Observe.Attempt(t.job.ID, ints(t.cards), time.Duration(t.placed)*time.Microsecond, time.Duration(e.now)*time.Microsecond, how)
	}
	e.links.change(e, id, -1)
	e.retime(t.cards)
	t.state = waits
	if again {
		e.roomy.wait(t.job, 1)
	} else {
		t.state, t.ended = failed, e.now
		if how == cluster.JobCompleted {
			t.state = done
		}
		e.doneN++
		e.sums.end = e.sums.area
		e.sums.last = e.now
		e.here.demand -= int64(t.job.GPUs)
	}
	return nil
}

func ints(of []int32) []int {
	out := make([]int, len(of))
	for i, c := range of {
		out[i] = int(c)
	}
	return out
}

// outOfMemory ends the task that holds more than its cap, or the newest on a GPU
// that is too full, if it still is. What the job did is lost: it died before its
// first checkpoint.
func (e *engine) outOfMemory(id int32) error {
	who := id
	switch {
	case pressure{e}.aboveCap(id):
	case e.overfull(e.tasks[id].cards):
		who = pressure{e}.victim(id)
	default:
		return nil
	}
	view, _ := e.st.Job(cluster.JobID(who + 1))
	cut := view.Last().WasCut()
	e.sums.ooms++
	if err := e.finish(who, cluster.JobOutOfMemory); err != nil {
		return err
	}
	t := &e.tasks[who]
	t.left = t.saved
	if cut {
		e.sums.harmed++
		e.lookAfter(who, resize.Every)
	}
	if who != id {
		pressure{e}.press(id) // that may not have been enough
	}
	return nil
}

// profiledNow ends the trial of a job and makes it known.
func (e *engine) profiledNow(id int32) error {
	t := &e.tasks[id]
	if err := e.finish(id, cluster.JobPreempted); err != nil {
		return err
	}
	t.profiled, t.left = true, t.saved
	view, _ := e.st.Job(cluster.JobID(id + 1))
	view.Estimates = e.estimates(t.job)
	return nil
}

// preempt ends an attempt once it has saved its state, and keeps its earlier work.
func (e *engine) preempt(p *dispatch.Preemption) error {
	i := int32(p.Job - 1)
	if i < 0 || int(i) >= len(e.tasks) || e.tasks[i].state != runs {
		return nil
	}
	if took, err := e.st.preempt(e.wallTime(), p); !took || err != nil {
		return err
	}
	e.sums.preemptions++
	if e.opt.Save == 0 {
		return leaver{e}.gone(i)
	}
	t := &e.tasks[i]
	t.settle(e.now)
	t.overhead += float64(e.opt.Save.Microseconds()) // in which it does nothing else
	e.expect(i)
	e.events.push(event{at: e.now + e.opt.Save.Microseconds(), id: i, ver: t.attempt, k: evSaved})
	return nil
}

// leaver ends preempted attempts.
type leaver struct{ *engine }

// gone ends an attempt that has saved its state.
func (e leaver) gone(i int32) error {
	if err := e.finish(i, cluster.JobPreempted); err != nil {
		return err
	}
	t := &e.tasks[i]
	cost := e.opt.PreemptSmall
	if t.job.GPUs > 8 {
		cost = e.opt.PreemptLarge
	}
	t.saved, t.overhead = t.left, float64(cost.Microseconds())
	return nil
}
