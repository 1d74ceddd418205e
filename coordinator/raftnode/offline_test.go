package raftnode

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// entryOf is the index of the entry with some data in a stopped member's log.
func entryOf(t *testing.T, o *Offline, data string) (at uint64) {
	t.Helper()
	if err := o.Entries(0, func(e Entry) error {
		if string(e.Data) == data {
			at = e.Index
		}
		return nil
	}); err != nil || at == 0 {
		t.Fatalf("entry %q: index %d, %v", data, at, err)
	}
	return at
}

func offline(t *testing.T, m *member) *Offline {
	t.Helper()
	o, err := OpenOffline(m.dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = o.Close() })
	return o
}

// TestSkippedEntry: an entry that is skipped in every directory is given to no state
// machine any more, all others are, and what was skipped stays visible. A member
// that lacked the entry gets what stands in its place.
func TestSkippedEntry(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, nil)
	propose(t, c.leader(), "a")
	late := c.follower()
	c.agree([]string{"a"})
	if _, err := OpenOffline(late.dir); err == nil || !strings.Contains(err.Error(), "stop it first") {
		t.Errorf("the directory of a member that runs: %v", err)
	}
	kill(t, late)
	propose(t, c.leader(), "poison")
	propose(t, c.leader(), "b")
	c.agree([]string{"a", "poison", "b"})
	var notes []string
	for _, m := range c.running() {
		kill(t, m)
		o := offline(t, m)
		at := entryOf(t, o, "poison")
		for range 2 { // doing it again changes nothing
			note, err := o.Skip(at, time.Unix(0, 0))
			if err != nil {
				t.Fatal(err)
			}
			notes = append(notes, note)
		}
		_, last, _ := o.Holds()
		if _, err := o.Skip(last+1, time.Now()); err == nil || !strings.Contains(err.Error(), "is not in this coordinator's log") {
			t.Errorf("an entry that is not there: %v", err)
		}
		if err := o.Close(); err != nil {
			t.Fatal(err)
		}
		if lines, err := Skipped(m.dir); err != nil || len(lines) != 1 || !strings.HasPrefix(lines[0], "1970-01-01T00:00:00Z entry ") {
			t.Errorf("recorded %q, %v", lines, err)
		}
		if err := Preflight(m.dir); err != nil {
			t.Error(err)
		}
	}
	if len(slices.Compact(notes)) != 1 {
		t.Errorf("what stands in the entry's place differs: %q", notes)
	}
	for _, m := range c.members {
		c.restart(m)
	}
	propose(t, c.leader(), "c")
	c.agree([]string{"a", "b", "c"})
}

// TestSkippedEntryInASnapshot: what was applied for good is not skipped.
func TestSkippedEntryInASnapshot(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, nil)
	m := c.leader()
	propose(t, m, "a")
	if err := m.raft.Snapshot().Error(); err != nil {
		t.Fatal(err)
	}
	kill(t, m)
	o := offline(t, m)
	_, _, snapshot := o.Holds()
	if _, err := o.Skip(snapshot, time.Now()); err == nil || !strings.Contains(err.Error(), "it was applied here") {
		t.Errorf("skipped what a snapshot of %d holds: %v", snapshot, err)
	}
}

// TestRecoveredMember: the one coordinator that is left of three goes on with all that
// its log holds, by itself.
func TestRecoveredMember(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, nil)
	propose(t, c.leader(), "a")
	c.agree([]string{"a"})
	for _, m := range c.running() {
		kill(t, m)
	}
	left := c.members[1]
	o := offline(t, left)
	if err := o.Recover(&listFSM{}, []Server{{ID: "c2", Addr: c.members[2].addr}}); err == nil || !strings.Contains(err.Error(), "not among the members") {
		t.Errorf("recovered without itself: %v", err)
	}
	if err := o.Recover(&listFSM{}, []Server{{ID: left.id, Addr: left.addr}}); err != nil {
		t.Fatal(err)
	}
	if err := o.Close(); err != nil {
		t.Fatal(err)
	}
	c.restart(left)
	propose(t, c.leader(), "b")
	c.agree([]string{"a", "b"})
	if ms := left.Members(); len(ms) != 1 {
		t.Errorf("members are %v", ms)
	}
}
