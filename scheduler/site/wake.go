package site

import (
	"maps"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/accounting"
	"github.com/berth-scheduler/berth/cluster/dispatch"
)

// Needs is what waiting jobs would start on if the nodes that are off were up.
type Needs struct {
	// Wake holds the nodes that are powered down and would get jobs, by id.
	Wake []cluster.NodeID
	// Used holds all nodes on which a job would start, including those that are up.
	Used map[cluster.NodeID]struct{}
	// For holds on which of the nodes that are off a job would start, including
	// those already coming up.
	For map[cluster.JobID][]cluster.NodeID
}

// Needed runs the passes of the site over copies of a snapshot that Prepare has
// seen: one in which the nodes coming up are up and, for jobs that would not start
// there, one in which the powered-down ones are up too. So no node is woken for a
// job that starts without it. A job on several nodes that starts in neither, and
// for which the nodes that are up are too few however long it waits, has all of its
// nodes woken, since nothing is reserved for it before. snap is not modified.
func Needed(snap *dispatch.Snapshot, s *Site) Needs {
	return NeededBy(snap, func(view *dispatch.Snapshot) dispatch.Plan { return Plan(view, s, Full) })
}

// NeededBy is Needed with other passes than a site's. Each gets its own snapshot.
func NeededBy(snap *dispatch.Snapshot, plan func(*dispatch.Snapshot) dispatch.Plan) Needs {
	out := Needs{Used: map[cluster.NodeID]struct{}{}, For: map[cluster.JobID][]cluster.NodeID{}}
	up := lit(snap, cluster.PoweringUp)
	view := pass(up)
	out.add(snap, plan(pass(view)).Starts, view)
	if len(view.Waiting) == 0 || !slices.ContainsFunc(snap.Nodes, asleep) {
		return out
	}
	view = lit(view, cluster.PoweredDown)
	out.add(snap, plan(pass(view)).Starts, view)
	if spans := vacant(up, view.Waiting); len(spans.Waiting) > 0 {
		for _, st := range plan(pass(spans)).Starts {
			spans.Waiting = slices.DeleteFunc(spans.Waiting, func(j *cluster.Job) bool { return j.ID == st.Job })
		}
		spans = lit(spans, cluster.PoweredDown)
		out.add(snap, plan(pass(spans)).Starts, spans)
	}
	slices.Sort(out.Wake)
	return out
}

// asleep reports whether a node is powered down and would be woken.
func asleep(n *cluster.Node) bool { return n.Power.State == cluster.PoweredDown && n.Wakeable() }

// vacant returns a view in which nothing runs, and those of waiting wait that need
// several nodes.
func vacant(view *dispatch.Snapshot, waiting []*cluster.Job) *dispatch.Snapshot {
	out := pass(view)
	out.Ledger, out.Running, out.Queues = dispatch.NewLedger(view.Nodes), nil, map[cluster.GPUID][]dispatch.Waiter{}
	out.Waiting = slices.DeleteFunc(slices.Clone(waiting), func(j *cluster.Job) bool { return j.Spec.NodeCount() == 1 })
	return out
}

// add adds the jobs that would start in a view of snap, and starts them there.
func (n *Needs) add(snap *dispatch.Snapshot, starts []dispatch.Start, view *dispatch.Snapshot) {
	off := map[cluster.NodeID]cluster.PowerState{}
	for _, x := range snap.Nodes {
		if x.Wakeable() {
			off[x.ID] = x.Power.State
		}
	}
	for i := range starts {
		st := &starts[i]
		at := slices.IndexFunc(view.Waiting, func(j *cluster.Job) bool { return j.ID == st.Job })
		if at < 0 || !view.Ledger.TakeStart(st) {
			continue
		}
		j := view.Waiting[at]
		view.Waiting = slices.Delete(view.Waiting, at, at+1)
		leave(view.Queues, j)
		if view.Limits != nil {
			view.Limits.Count(accounting.HolderOf(j), 0, 1, view.Ledger.HeldMilli(st.AllGPUs()))
		}
		view.Running = append(view.Running, st.Began(j, view.Now))
		for _, b := range st.Berths() {
			_, known := n.Used[b.Node]
			n.Used[b.Node] = struct{}{}
			state := off[b.Node]
			if state != cluster.PowerUp {
				n.For[j.ID] = append(n.For[j.ID], b.Node)
			}
			if state == cluster.PoweredDown && !known {
				n.Wake = append(n.Wake, b.Node)
			}
		}
	}
	slices.SortFunc(view.Running, func(a, b *cluster.Job) int { return int(a.ID) - int(b.ID) })
}

// lit returns a copy of a snapshot with those nodes up that are off in one way and
// would be woken for jobs.
func lit(snap *dispatch.Snapshot, state cluster.PowerState) *dispatch.Snapshot {
	out := pass(snap)
	out.Nodes = slices.Clone(snap.Nodes)
	for i, n := range out.Nodes {
		if n.Power.State != state || !n.Wakeable() {
			continue
		}
		up := *n
		up.State, up.Power = cluster.NodeReady, cluster.Power{}
		out.Nodes[i] = &up
		out.Ledger.SetNode(&up)
	}
	return out
}

// pass returns a snapshot that a pass, and add, may modify.
func pass(snap *dispatch.Snapshot) *dispatch.Snapshot {
	out := *snap
	out.Waiting, out.Running = slices.Clone(snap.Waiting), slices.Clone(snap.Running)
	out.Ledger, out.Queues, out.Limits = snap.Ledger.Clone(), maps.Clone(snap.Queues), snap.Limits.Clone()
	return &out
}
