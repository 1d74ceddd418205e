package fsm

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
)

func TestStart(t *testing.T) {
	t.Parallel()
	m := lab(t)
	id := m.submit(spec(1))
	m.enqueue(id, "n1-g0", 1)
	before := m.f.Index()
	got := m.start(id, share1("n1-g0", 8000, 300))
	if got != (cluster.AttemptID{Job: id, No: 1}) {
		t.Fatalf("attempt %v", got)
	}
	j := m.wantState(id, cluster.JobStarting)
	want := cluster.Attempt{
		No: 1, Token: cluster.Token(before + 1), State: cluster.JobStarting, BootID: "boot1", GPUMilli: 300, Placed: m.now, Why: "first fit",
		Berth:    cluster.Berth{Node: "n1", GPUs: []cluster.GPUShare{share1("n1-g0", 8000, 300)}, CPUMilli: 1000, MemMiB: 1024},
		Estimate: cluster.Estimate{GPUType: "A100", GPUMemMiB: 8000, Milli: 300, Source: "declared"},
	}
	if d := cmp.Diff(want, j.Attempts[0]); d != "" {
		t.Error(d)
	}
	if j.Queue != "" || len(m.f.Queue("n1-g0")) != 0 {
		t.Errorf("still in queue %q", j.Queue)
	}
	if d := cmp.Diff([]cluster.JobID{id}, m.f.GPUJobs("n1-g0")); d != "" {
		t.Error(d)
	}
	if jobs := m.f.NodeJobs("n1"); len(jobs) != 1 || jobs[0] != j {
		t.Errorf("on the node: %v", jobs)
	}
}

func TestStartsThatAreRejected(t *testing.T) {
	t.Parallel()
	small := func() cluster.GPUShare { return share1("n1-g0", 8000, 300) }
	tests := []struct {
		name   string
		spec   func(*cluster.Spec)
		before func(m *machine, id cluster.JobID)
		start  func(m *machine, id cluster.JobID) dispatch.Start
		want   cluster.ReasonCode
	}{
		{"no such job", nil, nil, func(m *machine, id cluster.JobID) dispatch.Start {
			st := m.startOf(id, small())
			st.Job = 99
			return st
		}, cluster.ReasonStale},
		{"already started", nil, func(m *machine, id cluster.JobID) { m.start(id, small()) }, nil, cluster.ReasonStale},
		{"cancelled", nil, func(m *machine, id cluster.JobID) { m.must(cancelCmd(id, 1000)) }, nil, cluster.ReasonStale},
		{"another attempt is next", nil, nil, func(m *machine, id cluster.JobID) dispatch.Start {
			st := m.startOf(id, small())
			st.Attempt = 2
			return st
		}, cluster.ReasonStale},
		{"too many GPUs", nil, nil, func(m *machine, id cluster.JobID) dispatch.Start {
			return m.startOf(id, small(), share1("n1-g1", 8000, 300))
		}, cluster.ReasonStale},
		{"cores in place of a GPU", nil, nil, func(m *machine, id cluster.JobID) dispatch.Start { return m.startOf(id) }, cluster.ReasonStale},
		{"cores in place of some GPUs", func(s *cluster.Spec) { s.GPUs, s.OrCPU = 2, true }, nil, nil, cluster.ReasonStale},
		{"too few GPUs", func(s *cluster.Spec) { s.GPUs = 2 }, nil, nil, cluster.ReasonStale},
		{"a share for an exclusive job", func(s *cluster.Spec) { s.Exclusive = true }, nil, nil, cluster.ReasonStale},
		{"the wrong type", func(s *cluster.Spec) { s.GPUType = "H100" }, nil, nil, cluster.ReasonStale},
		{"the wrong node", func(s *cluster.Spec) { s.Node = "n2" }, nil, nil, cluster.ReasonStale},
		{"a GPU of another node", nil, nil, func(m *machine, id cluster.JobID) dispatch.Start {
			st := m.startOf(id, share1("n2-g0", 8000, 300))
			st.Berth.Node = "n1"
			return st
		}, cluster.ReasonStale},
		{"a GPU twice", func(s *cluster.Spec) { s.GPUs = 2 }, nil, func(m *machine, id cluster.JobID) dispatch.Start {
			return m.startOf(id, small(), small())
		}, cluster.ReasonStale},
		{"a negative share", nil, nil, func(m *machine, id cluster.JobID) dispatch.Start {
			return m.startOf(id, share1("n1-g0", -1, 300))
		}, cluster.ReasonStale},
		{"negative host memory", nil, nil, func(m *machine, id cluster.JobID) dispatch.Start {
			st := m.startOf(id, small())
			st.Berth.MemMiB = -1
			return st
		}, cluster.ReasonStale},
		{"host memory that overflows", nil, func(m *machine, id cluster.JobID) { m.start(m.submit(spec(0))) },
			func(m *machine, id cluster.JobID) dispatch.Start {
				st := m.startOf(id, small())
				st.Berth.MemMiB = 1<<63 - 1
				return st
			}, cluster.ReasonHostMem},
		{"too many cores", nil, nil, func(m *machine, id cluster.JobID) dispatch.Start {
			st := m.startOf(id, small())
			st.Berth.CPUMilli = 64_001
			return st
		}, cluster.ReasonCPU},
		{"memory is taken", nil, func(m *machine, id cluster.JobID) { m.start(m.submit(spec(1)), share1("n1-g0", 33_000, 100)) }, nil, cluster.ReasonGPUMem},
		{"compute is taken", nil, func(m *machine, id cluster.JobID) { m.start(m.submit(spec(1)), share1("n1-g0", 3000, 800)) }, nil, cluster.ReasonGPUCompute},
		{"slots are taken", nil, func(m *machine, id cluster.JobID) {
			for range 3 {
				m.start(m.submit(spec(1)), share1("n1-g0", 100, 100))
			}
		}, nil, cluster.ReasonGPUSlots},
		{"someone has it alone", nil, func(m *machine, id cluster.JobID) { m.start(m.submit(spec(1)), whole("n1-g0")) }, nil, cluster.ReasonGPUSlots},
		{"alone beside someone", nil, func(m *machine, id cluster.JobID) { m.start(m.submit(spec(1)), small()) },
			func(m *machine, id cluster.JobID) dispatch.Start { return m.startOf(id, whole("n1-g0")) }, cluster.ReasonExclusive},
		{"the node is drained", nil, func(m *machine, id cluster.JobID) { m.must(drainCmd("n1", true)) }, nil, cluster.ReasonNodeDown},
		{"the node is silent", nil, func(m *machine, id cluster.JobID) { m.must(silentCmd("n1", "boot1")) }, nil, cluster.ReasonNodeDown},
		{"no such node", nil, nil, func(m *machine, id cluster.JobID) dispatch.Start {
			st := m.startOf(id, small())
			st.Berth.Node = "n9"
			return st
		}, cluster.ReasonNodeDown},
		{"passes another one without saying why", nil, func(m *machine, id cluster.JobID) { m.enqueue(m.submit(spec(1)), "n1-g0", 5) }, nil, cluster.ReasonOvertake},
		{"is second in the queue itself", nil, func(m *machine, id cluster.JobID) {
			m.enqueue(id, "n1-g0", 7)
			m.enqueue(m.submit(spec(1)), "n1-g0", 5)
		}, nil, cluster.ReasonOvertake},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			m := lab(t)
			s := spec(1)
			if tc.spec != nil {
				tc.spec(s)
			}
			id := m.submit(s)
			if tc.before != nil {
				tc.before(m, id)
			}
			st := m.startOf(id, small())
			st.Attempt = 1
			if tc.start != nil {
				st = tc.start(m, id)
			}
			was := contents(t, m.f)
			r := m.must(planCmd(dispatch.Plan{Starts: []dispatch.Start{st}}))
			if len(r.Plan.Started) != 0 || len(r.Plan.Rejected) != 1 || r.Plan.Rejected[0].Reason.Code != tc.want {
				t.Fatalf("%+v, want to be rejected for %s", r.Plan, tc.want)
			}
			if d := cmp.Diff(was, contents(t, m.f)); d != "" {
				t.Fatalf("rejected, and yet: %s", d)
			}
		})
	}
}

func TestOvertakingIsStored(t *testing.T) {
	t.Parallel()
	m := lab(t)
	first, second := m.submit(spec(1)), m.submit(spec(1))
	m.enqueue(first, "n1-g0", 1)
	st := m.startOf(second, share1("n1-g0", 8000, 300))
	st.Overtook = "fits where job 1 does not"
	if r := m.must(planCmd(dispatch.Plan{Starts: []dispatch.Start{st}})); len(r.Plan.Started) != 1 {
		t.Fatalf("rejected: %v", r.Plan.Rejected)
	}
	if a := m.job(second).Last(); a.Overtook != st.Overtook {
		t.Errorf("overtook %q", a.Overtook)
	}
	m.wantState(first, cluster.JobQueued)
}

func TestOnePlanIsJudgedStartByStart(t *testing.T) {
	t.Parallel()
	m := lab(t)
	a, b, c := m.submit(spec(1)), m.submit(spec(1)), m.submit(spec(1))
	m.enqueue(a, "n1-g0", 1)
	m.enqueue(b, "n1-g0", 2)
	r := m.must(planCmd(dispatch.Plan{Starts: []dispatch.Start{
		m.startOf(a, share1("n1-g0", 20_000, 300)),
		m.startOf(b, share1("n1-g0", 20_000, 300)), // a has left the queue by now
		m.startOf(c, share1("n1-g0", 1, 300)),      // and the card is full
	}}))
	if d := cmp.Diff([]cluster.AttemptID{{Job: a, No: 1}, {Job: b, No: 1}}, r.Plan.Started); d != "" {
		t.Error(d)
	}
	if len(r.Plan.Rejected) != 1 || r.Plan.Rejected[0].Job != c || r.Plan.Rejected[0].Reason.Code != cluster.ReasonGPUMem {
		t.Errorf("rejected %v", r.Plan.Rejected)
	}
	for id, want := range map[cluster.JobID][]cluster.JobID{a: {b}, b: {a}} {
		if d := cmp.Diff(want, m.job(id).Last().Neighbours); d != "" {
			t.Errorf("neighbours of %d: %s", id, d)
		}
	}
}

func TestNeighboursAreBounded(t *testing.T) {
	t.Parallel()
	m := lab(t)
	stays := running(m, spec(1), 100)
	for range cluster.MaxNeighbours + 3 {
		m.report(running(m, spec(1), 100), cluster.JobCompleted)
	}
	ns := m.job(stays).Last().Neighbours
	if len(ns) != cluster.MaxNeighbours || ns[0] != stays+1 {
		t.Errorf("%d neighbours, the first %d", len(ns), ns[0])
	}
}

// TestReadersKeepTheirQueue: whoever asked for a queue may go on to read it
// while others leave it from the front, the middle and the end.
func TestReadersKeepTheirQueue(t *testing.T) {
	t.Parallel()
	m := lab(t)
	for i := range 6 {
		m.enqueue(m.submit(spec(1)), "n1-g0", int64(i))
	}
	held, want := m.f.Queue("n1-g0"), fmt.Sprint(m.f.Queue("n1-g0"))
	for _, id := range []cluster.JobID{3, 1, 6} {
		m.must(cancelCmd(id, 0))
		m.enqueue(m.submit(spec(1)), "n1-g0", 9)
	}
	if got := fmt.Sprint(held); got != want {
		t.Errorf("queue %s changed to %s under its reader", want, got)
	}
	if got := fmt.Sprint(m.f.Queue("n1-g0")); got != "[{2 1} {4 3} {5 4} {7 9} {8 9} {9 9}]" {
		t.Errorf("queue %s", got)
	}
}

func TestMoves(t *testing.T) {
	t.Parallel()
	queue := func(m *machine, gpu cluster.GPUID) string { return fmt.Sprint(m.f.Queue(gpu)) }
	t.Run("by rank, then by id", func(t *testing.T) {
		m := lab(t)
		for range 4 {
			m.submit(spec(1))
		}
		r := m.must(planCmd(dispatch.Plan{Moves: []dispatch.QueueMove{
			{Job: 4, GPU: "n1-g0", Rank: 2, EstStart: t0, Reason: cluster.ReasonResources}, {Job: 3, GPU: "n1-g0", Rank: 1},
			{Job: 2, GPU: "n1-g0", Rank: 2}, {Job: 1, GPU: "n1-g0", Rank: -1},
		}}))
		if got := queue(m, "n1-g0"); got != "[{1 -1} {3 1} {2 2} {4 2}]" || r.Plan.Moved != 4 {
			t.Fatalf("queue %s, moved %d", got, r.Plan.Moved)
		}
		if gpu, pos := m.f.QueuePosition(2); gpu != "n1-g0" || pos != 3 {
			t.Errorf("job 2 is at %d of %q", pos, gpu)
		}
		j := m.wantState(4, cluster.JobQueued)
		if j.Queue != "n1-g0" || j.EstStart != t0 || j.Reason.Code != cluster.ReasonResources {
			t.Errorf("%+v", j)
		}
	})
	t.Run("elsewhere, to the end, and out", func(t *testing.T) {
		m := lab(t)
		for i := range 3 {
			m.enqueue(m.submit(spec(1)), "n1-g0", int64(i))
		}
		old := m.f.Queue("n1-g0")
		m.must(planCmd(dispatch.Plan{Moves: []dispatch.QueueMove{{Job: 1, GPU: "n1-g0", Rank: 9}, {Job: 2, GPU: "n2-g1", Rank: 4}, {Job: 3, Reason: cluster.ReasonNodeDown}}}))
		if a, b := queue(m, "n1-g0"), queue(m, "n2-g1"); a != "[{1 9}]" || b != "[{2 4}]" {
			t.Fatalf("queues %s and %s", a, b)
		}
		if j := m.wantState(3, cluster.JobPending); j.Reason.Code != cluster.ReasonNodeDown || j.Queue != "" {
			t.Errorf("%+v", j)
		}
		if got := fmt.Sprint(old); got != "[{1 0} {2 1} {3 2}]" {
			t.Errorf("a reader's queue changed under it: %s", got)
		}
	})
	t.Run("rejected", func(t *testing.T) {
		for _, tc := range []struct {
			name string
			move func(m *machine) dispatch.QueueMove
		}{
			{"no such job", func(m *machine) dispatch.QueueMove { return dispatch.QueueMove{Job: 77, GPU: "n1-g0"} }},
			{"running", func(m *machine) dispatch.QueueMove {
				return dispatch.QueueMove{Job: running(m, spec(1), 100), GPU: "n1-g0"}
			}},
			{"no such GPU", func(m *machine) dispatch.QueueMove { return dispatch.QueueMove{Job: m.submit(spec(1)), GPU: "n9-g0"} }},
			{"needs no GPU", func(m *machine) dispatch.QueueMove { return dispatch.QueueMove{Job: m.submit(spec(0)), GPU: "n1-g0"} }},
			{"drained", func(m *machine) dispatch.QueueMove {
				m.must(drainCmd("n1", true))
				return dispatch.QueueMove{Job: m.submit(spec(1)), GPU: "n1-g0"}
			}},
			{"another node", func(m *machine) dispatch.QueueMove {
				s := spec(1)
				s.Node = "n2"
				return dispatch.QueueMove{Job: m.submit(s), GPU: "n1-g0"}
			}},
			{"another type", func(m *machine) dispatch.QueueMove {
				s := spec(1)
				s.GPUType = "H100"
				return dispatch.QueueMove{Job: m.submit(s), GPU: "n1-g0"}
			}},
		} {
			t.Run(tc.name, func(t *testing.T) {
				m := lab(t)
				r := m.must(planCmd(dispatch.Plan{Moves: []dispatch.QueueMove{tc.move(m)}}))
				if len(r.Plan.Rejected) != 1 || r.Plan.Rejected[0].Reason.Code != cluster.ReasonStale || len(m.f.Queue("n1-g0")) != 0 {
					t.Fatalf("%+v", r.Plan)
				}
			})
		}
	})
	t.Run("twice in one plan", func(t *testing.T) {
		m := lab(t)
		m.submit(spec(1))
		r := m.must(planCmd(dispatch.Plan{Moves: []dispatch.QueueMove{{Job: 1, GPU: "n1-g0", Rank: 1}, {Job: 1, GPU: "n1-g1", Rank: 1}}}))
		if r.Plan.Moved != 1 || len(r.Plan.Rejected) != 1 || queue(m, "n1-g1") != "[]" {
			t.Fatalf("%+v", r.Plan)
		}
	})
}
