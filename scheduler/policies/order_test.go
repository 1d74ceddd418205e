package policies_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler/policies"
	. "github.com/berth-scheduler/berth/scheduler/schedtest"
)

// TestPreempting: one card, job 1 on it; job 2 comes.
func TestPreempting(t *testing.T) {
	t.Parallel()
	const m = time.Minute
	may := map[cluster.JobID]dispatch.Terms{1: {Preemptible: true}}
	for _, c := range []struct {
		name, order string
		lasts, ago  time.Duration
		waits       *cluster.Job
		terms       map[cluster.JobID]dispatch.Terms
		want        bool
	}{
		{"much shorter", "srtf", 120 * m, 20 * m, Job(2, Exclusive, Lasts(5*m)), may, true},
		{"shorter, but not by the cost", "srtf", 120 * m, 20 * m, Job(2, Exclusive, Lasts(100*m-39*time.Second)), may, false},
		{"longer", "srtf", 120 * m, 20 * m, Job(2, Exclusive, Lasts(101*m)), may, false},
		{"not without leave", "srtf", 120 * m, 20 * m, Job(2, Exclusive, Lasts(5*m)), nil, false},
		{"not before ten minutes", "srtf", 120 * m, 10*m - time.Second, Job(2, Exclusive, Lasts(5*m)), may, false},
		{"from ten minutes on", "srtf", 120 * m, 10 * m, Job(2, Exclusive, Lasts(5*m)), may, true},
		{"shorter by the cost alone", "srtf", 120 * m, 20 * m, Job(2, Exclusive, Lasts(100*m-40*time.Second)), may, false},
		{"shorter by more than the cost", "srtf", 120 * m, 20 * m, Job(2, Exclusive, Lasts(100*m-41*time.Second)), may, true},
		{"least service", "las", 120 * m, 55 * m, Job(2, Exclusive, Lasts(500*m)), may, true},
		{"the same queue", "las", 120 * m, 53 * m, Job(2, Exclusive, Lasts(m)), may, false},
		// (20+20)/20 = 2 against (20+100)/120 = 1; the lease is 20 minutes.
		{"less fair, the lease over", "themis", 120 * m, 20 * m, Job(2, Exclusive, Lasts(20*m), Waited(20*m)), may, true},
		{"less fair, the lease not over", "themis", 120 * m, 19 * m, Job(2, Exclusive, Lasts(20*m), Waited(20*m)), may, false},
		{"a deadline", "edf", 120 * m, 20 * m, Job(2, Exclusive, Lasts(20*m)), map[cluster.JobID]dispatch.Terms{1: {Preemptible: true}, 2: {Deadline: Now.Add(30 * m)}}, true},
		{"a deadline that cannot be met", "edf", 120 * m, 20 * m, Job(2, Exclusive, Lasts(20*m)), map[cluster.JobID]dispatch.Terms{1: {Preemptible: true}, 2: {Deadline: Now.Add(19 * m)}}, false},
		{"behind its part of the rounds", "rounds", 120 * m, 20 * m, Job(2, Exclusive, Lasts(20*m), Waited(m)), may, true},
		{"first come never", "fifo", 120 * m, 60 * m, Job(2, Exclusive, Lasts(m)), may, false},
	} {
		t.Run(c.order+" "+c.name, func(t *testing.T) {
			t.Parallel()
			s := newScene(Node("n1", 1, a100)).runs(1, 80000, 1000, c.lasts, c.ago, "n1-00").waits(c.waits).snap(t)
			s.Terms = c.terms
			plan := must(t, "firstfit", policies.Options{Order: c.order}).Plan(s)
			var want []dispatch.Preemption
			if c.want {
				want = []dispatch.Preemption{{Job: 1, Attempt: 1, For: 2}}
			}
			for i := range plan.Preempt {
				plan.Preempt[i].Why = ""
			}
			if d := cmp.Diff(want, plan.Preempt); d != "" || len(plan.Starts) > 0 {
				t.Errorf("starts %v, preemptions (-want +got):\n%s", startsOf(&plan), d)
			}
		})
	}
}

// TestPreemptsAsFewAsItCan: of two nodes the one where fewer must go, there
// not those without need, and nobody while room is being made anyway.
func TestPreemptsAsFewAsItCan(t *testing.T) {
	t.Parallel()
	const m = time.Minute
	build := func() *scene {
		s := newScene(Node("n1", 2, a100), Node("n2", 2, a100))
		s.runs(1, 40000, 500, 300*m, 20*m, "n1-00").runs(2, 40000, 500, 310*m, 20*m, "n1-01")
		s.runs(3, 30000, 300, 320*m, 20*m, "n2-00").runs(4, 30000, 300, 330*m, 20*m, "n2-00").runs(5, 30000, 300, 340*m, 20*m, "n2-01")
		return s.waits(Job(6, GPUs(2), Lasts(10*m)), part(7, 80, Lasts(11*m)))
	}
	s := build().snap(t)
	s.Terms = map[cluster.JobID]dispatch.Terms{}
	for id := cluster.JobID(1); id <= 5; id++ {
		s.Terms[id] = dispatch.Terms{Preemptible: true}
	}
	p := must(t, "firstfit", policies.Options{Order: "srtf"})
	got := map[cluster.JobID][]cluster.JobID{}
	for _, x := range p.Plan(s).Preempt {
		got[x.For] = append(got[x.For], x.Job)
	}
	// Two whole cards: jobs 1 and 2 of n1. Then 80 % of one card: job 5 is the
	// longest of n2 and alone on its card.
	if d := cmp.Diff(map[cluster.JobID][]cluster.JobID{6: {2, 1}, 7: {5}}, got); d != "" {
		t.Errorf("victims (-want +got):\n%s", d)
	}
	for _, j := range s.Running {
		if j.ID <= 2 {
			j.State = cluster.JobCompleting
		}
	}
	got = map[cluster.JobID][]cluster.JobID{}
	for _, x := range p.Plan(s).Preempt {
		got[x.For] = append(got[x.For], x.Job)
	}
	if d := cmp.Diff(map[cluster.JobID][]cluster.JobID{7: {5}}, got); d != "" {
		t.Errorf("victims while n1 is cleared (-want +got):\n%s", d)
	}
}

// TestWhoIsEnded: two nodes of two cards, all taken for hours by jobs that may be
// ended but for job 9. Short ones come.
func TestWhoIsEnded(t *testing.T) {
	t.Parallel()
	const m = time.Minute
	a1, b1, a2, b2 := GPU("n1", 0), GPU("n1", 1), GPU("n2", 0), GPU("n2", 1)
	whole := func(id cluster.JobID, on ...cluster.GPUID) func(*scene) {
		return func(s *scene) { s.runs(id, 80000, 1000, 300*m, 20*m, on...) }
	}
	four := []func(*scene){whole(1, a1), whole(2, b1), whole(3, a2), whole(9, b2)}
	for _, c := range []struct {
		name  string
		runs  []func(*scene)
		waits []*cluster.Job
		most  int
		ends  []cluster.JobID // their room is being made already
		want  map[cluster.JobID][]cluster.JobID
		asked bool // to make room, not cancelled
	}{
		{"of one and one who loses less", []func(*scene){whole(1, a1, b1), whole(2, a2), whole(9, b2)}, []*cluster.Job{Job(20, Exclusive, Lasts(m))}, 0, nil,
			map[cluster.JobID][]cluster.JobID{20: {2}}, false},
		{"of equals who lies on the first node", []func(*scene){whole(1, a1), whole(9, b1), whole(2, a2), whole(3, b2)}, []*cluster.Job{Job(20, Exclusive, Lasts(m))}, 0, nil,
			map[cluster.JobID][]cluster.JobID{20: {1}}, false},
		{"as many as it needs", four, []*cluster.Job{Job(20, Exclusive, GPUs(2), Lasts(m))}, 0, nil,
			map[cluster.JobID][]cluster.JobID{20: {2, 1}}, false},
		{"when a plan may end so many", four, []*cluster.Job{Job(20, Exclusive, GPUs(2), Lasts(m))}, 2, nil,
			map[cluster.JobID][]cluster.JobID{20: {2, 1}}, false},
		{"and nobody when it may not", four, []*cluster.Job{Job(20, Exclusive, GPUs(2), Lasts(m))}, 1, nil,
			map[cluster.JobID][]cluster.JobID{}, false},
		{"no more in one plan than it may", four, []*cluster.Job{Job(20, Exclusive, Lasts(m)), Job(21, Exclusive, Lasts(2*m))}, 1, nil,
			map[cluster.JobID][]cluster.JobID{20: {2}}, false},
		{"for each another", four, []*cluster.Job{Job(20, Exclusive, Lasts(m)), Job(21, Exclusive, Lasts(2*m))}, 0, nil,
			map[cluster.JobID][]cluster.JobID{20: {2}, 21: {1}}, false},
		{"nobody where room is being made", four, []*cluster.Job{Job(20, Exclusive, Lasts(m))}, 0, []cluster.JobID{3},
			map[cluster.JobID][]cluster.JobID{}, false},
		{"nor where somebody was asked to make it", four, []*cluster.Job{Job(20, Exclusive, Lasts(m))}, 0, []cluster.JobID{3},
			map[cluster.JobID][]cluster.JobID{}, true},
		{"but for who comes after it", four, []*cluster.Job{Job(20, Exclusive, Lasts(m)), Job(21, Exclusive, Lasts(2*m))}, 0, []cluster.JobID{3},
			map[cluster.JobID][]cluster.JobID{21: {2}}, false},
		{"nobody for cores", four, []*cluster.Job{Job(20, GPUs(0), Cores(63_000), Lasts(m))}, 0, nil,
			map[cluster.JobID][]cluster.JobID{}, false},
		{"nobody for what no node could hold", four, []*cluster.Job{Job(20, Exclusive, GPUs(3), Lasts(m))}, 0, nil,
			map[cluster.JobID][]cluster.JobID{}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			sc := newScene(Node("n1", 2, a100), Node("n2", 2, a100))
			for _, r := range c.runs {
				r(sc)
			}
			s := sc.waits(c.waits...).snap(t)
			s.Terms = map[cluster.JobID]dispatch.Terms{}
			for _, j := range s.Running {
				s.Terms[j.ID] = dispatch.Terms{Preemptible: j.ID != 9}
				if slices.Contains(c.ends, j.ID) && c.asked {
					j.Attempts[0].Preempt = &cluster.PreemptRequest{}
				} else if slices.Contains(c.ends, j.ID) {
					j.Cancel = &cluster.CancelRequest{}
				}
			}
			got := map[cluster.JobID][]cluster.JobID{}
			for _, x := range must(t, "firstfit", policies.Options{Order: "srtf", MaxPreempt: c.most}).Plan(s).Preempt {
				got[x.For] = append(got[x.For], x.Job)
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Errorf("victims (-want +got):\n%s", d)
			}
		})
	}
}
