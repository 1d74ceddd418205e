package wait

import (
	"maps"
	"testing"
	"testing/synctest"
	"time"
)

// TestUnderway: what lasts is known with the longest of its kind, until it ends.
func TestUnderway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var u Underway
		first := u.Begin("ListJobs")
		time.Sleep(time.Minute)
		second, other := u.Begin("ListJobs"), u.Begin("Join")
		time.Sleep(time.Minute)
		is := func(least time.Duration, want map[string]time.Duration) {
			t.Helper()
			if got := u.Longer(least); !maps.Equal(got, want) {
				t.Errorf("longer than %v: %v, want %v", least, got, want)
			}
		}
		is(2*time.Minute, map[string]time.Duration{"ListJobs": 2 * time.Minute})
		is(time.Minute, map[string]time.Duration{"ListJobs": 2 * time.Minute, "Join": time.Minute})
		first()
		first()
		is(time.Minute, map[string]time.Duration{"ListJobs": time.Minute, "Join": time.Minute})
		hung := u.Hangs("process 1", time.Now().Add(-time.Second))
		is(time.Hour, map[string]time.Duration{"process 1": time.Second})
		hung()
		second()
		other()
		is(0, map[string]time.Duration{})
	})
	(*Underway)(nil).Begin("nothing")()
}
