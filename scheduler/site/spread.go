package site

import (
	"maps"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/cluster/hostnames"
)

// spreads is how often a pass in which replicas keep apart is tried, each time less
// strictly.
const spreads = 3

// spread returns a snapshot in which waiting replicas of services avoid nodes that
// have more of the others, by more than a number, than some node with room for
// them; of each service only the first one waits in it, since the others depend on
// where that one goes. It is nil if nothing calls for such a snapshot. It has its
// own ledger and queues.
func spread(snap *dispatch.Snapshot, more int) *dispatch.Snapshot {
	if len(snap.Nodes) < 2 || !slices.ContainsFunc(snap.Waiting, waitsToServe) {
		return nil
	}
	there := map[cluster.JobID]map[cluster.NodeID]int{}
	for _, j := range snap.Running {
		if a := j.Live(); j.Spec.Service != nil && a != nil {
			if there[j.ArrayJobID] == nil {
				there[j.ArrayJobID] = map[cluster.NodeID]int{}
			}
			there[j.ArrayJobID][a.Berth.Node]++
		}
	}
	out := *snap
	out.Waiting = nil
	seen := map[cluster.JobID]bool{}
	for _, j := range snap.Waiting {
		if !waitsToServe(j) {
			out.Waiting = append(out.Waiting, j)
			continue
		}
		if seen[j.ArrayJobID] {
			continue
		}
		seen[j.ArrayJobID] = true
		out.Waiting = append(out.Waiting, keptApart(j, snap, there[j.ArrayJobID], more))
	}
	out.Ledger = snap.Ledger.Clone()
	out.Queues = make(map[cluster.GPUID][]dispatch.Waiter, len(snap.Queues))
	maps.Copy(out.Queues, snap.Queues)
	return &out
}

// waitsToServe reports whether a job is a waiting replica in no queue.
func waitsToServe(j *cluster.Job) bool {
	return j.Spec.Service != nil && j.State == cluster.JobPending && j.Spec.Node == ""
}

// keptApart returns j kept from nodes with more replicas, by more than a number,
// than the one with the fewest among those with room for it.
func keptApart(j *cluster.Job, snap *dispatch.Snapshot, there map[cluster.NodeID]int, more int) *cluster.Job {
	least, most := -1, 0
	for _, n := range snap.Nodes {
		if k := there[n.ID]; (least < 0 || k < least) && n.Schedulable() && j.Spec.Allows(n) && hasRoom(j, n, snap.Ledger) {
			least = k
		}
		most = max(most, there[n.ID])
	}
	if least += more; most <= least {
		return j
	}
	var full []cluster.NodeID
	where := cluster.Where{}
	if w := j.Spec.Where; w != nil {
		where = *w
	}
	for _, n := range snap.Nodes {
		if there[n.ID] > least || where.Exclude.Holds(n.ID) {
			full = append(full, n.ID)
		}
	}
	list, err := cluster.ParseHostList(hostnames.Fold(full))
	if err != nil { // there are too many
		return j
	}
	where.Exclude = list
	out, spec := j.Clone(), *j.Spec
	spec.Where = &where
	out.Spec = &spec
	return out
}

// hasRoom reports whether a node has as many GPUs as j wants with something free,
// and of memory what is surely needed. Policies may ask for more.
func hasRoom(j *cluster.Job, n *cluster.Node, led *dispatch.Ledger) bool {
	cards := 0
	for i := range n.GPUs {
		u, ok := led.GPU(n.GPUs[i].ID)
		if ok && u.FreeShares() > 0 && u.FreeMilli() > 0 && u.FreeMiB() >= j.Spec.GPUMemMiB && (!j.Spec.Exclusive || u.Idle()) && (j.Spec.GPUType == "" || j.Spec.GPUType == u.Type) {
			cards++
		}
	}
	return cards >= j.Spec.GPUs
}

// startsAll reports whether a plan starts all waiting replicas.
func startsAll(snap *dispatch.Snapshot, plan *dispatch.Plan) bool {
	return !slices.ContainsFunc(snap.Waiting, func(j *cluster.Job) bool {
		return waitsToServe(j) && !slices.ContainsFunc(plan.Starts, func(s dispatch.Start) bool { return s.Job == j.ID })
	})
}
