package accounting

import (
	"strings"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/cmd/internal/slurm"
)

// TestAcctStates: within bounds of time a state is what a job was in them,
// without any what it is.
func TestAcctStates(t *testing.T) {
	t.Parallel()
	at := func(h int) time.Time {
		if h == 0 {
			return time.Time{}
		}
		return time.Date(2026, 3, 14, h, 0, 0, 0, time.UTC)
	}
	done := &slurm.Job{State: "COMPLETED", Code: "CD", Eligible: at(1), Started: at(3), Ended: at(5)}
	waits := &slurm.Job{State: "PENDING", Code: "PD", Eligible: at(2)}
	never := &slurm.Job{State: "CANCELLED", Code: "CA", Eligible: at(2), Ended: at(4)}
	for _, x := range []struct {
		states   string
		from, to int
		job      *slurm.Job
		want     bool
	}{
		{"", 1, 2, done, true},
		{"cd", 0, 0, done, true}, {"COMPLETED,F", 4, 6, done, true}, {"CD", 4, 4, done, false}, {"F", 1, 9, done, false},
		{"R", 0, 0, done, false}, {"R", 4, 6, done, true}, {"R", 1, 2, done, false}, {"RUNNING", 6, 0, done, false},
		{"PD", 2, 2, done, true}, {"PD", 4, 6, done, false}, {"PD", 3, 0, waits, true}, {"R", 3, 0, waits, false},
		{"PD", 3, 3, never, true}, {"PD", 5, 6, never, false}, {"R", 1, 9, never, false}, {"CANCELLED", 3, 9, never, true},
	} {
		f, err := newStateFilter(x.states, window{at(x.from), at(x.to)}, x.from+x.to > 0)
		if err != nil || f.wants(x.job) != x.want {
			t.Errorf("-s %q from %d to %d, a job that is %s: %t, want %t (%v)", x.states, x.from, x.to, x.job.State, !x.want, x.want, err)
		}
	}
	if _, err := newStateFilter("CD,BOGUS", window{}, false); err == nil || !strings.Contains(err.Error(), "unrecognized job state value 'BOGUS'") {
		t.Errorf("an unknown state: %v", err)
	}
}
