package attempts

import (
	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/fsm/command"
	"github.com/berth-scheduler/berth/fsm/jobs"
)

// NodeBack settles a live attempt when one of its nodes reconnects: a new boot has
// ended it; with the same boot it goes on as before.
func (s *Steward) NodeBack(old *cluster.Job, n *cluster.Node) {
	if a := old.Last(); a.Gang != nil {
		s.partIsBack(old, a.Rank(n.ID), n.BootID)
		return
	}
	j := old.Clone()
	a := j.Last()
	if a.BootID != n.BootID {
		s.lose(old, j, "the node booted again")
		return
	}
	if a.State != cluster.JobUnreachable {
		return
	}
	a.State = cluster.JobStarting
	if a.Started != 0 {
		a.State = cluster.JobRunning
	}
	j.State, j.Reason = a.State, cluster.Reason{}
	if a.Preempt != nil {
		j.Reason = a.Preempt.Reason()
	}
	s.roll.Change(old, j, command.Change{})
}

// NodeSilent records that a node with a live attempt is silent. Its shares stay
// taken: its processes may still be running.
func (s *Steward) NodeSilent(old *cluster.Job, node cluster.NodeID) {
	j := old.Clone()
	if a := j.Last(); a.Gang != nil {
		a.Gang = a.Gang.Clone()
		a.Gang.Parts[a.Rank(node)].State = cluster.JobUnreachable
	}
	if a := j.Last(); a.Gang == nil {
		a.State = cluster.JobUnreachable
	} else if a.State = jobs.GangState(a.Gang); a.State != cluster.JobUnreachable { // a node that it gave up
		j.State = a.State
		s.roll.Change(old, j, command.Change{})
		return
	}
	j.State = cluster.JobUnreachable
	j.Reason = cluster.Reason{Code: cluster.ReasonNodeDown, Detail: "node " + string(node) + " is silent"}
	s.roll.Change(old, j, command.Change{})
}

// NodeFenced ends what a live attempt has on a fenced node, and reports whether its
// job goes on.
func (s *Steward) NodeFenced(old *cluster.Job, node cluster.NodeID) bool {
	j, why := old.Clone(), "node "+string(node)+" was given up"
	if a := j.Last(); a.Gang != nil {
		s.losePart(old, a.Rank(node), why)
		j = s.roll.Jobs.Get(old.ID)
	} else {
		s.lose(old, j, why)
	}
	return j != nil && (j.State.Waiting() || j.State.Live() && (j.Spec.RequeueOnLoss || !j.Last().Gang.Go || !j.Last().Gang.Stopping()))
}

// lose ends j, a copy of old, as lost with its node.
func (s *Steward) lose(old, j *cluster.Job, why string) {
	a := j.Last()
	a.Ended = max(s.at.Now, a.Placed, a.Started)
	a.Reason = cluster.Reason{Code: cluster.ReasonNodeLost, Detail: why}
	s.finish(old, j, cluster.JobNodeFail)
}

// partIsBack settles the part on a node that reconnects.
func (s *Steward) partIsBack(old *cluster.Job, rank int, boot string) {
	p := old.Last().Gang.Parts[rank]
	if p.BootID != boot {
		s.losePart(old, rank, "the node booted again")
		return
	}
	if p.State != cluster.JobUnreachable {
		return
	}
	j, _, g := gangOf(old)
	g.Parts[rank].State = cluster.JobStarting
	if p.Started != 0 {
		g.Parts[rank].State = cluster.JobRunning
	}
	s.putGang(old, j, nil)
}

// losePart ends a part as lost with its node.
func (s *Steward) losePart(old *cluster.Job, rank int, why string) {
	a := old.Last()
	began := a.Gang.Parts[rank].Started
	s.endPart(old, rank, &cluster.Attempt{
		State: cluster.JobNodeFail, Started: began, Ended: max(s.at.Now, a.Placed, began),
		Reason: cluster.Reason{Code: cluster.ReasonNodeLost, Detail: why},
	})
}
