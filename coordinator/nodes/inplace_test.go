package nodes

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/fsm"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

// TestNodesThatComeAndLeaveAreTold: a node that comes is told to start at once, one that is
// given up to save and to end, the others nothing; one that comes back is told anew, with
// another token.
func TestNodesThatComeAndLeaveAreTold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, Config{}, fsm.Options{})
		w, other := l.agent("n1"), l.agent("n2")
		sent := func(w *wire) (out []*nodev1.Assignment) {
			for _, m := range w.take() {
				out = append(out, m.GetDesired().GetAssignments()...)
			}
			return out
		}
		card := func(id cluster.NodeID) cluster.Berth {
			return cluster.Berth{Node: id, GPUs: []cluster.GPUShare{{GPU: cluster.GPUID(id + "-g0"), Share: cluster.Share{MemMiB: 9000, Milli: 100}}}}
		}
		id := l.submit(&cluster.Spec{Name: "j", Command: []string{"x"}, Dir: "/", GPUs: 1, Nodes: 1, NodeRange: cluster.NodeRange{Min: 1, Max: 2}, InPlace: true,
			Checkpoint: cluster.Checkpoint{Signal: "TERM", Grace: time.Minute}})
		l.start(dispatch.Start{Job: id, Attempt: 1, Port: 20_001, Berth: card("n1")})
		say := func(node cluster.NodeID, state cluster.JobState, ready bool) {
			a := l.job(id).Live()
			l.do(&logv1.Command{Kind: &logv1.Command_ReportAttempt{ReportAttempt: &logv1.ReportAttempt{
				Node: string(node), Job: uint64(id), Attempt: 1, Token: uint64(a.TokenOf(a.Rank(node))), State: uint32(state), Ready: ready,
			}}})
		}
		say("n1", cluster.JobStarting, true)
		say("n1", cluster.JobRunning, false)
		if as := sent(w); len(as) != 2 || as[0].Ranks.Go || !as[1].Ranks.Go || as[1].Ranks.Most != 2 || as[1].Ranks.Least != 1 || as[1].Ranks.MasterPort != 20_001 {
			t.Fatalf("the first node: %v", as)
		}
		sent(other)
		at, tokens := cluster.AttemptID{Job: id, No: 1}, map[uint64]bool{}
		for range 2 {
			l.do(conv.Grow(at, []cluster.Berth{card("n2")}, "idle"))
			as := sent(other)
			if len(as) != 1 || !as[0].Ranks.Go || as[0].Ranks.NodeRank != 1 || len(as[0].Ranks.Nodes) != 2 || as[0].Preempt != nil || tokens[as[0].Token] {
				t.Fatalf("a node that comes: %v", as)
			}
			tokens[as[0].Token] = true
			say("n2", cluster.JobRunning, false)
			l.do(conv.Shrink(at, []cluster.NodeID{"n2"}, 9, "job 9 waits"))
			if as := sent(other); len(as) != 1 || as[0].Preempt.GetSignal() != "TERM" || as[0].Preempt.Grace.AsDuration() != time.Minute || as[0].Stop {
				t.Errorf("one that is given up: %v", as)
			}
			say("n2", cluster.JobPreempted, false)
			if as := sent(other); len(as) != 0 {
				t.Errorf("one that left: %v", as)
			}
		}
		if as := sent(w); len(as) != 0 {
			t.Errorf("the first node meanwhile: %v", as)
		}
	})
}

// TestWhereTheyMeetStays: where nodes come and leave the first one is found at the same
// place whoever is there.
func TestWhereTheyMeetStays(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, Config{}, fsm.Options{})
		for node, addr := range map[string]string{"n1": "127.0.0.1", "n2": "10.0.0.2"} {
			h := helloOf(node)
			h.Address = addr
			l.dial("agent", node).hello(h)
		}
		one := &cluster.Attempt{Berth: cluster.Berth{Node: "n1"}, Gang: &cluster.Gang{Parts: make([]cluster.Part, 1)}}
		two := &cluster.Attempt{Berth: cluster.Berth{Node: "n1"}, Gang: &cluster.Gang{Rest: []cluster.Berth{{Node: "n2"}}, Parts: make([]cluster.Part, 2)}}
		s := &cluster.Spec{InPlace: true}
		if a, b := masterAddr(l.f, s, one), masterAddr(l.f, s, two); a != "n1" || b != a {
			t.Errorf("alone they meet at %q, then at %q", a, b)
		}
	})
}
