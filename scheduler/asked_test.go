package scheduler_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler"
	"github.com/berth-scheduler/berth/scheduler/rules"
	. "github.com/berth-scheduler/berth/scheduler/schedtest"
)

func has(features ...string) NodeOption {
	return func(n *cluster.Node) { n.Features = features }
}

func needs(expression string) JobOption {
	return where(func(w *cluster.Where) {
		f, err := cluster.ParseFeatures(expression)
		if err != nil {
			panic(err)
		}
		w.Features = f
	})
}

func named(list string) JobOption {
	return where(func(w *cluster.Where) { w.Nodes = hosts(list) })
}

// TestEachOnTheNodesItAsksFor: any number of sets of nodes that are asked for, also
// more than a pass makes realms of: each job starts on a node of its own set.
func TestEachOnTheNodesItAsksFor(t *testing.T) {
	t.Parallel()
	for _, sets := range []int{1, 15, 16, 17, 40} {
		t.Run(fmt.Sprint(sets), func(t *testing.T) {
			t.Parallel()
			var nodes []*cluster.Node
			var jobs []*cluster.Job
			for i := range sets {
				id := cluster.NodeID(fmt.Sprintf("n%02d", i))
				nodes = append(nodes, Node(id, 1, a100, has(fmt.Sprintf("f%d", i))))
				// The last asks for the first node, so that first fit alone would fail.
				jobs = append(jobs, Job(cluster.JobID(i+1), Exclusive, Lasts(time.Hour), needs(fmt.Sprintf("f%d", sets-1-i))))
			}
			jobs = append(jobs, Job(99, GPUs(0), named("n00")))
			w := NewWorld(nodes, jobs...)
			p := scheduler.Schedule(w.Snapshot(), scheduler.Default())
			got := map[cluster.JobID]cluster.NodeID{}
			for _, st := range p.Starts {
				got[st.Job] = st.Berth.Node
			}
			for i := range sets {
				if want := cluster.NodeID(fmt.Sprintf("n%02d", sets-1-i)); got[cluster.JobID(i+1)] != want {
					t.Errorf("job %d is on %q, want %s: %v", i+1, got[cluster.JobID(i+1)], want, p.Unplaced)
				}
			}
			if got[99] != "n00" {
				t.Errorf("the job without GPUs is on %q, want n00", got[99])
			}
		})
	}
}

// TestWhyNotWhere: what a plan and a refusal say of a job for which no node will do.
func TestWhyNotWhere(t *testing.T) {
	t.Parallel()
	const h = time.Hour
	nodes := func() []*cluster.Node {
		return []*cluster.Node{Node("n1", 1, a100, has("fast", "big")), Node("n2", 1, a100, has("fast"))}
	}
	for _, c := range []struct {
		name  string
		job   *cluster.Job
		snap  func(*dispatch.Snapshot)
		never string // of a refusal, "" for none
		code  cluster.ReasonCode
		says  string
	}{
		{"a node that is not there", Job(1, named("n9")), nil, "no node of n9 is registered", cluster.ReasonWhere, ""},
		{"a feature that nobody has", Job(1, needs("huge")), nil, "no node has the features huge; there are big, fast", cluster.ReasonWhere, ""},
		{"features that nobody has at once", Job(1, needs("fast&big"), where(func(w *cluster.Where) { w.Exclude = hosts("n1") })), nil, "all at once; there are big, fast", cluster.ReasonWhere, ""},
		{"all are excluded", Job(1, where(func(w *cluster.Where) { w.Exclude = hosts("n[1-2]") })), nil, "all nodes are excluded (n[1-2])", cluster.ReasonWhere, ""},
		{"a reservation that is not there", Job(1, inside("r")), nil, "", cluster.ReasonReservationGone, "reservation r is not there any more"},
		{"one that is not for it", Job(1, inside("r"), Of(8, 8)), reserve("r", "n1", -h, 2*h), "", cluster.ReasonReservationDenied, ""},
		{"one that is not open", Job(1, inside("r"), Of(7, 7)), reserve("r", "n1", h, h), "", cluster.ReasonReservation, ""},
		{"one that keeps it out of all", Job(1, Limit(h)), reserve("r", "n[1-2]", -h, 2*h), "", cluster.ReasonReservation, "node n1: "},
		{"and of all cores", Job(1, GPUs(0), Limit(h)), reserve("r", "n[1-2]", -h, 2*h), "", cluster.ReasonReservation, "node n1: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			sc := scene{nodes: nodes(), waits: []*cluster.Job{c.job}, snap: c.snap}
			p := sc.plan(t)
			if len(p.Starts) > 0 || len(p.Unplaced) != 1 || p.Unplaced[0].Reason.Code != c.code || !strings.Contains(p.Unplaced[0].Reason.Detail, c.says) {
				t.Errorf("%q, left out by %v, want %s: %q", brief(&p), p.Unplaced, c.code, c.says)
			}
			err := rules.NeverFits(nodes(), c.job, scheduler.Default())
			if c.never == "" && err != nil || c.never != "" && (err == nil || !strings.Contains(err.Msg, c.never)) {
				t.Errorf("refused by %v, want %q", err, c.never)
			}
		})
	}
}

// TestOneHeadForEvery64Cards: of those who wait for a while the first of a pass has
// cards kept for it, and one more for every 64 cards that there are.
func TestOneHeadForEvery64Cards(t *testing.T) {
	t.Parallel()
	const m, h = time.Minute, time.Hour
	for second, want := range map[int]string{31: "kept for one", 32: "kept for both"} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			nodes := []*cluster.Node{Node("n1", 32, a100), Node("n2", second, a100)}
			sc := scene{nodes: nodes, runs: []lies{held(0, "n1-00", 30*m), held(1, "n2-00", 30*m)}, waits: []*cluster.Job{
				Job(1, Exclusive, GPUs(32), Lasts(time.Second), Waited(m), queued("n1-00", 30*m)),
				Job(2, Exclusive, GPUs(second), On("n2"), Lasts(2*time.Second), Waited(m), queued("n2-00", 30*m)),
				Job(3, Exclusive, Lasts(100*h), On("n1")), Job(4, Exclusive, Lasts(100*h), On("n2")), Job(5, Exclusive, Lasts(20*m), On("n2")),
			}, pol: func(p *scheduler.Policy) { p.MaxMoves, p.MaxRebalance, p.ShortPart, p.LongPart = 0, 0, 0, 0 }}
			p := sc.plan(t)
			got := map[cluster.JobID]bool{}
			for _, st := range p.Starts {
				got[st.Job] = true
			}
			if got[3] || got[4] != (second == 31) || !got[5] {
				t.Errorf("with %d cards start %q", 32+second, brief(&p))
			}
		})
	}
}

// TestAgeOfAPassHoldsForEachKind: whatever a job wants, it goes first once it is old,
// and before that what is short goes before it.
func TestAgeOfAPassHoldsForEachKind(t *testing.T) {
	t.Parallel()
	const m, h = time.Minute, time.Hour
	kinds := map[string]func(...JobOption) *cluster.Job{
		"a card":       func(o ...JobOption) *cluster.Job { return Job(1, Exclusive, Lasts(50*h), attached(o...)) },
		"all cards":    func(o ...JobOption) *cluster.Job { return Job(1, Exclusive, GPUs(2), Lasts(50*h), attached(o...)) },
		"a share":      func(o ...JobOption) *cluster.Job { return Job(1, Mem(60_000), Util(900), Lasts(50*h), attached(o...)) },
		"a whole node": func(o ...JobOption) *cluster.Job { return Job(1, Lasts(50*h), where(wholeNodes), attached(o...)) },
		"cores as well": func(o ...JobOption) *cluster.Job {
			return Job(1, Exclusive, Cores(60_000), Lasts(50*h), attached(o...))
		},
	}
	for name, make := range kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for waited, first := range map[time.Duration]bool{4*h - time.Microsecond: false, 4 * h: true} {
				waits := []*cluster.Job{make(Waited(waited))}
				for id := cluster.JobID(2); id <= 7; id++ { // more than the node holds
					waits = append(waits, Job(id, Exclusive, Cores(20_000), Lasts(m)))
				}
				sc := scene{nodes: []*cluster.Node{Node("n1", 2, a100)}, waits: waits,
					pol: func(p *scheduler.Policy) { p.OldDrains, p.MaxMoves, p.ShortPart, p.LongPart = 0, 0, 0, 0 }}
				p := sc.plan(t)
				if len(p.Starts) == 0 || (p.Starts[0].Job == 1) != first {
					t.Errorf("after %s starts %q; the old one first: want %t", waited, brief(&p), first)
				}
			}
		})
	}
}
