package fsm

import (
	"testing"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/fsm/command"
)

// TestVersionOfAccounts: whoever does not know who is charged for a job would
// store it without.
func TestVersionOfAccounts(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*cluster.Spec){
		"account": func(s *cluster.Spec) { s.Account = "bio" },
		"qos":     func(s *cluster.Spec) { s.QOS = "high" },
		"nice":    func(s *cluster.Spec) { s.Nice = 1 },
	} {
		s := spec(1)
		change(s)
		if got := NeedsVersion(submitCmd(1, "0123456789abcdef", 1000, s)); got != command.AccountVersion {
			t.Errorf("%s: version %d, want %d", name, got, command.AccountVersion)
		}
		m := newMachine(t)
		id := m.must(submitCmd(1, "0123456789abcdef", 1000, s)).Jobs[0]
		if j, ok := restored(t, snapshotOf(t, m.f)).Job(id); !ok || j.Spec.Account != s.Account || j.Spec.QOS != s.QOS || j.Spec.Nice != s.Nice {
			t.Errorf("%s: restored as %+v", name, j)
		}
	}
	if eighth := restored(t, unhex(t, "snapshot.v8.hex")); eighth.EntryVersion() != 8 {
		t.Errorf("entry version %d", eighth.EntryVersion())
	}
}
