package accounting

import (
	"testing"

	"github.com/berth-scheduler/berth/cluster"
)

// TestWeightsOfTypes: an hour of a T4 of weight 0.2 costs a fifth of one of a type that
// has none; the time that was had stays as it is, and a policy without weights changes
// nothing.
func TestWeightsOfTypes(t *testing.T) {
	t.Parallel()
	const hour = cluster.Time(3_600_000_000)
	p := &AccountPolicy{GPUWeights: []GPUWeight{{GPUType: "T4", Milli: 200}, {GPUType: "V100", Milli: 0}}}
	for _, c := range []struct {
		gpuType string
		ended   bool
		want    cluster.GPUTime
	}{{"T4", true, 720_000_000}, {"T4", false, 720_000_000}, {"A100", true, 3_600_000_000}, {"V100", true, 0}, {"", true, 3_600_000_000}} {
		a := &cluster.Attempt{Started: hour, GPUMilli: 1000, Berth: cluster.Berth{GPUs: []cluster.GPUShare{{GPU: "g"}}}, Estimate: cluster.Estimate{GPUType: c.gpuType}}
		if c.ended {
			a.Ended = 2 * hour
		}
		if got, left := CostOf(a, 2*hour, p), LeftOf(a, 2*hour, p); got != c.want || left != c.want {
			t.Errorf("%q costs %d, of which %d is left, want %d", c.gpuType, got, left, c.want)
		}
		if got := CostOf(a, 2*hour, &AccountPolicy{}); got != 3_600_000_000 {
			t.Errorf("%q without weights costs %d", c.gpuType, got)
		}
		if c.ended {
			s := (&Spent{At: hour}).Add(a, 2*hour, p)
			if s.GPU != 3_600_000_000 || s.Decayed != c.want || s.In[0] != c.want {
				t.Errorf("%q is charged as %+v, want %d", c.gpuType, s, c.want)
			}
		}
	}
	for _, bad := range [][]GPUWeight{{{GPUType: "", Milli: 1}}, {{GPUType: "T4", Milli: -1}}, {{GPUType: "T4", Milli: 1_000_001}}, {{GPUType: "T4", Milli: 1}, {GPUType: "T4", Milli: 1}}, {{GPUType: "V100", Milli: 1}, {GPUType: "T4", Milli: 1}}} {
		if (&AccountPolicy{GPUWeights: bad}).Check() == nil {
			t.Errorf("%v is a policy", bad)
		}
	}
}
