package lead

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/wait"
	"github.com/berth-scheduler/berth/coordinator/idle"
	"github.com/berth-scheduler/berth/fsm"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

const (
	idleEvery = 2 * time.Second
	// A share is cut to the most that was held plus a fifth, and a little more.
	marginPart = 5
	marginMiB  = 256
	cutMilli   = 10
	// watchMode is the mode in which a running job's cap can be changed.
	watchMode = "watch"
)

// watchIdle carries out the idle policies of partitions, until ctx ends. What it
// has seen is soft state: a new leader needs a window's time, or continues from the
// mark that the previous one left.
func (l *Leader) watchIdle(ctx context.Context) error {
	seen := map[cluster.AttemptID]*idle.Window{}
	every := cmp.Or(l.cfg.IdleEvery, idleEvery)
	var state stateSeen
	var policies map[string]cluster.IdlePolicy
	var jobs []*cluster.Job
	for wait.Sleep(ctx, every) {
		if state.changed(l.fsm) {
			policies, jobs = l.idlePolicies()
		}
		there := map[cluster.AttemptID]*idle.Window{}
		for _, j := range jobs {
			id := cluster.AttemptID{Job: j.ID, No: j.Live().No}
			w := seen[id]
			if w == nil {
				w = &idle.Window{}
				if m := j.Live().Idle; m != nil && m.KnownMs > 0 {
					w.Resume(m)
				}
			}
			there[id] = w
			cmd := l.idleStep(j, w, policies[j.Spec.Partition])
			if cmd == nil {
				continue
			}
			_, err := l.prop.One(ctx, &logv1.Command{Kind: &logv1.Command_IdleAttempt{IdleAttempt: cmd}})
			if err != nil && ctx.Err() == nil {
				l.log.WarnContext(ctx, "cannot record that a job's GPUs are idle", "job", j.ID.String(), "err", err)
			} else if err == nil {
				l.log.InfoContext(ctx, "idle policy", "job", j.ID.String(), "stage", cluster.IdleStage(cmd.Stage).String(), "reason", cmd.Why)
			}
		}
		seen = there
		if l.cfg.IdleSeen != nil {
			known := int64(0)
			for _, j := range jobs {
				if u, ok := l.useOf(cluster.AttemptID{Job: j.ID, No: j.Live().No}, j.Live()); ok {
					known += u.KnownMs
				}
			}
			l.cfg.IdleSeen(known)
		}
	}
	return ctx.Err()
}

// idlePolicies returns the idle policies of partitions, and the running jobs that
// they concern.
func (l *Leader) idlePolicies() (map[string]cluster.IdlePolicy, []*cluster.Job) {
	policies := map[string]cluster.IdlePolicy{}
	for _, p := range l.fsm.Partitions() {
		if p.Idle.On() {
			policies[p.Name] = p.Idle
		}
	}
	jobs, _ := l.fsm.Jobs(fsm.Query{States: []cluster.JobState{cluster.JobRunning}, Keep: func(j *cluster.Job) bool {
		a := j.Live()
		return a != nil && len(a.Berth.GPUs) > 0 && (policies[j.Spec.Partition].On() || a.Idle != nil)
	}})
	return policies, jobs
}

// idleStep returns what the policy calls for now, nil for nothing new. Stages are
// taken one at a time, so that no job is ended without warning.
func (l *Leader) idleStep(j *cluster.Job, w *idle.Window, p cluster.IdlePolicy) *logv1.IdleAttempt {
	a := j.Live()
	stage := cluster.IdleNone
	if a.Idle != nil {
		stage = a.Idle.Stage
	}
	if a.Preempt != nil || j.Cancel != nil || a.Started == 0 || stage == cluster.IdleEnded {
		return nil
	}
	cmd := &logv1.IdleAttempt{Job: uint64(j.ID), Attempt: a.No}
	if !p.On() { // it was removed
		if stage == cluster.IdleNone {
			return nil
		}
		return cmd
	}
	u, ok := l.useOf(cluster.AttemptID{Job: j.ID, No: a.No}, a)
	if !ok || u.At < a.Started.Add(p.Grace) {
		return nil
	}
	v, since := w.Add(idle.Sample{At: u.At, BusyMs: u.BusyMs, KnownMs: u.KnownMs}, p, len(a.AllGPUs()))
	switch {
	case v == idle.Busy && stage != cluster.IdleNone:
		return cmd
	case v != idle.Idle:
		return nil
	}
	to := p.Stage(u.At.Sub(since), j.Spec.IdleOK)
	if to <= stage {
		return nil
	}
	to = nextStage(p, stage)
	cmd.Stage, cmd.SinceUs, cmd.BusyMs, cmd.KnownMs = uint32(to), int64(since), u.BusyMs, u.KnownMs
	cmd.Why = fmt.Sprintf("its GPUs have stood idle, below %g %%, for %s; %s", float64(p.BelowMilli)/10, cluster.TimeText(u.At.Sub(since).Round(time.Second)), l.idleWords(j, p, to))
	if to == cluster.IdleShrunk && !j.OutgrewCut() {
		if b := l.cutDown(a, u.PeakMiB); b != nil {
			cmd.Berth = conv.BerthToLog(b)
		}
	}
	return cmd
}

func nextStage(p cluster.IdlePolicy, from cluster.IdleStage) cluster.IdleStage {
	for _, s := range []struct {
		stage cluster.IdleStage
		on    bool
	}{{cluster.IdleReported, true}, {cluster.IdleWarned, p.Warn > 0}, {cluster.IdleShrunk, p.Shrink > 0}} {
		if s.on && s.stage > from {
			return s.stage
		}
	}
	return cluster.IdleEnded
}

// idleWords says what a stage means, and what comes next.
func (l *Leader) idleWords(_ *cluster.Job, p cluster.IdlePolicy, to cluster.IdleStage) string {
	words := map[cluster.IdleStage]string{
		cluster.IdleReported: "reported", cluster.IdleWarned: "this is a warning", cluster.IdleShrunk: "its share is cut to what it has used", cluster.IdleEnded: "it is ended",
	}[to]
	switch {
	case to < cluster.IdleShrunk && p.Shrink > 0:
		words += fmt.Sprintf("; its share is cut at %s", p.Shrink)
	case to < cluster.IdleEnded && p.End > 0:
		words += fmt.Sprintf("; it is ended at %s", p.End)
	}
	return words
}

// cutDown returns what an attempt keeps of its share: the most memory that it has
// held, with a margin, and little of the compute. It is nil if its GPUs cannot
// change the cap of a running job, or are not shared, and for jobs on several
// nodes.
func (l *Leader) cutDown(a *cluster.Attempt, peakMiB int64) *cluster.Berth {
	n, ok := l.fsm.Node(a.Berth.Node)
	if !ok || a.Gang != nil {
		return nil
	}
	b := &cluster.Berth{Node: a.Berth.Node}
	for _, have := range a.Berth.GPUs {
		g := n.GPU(have.GPU)
		if g == nil || g.CapMode != watchMode || !g.Shareable() {
			return nil
		}
		mem := peakMiB + peakMiB/marginPart + marginMiB
		if have.Share.Exclusive {
			mem = min(mem, g.SellableMiB)
		} else {
			mem = min(mem, have.Share.MemMiB)
		}
		b.GPUs = append(b.GPUs, cluster.GPUShare{GPU: have.GPU, Share: cluster.Share{MemMiB: max(1, mem), Milli: cutMilli}})
	}
	return b
}
