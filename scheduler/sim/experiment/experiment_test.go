package experiment

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/scheduler/sim"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// figuresOf writes the figures of a report, to six digits: the last ones are the
// processor's.
func figuresOf(rep *Report) string {
	var b strings.Builder
	for _, l := range rep.Lines {
		fmt.Fprintf(&b, "%s, %d seeds:", l.Variant, l.Seeds)
		for _, name := range rep.Columns {
			if v, ok := l.Mean[name]; ok {
				fmt.Fprintf(&b, " %s %.6g ± %.6g", name, v, l.CI95[name])
			}
		}
		b.WriteByte('\n')
	}
	for _, c := range rep.Claims {
		fmt.Fprintf(&b, "claim %s: want %.6g, got %.6g, met %t\n", c.What, c.Want, c.Got, c.Met)
	}
	return b.String()
}

// asBefore compares the figures of a report with those in testdata.
func asBefore(t *testing.T, rep *Report) {
	t.Helper()
	path, got := filepath.Join("testdata", rep.Name+".golden"), figuresOf(rep)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(want), "\n")
	for i, line := range strings.Split(got, "\n") {
		if i >= len(lines) || line != lines[i] {
			t.Fatalf("%s: line %d is\n%s\nand not as in %s; -update rewrites it", rep.Name, i+1, line, path)
		}
	}
	if want := strings.Count(string(want), "\n"); strings.Count(got, "\n") != want {
		t.Errorf("%s: %d lines, want %d", rep.Name, strings.Count(got, "\n"), want)
	}
}

// adds holds what must be true of every run: jobs that came are those that ended,
// failed or never fitted, or still wait for nothing; no percentage is above 100, no
// order statistic below a smaller one, and nothing ends before a lower bound.
func adds(t *testing.T, r *sim.Result) {
	t.Helper()
	if r.Completed+r.Failed+r.Unplaced > r.Jobs || r.RejectedPods == nil && r.Completed+r.Failed+r.Unplaced < r.Jobs {
		t.Errorf("%s of %s: %d jobs, %d completed, %d failed, %d unplaced", r.Policy, r.Trace, r.Jobs, r.Completed, r.Failed, r.Unplaced)
	}
	atMost := func(what string, a, b *float64, most float64) {
		if a != nil && b != nil && *a > *b*(1+1e-9)+most {
			t.Errorf("%s of %s: %s: %g and %g", r.Policy, r.Trace, what, *a, *b)
		}
	}
	zero := 0.0
	atMost("allocation", r.AllocationPct, &zero, 100.0001)
	atMost("utilization", r.GPUUtilPct, &zero, 100.0001)
	atMost("memory", r.MemUtilPct, &zero, 100.0001)
	atMost("median and p99 of completion", r.MedianJCT, r.P99JCT, 0)
	atMost("run and completion", r.MeanRun, r.MeanJCT, 0)
	atMost("wait and completion", r.MeanWait, r.MeanJCT, 0)
	if r.Completed == r.Jobs {
		atMost("bound and makespan", r.LowerBoundMakespan, r.Makespan, 1e-3)
		atMost("bound with sharing and alone", r.LowerBoundMakespan, r.LowerBoundAlone, 1e-3)
		atMost("bound and mean completion", r.LowerBoundSharedJCT, r.MeanJCT, 1e-3)
	}
}

// invented writes a folder of traces with made-up rows in the forms that the
// experiments read.
func invented(t *testing.T) Config {
	t.Helper()
	root := t.TempDir()
	files := map[string]string{
		"traces/schedtune/arrivals.csv": "arrival_s,job,kind,model,batch_size,gap_s\n0,t0,train,resnet18,8,1\n1,i0,infer,vgg11,1,1\n2,i1,infer,vgg11,1,1\n",
		"traces/schedtune/train_peak_mem.csv": "model,batch_size,gpu,gpu_mem_mib,activations_mb,parameters_mb,input_mb,peak_mem_mib,interpolated_oom\n" +
			"resnet18,8,RTX 2070 SUPER,7982,1,45,1,1500,0\nresnet18,8,RTX 3070,7982,1,45,1,1600,0\nresnet18,8,RTX 3090,24250,1,45,1,1700,0\n" +
			"vgg11,8,RTX 2070 SUPER,7982,1,500,1,3000,0\n",
		"traces/openb-2023/pods_default.csv": "name,cpu_milli,memory_mib,num_gpu,gpu_milli\np0,100,10,1,500\np1,100,10,1,1000\np2,100,10,1,300\n",
		"traces/openb-2023/nodes.csv":        "sn,cpu_milli,memory_mib,gpu,model\nn0,64000,10240,2,T4\nn1,64000,10240,4,T4\n",
		"traces/lucid-window/m3.csv":         "job_id,arrival_s,duration_s,gpu_num\na,0,500,8\nb,10,100,1\nc,20,200,16\n",
		"traces/muri/trace3.csv": "job_id,num_gpu,submit_time,duration,model_name,iteration_time,resource_time_0,resource_time_1,resource_time_2\n" +
			"0,1,0,90000,x,100,50,50,0\n1,8,1000,50000,y,100,50,0,50\n",
		"traces/microsoft-itp-2021/elasticflow_195job.csv": "job_id,submission_time,num_iteration,model_name,deadline,batch_size,num_gpu,duration\n" +
			"a,0,10,x,1100,8,8,1000\nb,10,10,y,900,8,1,1000\nc,20,10,x,1300,8,16,1000\nd,30,10,y,700,8,4,1000\n",
		"traces/philly/p.csv":                 "arrival_s,duration_s,gpu_num,vc\n0,500,8,a\n10,100,1,b\n20,200,4,a\n30,50,9,b\n40,50,2,b\n",
		"traces/helios-venus/v.csv":           "job_id,arrival_s,duration_s,gpu_num\na,0,500,8\nb,10,100,1\nc,20,200,16\n",
		"colocation/lucid/lucid_single.csv":   "model,dataset,batchsize,amp,speed,gpu_util,gmem_util,gmem,label\nx,d,8,0,1,30,10,2000,0\n",
		"colocation/gavel/gavel_isolated.csv": "gpu_type,job,scale_factor,tput_alone\nv100,x,1,5\n",
		"colocation/gavel/gavel_pairs.csv":    "gpu_type,job1,job2,norm1,norm2\nv100,x,x,0.7,0.7\n",
		"colocation/lucid/lucid_pairs.csv":    "model1,dataset1,gpu_num1,batchsize1,amp1,speed1,model2,dataset2,gpu_num2,batchsize2,amp2,speed2\nx,d,1,8,0,0.9,x,d,1,8,0,0.9\n",
	}
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return Config{Traces: filepath.Join(root, "traces"), Colocation: filepath.Join(root, "colocation"), Quick: true}
}

// TestEachRuns runs every experiment on a few invented jobs: each has lines
// with figures for every variant, says what it assumes, holds claims, and finds
// what it found before.
func TestEachRuns(t *testing.T) {
	t.Parallel()
	c := invented(t)
	for _, x := range All() {
		t.Run(x.Name, func(t *testing.T) {
			t.Parallel()
			rep, err := x.Run(context.Background(), c)
			if err != nil {
				t.Fatal(err)
			}
			if rep.Name != x.Name || len(rep.Assumptions) == 0 || len(rep.Claims) == 0 || len(rep.Lines) < 3 {
				t.Errorf("%s: %d assumptions, %d claims, %d lines", rep.Name, len(rep.Assumptions), len(rep.Claims), len(rep.Lines))
			}
			asBefore(t, rep)
			for _, r := range rep.Results {
				adds(t, r)
			}
			for _, l := range rep.Lines {
				if v, ok := l.Mean[rep.Columns[0]]; !ok || v < 0 {
					t.Errorf("%s: %s of %s is %g, known %t", rep.Name, rep.Columns[0], l.Variant, v, ok)
				}
			}
			for _, claim := range rep.Claims {
				if math.IsInf(claim.Got, 0) {
					t.Errorf("%s: %s is endless", rep.Name, claim.What)
				}
			}
		})
	}
}

// TestFollowing: with Resize two experiments have variants whose shares follow use, and the
// others are what they were.
func TestFollowing(t *testing.T) {
	t.Parallel()
	c := invented(t)
	for name, run := range map[string]func(context.Context, Config) (*Report, error){"yeung": yeung, "schedtune": schedTune} {
		off, err := run(context.Background(), c)
		if err != nil {
			t.Fatal(err)
		}
		with := c
		with.Resize = cluster.ResizeEager
		on, err := run(context.Background(), with)
		if err != nil {
			t.Fatal(err)
		}
		for i, l := range off.Lines {
			if l.Variant != on.Lines[i].Variant || l.Mean["makespan_s"] != on.Lines[i].Mean["makespan_s"] {
				t.Errorf("%s: %s was %v, and is %v", name, l.Variant, l, on.Lines[i])
			}
		}
		if more := on.Lines[len(off.Lines):]; len(more) != 9 || len(on.Claims) != len(off.Claims)+2 || on.mean("ffd", "makespan_s") != on.mean("ffd, memory rises", "makespan_s") {
			t.Errorf("%s: %d lines and %d claims more", name, len(more), len(on.Claims)-len(off.Claims))
		}
		const twice = "ffd, twice the memory reserved, "
		if a, b := on.mean(twice+"memory rises", "reserved_over_used"), on.mean(twice+"eager", "reserved_over_used"); !(b < a) || !(on.mean(twice+"eager", "cuts") > 0) {
			t.Errorf("%s: %g times what is used was reserved, and %g after cuts", name, a, b)
		}
	}
}

// TestYeungShape holds the order of the published table on jobs without
// memory: alone is worst, profiling first is between, prediction is best.
func TestYeungShape(t *testing.T) {
	t.Parallel()
	c := invented(t)
	rep, err := yeung(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	slot, ffd := rep.mean("slot", "makespan_s"), rep.mean("ffd", "makespan_s")
	if !(ffd < 0.9*slot) {
		t.Errorf("makespan of ffd %g s, of slot %g s: want a tenth less at least", ffd, slot)
	}
	if longest := rep.mean("ffd+longest", "makespan_s"); !(ffd < 1.1*longest) {
		t.Errorf("makespan %g s, %g s with the longest first and nothing else: want at most a tenth more", ffd, longest)
	}
	if u := rep.change("slot", "ffd", "gpu_util_pct"); !(u > 10) {
		t.Errorf("utilization rose by %g %%", u)
	}
}

func TestYeungWorkload(t *testing.T) {
	t.Parallel()
	w := yeungWorkload(3, []int64{1000, 2000})
	var sum time.Duration
	for i := range w.Jobs {
		j := &w.Jobs[i]
		if j.Duration < 2*time.Minute || j.Duration > 2*time.Hour || j.UsedMilli < 200 || j.UsedMilli > 820 {
			t.Errorf("job %s runs for %s at %d", j.ID, j.Duration, j.UsedMilli)
		}
		sum += j.Duration
	}
	if mean := sum.Seconds() / yeungJobs; mean < 0.95*yeungMeanS || mean > 1.05*yeungMeanS {
		t.Errorf("mean run time %g s, want about %d", mean, yeungMeanS)
	}
}

func TestMissingTraces(t *testing.T) {
	t.Parallel()
	for _, x := range All() {
		if !x.NeedsTraces() {
			continue
		}
		if _, err := x.Run(context.Background(), Config{Traces: t.TempDir()}); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: got %v, want %v", x.Name, err, os.ErrNotExist)
		}
	}
	if _, err := ByName("nobel"); err == nil {
		t.Error("an experiment that does not exist was found")
	}
}

// TestColumnsAreFigures holds the columns of all reports to known names.
func TestColumnsAreFigures(t *testing.T) {
	t.Parallel()
	known := figures(&sim.Result{})
	for _, c := range append(queueColumns(), ordersReport().Columns...) {
		if _, ok := known[c]; !ok {
			t.Errorf("%s is no figure of a result", c)
		}
	}
}
