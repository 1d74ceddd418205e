package fsm

import (
	"bytes"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

// TestTasksHaveTheirOwnTimeLimit: those that run, one that ran out of its fold and
// those that wait; users only lower it. All of it is there after a restore.
func TestTasksHaveTheirOwnTimeLimit(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.must(registerCmd(node("n1", "b1", 1)))
	s := spec(1)
	s.TimeLimit = 2 * time.Hour
	s.Array, _ = cluster.ParseArray("0-5")
	id := m.submit(s)
	m.start(id, share1("n1-g0", 8000, 300))
	m.report(id, cluster.JobRunning)
	set := func(tasks string, limit time.Duration, admin bool) Result {
		t.Helper()
		c := changeCmd(id, tasks, logv1.TaskChange_TASK_CHANGE_TIME_LIMIT)
		c.TimeLimitUs, c.Admin = limit.Microseconds(), admin
		return m.do(tasksCmd(c))[0]
	}
	if r := set("0,1", time.Hour, false); r.Err != nil || r.Tasks.Done != 2 {
		t.Errorf("lowered by the owner: %+v", r)
	}
	if r := set("0", 90*time.Minute, false); r.Tasks.Refused != 1 || r.Tasks.Why.Code != cluster.CodeDenied {
		t.Errorf("raised by the owner: %+v", r)
	}
	if r := set("0", 0, false); r.Tasks.Refused != 1 {
		t.Errorf("no limit for the owner: %+v", r)
	}
	if r := set("0,5", 3*time.Hour, true); r.Tasks.Done != 2 {
		t.Errorf("raised by an administrator: %+v", r)
	}
	if r := set("2", time.Millisecond, true); r.Tasks.Refused != 1 || r.Tasks.Why.Code != cluster.CodeInvalid {
		t.Errorf("a millisecond: %+v", r)
	}
	want := []time.Duration{3 * time.Hour, time.Hour, 2 * time.Hour, 2 * time.Hour, 2 * time.Hour, 3 * time.Hour}
	check := func() {
		t.Helper()
		for k, limit := range want {
			if got := m.job(id + cluster.JobID(k)).Spec.TimeLimit; got != limit {
				t.Errorf("task %d has %s, want %s", k, got, limit)
			}
		}
	}
	check()
	if st := m.job(id).State; st != cluster.JobRunning {
		t.Errorf("the task that runs is %s", st)
	}
	again := restored(t, snapshotOf(t, m.f))
	if !bytes.Equal(again.Hash(), m.f.Hash()) {
		t.Error("a restore has another hash")
	}
	m.f = again
	check()
	if need := NeedsVersion(tasksCmd(changeCmd(id, "", logv1.TaskChange_TASK_CHANGE_TIME_LIMIT))); need != 10 {
		t.Errorf("needs version %d", need)
	}
}

// TestARunningJobsTimeLimitChanges, and nothing else of where it is.
func TestARunningJobsTimeLimitChanges(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.must(registerCmd(node("n1", "b1", 1)))
	s := spec(1)
	s.TimeLimit = 2 * time.Hour
	id := m.submit(s)
	m.start(id, share1("n1-g0", 8000, 300))
	m.report(id, cluster.JobRunning)
	was := m.job(id)
	m.must(updateCmd(was, func(s *cluster.Spec) { s.TimeLimit = time.Hour }))
	j := m.job(id)
	if j.Spec.TimeLimit != time.Hour || j.State != cluster.JobRunning || j.Live() == nil || j.Live().Token != was.Live().Token {
		t.Errorf("%s with a limit of %s", j.State, j.Spec.TimeLimit)
	}
}
