package fsm

import (
	"strings"
	"testing"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/fsm/command"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

// hostOOM reports that the kernel ended a job at its host memory cap of 1024 MiB.
func (m *machine) hostOOM(id cluster.JobID) {
	m.t.Helper()
	r := m.reportOf(id, cluster.JobOutOfMemory)
	r.Reason, r.Usage = &logv1.Reason{Code: string(cluster.ReasonHostOOM), Detail: "at its cap"}, &logv1.Usage{GpuMemPeakMib: 500, HostMemPeakMib: 900}
	m.must(reportCmd(r))
}

// TestOutOfHostMemory: a job that did not declare host memory runs again with more, is
// not started with less, says so, survives a restore, and ends after the last rung.
func TestOutOfHostMemory(t *testing.T) {
	t.Parallel()
	m := lab(t)
	id := running(m, spec(1), 8000)
	m.hostOOM(id)
	j := m.wantState(id, cluster.JobPending)
	if j.MinHostMemMiB != 2048 || !strings.Contains(j.Reason.Detail, "at its cap; it declared none, and runs again with 2048 MiB") {
		t.Fatalf("%d MiB, %s", j.MinHostMemMiB, j.Reason)
	}
	if again, _ := restored(t, snapshotOf(t, m.f)).Job(id); again.MinHostMemMiB != 2048 {
		t.Errorf("a restore makes %d MiB of it", again.MinHostMemMiB)
	}
	less := m.startOf(id, share1("n1-g0", 8000, 300))
	if r := m.must(planCmd(dispatch.Plan{Starts: []dispatch.Start{less}})); len(r.Plan.Rejected) != 1 || r.Plan.Rejected[0].Reason.Detail != "1024 MiB of host memory were planned, it needs 2048" {
		t.Fatalf("a start with less than it needs: %+v", r.Plan)
	}
	for try := 2; m.job(id).State == cluster.JobPending; try++ {
		if try > 4 {
			t.Fatal("it is tried for ever")
		}
		start := m.startOf(id, share1("n1-g0", 8000, 300))
		start.Berth.MemMiB = m.job(id).MinHostMemMiB
		if r := m.must(planCmd(dispatch.Plan{Starts: []dispatch.Start{start}})); len(r.Plan.Started) != 1 {
			t.Fatalf("%+v", r.Plan)
		}
		m.hostOOM(id)
	}
	if j = m.wantState(id, cluster.JobOutOfMemory); len(j.Attempts) != 4 || !strings.Contains(j.Reason.Detail, "it had 262144 MiB, and no node that could ever run it has more") {
		t.Errorf("%d attempts, %s", len(j.Attempts), j.Reason)
	}
}

// TestHostMemoryIsLearntAsABound: at least the cap was needed, and nothing is known of
// the rest.
func TestHostMemoryIsLearntAsABound(t *testing.T) {
	t.Parallel()
	m := lab(t)
	m.hostOOM(running(m, spec(1), 8000))
	got := m.f.Samples()
	if len(got) != 1 || !got[0].Censored || !got[0].HostCensored || got[0].HostMemMiB != 1024 || got[0].GPUMemPeakMiB != 0 || got[0].Duration != 0 {
		t.Fatalf("%+v", got)
	}
	if again := restored(t, snapshotOf(t, m.f)).Samples(); len(again) != 1 || !again[0].HostCensored {
		t.Errorf("a restore makes %+v of it", again)
	}
}

// TestOldEntriesEndAtHostMemory: what was once committed means what it meant.
func TestOldEntriesEndAtHostMemory(t *testing.T) {
	t.Parallel()
	for version, want := range map[uint32]cluster.JobState{command.HostVersion - 1: cluster.JobOutOfMemory, command.HostVersion: cluster.JobPending} {
		m := lab(t)
		id := running(m, spec(1), 8000)
		r := m.reportOf(id, cluster.JobOutOfMemory)
		r.Usage = usage(500, false)
		m.reported(version, r)
		if j := m.job(id); j.State != want {
			t.Errorf("version %d: %s, want %s", version, j.State, want)
		}
	}
}
