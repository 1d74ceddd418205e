package site

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/accounting"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler"
	"github.com/berth-scheduler/berth/scheduler/cells"
	"github.com/berth-scheduler/berth/scheduler/policies"
	"github.com/berth-scheduler/berth/scheduler/schedtest"
)

// TestGuaranteesAreTold: user 7 is team x, which has a cell of two T4, of three on two
// nodes and beside an A100. What its jobs wait for is told by the numbers of its cells,
// and only where the cells are why.
func TestGuaranteesAreTold(t *testing.T) {
	t.Parallel()
	const borrows, may = "; it borrows as soon as cards are idle", "; it may borrow when preemptible: submit with a checkpoint hook"
	p, err := policies.New("firstfit+fifo", policies.Options{Base: scheduler.Default(), Tenants: &policies.Tenancy{
		Tenants: []cells.Tenant{{Name: "x", Cells: []cells.Cell{{GPUType: "T4", GPUs: 2, Count: 1}}}}, Users: map[string]string{"7": "x"}}})
	if err != nil {
		t.Fatal(err)
	}
	guarded, plain := Chosen{Policy: scheduler.Default(), Planner: p}, byName(t, "slot+fifo")
	mine := func(id cluster.JobID, opts ...schedtest.JobOption) *cluster.Job {
		j := schedtest.Job(id, schedtest.Of(7, 7), schedtest.Exclusive, schedtest.Predict("T4", 1000, 100, time.Hour))
		for _, o := range opts {
			o(j)
		}
		return j
	}
	soft := func(j *cluster.Job) { j.Spec.Checkpoint = cluster.Checkpoint{Signal: "USR1", Grace: time.Minute} }
	for _, c := range []struct {
		name   string
		chosen *Chosen
		runs   bool // a job of two on the team's cell
		gone   bool // the node of two is drained
		job    *cluster.Job
		want   string
		short  []string
	}{
		{"its cell is free", &guarded, false, false, mine(1, schedtest.GPUs(2)), "", nil},
		{"its cell is in use", &guarded, true, false, mine(1), "team x has 2 of 2 GPUs of its cells in use" + may, nil},
		{"and it may be ended", &guarded, true, false, mine(1, soft), "team x has 2 of 2 GPUs of its cells in use" + borrows, nil},
		{"wider than its cells", &guarded, false, false, mine(1, schedtest.GPUs(3)), "the largest cells of team x have 2 GPUs, and it needs 3 on one node" + may, nil},
		{"of no team", &guarded, false, false, mine(1, schedtest.Of(8, 8)), "its user is of no team with a guarantee" + may, nil},
		{"without GPUs", &guarded, true, false, mine(1, schedtest.GPUs(0)), "", nil},
		{"of a type that it does not ask for nothing is told", &guarded, true, false, mine(1, schedtest.Type("A100-SXM4-80GB")), "", nil},
		{"nor of cores", &guarded, true, false, mine(1, func(j *cluster.Job) { j.Estimates[0].GPUType = cluster.CPUType }), "", nil},
		{"the type after it is told", &guarded, false, false, mine(1, func(j *cluster.Job) {
			j.Estimates = append([]cluster.Estimate{{GPUType: "A100-SXM4-80GB"}}, j.Estimates...)
		}, schedtest.Type("T4"), schedtest.GPUs(3)), "the largest cells of team x have 2 GPUs, and it needs 3 on one node" + may, nil},
		{"nobody is guaranteed anything", &plain, true, true, mine(1), "", nil},
		{"the hardware is short", &guarded, false, true, mine(1), "tenant x: 1 of its 1 cells of 2 GPUs (T4) cannot be kept: nodes are drained or silent, or others who may not be ended lie there",
			[]string{"tenant x: 1 of its 1 cells of 2 GPUs (T4) cannot be kept"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := schedtest.NewWorld([]*cluster.Node{schedtest.Node("n1", 2, "T4"), schedtest.Node("n2", 1, "T4"), schedtest.Node("n3", 1, "A100-SXM4-80GB")})
			w.Nodes[0].Drain = c.gone
			if c.runs {
				w.Submit(mine(9, schedtest.GPUs(2)))
				b := cluster.Berth{Node: "n1", CPUMilli: 1000, MemMiB: 1024}
				for i := range 2 {
					b.GPUs = append(b.GPUs, cluster.GPUShare{GPU: schedtest.GPU("n1", i), Share: cluster.Share{MemMiB: 15000, Milli: cluster.WholeGPU, Exclusive: true}})
				}
				w.Nodes[0].Drain = false
				w.Apply(&dispatch.Plan{Starts: []dispatch.Start{{Job: 9, Attempt: 1, Berth: b}}})
			}
			w.Submit(c.job)
			snap := w.Snapshot()
			r := TenantReason(c.chosen, snap, c.job)
			if d := cmp.Diff(c.want, r.Detail); d != "" || (r.Code == cluster.ReasonTenantCells) != (c.want != "") {
				t.Errorf("%s (-want +got):\n%s", r.Code, d)
			}
			s := &Site{Chosen: *c.chosen}
			if d := cmp.Diff(c.short, Short(snap, s)); d != "" {
				t.Errorf("short (-want +got):\n%s", d)
			}
			if snap.Partitions = []*cluster.Partition{partition(t, "a", "ALL")}; Short(snap, s) != nil {
				t.Error("where there are partitions, guarantees of the whole are told to be short")
			}
		})
	}
}

// TestWhichQuotaIsTold: a job may take one GPU of a quota that has one left, not two.
func TestWhichQuotaIsTold(t *testing.T) {
	t.Parallel()
	w := schedtest.NewWorld([]*cluster.Node{schedtest.Node("n1", 2, "T4")})
	snap, pol := w.Snapshot(), scheduler.Default()
	wide := schedtest.Job(1, schedtest.Of(7, 7), schedtest.Exclusive, schedtest.GPUs(2))
	if r := LimitReason(snap, wide, snap.Nodes, pol); r.Code != "" {
		t.Errorf("without quotas: %v", r)
	}
	u := accounting.Subject{User: true, UID: 7}
	snap.Limits = accounting.NewLimiter(nil, map[accounting.Subject]*accounting.Quota{u: {Subject: u, Limits: accounting.Limits{GPUMilli: 1000}}}, nil)
	for _, c := range []struct {
		gpus int
		uid  cluster.UID
		held bool
	}{{1, 7, false}, {2, 7, true}, {2, 8, false}} {
		j := schedtest.Job(1, schedtest.Of(c.uid, 7), schedtest.Exclusive, schedtest.GPUs(c.gpus))
		if r := LimitReason(snap, j, snap.Nodes, pol); accounting.LimitReason(r.Code) != c.held {
			t.Errorf("%d GPUs of user %d: %v, want held %t", c.gpus, c.uid, r, c.held)
		}
	}
}
