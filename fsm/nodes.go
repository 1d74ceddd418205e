package fsm

import (
	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/fsm/credentials"
	"github.com/berth-scheduler/berth/fsm/nodes"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

// agentRole is the role of the daemons on nodes, in certificates and tokens.
const agentRole = "agent"

// register takes over how an agent describes its node.
func (s *State) register(index uint64, m *logv1.Node) Result {
	n, err := conv.NodeFromLog(m)
	if err != nil {
		return refuse(cluster.CodeInvalid, "%v", err)
	}
	// A node that is removed is denied, so its name must be able to be.
	if err := credentials.Check(agentRole, string(n.ID)); err != nil {
		return Result{Err: err}
	}
	if s.keyring.Denied(agentRole, string(n.ID)) {
		return refuse(cluster.CodeDenied, "node %s was removed from the cluster", n.ID)
	}
	if r := s.foreignGPU(n); r.Err != nil {
		return r
	}
	s.fleet.Register(n)
	for _, j := range s.roll.On(n.ID).List() {
		s.steward.NodeBack(j, n)
	}
	return Result{}
}

// foreignGPU refuses a node that reports a GPU of another one, or one on
// which a job of another one still lies.
func (s *State) foreignGPU(n *cluster.Node) Result {
	for i := range n.GPUs {
		id := n.GPUs[i].ID
		if owner := s.fleet.NodeOf(id); owner != "" && owner != n.ID {
			return refuse(cluster.CodeConflict, "GPU %s is registered by node %s: two nodes cannot have one GPU", id, owner)
		}
		for _, job := range s.fleet.On(id) {
			if at := holderOf(s.roll.Jobs.Get(job), id); at != n.ID {
				return refuse(cluster.CodeConflict, "GPU %s is still held by job %d on node %s; end that job first", id, job, at)
			}
		}
	}
	return Result{}
}

// holderOf is the node on which the last attempt of j lies on a GPU.
func holderOf(j *cluster.Job, gpu cluster.GPUID) cluster.NodeID {
	for _, b := range j.Last().Held() {
		for _, g := range b.GPUs {
			if g.GPU == gpu {
				return b.Node
			}
		}
	}
	return ""
}

// setNodeState records that a node fell silent. Its shares stay taken: what
// runs there may well go on.
func (s *State) setNodeState(index uint64, c *logv1.SetNodeState) Result {
	old := s.fleet.Node(cluster.NodeID(c.Node))
	switch {
	case old == nil:
		return refuse(cluster.CodeNotFound, "node %q is not known", c.Node)
	case c.State != uint32(cluster.NodeUnreachable):
		return refuse(cluster.CodeInvalid, "a node comes back by registering")
	case old.BootID != c.BootId || old.State == cluster.NodeUnreachable:
		return Result{} // it called meanwhile, or this is known
	}
	n := *old
	n.State, n.Revision, n.Changed = cluster.NodeUnreachable, index, s.at.Now
	nodes.Note(s.entry(), &n, cluster.NodeEvent{Kind: cluster.EventLost, Detail: "silent for longer than its lease"})
	s.fleet.Put(&n)
	for _, was := range s.roll.On(n.ID).List() {
		s.steward.NodeSilent(was, n.ID)
	}
	s.fleet.EmptyQueues(&n)
	return Result{}
}

// fence gives up a silent node. Its attempts end as lost and their shares are
// free; should it come back, their tokens are too low to count, and what it
// still runs of them is stopped, since it is not in the set it is sent.
func (s *State) fence(index uint64, c *logv1.FenceNode) Result {
	old := s.fleet.Node(cluster.NodeID(c.Node))
	switch {
	case old == nil:
		return refuse(cluster.CodeNotFound, "node %q is not known", c.Node)
	case old.State == cluster.NodeReady:
		return refuse(cluster.CodeConflict, "node %s answers, and only a silent node can be fenced; to empty it, drain it and cancel its jobs", c.Node)
	}
	n := *old
	n.Fence, n.Revision, n.Changed = index, index, s.at.Now
	nodes.Note(s.entry(), &n, cluster.NodeEvent{Kind: cluster.EventFenced, Asked: true, By: cluster.UID(c.By)})
	s.fleet.Put(&n)
	var r Result
	for _, was := range s.roll.On(n.ID).List() {
		if s.steward.NodeFenced(was, n.ID) {
			r.Requeued = append(r.Requeued, was.ID)
		} else {
			r.Lost = append(r.Lost, was.ID)
		}
	}
	return r
}

// removeNode forgets a node that holds nothing, and never lets it back under
// this name.
func (s *State) removeNode(c *logv1.RemoveNode) Result {
	id := cluster.NodeID(c.Node)
	n := s.fleet.Node(id)
	live := len(s.roll.On(id).List())
	switch {
	case n == nil:
		return refuse(cluster.CodeNotFound, "node %q is not known", c.Node)
	case live > 0:
		return refuse(cluster.CodeConflict, "node %s has %d live jobs; drain it and wait, or cancel them", id, live)
	}
	s.fleet.Remove(n)
	delete(s.roll.OnNode, id)
	return s.keyring.Deny(s.entry(), &logv1.DenyIdentity{Role: agentRole, Id: c.Node})
}
