package site

import (
	"fmt"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/fsm/command"
	"github.com/berth-scheduler/berth/fsm/nodes"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

// power moves a node between up and powered down. Commands already carried out, or
// overtaken by the node's own reports, change nothing.
func (s *Staff) power(c *logv1.PowerNode) command.Result {
	old := s.fleet.Node(cluster.NodeID(c.Node))
	switch {
	case old == nil:
		return command.Refuse(cluster.CodeNotFound, "node %q is not known", c.Node)
	case c.To > uint32(cluster.PowerFailed) || c.To == uint32(cluster.PoweredDown):
		return command.Refuse(cluster.CodeInvalid, "node %s: it cannot be told to be in state %d of power", c.Node, c.To)
	}
	n := *old
	n.Power = cluster.Power{State: cluster.PowerState(c.To), Since: s.at.Now, Asked: c.Asked, By: cluster.UID(c.By), Why: c.Why}
	r, same := command.Result{}, true
	switch n.Power.State {
	case cluster.PoweringDown:
		r, same = s.powerDown(&n, old, c)
	case cluster.PoweringUp:
		n.Power.Asked = false // no administrator keeps it down any more
		r, same = s.powerUp(old, c)
	case cluster.PowerFailed:
		same = old.Power.State != cluster.PoweringUp
	case cluster.PowerUp:
		n.Power = cluster.Power{Why: c.Why, NotBefore: cluster.Time(c.NotBeforeUs)}
		same = old.Power.State != cluster.PoweringDown
	}
	if r.Err != nil || same {
		return r
	}
	n.Revision, n.Changed = s.at.Index, s.at.Now
	nodes.Note(*s.at, &n, powerEvent(n.Power, c))
	s.fleet.Put(&n)
	if n.Power.State == cluster.PoweringDown {
		s.fleet.EmptyQueues(&n)
	}
	return command.Result{}
}

// powerDown decides whether n may go down, and whether it already has. An
// administrator's order makes one that is already down stay down.
func (s *Staff) powerDown(n, old *cluster.Node, c *logv1.PowerNode) (r command.Result, same bool) {
	live := s.roll.On(n.ID).Len()
	switch was := old.Power.State; {
	case was == cluster.PoweringUp:
		return command.Refuse(cluster.CodeConflict, "node %s is being powered up; power it down once it is up", c.Node), true
	case was != cluster.PowerUp && !c.Asked:
		return r, true
	case was != cluster.PowerUp:
		if n.Power.State, n.Power.Since = was, old.Power.Since; was == cluster.PowerFailed {
			n.Power.State = cluster.PoweredDown
		}
		return r, old.Power.Asked && old.Power.Why == c.Why
	case live > 0:
		return command.Refuse(cluster.CodeConflict, "node %s has %d live jobs; drain it and wait, or cancel them", c.Node, live), true
	case old.State != cluster.NodeReady:
		return command.Refuse(cluster.CodeConflict, "node %s is silent, and nobody knows whether it is on", c.Node), true
	case !c.Asked && old.Power.NotBefore > s.at.Now:
		return command.Refuse(cluster.CodeConflict, "node %s could not be powered down, and is not tried again yet", c.Node), true
	case !c.Asked && s.awaited(old):
		return command.Refuse(cluster.CodeConflict, "jobs stand in queues of node %s", c.Node), true
	}
	return r, false
}

// powerUp decides whether a node may come up.
func (s *Staff) powerUp(old *cluster.Node, c *logv1.PowerNode) (r command.Result, same bool) {
	switch p := old.Power; {
	case p.State == cluster.PoweringDown:
		return command.Refuse(cluster.CodeConflict, "node %s is still going down; power it up once it is down", c.Node), true
	case !p.Off() && old.State != cluster.NodeReady:
		return command.Refuse(cluster.CodeConflict, "node %s is silent and was not powered down; see to the machine, or fence the node", c.Node), true
	case !p.Off(), p.State == cluster.PoweringUp:
		return r, true
	case !c.Asked && p.Asked:
		return command.Refuse(cluster.CodeConflict, "an administrator powered node %s down; it stays down until one powers it up", c.Node), true
	case !c.Asked && p.State == cluster.PowerFailed:
		return command.Refuse(cluster.CodeConflict, "node %s %s; resume it to have it tried again", c.Node, p.Why), true
	}
	return r, false
}

// awaited reports whether jobs are in the queue of a GPU of n.
func (s *Staff) awaited(n *cluster.Node) bool {
	for i := range n.GPUs {
		if len(s.roll.Queues.Of(n.GPUs[i].ID)) > 0 {
			return true
		}
	}
	return false
}

// isOff records that a node that was going down is silent.
func (s *Staff) isOff(n *cluster.Node) {
	n.Power.State, n.Power.Since = cluster.PoweredDown, s.at.Now
	nodes.Note(*s.at, n, cluster.NodeEvent{Kind: cluster.EventPower, Detail: n.Power.State.String()})
}

// powerEvent returns the event of a command about the power of a node.
func powerEvent(p cluster.Power, c *logv1.PowerNode) cluster.NodeEvent {
	e := cluster.NodeEvent{Kind: cluster.EventPower, Detail: p.State.String(), Asked: c.Asked, By: cluster.UID(c.By)}
	if c.Why != "" {
		e.Detail = fmt.Sprintf("%s: %s", p.State, c.Why)
	}
	return e
}
