package fsm

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/fsm/command"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

func idleCmd(job cluster.JobID, stage cluster.IdleStage, cut ...cluster.GPUShare) *logv1.Command {
	c := &logv1.IdleAttempt{Job: uint64(job), Attempt: 1, Stage: uint32(stage), SinceUs: int64(t0), BusyMs: 1, KnownMs: 2, Why: "its GPUs have stood idle"}
	if len(cut) > 0 {
		c.Berth = conv.BerthToLog(&cluster.Berth{Node: "n1", GPUs: cut})
	}
	return &logv1.Command{Kind: &logv1.Command_IdleAttempt{IdleAttempt: c}}
}

// slept is a job that runs in a partition with an idle policy.
func slept(t *testing.T) *machine {
	t.Helper()
	m := lab(t)
	p := &cluster.Partition{Name: "gpu", Nodes: hosts(t, "ALL"), Idle: cluster.IdlePolicy{BelowMilli: 50, Window: time.Minute, End: time.Hour}}
	if got := NeedsVersion(partitionCmd(p, 0)); got != command.TellVersion {
		t.Fatalf("needs version %d", got)
	}
	m.must(partitionCmd(p, 0))
	s := spec(1)
	s.Partition = "gpu"
	m.must(submitCmd(1, "r1", 1000, s))
	m.must(planCmd(dispatch.Plan{Starts: []dispatch.Start{{Job: 1, Attempt: 1, Why: "x",
		Berth: cluster.Berth{Node: "n1", GPUs: []cluster.GPUShare{share1("n1-g0", 8000, 300)}, CPUMilli: 1000, MemMiB: 512}}}}))
	m.must(m.says(1, cluster.JobRunning))
	return m
}

func TestIdleStages(t *testing.T) {
	t.Parallel()
	m := slept(t)
	m.must(idleCmd(1, cluster.IdleReported))
	m.must(idleCmd(1, cluster.IdleWarned))
	m.must(idleCmd(1, cluster.IdleWarned)) // again
	if j := m.job(1); j.Reason.Code != cluster.ReasonIdle || j.State != cluster.JobRunning {
		t.Errorf("%s, %s", j.State, j.Reason)
	}
	if d := cmp.Diff([]string{"IDLE job 1 to 0 RUNNING"}, told(m.f)); d != "" {
		t.Error(d)
	}
	m.refused(cluster.CodeInvalid, idleCmd(1, cluster.IdleShrunk, share1("n1-g0", 9000, 10)))
	m.refused(cluster.CodeInvalid, idleCmd(1, cluster.IdleShrunk, share1("n1-g1", 900, 10)))
	m.must(idleCmd(1, cluster.IdleShrunk, share1("n1-g0", 900, 10)))
	if u, _ := m.f.st.fleet.Ledger().GPU("n1-g0"); u.UsedMiB != 900 || u.UsedMilli != 10 || u.Shares != 1 {
		t.Errorf("the card holds %+v", u)
	}
	b := restored(t, snapshotOf(t, m.f))
	if !bytes.Equal(b.Hash(), m.f.Hash()) {
		t.Error("a restore has another hash")
	}
	m.must(idleCmd(1, cluster.IdleEnded))
	if c := m.job(1).Cancel; c == nil || !c.Admin {
		t.Errorf("who asked for its end: %+v, want the site", c)
	}
	m.must(m.says(1, cluster.JobCancelled))
	if j := m.job(1); j.State != cluster.JobCancelled || j.Reason.Code != cluster.ReasonIdle || !strings.Contains(j.Reason.Detail, "policy") {
		t.Errorf("%s, %s", j.State, j.Reason)
	}
	if u, _ := m.f.st.fleet.Ledger().GPU("n1-g0"); u.UsedMiB != 0 || u.Shares != 0 {
		t.Errorf("after its end the card holds %+v", u)
	}
	m.refused(cluster.CodeConflict, idleCmd(1, cluster.IdleWarned))
}

// TestBusyAgain: a job whose share was cut has it back, unless others have it.
func TestBusyAgain(t *testing.T) {
	t.Parallel()
	for name, taken := range map[string]bool{"free": false, "taken": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := slept(t)
			m.must(idleCmd(1, cluster.IdleShrunk, share1("n1-g0", 900, 10)))
			if taken {
				m.must(submitCmd(2, "r2", 1000, spec(1)))
				m.must(planCmd(dispatch.Plan{Starts: []dispatch.Start{{Job: 2, Attempt: 1, Why: "x",
					Berth: cluster.Berth{Node: "n1", GPUs: []cluster.GPUShare{share1("n1-g0", 38_000, 300)}, CPUMilli: 1000, MemMiB: 512}}}}))
			}
			m.must(idleCmd(1, cluster.IdleNone))
			j := m.job(1)
			want := int64(8000)
			if taken {
				want = 900
			}
			if got := j.Last().Berth.GPUs[0].Share.MemMiB; got != want || j.Reason.Code != "" {
				t.Errorf("it has %d MiB, want %d; %s", got, want, j.Reason)
			}
			if (j.Last().Idle != nil) != taken {
				t.Errorf("mark %+v", j.Last().Idle)
			}
		})
	}
}

// TestNoIdlePolicyHere: without one nobody is touched.
func TestNoIdlePolicyHere(t *testing.T) {
	t.Parallel()
	m := started(t, spec(1))
	m.refused(cluster.CodeConflict, idleCmd(1, cluster.IdleWarned))
	m.must(idleCmd(1, cluster.IdleNone))
	m.refused(cluster.CodeNotFound, idleCmd(9, cluster.IdleWarned))
}

func resizeCmd(job cluster.JobID, to ...cluster.GPUShare) *logv1.Command {
	return conv.Resize(cluster.AttemptID{Job: job, No: 1}, to)
}

// measured is a job that runs in a partition which has shares cut to what is used.
func measured(t *testing.T) *machine {
	t.Helper()
	m := slept(t)
	p := &cluster.Partition{Name: "gpu", Nodes: hosts(t, "ALL"), Resize: cluster.ResizeEager}
	if got := NeedsVersion(partitionCmd(p, 0)); got != 13 {
		t.Fatalf("needs version %d", got)
	}
	m.must(partitionCmd(p, m.f.st.fleet.Partition("gpu").Revision))
	return m
}

// TestResize: a share is cut once, to a part of what there is, and grows up to what
// was granted, as far as that is free.
func TestResize(t *testing.T) {
	t.Parallel()
	m := measured(t)
	held := func(want int64) {
		t.Helper()
		if u, _ := m.f.st.fleet.Ledger().GPU("n1-g0"); u.UsedMiB != want {
			t.Errorf("the card holds %d MiB, want %d", u.UsedMiB, want)
		}
		if b := restored(t, snapshotOf(t, m.f)); !bytes.Equal(b.Hash(), m.f.Hash()) {
			t.Error("a restore has another hash")
		}
	}
	m.refused(cluster.CodeInvalid, resizeCmd(1, share1("n1-g0", 8001, 300)))
	m.refused(cluster.CodeInvalid, resizeCmd(1, share1("n1-g1", 900, 300)))
	m.refused(cluster.CodeInvalid, resizeCmd(1))
	m.refused(cluster.CodeNotFound, resizeCmd(9, share1("n1-g0", 900, 300)))
	m.must(resizeCmd(1, share1("n1-g0", 2000, 300)))
	held(2000)
	if a := m.job(1).Last(); !a.WasCut() || a.Granted(0) != 8000 || a.Resize.Cuts != 1 || a.GPUMilli != 300 {
		t.Errorf("%+v", a.Resize)
	}
	m.refused(cluster.CodeInvalid, resizeCmd(1, share1("n1-g0", 1000, 300))) // not twice
	alone := share1("n1-g0", 8000, 300)
	alone.Share.Exclusive = true
	m.refused(cluster.CodeInvalid, resizeCmd(1, alone)) // it was granted a part of the card
	m.must(submitCmd(2, "r2", 1000, spec(1)))
	m.must(planCmd(dispatch.Plan{Starts: []dispatch.Start{{Job: 2, Attempt: 1, Why: "x",
		Berth: cluster.Berth{Node: "n1", GPUs: []cluster.GPUShare{share1("n1-g0", 34_000, 300)}, CPUMilli: 1000, MemMiB: 512}}}}))
	held(36_000)
	m.must(resizeCmd(1, share1("n1-g0", 4000, 300)))
	held(38_000)
	m.refused(cluster.CodeConflict, resizeCmd(1, share1("n1-g0", 8000, 300)))
	m.refused(cluster.CodeInvalid, resizeCmd(1, share1("n1-g0", 8001, 300)))
	held(38_000)
	m.must(cancelCmd(2, 1000))
	m.must(m.says(2, cluster.JobCancelled))
	m.must(resizeCmd(1, share1("n1-g0", 8000, 300)))
	held(8000)
	if a := m.job(1).Last(); a.WasCut() || a.Resize == nil {
		t.Errorf("it has all of it: %+v", a.Resize)
	}
	m.refused(cluster.CodeConflict, resizeCmd(1, share1("n1-g0", 1000, 300))) // it showed that it needs it
	m.must(m.says(1, cluster.JobCompleted))
	held(0)
}

// TestResizeByDefault: where the partition says nothing, and where there is none, only jobs
// with a checkpoint hook are cut; off is off for them, too.
func TestResizeByDefault(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		partition string
		mode      cluster.ResizeMode
		cut       bool
	}{{"", "", true}, {"gpu", cluster.ResizeDefault, true}, {"gpu", cluster.ResizeOff, false}} {
		m, id := slept(t), cluster.JobID(1)
		m.must(partitionCmd(&cluster.Partition{Name: "gpu", Nodes: hosts(t, "ALL"), Resize: c.mode}, m.f.st.fleet.Partition("gpu").Revision))
		for _, hook := range []cluster.Checkpoint{{}, {Signal: "USR1", Grace: time.Minute}} {
			id++
			s := spec(1)
			s.Partition, s.Checkpoint = c.partition, hook
			m.must(submitCmd(id, fmt.Sprint("r", id), 1000, s))
			m.must(planCmd(dispatch.Plan{Starts: []dispatch.Start{{Job: id, Attempt: 1, Why: "x",
				Berth: cluster.Berth{Node: "n1", GPUs: []cluster.GPUShare{share1("n1-g0", 8000, 300)}, CPUMilli: 1000, MemMiB: 512}}}}))
			m.must(m.says(id, cluster.JobRunning))
			if cmd := resizeCmd(id, share1("n1-g0", 2000, 300)); c.cut && hook.Set() {
				m.must(cmd)
			} else {
				m.refused(cluster.CodeConflict, cmd)
			}
		}
	}
}

// TestResizeRefused: jobs that ask for it keep what they have, and so do all where their
// partition does not ask.
func TestResizeRefused(t *testing.T) {
	t.Parallel()
	m := slept(t)
	m.refused(cluster.CodeConflict, resizeCmd(1, share1("n1-g0", 900, 300)))
	m = measured(t)
	s := spec(1)
	s.Partition, s.NoResize = "gpu", true
	if got := NeedsVersion(submitCmd(2, "r2", 1000, s)); got != 13 {
		t.Errorf("--no-resize needs version %d", got)
	}
	m.must(submitCmd(2, "r2", 1000, s))
	m.must(planCmd(dispatch.Plan{Starts: []dispatch.Start{{Job: 2, Attempt: 1, Why: "x",
		Berth: cluster.Berth{Node: "n1", GPUs: []cluster.GPUShare{share1("n1-g0", 8000, 300)}, CPUMilli: 1000, MemMiB: 512}}}}))
	m.must(m.says(2, cluster.JobRunning))
	m.refused(cluster.CodeConflict, resizeCmd(2, share1("n1-g0", 900, 300)))
}

// TestCutThenOutOfMemory: a job that was cut and takes more than is left runs again with
// what it was granted, and is not cut any more.
func TestCutThenOutOfMemory(t *testing.T) {
	t.Parallel()
	m := measured(t)
	m.must(resizeCmd(1, share1("n1-g0", 2000, 300)))
	m.oom(1, 2100)
	j := m.wantState(1, cluster.JobPending)
	if detail := j.Last().Reason.Detail; !strings.Contains(detail, "runs again with the 8000 MiB that it was granted") {
		t.Errorf("its owner reads %q", detail)
	}
	if j.MinGPUMemMiB != 8000 || j.NeedWhole {
		t.Errorf("next time at least %d MiB, whole: %t", j.MinGPUMemMiB, j.NeedWhole)
	}
	m.must(planCmd(dispatch.Plan{Starts: []dispatch.Start{{Job: 1, Attempt: 2, Why: "x",
		Berth: cluster.Berth{Node: "n1", GPUs: []cluster.GPUShare{share1("n1-g0", 8000, 300)}, CPUMilli: 1000, MemMiB: 512}}}}))
	m.must(m.says(1, cluster.JobRunning))
	m.refused(cluster.CodeConflict, conv.Resize(cluster.AttemptID{Job: 1, No: 2}, []cluster.GPUShare{share1("n1-g0", 2000, 300)}))
}

// TestIdleThenOutOfMemory: a job that was cut as it stood idle and then takes what it had
// declared runs again with that, whether or not it is alone; it is not cut for standing
// idle again. By entries of before it was its own doing.
func TestIdleThenOutOfMemory(t *testing.T) {
	t.Parallel()
	for _, version := range []uint32{command.OutgrewVersion - 1, command.OutgrewVersion} {
		m := slept(t)
		s := spec(1)
		s.Partition, s.GPUMemMiB = "gpu", 6000
		id := m.submit(s)
		start := func() {
			m.start(id, share1("n1-g1", 6000, 300))
			m.report(id, cluster.JobRunning)
		}
		shrink := func() *logv1.Command {
			c := idleCmd(id, cluster.IdleShrunk, share1("n1-g1", 900, 10))
			c.GetIdleAttempt().Attempt = uint32(len(m.job(id).Attempts))
			return c
		}
		start()
		m.must(shrink())
		r := m.reportOf(id, cluster.JobOutOfMemory)
		r.Usage = &logv1.Usage{GpuMemPeakMib: 1000, GpuOom: true}
		m.reported(version, r)
		if version < command.OutgrewVersion {
			m.wantState(id, cluster.JobOutOfMemory)
			continue
		}
		j := m.wantState(id, cluster.JobPending)
		if detail := j.Last().Reason.Detail; j.MinGPUMemMiB != 6000 || j.NeedWhole || !strings.Contains(detail, "runs again with the 6000 MiB that it was granted") {
			t.Errorf("next time at least %d MiB, whole: %t; its owner reads %q", j.MinGPUMemMiB, j.NeedWhole, detail)
		}
		start()
		m.must(shrink())
		if a := m.job(id).Last(); a.Idle == nil || a.Idle.Stage != cluster.IdleShrunk || a.BeforeCut() != nil || a.Berth.GPUs[0].Share.MemMiB != 6000 {
			t.Errorf("it is cut again: %+v, %+v", a.Idle, a.Berth)
		}
	}
}

// TestProgressIsOfTheAttemptThatRuns: what is said of others is passed over, and no
// clock of a node puts it before the start or after now.
func TestProgressIsOfTheAttemptThatRuns(t *testing.T) {
	t.Parallel()
	m := measured(t)
	note := func(job cluster.JobID, no uint32, p *cluster.Progress) *logv1.Command {
		return &logv1.Command{Kind: &logv1.Command_NoteProgress{NoteProgress: &logv1.NoteProgress{
			Attempts: []*logv1.AttemptProgress{conv.NoteProgress(cluster.AttemptID{Job: job, No: no}, p), {Job: uint64(job), Attempt: no}},
		}}}
	}
	if got := NeedsVersion(note(1, 1, &cluster.Progress{})); got != 13 {
		t.Errorf("needs version %d", got)
	}
	before := m.wantState(1, cluster.JobRunning)
	m.must(note(1, 2, &cluster.Progress{Step: 3}))
	m.must(note(77, 1, &cluster.Progress{Step: 3}))
	if m.wantState(1, cluster.JobRunning) != before {
		t.Error("what is said of attempts that do not run changed something")
	}
	m.must(submitCmd(2, "r2", 1000, spec(1)))
	m.start(2, share1("n1-g1", 8000, 300)) // and was not seen running yet
	m.must(note(2, 1, &cluster.Progress{Step: 3}))
	if a := m.job(2).Last(); a.Progress != nil {
		t.Errorf("one that has not begun is at %+v", a.Progress)
	}
	for _, at := range []cluster.Time{1, m.f.Now().Add(time.Hour)} {
		m.must(note(1, 1, &cluster.Progress{At: at, Step: 3, Total: 2, StepTime: -1}))
		a, now := m.wantState(1, cluster.JobRunning).Live(), m.f.Now()
		if want := (cluster.Progress{At: min(max(at, a.Started), now), Step: 3}); *a.Progress != want {
			t.Errorf("at %d: %+v, want %+v", at, *a.Progress, want)
		}
	}
}

// TestAnImageThatIsFetchedIsTheReason of an attempt that does not run yet, and of no other;
// what is more than that, such as that it makes room, stays.
func TestAnImageThatIsFetchedIsTheReason(t *testing.T) {
	t.Parallel()
	m := measured(t)
	note := func(job cluster.JobID, why cluster.ReasonCode, p cluster.Pull) *logv1.Command {
		n := conv.NotePull(cluster.AttemptID{Job: job, No: 1}, &p)
		n.Waits.Code = string(why)
		return &logv1.Command{Kind: &logv1.Command_NoteProgress{NoteProgress: &logv1.NoteProgress{Attempts: []*logv1.AttemptProgress{n}}}}
	}
	pulls := note(2, cluster.ReasonPulling, cluster.Pull{Layers: 3, Bytes: 1 << 20})
	if got := NeedsVersion(pulls); got != 15 {
		t.Errorf("needs version %d", got)
	}
	before := m.wantState(1, cluster.JobRunning)
	m.must(note(1, cluster.ReasonPulling, cluster.Pull{}))
	if m.wantState(1, cluster.JobRunning) != before {
		t.Error("a job that runs fetches its image")
	}
	m.must(submitCmd(2, "r2", 1000, spec(1)))
	waits := m.wantState(2, cluster.JobPending)
	m.must(pulls)
	if m.wantState(2, cluster.JobPending) != waits {
		t.Error("a job that waits fetches its image")
	}
	m.start(2, share1("n1-g1", 8000, 300))
	m.must(note(2, cluster.ReasonByAdmin, cluster.Pull{}))
	if got := m.job(2).Reason; got.Code != "" {
		t.Errorf("a node made the reason %v", got)
	}
	m.must(pulls)
	want := cluster.Reason{Code: cluster.ReasonPulling, Detail: "its image is being fetched: 0 of 3 layers, 0 of 1 MiB (0 %)"}
	if got := m.wantState(2, cluster.JobStarting).Reason; got != want {
		t.Errorf("got %v, want %v", got, want)
	}
	once := m.job(2)
	m.must(pulls)
	if m.job(2) != once {
		t.Error("the same word again changed something")
	}
	m.must(note(2, cluster.ReasonPulling, cluster.Pull{}))
	if got := m.job(2).Reason; got.Code != cluster.ReasonPulling || got == want {
		t.Errorf("another word: %v", got)
	}
	m.must(silentCmd("n1", "boot1"))
	silent := m.wantState(2, cluster.JobUnreachable)
	m.must(pulls)
	if m.wantState(2, cluster.JobUnreachable) != silent {
		t.Error("the image of a job whose node is silent is fetched")
	}
}
