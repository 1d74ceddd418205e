package cluster

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestPull: whatever a node says of an image is within bounds and can be read, and of two
// pulls the one that has less of its bytes is behind.
func TestPull(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.OneOf(rapid.Int64Range(-5, 100), rapid.Int64())
		draw := func(name string) *Pull {
			if rapid.IntRange(0, 5).Draw(t, name+" is nil") == 0 {
				return nil
			}
			p := Pull{rapid.Uint32Range(0, 4).Draw(t, name+" layers"), rapid.Uint32Range(0, 5).Draw(t, name+" done"), n.Draw(t, name+" bytes"), n.Draw(t, name+" got")}.Clip()
			if p.Done > p.Layers || p.Got < 0 || p.Got > p.Bytes || p.Clip() != p || p.String() == "" || strings.Contains(p.String(), "-") {
				t.Fatalf("%+v: %s", p, &p)
			}
			return &p
		}
		// How far is 2 for none, -1 for what is not known to be anything, else its part.
		far := func(p *Pull) float64 {
			switch {
			case p == nil:
				return 2
			case p.Layers == 0:
				return -1
			}
			return float64(p.Got) / float64(max(p.Bytes, 1))
		}
		a, b := draw("a"), draw("b")
		if got := a.Behind(b); got != (far(a) < far(b)) && far(a) != -1 {
			t.Errorf("%v behind %v: %t", a, b, got)
		}
		if far(a) == -1 && !a.Behind(b) {
			t.Errorf("%v, of which nothing is known, is not behind %v", a, b)
		}
	})
}
