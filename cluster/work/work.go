// Package work is for tests that count what code does rather than how long it
// takes: on a busy machine a clock says little, while twice the objects are twice
// the objects everywhere. Such tests are named TestWorkOf…, and make bench-guard
// runs them alone. They must not run in parallel with others, which allocate too.
package work

import (
	"runtime"
	"testing"
)

// Cost is the cost of one item.
type Cost struct {
	Objects, Bytes float64 // allocated
	Counted        float64 // whatever else a test counts: entries, GPUs, bytes of a reply
}

// Of calls f, and returns what it allocated per item.
func Of(items int, f func()) Cost {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	n := float64(items)
	return Cost{Objects: float64(after.Mallocs-before.Mallocs) / n, Bytes: float64(after.TotalAlloc-before.TotalAlloc) / n}
}

const (
	// growth is how many times as much an item may cost with ten times as many: a
	// table that doubles is half empty at times and full at others, and sorting
	// costs a third more.
	growth = 2
	// This much more is always allowed, so that tiny costs do not fail by ratio.
	fewObjects, fewBytes, fewCounted = 2, 256, 1
)

// Steady fails t if an item among 10*few costs more than twice as much as one among
// few.
func Steady(t *testing.T, few int, cost func(n int) Cost) {
	t.Helper()
	a, b := cost(few), cost(10*few)
	t.Logf("an item among %d: %.1f objects, %.0f bytes, %.2f counted; among %d: %.1f, %.0f, %.2f",
		few, a.Objects, a.Bytes, a.Counted, 10*few, b.Objects, b.Bytes, b.Counted)
	if what := dearer(a, b); what != "" {
		t.Errorf("among %d an item costs more than twice the %s of one among %d: something looks at all of them for each", 10*few, what, few)
	}
}

// dearer says what b has too much of compared with a, or "".
func dearer(a, b Cost) string {
	switch {
	case b.Objects > growth*a.Objects+fewObjects:
		return "objects"
	case b.Bytes > growth*a.Bytes+fewBytes:
		return "bytes"
	case b.Counted > growth*a.Counted+fewCounted:
		return "counted work"
	}
	return ""
}
