package sim

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/scheduler/sim/slowdown"
	"github.com/berth-scheduler/berth/scheduler/sim/workload"
)

// Rise is how the memory of jobs reaches its peak. The zero value is at once, and
// Options.OOMAfter says when others feel it.
type Rise struct {
	// PeakAt is the part of a job's run time after which each of its attempts holds the
	// peak: until then it takes a tenth more in each ninth of that time. 0 is at once.
	PeakAt float64
	// Late is the part of jobs, drawn by seed and id, that hold half of their peak
	// until a time drawn from their whole run, and then take the rest in one leap.
	Late float64
}

// DefaultPeakAt is the default PeakAt of runs that resize shares.
const DefaultPeakAt = 0.05

const curveSteps = 10

func (c Rise) set() bool { return c != Rise{} }

func (c Rise) check() error {
	if !(c.PeakAt >= 0 && c.PeakAt <= 1) || !(c.Late >= 0 && c.Late <= 1) {
		return fmt.Errorf("memory curve: the peak after %g of the run time and %g of the jobs growing late are not both in 0 to 1", c.PeakAt, c.Late)
	}
	return nil
}

// step is how much memory a task holds of each GPU from when so much of it is left.
type step struct {
	left float64
	mib  int64
}

// steps returns those of an attempt that begins with left still to be done, in
// order of time; the first one holds from its start.
func (c Rise) steps(seed uint64, j *workload.Job, left float64, peak int64) []step {
	if !c.set() || peak == 0 {
		return nil
	}
	leap := 2.0 // of the job left when it takes all; above 1 is from the start
	if r := workload.Chance(seed, j.ID, "grows late"); r.Float64() < c.Late {
		leap = 1 - r.Float64()
	}
	points := []float64{left}
	for i := 1; i < curveSteps && c.PeakAt > 0; i++ {
		points = append(points, left-c.PeakAt*float64(i)/(curveSteps-1))
	}
	if leap < left {
		points = append(points, leap)
	}
	slices.SortFunc(points, func(a, b float64) int { return cmp.Compare(b, a) })
	var out []step
	for _, p := range points {
		mib := peak
		if p > leap {
			mib = peak / 2
		}
		if c.PeakAt > 0 {
			at := int64((left-p)/c.PeakAt*(curveSteps-1) + 1e-6)
			mib = max(1, mib*min(curveSteps, at+1)/curveSteps)
		}
		if p > 0 && (len(out) == 0 || out[len(out)-1].mib != mib) {
			out = append(out, step{p, mib})
		}
	}
	return out
}

// rise moves a task's memory to the next step of its curve.
func (e *engine) rise(id int32) error {
	t := &e.tasks[id]
	more := slowdown.Load{MemMiB: t.steps[0].mib - t.load.MemMiB}
	t.load.MemMiB, t.steps = t.steps[0].mib, t.steps[1:]
	for _, c := range t.cards {
		e.account(&e.slots[c], &more, 1)
	}
	e.expectRise(id)
	e.watch(id)
	pressure{e}.press(id)
	return nil
}

// expectRise schedules the next step of a task's memory.
func (e *engine) expectRise(id int32) {
	if t := &e.tasks[id]; len(t.steps) > 0 {
		e.events.push(event{at: t.since + t.until(t.steps[0].left), id: id, ver: t.ver, k: evMemory})
	}
}

// pressure decides which jobs end when memory is short.
type pressure struct{ *engine }

// press schedules which job ends, now that a task holds more than before or was
// placed on its GPUs.
func (e pressure) press(id int32) {
	t := &e.tasks[id]
	if t.load.MemMiB > 0 && e.overfull(t.cards) {
		e.events.push(event{at: e.now, id: id, ver: t.attempt, k: evOOM})
	}
	for _, c := range t.cards {
		for _, r := range e.slots[c].residents {
			if e.aboveCap(r.id) {
				e.events.push(event{at: e.now, id: r.id, ver: e.tasks[r.id].attempt, k: evOOM})
			}
		}
	}
}

// aboveCap reports whether a task holds more of a GPU than the memory enforcement
// there allows: what it was granted, if that is capped, and if that was reduced,
// what is neither promised to nor held by others.
func (e pressure) aboveCap(id int32) bool {
	t := &e.tasks[id]
	view, _ := e.st.Job(cluster.JobID(id + 1))
	a := view.Last()
	for i, g := range a.Berth.GPUs {
		most := a.Granted(i)
		switch {
		case t.load.MemMiB > most && e.opt.CapMemory:
			return true
		case t.load.MemMiB <= g.Share.MemMiB || !a.WasCut():
		case t.load.MemMiB > min(most, e.room(e.slotAt[g.GPU], id)):
			return true
		}
	}
	return false
}

// room returns what of a GPU is neither promised to others than a task nor held by
// them.
func (e pressure) room(c, id int32) int64 {
	left := e.slots[c].memMiB
	for _, r := range e.slots[c].residents {
		if r.id == id {
			continue
		}
		promised := int64(0)
		view, _ := e.st.Job(cluster.JobID(r.id + 1))
		for _, g := range view.Last().Berth.GPUs {
			if g.GPU == e.slots[c].id {
				promised = g.Share.MemMiB
			}
		}
		left -= max(promised, r.load.MemMiB)
	}
	return left
}

// victim returns which job ends when a GPU of a task is too full: one that holds
// more there than its share, or else the task itself.
func (e pressure) victim(id int32) int32 {
	for _, c := range e.tasks[id].cards {
		if !e.overfull([]int32{c}) {
			continue
		}
		for _, r := range slices.Backward(e.slots[c].residents) {
			view, _ := e.st.Job(cluster.JobID(r.id + 1))
			if a := view.Last(); a.WasCut() && e.tasks[r.id].overShare(&a.Berth) {
				return r.id
			}
		}
	}
	return id
}
