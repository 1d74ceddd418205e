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

// wide reports whether a job runs on several nodes.
func wide(j workload.Job) bool { return j.Nodes > 1 }

// links counts which links the running jobs on several nodes communicate over.
type links struct {
	on   []int32 // those jobs
	node map[int32]int
	leaf map[string]int
}

// of returns the nodes of a task and, if they are on several, their switches.
func (l *links) of(e *engine, t *task) (nodes []int32, switches []string) {
	for _, c := range t.cards {
		n := e.slots[c].node
		if !slices.Contains(nodes, n) {
			nodes = append(nodes, n)
		}
		if p := e.nodes[n].SwitchPath(); !slices.Contains(switches, p) {
			switches = append(switches, p)
		}
	}
	if len(switches) < 2 {
		switches = nil
	}
	return nodes, switches
}

// rate returns how fast a task is, given who else uses its links: those of one link
// divide it among them, and computing takes as long as ever.
func (l *links) rate(e *engine, t *task) float64 {
	if e.opt.Exchange == 0 || t.job.Nodes < 2 {
		return 1
	}
	nodes, switches := l.of(e, t)
	worst := 1.0
	for _, n := range nodes {
		worst = max(worst, float64(l.node[n]))
	}
	for _, s := range switches {
		worst = max(worst, float64(l.leaf[s])/float64(max(1, e.opt.Uplink)))
	}
	return 1 / (1 + e.opt.Exchange*(worst-1))
}

// change counts a task that starts or, with by below 0, ends, and changes the speed of
// the others.
func (l *links) change(e *engine, id int32, by int) {
	t := &e.tasks[id]
	if e.opt.Exchange == 0 || t.job.Nodes < 2 {
		return
	}
	if l.node == nil {
		l.node, l.leaf = map[int32]int{}, map[string]int{}
	}
	nodes, switches := l.of(e, t)
	for _, n := range nodes {
		l.node[n] += by
	}
	for _, s := range switches {
		l.leaf[s] += by
	}
	l.on = slices.DeleteFunc(l.on, func(o int32) bool { return o == id })
	for _, o := range l.on {
		e.retime(e.tasks[o].cards[:1])
	}
	if by > 0 {
		l.on = append(l.on, id)
	}
}
