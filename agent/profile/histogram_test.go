package profile

import (
	"math"
	"slices"
	"testing"
	"unsafe"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster/draws"
)

var _ = draws.Fixed()

// TestQuantileIsNear compares every quantile with the exact one of the same
// samples: it is never further than a bin.
func TestQuantileIsNear(t *testing.T) {
	t.Parallel()
	if n := unsafe.Sizeof(histogram{}); n > 64 {
		t.Errorf("a histogram takes %d bytes, at most 64 were promised", n)
	}
	rapid.Check(t, func(rt *rapid.T) {
		var h histogram
		vs := rapid.SliceOfN(rapid.Int64Range(0, 1000), 1, 300).Draw(rt, "samples")
		for _, v := range vs {
			h.add(v, 1)
		}
		slices.Sort(vs)
		q := rapid.Int64Range(1, 1000).Draw(rt, "quantile")
		want := vs[(int64(len(vs))*q+999)/1000-1]
		if got := h.quantile(q); max(got-want, want-got) > BinMilli {
			rt.Fatalf("quantile %d of %v: got %d, want %d within %d", q, vs, got, want, BinMilli)
		}
	})
}

func TestFullCountersKeepProportions(t *testing.T) {
	t.Parallel()
	var h histogram
	for range 3_000_000 { // nine days of samples
		h.add(100, 9)
		h.add(800, 1)
	}
	if a, b := h.quantile(880), h.quantile(920); a > 150 || b < 700 {
		t.Errorf("after nine days: 88 %% are below %d, 92 %% below %d; want 100 and 800", a, b)
	}
	h.add(5000, math.MaxInt64) // a weight or a figure that cannot be
	h.add(-5, 1)
	if got := h.quantile(999); got > 1000 {
		t.Errorf("got %d thousandths", got)
	}
	if got := new(histogram).quantile(950); got != 0 {
		t.Errorf("nothing counted: got %d", got)
	}
}
