package fsm

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/berth-scheduler/berth/cluster"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

// fails starts a job, lets it run and ends it with an exit code.
func (m *machine) fails(id cluster.JobID, code int32) {
	m.t.Helper()
	m.start(id, share1("n1-g0", 8000, 300))
	m.report(id, cluster.JobRunning)
	r := m.reportOf(id, cluster.JobFailed)
	r.Exit = exit(code)
	m.must(reportCmd(r))
}

// TestAJobThatFailsIsTriedAgain as often as it asks for and after what it names, and
// says which try it is; what an older release wrote of it is not changed by that.
func TestAJobThatFailsIsTriedAgain(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.must(registerCmd(node("n1", "b1", 1)))
	s := spec(1)
	s.Retry = cluster.Retry{Times: 2, On: "75,TIMEOUT"}
	id := m.submit(s)
	m.fails(id, 75)
	j := m.wantState(id, cluster.JobPending)
	if j.Reason.Code != cluster.ReasonRequeued || !strings.Contains(j.Reason.Detail, "exit code 75; retry 1 of 2") {
		t.Errorf("after the first: %s", j.Reason)
	}
	m.f = restored(t, snapshotOf(t, m.f))
	m.start(id, share1("n1-g0", 8000, 300))
	m.report(id, cluster.JobRunning)
	m.report(id, cluster.JobTimeout)
	m.wantState(id, cluster.JobPending)
	m.fails(id, 75)
	if j = m.wantState(id, cluster.JobFailed); !strings.Contains(j.Reason.Detail, "no retry is left of 2") {
		t.Errorf("at the end: %s", j.Reason)
	}
	other := m.submit(s)
	m.fails(other, 3)
	if j = m.wantState(other, cluster.JobFailed); j.Reason.Detail != "exit code 3" {
		t.Errorf("after what it does not name: %s", j.Reason)
	}
	if !bytes.Equal(restored(t, snapshotOf(t, m.f)).Hash(), m.f.Hash()) {
		t.Error("a restore has another hash")
	}
	if need := NeedsVersion(submitCmd(9, "r", 1000, s)); need != 15 {
		t.Errorf("needs version %d", need)
	}
}

// TestWhatEndsATryForGood: a cancelled job is over, one told while it runs to try no
// more as well, and a gang that fails at once is not tried on all its nodes again.
func TestWhatEndsATryForGood(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	for i := range 3 {
		n := cluster.NodeID(fmt.Sprintf("n%d", i+1))
		m.must(registerCmd(node(n, "b", 1)))
	}
	s := spec(1)
	s.Retry = cluster.Retry{Times: 5}
	cancelled := m.submit(s)
	m.start(cancelled, share1("n1-g0", 8000, 300))
	m.report(cancelled, cluster.JobRunning)
	m.must(cancelCmd(cancelled, 1000))
	m.report(cancelled, cluster.JobFailed)
	m.wantState(cancelled, cluster.JobCancelled)

	told := m.submit(s)
	m.start(told, share1("n1-g0", 8000, 300))
	m.report(told, cluster.JobRunning)
	m.must(updateCmd(m.job(told), func(s *cluster.Spec) { s.Retry.Times = 0 }))
	m.report(told, cluster.JobFailed)
	m.wantState(told, cluster.JobFailed)

	early := m.gangOn(s, "n1-g0", "n2-g0")
	m.runs(early)
	m.part(early, 0, cluster.JobFailed)
	m.part(early, 1, cluster.JobCancelled)
	if j := m.wantState(early, cluster.JobFailed); !strings.Contains(j.Reason.Detail, "on 2 nodes a failure within a minute of the start is final") {
		t.Errorf("a gang that failed at once: %s", j.Reason)
	}
	late := m.gangOn(s, "n1-g0", "n2-g0")
	m.runs(late)
	m.now = m.now.Add(2 * time.Minute)
	m.part(late, 0, cluster.JobFailed)
	m.part(late, 1, cluster.JobCancelled)
	m.wantState(late, cluster.JobPending)
}

// TestAnEarlyFailureIsProbed on the fewest nodes by this release, and ends the job in
// the log of an older one.
func TestAnEarlyFailureIsProbed(t *testing.T) {
	t.Parallel()
	for version, want := range map[uint32]cluster.JobState{14: cluster.JobFailed, 15: cluster.JobPending} {
		m := newMachine(t)
		for i := range 2 {
			m.must(registerCmd(node(cluster.NodeID(fmt.Sprintf("n%d", i+1)), "b", 1)))
		}
		s := spec(1)
		s.Retry, s.Nodes, s.NodeRange = cluster.Retry{Times: 5}, 1, cluster.NodeRange{Min: 1, Max: 2}
		id := m.submit(s)
		m.startGang(id, "n1-g0", "n2-g0")
		m.runs(id)
		m.part(id, 0, cluster.JobFailed)
		last := m.partOf(id, 1, cluster.JobCancelled, false)
		data, err := proto.Marshal(&logv1.Entry{Version: version, Term: testTerm, NowUs: int64(m.now.Add(time.Second)), Commands: []*logv1.Command{reportCmd(last)}})
		if err != nil {
			t.Fatal(err)
		}
		applyTo(t, m.f, m.index+1, testTerm, data)
		if j := m.wantState(id, want); want == cluster.JobPending && (j.Spec.NodeCount() != 1 || !strings.Contains(j.Reason.Detail, "retry 1 of 5, with the fewest nodes, 1")) {
			t.Errorf("version %d: on %d nodes, %s", version, j.Spec.NodeCount(), j.Reason)
		}
	}
}

// TestALostNodeIsATry for who names it: as for --requeue-on-loss it runs again on
// another node, and only so often.
func TestALostNodeIsATry(t *testing.T) {
	t.Parallel()
	for on, want := range map[string]cluster.JobState{"": cluster.JobPending, "NODE_FAIL": cluster.JobPending, "FAILED": cluster.JobNodeFail} {
		m := newMachine(t)
		m.must(registerCmd(node("n1", "b1", 1)))
		s := spec(1)
		s.Retry = cluster.Retry{Times: 1, On: on}
		id := m.submit(s)
		m.start(id, share1("n1-g0", 8000, 300))
		m.report(id, cluster.JobRunning)
		m.must(silentCmd("n1", "b1"))
		m.must(fenceCmd("n1"))
		m.wantState(id, want)
	}
}

// TestOutOfMemoryClimbsFirst: a larger share is tried before anything else, and only
// what is left of the tries follows.
func TestOutOfMemoryClimbsFirst(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.must(registerCmd(node("n1", "b1", 1)))
	s := spec(1)
	s.Retry = cluster.Retry{Times: 2, On: "OUT_OF_MEMORY"}
	id := m.submit(s)
	m.start(id, share1("n1-g0", 8000, 300))
	m.oom(id, 8000)
	if j := m.wantState(id, cluster.JobPending); j.MinGPUMemMiB == 0 && !j.NeedWhole {
		t.Errorf("it is tried with no more memory: %s", j.Reason)
	}
	m.start(id, whole("n1-g0"))
	m.oom(id, 8000)
	m.wantState(id, cluster.JobPending)
	m.start(id, whole("n1-g0"))
	m.oom(id, 8000)
	m.wantState(id, cluster.JobOutOfMemory)
}
