package fsm

import (
	"bytes"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

func sharingCmd(at *logv1.SharingOff, off bool) *logv1.Command {
	o := proto.CloneOf(at)
	o.By, o.Reason = 7, "caps do not hold"
	return &logv1.Command{Kind: &logv1.Command_SetSharing{SetSharing: &logv1.SetSharing{Place: o, Off: off}}}
}

// unsharedCards are the cards on which sharing is off, by their ids.
func unsharedCards(m *machine) string {
	var out []string
	for _, n := range m.f.Nodes() {
		for i := range n.GPUs {
			if u, _ := m.f.st.fleet.Ledger().GPU(n.GPUs[i].ID); u.Shareable == (n.GPUs[i].Unshared != "") {
				m.t.Fatalf("GPU %s: the ledger shares it %t, and it says %q", n.GPUs[i].ID, u.Shareable, n.GPUs[i].Unshared)
			}
			if n.GPUs[i].Unshared != "" {
				out = append(out, string(n.GPUs[i].ID))
			}
		}
	}
	return strings.Join(out, " ")
}

// twoNodes are n1 and n2 with two cards each, of which partition a has n2.
func twoNodes(t tb) *machine {
	m := newMachine(t)
	m.must(initCmd("c1", 100))
	for _, id := range []cluster.NodeID{"n1", "n2"} {
		m.must(registerCmd(node(id, "boot1", 2)))
	}
	m.must(partitionCmd(&cluster.Partition{Name: "a", Nodes: hosts(t, "n2")}, 0))
	return m
}

// TestSharingOffCovers: a switch holds for the cards of its place and no others,
// after a restore, for nodes that come again, and for what a partition gets later.
func TestSharingOffCovers(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		at   *logv1.SharingOff
		want string
	}{
		{"a GPU", &logv1.SharingOff{Gpu: "n1-g1"}, "n1-g1"},
		{"a node", &logv1.SharingOff{Node: "n1"}, "n1-g0 n1-g1"},
		{"a partition", &logv1.SharingOff{Partition: "a"}, "n2-g0 n2-g1"},
		{"the cluster", &logv1.SharingOff{}, "n1-g0 n1-g1 n2-g0 n2-g1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			m := twoNodes(t)
			before := m.f.Hash()
			m.must(sharingCmd(tc.at, true))
			if got := unsharedCards(m); got != tc.want {
				t.Fatalf("off on %q, want %q", got, tc.want)
			}
			m.must(registerCmd(node("n1", "boot2", 2)))
			m.must(registerCmd(node("n2", "boot2", 2)))
			if got := unsharedCards(m); got != tc.want {
				t.Errorf("after the nodes came again off on %q, want %q", got, tc.want)
			}
			f := restored(t, snapshotOf(t, m.f))
			again := &machine{t: t, f: f}
			if got := unsharedCards(again); got != tc.want || !bytes.Equal(f.Hash(), m.f.Hash()) {
				t.Errorf("after a restore off on %q, want %q; equal hashes %t", got, tc.want, bytes.Equal(f.Hash(), m.f.Hash()))
			}
			if bytes.Equal(f.Hash(), before) {
				t.Error("the hash does not know of it")
			}
			m.must(sharingCmd(tc.at, false))
			m.must(sharingCmd(tc.at, false)) // again changes nothing
			if got := unsharedCards(m); got != "" || len(m.f.SharingOff()) > 0 {
				t.Errorf("off on %q after it was switched on", got)
			}
		})
	}
}

func TestSharingOffFollowsPartitions(t *testing.T) {
	t.Parallel()
	m := twoNodes(t)
	m.must(sharingCmd(&logv1.SharingOff{Partition: "a"}, true))
	p, _ := m.f.Partition("a")
	m.must(partitionCmd(&cluster.Partition{Name: "a", Nodes: hosts(t, "n1")}, p.Revision))
	if got := unsharedCards(m); got != "n1-g0 n1-g1" {
		t.Errorf("off on %q when the partition has moved to n1", got)
	}
	m.must(removePartitionCmd("a"))
	if got := unsharedCards(m); got != "" || len(m.f.SharingOff()) > 0 {
		t.Errorf("off on %q when the partition is gone", got)
	}
	m.must(sharingCmd(&logv1.SharingOff{Node: "n2"}, true))
	m.must(removeCmd("n2"))
	if len(m.f.SharingOff()) > 0 {
		t.Error("a node that is gone keeps its switch")
	}
}

func TestSharingOffRefuses(t *testing.T) {
	t.Parallel()
	m := twoNodes(t)
	m.refused(cluster.CodeNotFound, sharingCmd(&logv1.SharingOff{Node: "n9"}, true))
	m.refused(cluster.CodeNotFound, sharingCmd(&logv1.SharingOff{Gpu: "n9-g0"}, true))
	m.refused(cluster.CodeNotFound, sharingCmd(&logv1.SharingOff{Partition: "z"}, true))
	m.refused(cluster.CodeInvalid, sharingCmd(&logv1.SharingOff{Node: "n1", Partition: "a"}, true))
	if v := NeedsVersion(sharingCmd(&logv1.SharingOff{}, true)); v != 11 {
		t.Errorf("needs version %d", v)
	}
}

// TestSharingOffForAnotherReason: who switches it off again says why it is off now; the
// same words again change nothing.
func TestSharingOffForAnotherReason(t *testing.T) {
	t.Parallel()
	m := twoNodes(t)
	off := func(why string) *logv1.Command {
		c := sharingCmd(&logv1.SharingOff{Node: "n1"}, true)
		c.GetSetSharing().Place.Reason = why
		return c
	}
	for _, why := range []string{"caps do not hold", "a benchmark"} {
		m.must(off(why))
		now := m.now
		hash := entitiesHash(m.f)
		m.must(off(why))
		if o := m.f.SharingOff(); len(o) != 1 || o[0].Reason != why || o[0].At != now || hash != entitiesHash(m.f) {
			t.Errorf("it is off since %d for %q, want since %d for %q", o[0].At, o[0].Reason, now, why)
		}
	}
}

// TestSharingOffRejectsPlans: a plan that was made before, and lays a job beside
// another, is rejected when it is applied; who lies there goes on, and a card with
// nobody on it takes one.
func TestSharingOffRejectsPlans(t *testing.T) {
	t.Parallel()
	m := twoNodes(t)
	a, b, c := m.submit(spec(1)), m.submit(spec(1)), m.submit(spec(1))
	m.start(a, share1("n1-g0", 8000, 300))
	m.start(b, share1("n1-g0", 8000, 300))
	stale := m.startOf(c, share1("n1-g0", 8000, 300))
	m.must(sharingCmd(&logv1.SharingOff{Node: "n1"}, true))
	r := m.must(planCmd(dispatch.Plan{Starts: []dispatch.Start{stale}}))
	if len(r.Plan.Rejected) != 1 || r.Plan.Rejected[0].Reason.Code != cluster.ReasonSharing ||
		!strings.Contains(r.Plan.Rejected[0].Reason.Detail, "sharing is off on node n1: caps do not hold") {
		t.Errorf("rejected %v, want the switch", r.Plan.Rejected)
	}
	m.wantState(a, cluster.JobStarting)
	m.wantState(b, cluster.JobStarting)
	m.start(c, share1("n1-g1", 8000, 300))
	m.wantState(c, cluster.JobStarting)
	d := m.submit(spec(1))
	m.start(d, share1("n2-g0", 8000, 300)) // elsewhere all is as before
	e := m.submit(spec(1))
	m.start(e, share1("n2-g0", 8000, 300))
	m.wantState(e, cluster.JobStarting)
}
