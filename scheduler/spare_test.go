package scheduler_test

import (
	"strings"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/scheduler"
	. "github.com/berth-scheduler/berth/scheduler/schedtest"
)

// TestIdleGPUsKeepCores: nodes of 4 GPUs and 16 cores, so that the part of a
// GPU is 4 cores, and an idle one keeps 2. The job on the first GPU has 4.
func TestIdleGPUsKeepCores(t *testing.T) {
	t.Parallel()
	big := Job(50, GPUs(4), Exclusive, Cores(8000)) // waits for the whole node
	for _, c := range []struct {
		name   string
		job    *cluster.Job
		others []*cluster.Job
		starts bool
		says   string
	}{
		{"its part", Job(1, Exclusive, Cores(4000)), nil, true, ""},
		{"more, and two are left to each", Job(1, Exclusive, Cores(8000)), nil, true, ""},
		{"too much", Job(1, Exclusive, Cores(9000)), nil, false, "more than its GPUs' part (4 cores and 16.0 GiB each); 3 idle ones keep 2 cores and 2.0 GiB each"},
		{"beside the other", Job(1, Mem(100), Util(100), Cores(6000)), nil, true, ""},
		{"beside the other and too much", Job(1, Mem(100), Util(100), Cores(8000)), nil, true, ""}, // on a GPU of its own
		{"two GPUs", Job(1, GPUs(2), Exclusive, Cores(10000)), nil, true, ""},
		{"two GPUs and too much", Job(1, GPUs(2), Exclusive, Cores(11000)), nil, false, "3 idle ones keep"},
		{"host memory too", Job(1, Exclusive, HostMem(57<<10)), nil, false, "needs 1 core and 57.0 GiB"},
		{"too large for any node", Job(1, Exclusive, Cores(12000)), nil, true, ""},
		{"waited too long", Job(1, Exclusive, Cores(9000), Waited(5*time.Hour)), nil, true, ""},
		{"no GPU, and only such wait", Job(1, GPUs(0), Cores(12000)), nil, true, ""},
		{"no GPU, beside a waiter", Job(1, GPUs(0), Cores(6000)), []*cluster.Job{big}, true, ""},
		{"no GPU, and the waiter's cores", Job(1, GPUs(0), Cores(7000)), []*cluster.Job{big}, false, "kept for idle GPUs while jobs wait for them"},
		{"no GPU, waited too long", Job(1, GPUs(0), Cores(12000), Waited(5*time.Hour)), []*cluster.Job{big}, true, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := NewWorld([]*cluster.Node{Node("n1", 4, a100, Host(16000, 64<<10))})
			r := Job(40, Mem(100), Util(100), Cores(4000), HostMem(4096), Lasts(time.Hour))
			w.Submit(r)
			p := scheduler.Schedule(w.Snapshot(), scheduler.Default())
			w.Apply(&p)
			w.Submit(c.job)
			for _, o := range c.others {
				w.Submit(o.Clone())
			}
			p = scheduler.Schedule(w.Snapshot(), scheduler.Default())
			starts := false
			for _, s := range p.Starts {
				starts = starts || s.Job == c.job.ID
			}
			if starts != c.starts {
				t.Fatalf("starts %t, want %t: %+v", starts, c.starts, p)
			}
			if c.says == "" {
				return
			}
			all := ""
			for _, e := range scheduler.Explain(w.Snapshot(), c.job, scheduler.Default()) {
				all += e.Reason.String() + "\n"
			}
			if !strings.Contains(all, c.says) {
				t.Errorf("it is explained by\n%swant %q", all, c.says)
			}
			w.Jobs[c.job.ID].Queue = ""
			pol := scheduler.Default()
			pol.KeepCPUMilli, pol.KeepMemMiB = 0, 0
			if p = scheduler.Schedule(w.Snapshot(), pol); len(p.Starts) == 0 {
				t.Error("it waits although nothing is kept")
			}
		})
	}
}

// TestManyCoresDoNotStarve: whoever wants most of a node's cores beside one GPU
// starts within FIFOAge, the longest run and a pass, however many small jobs
// come.
func TestManyCoresDoNotStarve(t *testing.T) {
	t.Parallel()
	w := NewWorld([]*cluster.Node{Node("n1", 2, a100, Host(8000, 64<<10)), Node("n2", 2, a100, Host(8000, 64<<10))})
	pol := scheduler.Default()
	heavy, lasts := Job(1, Exclusive, Cores(6000), Lasts(time.Hour)), 20*time.Minute
	w.Submit(heavy)
	id := cluster.JobID(10)
	for w.Jobs[1].State.Waiting() {
		if w.Clock.Sub(Now) > pol.FIFOAge+lasts+time.Minute {
			t.Fatalf("it still waits after %s: %v", w.Clock.Sub(Now), w.Jobs[1].Reason)
		}
		for range 2 {
			w.Submit(Job(id, Mem(20000), Util(300), Cores(1000), Lasts(lasts)))
			w.Submit(Job(id+1, GPUs(0), Cores(1000), Lasts(lasts)))
			w.Jobs[id].Eligible, w.Jobs[id+1].Eligible = w.Clock, w.Clock
			id += 2
		}
		p := scheduler.Schedule(w.Snapshot(), pol)
		w.Apply(&p)
		if freed := w.Advance(time.Minute); len(freed) > 0 {
			p := scheduler.OnRelease(w, freed, pol)
			w.Apply(&p)
		}
	}
}

// TestPlainJobsSpareIdleGPUs: where jobs take 4 cores beside a GPU, one
// without GPUs goes where it costs the fewest idle ones their cores.
func TestPlainJobsSpareIdleGPUs(t *testing.T) {
	t.Parallel()
	gpuNode := func(id cluster.NodeID, cores int64) *cluster.Node { return Node(id, 4, a100, Host(cores, 256<<10)) }
	bare := Node("n4", 0, "", Host(4000, 64<<10))
	for _, c := range []struct {
		name  string
		nodes []*cluster.Node
		cores int64
		want  cluster.NodeID
	}{
		{"a node without GPUs", []*cluster.Node{gpuNode("n1", 64000), bare}, 3000, "n4"},
		{"that is full: what nobody needs", []*cluster.Node{gpuNode("n1", 16000), gpuNode("n2", 24000), bare}, 5000, "n2"},
		{"one GPU loses rather than two", []*cluster.Node{gpuNode("n1", 16000), gpuNode("n2", 18000)}, 6000, "n2"},
		{"nowhere else: it still starts", []*cluster.Node{gpuNode("n1", 16000)}, 12000, "n1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w, pol := NewWorld(c.nodes), scheduler.Default()
			r := Job(1, Exclusive, Cores(4000), HostMem(4096), Lasts(time.Hour))
			r.Spec.Node = "n1"
			w.Submit(r)
			p := scheduler.Schedule(w.Snapshot(), pol)
			w.Apply(&p)
			w.Submit(Job(2, GPUs(0), Cores(c.cores), HostMem(1024)))
			p = scheduler.Schedule(w.Snapshot(), pol)
			if len(p.Starts) != 1 || p.Starts[0].Berth.Node != c.want {
				t.Fatalf("want a start on %s, got %+v", c.want, p.Starts)
			}
		})
	}
}

// TestPlainJobsDoNotStarve: a job without GPUs that needs a whole node's cores
// starts within FIFOAge, the longest run and a pass, while jobs for GPUs come
// that keep nine GPUs of ten busy.
func TestPlainJobsDoNotStarve(t *testing.T) {
	t.Parallel()
	w := NewWorld([]*cluster.Node{Node("n1", 2, a100, Host(8000, 64<<10)), Node("n2", 2, a100, Host(8000, 64<<10))})
	pol, lasts := scheduler.Default(), 18*time.Minute
	id := cluster.JobID(10)
	for minute := 0; minute == 0 || w.Jobs[1].State.Waiting(); minute++ {
		if w.Clock.Sub(Now) > pol.FIFOAge+lasts+time.Minute {
			t.Fatalf("it still waits after %s: %v", w.Clock.Sub(Now), w.Jobs[1].Reason)
		}
		if minute%5 == 0 { // 18 of 20 GPU minutes
			w.Submit(Job(id, Exclusive, Cores(4000), Lasts(lasts)))
			w.Jobs[id].Eligible = w.Clock
			id++
		}
		if minute == 0 {
			for ; id < 14; id++ {
				w.Submit(Job(id, Exclusive, Cores(4000), Lasts(lasts)))
			}
			p := scheduler.Schedule(w.Snapshot(), pol)
			w.Apply(&p)
			w.Submit(Job(1, GPUs(0), Cores(7000), Lasts(time.Hour)))
		}
		p := scheduler.Schedule(w.Snapshot(), pol)
		w.Apply(&p)
		if freed := w.Advance(time.Minute); len(freed) > 0 {
			p := scheduler.OnRelease(w, freed, pol)
			w.Apply(&p)
		}
	}
}
