package work

import "testing"

var kept [][]byte

func TestDearer(t *testing.T) {
	copies := func(n int) Cost { // each of n items copies them all
		return Of(n, func() {
			for range n {
				kept = append(kept[:0], make([]byte, 16*n))
			}
		})
	}
	if got := dearer(copies(100), copies(1000)); got != "bytes" {
		t.Errorf("copies of all for each: dearer by %q, want bytes", got)
	}
	one := func(n int) Cost { return Of(n, func() { kept = make([][]byte, n) }) }
	if got := dearer(one(100), one(1000)); got != "" {
		t.Errorf("one slice for all: dearer by %q, want nothing", got)
	}
	if got := dearer(Cost{Counted: 1}, Cost{Counted: 10}); got != "counted work" {
		t.Errorf("ten times the count: dearer by %q", got)
	}
	if got := dearer(Cost{Objects: 10}, Cost{Objects: 23}); got != "objects" {
		t.Errorf("2.3 times the objects: dearer by %q", got)
	}
}
