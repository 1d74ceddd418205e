package lead

import (
	"context"
	"slices"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/fsm"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

// Limits on preemption.
const (
	// defaultPreemptEvery is the least time between two passes whose preemptions
	// are carried out: preempted jobs need their grace period, and the effect
	// should be seen before more are asked. Those for promised deadlines are
	// carried out at once: their passes see which jobs are already leaving.
	defaultPreemptEvery = time.Minute
	maxPreempts         = 64 // of one pass
)

// Why a job is preempted, for the metric.
const (
	forAnother = "order"    // a waiting job goes before it
	forSpeed   = "slowdown" // it runs too slowly next to others
	forLender  = "loan"     // it returns a loan
)

// preempt carries out the preemptions of a plan, after its starts and moves. The
// state machine checks each of them again: an attempt that ended meanwhile is left
// alone.
func (p *planner) preempt(ctx context.Context, ps []dispatch.Preemption) error {
	now := p.clock()
	paced := now.Sub(p.lastPreempt) < p.sched().preemptEvery()
	if paced { // a promised deadline does not wait, nor does reclaiming a loan
		ps = slices.DeleteFunc(slices.Clone(ps), func(x dispatch.Preemption) bool { return !x.Loan && !p.isDue(x.For) })
	}
	if len(ps) == 0 {
		return nil
	}
	var cmds []*logv1.Command
	var why []string
	var what []*dispatch.Preemption
	for i := range ps[:min(len(ps), maxPreempts)] {
		x := &ps[i]
		if j, ok := p.fsm.Job(x.Job); !ok || j.Live() == nil || j.Live().No != x.Attempt || stays(j, x, now) != "" {
			continue // it would be refused
		}
		cmd := makeRoom(x)
		if fsm.NeedsVersion(cmd) > p.prop.Version() {
			return nil // not before every coordinator reads it
		}
		if len(x.Gets)+len(x.Gives) > 0 {
			p.noteFar(ctx, x.Job)
		}
		cmds, what = append(cmds, cmd), append(what, x)
		if x.Loan {
			why = append(why, forLender)
		} else if x.For != 0 {
			why = append(why, forAnother)
		} else {
			why = append(why, forSpeed)
		}
	}
	if len(cmds) == 0 {
		return nil
	}
	if !paced && slices.ContainsFunc(ps, func(x dispatch.Preemption) bool { return !x.Loan }) {
		p.lastPreempt = now
	}
	pctx, cancel := context.WithTimeout(ctx, planTimeout)
	defer cancel()
	results, err := p.prop.Do(pctx, cmds...)
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		// No job was asked, or those that were have it on record: the next pass
		// that may preempt will see.
		p.log.WarnContext(ctx, "preemptions not committed", "err", err)
		return nil
	}
	p.told(ctx, results, what, why)
	return nil
}

// told logs and counts the outcomes of proposals, with their reasons.
func (p *planner) told(ctx context.Context, results []fsm.Result, what []*dispatch.Preemption, why []string) {
	for i := range results {
		x := what[i]
		job := x.Job.String()
		switch e := results[i].Err; {
		case e != nil:
			p.log.DebugContext(ctx, "preemption refused", "job", job, "attempt", x.Attempt, "err", e)
		case len(x.Gets)+len(x.Gives) > 0:
			p.log.InfoContext(ctx, "attempt changes in place", "job", job, "attempt", x.Attempt, "for", uint64(x.For), "reason", x.Why)
		default:
			p.metrics.preempted.WithLabelValues(why[i]).Inc()
			p.log.InfoContext(ctx, "attempt makes room", "job", job, "attempt", x.Attempt, "for", uint64(x.For), "reason", x.Why)
		}
	}
}

// makeRoom returns the command for a proposal: that an attempt ends, or that it
// gets or gives up nodes and continues.
func makeRoom(x *dispatch.Preemption) *logv1.Command {
	id := cluster.AttemptID{Job: x.Job, No: x.Attempt}
	switch {
	case len(x.Gets) > 0:
		return conv.Grow(id, x.Gets, x.Why)
	case len(x.Gives) > 0:
		return conv.Shrink(id, x.Gives, x.For, x.Why)
	}
	return &logv1.Command{Kind: &logv1.Command_PreemptAttempt{PreemptAttempt: conv.PreemptToLog(x)}}
}

// stays says why an attempt cannot be ended as proposed, "" if it can.
func stays(j *cluster.Job, x *dispatch.Preemption, now time.Time) string {
	if x.Loan {
		return j.Unreturnable()
	}
	return j.Unpreemptible(cluster.TimeOf(now))
}

// isDue reports whether a job was promised a deadline.
func (p *planner) isDue(id cluster.JobID) bool {
	j, ok := p.fsm.Job(id)
	return ok && j.Spec.Deadline > 0
}
