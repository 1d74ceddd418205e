package slurm

import (
	"testing"
	"time"
)

// TestFarFromNow: a time that no span reaches is refused, and is not one of the past, at which
// a job that was to wait would begin at once.
func TestFarFromNow(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 14, 12, 0, 0, 0, time.UTC)
	for _, s := range []string{"now+99999999weeks", "now-99999999weeks", "now+15251weeks", "now+106752days", "now+9999999999"} {
		if got, ok := ParseTime(s, now); ok {
			t.Errorf("%s is %v", s, got)
		}
	}
	for s, want := range map[string]time.Duration{
		"now": 0, "now+15250weeks": 15250 * 7 * 24 * time.Hour, "now+2hours": 2 * time.Hour, "now-30": -30 * time.Second, "now+2147483647": 2147483647 * time.Second,
	} {
		if got, ok := ParseTime(s, now); !ok || !got.Equal(now.Add(want)) {
			t.Errorf("%s is %v, %v", s, got, ok)
		}
	}
}
