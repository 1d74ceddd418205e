package cluster

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestClipText(t *testing.T) {
	t.Parallel()
	if got := ClipText("größer\xff", 4); got != "grö" {
		t.Errorf("%q", got)
	}
	if got := ClipText("as it is", 100); got != "as it is" {
		t.Errorf("%q", got)
	}
}

// TestEditDistance: it is a distance.
func TestEditDistance(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		words := rapid.StringMatching(`[a-c]{0,6}`)
		a, b, c := words.Draw(rt, "a"), words.Draw(rt, "b"), words.Draw(rt, "c")
		ab := EditDistance(a, b)
		if ab != EditDistance(b, a) || (ab == 0) != (a == b) || ab > EditDistance(a, c)+EditDistance(c, b) || ab > max(len(a), len(b)) {
			rt.Fatalf("distance(%q, %q) = %d is none", a, b, ab)
		}
	})
}

func TestTimeText(t *testing.T) {
	t.Parallel()
	for want, d := range map[string]time.Duration{
		"0s": 0, "500ms": 500 * time.Millisecond, "1m30s": 90 * time.Second, "10m": 10 * time.Minute, "1h": time.Hour, "1h0m5s": time.Hour + 5*time.Second,
		"2d": 48 * time.Hour, "1d12h": 36 * time.Hour, "3d1m": 72*time.Hour + time.Minute, "-1h": -time.Hour,
	} {
		if got := TimeText(d); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
}
