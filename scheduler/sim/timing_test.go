package sim_test

import (
	"math"
	"testing"

	"github.com/berth-scheduler/berth/scheduler/sim"
)

// TestMeanCI compares with tables of Student's t.
func TestMeanCI(t *testing.T) {
	t.Parallel()
	for n, quantile := range map[int]float64{2: 12.706, 6: 2.571, 20: 2.093, 21: 2.086, 41: 2.021, 1001: 1.962} {
		vs := make([]float64, n)
		sq := 0.0
		for i := range vs {
			vs[i] = float64(i)
		}
		mean := float64(n-1) / 2
		for _, v := range vs {
			sq += (v - mean) * (v - mean)
		}
		want := quantile * math.Sqrt(sq/float64(n-1)/float64(n))
		got, half := sim.MeanCI(vs)
		if got != mean || math.Abs(half/want-1) > 0.001 {
			t.Errorf("%d values: %g ± %g, want %g ± %g", n, got, half, mean, want)
		}
	}
	if m, h := sim.MeanCI([]float64{7}); m != 7 || h != 0 {
		t.Errorf("one value: %g ± %g", m, h)
	}
}
