package fsm

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/fsm/command"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

func drainGPUCmd(node cluster.NodeID, gpu cluster.GPUID, drain bool) *logv1.Command {
	c := &logv1.DrainGPU{Node: string(node), Gpu: string(gpu), Drain: drain, By: 7}
	if drain {
		c.Reason = "new fans"
	}
	return &logv1.Command{Kind: &logv1.Command_DrainGpu{DrainGpu: c}}
}

// unsoundNode has a card of every state, and a problem.
func unsoundNode(id cluster.NodeID, boot string) *cluster.Node {
	n := node(id, boot, 5)
	n.Problem = "a process of job 4 cannot be ended"
	for i := range n.GPUs {
		n.GPUs[i].State = cluster.GPUState(i)
		if i > 0 {
			n.GPUs[i].StateReason = "Xid 79"
		}
	}
	return n
}

// sick adds a node with unsound cards, one of them drained.
func (m *machine) sick() {
	m.must(registerCmd(unsoundNode("n3", "boot9")))
	m.must(drainGPUCmd("n3", "n3-g0", true))
}

// events tells what stands in the history of a node, in words.
func events(t *testing.T, m *machine, id cluster.NodeID) []string {
	t.Helper()
	n, ok := m.f.Node(id)
	if !ok {
		t.Fatalf("node %s is gone", id)
	}
	var out []string
	for _, e := range n.History {
		words := strings.TrimSpace(string(e.GPU) + " " + e.Kind + " " + e.Detail)
		if e.Asked {
			words += fmt.Sprintf(" by %d", e.By)
		}
		out = append(out, strings.Join(strings.Fields(words), " "))
	}
	return out
}

func TestDrainGPU(t *testing.T) {
	t.Parallel()
	m := lab(t)
	runs := running(m, spec(1), 8000) // on n1-g0
	waits := m.submit(spec(1))
	m.enqueue(waits, "n1-g0", 1)
	m.must(drainGPUCmd("n1", "n1-g0", true))

	// What runs goes on; the queue is empty; nothing new comes.
	m.wantState(runs, cluster.JobRunning)
	if j := m.wantState(waits, cluster.JobPending); j.Reason.Code != cluster.ReasonNodeDown {
		t.Errorf("waits for %s", j.Reason)
	}
	start := func(gpu cluster.GPUID) int {
		return len(m.must(planCmd(dispatch.Plan{Starts: []dispatch.Start{m.startOf(waits, share1(gpu, 8000, 300))}})).Plan.Started)
	}
	if start("n1-g0") != 0 {
		t.Fatal("a job started on a drained card")
	}
	move := dispatch.Plan{Moves: []dispatch.QueueMove{{Job: waits, GPU: "n1-g0", Rank: 1}}}
	if r := m.must(planCmd(move)).Plan; r.Moved != 0 || len(r.Rejected) != 1 || !strings.Contains(r.Rejected[0].Reason.Detail, "drained: new fans") {
		t.Errorf("moved to the queue of a drained card: %+v", r)
	}
	if u, _ := m.f.st.fleet.Ledger().GPU("n1-g0"); !u.Closed || u.Shares != 1 || u.FreeShares() != 0 || u.SellableMiB == 0 {
		t.Errorf("account of the drained card: %+v", u)
	}

	// The same again is no news; a node that registers anew, boots, or lost the
	// card for a while does not undo it.
	again := m.must(drainGPUCmd("n1", "n1-g0", true))
	if n, _ := m.f.Node("n1"); n.Revision == again.Index {
		t.Error("draining twice made news")
	}
	n := node("n1", "boot1", 2)
	n.Version = "2"
	m.must(registerCmd(n))
	n = node("n1", "boot1", 2)
	n.GPUs = n.GPUs[1:]
	m.must(registerCmd(n))
	m.report(runs, cluster.JobCompleted)
	m.must(registerCmd(node("n1", "boot2", 2)))
	if start("n1-g0") != 0 {
		t.Fatal("a job started on a drained card after its node came back")
	}
	if f := restored(t, snapshotOf(t, m.f)); !f.st.fleet.Ledger().Equal(m.f.st.fleet.Ledger()) {
		t.Error("a restore forgot the drain")
	}

	r := m.must(drainGPUCmd("n1", "n1-g0", false))
	if o := m.node("n1").Order("n1-g0"); o == nil || o.Drain || o.Resumed != r.Index || o.Reason != "" || o.By != 7 {
		t.Errorf("order after resume: %+v", o)
	}
	if start("n1-g0") != 1 {
		t.Error("no job starts on the resumed card")
	}
	want := []string{
		"registered", "n1-g0 drained new fans by 7", "n1-g0 vanished its agent no longer reports it",
		"booted", "n1-g0 back", "n1-g0 resumed by 7",
	}
	if d := cmp.Diff(want, events(t, m, "n1")); d != "" {
		t.Errorf("history: %s", d)
	}
}

func (m *machine) node(id cluster.NodeID) *cluster.Node {
	m.t.Helper()
	n, ok := m.f.Node(id)
	if !ok {
		m.t.Fatalf("node %s is gone", id)
	}
	return n
}

func TestDrainGPURefuses(t *testing.T) {
	t.Parallel()
	m := lab(t)
	m.refused(cluster.CodeNotFound, drainGPUCmd("n9", "n9-g0", true))
	m.refused(cluster.CodeNotFound, drainGPUCmd("n1", "n2-g0", true))
	m.refused(cluster.CodeNotFound, drainGPUCmd("n1", "", false))
}

func TestCardStates(t *testing.T) {
	t.Parallel()
	m := lab(t)
	runs := running(m, spec(1), 8000)
	waits := m.submit(spec(1))
	m.enqueue(waits, "n1-g0", 1)
	n := node("n1", "boot1", 2)
	n.GPUs[0].State, n.GPUs[0].StateReason = cluster.GPUFailing, "Xid 79: fell off the bus"
	m.must(registerCmd(n))
	m.wantState(runs, cluster.JobRunning)
	m.wantState(waits, cluster.JobPending)
	st := m.startOf(waits, share1("n1-g0", 8000, 300))
	if r := m.must(planCmd(dispatch.Plan{Starts: []dispatch.Start{st}})).Plan; len(r.Started) != 0 {
		t.Fatal("a job started on a failing card")
	}
	m.start(waits, share1("n1-g1", 8000, 300)) // the other card takes jobs
	n.GPUs[0].State, n.GPUs[0].StateReason = cluster.GPUOK, ""
	m.must(registerCmd(n))
	m.start(m.submit(spec(1)), share1("n1-g0", 8000, 300))
	want := []string{"registered", "n1-g0 failing Xid 79: fell off the bus", "n1-g0 ok"}
	if d := cmp.Diff(want, events(t, m, "n1")); d != "" {
		t.Errorf("history: %s", d)
	}
}

// TestHistoryIsBounded: the newest events stay, in order, and at most so many.
func TestHistoryIsBounded(t *testing.T) {
	t.Parallel()
	m := lab(t)
	m.must(silentCmd("n1", "boot1"))
	m.must(registerCmd(node("n1", "boot1", 2)))
	for range 3 * cluster.MaxHistory {
		m.must(drainGPUCmd("n1", "n1-g0", true))
		m.must(drainGPUCmd("n1", "n1-g0", false))
	}
	m.must(drainCmd("n1", true))
	n := m.node("n1")
	if len(n.History) != cluster.MaxHistory || n.History[cluster.MaxHistory-1].Kind != cluster.EventDrained || n.History[cluster.MaxHistory-1].GPU != "" {
		t.Fatalf("%d events, the last %+v", len(n.History), n.History[len(n.History)-1])
	}
	for i := 1; i < len(n.History); i++ {
		if n.History[i].At < n.History[i-1].At {
			t.Errorf("event %d is older than the one before it", i)
		}
	}
}

// TestHealthNeedsItsVersion: entries of before keep no history, and hold
// nothing that older coordinators would not store.
func TestHealthNeedsItsVersion(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		cmd  *logv1.Command
		want uint32
	}{
		"a sound node":   {registerCmd(node("n1", "b", 2)), 1},
		"an unsound one": {registerCmd(unsoundNode("n1", "b")), command.HealthVersion},
		"a drained card": {drainGPUCmd("n1", "n1-g0", true), command.HealthVersion},
		"a drained node": {drainCmd("n1", true), 1},
	} {
		if got := NeedsVersion(tc.cmd); got != tc.want {
			t.Errorf("%s needs %d, want %d", name, got, tc.want)
		}
	}
	f := New(Options{})
	data, err := EncodeEntry(command.HealthVersion-1, testTerm, t0.Add(time.Second), []*logv1.Command{registerCmd(node("n1", "b", 2)), drainCmd("n1", true)})
	if err != nil {
		t.Fatal(err)
	}
	applyTo(t, f, 1, testTerm, data)
	if n, _ := f.Node("n1"); len(n.History) != 0 || !n.Drain {
		t.Errorf("an old entry left %+v", n)
	}
}

// TestCompleting: a process that ended and is not off its card is known to
// have ended, and holds its share until its end is reported.
func TestCompleting(t *testing.T) {
	t.Parallel()
	m := lab(t)
	id := running(m, spec(1), 8000)
	r := m.reportOf(id, cluster.JobCompleting)
	r.Exit, r.Reason = exit(3), &logv1.Reason{Code: string(cluster.ReasonGPUReturning), Detail: "4096 MiB are not back"}
	m.must(reportCmd(r))
	j := m.wantState(id, cluster.JobCompleting)
	if j.Last().Exit == nil || j.Last().Exit.Code != 3 || j.Reason.Code != cluster.ReasonGPUReturning || j.Last().Reason.Code != "" {
		t.Errorf("%+v, %s", j.Last(), j.Reason)
	}
	r.Reason = &logv1.Reason{Code: string(cluster.ReasonUnkillable), Detail: "a process of it does not end"}
	m.must(reportCmd(r))
	if j = m.wantState(id, cluster.JobCompleting); j.Reason.Code != cluster.ReasonUnkillable {
		t.Errorf("%s", j.Reason)
	}
	at := j.Revision
	m.must(reportCmd(r)) // the same again is no news
	if j = m.job(id); j.Revision != at {
		t.Error("the same reason again made news")
	}
	if u, _ := m.f.st.fleet.Ledger().GPU("n1-g0"); u.Shares != 1 {
		t.Errorf("account %+v", u)
	}
	end := m.reportOf(id, cluster.JobFailed)
	end.Exit = exit(3)
	m.must(reportCmd(end))
	if j = m.wantState(id, cluster.JobFailed); j.Reason.Code != cluster.ReasonExit || j.Last().Exit.Code != 3 {
		t.Errorf("%s", j.Reason)
	}
	if u, _ := m.f.st.fleet.Ledger().GPU("n1-g0"); u.Shares != 0 {
		t.Errorf("account %+v", u)
	}
}

// TestAStartThatIsTriedAgain: a job that is being started says why that takes long, until
// it runs; an entry of an older version changed nothing.
func TestAStartThatIsTriedAgain(t *testing.T) {
	t.Parallel()
	m := lab(t)
	id := m.submit(spec(1))
	m.start(id, share1("n1-g0", 8000, 300))
	r := m.reportOf(id, cluster.JobStarting)
	r.Reason = &logv1.Reason{Code: string(cluster.ReasonLaunch), Detail: "busy"}
	m.reported(command.StartingVersion-1, r)
	if j := m.wantState(id, cluster.JobStarting); j.Reason.Code != "" {
		t.Errorf("by an old entry: %s", j.Reason)
	}
	m.must(reportCmd(r))
	if j := m.wantState(id, cluster.JobStarting); j.Reason.Detail != "busy" {
		t.Errorf("%s", j.Reason)
	}
	m.must(reportCmd(m.reportOf(id, cluster.JobRunning)))
	m.must(reportCmd(r)) // late
	if j := m.wantState(id, cluster.JobRunning); j.Reason.Code != "" {
		t.Errorf("once it runs: %s", j.Reason)
	}
}

// TestAnUnsoundCardCostsNothing: an attempt that never began for its card waits
// again and does not count, up to a bound; one that a fault of its card ended
// is as on a lost node.
func TestAnUnsoundCardCostsNothing(t *testing.T) {
	t.Parallel()
	m := lab(t)
	id := m.submit(spec(1))
	for i := range maxNeverBegan + maxAttempts {
		m.start(id, share1("n1-g0", 8000, 300))
		r := m.reportOf(id, cluster.JobNodeFail)
		r.StartedUs, r.Reason = 0, &logv1.Reason{Code: string(cluster.ReasonGPUCheck), Detail: "row 7 is bad"}
		m.must(reportCmd(r))
		if j := m.job(id); i < maxNeverBegan+maxAttempts-1 && j.State != cluster.JobPending || i == maxNeverBegan+maxAttempts-1 && j.State != cluster.JobNodeFail {
			t.Fatalf("after %d attempts it is %s", i+1, j.State)
		}
	}
	for _, again := range []bool{false, true} {
		s := spec(1)
		s.RequeueOnLoss, s.Signature = again, "sig"
		id := running(m, s, 8000)
		samples := m.f.SampleCount()
		r := m.reportOf(id, cluster.JobNodeFail)
		r.Exit, r.Usage, r.Reason = exit(1), usage(7000, false), &logv1.Reason{Code: string(cluster.ReasonGPUFault), Detail: "Xid 79"}
		m.must(reportCmd(r))
		want := cluster.JobNodeFail
		if again {
			want = cluster.JobPending
		}
		j := m.wantState(id, want)
		if a := j.Last(); a.State != cluster.JobNodeFail || a.Reason.Code != cluster.ReasonGPUFault || a.Exit == nil || a.Exit.Code != 1 {
			t.Errorf("attempt %+v", a)
		}
		if m.f.SampleCount() != samples {
			t.Error("something was learnt of it")
		}
	}
}
