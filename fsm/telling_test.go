package fsm

import (
	"encoding/hex"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/fsm/command"
)

// TestEntriesOfVersion8KeepTheirMeaning: the state of the last version's
// entries is the one that it was.
func TestEntriesOfVersion8KeepTheirMeaning(t *testing.T) {
	t.Parallel()
	f := New(Options{})
	applyTo(t, f, 1, testTerm, unhex(t, "entry.v8.hex"))
	if got := hex.EncodeToString(f.Hash()); got != "cb468fffe3a407e00f9341d980972f58957f0555be765ff3374c7e15c33bc053" {
		t.Errorf("an entry of version 8 makes a state with hash %s", got)
	}
	if f = restored(t, unhex(t, "snapshot.v8.hex")); f.EntryVersion() != 8 {
		t.Errorf("a snapshot of version 8 is read as one of %d", f.EntryVersion())
	}
}

// TestWhomToTellIsKept: mail and idle time are kept through a restore, and only
// entries hold them that those who do not know them refuse.
func TestWhomToTellIsKept(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*cluster.Spec){
		"mail": func(s *cluster.Spec) {
			s.Mail = cluster.Mail{Events: cluster.MailEnd | cluster.MailArrayTasks, To: "ann@example.org"}
		},
		"address alone": func(s *cluster.Spec) { s.Mail.To = "ann" },
		"idle time":     func(s *cluster.Spec) { s.IdleOK = 90 * time.Minute },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, s := lab(t), spec(1)
			change(s)
			if got := NeedsVersion(submitCmd(1, "r1", 1000, s)); got != command.TellVersion {
				t.Errorf("needs version %d, want %d", got, command.TellVersion)
			}
			m.must(submitCmd(1, "r1", 1000, s))
			j, ok := restored(t, snapshotOf(t, m.f)).Job(1)
			if !ok {
				t.Fatal("the job is gone")
			}
			if d := cmp.Diff(s, j.Spec); d != "" {
				t.Error(d)
			}
		})
	}
}
