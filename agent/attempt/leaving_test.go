package attempt_test

import (
	"testing"
	"time"

	"github.com/berth-scheduler/berth/agent/attempt"
)

// TestLeaving: cards that must be quiet for 2 s, and are quarantined after 60 s.
func TestLeaving(t *testing.T) {
	t.Parallel()
	type look struct {
		now      int
		held     string
		released bool
		want     attempt.Leave
	}
	for name, c := range map[string]struct {
		ended int // before it began to leave at 0
		looks []look
	}{
		"at once":             {0, []look{{0, "", false, attempt.Await}, {1, "", false, attempt.Say}, {2, "", false, attempt.Back}}},
		"once more":           {0, []look{{0, "", false, attempt.Await}, {1, "x", false, attempt.Say}, {2, "", false, attempt.Await}, {3, "", false, attempt.Await}, {4, "", false, attempt.Back}}},
		"late":                {0, []look{{1, "x", false, attempt.Say}, {59, "x", false, attempt.Await}, {60, "x", false, attempt.Overdue}, {61, "x", false, attempt.Overdue}, {62, "", false, attempt.Await}, {64, "", false, attempt.Back}}},
		"not late when quiet": {0, []look{{59, "", false, attempt.Say}, {60, "", false, attempt.Await}, {61, "", false, attempt.Back}}},
		"ended long ago":      {-120, []look{{0, "x", false, attempt.Overdue}}},
		"ended not so long":   {-119, []look{{0, "x", false, attempt.Await}, {1, "x", false, attempt.Overdue}}},
		"nobody asks":         {0, []look{{0, "x", true, attempt.Overdue}, {1, "", true, attempt.Await}, {3, "", true, attempt.Back}}},
	} {
		l := attempt.Leaving{Since: at(0)}
		for _, k := range c.looks {
			var do attempt.Leave
			do, l = l.Next(attempt.Cards{Now: at(k.now), Ended: at(c.ended), Held: k.held, Released: k.released, Quiet: 2 * second, Within: 60 * second})
			if do != k.want {
				t.Errorf("%s, after %d s: %d, want %d", name, k.now, do, k.want)
			}
		}
	}
}

// TestLeavingIsSaidOnce: after a tenth of a second, and not when its end is known.
func TestLeavingIsSaidOnce(t *testing.T) {
	t.Parallel()
	seen := func(d time.Duration) attempt.Cards {
		return attempt.Cards{Now: at(0).Add(d), Ended: at(0), Held: "x", Quiet: second, Within: 60 * second}
	}
	l := attempt.Leaving{Since: at(0)}
	for _, c := range []struct {
		after time.Duration
		want  attempt.Leave
	}{{99 * time.Millisecond, attempt.Await}, {100 * time.Millisecond, attempt.Say}, {time.Second, attempt.Await}} {
		var do attempt.Leave
		if do, l = l.Next(seen(c.after)); do != c.want {
			t.Errorf("after %s: %d, want %d", c.after, do, c.want)
		}
	}
	l = attempt.Leaving{Since: at(0), Reported: true}
	for i, want := range []time.Duration{5, 10, 20, 40, 80, 160, 250, 250} {
		var do attempt.Leave
		if do, l = l.Next(seen(second)); do != attempt.Await || l.Wait != want*time.Millisecond {
			t.Errorf("look %d of which the end is known: %d, the next after %s, want %d ms", i, do, l.Wait, want)
		}
	}
}
