package slurm

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestReservationsAsRecorded holds scontrol show reservation against Slurm's.
func TestReservationsAsRecorded(t *testing.T) {
	when := func(s string) time.Time {
		at, err := time.Parse("2006-01-02T15:04:05", s)
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	all := []Reservation{
		{Name: "course", Start: when("2026-11-22T14:28:16"), End: when("2026-11-22T15:28:16"), Nodes: "n1", NodeCount: 1, Cores: 8, Flags: []string{"SPEC_NODES"}, Users: []string{"root"}, Active: true},
		{Name: "fix", Start: when("2026-11-22T15:28:16"), End: when("2026-11-22T17:28:16"), Nodes: "n[2-3]", NodeCount: 2, Cores: 16, Flags: []string{"MAINT", "IGNORE_JOBS", "SPEC_NODES"}, Users: []string{"root"}},
		{Name: "weekly", Start: when("2026-12-01T10:00:00"), End: when("2026-12-03T10:00:00"), Nodes: "n[1-3]", NodeCount: 3, Cores: 24, Flags: []string{"WEEKLY", "SPEC_NODES"}, Users: []string{"root"}},
	}
	for file, r := range map[string]*Record{"rsv": {}, "rsv_o": {OneLine: true}} {
		var got strings.Builder
		for i := range all {
			if err := r.Reservation(&got, &all[i]); err != nil {
				t.Fatal(err)
			}
		}
		if d := cmp.Diff(strings.Split(recordedText(t, file), "\n"), strings.Split(got.String(), "\n")); d != "" {
			t.Errorf("%s differs from Slurm (-) (+ours):\n%s", file, d)
		}
	}
}
