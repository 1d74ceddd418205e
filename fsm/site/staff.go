package site

import (
	"fmt"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/fsm/attempts"
	"github.com/berth-scheduler/berth/fsm/command"
	"github.com/berth-scheduler/berth/fsm/credentials"
	"github.com/berth-scheduler/berth/fsm/jobs"
	"github.com/berth-scheduler/berth/fsm/nodes"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

// Staff changes the resources and who may use them, and handles the jobs that this
// affects.
type Staff struct {
	at      *command.Entry
	roll    *jobs.Roll
	fleet   *nodes.Fleet
	steward *attempts.Steward
	keyring *credentials.Keyring
}

// New returns a Staff for the jobs of a roll.
func New(roll *jobs.Roll, steward *attempts.Steward, keyring *credentials.Keyring) *Staff {
	return &Staff{roll.At, roll, roll.Fleet, steward, keyring}
}

// Apply applies a command about resources that affects jobs.
func (s *Staff) Apply(cmd *logv1.Command) command.Result {
	switch k := cmd.Kind.(type) {
	case *logv1.Command_RegisterNode:
		return s.register(k.RegisterNode.GetNode())
	case *logv1.Command_SetNodeState:
		return s.setNodeState(k.SetNodeState)
	case *logv1.Command_PowerNode:
		return s.power(k.PowerNode)
	case *logv1.Command_FenceNode:
		return s.fence(k.FenceNode)
	case *logv1.Command_RemoveNode:
		return s.removeNode(k.RemoveNode)
	case *logv1.Command_SetPartition:
		return s.setPartition(k.SetPartition)
	case *logv1.Command_RemovePartition:
		return s.removePartition(k.RemovePartition)
	case *logv1.Command_SetReservation:
		return s.setReservation(k.SetReservation)
	case *logv1.Command_RemoveReservation:
		return s.removeReservation(k.RemoveReservation)
	}
	panic(fmt.Sprintf("site: %T is not for this machine", cmd.Kind))
}

// agentRole is the role of the daemons on nodes, in certificates and tokens.
const agentRole = "agent"

// register records an agent's description of its node.
func (s *Staff) register(m *logv1.Node) command.Result {
	n, err := conv.NodeFromLog(m)
	if err != nil {
		return command.Refuse(cluster.CodeInvalid, "%v", err)
	}
	// A removed node is denied, so its name must be one that can be denied.
	if err := credentials.Check(agentRole, string(n.ID)); err != nil {
		return command.Result{Err: err}
	}
	if s.keyring.Denied(agentRole, string(n.ID)) {
		return command.Refuse(cluster.CodeDenied, "node %s was removed from the cluster", n.ID)
	}
	if r := s.foreignGPU(n); r.Err != nil {
		return r
	}
	s.fleet.Register(n)
	for _, j := range s.roll.On(n.ID).List() {
		s.steward.NodeBack(j, n)
	}
	return command.Result{}
}

// foreignGPU refuses a node that reports a GPU of another one, or one that a job on
// another node still holds.
func (s *Staff) foreignGPU(n *cluster.Node) command.Result {
	for i := range n.GPUs {
		id := n.GPUs[i].ID
		if owner := s.fleet.NodeOf(id); owner != "" && owner != n.ID {
			return command.Refuse(cluster.CodeConflict, "GPU %s is registered by node %s: two nodes cannot have one GPU", id, owner)
		}
		for _, job := range s.fleet.On(id) {
			if at := holderOf(s.roll.Jobs.Get(job), id); at != n.ID {
				return command.Refuse(cluster.CodeConflict, "GPU %s is still held by job %d on node %s; end that job first", id, job, at)
			}
		}
	}
	return command.Result{}
}

// holderOf returns the node on which the last attempt of j holds a GPU.
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

// setNodeState records that a node became silent. Its shares stay taken: its
// processes may still be running.
func (s *Staff) setNodeState(c *logv1.SetNodeState) command.Result {
	old := s.fleet.Node(cluster.NodeID(c.Node))
	switch {
	case old == nil:
		return command.Refuse(cluster.CodeNotFound, "node %q is not known", c.Node)
	case c.State != uint32(cluster.NodeUnreachable):
		return command.Refuse(cluster.CodeInvalid, "a node comes back by registering")
	case old.BootID != c.BootId || old.State == cluster.NodeUnreachable:
		return command.Result{} // it reconnected meanwhile, or this is known
	}
	n := *old
	n.State, n.Revision, n.Changed = cluster.NodeUnreachable, s.at.Index, s.at.Now
	if n.Power.State == cluster.PoweringDown {
		s.isOff(&n)
	} else {
		nodes.Note(*s.at, &n, cluster.NodeEvent{Kind: cluster.EventLost, Detail: "silent for longer than its lease"})
	}
	s.fleet.Put(&n)
	for _, was := range s.roll.On(n.ID).List() {
		s.steward.NodeSilent(was, n.ID)
	}
	s.fleet.EmptyQueues(&n)
	return command.Result{}
}

// fence gives up a silent node. Its attempts end as lost and their shares are
// freed; should it come back, their tokens are too low to count, and what it still
// runs of them is stopped, since it is not in the set that the node is sent.
func (s *Staff) fence(c *logv1.FenceNode) command.Result {
	old := s.fleet.Node(cluster.NodeID(c.Node))
	switch {
	case old == nil:
		return command.Refuse(cluster.CodeNotFound, "node %q is not known", c.Node)
	case old.Power.Off():
		return command.Refuse(cluster.CodeConflict, "node %s was powered down, and no job is on it that could be given up", c.Node)
	case old.State == cluster.NodeReady:
		return command.Refuse(cluster.CodeConflict, "node %s answers, and only a silent node can be fenced; to empty it, drain it and cancel its jobs", c.Node)
	}
	n := *old
	n.Fence, n.Revision, n.Changed = s.at.Index, s.at.Index, s.at.Now
	nodes.Note(*s.at, &n, cluster.NodeEvent{Kind: cluster.EventFenced, Asked: true, By: cluster.UID(c.By)})
	s.fleet.Put(&n)
	var r command.Result
	for _, was := range s.roll.On(n.ID).List() {
		switch goesOn := s.steward.NodeFenced(was, n.ID); {
		case goesOn && s.stays(was.ID):
		case goesOn:
			r.Requeued = append(r.Requeued, was.ID)
		default:
			r.Lost = append(r.Lost, was.ID)
		}
	}
	return r
}

// stays reports whether a job runs on without the node that it had.
func (s *Staff) stays(id cluster.JobID) bool {
	j := s.roll.Jobs.Get(id)
	return j != nil && j.State.Live() && j.Spec.InPlace && !j.Last().Gang.Stopping()
}

// removeNode removes a node that holds nothing, and never admits it again under
// this name.
func (s *Staff) removeNode(c *logv1.RemoveNode) command.Result {
	id := cluster.NodeID(c.Node)
	n := s.fleet.Node(id)
	live := s.roll.On(id).Len()
	switch {
	case n == nil:
		return command.Refuse(cluster.CodeNotFound, "node %q is not known", c.Node)
	case live > 0:
		return command.Refuse(cluster.CodeConflict, "node %s has %d live jobs; drain it and wait, or cancel them", id, live)
	}
	s.fleet.Remove(n)
	delete(s.roll.OnNode, id)
	return s.keyring.Deny(*s.at, &logv1.DenyIdentity{Role: agentRole, Id: c.Node})
}
