package attempts

import (
	"fmt"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/fsm/accounts"
	"github.com/berth-scheduler/berth/fsm/command"
	"github.com/berth-scheduler/berth/fsm/intern"
	"github.com/berth-scheduler/berth/fsm/jobs"
	"github.com/berth-scheduler/berth/fsm/learned"
	"github.com/berth-scheduler/berth/fsm/nodes"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

// Steward starts attempts according to plans, records agents' reports on them, asks
// them to end, and settles what happens to their jobs afterwards.
type Steward struct {
	starter
	learned *learned.Store
}

// starter holds what starts are checked against.
type starter struct {
	at    *command.Entry
	roll  *jobs.Roll
	fleet *nodes.Fleet
	books *accounts.Books
	texts *intern.Texts
}

// New returns a steward of the attempts of jobs.
func New(roll *jobs.Roll, samples *learned.Store) *Steward {
	return &Steward{starter{roll.At, roll, roll.Fleet, roll.Books, roll.Texts}, samples}
}

// Apply applies a command about attempts.
func (s *Steward) Apply(cmd *logv1.Command) command.Result {
	switch k := cmd.Kind.(type) {
	case *logv1.Command_ApplyPlan:
		p := conv.PlanFromLog(k.ApplyPlan)
		return command.Result{Plan: s.applyPlan(&p)}
	case *logv1.Command_ReportAttempt:
		return s.report(k.ReportAttempt)
	case *logv1.Command_PreemptAttempt:
		return s.preempt(k.PreemptAttempt)
	case *logv1.Command_UndoGang:
		return s.undoGang(k.UndoGang)
	case *logv1.Command_MarkAttempt:
		return s.mark(k.MarkAttempt)
	case *logv1.Command_IdleAttempt:
		return s.idle(k.IdleAttempt)
	case *logv1.Command_ResizeAttempt:
		return s.resize(k.ResizeAttempt)
	case *logv1.Command_GrowAttempt:
		return s.grow(k.GrowAttempt)
	case *logv1.Command_ShrinkAttempt:
		return s.shrink(k.ShrinkAttempt)
	case *logv1.Command_NoteProgress:
		s.noteProgress(k.NoteProgress)
		return command.Result{}
	}
	panic(fmt.Sprintf("attempts: %T is not for this machine", cmd.Kind))
}

const maxWhy = 1024

// preempt asks a running attempt to make room. It keeps what it holds until its
// agent reports its end: it needs its GPU to save its state.
func (s *Steward) preempt(c *logv1.PreemptAttempt) command.Result {
	old := s.roll.Jobs.Get(cluster.JobID(c.Job))
	if old == nil {
		return command.Refuse(cluster.CodeNotFound, "job %d is gone", c.Job)
	}
	if a := old.Live(); a == nil || a.No != c.Attempt {
		return command.Refuse(cluster.CodeConflict, "attempt %d of job %d is not the live one", c.Attempt, c.Job)
	}
	why := old.Unpreemptible(s.at.Now)
	if old.OnLoan() != "" {
		why = old.Unreturnable() // a loan may be reclaimed at any time
	}
	if why != "" {
		return command.Refuse(cluster.CodeConflict, "job %d cannot be preempted: %s", c.Job, why)
	}
	if len(c.Why) > maxWhy {
		return command.Refuse(cluster.CodeInvalid, "preemption of job %d: a reason of %d bytes, at most %d are kept", c.Job, len(c.Why), maxWhy)
	}
	j := old.Clone()
	a := j.Last()
	a.Preempt = &cluster.PreemptRequest{At: s.at.Now, For: cluster.JobID(c.For), Why: c.Why}
	j.Reason = a.Preempt.Reason()
	s.roll.Change(old, j, command.Change{})
	return command.Result{}
}

// mark records, once, that a running attempt has used a certain part of its time
// limit.
func (s *Steward) mark(c *logv1.MarkAttempt) command.Result {
	old := s.roll.Jobs.Get(cluster.JobID(c.Job))
	if old == nil {
		return command.Refuse(cluster.CodeNotFound, "job %d is gone", c.Job)
	}
	a := old.Live()
	if a == nil || a.No != c.Attempt || a.Started == 0 {
		return command.Refuse(cluster.CodeConflict, "attempt %d of job %d is not the one that runs", c.Attempt, c.Job)
	}
	news := cluster.MailEvents(c.Marks) & cluster.MailMarks &^ a.Marks
	if news == 0 {
		return command.Result{}
	}
	j := old.Clone()
	j.Last().Marks |= news
	s.roll.Put(old, j)
	s.roll.Announce(j, news, "")
	return command.Result{}
}
