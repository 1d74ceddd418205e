package attempts

import (
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/accounting"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/fsm/command"
	"github.com/berth-scheduler/berth/fsm/nodes"
	"github.com/berth-scheduler/berth/fsm/notices"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

// maxChangeWhy bounds the reason for an in-place change, in bytes.
const maxChangeWhy = 256

// inPlace returns the live attempt of a job whose nodes may join and leave now, or
// why they may not.
func (s *Steward) inPlace(id uint64, no uint32) (*cluster.Job, *cluster.Attempt, *command.Result) {
	refuse := func(code cluster.Code, format string, args ...any) (*cluster.Job, *cluster.Attempt, *command.Result) {
		r := command.Refuse(code, format, args...)
		return nil, nil, &r
	}
	old := s.roll.Jobs.Get(cluster.JobID(id))
	if old == nil {
		return refuse(cluster.CodeNotFound, "job %d is gone", id)
	}
	a := old.Live()
	switch {
	case a == nil || a.No != no:
		return refuse(cluster.CodeConflict, "attempt %d of job %d is not the live one", no, id)
	case !old.Spec.InPlace || a.Gang == nil:
		return refuse(cluster.CodeConflict, "job %d did not ask for nodes to come and leave while it runs", id)
	case a.State != cluster.JobRunning || !a.Gang.Go || a.Gang.Stopping() || a.Gang.Parts[0].State != cluster.JobRunning:
		return refuse(cluster.CodeConflict, "job %d is %s", id, a.State)
	case old.Cancel != nil || a.Preempt != nil || a.Loan != "":
		return refuse(cluster.CodeConflict, "job %d is on its way out, or has what it has on loan", id)
	}
	return old, a, nil
}

// grow gives a running attempt further nodes. Their parts start at once, while the
// others go on.
func (s *Steward) grow(c *logv1.GrowAttempt) command.Result {
	old, a, refused := s.inPlace(c.Job, c.Attempt)
	if refused != nil {
		return *refused
	}
	berths := conv.GrownBerths(c)
	if n := a.Width() + len(berths); len(berths) == 0 || n > old.Spec.NodeRange.Max || a.Nodes()+len(berths) > cluster.MaxParts {
		return command.Refuse(cluster.CodeInvalid, "job %d has %d nodes and %d that left it; %d more are not within %d to %d, or %d in all", c.Job,
			a.Width(), a.Nodes()-a.Width(), len(berths), old.Spec.NodeRange.Min, old.Spec.NodeRange.Max, cluster.MaxParts)
	}
	if r := s.ungrown(old, a, berths); r.Code != "" {
		return command.Refuse(cluster.CodeConflict, "job %d gets no further nodes: %s", c.Job, r)
	}
	j, b, g := gangOf(old)
	g.Rest = slices.Concat(g.Rest, berths)
	for i := range berths {
		at := &g.Rest[len(g.Rest)-len(berths)+i]
		s.texts.Berth(at)
		g.Parts = append(g.Parts, cluster.Part{BootID: s.fleet.Node(at.Node).BootID, State: cluster.JobStarting, Ready: true, Token: cluster.Token(s.at.Index)})
		b.GPUMilli += s.fleet.Ledger().HeldMilli(at.GPUs)
		s.lay(j.ID, b, at)
	}
	s.changed(j, a.Width(), c.Why)
	s.putGang(old, j, nil)
	return command.Result{}
}

// ungrown returns why an attempt may not get berths on further nodes, the zero
// Reason if it may: they are checked like a start on all of its nodes.
func (s *Steward) ungrown(j *cluster.Job, a *cluster.Attempt, berths []cluster.Berth) cluster.Reason {
	st := dispatch.Start{Job: j.ID, Berth: a.Berth}
	for rank, b := range a.Berths() {
		if rank > 0 && a.Stays(rank) {
			st.Rest = append(st.Rest, *b)
		}
	}
	st.Rest = append(st.Rest, berths...)
	led, milli := s.fleet.Ledger(), int64(0)
	for i := range berths {
		b := &berths[i]
		if r := led.Fits(b); r.Code != "" {
			return r
		}
		if rank := a.Rank(b.Node); rank >= 0 && a.PartLive(rank) {
			return nodes.Stale("it is on node %s already", b.Node)
		}
		if r := s.fleet.Strangers(j, b); r.Code != "" {
			return r
		}
		if m := led.HeldMilli(b.GPUs); m*int64(a.Nodes()) != a.GPUMilli || len(b.GPUs) != len(a.Berth.GPUs) {
			return nodes.Stale("node %s gives it other shares than it has on the first", b.Node)
		}
		milli += led.HeldMilli(b.GPUs)
		for _, g := range b.GPUs {
			if q := s.roll.Queues.Of(g.GPU); len(q) > 0 {
				return cluster.Reason{Code: cluster.ReasonOvertake, Detail: "job " + q[0].Job.String() + " waits for GPU " + string(g.GPU)}
			}
		}
	}
	if r := s.fleet.Unlike(j, &st); r.Code != "" {
		return r
	}
	if r := s.fleet.Elsewhere(j, &st); r.Code != "" {
		return r
	}
	return s.books.OverGrown(accounting.WhoOf(j), milli)
}

// shrink makes a running attempt give up nodes: their parts end as if preempted,
// and their ends do not end the attempt.
func (s *Steward) shrink(c *logv1.ShrinkAttempt) command.Result {
	old, a, refused := s.inPlace(c.Job, c.Attempt)
	if refused != nil {
		return *refused
	}
	j, b, g := gangOf(old)
	for _, node := range c.Nodes {
		rank := b.Rank(cluster.NodeID(node))
		if rank <= 0 || !b.Stays(rank) || !b.PartLive(rank) {
			return command.Refuse(cluster.CodeConflict, "job %d does not give up node %s: it is its first one, or not one that it has", c.Job, notices.Clip(node, 64))
		}
		g.Parts[rank].Left = max(s.at.Now, 1)
	}
	if n := b.Width(); len(c.Nodes) == 0 || n < old.Spec.NodeRange.Min {
		return command.Refuse(cluster.CodeInvalid, "job %d would have %d nodes of %d left, and needs %d", c.Job, n, a.Width(), old.Spec.NodeRange.Min)
	}
	s.changed(j, a.Width(), c.Why)
	s.putGang(old, j, nil)
	return command.Result{}
}

// changed records that the attempt of j has changed its number of nodes.
func (s *Steward) changed(j *cluster.Job, from int, why string) {
	a := j.Last()
	c := cluster.SizeChange{At: s.at.Now, From: from, To: a.Width(), Why: notices.Clip(why, maxChangeWhy)}
	if p := a.Progress; p != nil {
		c.Step, c.StepTime = p.Step, p.StepTime
	}
	all := append(slices.Clone(a.Changes), c)
	a.Changes = all[max(0, len(all)-cluster.MaxSizeChanges):]
	j.Spec = j.Spec.Sized(c.To)
}

// departs drops the part at rank, which was lost with its node or could not be
// started by it, if the others can go on without it; it reports whether they do.
func (s *Steward) departs(j *cluster.Job, a *cluster.Attempt, rank int) bool {
	p, width := &a.Gang.Parts[rank], a.Width()
	switch {
	case !j.Spec.InPlace || !a.Gang.Go || rank == 0 || !a.Gang.Parts[0].State.Live() || width-1 < j.Spec.NodeRange.Min:
		return false
	case p.State != cluster.JobNodeFail && (p.State != cluster.JobFailed || p.Exit != nil):
		return false
	}
	p.Left = max(s.at.Now, 1)
	s.changed(j, width, "node "+string(a.BerthAt(rank).Node)+" failed it: "+p.Reason.String())
	return true
}
