package experiment

import (
	"maps"
	"testing"
	"time"
)

// TestAheadOfTheOffice: with the forecast nobody is late where each morning some were, an odd day
// does no harm that lasts, and what follows no forecast is the same each time.
func TestAheadOfTheOffice(t *testing.T) {
	t.Parallel()
	run := func(curve string, start time.Duration, off bool) map[string]float64 {
		return aheadRun(1, aheadService(curve, aheadTarget, off), start)
	}
	for _, curve := range []string{"office", "odd"} {
		alone, with := run(curve, 2*time.Minute, true), run(curve, 2*time.Minute, false)
		if alone["late_minutes"] < 20 || with["late_pct"] > alone["late_pct"]/5 || with["replica_h"] > 1.15*alone["replica_h"] || with["replica_h"] < alone["replica_h"] {
			t.Errorf("%s: measured alone %v, with a forecast %v", curve, alone, with)
		}
		if again := run(curve, 2*time.Minute, false); !maps.Equal(again, with) {
			t.Errorf("%s: once more %v, before %v", curve, again, with)
		}
	}
	for curve, want := range map[string][3]float64{"day": {0.35, 0.625, 0.9}, "office": {0.1, 0.1, 0.73}, "batch": {0.6, 0.6, 0.6}} {
		for i, at := range []time.Duration{24 * time.Hour, 30 * time.Hour, 36 * time.Hour} {
			if got := aheadLevel(curve, at); got < want[i]-1e-9 || got > want[i]+1e-9 {
				t.Errorf("%s at %v: %v, want %v", curve, at, got, want[i])
			}
		}
	}
}
