package cluster

import (
	"testing"

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
