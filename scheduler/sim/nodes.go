package sim

import (
	"slices"
	"strconv"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/scheduler/sim/workload"
)

// planFailure draws when a node breaks next.
func (e *engine) planFailure(i int32) {
	if e.opt.MTBF == 0 {
		return
	}
	r := workload.Chance(e.opt.Seed, string(e.nodes[i].ID), "break "+strconv.FormatUint(uint64(e.nodeVer[i]), 10))
	e.nodeVer[i]++
	at := e.now + int64(r.ExpFloat64()*float64(e.opt.MTBF.Microseconds())) + 1
	e.events.push(event{at: at, id: i, ver: e.nodeVer[i], k: evNodeDown})
}

// nodeTurns breaks a node or brings it back.
func (e *engine) nodeTurns(i int32, up bool) error {
	e.changed = true
	id := e.nodes[i].ID
	if up {
		if err := e.st.setNode(e.wallTime(), id, cluster.NodeReady); err != nil {
			return err
		}
		e.planFailure(i)
		return nil
	}
	e.sums.failures++
	for s := range e.slots {
		if e.slots[s].node != i {
			continue
		}
		for len(e.slots[s].residents) > 0 {
			if err := e.lose(e.slots[s].residents[0].id); err != nil {
				return err
			}
		}
	}
	r := workload.Chance(e.opt.Seed, string(id), "repair "+strconv.FormatUint(uint64(e.nodeVer[i]), 10))
	e.nodeVer[i]++
	e.events.push(event{at: e.now + int64(r.ExpFloat64()*float64(e.opt.Repair.Microseconds())) + 1, id: i, ver: e.nodeVer[i], k: evNodeUp})
	return e.st.setNode(e.wallTime(), id, cluster.NodeUnreachable)
}

// lose ends an attempt with its node and takes the job back to its last
// checkpoint.
func (e *engine) lose(id int32) error {
	t := &e.tasks[id]
	t.settle(e.now)
	back := t.saved
	if every := float64(e.opt.Checkpoint.Microseconds()); every > 0 && t.left < t.saved {
		kept := float64(int64((t.saved-t.left)*t.solo/every)) * every / t.solo
		back = t.saved - kept
	}
	if err := e.finish(id, cluster.JobNodeFail); err != nil {
		return err
	}
	t.left, t.saved = back, back
	return nil
}

// reads reports whether a job reads anything that some nodes have and others not.
func reads(j workload.Job) bool { return j.Image != "" || len(j.Data) > 0 }

// fetch returns how long an attempt waits for what its nodes lack of what the job
// reads.
func fetch(e *engine, j *workload.Job, a *cluster.Attempt) (lost time.Duration) {
	cold := false
	on := a.NodeIDs()
	for _, id := range on {
		at, has := slices.BinarySearch(e.held[j.Image], id)
		if j.Image == "" || has {
			continue
		}
		// Planners keep nothing of it, but an earlier snapshot may still be in use.
		e.held[j.Image] = slices.Insert(slices.Clone(e.held[j.Image]), at, id)
		e.sums.fetched++
		cold = true
	}
	if cold {
		lost = e.opt.Fetch.Image
	}
	for _, name := range j.Data {
		if slices.ContainsFunc(on, func(id cluster.NodeID) bool {
			return !slices.Contains(e.nodes[e.nodeAt[id]].Features, cluster.DataFeature+name)
		}) {
			lost += e.opt.Fetch.Data
			e.sums.elsewhere++
		}
	}
	return lost
}
