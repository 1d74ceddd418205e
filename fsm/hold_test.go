package fsm

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/fsm/jobs"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

func holdCmd(id cluster.JobID, by cluster.UID, release bool) *logv1.Command {
	return &logv1.Command{Kind: &logv1.Command_HoldJob{HoldJob: &logv1.HoldJob{Job: uint64(id), By: uint32(by), Admin: by == 0, Release: release}}}
}

func requeueCmd(id cluster.JobID, by cluster.UID, hold bool) *logv1.Command {
	return &logv1.Command{Kind: &logv1.Command_RequeueJob{RequeueJob: &logv1.RequeueJob{Job: uint64(id), By: uint32(by), Admin: by == 0, Hold: hold}}}
}

// after is a job that depends on others in one way.
func after(kind cluster.DependKind, on ...cluster.JobID) *cluster.Spec {
	s := spec(1)
	s.Name = "after"
	for _, id := range on {
		s.Depends = append(s.Depends, cluster.Dependency{Kind: kind, Job: id})
	}
	return s
}

// checkBarred: nothing that is barred stands in a queue, and nothing starts
// that was barred before and still would be. An entry of several commands may
// release a job, start it and hold it anew: then the hold is another one.
func (w *watcher) checkBarred(s *State, all []*cluster.Job) error {
	for _, j := range all {
		old := w.prev[j.ID]
		switch {
		case j.State == cluster.JobQueued && j.Barred(s.at.Now).Code != "":
			return fmt.Errorf("job %d stands in a queue: %s", j.ID, j.Barred(s.at.Now))
		case j.State.Live() && old != nil && old.State.Waiting() && old.Hold == j.Hold && old.Barred(s.at.Now).Code != "" && j.Barred(s.at.Now).Code != "":
			return fmt.Errorf("job %d started: %s", j.ID, j.Barred(s.at.Now))
		case j.State.Terminal() && j.Hold != nil:
			return fmt.Errorf("job %d has ended and is held", j.ID)
		case j.Hold != nil && j.State == cluster.JobPending && j.Reason != j.Hold.Reason():
			return fmt.Errorf("job %d is held and says %s", j.ID, j.Reason)
		}
	}
	return nil
}

// checkDepends: each dependency of a waiting job stands as the jobs do that it
// names, which are there, and who can never start was cancelled if it asked
// for that.
func checkDepends(s *State, all []*cluster.Job) error {
	waiting, _, _ := jobs.Startable(s.roll, s.at.Now)
	if err := checkShown(s, waiting); err != nil {
		return err
	}
	if len(s.roll.Depends.Unsettled) > 0 {
		return fmt.Errorf("%d jobs are unsettled after an entry", len(s.roll.Depends.Unsettled))
	}
	for _, j := range all {
		if len(j.Depends) != len(j.Spec.Depends) {
			return fmt.Errorf("job %d has %d states of %d dependencies", j.ID, len(j.Depends), len(j.Spec.Depends))
		}
		if !j.State.Waiting() {
			continue
		}
		if j.Spec.KillInvalidDepend && j.Depend() == cluster.DependFailed {
			return fmt.Errorf("job %d waits for what can never be and was to be cancelled", j.ID)
		}
		if j.Depend() == cluster.DependMet {
			continue // what it waited for may be forgotten
		}
		for i, d := range j.Spec.Depends {
			switch {
			case d.Kind == cluster.Singleton:
				first := !slices.ContainsFunc(all, func(o *cluster.Job) bool {
					return jobs.Unit(o) < jobs.Unit(j) && !o.State.Terminal() && jobs.NameOf(o) == jobs.NameOf(j)
				})
				if first != (j.Depends[i] == cluster.DependMet) {
					return fmt.Errorf("job %d is %s, first of its name: %t", j.ID, j.Depends[i], first)
				}
			case j.Depends[i] != cluster.DependOpen:
			default:
				if err := checkOpen(s, j, d); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func TestHold(t *testing.T) {
	t.Parallel()
	m := lab(t)
	id := m.submit(spec(1))
	m.enqueue(id, "n1-g0", 1)
	m.must(holdCmd(id, 1000, false))
	j := m.wantState(id, cluster.JobPending)
	if j.Reason.Code != cluster.ReasonHeldUser || j.Hold.By != 1000 || len(m.f.Queue("n1-g0")) != 0 {
		t.Errorf("held: %s, %+v, queue %v", j.Reason, j.Hold, m.f.Queue("n1-g0"))
	}
	if w := m.f.SchedulerSnapshot().Waiting; len(w) != 0 {
		t.Errorf("a held job is shown to the planner: %v", w)
	}
	r := m.must(planCmd(dispatch.Plan{Starts: []dispatch.Start{m.startOf(id, share1("n1-g0", 8000, 300))}, Moves: []dispatch.QueueMove{{Job: id, GPU: "n1-g0"}}}))
	if len(r.Plan.Rejected) != 2 {
		t.Errorf("a plan for a held job: %+v", r.Plan)
	}
	m.must(holdCmd(id, 0, false)) // an administrator's is stronger
	m.must(holdCmd(id, 1000, false))
	if j = m.job(id); j.Reason.Code != cluster.ReasonHeldAdmin || !j.Hold.Admin {
		t.Errorf("held by both: %s, %+v", j.Reason, j.Hold)
	}
	m.refused(cluster.CodeDenied, holdCmd(id, 1000, true))
	m.must(holdCmd(id, 0, true))
	if j = m.job(id); j.Hold != nil || j.Reason.Code != cluster.ReasonUnconfirmed || j.Eligible != m.now {
		t.Errorf("released: %s, %+v", j.Reason, j.Hold)
	}
	m.must(holdCmd(id, 1000, true)) // again is no fault
	m.start(id, share1("n1-g0", 8000, 300))
	m.must(holdCmd(id, 0, false)) // it runs on
	m.wantState(id, cluster.JobStarting)
	m.must(requeueCmd(id, 0, false))
	m.report(id, cluster.JobPreempted)
	if j = m.wantState(id, cluster.JobPending); j.Reason.Code != cluster.ReasonHeldAdmin {
		t.Errorf("held while it ran, then requeued: %s", j.Reason)
	}
	m.must(holdCmd(id, 0, true))
	m.start(id, share1("n1-g0", 8000, 300))
	m.report(id, cluster.JobCompleted)
	m.refused(cluster.CodeConflict, holdCmd(id, 0, false))
	m.refused(cluster.CodeNotFound, holdCmd(99, 0, false))

	s := spec(1)
	s.Hold = true
	held := m.submit(s)
	if j = m.job(held); j.Reason.Code != cluster.ReasonHeldUser {
		t.Errorf("submitted held: %s", j.Reason)
	}
	m.must(cancelCmd(held, 1000))
	if j = m.wantState(held, cluster.JobCancelled); j.Hold != nil {
		t.Error("a cancelled job is held")
	}
	late := spec(1)
	late.Deadline = m.now.Add(time.Hour)
	m.refused(cluster.CodeConflict, holdCmd(m.submit(late), 0, false))
}

func TestRequeue(t *testing.T) {
	t.Parallel()
	for _, hold := range []bool{false, true} {
		m := lab(t)
		id := m.up(spec(1), "n1-g0")
		m.must(requeueCmd(id, 1000, hold))
		if j := m.wantState(id, cluster.JobRunning); j.Reason.Code != cluster.ReasonRequeued || !j.Last().Preempt.Requeue {
			t.Errorf("while it ends: %s", j.Reason)
		}
		m.refused(cluster.CodeConflict, requeueCmd(id, 1000, hold)) // twice
		m.report(id, cluster.JobPreempted)
		j := m.wantState(id, cluster.JobPending)
		want := cluster.ReasonRequeued
		if hold {
			want = cluster.ReasonHeldUser
		}
		if j.Reason.Code != want || (j.Hold != nil) != hold || slices.ContainsFunc(j.Attempts, isTry) || j.Last().State != cluster.JobPreempted {
			t.Errorf("hold %t: %s, %+v, %+v", hold, j.Reason, j.Hold, j.Attempts)
		}
		m.refused(cluster.CodeConflict, requeueCmd(id, 1000, false)) // it waits
		m.must(holdCmd(id, 1000, true))
		m.start(id, share1("n1-g0", 8000, 300))
		m.report(id, cluster.JobCompleted)
		err := m.refused(cluster.CodeConflict, requeueCmd(id, 1000, false))
		if !strings.Contains(err.Msg, "has ended as COMPLETED; submit it again") {
			t.Errorf("of an ended job: %v", err)
		}
	}
}

// TestRequeueAndOtherEnds: its own end and a cancel come first; a node that is
// given up does not.
func TestRequeueAndOtherEnds(t *testing.T) {
	t.Parallel()
	m := lab(t)
	own, gone, lost := m.up(spec(1), "n1-g0"), m.up(spec(1), "n1-g1"), m.up(spec(1), "n2-g0")
	for _, id := range []cluster.JobID{own, gone, lost} {
		m.must(requeueCmd(id, 0, false))
	}
	m.report(own, cluster.JobCompleted)
	m.wantState(own, cluster.JobCompleted)
	m.must(cancelCmd(gone, 1000))
	m.report(gone, cluster.JobPreempted)
	m.wantState(gone, cluster.JobCancelled)
	m.must(silentCmd("n2", "boot1"))
	m.must(fenceCmd("n2"))
	m.wantState(lost, cluster.JobPending)
}

func TestBegin(t *testing.T) {
	t.Parallel()
	m := lab(t)
	s := spec(1)
	s.Begin = m.now.Add(time.Minute)
	id := m.submit(s)
	if j := m.job(id); j.Reason.Code != cluster.ReasonBeginTime || j.Eligible != s.Begin {
		t.Errorf("%s, eligible %d", j.Reason, j.Eligible)
	}
	if snap, next := m.f.SchedulerSnapshotAt(s.Begin - 1); len(snap.Waiting) != 0 || next != s.Begin {
		t.Errorf("before: %d wait, next %d", len(snap.Waiting), next)
	}
	if snap, next := m.f.SchedulerSnapshotAt(s.Begin); len(snap.Waiting) != 1 || next != 0 || snap.Now != s.Begin {
		t.Errorf("then: %d wait, next %d", len(snap.Waiting), next)
	}
	early := planCmd(dispatch.Plan{Starts: []dispatch.Start{m.startOf(id, share1("n1-g0", 8000, 300))}})
	if r := m.must(early); len(r.Plan.Rejected) != 1 {
		t.Errorf("started before its time: %+v", r.Plan)
	}
	m.now = s.Begin
	m.start(id, share1("n1-g0", 8000, 300))
}

// TestDepend plays each kind of dependency against each end.
func TestDepend(t *testing.T) {
	t.Parallel()
	const open, met, failed = cluster.DependOpen, cluster.DependMet, cluster.DependFailed
	for _, tc := range []struct {
		kind                                          cluster.DependKind
		waiting, started, completed, failed, neverRan cluster.DependState
	}{
		{cluster.After, open, met, met, met, met},
		{cluster.AfterAny, open, open, met, met, met},
		{cluster.AfterOK, open, open, met, failed, failed},
		{cluster.AfterNotOK, open, open, failed, met, met},
	} {
		t.Run(string(tc.kind), func(t *testing.T) {
			for end, want := range map[cluster.JobState]cluster.DependState{cluster.JobCompleted: tc.completed, cluster.JobFailed: tc.failed} {
				m := lab(t)
				on := m.submit(spec(1))
				id := m.submit(after(tc.kind, on))
				wantDepend(m, id, tc.waiting)
				m.start(on, share1("n1-g0", 8000, 300))
				wantDepend(m, id, tc.started)
				m.report(on, end)
				wantDepend(m, id, want)
				wantDepend(m, m.submit(after(tc.kind, on)), want) // of a job that ended before
			}
			m := lab(t)
			on := m.submit(spec(1))
			id := m.submit(after(tc.kind, on))
			m.must(cancelCmd(on, 0))
			wantDepend(m, id, tc.neverRan)
		})
	}
}

func wantDepend(m *machine, id cluster.JobID, want cluster.DependState) {
	m.t.Helper()
	j := m.wantState(id, cluster.JobPending)
	reason := map[cluster.DependState]cluster.ReasonCode{
		cluster.DependOpen: cluster.ReasonDependency, cluster.DependMet: cluster.ReasonUnconfirmed, cluster.DependFailed: cluster.ReasonDependNever,
	}[want]
	if j.Depend() != want || j.Reason.Code != reason {
		m.t.Fatalf("job %d: %s, %s, want %s", id, j.Depend(), j.Reason, want)
	}
}

func TestDependAndOr(t *testing.T) {
	t.Parallel()
	for _, anyOf := range []bool{false, true} {
		m := lab(t)
		a, b := m.up(spec(1), "n1-g0"), m.up(spec(1), "n1-g1")
		s := after(cluster.AfterOK, a, b)
		s.DependAny = anyOf
		id, other := m.submit(s), m.submit(s)
		m.report(a, cluster.JobFailed)
		want := cluster.DependFailed
		if anyOf {
			want = cluster.DependOpen
		}
		wantDepend(m, id, want)
		if text := m.job(id).Dependency(); text != map[bool]string{
			false: fmt.Sprintf("afterok:%d(failed),afterok:%d(unfulfilled)", a, b), true: fmt.Sprintf("afterok:%d(failed)?afterok:%d(unfulfilled)", a, b),
		}[anyOf] {
			t.Errorf("shown as %s", text)
		}
		m.report(b, cluster.JobCompleted)
		if anyOf {
			want = cluster.DependMet
		}
		wantDepend(m, id, want)
		wantDepend(m, other, want)
	}
}

// TestSingleton: one after the other, in order of ids, each name and user for
// itself.
func TestSingleton(t *testing.T) {
	t.Parallel()
	m := lab(t)
	one := func(name string, uid cluster.UID) cluster.JobID {
		s := spec(1)
		s.Name, s.Depends = name, []cluster.Dependency{{Kind: cluster.Singleton}}
		return m.must(submitCmd(m.f.NextJobID(), fmt.Sprintf("single-%d", m.index), uid, s)).Jobs[0]
	}
	a, b, c := one("x", 1000), one("x", 1000), one("x", 1000)
	wantDepend(m, a, cluster.DependMet)
	wantDepend(m, b, cluster.DependOpen)
	wantDepend(m, one("y", 1000), cluster.DependMet)
	wantDepend(m, one("x", 1001), cluster.DependMet)
	m.must(cancelCmd(b, 1000)) // before its turn
	wantDepend(m, c, cluster.DependOpen)
	m.start(a, share1("n1-g0", 8000, 300))
	m.report(a, cluster.JobFailed)
	wantDepend(m, c, cluster.DependMet)
}

// TestKillInvalidDepend cancels whole chains, and tells of each.
func TestKillInvalidDepend(t *testing.T) {
	t.Parallel()
	m := lab(t)
	chain := []cluster.JobID{m.up(spec(1), "n1-g0")}
	for range 1000 {
		s := after(cluster.AfterOK, chain[len(chain)-1])
		s.KillInvalidDepend = true
		chain = append(chain, m.submit(s))
	}
	m.report(chain[0], cluster.JobFailed)
	for _, id := range chain[1:] {
		if j, ok := m.f.Job(id); ok && (j.State != cluster.JobCancelled || j.Reason.Code != cluster.ReasonDependNever) {
			t.Fatalf("job %d is %s: %s", id, j.State, j.Reason)
		}
	}
	if n := len(m.f.st.roll.Depends.Dependents); n != 0 {
		t.Errorf("%d are waited for, and all ended", n)
	}
	if r := m.do(submitCmd(m.f.NextJobID(), "unknown", 1000, after(cluster.AfterAny, chain[0])))[0]; r.Err == nil || r.Err.Code != cluster.CodeInvalid {
		t.Errorf("a dependency on a job that is forgotten: %v", r.Err)
	}
	if !bytes.Equal(restored(t, snapshotOf(t, m.f)).Hash(), m.f.Hash()) {
		t.Error("restored differs")
	}
}

// TestNobodyWaitsForItself: a change is refused with which a job would wait for
// itself, through other jobs or tasks, too; jobs that need not wait for it are none
// of its business.
func TestNobodyWaitsForItself(t *testing.T) {
	t.Parallel()
	m := lab(t)
	a := m.submit(spec(1))
	b := m.submit(after(cluster.AfterAny, a))
	s := after(cluster.After, b)
	s.Array, _ = cluster.ParseArray("0-3")
	tasks := m.submit(s)
	anyOf := after(cluster.AfterOK, a, m.submit(spec(1)))
	anyOf.DependAny = true
	free := m.submit(anyOf)
	waits := func(on ...cluster.Dependency) *logv1.Command {
		return updateCmd(m.job(a), func(s *cluster.Spec) { s.Depends = on })
	}
	for _, d := range []cluster.Dependency{
		{Kind: cluster.AfterOK, Job: a}, {Kind: cluster.After, Job: b}, {Kind: cluster.AfterAny, Job: tasks},
		{Kind: cluster.AfterOK, Job: tasks, OneTask: true, Task: 2},
	} {
		err := m.refused(cluster.CodeInvalid, waits(cluster.Dependency{Kind: cluster.Singleton}, d))
		if want := "neither would ever start"; d.Job == a && !strings.Contains(err.Error(), "would wait for itself") || d.Job != a && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", d, err)
		}
	}
	m.must(waits(cluster.Dependency{Kind: cluster.AfterOK, Job: free}))
	m.must(waits())
	m.start(a, share1("n1-g0", 8000, 300))
	m.report(a, cluster.JobCompleted)
	c := m.submit(spec(1)) // b no longer waits for anything
	m.must(updateCmd(m.job(c), func(s *cluster.Spec) { s.Depends = []cluster.Dependency{{Kind: cluster.AfterOK, Job: b}} }))
	m.must(updateCmd(m.job(b), func(s *cluster.Spec) { s.Comment = "still waits for a job that has ended" }))
}
