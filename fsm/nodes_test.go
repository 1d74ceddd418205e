package fsm

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

func TestRegister(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	n := node("n1", "boot1", 2)
	m.must(registerCmd(n))
	first := m.now
	want := *n
	want.Revision, want.Registered, want.Changed = 1, first, first
	want.History = []cluster.NodeEvent{{At: first, Kind: cluster.EventRegistered}}
	got, ok := m.f.Node("n1")
	if d := cmp.Diff(&want, got); d != "" || !ok {
		t.Fatal(d)
	}
	m.must(drainCmd("n1", true))
	n.Version = "2"
	m.must(registerCmd(n))
	got, _ = m.f.Node("n1")
	if got.Registered != first || got.Changed != m.now || !got.Drain || got.DrainReason != "new fans" || got.Version != "2" {
		t.Errorf("registering again forgot something: %+v", got)
	}
}

func TestRegisterRefuses(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		before func(m *machine)
		node   func() *cluster.Node
		want   cluster.Code
	}{
		{"no name", nil, func() *cluster.Node { return node("", "b", 1) }, cluster.CodeInvalid},
		{"a name too long to be denied", nil, func() *cluster.Node { return node(cluster.NodeID(strings.Repeat("n", maxIdentity)), "b", 1) }, cluster.CodeInvalid},
		{"negative memory", nil, func() *cluster.Node { n := node("n3", "b", 1); n.MemMiB = -1; return n }, cluster.CodeInvalid},
		{"a GPU twice", nil, func() *cluster.Node { n := node("n3", "b", 2); n.GPUs[1].ID = n.GPUs[0].ID; return n }, cluster.CodeInvalid},
		{"a GPU that sells less than nothing", nil, func() *cluster.Node { n := node("n3", "b", 1); n.GPUs[0].SellableMiB = -1; return n }, cluster.CodeInvalid},
		{"a GPU of another node", nil, func() *cluster.Node { n := node("n3", "b", 1); n.GPUs[0].ID = "n1-g0"; return n }, cluster.CodeConflict},
		{"a GPU that another node's job still holds", func(m *machine) {
			running(m, spec(1), 100)
			n := node("n1", "boot1", 2)
			n.GPUs = n.GPUs[1:]
			m.must(registerCmd(n))
		}, func() *cluster.Node { n := node("n3", "b", 1); n.GPUs[0].ID = "n1-g0"; return n }, cluster.CodeConflict},
		{"a node that was removed", func(m *machine) { m.must(removeCmd("n2")) }, func() *cluster.Node { return node("n2", "b", 1) }, cluster.CodeDenied},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			m := lab(t)
			if tc.before != nil {
				tc.before(m)
			}
			m.refused(tc.want, registerCmd(tc.node()))
		})
	}
}

func TestSilence(t *testing.T) {
	t.Parallel()
	prepare := func(t *testing.T) (m *machine, starts, runs, waits cluster.JobID) {
		m = lab(t)
		runs = running(m, spec(1), 8000)
		starts = m.submit(spec(1))
		m.start(starts, share1("n1-g1", 8000, 300))
		waits = m.submit(spec(1))
		m.enqueue(waits, "n1-g0", 1)
		m.must(silentCmd("n1", "boot1"))
		return m, starts, runs, waits
	}
	t.Run("shares stay held, the queues empty", func(t *testing.T) {
		m, starts, runs, waits := prepare(t)
		m.wantState(starts, cluster.JobUnreachable)
		m.wantState(runs, cluster.JobUnreachable)
		if j := m.wantState(waits, cluster.JobPending); j.Reason.Code != cluster.ReasonNodeDown {
			t.Errorf("reason %s", j.Reason)
		}
		if u, _ := m.f.st.fleet.Ledger().GPU("n1-g0"); u.UsedMiB != 8000 {
			t.Errorf("%+v", u)
		}
		if n, _ := m.f.Node("n1"); n.State != cluster.NodeUnreachable {
			t.Errorf("node is %s", n.State)
		}
	})
	t.Run("the same boot goes on", func(t *testing.T) {
		m, starts, runs, _ := prepare(t)
		m.must(registerCmd(node("n1", "boot1", 2)))
		m.wantState(starts, cluster.JobStarting)
		if j := m.wantState(runs, cluster.JobRunning); j.Reason.Code != "" || j.Last().State != cluster.JobRunning {
			t.Errorf("reason %s", j.Reason)
		}
	})
	t.Run("another boot has ended them", func(t *testing.T) {
		m, starts, runs, _ := prepare(t)
		m.must(registerCmd(node("n1", "boot2", 2)))
		for _, id := range []cluster.JobID{starts, runs} {
			if j := m.wantState(id, cluster.JobNodeFail); j.Reason.Code != cluster.ReasonNodeLost || j.Last().Ended != m.now {
				t.Errorf("reason %s, ended %d", j.Reason, j.Last().Ended)
			}
		}
		if u, _ := m.f.st.fleet.Ledger().GPU("n1-g0"); u.Shares != 0 {
			t.Errorf("%+v", u)
		}
	})
	t.Run("the end of one may still be reported", func(t *testing.T) {
		m, _, runs, _ := prepare(t)
		m.report(runs, cluster.JobStarting) // old news: it was seen running
		m.wantState(runs, cluster.JobUnreachable)
		m.report(runs, cluster.JobCompleted)
		m.wantState(runs, cluster.JobCompleted)
	})
	t.Run("of an older boot or said twice changes nothing", func(t *testing.T) {
		m, _, _, _ := prepare(t)
		was := contents(t, m.f)
		m.must(silentCmd("n1", "boot1"))
		m.must(silentCmd("n2", "boot0"))
		if d := cmp.Diff(was, contents(t, m.f)); d != "" {
			t.Error(d)
		}
		m.refused(cluster.CodeNotFound, silentCmd("n9", "boot1"))
		ready := silentCmd("n1", "boot1")
		ready.GetSetNodeState().State = uint32(cluster.NodeReady)
		m.refused(cluster.CodeInvalid, ready)
	})
}

func TestRebootRequeuesWhoAllowsIt(t *testing.T) {
	t.Parallel()
	m := lab(t)
	s := spec(1)
	s.RequeueOnLoss = true
	id := running(m, s, 8000)
	m.must(registerCmd(node("n1", "boot2", 2)))
	j := m.wantState(id, cluster.JobPending)
	if j.Reason.Code != cluster.ReasonRequeued || j.Last().State != cluster.JobNodeFail {
		t.Errorf("%s, attempt %s", j.Reason, j.Last().State)
	}
	m.start(id, share1("n1-g0", 8000, 300))
	if a := m.job(id).Last(); a.No != 2 || a.BootID != "boot2" {
		t.Errorf("attempt %d of boot %s", a.No, a.BootID)
	}
}

func TestVanishedGPU(t *testing.T) {
	t.Parallel()
	m := lab(t)
	runs := running(m, spec(1), 8000)
	waits := m.submit(spec(1))
	m.enqueue(waits, "n1-g0", 1)
	n := node("n1", "boot1", 2)
	n.GPUs = n.GPUs[1:]
	m.must(registerCmd(n))
	m.wantState(runs, cluster.JobRunning)
	m.wantState(waits, cluster.JobPending)
	again := &machine{t: t, f: restored(t, snapshotOf(t, m.f)), index: m.index, now: m.now}
	for name, m := range map[string]*machine{"live": m, "restored": again} {
		m.report(runs, cluster.JobCompleted)
		// Nothing may lie on a card that is gone, not even nothing.
		st := m.startOf(waits, share1("n1-g0", 0, 0))
		st.Berth.Node = "n1"
		if r := m.must(planCmd(dispatch.Plan{Starts: []dispatch.Start{st}})); len(r.Plan.Started) != 0 {
			t.Errorf("%s: started on a card that is gone", name)
		}
		m.must(registerCmd(node("n1", "boot1", 2)))
		m.start(waits, share1("n1-g0", 40_000, 1000))
	}
	if d := cmp.Diff(contents(t, m.f), contents(t, again.f)); d != "" {
		t.Error(d)
	}
}

func TestDrain(t *testing.T) {
	t.Parallel()
	m := lab(t)
	runs := running(m, spec(1), 8000)
	waits := m.submit(spec(1))
	m.enqueue(waits, "n1-g0", 1)
	m.must(drainCmd("n1", true))
	m.wantState(runs, cluster.JobRunning)
	m.wantState(waits, cluster.JobPending)
	m.must(drainCmd("n1", false))
	if n, _ := m.f.Node("n1"); n.Drain || n.DrainReason != "" || !n.Schedulable() {
		t.Errorf("%+v", n)
	}
	m.start(waits, share1("n1-g0", 8000, 300))
	m.refused(cluster.CodeNotFound, drainCmd("n9", true))
}

func TestRemoveNode(t *testing.T) {
	t.Parallel()
	m := lab(t)
	runs := running(m, spec(1), 8000)
	waits := m.submit(spec(1))
	m.enqueue(waits, "n1-g0", 1)
	m.refused(cluster.CodeConflict, removeCmd("n1"))
	m.report(runs, cluster.JobCompleted)
	m.must(removeCmd("n1"))
	if _, ok := m.f.Node("n1"); ok || !m.f.Denied(agentRole, "n1") || len(m.f.Nodes()) != 1 {
		t.Error("n1 is still there, or may come back")
	}
	m.wantState(waits, cluster.JobPending)
	m.refused(cluster.CodeNotFound, removeCmd("n1"))
	m.must(registerCmd(func() *cluster.Node { n := node("n3", "b", 1); n.GPUs[0].ID = "n1-g0"; return n }()))
}

func TestFence(t *testing.T) {
	t.Parallel()
	m := lab(t)
	again := spec(1)
	again.RequeueOnLoss = true
	lost, back := running(m, spec(1), 8000), running(m, again, 8000)
	cancelled := running(m, spec(1), 8000)
	m.must(cancelCmd(cancelled, 0))
	m.refused(cluster.CodeNotFound, fenceCmd("n9"))
	m.refused(cluster.CodeConflict, fenceCmd("n1")) // it answers
	m.must(silentCmd("n1", "boot1"))
	old := m.reportOf(back, cluster.JobCompleted)
	r := m.must(fenceCmd("n1"))
	if d := cmp.Diff([]cluster.JobID{lost, cancelled}, r.Lost) + cmp.Diff([]cluster.JobID{back}, r.Requeued); d != "" {
		t.Fatal(d)
	}
	if j := m.wantState(lost, cluster.JobNodeFail); j.Reason.Code != cluster.ReasonNodeLost || j.Ended != m.now {
		t.Errorf("%s at %d", j.Reason, j.Ended)
	}
	m.wantState(cancelled, cluster.JobCancelled)
	m.wantState(back, cluster.JobPending)
	n, _ := m.f.Node("n1")
	if n.Fence != m.index || n.State != cluster.NodeUnreachable || len(m.f.NodeJobs("n1")) != 0 {
		t.Fatalf("%+v", n)
	}
	if u, _ := m.f.st.fleet.Ledger().GPU("n1-g0"); u.Shares != 0 {
		t.Errorf("its card still holds %+v", u)
	}
	// What the old attempt says does not count, and nothing starts there.
	if r := m.must(reportCmd(old)); !r.Released {
		t.Error("the agent is not told to forget the old attempt")
	}
	m.wantState(back, cluster.JobPending)
	st := m.startOf(back, share1("n1-g0", 8000, 300))
	if r := m.must(planCmd(dispatch.Plan{Starts: []dispatch.Start{st}})); len(r.Plan.Started) != 0 {
		t.Error("a job started on a fenced node")
	}
	m.must(registerCmd(node("n1", "boot1", 2)))
	if n, _ := m.f.Node("n1"); n.Fence == 0 || n.State != cluster.NodeReady {
		t.Errorf("registered: %+v", n)
	}
	m.start(back, share1("n1-g0", 8000, 300))
	if a := m.job(back).Last(); uint64(a.Token) <= n.Fence || a.No != 2 {
		t.Errorf("attempt %d with token %d after a fence at %d", a.No, a.Token, n.Fence)
	}
	m.refused(cluster.CodeDenied, reportCmd(func() *logv1.ReportAttempt {
		r := m.reportOf(back, cluster.JobCompleted)
		r.Token = old.Token
		return r
	}()))
}

func TestAFencedNodeCanBeRemoved(t *testing.T) {
	t.Parallel()
	m := lab(t)
	running(m, spec(1), 8000)
	m.must(silentCmd("n1", "boot1"))
	m.refused(cluster.CodeConflict, removeCmd("n1"))
	m.must(fenceCmd("n1"))
	m.must(fenceCmd("n1")) // twice does no harm
	m.must(removeCmd("n1"))
	m.refused(cluster.CodeDenied, registerCmd(node("n1", "boot2", 2)))
}
