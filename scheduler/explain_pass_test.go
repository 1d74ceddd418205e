package scheduler_test

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler"
	. "github.com/berth-scheduler/berth/scheduler/schedtest"
)

// TestExplainAsThePassDecides: of a job that waits alone, "has room" is said just when the
// next pass starts it, "now" is forecast just then too, and "never" only when it does not
// start on the empty cluster either.
func TestExplainAsThePassDecides(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var nodes []*cluster.Node
		for i := range rapid.IntRange(1, 3).Draw(t, "nodes") {
			typ := rapid.SampledFrom([]string{"A100-SXM4-40GB", "T4"}).Draw(t, "type")
			n := Node(cluster.NodeID(fmt.Sprintf("n%d", i)), rapid.IntRange(1, 3).Draw(t, "cards"), typ, Host(16_000, 32_768))
			n.Drain = rapid.IntRange(0, 4).Draw(t, "drained") == 0
			nodes = append(nodes, n)
		}
		job := drawWaiting(t)
		empty, w := NewWorld(nodes, job), NewWorld(nodes)
		for id := range cluster.JobID(rapid.IntRange(0, 5).Draw(t, "run")) {
			n := rapid.SampledFrom(nodes).Draw(t, "where")
			share := cluster.Share{MemMiB: rapid.Int64Range(1, 3).Draw(t, "takes") * 4000, Milli: rapid.Int64Range(1, 9).Draw(t, "computes") * 100}
			b := cluster.Berth{Node: n.ID, CPUMilli: rapid.Int64Range(1, 8).Draw(t, "takes cores") * 1000, MemMiB: 1024,
				GPUs: []cluster.GPUShare{{GPU: n.GPUs[rapid.IntRange(0, len(n.GPUs)-1).Draw(t, "card")].ID, Share: share}}}
			w.Submit(Job(50+id, Mem(share.MemMiB), Util(share.Milli), Lasts(time.Hour)))
			w.Apply(&dispatch.Plan{Starts: []dispatch.Start{{Job: 50 + id, Attempt: 1, Berth: b, Estimate: cluster.Estimate{Duration: time.Hour}}}})
			if w.Jobs[50+id].Live() == nil {
				delete(w.Jobs, 50+id)
			}
		}
		w.Submit(job)
		pol := scheduler.Default()
		starts := func(w *World) bool {
			plan := scheduler.Schedule(w.Snapshot(), pol)
			return len(plan.Starts) == 1
		}
		room, never := false, false
		for _, e := range scheduler.Explain(w.Snapshot(), job, pol) {
			room = room || e.Reason.Code == cluster.ReasonUnconfirmed
			never = never || e.Reason.Code == cluster.ReasonNeverFits && e.GPUType == ""
		}
		f, ok := scheduler.ForecastStart(w.Snapshot(), job, pol)
		now := starts(w)
		if room != now || (ok && f.P50 == Now) != now || ok && f.P90 < f.P50 {
			t.Fatalf("%+v starts: %t; has room, it is said: %t; forecast in %s (%t) for %s", job.Spec, now, room, f.P50.Sub(Now), ok, f.Missing)
		}
		if soon := starts(empty); soon && (never || !ok) {
			t.Fatalf("%+v starts on the empty cluster; never, it is said: %t, a start is forecast: %t", job.Spec, never, ok)
		}
	})
}

func drawWaiting(t *rapid.T) *cluster.Job {
	job := Job(1, GPUs(rapid.IntRange(0, 2).Draw(t, "GPUs")), Cores(rapid.Int64Range(1, 9).Draw(t, "cores")*1000), HostMem(rapid.Int64Range(1, 9).Draw(t, "GiB")*1024), Lasts(time.Hour))
	if job.Spec.GPUs > 0 {
		job.Spec.GPUMemMiB, job.Spec.GPUMilli = rapid.Int64Range(1, 11).Draw(t, "memory")*4000, rapid.Int64Range(1, 9).Draw(t, "compute")*100
		job.Spec.Exclusive = rapid.IntRange(0, 3).Draw(t, "alone") == 0
	}
	return job
}

// TestExplainCountsCardsInUse: a job of two cards on a node with one in use and two idle
// gets the one in use and one of the idle, so that it may ask for less of the cores than
// with both of the idle.
func TestExplainCountsCardsInUse(t *testing.T) {
	t.Parallel()
	for cores, fits := range map[int64]bool{8000: true, 8001: false, 9000: false} {
		w := NewWorld([]*cluster.Node{Node("n1", 3, "T4", Host(16_000, 32_768))})
		w.Submit(Job(50, Mem(1000), Util(100), Lasts(time.Hour)))
		w.Apply(&dispatch.Plan{Starts: []dispatch.Start{{Job: 50, Attempt: 1, Berth: cluster.Berth{Node: "n1", CPUMilli: 6000, MemMiB: 1024,
			GPUs: []cluster.GPUShare{{GPU: GPU("n1", 0), Share: cluster.Share{MemMiB: 1000, Milli: 100}}}}}}})
		job := Job(1, GPUs(2), Mem(4000), Util(100), Cores(cores), Lasts(time.Hour))
		w.Submit(job)
		plan := scheduler.Schedule(w.Snapshot(), scheduler.Default())
		why := scheduler.Explain(w.Snapshot(), job, scheduler.Default())
		want := cluster.ReasonCPU
		if fits {
			want = cluster.ReasonUnconfirmed
		}
		if (len(plan.Starts) == 1) != fits || len(why) != 1 || why[0].Reason.Code != want {
			t.Errorf("%d milli cores: %d start, %+v", cores, len(plan.Starts), why)
		}
	}
}
