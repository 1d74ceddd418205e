package nodes

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/coordinator/roles"
	"github.com/berth-scheduler/berth/fsm"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

// TestWhoMayOpenASession: the certificate says which node it is, and a session begins
// with hello.
func TestWhoMayOpenASession(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		role, id string
		first    *nodev1.SessionRequest
		want     string
	}{
		"a user":             {"user", "n1", nil, "sessions are for agents"},
		"a coordinator":      {roles.Coordinator, "n1", nil, "sessions are for agents"},
		"reports first":      {roles.Agent, "n1", &nodev1.SessionRequest{Kind: &nodev1.SessionRequest_Reports{Reports: &nodev1.Reports{}}}, "begins with hello"},
		"another one's name": {roles.Agent, "n2", &nodev1.SessionRequest{Kind: &nodev1.SessionRequest_Hello{Hello: helloOf("n1")}}, `certificate is of node "n2"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := newLab(t, Config{}, fsm.Options{})
				w := l.dial(c.role, c.id)
				if c.first != nil {
					w.say(c.first)
				}
				if err, over := w.ended(); !over || err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("it ended with %v, want %q", err, c.want)
				}
				if len(l.f.Nodes()) != 0 {
					t.Errorf("somebody is registered: %v", l.f.Nodes())
				}
			})
		})
	}
}

// TestALaterHelloIsOfTheSameNode: a session that says to be another node later ends, and
// nothing of that node changes.
func TestALaterHelloIsOfTheSameNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, Config{}, fsm.Options{})
		l.agent("n1")
		w := l.agent("n2")
		before := l.f.Hash()
		h := helloOf("n1")
		h.BootId = "boot-2"
		w.hello(h)
		if err, over := w.ended(); !over || err == nil || !strings.Contains(err.Error(), `says "n1"`) {
			t.Errorf("the session ended: %t, %v", over, err)
		}
		if string(before) != string(l.f.Hash()) {
			t.Error("the state has changed")
		}
	})
}

// TestSessionsEndWithTheirFence: each way in which a node is no longer the one that
// registered ends its session at the next sign of life, which renews no lease, and a
// new one makes it ready.
func TestSessionsEndWithTheirFence(t *testing.T) {
	t.Parallel()
	state := func(s cluster.NodeState) *logv1.Command {
		return &logv1.Command{Kind: &logv1.Command_SetNodeState{SetNodeState: &logv1.SetNodeState{Node: "n1", State: uint32(s), BootId: "boot-1"}}}
	}
	for name, cmds := range map[string][]*logv1.Command{
		"it was silent":                  {state(cluster.NodeUnreachable)},
		"it was fenced while silent":     {state(cluster.NodeUnreachable), {Kind: &logv1.Command_FenceNode{FenceNode: &logv1.FenceNode{Node: "n1", By: 1}}}},
		"somebody else registered since": {state(cluster.NodeUnreachable), {Kind: &logv1.Command_FenceNode{FenceNode: &logv1.FenceNode{Node: "n1", By: 1}}}, nil},
		"it was removed":                 {state(cluster.NodeUnreachable), {Kind: &logv1.Command_RemoveNode{RemoveNode: &logv1.RemoveNode{Node: "n1"}}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := newLab(t, Config{}, fsm.Options{})
				w := l.agent("n1")
				w.beat(&nodev1.Heartbeat{Sequence: 1})
				at, _ := l.n.live.last("n1")
				for _, c := range cmds {
					if c == nil {
						n := *l.node("n1")
						n.State = cluster.NodeReady
						c = &logv1.Command{Kind: &logv1.Command_RegisterNode{RegisterNode: &logv1.RegisterNode{Node: conv.NodeToLog(&n)}}}
					}
					l.do(c)
				}
				w.take()
				time.Sleep(time.Second)
				w.beat(&nodev1.Heartbeat{Sequence: 2})
				if err, over := w.ended(); !over || err == nil {
					t.Fatalf("the session goes on, or ended with %v", err)
				}
				for _, m := range w.take() {
					if m.GetLeaseGranted() != nil {
						t.Error("its lease was renewed")
					}
				}
				if now, _ := l.n.live.last("n1"); now != at {
					t.Error("it counts as heard")
				}
				w = l.agent("n1")
				if name == "it was removed" { // its certificate is denied
					if _, over := w.ended(); !over || len(l.f.Nodes()) != 0 {
						t.Errorf("it is back: over %t, %v", over, l.f.Nodes())
					}
					return
				}
				w.beat(&nodev1.Heartbeat{Sequence: 1})
				if _, over := w.ended(); over || l.node("n1").State != cluster.NodeReady {
					t.Errorf("it came anew: over %t, %s", over, l.node("n1").State)
				}
			})
		})
	}
}

// TestLeasesAreGranted: each sign of life is answered by its own number.
func TestLeasesAreGranted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, Config{Lease: 45 * time.Second}, fsm.Options{})
		w := l.agent("n1")
		w.take()
		for seq := uint64(5); seq < 8; seq++ {
			time.Sleep(time.Second)
			w.beat(&nodev1.Heartbeat{Sequence: seq, Gpus: []*nodev1.GPUUsage{{Uuid: "n1-g0", UsedMib: int64(seq)}, {Uuid: "n9-g0", UsedMib: 1}}})
			ms := w.take()
			if len(ms) != 1 || ms[0].GetLeaseGranted().GetSequence() != seq || ms[0].GetLeaseGranted().GetLease().AsDuration() != 45*time.Second {
				t.Errorf("%d is answered by %v", seq, ms)
			}
			at, gpus := l.n.live.last("n1")
			if !at.Equal(time.Now()) || len(gpus) != 1 || gpus["n1-g0"].UsedMib != int64(seq) {
				t.Errorf("heard at %s of %v", at, gpus)
			}
			delete(gpus, "n1-g0") // what was handed out is the caller's
		}
		w.beat(&nodev1.Heartbeat{Sequence: 9, Gpus: []*nodev1.GPUUsage{{Uuid: "n1-g2", UsedMib: 5}}})
		if _, gpus := l.n.live.last("n1"); len(gpus) != 2 {
			t.Errorf("of a card that says nothing this time its last word is forgotten: %v", gpus)
		}
		h := helloOf("n1")
		h.Gpus = h.Gpus[1:]
		w.hello(h)
		w.beat(&nodev1.Heartbeat{Sequence: 10, Gpus: []*nodev1.GPUUsage{{Uuid: "n1-g1", UsedMib: 6}}})
		if _, gpus := l.n.live.last("n1"); len(gpus) != 2 || gpus["n1-g0"] != nil {
			t.Errorf("of a card that is gone its last word stays: %v", gpus)
		}
	})
}

// TestReportsAreAcknowledged: each by its own token and state, refused ones too, once
// they are committed; what cannot be measured is said; a drain comes before the ends.
func TestReportsAreAcknowledged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, Config{}, fsm.Options{})
		w := l.agent("n1")
		var ids []cluster.JobID
		for i := range 3 {
			id := l.submit(&cluster.Spec{Name: "j", Command: []string{"x"}, Dir: "/", GPUs: 1, Signature: "s"})
			ids = append(ids, id)
			l.start(dispatch.Start{Job: id, Attempt: 1, Berth: cluster.Berth{Node: "n1", GPUs: []cluster.GPUShare{
				{GPU: cluster.GPUID(fmt.Sprintf("n1-g%d", i)), Share: cluster.Share{MemMiB: 100, Milli: 10}}}}})
		}
		of := func(i int, s nodev1.AttemptState) *nodev1.Report {
			return &nodev1.Report{Job: uint64(ids[i]), Attempt: 1, Token: uint64(l.job(ids[i]).Live().Token), State: s}
		}
		rs := []*nodev1.Report{
			of(0, nodev1.AttemptState_ATTEMPT_STATE_RUNNING), of(1, nodev1.AttemptState_ATTEMPT_STATE_COMPLETED),
			{Job: 999, Attempt: 4, Token: 77, State: nodev1.AttemptState_ATTEMPT_STATE_FAILED},
			of(2, nodev1.AttemptState_ATTEMPT_STATE_FAILED),
		}
		w.report(of(1, nodev1.AttemptState_ATTEMPT_STATE_RUNNING))
		w.take()
		rs[1].Usage, rs[1].Exit = &nodev1.Usage{GpuMemPeakMib: -5, GpuMilli: 5}, &nodev1.Exit{}
		rs[3].Drain, rs[3].Exit = strings.Repeat("ü", 200), &nodev1.Exit{Code: 2}
		var drained []bool // when jobs ended, whether the node took no more by then
		l.raft.applied = append(l.raft.applied, func() {
			if j, ok := l.f.Job(ids[2]); ok && j.State.Terminal() {
				n, _ := l.f.Node("n1")
				drained = append(drained, n.Drain)
			}
		})
		w.report(rs...)
		var acks []*nodev1.Ack
		for _, m := range w.take() {
			acks = append(acks, m.GetAcks().GetAcks()...)
		}
		if len(acks) != len(rs) {
			t.Fatalf("%d of %d reports are acknowledged: %v", len(acks), len(rs), acks)
		}
		for i, k := range acks {
			if k.Job != rs[i].Job || k.Attempt != rs[i].Attempt || k.Token != rs[i].Token || k.State != rs[i].State {
				t.Errorf("report %d: %v, want %v", i, k, rs[i])
			}
		}
		if a, b, c := l.job(ids[0]).State, l.job(ids[1]).State, l.job(ids[2]).State; a != cluster.JobRunning || b != cluster.JobCompleted || c != cluster.JobFailed {
			t.Errorf("jobs are %s, %s, %s", a, b, c)
		}
		n := l.node("n1")
		if !n.Drain || len(n.DrainReason) > MaxReason || !strings.HasPrefix(n.DrainReason, "üüü") || strings.ContainsRune(n.DrainReason, '�') {
			t.Errorf("drained: %t, %q", n.Drain, n.DrainReason)
		}
		if len(drained) == 0 || !drained[0] {
			t.Error("the end was there before the node took no more jobs")
		}
		if l.absurd != 1 {
			t.Errorf("%d figures that cannot be, want 1", l.absurd)
		}
		// An administrator's reason stays.
		l.do(&logv1.Command{Kind: &logv1.Command_DrainNode{DrainNode: &logv1.DrainNode{Node: "n1", Drain: true, Reason: "new fans"}}})
		r := of(0, nodev1.AttemptState_ATTEMPT_STATE_FAILED)
		r.Drain, r.Exit = "epilog failed", &nodev1.Exit{Code: 1}
		w.report(r)
		if n := l.node("n1"); n.DrainReason != "new fans" {
			t.Errorf("the reason is %q now", n.DrainReason)
		}
	})
}

// TestProgressAtTheEnd: how far an attempt says that it was when it ended is kept, of
// the present attempt, from its own node, and never less than before.
func TestProgressAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, Config{}, fsm.Options{})
		w, other := l.agent("n1"), l.agent("n2")
		id := l.submit(&cluster.Spec{Name: "j", Command: []string{"x"}, Dir: "/"})
		l.start(dispatch.Start{Job: id, Attempt: 1, Berth: cluster.Berth{Node: "n1", CPUMilli: 100, MemMiB: 10}})
		w.report(&nodev1.Report{Job: uint64(id), Attempt: 1, Token: uint64(l.job(id).Live().Token), State: nodev1.AttemptState_ATTEMPT_STATE_RUNNING})
		say := func(from *wire, no uint32, steps, of int64) int64 {
			from.report(&nodev1.Report{Job: uint64(id), Attempt: no, Token: uint64(l.job(id).Live().Token), State: nodev1.AttemptState_ATTEMPT_STATE_RUNNING,
				Steps: &nodev1.Steps{Step: steps, Total: of}})
			if p := l.job(id).Live().Progress; p != nil {
				return p.Step
			}
			return -1
		}
		for _, c := range []struct {
			what      string
			from      *wire
			no        uint32
			say, want int64
		}{
			{"another node", other, 1, 7, -1}, {"another attempt", w, 2, 8, -1}, {"its own", w, 1, 10, 10},
			{"less", w, 1, 9, 10}, {"the same", w, 1, 10, 10}, {"more", w, 1, 30, 30}, {"another node again", other, 1, 90, 30},
		} {
			if got := say(c.from, c.no, c.say, 100); got != c.want {
				t.Errorf("%s says %d: it is at %d, want %d", c.what, c.say, got, c.want)
			}
		}
	})
}

// TestSessionsAreOfATerm: when the term ends so does the session, and says so; what is
// in the state stays.
func TestSessionsAreOfATerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, Config{}, fsm.Options{})
		w := l.agent("n1")
		l.leave()
		if err, over := w.ended(); !over || err == nil || !strings.Contains(err.Error(), "no longer leads") {
			t.Errorf("over %t, %v", over, err)
		}
		if l.node("n1").State != cluster.NodeReady {
			t.Error("the node is not ready any more")
		}
	})
}

// TestResumesAreTold: which cards an administrator resumed is sent with each set, and
// at once when it is news.
func TestResumesAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, Config{}, fsm.Options{})
		w := l.agent("n1")
		resumes := func() (sets int, uuids []string) {
			for _, m := range w.take() {
				if d := m.GetDesired(); d != nil {
					sets++
					uuids = nil
					for _, r := range d.Resumes {
						uuids = append(uuids, r.Uuid)
					}
				}
			}
			slices.Sort(uuids)
			return sets, uuids
		}
		resumes()
		gpu := func(id string, drain bool) {
			l.do(&logv1.Command{Kind: &logv1.Command_DrainGpu{DrainGpu: &logv1.DrainGPU{Node: "n1", Gpu: id, Drain: drain, Reason: "look"}}})
		}
		gpu("n1-g1", true)
		if sets, us := resumes(); sets != 0 {
			t.Errorf("a drain alone: %d sets, %v", sets, us)
		}
		gpu("n1-g1", false)
		if sets, us := resumes(); sets != 1 || !slices.Equal(us, []string{"n1-g1"}) {
			t.Errorf("resumed: %d sets, %v", sets, us)
		}
		l.do(&logv1.Command{Kind: &logv1.Command_DrainNode{DrainNode: &logv1.DrainNode{Node: "n1", Drain: true, Reason: "x"}}})
		if sets, us := resumes(); sets != 0 {
			t.Errorf("it is told again: %d sets, %v", sets, us)
		}
		gpu("n1-g2", true)
		gpu("n1-g2", false)
		if sets, us := resumes(); sets != 1 || !slices.Equal(us, []string{"n1-g1", "n1-g2"}) {
			t.Errorf("another one: %d sets, %v", sets, us)
		}
		w.cut()
		w = l.agent("n1")
		if sets, us := resumes(); sets != 1 || len(us) != 2 {
			t.Errorf("a new session: %d sets, %v", sets, us)
		}
	})
}

// TestASessionThatSaysHelloAgain goes on, though its node was given up meanwhile: by the
// fence that it registered by then.
func TestASessionThatSaysHelloAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, Config{}, fsm.Options{})
		w := l.agent("n1")
		for range 2 { // the first fence is none
			was := l.node("n1").Fence
			l.do(&logv1.Command{Kind: &logv1.Command_SetNodeState{SetNodeState: &logv1.SetNodeState{Node: "n1", State: uint32(cluster.NodeUnreachable), BootId: "boot-1"}}})
			l.do(&logv1.Command{Kind: &logv1.Command_FenceNode{FenceNode: &logv1.FenceNode{Node: "n1", By: 1}}})
			w.hello(helloOf("n1"))
			w.beat(&nodev1.Heartbeat{Sequence: 1})
			n := l.node("n1")
			if err, over := w.ended(); over || n.State != cluster.NodeReady || n.Fence == was {
				t.Fatalf("over %t (%v), %s, fence %d after %d", over, err, n.State, n.Fence, was)
			}
		}
	})
}

// TestWhatAgentsCannotIsNotSent: jobs of several processes go to agents that know what
// those are; sessions are told the limit of their partition, and shares that are cut or
// grow are told by themselves.
func TestWhatAgentsCannotIsNotSent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, Config{}, fsm.Options{})
		old := helloOf("n1")
		old.Gangs = false
		w, other := l.dial(roles.Agent, "n1"), l.agent("n2")
		w.hello(old)
		all, _ := cluster.ParseHostList("n[1-2]")
		l.do(&logv1.Command{Kind: &logv1.Command_SetPartition{SetPartition: &logv1.SetPartition{Partition: conv.PartitionToLog(&cluster.Partition{Name: "p", Nodes: all, SessionIdle: 7 * time.Minute, Power: cluster.GPUPower{Cap: "70%", Freq: "low"}, Idle: cluster.IdlePolicy{BelowMilli: 50, Window: time.Minute, Shrink: time.Hour}})}}})
		sent := func(w *wire) (out []*nodev1.Assignment) {
			for _, m := range w.take() {
				out = append(out, m.GetDesired().GetAssignments()...)
			}
			return out
		}
		sent(w)
		sent(other)
		two := l.submit(&cluster.Spec{Name: "j", Command: []string{"x"}, Dir: "/", Nodes: 2})
		l.start(dispatch.Start{Job: two, Attempt: 1, Berth: cluster.Berth{Node: "n1", CPUMilli: 1, MemMiB: 1}, Rest: []cluster.Berth{{Node: "n2", CPUMilli: 1, MemMiB: 1}}})
		if a, b := sent(w), sent(other); len(a) != 0 || len(b) != 1 || b[0].Ranks.NodeRank != 1 {
			t.Errorf("an agent that knows no ranks is sent %v, another %v", a, b)
		}
		one := func(part string) cluster.JobID {
			id := l.submit(&cluster.Spec{Name: "j", Command: []string{"x"}, Dir: "/", GPUs: 1, Partition: part, Checkpoint: cluster.Checkpoint{Signal: "USR1", Grace: time.Minute}})
			l.start(dispatch.Start{Job: id, Attempt: 1, Berth: cluster.Berth{Node: "n1", GPUs: []cluster.GPUShare{{GPU: "n1-g0", Share: cluster.Share{MemMiB: 9000, Milli: 100}}}}})
			l.do(&logv1.Command{Kind: &logv1.Command_ReportAttempt{ReportAttempt: &logv1.ReportAttempt{Node: "n1", Job: uint64(id), Attempt: 1, Token: uint64(l.job(id).Live().Token), State: uint32(cluster.JobRunning)}}})
			return id
		}
		one("")
		if as := sent(w); len(as) != 1 || as[0].SessionIdle != nil {
			t.Errorf("in no partition: %v", as)
		}
		id := one("p")
		if as := sent(w); len(as) != 1 || as[0].SessionIdle.AsDuration() != 7*time.Minute {
			t.Errorf("in a partition whose sessions may stand idle for 7 min: %v", as)
		}
		at := cluster.AttemptID{Job: id, No: 1}
		for _, mib := range []int64{5000, 7000, 9000} { // cut, grown, whole again
			l.do(conv.Resize(at, []cluster.GPUShare{{GPU: "n1-g0", Share: cluster.Share{MemMiB: mib, Milli: 100}}}))
			if as := sent(w); len(as) != 1 || as[0].Gpus[0].MemMib != mib || as[0].Gpus[0].GrantedMib != 9000 && mib != 9000 {
				t.Errorf("at %d MiB: %v", mib, as)
			}
		}
		l.do(&logv1.Command{Kind: &logv1.Command_IdleAttempt{IdleAttempt: &logv1.IdleAttempt{Job: uint64(id), Attempt: 1, Stage: uint32(cluster.IdleShrunk), Why: "x",
			Berth: conv.BerthToLog(&cluster.Berth{Node: "n1", GPUs: []cluster.GPUShare{{GPU: "n1-g0", Share: cluster.Share{MemMiB: 400, Milli: 10}}}})}}})
		if as := sent(w); len(as) != 1 || as[0].Gpus[0].MemMib != 400 {
			t.Errorf("cut since it stands idle: %v", as)
		}
	})
}
