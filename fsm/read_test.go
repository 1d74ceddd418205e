package fsm

import (
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/fsm/jobs"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

func ids(jobs []*cluster.Job) []cluster.JobID {
	var out []cluster.JobID
	for _, j := range jobs {
		out = append(out, j.ID)
	}
	return out
}

func TestJobs(t *testing.T) {
	t.Parallel()
	m := lab(t)
	for i := range 6 {
		m.must(submitCmd(m.f.NextJobID(), cluster.JobID(i).String(), cluster.UID(1000+i%2), spec(1)))
	}
	m.start(2, share1("n1-g0", 100, 100))
	m.start(5, share1("n1-g0", 100, 100))
	m.enqueue(3, "n1-g0", 1)
	m.must(cancelCmd(4, 0))
	live := []cluster.JobState{cluster.JobStarting, cluster.JobRunning}
	waiting := []cluster.JobState{cluster.JobQueued, cluster.JobPending, cluster.JobPending}
	for _, tc := range []struct {
		name string
		q    Query
		want []cluster.JobID
	}{
		{"all", Query{}, []cluster.JobID{1, 2, 3, 4, 5, 6}},
		{"a page", Query{After: 2, Limit: 2}, []cluster.JobID{3, 4}},
		{"after the last", Query{After: 6}, nil},
		{"waiting, in order of ids", Query{States: waiting}, []cluster.JobID{1, 3, 6}},
		{"waiting, a page", Query{States: waiting, After: 1, Limit: 1}, []cluster.JobID{3}},
		{"live", Query{States: live}, []cluster.JobID{2, 5}},
		{"live and waiting", Query{States: append(live, waiting...)}, []cluster.JobID{1, 2, 3, 5, 6}},
		{"of a user", Query{UIDs: []cluster.UID{1001}}, []cluster.JobID{2, 4, 6}},
		{"of a user, a page", Query{UIDs: []cluster.UID{1001}, Limit: 2}, []cluster.JobID{2, 4}},
		{"chosen", Query{Keep: func(j *cluster.Job) bool { return j.ID%3 == 0 }}, []cluster.JobID{3, 6}},
		{"in a state that is not", Query{States: []cluster.JobState{0, 99}}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, index := m.f.Jobs(tc.q)
			if d := cmp.Diff(tc.want, ids(got)); d != "" || index != m.index {
				t.Errorf("index %d: %s", index, d)
			}
		})
	}
}

func TestSchedulerSnapshot(t *testing.T) {
	t.Parallel()
	m := lab(t)
	for range 4 {
		m.submit(spec(1))
	}
	m.start(2, share1("n1-g0", 8000, 100))
	m.enqueue(4, "n1-g0", 1)
	m.enqueue(1, "n1-g0", 2)
	snap := m.f.SchedulerSnapshot()
	check := func() {
		t.Helper()
		if d := cmp.Diff([]cluster.JobID{1, 3, 4}, ids(snap.Waiting)); d != "" {
			t.Error(d)
		}
		if d := cmp.Diff([]cluster.JobID{2}, ids(snap.Running)); d != "" {
			t.Error(d)
		}
		if d := cmp.Diff(map[cluster.GPUID][]dispatch.Waiter{"n1-g0": {{Job: 4, Rank: 1}, {Job: 1, Rank: 2}}}, snap.Queues); d != "" {
			t.Error(d)
		}
		if u, _ := snap.Ledger.GPU("n1-g0"); u.UsedMiB != 8000 || len(snap.Nodes) != 2 || snap.Nodes[0].ID != "n1" {
			t.Errorf("account %+v, nodes %v", u, snap.Nodes)
		}
	}
	check()
	m.start(4, share1("n1-g0", 8000, 100))
	m.must(cancelCmd(1, 0))
	m.report(2, cluster.JobCompleted)
	m.must(removeCmd("n2"))
	check() // what came after does not reach it
}

func TestChanges(t *testing.T) {
	t.Parallel()
	m := lab(t)
	start := m.f.Index()
	id := m.submit(spec(1))
	m.start(id, share1("n1-g0", 8000, 100))
	m.report(id, cluster.JobCompleted)
	m.must(drainCmd("n2", true))
	cs, upTo, ok := m.f.Changes(start)
	want := []Change{
		{Index: start + 1, Job: id, New: true},
		{Index: start + 2, Job: id},
		{Index: start + 3, Job: id, Released: []cluster.GPUID{"n1-g0"}},
		{Index: start + 4, Node: "n2"},
	}
	if d := cmp.Diff(want, cs); d != "" || !ok || upTo != start+4 {
		t.Errorf("up to %d, ok %t: %s", upTo, ok, d)
	}
	if cs, _, ok = m.f.Changes(upTo); len(cs) != 0 || !ok {
		t.Errorf("%d changes after the last", len(cs))
	}
}

func TestChangesAreBounded(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.f = New(Options{ChangeRing: 8})
	for range 40 {
		m.must(submitCmd(m.f.NextJobID(), m.f.NextJobID().String(), 1000, spec(0), spec(0), spec(0)))
		if n := len(m.f.ring.items); n > 8+3 {
			t.Fatalf("%d changes are held", n)
		}
	}
	for after := range m.index + 1 {
		cs, _, ok := m.f.Changes(after)
		if ok && len(cs) != 3*int(m.index-after) {
			t.Fatalf("%d changes after %d, want %d or a refusal", len(cs), after, 3*(m.index-after))
		}
		if !ok && after+2 >= m.index {
			t.Fatalf("the changes after %d of %d are not held", after, m.index)
		}
	}
	m.f = restored(t, snapshotOf(t, m.f))
	if _, _, ok := m.f.Changes(m.index - 1); ok {
		t.Error("a restored replica tells of changes that it never saw")
	}
	if _, _, ok := m.f.Changes(m.index); !ok {
		t.Error("a restored replica refuses to go on from where it is")
	}
}

func TestReadsWhileApplying(t *testing.T) {
	t.Parallel()
	m := lab(t)
	changing := m.submit(spec(1))
	done := make(chan struct{})
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				snap := m.f.SchedulerSnapshot()
				if err := snap.Ledger.Check(); err != nil {
					t.Error(err)
					return
				}
				m.f.Jobs(Query{States: []cluster.JobState{cluster.JobRunning}})
				if j, ok := m.f.Job(changing); ok && j.Estimates[0].GPUType == "" {
					t.Errorf("estimates %v", j.Estimates)
				}
				m.f.Read(func(s *State) { s.Ledger().GPU("n1-g0"); s.Queue("n1-g0"); s.Job(1); s.Node("n1"); _ = s.Now() })
				if _, err := m.f.Snapshot(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 60 {
		id := running(m, spec(1), 8000)
		m.enqueue(m.submit(spec(1)), "n1-g1", 1)
		m.report(id, cluster.JobCompleted)
		j := m.job(changing)
		m.must(&logv1.Command{Kind: &logv1.Command_UpdateJob{UpdateJob: &logv1.UpdateJob{Job: uint64(j.ID), Spec: conv.SpecToLog(j.Spec), Base: j.Revision}}})
	}
	close(done)
	wg.Wait()
}

// TestJobSet holds the set against a map.
func TestJobSet(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var s jobs.Set
		model := map[cluster.JobID]*cluster.Job{}
		// Few ids in many operations, and enough of them to split blocks.
		top := rapid.SampledFrom([]int{4, 50, 3 * 512}).Draw(t, "top")
		seed := rapid.Uint64().Draw(t, "seed")
		n := rapid.IntRange(0, 4*top).Draw(t, "operations")
		var copied jobs.Set
		var copyOf []*cluster.Job
		for i := range n {
			seed = seed*6364136223846793005 + 1442695040888963407
			id := cluster.JobID(seed>>33)%cluster.JobID(top) + 1
			if seed>>62 == 0 {
				s.Remove(id)
				delete(model, id)
			} else {
				j := &cluster.Job{ID: id, Revision: uint64(i)}
				s.Put(j)
				model[id] = j
			}
			if i == n/2 {
				copied, copyOf = s.Clone(), s.List()
			}
		}
		var want []*cluster.Job
		for _, id := range slices.Sorted(maps.Keys(model)) {
			want = append(want, model[id])
			if s.Get(id) != model[id] {
				t.Fatalf("job %d: %v", id, s.Get(id))
			}
		}
		if !slices.Equal(s.List(), want) || s.Len() != len(want) {
			t.Fatalf("%d jobs in the list, n is %d, want %d", len(s.List()), s.Len(), len(want))
		}
		if !slices.Equal(copied.List(), copyOf) {
			t.Fatal("a copy changed")
		}
		after := cluster.JobID(rapid.IntRange(0, top+1).Draw(t, "after"))
		var got []*cluster.Job
		jobs.Merge([]*jobs.Set{&s}, after, func(j *cluster.Job) bool { got = append(got, j); return true })
		want = slices.DeleteFunc(want, func(j *cluster.Job) bool { return j.ID <= after })
		if !slices.Equal(got, want) {
			t.Fatalf("after %d: %v, want %v", after, ids(got), ids(want))
		}
	})
}
