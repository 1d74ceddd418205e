package fsm

import (
	"cmp"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

// maxOrders bounds what is kept of single cards of one node.
const maxOrders = 256

// note adds to the history of n, a node that is not stored yet.
func (s *State) note(n *cluster.Node, e cluster.NodeEvent) {
	if s.rules < healthVersion {
		return
	}
	e.At = s.now
	n.History = cluster.Remember(n.History, e)
}

// noteRegistered tells what is new in how a node describes itself. The history
// of n is that of old by now, which is nil for a node that is new.
func (s *State) noteRegistered(old, n *cluster.Node) {
	switch {
	case old == nil:
		s.note(n, cluster.NodeEvent{Kind: cluster.EventRegistered})
		old = &cluster.Node{}
	case old.BootID != n.BootID:
		s.note(n, cluster.NodeEvent{Kind: cluster.EventBooted})
	case old.State == cluster.NodeUnreachable:
		s.note(n, cluster.NodeEvent{Kind: cluster.EventBack})
	}
	if n.Problem != old.Problem {
		e := cluster.NodeEvent{Kind: cluster.EventProblem, Detail: n.Problem}
		if n.Problem == "" {
			e.Detail = "solved: " + old.Problem
		}
		s.note(n, e)
	}
	for i := range n.GPUs {
		s.noteCard(old, n, &n.GPUs[i])
	}
	for i := range old.GPUs {
		if id := old.GPUs[i].ID; n.GPU(id) == nil {
			s.note(n, cluster.NodeEvent{GPU: id, Kind: cluster.EventVanished, Detail: "its agent no longer reports it"})
		}
	}
}

func (s *State) noteCard(old, n *cluster.Node, g *cluster.GPU) {
	was := old.GPU(g.ID)
	switch {
	case was == nil && old.ID != "":
		s.note(n, cluster.NodeEvent{GPU: g.ID, Kind: cluster.EventBack, Detail: g.StateReason})
		if g.State == cluster.GPUOK {
			return
		}
	case was == nil && g.State == cluster.GPUOK, was != nil && was.State == g.State && was.StateReason == g.StateReason:
		return
	}
	s.note(n, cluster.NodeEvent{GPU: g.ID, Kind: g.State.String(), Detail: g.StateReason})
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

// closeQueues dissolves the queues of cards that take no jobs.
func (s *State) closeQueues(index uint64, n *cluster.Node) {
	for i := range n.GPUs {
		if g := &n.GPUs[i]; !n.Open(g) {
			s.dissolve(index, g.ID, cluster.ReasonNodeDown)
		}
	}
}

// drainGPU keeps new jobs from one card, or lets them come again. Doing it
// again changes nothing, but that a card is resumed anew each time: what its
// agent held against it meanwhile is void, too.
func (s *State) drainGPU(index uint64, c *logv1.DrainGPU) Result {
	old, ok := s.nodes[cluster.NodeID(c.Node)]
	if !ok {
		return refuse(cluster.CodeNotFound, "node %q is not known", c.Node)
	}
	id := cluster.GPUID(c.Gpu)
	was := old.Order(id)
	switch {
	case old.GPU(id) == nil && was == nil:
		return refuse(cluster.CodeNotFound, "node %s has no GPU %q", c.Node, c.Gpu)
	case was == nil && len(old.Orders) >= maxOrders:
		return refuse(cluster.CodeExhausted, "node %s: %d GPUs have orders already; resume those that are gone for good", c.Node, len(old.Orders))
	case c.Drain && was != nil && was.Drain && was.Reason == c.Reason:
		return Result{}
	}
	o := cluster.GPUOrder{GPU: id, Drain: c.Drain, Reason: c.Reason, By: cluster.UID(c.By), At: s.now}
	if was != nil {
		o.Resumed = was.Resumed
	}
	if !c.Drain {
		o.Reason, o.Resumed = "", index
	}
	n := *old
	n.Revision, n.Changed = index, s.now
	n.Orders = slices.DeleteFunc(slices.Clone(old.Orders), func(x cluster.GPUOrder) bool { return x.GPU == id })
	if o.Drain || n.GPU(id) != nil {
		n.Orders = append(n.Orders, o)
		slices.SortFunc(n.Orders, func(a, b cluster.GPUOrder) int { return cmp.Compare(a.GPU, b.GPU) })
	}
	s.note(&n, ordered(id, c.Drain, c.Reason, c.By))
	s.putNode(&n)
	s.closeQueues(index, &n)
	return Result{}
}

// maxNeverBegan is how many attempts that never began, for an unsound GPU, do
// not count against maxAttempts.
const maxNeverBegan = 20

func (s *State) neverBegan(j *cluster.Job) int {
	n := 0
	for i := range j.Attempts {
		if s.rules >= healthVersion && unsoundEnd(&j.Attempts[i]) && n < maxNeverBegan {
			n++
		}
	}
	return n
}

// unsoundEnd tells whether an attempt ended before it began, since its GPU was
// found to be unsound.
func unsoundEnd(a *cluster.Attempt) bool {
	return a.State == cluster.JobNodeFail && a.Reason.Code == cluster.ReasonGPUCheck && a.Started == 0
}

// whyCompleting takes over what an agent says of an attempt whose process ended
// and that still holds its GPUs, or that cannot be ended: how it ended, which
// its user may know at once, and what it waits for.
func (s *State) whyCompleting(j *cluster.Job, r *logv1.ReportAttempt) {
	a := j.Last()
	if s.rules < healthVersion || a.State != cluster.JobCompleting {
		return
	}
	if r.Exit != nil {
		a.Exit = &cluster.Exit{Code: r.Exit.Code, Signal: r.Exit.Signal}
	}
	if why := conv.ReasonFromLog(r.Reason); why.Code != "" {
		j.Reason = why
	}
}

// lingers takes over a new reason of an attempt that is completing already. It
// reports whether that was all there is.
func (s *State) lingers(old, j *cluster.Job, to cluster.JobState, r *logv1.ReportAttempt) bool {
	if s.rules < healthVersion || to != cluster.JobCompleting || j.Last().State != to || r.Reason.GetCode() == "" {
		return false
	}
	s.whyCompleting(j, r)
	if j.Reason == old.Reason {
		return true
	}
	s.putJob(old, j)
	s.changed(Change{Job: j.ID})
	return true
}
