package fsm

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

// gangOn starts s on whole GPUs, one of each node, the nodes in this order.
func (m *machine) gangOn(s *cluster.Spec, gpus ...cluster.GPUID) cluster.JobID {
	m.t.Helper()
	s.Nodes = len(gpus)
	id := m.submit(s)
	m.startGang(id, gpus...)
	return id
}

func (m *machine) gang(gpus ...cluster.GPUID) cluster.JobID {
	m.t.Helper()
	return m.gangOn(spec(1), gpus...)
}

func (m *machine) gangStart(id cluster.JobID, gpus ...cluster.GPUID) dispatch.Start {
	st := m.startOf(id, whole(gpus[0]))
	for _, g := range gpus[1:] {
		b := m.startOf(id, whole(g)).Berth
		st.Rest = append(st.Rest, b)
	}
	st.Port = 20_007
	return st
}

func (m *machine) startGang(id cluster.JobID, gpus ...cluster.GPUID) {
	m.t.Helper()
	if r := m.must(planCmd(dispatch.Plan{Starts: []dispatch.Start{m.gangStart(id, gpus...)}})); len(r.Plan.Started) != 1 {
		m.t.Fatalf("start of job %d was rejected: %v", id, r.Plan.Rejected)
	}
}

// partOf is a report of one node about its part of the last attempt.
func (m *machine) partOf(id cluster.JobID, rank int, state cluster.JobState, ready bool) *logv1.ReportAttempt {
	m.t.Helper()
	a := m.job(id).Last()
	return &logv1.ReportAttempt{
		Node: string(a.BerthAt(rank).Node), Job: uint64(id), Attempt: a.No, Token: uint64(a.Token), State: uint32(state), Ready: ready,
	}
}

func (m *machine) part(id cluster.JobID, rank int, state cluster.JobState) {
	m.t.Helper()
	m.must(reportCmd(m.partOf(id, rank, state, false)))
}

func (m *machine) ready(id cluster.JobID, ranks ...int) {
	m.t.Helper()
	for _, r := range ranks {
		m.must(reportCmd(m.partOf(id, r, cluster.JobStarting, true)))
	}
}

// runs brings all parts through the barrier.
func (m *machine) runs(id cluster.JobID) {
	m.t.Helper()
	n := m.job(id).Last().Nodes()
	for r := range n {
		m.ready(id, r)
	}
	for r := range n {
		m.part(id, r, cluster.JobRunning)
	}
	m.wantState(id, cluster.JobRunning)
}

// taken are the shares that lie on a GPU, by the ledger.
func (m *machine) taken(gpu cluster.GPUID) int {
	u, _ := m.f.st.fleet.Ledger().GPU(gpu)
	return u.Shares
}

// trio is a machine with three nodes of two GPUs.
func trio(t testing.TB) *machine {
	m := lab(t)
	m.must(registerCmd(node("n3", "boot1", 2)))
	return m
}

// TestGangStartsTogether: no part may start before all are ready, and the job
// runs when all parts do, and has completed when all have.
func TestGangStartsTogether(t *testing.T) {
	t.Parallel()
	m := trio(t)
	id := m.gang("n1-g0", "n3-g1", "n2-g0")
	m.ready(id, 0, 2)
	if g := m.wantState(id, cluster.JobStarting).Last().Gang; g.Go || g.Waits() != 1 {
		t.Fatalf("may go with %d not ready", g.Waits())
	}
	m.ready(id, 1, 1) // said twice
	if !m.job(id).Last().Gang.Go {
		t.Fatal("all are ready and may not go")
	}
	m.part(id, 0, cluster.JobRunning)
	m.part(id, 1, cluster.JobRunning)
	m.wantState(id, cluster.JobStarting)
	m.part(id, 2, cluster.JobRunning)
	j := m.wantState(id, cluster.JobRunning)
	if d := cmp.Diff([]cluster.NodeID{"n1", "n3", "n2"}, j.Last().NodeIDs()); d != "" || j.Last().Port != 20_007 {
		t.Errorf("port %d, nodes %s", j.Last().Port, d)
	}
	m.part(id, 1, cluster.JobCompleted)
	m.wantState(id, cluster.JobRunning)
	if m.taken("n3-g1") != 0 || m.taken("n1-g0") != 1 {
		t.Errorf("the part that ended holds %d shares, another %d", m.taken("n3-g1"), m.taken("n1-g0"))
	}
	m.part(id, 0, cluster.JobCompleted)
	r := m.partOf(id, 2, cluster.JobCompleted, false)
	r.Exit = exit(0)
	m.must(reportCmd(r))
	m.wantState(id, cluster.JobCompleted)
	if b := restored(t, snapshotOf(t, m.f)); !bytes.Equal(b.Hash(), m.f.Hash()) {
		t.Error("restored differs")
	}
}

// TestFirstFailureEndsGang: the first part that fails says how the job ends, and
// the others only that they are gone.
func TestFirstFailureEndsGang(t *testing.T) {
	t.Parallel()
	m := trio(t)
	id := m.gang("n1-g0", "n2-g0", "n3-g0")
	m.runs(id)
	r := m.partOf(id, 1, cluster.JobFailed, false)
	r.Exit = exit(3)
	m.must(reportCmd(r))
	j := m.wantState(id, cluster.JobCompleting)
	if !j.Last().Gang.Stopping() || !strings.Contains(j.Reason.Detail, "n2") {
		t.Fatalf("stops %t: %s", j.Last().Gang.Stopping(), j.Reason)
	}
	m.part(id, 0, cluster.JobCancelled)
	r = m.partOf(id, 2, cluster.JobFailed, false)
	r.Exit = exit(9)
	m.must(reportCmd(r))
	j = m.wantState(id, cluster.JobFailed)
	if x := j.Last().Exit; x == nil || x.Code != 3 || j.Reason.Detail != "node n2: exit code 3" {
		t.Errorf("exit %+v, %s", x, j.Reason)
	}
}

// TestGangThatNeverStartedWaitsAgain: what was not ready in time, failed to be
// prepared or lost its node before the start is tried again, but not for ever.
func TestGangThatNeverStartedWaitsAgain(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		give func(m *machine, id cluster.JobID)
		want cluster.ReasonCode
		end  cluster.JobState
	}{
		{"not ready in time", func(m *machine, id cluster.JobID) {
			m.must(undoCmd(id, uint32(len(m.job(id).Attempts))))
			m.part(id, 0, cluster.JobCancelled)
			m.part(id, 1, cluster.JobCancelled)
		}, cluster.ReasonNotReady, cluster.JobFailed},
		{"cannot be prepared", func(m *machine, id cluster.JobID) {
			r := m.partOf(id, 1, cluster.JobFailed, false)
			r.Exit, r.Reason = exit(125), &logv1.Reason{Code: string(cluster.ReasonLaunch), Detail: "IMAGE: no such image"}
			m.must(reportCmd(r))
			m.part(id, 0, cluster.JobCancelled)
		}, cluster.ReasonLaunch, cluster.JobFailed},
		{"its node is lost", func(m *machine, id cluster.JobID) {
			m.must(silentCmd("n2", "boot1"))
			m.wantState(id, cluster.JobUnreachable)
			r := m.must(fenceCmd("n2"))
			if len(r.Requeued) != 1 && len(m.job(id).Attempts) < cluster.MaxUndone {
				m.t.Fatalf("fence said %v lost, %v requeued", r.Lost, r.Requeued)
			}
			m.part(id, 0, cluster.JobCancelled)
			m.must(registerCmd(node("n2", "boot1", 2)))
		}, cluster.ReasonNodeLost, cluster.JobNodeFail},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			m := trio(t)
			id := m.gang("n1-g0", "n2-g0")
			for range cluster.MaxUndone - 1 {
				m.ready(id, 0)
				tc.give(m, id)
				if j := m.wantState(id, cluster.JobPending); !strings.Contains(j.Reason.Detail, string(tc.want)) {
					t.Fatalf("waits because %s, want %s in it", j.Reason, tc.want)
				}
				if m.taken("n1-g0")+m.taken("n2-g0") != 0 {
					t.Fatal("shares are left")
				}
				m.startGang(id, "n1-g0", "n2-g0")
			}
			tc.give(m, id)
			if j := m.wantState(id, tc.end); j.Reason.Code != tc.want {
				t.Errorf("ended because %s, want %s", j.Reason, tc.want)
			}
		})
	}
}

// TestStartedGangIsNotUndone: once all may go the barrier can no longer fall.
func TestStartedGangIsNotUndone(t *testing.T) {
	t.Parallel()
	m := trio(t)
	id := m.gang("n1-g0", "n2-g0")
	m.ready(id, 0, 1)
	m.refused(cluster.CodeConflict, undoCmd(id, 1))
	late := m.gang("n1-g1", "n2-g1")
	m.ready(late, 0)
	m.must(undoCmd(late, 1))
	m.ready(late, 1)
	if m.job(late).Last().Gang.Go {
		t.Error("a gang that was given up may go")
	}
}

// TestGangLosesNode: with one node the whole attempt is lost; it runs again only
// if its owner allows it, and not before the other nodes are rid of it.
func TestGangLosesNode(t *testing.T) {
	t.Parallel()
	for _, requeue := range []bool{false, true} {
		m := trio(t)
		s := spec(1)
		s.RequeueOnLoss = requeue
		id := m.gangOn(s, "n1-g0", "n2-g0")
		m.runs(id)
		m.must(registerCmd(node("n2", "boot2", 2)))
		if j := m.wantState(id, cluster.JobCompleting); !j.Last().Gang.Stopping() || m.taken("n2-g0") != 0 || m.taken("n1-g0") != 1 {
			t.Fatalf("the node booted: stops %t", j.Last().Gang.Stopping())
		}
		m.part(id, 0, cluster.JobCancelled)
		want := cluster.JobNodeFail
		if requeue {
			want = cluster.JobPending
		}
		m.wantState(id, want)
	}
}

// TestGangIsCancelledAndMakesRoom: the ends that somebody asked for are nobody's
// failure.
func TestGangIsCancelledAndMakesRoom(t *testing.T) {
	t.Parallel()
	m := trio(t)
	id := m.gang("n1-g0", "n2-g0")
	m.runs(id)
	m.must(cancelCmd(id, 0))
	m.part(id, 1, cluster.JobCancelled)
	m.part(id, 0, cluster.JobCancelled)
	m.wantState(id, cluster.JobCancelled)

	id = m.gangOn(hooked(), "n1-g0", "n2-g0")
	m.runs(id)
	m.room(id)
	m.part(id, 1, cluster.JobPreempted)
	if j := m.job(id); j.Last().Gang.Stopping() {
		t.Error("one part made room, and the other may not save its state")
	}
	m.part(id, 0, cluster.JobPreempted)
	if j := m.wantState(id, cluster.JobPending); j.Attempts[0].State != cluster.JobPreempted {
		t.Errorf("the attempt is %s", j.Attempts[0].State)
	}
}

// TestGangStartsWholeOrNot: what is wrong with one node rejects all.
func TestGangStartsWholeOrNot(t *testing.T) {
	t.Parallel()
	m := trio(t)
	s := spec(1)
	s.Nodes = 2
	id := m.submit(s)
	m.start(m.submit(spec(1)), whole("n2-g0"))
	for _, tc := range []struct {
		name, want string
		st         dispatch.Start
	}{
		{"one is taken", "GPU n2-g0", m.gangStart(id, "n1-g0", "n2-g0")},
		{"too few", "1 nodes", m.gangStart(id, "n1-g0")},
		{"too many", "3 nodes", m.gangStart(id, "n1-g0", "n2-g1", "n3-g0")},
		{"one twice", "twice", m.gangStart(id, "n1-g0", "n1-g1")},
	} {
		r := m.must(planCmd(dispatch.Plan{Starts: []dispatch.Start{tc.st}}))
		if len(r.Plan.Rejected) != 1 || !strings.Contains(r.Plan.Rejected[0].Reason.Detail, tc.want) {
			t.Errorf("%s: %+v, want %q", tc.name, r.Plan, tc.want)
		}
	}
	if m.taken("n1-g0") != 0 {
		t.Error("something was taken")
	}
	h100 := node("n4", "boot1", 2)
	h100.GPUs[0].Type = "H100"
	m.must(registerCmd(h100))
	r := m.must(planCmd(dispatch.Plan{Starts: []dispatch.Start{m.gangStart(id, "n1-g0", "n4-g0")}}))
	if len(r.Plan.Rejected) != 1 || !strings.Contains(r.Plan.Rejected[0].Reason.Detail, "alike") {
		t.Errorf("two types: %+v", r.Plan)
	}
	r = m.must(planCmd(dispatch.Plan{Moves: []dispatch.QueueMove{{Job: id, GPU: "n1-g0"}}}))
	if len(r.Plan.Rejected) != 1 {
		t.Error("a gang waits in a queue")
	}
}

// TestGangIsPlannedOnNodes: where a gang is to keep its deadline is kept until it
// starts there or elsewhere; nodes that it may not have, too few of them, and those
// for a gang without a deadline are refused.
func TestGangIsPlannedOnNodes(t *testing.T) {
	t.Parallel()
	m := trio(t)
	s := spec(1)
	s.Nodes = 2
	plain := m.submit(s)
	due := *s
	due.Deadline = t0.Add(100 * time.Hour)
	id := m.submit(&due)
	move := func(id cluster.JobID, on ...cluster.NodeID) int {
		r := m.must(planCmd(dispatch.Plan{Moves: []dispatch.QueueMove{{Job: id, EstStart: t0.Add(time.Hour), Reason: cluster.ReasonNodes, Nodes: on}}}))
		return len(r.Plan.Rejected)
	}
	if move(plain, "n1", "n2") != 1 || move(id, "n1") != 1 || move(id, "n1", "n1") != 1 || move(id, "n1", "n9") != 1 {
		t.Error("a plan that cannot be was stored")
	}
	if j := m.job(id); move(id, "n1", "n3") != 0 || j.Promised != nil {
		t.Errorf("planned on %v before", j.Promised)
	}
	if j := m.job(id); j.State != cluster.JobPending || !slices.Equal(j.Promised, []cluster.NodeID{"n1", "n3"}) || j.EstStart != t0.Add(time.Hour) {
		t.Errorf("%s, planned on %v from %d", j.State, j.Promised, j.EstStart)
	}
	m.must(planCmd(dispatch.Plan{Starts: []dispatch.Start{m.gangStart(id, "n1-g0", "n2-g0")}}))
	if j := m.job(id); j.Live() == nil || j.Promised != nil || j.EstStart != 0 {
		t.Errorf("%s, still planned on %v", j.State, j.Promised)
	}
}

// TestLongReasonOfAGang: why a gang is given up is cut where it is too long, but never
// within a character: no replica could write that, or take a hash of it.
func TestLongReasonOfAGang(t *testing.T) {
	t.Parallel()
	for _, before := range []string{"", "x"} {
		m := trio(t)
		id := m.gangOn(spec(1), "n1-g0", "n2-g0")
		c := undoCmd(id, 1)
		c.GetUndoGang().Why = before + strings.Repeat("é", 600)
		m.must(c)
		if why := m.job(id).Reason.Detail; len(why) > 1024 || len(why) < 1023 || !strings.HasPrefix(why, before+"é") {
			t.Errorf("it says %d bytes, %.10q", len(why), why)
		}
		if again := restored(t, snapshotOf(t, m.f)); string(again.Hash()) != string(m.f.Hash()) {
			t.Error("a restore has another hash")
		}
	}
}
