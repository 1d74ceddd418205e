package policies_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/scheduler"
	"github.com/berth-scheduler/berth/scheduler/policies"
	. "github.com/berth-scheduler/berth/scheduler/schedtest"
)

// siege is a stream of arrivals that never ends on nodes of four cards, and
// one victim in it.
type siege struct {
	nodes   int
	victim  func() *cluster.Job
	arrival func(id cluster.JobID) *cluster.Job
	each    time.Duration
	slower  int // how many times longer than predicted runs take
}

// hold returns how long the victim waited, or bound when it did not start
// before.
func (s *siege) hold(t *testing.T, p policies.Policy, bound time.Duration) time.Duration {
	t.Helper()
	const victim = 40
	var nodes []*cluster.Node
	for i := range s.nodes {
		nodes = append(nodes, Node(cluster.NodeID(fmt.Sprintf("n%d", i)), 4, a100))
	}
	w := NewWorld(nodes)
	w.Runs = func(j *cluster.Job) time.Duration { return j.Spec.Duration * time.Duration(max(1, s.slower)) }
	var began cluster.Time
	for id := cluster.JobID(1); ; id++ {
		w.Advance(s.each)
		j := s.arrival(id)
		if id == victim {
			j, began = s.victim(), w.Clock
		}
		j.ID, j.Eligible, j.Submitted = id, w.Clock, w.Clock
		w.Submit(j)
		w.Apply(new(p.Plan(w.Snapshot())))
		if len(w.Rejected) > 0 {
			t.Fatalf("rejected: %v", w.Rejected)
		}
		if id < victim {
			continue
		}
		if j, _ := w.Job(victim); !j.State.Waiting() {
			return w.Clock.Sub(began)
		}
		if w.Clock.Sub(began) >= bound {
			return bound
		}
	}
}

// sieges never let the four cards be empty at once: jobs for one whole card
// that keep them busy to 96 %, shares that would to 78 % were each alone, and
// shares that take twice as long as predicted and would to 88 %, and whole
// cards of three nodes, to 91 %, that take twice as long too. Gangs over two and
// three nodes wait among such.
func sieges() map[string]siege {
	gang := func(opts ...JobOption) func() *cluster.Job {
		return func() *cluster.Job { return Job(0, append(opts, GPUs(4), Exclusive, Lasts(time.Hour))...) }
	}
	return map[string]siege{
		"whole cards": {1, gang(), func(cluster.JobID) *cluster.Job { return Job(0, Exclusive, Lasts(10*time.Minute)) }, 156 * time.Second, 1},
		"shares": {1, gang(), func(id cluster.JobID) *cluster.Job {
			return part(0, 20+10*int64(id%3), Lasts(time.Duration(20+5*(id%3))*time.Minute))
		}, 8 * time.Minute, 1},
		"predictions too short": {1, gang(), func(id cluster.JobID) *cluster.Job {
			return part(0, 20+10*int64(id%3), Lasts(time.Duration(10+5*(id%3))*time.Minute))
		}, 510 * time.Second, 2},
		"predictions too short, many nodes": {3, gang(), func(id cluster.JobID) *cluster.Job {
			return Job(0, Exclusive, Lasts(time.Duration(5+5*(id%3))*time.Minute))
		}, 110 * time.Second, 2},
		"over two nodes": {3, gang(Nodes(2)), func(id cluster.JobID) *cluster.Job {
			return Job(0, Exclusive, Lasts(time.Duration(5+5*(id%3))*time.Minute))
		}, 55 * time.Second, 1},
		"over three nodes, shares, predictions too short": {3, gang(Nodes(3)), func(id cluster.JobID) *cluster.Job {
			return part(0, 20+10*int64(id%3), Lasts(time.Duration(10+5*(id%3))*time.Minute))
		}, 170 * time.Second, 2},
		"whole nodes": {2, gang(Nodes(2), func(j *cluster.Job) { j.Spec.Where = &cluster.Where{Whole: true} }), func(cluster.JobID) *cluster.Job {
			return Job(0, Exclusive, Lasts(10*time.Minute))
		}, 78 * time.Second, 1},
	}
}

// TestNobodyStarves: what claims it, holds it. The claim is that a job that is
// first starts at the latest HoldAge and the longest run after it came; and it
// is first when those are gone that came before, and in orders other than fifo
// after Age. Here few are older, and no run takes longer than 40 minutes.
func TestNobodyStarves(t *testing.T) {
	t.Parallel()
	const bound = 3 * time.Hour
	base := scheduler.Default() // the scheduler's own passes have their own age
	base.FIFOAge = time.Hour
	ps := all(t, policies.Options{Base: base, Age: time.Hour, HoldAge: time.Hour})
	for _, n := range policies.Names() {
		ps = append(ps, must(t, n, policies.Options{Base: base, Order: "fifo", HoldAge: time.Hour}))
	}
	for name, s := range sieges() {
		for _, p := range ps {
			t.Run(name+"/"+p.Name(), func(t *testing.T) {
				t.Parallel()
				if got := s.hold(t, p, bound); got >= bound {
					t.Errorf("the gang still waits after %s", got)
				}
			})
		}
	}
}

// TestSomeStarve shows that the siege can starve: without Age these orders
// make no claim, and the stream of short jobs goes before the long one for as
// long as it lasts.
func TestSomeStarve(t *testing.T) {
	t.Parallel()
	const bound = 12 * time.Hour
	s := sieges()["whole cards"]
	s.each = 145 * time.Second // 103 %
	for _, order := range []string{"sjf", "qssf", "srtf", "srsf"} {
		t.Run(order, func(t *testing.T) {
			t.Parallel()
			if got := s.hold(t, must(t, "firstfit", policies.Options{Order: order}), bound); got < bound {
				t.Errorf("started after %s: the siege cannot show anything", got)
			}
			if got := s.hold(t, must(t, "firstfit", policies.Options{Order: order, Age: time.Hour}), bound); got >= bound {
				t.Errorf("with Age it still waits after %s", got)
			}
		})
	}
}

// TestGangsOverNodesCouldStarve shows that the sieges of gangs over nodes can
// starve: where everybody passes who fits, the stream goes before them.
func TestGangsOverNodesCouldStarve(t *testing.T) {
	t.Parallel()
	const bound = 12 * time.Hour
	for _, name := range []string{"over two nodes", "over three nodes, shares, predictions too short", "whole nodes"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := sieges()[name]
			if got := s.hold(t, must(t, "firstfit", policies.Options{Backfill: policies.BackfillAny}), bound); got < bound {
				t.Errorf("started after %s: the siege cannot show anything", got)
			}
		})
	}
}

// TestReservationHolds: who passes the first that does not fit is gone when
// its cards are free, and after HoldAge nobody passes.
func TestReservationHolds(t *testing.T) {
	t.Parallel()
	// Job 1 leaves one card in 30 minutes; the gang is first.
	for _, name := range policies.Names() {
		if name == "ffd" || name == "slot" || name == "schedtune" {
			continue // they have queues of their own
		}
		for _, c := range []struct {
			lasts time.Duration
			ago   time.Duration
			want  bool
		}{
			{29 * time.Minute, 0, true}, {31 * time.Minute, 0, false},
			{29 * time.Minute, 20 * time.Minute, false}, // HoldAge: nobody passes any more
		} {
			p := must(t, name, policies.Options{Order: "fifo", HoldAge: 20 * time.Minute})
			for what, free := range map[string]string{"on one node": "n1-01", "over two nodes": "n2-00"} {
				nodes := []*cluster.Node{Node("n1", 2, a100)}
				gang := Job(2, GPUs(2), Lasts(time.Hour), Waited(c.ago+time.Second))
				if free == "n2-00" {
					nodes = []*cluster.Node{Node("n1", 1, a100), Node("n2", 1, a100)}
					gang.Spec.GPUs, gang.Spec.Nodes = 1, 2
				}
				s := newScene(nodes...).runs(1, 80000, 1000, time.Hour, 30*time.Minute, "n1-00")
				s.waits(gang, Job(3, Exclusive, Lasts(c.lasts)))
				plan := p.Plan(s.snap(t))
				if got := startsOf(&plan)[3] == free; got != c.want {
					t.Errorf("%s: who runs for %s beside a gang %s that waits %s starts: %t, want %t", name, c.lasts, what, c.ago, got, c.want)
				}
			}
		}
	}
}
