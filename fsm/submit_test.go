package fsm

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/fsm/orders"
)

func TestSubmit(t *testing.T) {
	t.Parallel()
	t.Run("a new job waits to be looked at", func(t *testing.T) {
		m := newMachine(t)
		r := m.must(submitCmd(1, "r1", 1000, spec(1)))
		if d := cmp.Diff([]cluster.JobID{1}, r.Jobs); d != "" || r.Existing {
			t.Fatalf("existing %t: %s", r.Existing, d)
		}
		j := m.wantState(1, cluster.JobPending)
		want := &cluster.Job{
			ID: 1, Revision: 1, Owner: cluster.Owner{UID: 1000, GID: 100, Name: "ada"}, Spec: spec(1), State: cluster.JobPending,
			Reason: cluster.Reason{Code: cluster.ReasonUnconfirmed}, Submitted: m.now, Eligible: m.now,
			Estimates: []cluster.Estimate{{GPUType: "A100", GPUMemMiB: 8000, GPUMemP95MiB: 9000, Milli: 300, Duration: time.Hour, ConfidenceMilli: 500, Source: "declared"}},
		}
		if d := cmp.Diff(want, j); d != "" {
			t.Fatal(d)
		}
	})
	t.Run("jobs of one request get ids in a row", func(t *testing.T) {
		m := newMachine(t)
		r := m.must(submitCmd(5, "r1", 1000, spec(1), spec(0), spec(2)))
		if d := cmp.Diff([]cluster.JobID{5, 6, 7}, r.Jobs); d != "" || m.f.NextJobID() != 8 {
			t.Fatalf("next %d: %s", m.f.NextJobID(), d)
		}
	})
	t.Run("the same request gets the same answer", func(t *testing.T) {
		m := newMachine(t)
		first := m.must(submitCmd(1, "r1", 1000, spec(1), spec(1)))
		again := m.must(submitCmd(3, "r1", 1000, spec(1), spec(1)))
		if d := cmp.Diff(first.Jobs, again.Jobs); d != "" || !again.Existing || m.f.NextJobID() != 3 {
			t.Fatalf("existing %t, next %d: %s", again.Existing, m.f.NextJobID(), d)
		}
	})
	t.Run("another body under the same request id is refused", func(t *testing.T) {
		m := newMachine(t)
		m.must(submitCmd(1, "r1", 1000, spec(1)))
		m.refused(cluster.CodeAlreadyExists, submitCmd(2, "r1", 1000, spec(2)))
	})
	t.Run("request ids of different users do not meet", func(t *testing.T) {
		m := newMachine(t)
		m.must(submitCmd(1, "r1", 1000, spec(1)))
		if r := m.must(submitCmd(2, "r1", 1001, spec(1))); r.Existing || r.Jobs[0] != 2 {
			t.Fatalf("got %+v", r)
		}
	})
	t.Run("an id that was given is refused and changes nothing", func(t *testing.T) {
		m := newMachine(t)
		m.must(submitCmd(7, "r1", 1000, spec(1)))
		m.refused(cluster.CodeConflict, submitCmd(7, "r2", 1000, spec(1)))
		m.refused(cluster.CodeConflict, submitCmd(0, "r3", 1000, spec(1)))
		m.refused(cluster.CodeConflict, submitCmd(1<<63, "r4", 1000, spec(1)))
	})
	t.Run("malformed requests are refused whole", func(t *testing.T) {
		m := newMachine(t)
		noID, noHash, noSpec := submitCmd(1, "", 1000, spec(1)), submitCmd(1, "r", 1000, spec(1)), submitCmd(1, "r", 1000, spec(1), spec(1))
		noHash.GetSubmitJob().BodyHash = nil
		noSpec.GetSubmitJob().Jobs[1].Spec = nil
		negative := submitCmd(1, "r", 1000, spec(1), spec(1))
		negative.GetSubmitJob().Jobs[1].Spec.GpuMemMib = -1
		m.refused(cluster.CodeInvalid, noID)
		m.refused(cluster.CodeInvalid, noHash)
		m.refused(cluster.CodeInvalid, noSpec)
		m.refused(cluster.CodeInvalid, negative)
		m.refused(cluster.CodeInvalid, submitCmd(1, "r", 1000))
	})
}

func TestRequestsExpire(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.must(submitCmd(1, "r1", 1000, spec(1)))
	m.now = m.now.Add(orders.RequestLife - time.Second) // do adds the second
	if r := m.must(submitCmd(2, "r1", 1000, spec(1))); !r.Existing {
		t.Fatal("forgotten before its time")
	}
	if r := m.must(submitCmd(2, "r1", 1000, spec(1))); r.Existing || r.Jobs[0] != 2 {
		t.Fatalf("remembered for too long: %+v", r)
	}
	if n := m.f.st.desk.Requests.Len(); n != 1 || len(m.f.st.desk.Requests.Order()) != 1 {
		t.Fatalf("%d requests, %d in order", n, len(m.f.st.desk.Requests.Order()))
	}
}

func TestRequestsAreBounded(t *testing.T) {
	t.Parallel()
	s := newState()
	for i := range orders.MaxRequests + 5 {
		s.desk.Requests.Expire(s.at.Now)
		s.desk.Requests.Add(&orders.Request{Key: orders.Key{byte(i), byte(i >> 8), byte(i >> 16)}, At: s.at.Now, First: 1, Count: 1})
	}
	if s.desk.Requests.Len() != orders.MaxRequests || len(s.desk.Requests.Order()) != orders.MaxRequests {
		t.Fatalf("%d requests, %d in order, bound %d", s.desk.Requests.Len(), len(s.desk.Requests.Order()), orders.MaxRequests)
	}
	if s.desk.Requests.Has(orders.Key{4}) {
		t.Fatal("the oldest is still there")
	}
}

func TestCancel(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		prepare func(m *machine) cluster.JobID
		by      cluster.UID
		outcome CancelOutcome
		state   cluster.JobState // 0: gone
		reason  cluster.ReasonCode
	}{
		{"no such job", func(m *machine) cluster.JobID { return 42 }, 1000, NotFound, 0, ""},
		{"pending", func(m *machine) cluster.JobID { return m.submit(spec(1)) }, 1000, Cancelled, cluster.JobCancelled, cluster.ReasonByUser},
		{"pending, by an administrator", func(m *machine) cluster.JobID { return m.submit(spec(1)) }, 0, Cancelled, cluster.JobCancelled, cluster.ReasonByAdmin},
		{"queued", func(m *machine) cluster.JobID {
			id := m.submit(spec(1))
			m.enqueue(id, "n1-g0", 1)
			return id
		}, 1000, Cancelled, cluster.JobCancelled, cluster.ReasonByUser},
		{"running goes on until the agent has ended it", func(m *machine) cluster.JobID {
			id := m.submit(spec(1))
			m.start(id, share1("n1-g0", 8000, 300))
			m.report(id, cluster.JobRunning)
			return id
		}, 1000, Cancelled, cluster.JobRunning, ""},
		{"finished", func(m *machine) cluster.JobID {
			id := m.submit(spec(1))
			m.start(id, share1("n1-g0", 8000, 300))
			m.report(id, cluster.JobCompleted)
			return id
		}, 1000, Finished, cluster.JobCompleted, ""},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			m := lab(t)
			id := tc.prepare(m)
			r := m.must(cancelCmd(id, tc.by))
			if r.Cancel != tc.outcome {
				t.Fatalf("outcome %d, want %d", r.Cancel, tc.outcome)
			}
			if tc.state == 0 {
				return
			}
			j := m.wantState(id, tc.state)
			if j.Reason.Code != tc.reason || j.Queue != "" || len(m.f.Queue("n1-g0")) != 0 {
				t.Fatalf("reason %s, queue %q", j.Reason, j.Queue)
			}
		})
	}
}

func TestCancelledWhateverItsExit(t *testing.T) {
	t.Parallel()
	for _, end := range []cluster.JobState{cluster.JobCompleted, cluster.JobFailed, cluster.JobNodeFail, cluster.JobOutOfMemory, cluster.JobTimeout} {
		t.Run(end.String(), func(t *testing.T) {
			m := lab(t)
			s := spec(1)
			s.RequeueOnLoss = true
			id := m.submit(s)
			m.start(id, share1("n1-g0", 8000, 300))
			m.must(cancelCmd(id, 1000))
			at := m.now
			m.must(cancelCmd(id, 0)) // who asked first stays on record
			r := m.reportOf(id, end)
			r.Usage, r.Exit = usage(9000, true), exit(137)
			m.must(reportCmd(r))
			j := m.wantState(id, cluster.JobCancelled)
			if d := cmp.Diff(&cluster.CancelRequest{At: at, By: 1000}, j.Cancel); d != "" {
				t.Error(d)
			}
			if j.Last().Exit == nil || j.Last().Exit.Code != 137 || j.Reason.Code != cluster.ReasonByUser {
				t.Errorf("exit %v, reason %s", j.Last().Exit, j.Reason)
			}
		})
	}
}

func TestFinishedAreForgotten(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.must(initCmd("c1", 3))
	for range 5 {
		m.submit(spec(0))
	}
	for _, id := range []cluster.JobID{4, 2, 5, 1} {
		m.must(cancelCmd(id, 1000))
	}
	if _, ok := m.f.Job(4); ok {
		t.Error("the one that ended first is still there")
	}
	want := map[cluster.JobState]int{cluster.JobCancelled: 3, cluster.JobPending: 1}
	if d := cmp.Diff(want, m.f.Counts()); d != "" {
		t.Error(d)
	}
	if r := m.must(cancelCmd(4, 1000)); r.Cancel != NotFound {
		t.Errorf("cancel of a forgotten job: %d", r.Cancel)
	}
}

func TestFinishedInOneEntryAreForgottenByID(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.must(initCmd("c1", 2))
	for range 4 {
		m.submit(spec(0))
	}
	m.do(cancelCmd(4, 0), cancelCmd(3, 0), cancelCmd(2, 0))
	jobs, _ := m.f.Jobs(Query{States: []cluster.JobState{cluster.JobCancelled}})
	var ids []cluster.JobID
	for _, j := range jobs {
		ids = append(ids, j.ID)
	}
	if d := cmp.Diff([]cluster.JobID{3, 4}, ids); d != "" {
		t.Fatal(d)
	}
}

func TestJobsShareWhatTheyHaveInCommon(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	for i := range 2 {
		m.must(submitCmd(m.f.NextJobID(), fmt.Sprint("r", i), 1000, spec(1)))
	}
	a, b := m.job(1).Spec, m.job(2).Spec
	if &a.Env[0] != &b.Env[0] || &a.Command[0] != &b.Command[0] {
		t.Error("equal environments are stored twice")
	}
	other := spec(1)
	other.Env = []string{"HOME=/root"}
	m.must(submitCmd(3, "r9", 1000, other))
	if got := m.job(3).Spec.Env[0]; got != "HOME=/root" {
		t.Errorf("env %q: took another job's", got)
	}
}
