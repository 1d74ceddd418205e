package accounting

import (
	"testing"
	"time"

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
		if got, left := CostOf(a, nil, 2*hour, p), LeftOf(a, nil, 2*hour, p); got != c.want || left != c.want {
			t.Errorf("%q costs %d, of which %d is left, want %d", c.gpuType, got, left, c.want)
		}
		if got := CostOf(a, nil, 2*hour, &AccountPolicy{}); got != 3_600_000_000 {
			t.Errorf("%q without weights costs %d", c.gpuType, got)
		}
		if c.ended {
			s := (&Spent{At: hour}).Add(a, nil, 2*hour, p)
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

// TestWeightsBySpeed: an hour on a cheaper type costs what part of an hour on the dearest
// one it is worth to this job, never outside what the table has; what is not predicted, or
// declared, costs what the table says.
func TestWeightsBySpeed(t *testing.T) {
	t.Parallel()
	table := []GPUWeight{{GPUType: "A100", Milli: 1000}, {GPUType: "H100", Milli: 2000}, {GPUType: "T4", Milli: 200}}
	est := func(gpuType string, hours float64, sure int64, source string) cluster.Estimate {
		return cluster.Estimate{GPUType: gpuType, Duration: time.Duration(hours * float64(time.Hour)), TimeConfidenceMilli: sure, ConfidenceMilli: 1, Source: source}
	}
	known := func(a100, t4 float64) []cluster.Estimate {
		return []cluster.Estimate{est("A100", a100, 900, "history"), est("H100", 1, 100, "graph"), est("T4", t4, 900, "history")}
	}
	for _, c := range []struct {
		what    string
		es      []cluster.Estimate
		on      string
		byTable bool
		want    int64
	}{
		{"twice as long", known(1, 2), "T4", false, 500},
		{"twice as long, by the table", known(1, 2), "T4", true, 200},
		{"on the dearest of those predicted", known(1, 2), "A100", false, 1000},
		{"ten times as long: no less than the cheapest", known(1, 10), "T4", false, 200},
		{"shorter there: no more than the dearest", known(2, 1), "T4", false, 1000},
		{"a guess", known(1, 2), "H100", false, 2000},
		{"nothing known", nil, "T4", false, 200},
		{"declared", []cluster.Estimate{est("A100", 1, 1000, "declared"), est("T4", 1, 1000, "declared")}, "T4", false, 200},
		{"only here", []cluster.Estimate{est("T4", 1, 1000, "history")}, "T4", false, 200},
		{"for ever", []cluster.Estimate{est("A100", 2e6, 1000, "history"), est("T4", 2.5e6, 1000, "history")}, "T4", false, 800},
	} {
		p := &AccountPolicy{GPUWeights: table, BySpeed: !c.byTable}
		a := &cluster.Attempt{Started: 1, Ended: 3_600_000_001, GPUMilli: 1000, Berth: cluster.Berth{GPUs: []cluster.GPUShare{{GPU: "g"}}}, Estimate: cluster.Estimate{GPUType: c.on}}
		if got := CostOf(a, c.es, 3_600_000_001, p); got != cluster.GPUTime(c.want)*3_600_000 {
			t.Errorf("%s: an hour of %s costs %d, want %d thousandths of an hour", c.what, c.on, got/3_600_000, c.want)
		}
	}
}
