package fsm

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

func hosts(t tb, text string) cluster.HostList {
	t.Helper()
	h, err := cluster.ParseHostList(text)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return h
}

func partitionCmd(p *cluster.Partition, base uint64) *logv1.Command {
	return &logv1.Command{Kind: &logv1.Command_SetPartition{SetPartition: &logv1.SetPartition{Partition: conv.PartitionToLog(p), Base: base}}}
}

func removePartitionCmd(name string) *logv1.Command {
	return &logv1.Command{Kind: &logv1.Command_RemovePartition{RemovePartition: &logv1.RemovePartition{Name: name}}}
}

// inPartition is a spec of one GPU for a partition.
func inPartition(name string) *cluster.Spec {
	s := spec(1)
	s.Partition = name
	return s
}

// halves is a cluster with partition a on n1 and b, the default, on n2.
func halves(t *testing.T) *machine {
	m := newMachine(t)
	m.must(initCmd("c1", 100))
	m.must(registerCmd(node("n1", "boot1", 2)))
	m.must(registerCmd(node("n2", "boot1", 2)))
	m.must(partitionCmd(&cluster.Partition{Name: "a", Nodes: hosts(t, "n1")}, 0))
	m.must(partitionCmd(&cluster.Partition{Name: "b", Nodes: hosts(t, "n2"), Default: true, MaxTime: time.Hour, DefaultTime: time.Minute, SessionIdle: time.Hour, GPUTypes: []string{"A100"}}, 0))
	return m
}

func TestPartitionsAreStored(t *testing.T) {
	t.Parallel()
	m := halves(t)
	want := m.f.Partitions()
	if len(want) != 2 || want[0].Name != "a" || want[0].Default || !want[1].Default || want[1].Revision != m.index {
		t.Fatalf("partitions %+v", want)
	}
	f := restored(t, snapshotOf(t, m.f))
	if d := cmp.Diff(want, f.Partitions()); d != "" || !bytes.Equal(f.Hash(), m.f.Hash()) {
		t.Errorf("restored differs: %s", d)
	}
	before := m.f.Hash()
	m.must(partitionCmd(&cluster.Partition{Name: "a", Nodes: hosts(t, "n1"), Default: true}, want[0].Revision))
	if got := m.f.Partitions(); !got[0].Default || got[1].Default || got[1].Revision != m.index {
		t.Errorf("a new default leaves %+v", got)
	}
	if bytes.Equal(before, m.f.Hash()) {
		t.Error("the hash does not see partitions")
	}
	m.must(removePartitionCmd("b"))
	if _, ok := m.f.Partition("b"); ok {
		t.Error("b is still there")
	}
}

func TestPartitionsThatAreRefused(t *testing.T) {
	t.Parallel()
	m := halves(t)
	a, _ := m.f.Partition("a")
	for _, c := range []struct {
		name string
		code cluster.Code
		cmd  *logv1.Command
		want string
	}{
		{"a new one that is there", cluster.CodeConflict, partitionCmd(a, 0), "changed meanwhile"},
		{"one that is gone", cluster.CodeConflict, partitionCmd(&cluster.Partition{Name: "x", Nodes: a.Nodes}, 3), "removed meanwhile"},
		{"no nodes", cluster.CodeInvalid, partitionCmd(&cluster.Partition{Name: "x"}, 0), "want 1 to 8192"},
		{"times the wrong way round", cluster.CodeInvalid, partitionCmd(&cluster.Partition{Name: "x", Nodes: a.Nodes, MaxTime: time.Hour, DefaultTime: 2 * time.Hour}, 0), "above max_time"},
		{"a submit to an unknown one", cluster.CodeInvalid, submitCmd(m.f.NextJobID(), "r", 1000, inPartition("x")), `partition "x" is not known`},
		{"an unknown one to remove", cluster.CodeNotFound, removePartitionCmd("x"), "not known"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := m.refused(c.code, c.cmd); !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q in it", err, c.want)
			}
		})
	}
	id := m.submit(inPartition("a"))
	if err := m.refused(cluster.CodeConflict, removePartitionCmd("a")); !strings.Contains(err.Error(), "1 jobs that wait and 0 that run") {
		t.Error(err)
	}
	m.must(cancelCmd(id, 1000))
	m.must(removePartitionCmd("a"))
}

// TestPartitionsNeedTheirVersion: coordinators that do not know partitions are
// not told of any.
func TestPartitionsNeedTheirVersion(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		cmd  *logv1.Command
		want uint32
	}{
		{"set", partitionCmd(&cluster.Partition{Name: "a"}, 0), 5},
		{"a limit of idle sessions", partitionCmd(&cluster.Partition{Name: "a", SessionIdle: time.Hour}, 0), 10},
		{"remove", removePartitionCmd("a"), 5},
		{"a job of one", submitCmd(1, "r", 1000, spec(1), inPartition("a")), 5},
		{"a job of none", submitCmd(1, "r", 1000, spec(1)), 1},
	} {
		if got := NeedsVersion(c.cmd); got != c.want {
			t.Errorf("%s: version %d, want %d", c.name, got, c.want)
		}
	}
}

// TestStartsOnLoan: a start outside of its partition is taken where the one that it names lends
// to it, and kept with the attempt; it is given back without rest, with or without a hook.
func TestStartsOnLoan(t *testing.T) {
	t.Parallel()
	m := halves(t)
	id := m.submit(inPartition("a"))
	on := func(loan string) dispatch.Plan {
		st := m.startOf(id, share1("n2-g0", 8000, 300))
		st.Loan = loan
		return dispatch.Plan{Starts: []dispatch.Start{st}}
	}
	refused := func(loan, why string) {
		t.Helper()
		if r := m.must(planCmd(on(loan))); len(r.Plan.Rejected) != 1 || !strings.Contains(r.Plan.Rejected[0].Reason.Detail, why) {
			t.Errorf("%+v", r.Plan)
		}
	}
	refused("b", "partition b lends nothing to the job's")
	refused("nowhere", "partition nowhere lends nothing")
	b, _ := m.f.Partition("b")
	lends := *b
	lends.Lend = cluster.Lending{To: []string{"a"}}
	m.must(partitionCmd(&lends, b.Revision))
	a, _ := m.f.Partition("a")
	down := *a
	down.Down = true
	m.must(partitionCmd(&down, a.Revision))
	refused("b", "partition a is down")
	a, _ = m.f.Partition("a")
	up := *a
	up.Down = false
	m.must(partitionCmd(&up, a.Revision))
	plan := on("b")
	if v := NeedsVersion(planCmd(plan)); v != 15 {
		t.Errorf("needs version %d", v)
	}
	if r := m.must(planCmd(plan)); len(r.Plan.Rejected) != 0 || m.job(id).OnLoan() != "b" {
		t.Fatalf("%+v: on loan from %q", r.Plan, m.job(id).OnLoan())
	}
	m.must(&logv1.Command{Kind: &logv1.Command_PreemptAttempt{PreemptAttempt: &logv1.PreemptAttempt{Job: uint64(id), Attempt: 1, For: 99, Why: "given back"}}})
	if j := m.job(id); !j.Preempting() || j.Reason.Detail != "for job 99: given back" {
		t.Errorf("%v", j.Reason)
	}
	m.sameRestored()
}

// TestJobsStayInTheirPartition: the state machine takes no start and no move
// that leaves it, and no job waits where it may not.
func TestJobsStayInTheirPartition(t *testing.T) {
	t.Parallel()
	m := halves(t)
	id := m.submit(inPartition("a"))
	for _, p := range []dispatch.Plan{
		{Starts: []dispatch.Start{m.startOf(id, share1("n2-g0", 8000, 300))}},
		{Moves: []dispatch.QueueMove{{Job: id, GPU: "n2-g0", Rank: 1}}},
	} {
		if r := m.must(planCmd(p)); len(r.Plan.Rejected) != 1 || !strings.Contains(r.Plan.Rejected[0].Reason.Detail, "is not in partition a") {
			t.Errorf("%+v: %+v", p, r.Plan)
		}
	}
	m.enqueue(id, "n1-g0", 1)
	a, _ := m.f.Partition("a")
	down := *a
	down.Down = true
	m.must(partitionCmd(&down, a.Revision))
	if j := m.wantState(id, cluster.JobPending); j.Reason.Code != cluster.ReasonPartitionDown || len(m.f.Queue("n1-g0")) != 0 {
		t.Errorf("waits as %v", j.Reason)
	}
	if r := m.must(planCmd(dispatch.Plan{Starts: []dispatch.Start{m.startOf(id, share1("n1-g0", 8000, 300))}})); len(r.Plan.Rejected) != 1 {
		t.Errorf("starts while the partition is down: %+v", r.Plan)
	}
	late := m.submit(inPartition("a"))
	if j := m.job(late); j.Reason.Code != cluster.ReasonPartitionDown {
		t.Errorf("a new job waits as %v", j.Reason)
	}
	up := *a
	m.must(partitionCmd(&up, m.f.Partitions()[0].Revision))
	if j := m.job(late); j.Reason.Code != cluster.ReasonUnconfirmed {
		t.Errorf("waits as %v when it is up again", j.Reason)
	}
	m.enqueue(id, "n1-g0", 1)
	other := up
	other.Nodes = hosts(t, "n2")
	m.must(partitionCmd(&other, m.f.Partitions()[0].Revision))
	m.wantState(id, cluster.JobPending)
	m.start(id, share1("n2-g1", 8000, 300))
}
