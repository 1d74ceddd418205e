package sim

import (
	"slices"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler/resize"
)

// lookEvery is how long it takes until the leader has heard what a job holds: the
// time between two heartbeats of its node.
const lookEvery = 5 * time.Second

// use returns what the node of a task reports of it.
func (e *engine) use(t *task) resize.Use {
	known := (e.now - t.placed) / 1000
	return resize.Use{At: e.wallTime(), PeakMiB: t.load.MemMiB, KnownMs: known, BusyMs: known * t.load.Milli * int64(len(t.cards))}
}

// watch records that a task holds different memory than before, and schedules when
// a leader may change its shares for that.
func (e *engine) watch(id int32) {
	if !e.opt.resizes() {
		return
	}
	t := &e.tasks[id]
	t.seen.Add(e.use(t))
	view, _ := e.st.Job(cluster.JobID(id + 1))
	after := lookEvery
	switch a := view.Live(); {
	case a.WasCut():
	case !view.MayResize():
		return
	default:
		after = max(after, e.opt.Resize.Rule().Wait(a.Estimate.Duration))
	}
	e.lookAfter(id, after)
}

// lookAfter schedules one more look at a task, and no sooner.
func (e *engine) lookAfter(id int32, d time.Duration) {
	t := &e.tasks[id]
	t.looks++
	d += time.Microsecond - 1 // not a moment too soon
	e.events.push(event{at: e.now + d.Microseconds(), id: id, ver: t.looks, k: evLook})
}

// look does for a job what the leader does every few seconds: it changes the shares
// of a running one, and has others make room for one that reached its reduced
// share.
func (e *engine) look(id int32) error {
	t := &e.tasks[id]
	view, _ := e.st.Job(cluster.JobID(id + 1))
	if t.state == waits {
		if !resize.CutShort(view, e.wallTime()) {
			return nil
		}
		e.lookAfter(id, resize.Every)
		return e.yield(view)
	}
	a := view.Live()
	n, ok := e.st.Node(a.Berth.Node)
	if !ok || !a.WasCut() && !view.MayResize() {
		return nil
	}
	u := e.use(t)
	t.seen.Add(u)
	to := t.seen.Shares(view, n, u, e.opt.Resize)
	if to == nil {
		return nil
	}
	was, grows := slices.Clone(a.Berth.GPUs), a.WasCut()
	took, err := e.st.resize(e.wallTime(), cluster.AttemptID{Job: view.ID, No: a.No}, to)
	switch {
	case err != nil:
		return err
	case took:
		e.rebook(a.Berth.Node, was, to)
		if grows {
			e.sums.growths++
			return nil
		}
		e.sums.cuts++
		e.changed = true
		for _, g := range to {
			e.freed = append(e.freed, g.GPU)
		}
	case grows:
		e.lookAfter(id, lookEvery)
		return e.yield(view)
	}
	return nil
}

// rebook books other shares of the same GPUs.
func (e *engine) rebook(node cluster.NodeID, was, to []cluster.GPUShare) {
	for i, g := range was {
		c := e.slotAt[g.GPU]
		e.give(c, g.Share, -1)
		e.give(c, to[i].Share, 1)
	}
	if e.zoom != nil {
		e.zoom.book(&cluster.Berth{GPUs: was}, e.nodeAt[node], -1)
		e.zoom.book(&cluster.Berth{GPUs: to}, e.nodeAt[node], 1)
	}
}

// yield preempts a job that took what was cut from a job's share.
func (e *engine) yield(j *cluster.Job) error {
	var ids []int32
	for _, g := range j.Last().Berth.GPUs {
		ids = e.lying(ids, e.slotAt[g.GPU])
	}
	slices.Sort(ids)
	var beside []*cluster.Job
	for _, id := range slices.Compact(ids) {
		view, _ := e.st.Job(cluster.JobID(id + 1))
		beside = append(beside, view)
	}
	newest := resize.WhoYields(beside, j, e.wallTime())
	if newest == nil {
		return nil
	}
	return e.preempt(&dispatch.Preemption{Job: newest.ID, Attempt: newest.Live().No, For: j.ID, Why: "another job takes up what it was granted"})
}
