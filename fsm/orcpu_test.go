package fsm

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
)

// TestOnCoresInPlaceOfGPUs: who may run without GPUs is started without, leaves
// its queue, takes the cores and nothing else, teaches how long it took on
// them, and is the same after a restore.
func TestOnCoresInPlaceOfGPUs(t *testing.T) {
	t.Parallel()
	m := lab(t)
	s := spec(2)
	s.OrCPU = true
	id := m.submit(s)
	m.enqueue(id, "n1-g0", 1)
	st := m.startOf(id)
	st.Berth.CPUMilli, st.Berth.MemMiB = 8000, 20_000
	st.Estimate = cluster.Estimate{GPUType: cluster.CPUType, CPUMilli: 8000, HostMemMiB: 20_000, Source: "graph"}
	if r := m.must(planCmd(dispatch.Plan{Starts: []dispatch.Start{st}})); len(r.Plan.Started) != 1 {
		t.Fatalf("rejected: %v", r.Plan.Rejected)
	}
	j := m.wantState(id, cluster.JobStarting)
	if d := cmp.Diff(st.Berth, j.Last().Berth); d != "" || j.Queue != "" || len(m.f.Queue("n1-g0")) > 0 {
		t.Errorf("in queue %q, berth %s", j.Queue, d)
	}
	if on := m.f.GPUJobs("n1-g0"); len(on) > 0 {
		t.Errorf("%v lie on a GPU", on)
	}
	again := restored(t, snapshotOf(t, m.f))
	if d := cmp.Diff(contents(t, m.f), contents(t, again)); d != "" {
		t.Errorf("restored: %s", d)
	}
	r := m.reportOf(id, cluster.JobCompleted)
	r.Usage = usage(0, false)
	r.Usage.HostMemPeakMib, r.Usage.CpuMilli, r.Usage.Steps = 9000, 7800, 50
	m.must(reportCmd(r))
	got := m.f.Samples()
	if len(got) != 1 || got[0].GPUType != cluster.CPUType || got[0].HostMemMiB != 9000 || got[0].Steps != 50 || got[0].Duration <= 0 {
		t.Errorf("learned %+v", got)
	}
	if u, _ := m.f.SchedulerSnapshot().Ledger.Node("n1"); u.UsedCPU != 0 || u.UsedMem != 0 {
		t.Errorf("still taken: %+v", u)
	}
}
