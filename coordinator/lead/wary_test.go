package lead

import (
	"slices"
	"testing"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler/schedtest"
)

// TestWary: a planner sees what strays hold as a share of nobody's: what fits beside it
// may start, and neither what does not nor who wants the card alone; the snapshot stays
// as it was.
func TestWary(t *testing.T) {
	t.Parallel()
	n := schedtest.Node("n1", 2, "T4")
	sells := n.GPUs[0].SellableMiB
	snap := &dispatch.Snapshot{Nodes: []*cluster.Node{n}, Ledger: dispatch.NewLedger([]*cluster.Node{n})}
	first, second := n.GPUs[0].ID, n.GPUs[1].ID
	held := map[cluster.GPUID]int64{first: sells - 2000}
	start := func(job cluster.JobID, g cluster.GPUID, mib int64, alone bool) dispatch.Start {
		return dispatch.Start{Job: job, Attempt: 1, Berth: cluster.Berth{Node: "n1", GPUs: []cluster.GPUShare{{GPU: g, Share: cluster.Share{MemMiB: mib, Milli: 10, Exclusive: alone}}}}}
	}
	all := []dispatch.Start{
		start(1, first, 2500, false), start(2, first, 500, true), start(3, second, 500, true), start(4, first, 500, false), start(5, first, 500, false), start(6, first, 500, false),
	}
	got := careful(snap, held, all)
	var jobs []cluster.JobID
	for _, st := range got {
		jobs = append(jobs, st.Job)
	}
	if want := []cluster.JobID{3, 4, 5, 6}; len(jobs) != len(want) || jobs[0] != 3 || jobs[1] != 4 || jobs[3] != 6 {
		t.Errorf("jobs %v start, want %v: as many as ever, and none beside that does not fit", jobs, want)
	}
	if u, _ := snap.Ledger.GPU(first); u.UsedMiB != 0 || u.Shares != 0 || n.GPUs[0].MaxShares == wary(snap, held).Nodes[0].GPUs[0].MaxShares {
		t.Errorf("the snapshot has changed: %+v", u)
	}
	if wary(snap, nil) != snap {
		t.Error("where nothing is held there is nothing to copy")
	}
}

// TestOnlyAmong: all who make room for a job, or nobody.
func TestOnlyAmong(t *testing.T) {
	t.Parallel()
	ends := func(job, forJob cluster.JobID) dispatch.Preemption {
		return dispatch.Preemption{Job: job, Attempt: 1, For: forJob}
	}
	plan := []dispatch.Preemption{ends(1, 9), ends(2, 8), ends(3, 9), ends(4, 0), ends(5, 0), ends(6, 7), ends(7, 7)}
	others := []dispatch.Preemption{ends(1, 9), ends(2, 6), ends(4, 0), ends(6, 7), ends(7, 7), {Job: 3, Attempt: 2, For: 9}}
	var got []cluster.JobID
	for _, p := range onlyAmong(plan, others) {
		got = append(got, p.Job)
	}
	if want := []cluster.JobID{2, 4, 6, 7}; !slices.Equal(got, want) {
		t.Errorf("jobs %v are preempted, want %v", got, want)
	}
}
