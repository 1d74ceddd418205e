package fsm

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

// scoped is a node whose cards are shared among some users only.
func scoped(id cluster.NodeID, s cluster.Scope) *cluster.Node {
	n := node(id, "boot1", 2)
	for i := range n.GPUs {
		n.GPUs[i].CapMode, n.GPUs[i].Scope = "watch", s
	}
	return n
}

// TestStrangersAreRefused: a plan that lays strangers on one card is refused
// when it is applied, whoever made it.
func TestStrangersAreRefused(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		scope cluster.Scope
		uid   cluster.UID
		want  string
	}{
		{"anyone", cluster.ScopeAnyone, 1001, ""},
		{"one user", cluster.ScopeSameUser, 1000, ""},
		{"another user", cluster.ScopeSameUser, 1001, "is shared only among jobs of one user; job 1 there is not of them"},
		{"never", cluster.ScopeNever, 1000, "at most"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			m.must(initCmd("c1", 100))
			m.must(registerCmd(scoped("n1", tc.scope)))
			first := m.must(submitCmd(1, "r1", 1000, spec(1))).Jobs[0]
			second := m.must(submitCmd(2, "r2", tc.uid, spec(1))).Jobs[0]
			m.start(first, share1("n1-g0", 8000, 300))
			r := m.must(planCmd(dispatch.Plan{Starts: []dispatch.Start{m.startOf(second, share1("n1-g0", 8000, 300))}}))
			switch {
			case tc.want == "" && len(r.Plan.Rejected) > 0:
				t.Errorf("rejected: %v", r.Plan.Rejected)
			case tc.want != "" && (len(r.Plan.Rejected) != 1 || !strings.Contains(r.Plan.Rejected[0].Reason.Detail, tc.want)):
				t.Errorf("rejected %v, want %q", r.Plan.Rejected, tc.want)
			}
			if f := restored(t, snapshotOf(t, m.f)); f.EntryVersion() != m.f.EntryVersion() {
				t.Errorf("entry version %d after a restore", f.EntryVersion())
			}
		})
	}
}

// TestScopesNeedVersion8: older coordinators do not know whose jobs may share
// a card, and would lay strangers on it.
func TestScopesNeedVersion8(t *testing.T) {
	t.Parallel()
	if got := NeedsVersion(registerCmd(node("n1", "b", 2))); got != 1 {
		t.Errorf("a node without scopes needs version %d", got)
	}
	if got := NeedsVersion(registerCmd(scoped("n1", cluster.ScopeSameUser))); got != 8 {
		t.Errorf("a node with scopes needs version %d, want 8", got)
	}
}

// disturbedReport ends the attempt of a job for what others did.
func disturbedReport(m *machine, id cluster.JobID) *logv1.ReportAttempt {
	r := m.reportOf(id, cluster.JobNodeFail)
	r.Reason = &logv1.Reason{Code: string(cluster.ReasonGPUNeighbour), Detail: "j9-a1 held more than its share"}
	return r
}

// TestTheDisturbedRunAgain: what others on its card did to a job is not held
// against it, up to three times.
func TestTheDisturbedRunAgain(t *testing.T) {
	t.Parallel()
	m := lab(t)
	id := m.submit(spec(1))
	for range maxDisturbed {
		m.start(id, share1("n1-g0", 8000, 300))
		m.must(reportCmd(disturbedReport(m, id)))
		m.wantState(id, cluster.JobPending)
	}
	m.start(id, share1("n1-g0", 8000, 300))
	m.must(reportCmd(disturbedReport(m, id)))
	if j := m.wantState(id, cluster.JobNodeFail); j.Reason.Code != cluster.ReasonGPUNeighbour {
		t.Errorf("reason %v", j.Reason)
	}
	if x := m.f.Samples(); len(x) != 0 {
		t.Errorf("it was learned from: %+v", x)
	}
}

// TestOlderReportsKeepTheirMeaning: the same report in an older entry is
// the end of a job, and a declared memory gets the benefit of the doubt.
func TestOlderReportsKeepTheirMeaning(t *testing.T) {
	t.Parallel()
	for version, want := range map[uint32]cluster.JobState{7: cluster.JobNodeFail, 8: cluster.JobPending} {
		m := lab(t)
		id := m.submit(spec(1))
		m.start(id, share1("n1-g0", 8000, 300))
		at(t, m, version, reportCmd(disturbedReport(m, id)))
		m.wantState(id, want)
	}
	for _, tc := range []struct {
		version uint32
		peak    int64
		want    cluster.JobState
	}{
		{7, 9000, cluster.JobPending}, // a neighbour may have been the cause
		{8, 9000, cluster.JobOutOfMemory},
		{8, 8000, cluster.JobPending},
	} {
		m := lab(t)
		s := spec(1)
		s.GPUMemMiB = 8000
		id, other := m.submit(s), m.submit(spec(1))
		m.start(id, share1("n1-g0", 8000, 300))
		m.start(other, share1("n1-g0", 8000, 300))
		r := m.reportOf(id, cluster.JobOutOfMemory)
		r.Usage = usage(tc.peak, true)
		at(t, m, tc.version, reportCmd(r))
		m.wantState(id, tc.want)
	}
}

// at applies one command in an entry of a version.
func at(t *testing.T, m *machine, version uint32, cmd *logv1.Command) {
	t.Helper()
	m.index++
	data, err := proto.Marshal(&logv1.Entry{Version: version, Term: testTerm, NowUs: int64(m.now), Commands: []*logv1.Command{cmd}})
	if err != nil {
		t.Fatal(err)
	}
	if rs := applyTo(t, m.f, m.index, testTerm, data); rs[0].Err != nil {
		t.Fatal(rs[0].Err)
	}
}
