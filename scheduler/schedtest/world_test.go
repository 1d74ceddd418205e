package schedtest_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler"
	. "github.com/berth-scheduler/berth/scheduler/schedtest"
)

const a100 = "A100-SXM4-80GB"

// A World is what the fast path reads.
var _ scheduler.CompanyView = (*World)(nil)

func start(id cluster.JobID, gpu cluster.GPUID, s cluster.Share) dispatch.Start {
	return dispatch.Start{Job: id, Attempt: 1, Berth: cluster.Berth{Node: "n1", GPUs: []cluster.GPUShare{{GPU: gpu, Share: s}}, CPUMilli: 1000, MemMiB: 1024}}
}

func TestWorldRefuses(t *testing.T) {
	t.Parallel()
	slice := cluster.Share{MemMiB: 1000, Milli: 100}
	waits := func(j *cluster.Job) { j.Queue = "n1-00" }
	for _, c := range []struct {
		name string
		jobs []*cluster.Job
		plan dispatch.Plan
		want string
	}{
		{"a job that is not there", nil, dispatch.Plan{Starts: []dispatch.Start{start(1, "n1-00", slice)}}, "does not wait"},
		{"another attempt", []*cluster.Job{Job(1)}, dispatch.Plan{Starts: []dispatch.Start{{Job: 1, Attempt: 2}}}, "does not wait for attempt 2"},
		{"other GPUs than asked for", []*cluster.Job{Job(1, GPUs(2))}, dispatch.Plan{Starts: []dispatch.Start{start(1, "n1-00", slice)}}, "not what was asked for"},
		{"another node", []*cluster.Job{Job(1, On("n2"))}, dispatch.Plan{Starts: []dispatch.Start{start(1, "n1-00", slice)}}, "not what was asked for"},
		{"another type", []*cluster.Job{Job(1, Type("T4"))}, dispatch.Plan{Starts: []dispatch.Start{start(1, "n1-00", slice)}}, "wrong type"},
		{"a share for who wants all", []*cluster.Job{Job(1, Exclusive)}, dispatch.Plan{Starts: []dispatch.Start{start(1, "n1-00", slice)}}, "wants its GPU alone"},
		{"too much", []*cluster.Job{Job(1)}, dispatch.Plan{Starts: []dispatch.Start{start(1, "n1-00", cluster.Share{MemMiB: 80001, Milli: 1})}}, "needs 80001"},
		{"to overtake without a word", []*cluster.Job{Job(1), Job(2, waits)}, dispatch.Plan{Starts: []dispatch.Start{start(1, "n1-00", slice)}}, "overtakes job 2 without a reason"},
		{"a move to no GPU", []*cluster.Job{Job(1)}, dispatch.Plan{Moves: []dispatch.QueueMove{{Job: 1, GPU: "gone"}}}, "bad move"},
		{"a move of nobody", nil, dispatch.Plan{Moves: []dispatch.QueueMove{{Job: 1, GPU: "n1-00"}}}, "bad move"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := NewWorld([]*cluster.Node{Node("n1", 2, a100)}, c.jobs...)
			w.Apply(&c.plan)
			if len(w.Rejected) != 1 || !strings.Contains(w.Rejected[0].Reason.Detail, c.want) {
				t.Errorf("rejected %v, want one with %q", w.Rejected, c.want)
			}
			if err := w.Check(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestWorldLives(t *testing.T) {
	t.Parallel()
	w := NewWorld([]*cluster.Node{Node("n1", 1, a100)}, Job(1, Exclusive, Lasts(time.Minute)), Job(2, Exclusive, Lasts(time.Minute)))
	w.Apply(&dispatch.Plan{
		Starts: []dispatch.Start{start(1, "n1-00", cluster.Share{MemMiB: 80000, Milli: cluster.WholeGPU, Exclusive: true})},
		Moves:  []dispatch.QueueMove{{Job: 2, GPU: "n1-00", Rank: 7, EstStart: Now.Add(time.Minute)}},
	})
	if j, _ := w.Job(2); j.State != cluster.JobQueued || j.Queue != "n1-00" || len(w.Queue("n1-00")) != 1 {
		t.Fatalf("job 2 is %s in queue %q, want QUEUED in n1-00", j.State, j.Queue)
	}
	if s := w.Snapshot(); len(s.Waiting) != 1 || len(s.Running) != 1 || s.Now != Now {
		t.Fatalf("snapshot: %d wait, %d run", len(s.Waiting), len(s.Running))
	}
	if freed := w.Advance(59 * time.Second); len(freed) != 0 {
		t.Fatalf("%v was freed too early", freed)
	}
	if freed := w.Advance(time.Second); !slices.Equal(freed, []cluster.GPUID{"n1-00"}) {
		t.Fatalf("freed %v, want n1-00", freed)
	}
	w.Apply(&dispatch.Plan{Moves: []dispatch.QueueMove{{Job: 2}}})
	if j, _ := w.Job(2); j.State != cluster.JobPending || len(w.Queues) != 0 {
		t.Errorf("job 2 is %s, %d queues, want PENDING and none", j.State, len(w.Queues))
	}
	if err := w.Check(); err != nil {
		t.Error(err)
	}
}

func TestWorldChecks(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		spoil func(*World)
		want  string
	}{
		{"the ledger", func(w *World) { w.Ledg.Take(&cluster.Berth{Node: "n1", CPUMilli: 1}) }, "not the sum"},
		{"over capacity", func(w *World) { w.Ledg.Take(&cluster.Berth{Node: "n1", CPUMilli: 1 << 40}) }, "taken"},
		{"a queue without its job", func(w *World) { w.Queues["n1-00"] = nil }, "not in its queue"},
		{"a job without its queue", func(w *World) {
			w.Queues["n1-00"] = append(slices.Clone(w.Queues["n1-00"]), dispatch.Waiter{Job: 9})
		}, "more jobs are queued"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := NewWorld([]*cluster.Node{Node("n1", 1, a100)}, Job(1, func(j *cluster.Job) { j.Queue = "n1-00" }))
			if err := w.Check(); err != nil {
				t.Fatal(err)
			}
			c.spoil(w)
			if err := w.Check(); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}
