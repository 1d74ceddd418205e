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

// TestRulesByHand: what jobs of one card on roomy nodes do not show.
func TestRulesByHand(t *testing.T) {
	t.Parallel()
	const m, h = time.Minute, time.Hour
	known := func(j *cluster.Job) *cluster.Job { // it had its minute
		j.Attempts = []cluster.Attempt{{No: 1, State: cluster.JobPreempted, Started: Now.Add(-5 * m), Ended: Now.Add(-4 * m)}}
		return j
	}
	two := func(id cluster.NodeID) *cluster.Node { return Node(id, 2, a100) }
	for _, c := range []struct {
		name, policy string
		nodes        []*cluster.Node
		runs         func(*scene)
		waits        []*cluster.Job
		want         at
	}{
		{"only jobs of one width share their cards", "lucid", []*cluster.Node{two("n1")}, func(s *scene) { s.runs(9, 8000, 100, h, m, "n1-00", "n1-01") },
			[]*cluster.Job{part(1, 10)}, at{}},
		{"and those of the same do", "lucid", []*cluster.Node{two("n1")}, func(s *scene) { s.runs(9, 8000, 100, h, m, "n1-00", "n1-01") },
			[]*cluster.Job{part(1, 10, GPUs(2))}, at{1: "n1-00,n1-01"}},
		{"who is known joins who is known, and leaves empty cards empty", "reactive", []*cluster.Node{two("n1")}, func(s *scene) { s.runs(9, 8000, 100, h, 30*m, "n1-01") },
			[]*cluster.Job{known(part(1, 20))}, at{1: "n1-01"}},
		{"a job without GPUs lies where there are none", "firstfit", []*cluster.Node{two("n1"), Node("n2", 0, "")}, nil, []*cluster.Job{Job(1, GPUs(0))}, at{1: "n2"}},
		{"or where the least of them is idle", "firstfit", []*cluster.Node{two("n1"), two("n2")}, func(s *scene) { s.runs(9, 8000, 100, h, m, "n2-00") }, []*cluster.Job{Job(1, GPUs(0))}, at{1: "n2"}},
		// The job needs all cores of n1: then no job like it can use n1's cards.
		{"cards without cores beside them are fragments", "fgd", []*cluster.Node{Node("n1", 2, a100, Host(4000, 64<<10)), two("n2")}, nil,
			[]*cluster.Job{part(1, 10, Cores(4000))}, at{1: "n2-00"}},
		// The head needs eight cores, seven are free. Its two cards are the first.
		{"cores of the head are kept from who stays longer", "firstfit", []*cluster.Node{Node("n1", 3, a100, Host(8000, 64<<10))}, func(s *scene) { s.runs(9, 80000, 1000, h, 0, "n1-00") },
			[]*cluster.Job{Job(1, GPUs(2), Cores(8000), Lasts(m), Waited(m)), Job(2, Exclusive, Cores(2000), Lasts(9*h))}, at{}},
		{"and not from who does not", "firstfit", []*cluster.Node{Node("n1", 3, a100, Host(8000, 64<<10))}, func(s *scene) { s.runs(9, 80000, 1000, h, 0, "n1-00") },
			[]*cluster.Job{Job(1, GPUs(2), Cores(8000), Lasts(m), Waited(m)), Job(2, Exclusive, Cores(2000), Lasts(m))}, at{2: "n1-01"}},
		// n1 is clear in an hour, n2 in half of one: that is kept, and n1 is not.
		{"room is kept where it is free first", "firstfit", []*cluster.Node{two("n1"), two("n2")},
			func(s *scene) { s.runs(8, 80000, 1000, h, 0, "n1-00").runs(9, 80000, 1000, 30*m, 0, "n2-00") },
			[]*cluster.Job{Job(1, GPUs(2), Lasts(m), Waited(m)), Job(2, Exclusive, Lasts(9*h))}, at{2: "n1-01"}},
	} {
		t.Run(c.policy+" "+c.name, func(t *testing.T) {
			t.Parallel()
			s := newScene(c.nodes...)
			if c.runs != nil {
				c.runs(s)
			}
			plan := must(t, c.policy, policies.Options{}).Plan(s.waits(c.waits...).snap(t))
			if d := cmp.Diff(c.want, startsOf(&plan)); d != "" {
				t.Errorf("starts (-want +got):\n%s", d)
			}
		})
	}
}

// TestQueueOfACardCounts: SchedTune adds who waits in the queue of a card to who runs
// there, whole.
func TestQueueOfACardCounts(t *testing.T) {
	t.Parallel()
	on := func(id cluster.JobID, big, little time.Duration) *cluster.Job {
		return Job(id, Predict(a100, 9000, 1000, big), Predict(t4, 9000, 900, little))
	}
	// The A100 is busy for 100 s more, and job 2 waits there for 50: job 3 would end
	// in 200 s there, and in 199 or 201 on the T4.
	for little, want := range map[time.Duration]at{199 * time.Second: {3: "n2-00"}, 201 * time.Second: {}} {
		s := newScene(Node("n1", 1, a100), Node("n2", 1, t4)).runs(1, 80000, 1000, 160*time.Second, time.Minute, "n1-00")
		stands := on(2, 50*time.Second, time.Hour)
		stands.Queue = "n1-00"
		s.waits(stands, on(3, 50*time.Second, little))
		plan := must(t, "schedtune", policies.Options{}).Plan(s.snap(t))
		if d := cmp.Diff(want, startsOf(&plan)); d != "" {
			t.Errorf("%s on the T4: starts (-want +got):\n%s", little, d)
		}
	}
}

// TestNobodyIsEndedInVain: who was chosen first is spared if the next frees enough.
func TestNobodyIsEndedInVain(t *testing.T) {
	t.Parallel()
	const m = time.Minute
	s := newScene(Node("n1", 4, a100)).runs(8, 80000, 1000, 500*m, 20*m, "n1-00").runs(9, 80000, 1000, 400*m, 20*m, "n1-01", "n1-02", "n1-03")
	snap := s.waits(Job(1, Exclusive, GPUs(3), Lasts(m))).snap(t)
	snap.Terms = map[cluster.JobID]dispatch.Terms{8: {Preemptible: true}, 9: {Preemptible: true}}
	plan := must(t, "slot", policies.Options{Order: "srtf"}).Plan(snap)
	var got []cluster.JobID
	for _, x := range plan.Preempt {
		got = append(got, x.Job)
	}
	if want := []cluster.JobID{9}; !slices.Equal(got, want) { // 8 has most left to do, but one card is not enough
		t.Errorf("ends %v, want %v", got, want)
	}
}
