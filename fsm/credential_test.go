package fsm

import (
	"testing"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
)

// TestSecretsEndWithTheirAttempts: an attempt keeps what its plan gave it through a
// restore, until it ends; the next one has its own.
func TestSecretsEndWithTheirAttempts(t *testing.T) {
	t.Parallel()
	m := lab(t)
	s := spec(1)
	s.RequeueOnLoss = true
	id := m.submit(s)
	begin := func(secret cluster.Secret, gpu cluster.GPUID) {
		t.Helper()
		st := m.startOf(id, share1(gpu, 8000, 300))
		st.Secret = secret
		if r := m.must(planCmd(dispatch.Plan{Starts: []dispatch.Start{st}})); len(r.Plan.Started) != 1 {
			t.Fatalf("%+v", r.Plan)
		}
		m.report(id, cluster.JobRunning)
		for _, f := range []*FSM{m.f, restored(t, snapshotOf(t, m.f))} {
			j, _ := f.Job(id)
			if got := j.Last().Secret; got != secret || !j.Holds(j.Last().Credential(j, j.Last().Berth.Node), j.Last().Berth.Node) {
				t.Errorf("attempt %d has %#v", j.Last().No, got)
			}
		}
	}
	begin("first", "n1-g0")
	m.must(silentCmd("n1", "boot1"))
	m.must(fenceCmd("n1"))
	if j := m.wantState(id, cluster.JobPending); j.Attempts[0].Secret != "" {
		t.Error("the secret of a lost attempt is kept")
	}
	begin("second", "n2-g0")
	m.report(id, cluster.JobCompleted)
	if j := m.wantState(id, cluster.JobCompleted); j.Attempts[0].Secret != "" || j.Attempts[1].Secret != "" {
		t.Error("the secret of an attempt that has ended is kept")
	}
}

// TestNodesSayThatTheyGiveCredentials: each time they register, for they may be
// downgraded.
func TestNodesSayThatTheyGiveCredentials(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	for _, gives := range []bool{false, true, false} {
		n := node("n1", "boot1", 1)
		n.Credentials = gives
		m.must(registerCmd(n))
		for _, f := range []*FSM{m.f, restored(t, snapshotOf(t, m.f))} {
			if got, _ := f.Node("n1"); got.Credentials != gives {
				t.Errorf("gives credentials: %t, want %t", got.Credentials, gives)
			}
		}
	}
}
