package company

import (
	"math"
	"testing"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
)

// TestVerdictOfThree: with three on a card the limit is held against each of them, and
// the one that it hits worst is named.
func TestVerdictOfThree(t *testing.T) {
	t.Parallel()
	know := &dispatch.Interference{MaxBend: 1.6, BandwidthPerUtil: 1}
	for _, c := range []struct {
		name     string
		s        dispatch.Sharing
		on       []float64 // utilizations of jobs 1, 2 …
		newcomer float64
		against  bool
		of       cluster.JobID
		slowdown float64
	}{
		{"two within it", dispatch.Sharing{Bandwidth: 3}, []float64{0.5}, 0.5, false, 0, 0},
		{"three beyond: 1 + 3·0.2", dispatch.Sharing{Bandwidth: 3}, []float64{0.4, 0.4}, 0.4, true, 1, 1.6},
		{"the newcomer itself is hit worst", dispatch.Sharing{Compute: 2}, []float64{0.5, 0.5}, 1, true, 0, 3},
		{"one of those there is", dispatch.Sharing{Compute: 2}, []float64{0.2, 1}, 0.5, true, 2, 1 + 2*0.2 + 2*0.5},
	} {
		var on []Sharer
		for i, u := range c.on {
			on = append(on, Sharer{Job: cluster.JobID(i + 1), util: u, nature: &Nature{}})
		}
		v := Judge(know, &c.s, on, Sharer{util: c.newcomer, nature: &Nature{}}, 1500)
		if v.Against() != c.against || v.of != c.of || math.Abs(v.slowdown-c.slowdown) > 1e-9 {
			t.Errorf("%s: %+v, want job %d by %g", c.name, v, c.of, c.slowdown)
		}
	}
}
