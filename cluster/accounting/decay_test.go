package accounting

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster/draws"
)

var _ = draws.Fixed()

// TestDecay holds the whole numbers against real ones.
func TestDecay(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		half := time.Duration(rapid.Int64Range(int64(time.Minute), int64(365*24*time.Hour)).Draw(t, "half"))
		d := time.Duration(rapid.Int64Range(0, int64(10*half)).Draw(t, "d"))
		v := rapid.Int64Range(0, 1<<60).Draw(t, "v")
		got, want := Decay(v, d, half), float64(v)*math.Exp2(-float64(d)/float64(half))
		if math.Abs(float64(got)-want) > 1+want*1e-9 {
			t.Fatalf("%d after %s, half-life %s: %d, want %.0f", v, d, half, got, want)
		}
		if next := Decay(v, d+half, half); next > got/2+1 || next < got/2-1 {
			t.Fatalf("one half-life later %d is left of %d", next, got)
		}
		acc, sum := Accrued(d, half), float64(half)/math.Ln2*(-math.Expm1(-float64(d)/float64(half)*math.Ln2))
		if math.Abs(float64(acc)-sum) > 2+sum*1e-5 || acc > d {
			t.Fatalf("%s of use, half-life %s: %s, want %s", d, half, acc, time.Duration(sum))
		}
		// Use in two parts is what it is in one.
		cut := time.Duration(rapid.Int64Range(0, int64(d)).Draw(t, "cut"))
		parts := Decay(int64(Accrued(cut, half)), d-cut, half) + int64(Accrued(d-cut, half))
		if diff := math.Abs(float64(parts - int64(acc))); diff > 4+float64(acc)*2e-5 {
			t.Fatalf("%s in parts of %s: %d, in one %d", d, cut, parts, acc)
		}
	})
	if Decay(100, time.Hour, 0) != 100 || Decay(-5, time.Hour, time.Hour) != 0 || Accrued(time.Hour, 0) != time.Hour {
		t.Error("without a half-life nothing decays")
	}
}

func BenchmarkDecay(b *testing.B) {
	for b.Loop() {
		Decay(1<<50, 12345678*time.Millisecond, 7*24*time.Hour)
	}
}
