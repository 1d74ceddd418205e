package nodes

import (
	"cmp"
	"slices"

	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/fsm/command"
)

// maxOrders bounds the orders for single GPUs of one node.
const maxOrders = 256

// Note adds an event to the history of n, a node that is not stored yet.
func Note(at command.Entry, n *cluster.Node, e cluster.NodeEvent) {
	if at.Version < command.HealthVersion {
		return
	}
	e.At = at.Now
	n.History = cluster.Remember(n.History, e)
}

// noteRegistered records what changed in a node's description of itself. n already
// has the history of old, which is nil for a new node.
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

// ordersFor returns the orders that are still of use to n: all drains, and any for
// GPUs that it has.
func ordersFor(n *cluster.Node, orders []cluster.GPUOrder) []cluster.GPUOrder {
	useless := func(o cluster.GPUOrder) bool { return !o.Drain && n.GPU(o.GPU) == nil }
	if !slices.ContainsFunc(orders, useless) {
		return orders
	}
	return slices.DeleteFunc(slices.Clone(orders), useless)
}

// closeQueues closes the queues of GPUs that take no jobs.
func (f *Fleet) closeQueues(n *cluster.Node) {
	for i := range n.GPUs {
		if g := &n.GPUs[i]; !n.Open(g) {
			f.rest.Close(g.ID)
		}
	}
}

// drainGPU keeps new jobs off one GPU, or admits them again. Repeating it changes
// nothing, except that each resume also voids what the agent held against the GPU
// meanwhile.
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
	Note(f.rest.At(), &n, ordered(id, c.Drain, c.Reason, c))
	f.Put(&n)
	f.closeQueues(&n)
	return command.Result{}
}

// EmptyQueues closes the queues of all GPUs of a node.
func (f *Fleet) EmptyQueues(n *cluster.Node) {
	for i := range n.GPUs {
		f.rest.Close(n.GPUs[i].ID)
	}
}

// drain keeps new jobs off a node, or admits them again.
func (f *Fleet) drain(c *logv1.DrainNode) command.Result {
	old := f.nodes.Get(cluster.NodeID(c.Node))
	if old == nil {
		return command.Refuse(cluster.CodeNotFound, "node %q is not known", c.Node)
	}
	if !c.Drain && c.UntilUs != 0 && int64(old.DrainUntil) != c.UntilUs {
		return command.Result{} // it was resumed or drained again before its time came
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
		e := ordered("", c.Drain, c.Reason, c)
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

// order is who ordered something for a node; the coordinator itself is not asked.
type order interface {
	GetBy() uint32
	GetUnasked() bool
}

// ordered returns the event of an order for a node, or one of its GPUs.
func ordered(gpu cluster.GPUID, drain bool, reason string, o order) cluster.NodeEvent {
	e := cluster.NodeEvent{GPU: gpu, Kind: cluster.EventResumed, Asked: !o.GetUnasked(), By: cluster.UID(o.GetBy())}
	if drain {
		e.Kind, e.Detail = cluster.EventDrained, reason
	}
	return e
}
