package scheduler_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler"
	. "github.com/berth-scheduler/berth/scheduler/schedtest"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// crowd is a cluster in which most things are taken.
func crowd() *World {
	m := time.Minute
	w := NewWorld([]*cluster.Node{
		Node("n1", 2, small), Node("n2", 2, a100), Node("n3", 1, a100, Drained), Node("n4", 1, t4, Silent),
		Node("n5", 1, a100, Host(2000, 8192)), Node("c1", 0, "", Host(4000, 16384)),
	})
	running(w, Job(50, Lasts(14*m)), "n1-00", cluster.Share{MemMiB: 18000, Milli: 300})
	running(w, Job(51, Lasts(40*m)), "n1-00", cluster.Share{MemMiB: 10500, Milli: 300})
	running(w, Job(52, Lasts(3*time.Hour)), "n1-01", whole(40000))
	for i := range 3 {
		running(w, Job(cluster.JobID(53+i), Lasts(100*time.Hour)), "n2-00", cluster.Share{MemMiB: 1000, Milli: 100})
	}
	running(w, Job(56, Lasts(30*time.Second)), "n2-01", cluster.Share{MemMiB: 60000, Milli: 900})
	running(w, Job(57, Lasts(20*m), Cores(2000)), "n5-00", cluster.Share{MemMiB: 100, Milli: 10})
	w.Submit(Job(58, GPUs(0), Lasts(5*m), Cores(3000)))
	w.Apply(&dispatch.Plan{Starts: []dispatch.Start{{Job: 58, Attempt: 1, Berth: cluster.Berth{Node: "c1", CPUMilli: 3000, MemMiB: 1024}}}})
	return w
}

func TestExplainGolden(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		job  *cluster.Job
	}{
		{"share", Job(1, Mem(13312), Util(300))},
		{"compute", Job(1, Mem(8000), Util(500))},
		{"whole", Job(1, Exclusive)},
		{"type", Job(1, Type("H200"), Mem(10))},
		{"too_large", Job(1, Mem(200000))},
		{"two_gpus", Job(1, GPUs(2))},
		{"one_node", Job(1, On("n3"), Mem(10), Util(10))},
		{"no_gpu", Job(1, GPUs(0), Cores(70000))},
		{"no_gpu_fits", Job(1, GPUs(0))},
		{"fits", Job(1, Mem(100), Util(10))},
		{"may_be_too_small", Job(1, Predict(small, 14000, 300, time.Hour), Predict(a100, 14000, 300, time.Hour), Predict(t4, 14000, 300, time.Hour), func(j *cluster.Job) {
			for i := range j.Estimates {
				j.Estimates[i].GPUMemP95MiB = 41000 // a 40-GB card sells 40,000
			}
		})},
		{"was_too_small", Job(1, func(j *cluster.Job) { j.MinGPUMemMiB, j.NeedWhole = 42000, true })},
		{"was_too_small_for_all", Job(1, func(j *cluster.Job) { j.MinGPUMemMiB, j.NeedWhole = 90000, true })},
		{"queued_first", Job(1, Mem(75000), queued("n2-01", 30*time.Second))},
		{"queued_late", Job(1, Mem(75000), queued("n2-01", -30*time.Second), Waited(time.Hour))},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := crowd()
			if c.name == "queued_late" {
				w.Submit(Job(9, Mem(75000), queued("n2-01", 0)))
			}
			w.Submit(c.job)
			var b strings.Builder
			for _, e := range scheduler.Explain(w.Snapshot(), c.job, scheduler.Default()) {
				fmt.Fprintf(&b, "%d × %s [%s]\n", e.Count, e.Reason, e.GPUType)
			}
			if f, ok := scheduler.ForecastStart(w.Snapshot(), c.job, scheduler.Default()); ok {
				fmt.Fprintf(&b, "nearest: %s\nstart in %s to %s\n", f.Missing, f.P50.Sub(Now), f.P90.Sub(Now))
			}
			file := filepath.Join("testdata", "explain", c.name+".golden")
			if *update {
				if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(string(want), b.String()); d != "" {
				t.Errorf("explanation (-want +got):\n%s", d)
			}
		})
	}
}

func TestExplainWithoutNodes(t *testing.T) {
	t.Parallel()
	got := scheduler.Explain(NewWorld(nil).Snapshot(), Job(1), scheduler.Default())
	if len(got) != 1 || got[0].Reason.Code != cluster.ReasonNoNodes {
		t.Errorf("got %v, want NoNodes alone", got)
	}
}
