package nodes

import (
	"cmp"
	"slices"

	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/fsm/command"
)

// maxOrders bounds what is kept of single cards of one node.
const maxOrders = 256

// Note adds to the history of n, a node that is not stored yet.
func Note(at command.Entry, n *cluster.Node, e cluster.NodeEvent) {
	if at.Version < command.HealthVersion {
		return
	}
	e.At = at.Now
	n.History = cluster.Remember(n.History, e)
}

// noteRegistered tells what is new in how a node describes itself. The history
// of n is that of old by now, which is nil for a node that is new.
func noteRegistered(at command.Entry, old, n *cluster.Node) {
	switch {
	case old == nil:
		Note(at, n, cluster.NodeEvent{Kind: cluster.EventRegistered})
		old = &cluster.Node{}
	case old.BootID != n.BootID:
		Note(at, n, cluster.NodeEvent{Kind: cluster.EventBooted})
	case old.State == cluster.NodeUnreachable:
		Note(at, n, cluster.NodeEvent{Kind: cluster.EventBack})
	}
	if n.Problem != old.Problem {
		e := cluster.NodeEvent{Kind: cluster.EventProblem, Detail: n.Problem}
		if n.Problem == "" {
			e.Detail = "solved: " + old.Problem
		}
		Note(at, n, e)
	}
	for i := range n.GPUs {
		noteCard(at, old, n, &n.GPUs[i])
	}
	for i := range old.GPUs {
		if id := old.GPUs[i].ID; n.GPU(id) == nil {
			Note(at, n, cluster.NodeEvent{GPU: id, Kind: cluster.EventVanished, Detail: "its agent no longer reports it"})
		}
	}
}

func noteCard(at command.Entry, old, n *cluster.Node, g *cluster.GPU) {
	was := old.GPU(g.ID)
	switch {
	case was == nil && old.ID != "":
		Note(at, n, cluster.NodeEvent{GPU: g.ID, Kind: cluster.EventBack, Detail: g.StateReason})
		if g.State == cluster.GPUOK {
			return
		}
	case was == nil && g.State == cluster.GPUOK, was != nil && was.State == g.State && was.StateReason == g.StateReason:
		return
	}
	Note(at, n, cluster.NodeEvent{GPU: g.ID, Kind: g.State.String(), Detail: g.StateReason})
}

// ordersFor returns those of the orders that are still of use to n: all drains,
// and whatever there is of cards that it has.
func ordersFor(n *cluster.Node, orders []cluster.GPUOrder) []cluster.GPUOrder {
	useless := func(o cluster.GPUOrder) bool { return !o.Drain && n.GPU(o.GPU) == nil }
	if !slices.ContainsFunc(orders, useless) {
		return orders
	}
	return slices.DeleteFunc(slices.Clone(orders), useless)
}

// closeQueues tells of cards that take no jobs.
func (f *Fleet) closeQueues(n *cluster.Node) {
	for i := range n.GPUs {
		if g := &n.GPUs[i]; !n.Open(g) {
			f.rest.Close(g.ID)
		}
	}
}

// drainGPU keeps new jobs from one card, or lets them come again. Doing it
// again changes nothing, but that a card is resumed anew each time: what its
// agent held against it meanwhile is void, too.
func (f *Fleet) drainGPU(c *logv1.DrainGPU) command.Result {
	old := f.nodes.Get(cluster.NodeID(c.Node))
	if old == nil {
		return command.Refuse(cluster.CodeNotFound, "node %q is not known", c.Node)
	}
	id := cluster.GPUID(c.Gpu)
	was := old.Order(id)
	switch {
	case old.GPU(id) == nil && was == nil:
		return command.Refuse(cluster.CodeNotFound, "node %s has no GPU %q", c.Node, c.Gpu)
	case was == nil && len(old.Orders) >= maxOrders:
		return command.Refuse(cluster.CodeExhausted, "node %s: %d GPUs have orders already; resume those that are gone for good", c.Node, len(old.Orders))
	case c.Drain && was != nil && was.Drain && was.Reason == c.Reason:
		return command.Result{}
	}
	o := cluster.GPUOrder{GPU: id, Drain: c.Drain, Reason: c.Reason, By: cluster.UID(c.By), At: f.rest.At().Now}
	if was != nil {
		o.Resumed = was.Resumed
	}
	if !c.Drain {
		o.Reason, o.Resumed = "", f.rest.At().Index
	}
	n := *old
	n.Revision, n.Changed = f.rest.At().Index, f.rest.At().Now
	n.Orders = slices.DeleteFunc(slices.Clone(old.Orders), func(x cluster.GPUOrder) bool { return x.GPU == id })
	if o.Drain || n.GPU(id) != nil {
		n.Orders = append(n.Orders, o)
		slices.SortFunc(n.Orders, func(a, b cluster.GPUOrder) int { return cmp.Compare(a.GPU, b.GPU) })
	}
	Note(f.rest.At(), &n, ordered(id, c.Drain, c.Reason, c.By))
	f.Put(&n)
	f.closeQueues(&n)
	return command.Result{}
}

// EmptyQueues tells of all cards of a node that they take no jobs.
func (f *Fleet) EmptyQueues(n *cluster.Node) {
	for i := range n.GPUs {
		f.rest.Close(n.GPUs[i].ID)
	}
}

// drain keeps new jobs away from a node, or lets them come again.
func (f *Fleet) drain(c *logv1.DrainNode) command.Result {
	old := f.nodes.Get(cluster.NodeID(c.Node))
	if old == nil {
		return command.Refuse(cluster.CodeNotFound, "node %q is not known", c.Node)
	}
	if !c.Drain && c.UntilUs != 0 && int64(old.DrainUntil) != c.UntilUs {
		return command.Result{} // it was resumed or drained anew before its time came
	}
	n := *old
	n.Drain, n.DrainReason, n.DrainUntil, n.Revision, n.Changed = c.Drain, c.Reason, cluster.Time(c.UntilUs), f.rest.At().Index, f.rest.At().Now
	if !c.Drain {
		n.DrainReason, n.DrainUntil = "", 0
	}
	if !c.Drain && c.UntilUs == 0 && n.Power.State == cluster.PowerFailed {
		n.Power = cluster.Power{State: cluster.PoweredDown, Since: f.rest.At().Now} // to be tried again
	}
	if c.Drain != old.Drain || n.DrainReason != old.DrainReason {
		e := ordered("", c.Drain, c.Reason, c.By)
		if !c.Drain && c.UntilUs != 0 {
			e.Asked, e.Detail = false, "the time of its drain was over"
		}
		Note(f.rest.At(), &n, e)
	}
	f.Put(&n)
	if c.Drain {
		f.EmptyQueues(&n)
	}
	return command.Result{}
}

// ordered is what an administrator made of a node, or of one card of it.
func ordered(gpu cluster.GPUID, drain bool, reason string, by uint32) cluster.NodeEvent {
	e := cluster.NodeEvent{GPU: gpu, Kind: cluster.EventResumed, Asked: true, By: cluster.UID(by)}
	if drain {
		e.Kind, e.Detail = cluster.EventDrained, reason
	}
	return e
}
