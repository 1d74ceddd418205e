// Package tunetest tests what every gpu.Tuner must do.
package tunetest

import (
	"slices"
	"testing"

	"github.com/berth-scheduler/berth/agent/gpu"
)

// Run tests a tuner on one of its GPUs, with a range of power limits and several clocks, and
// leaves the GPU with its default limit and an unlocked clock.
func Run(t *testing.T, tuner gpu.Tuner, uuid string) {
	t.Helper()
	read := func() gpu.Tuning {
		t.Helper()
		got, err := tuner.Tuning(t.Context(), uuid)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	limit := func(milliW int64) error { return tuner.SetPowerLimit(t.Context(), uuid, milliW) }
	first := read()
	if first.MinMilliW < 1 || first.DefaultMilliW <= first.MinMilliW || first.MaxMilliW < first.DefaultMilliW || first.LimitMilliW < first.MinMilliW || len(first.ClocksMHz) < 2 {
		t.Fatalf("not sane: %+v", first)
	}
	for _, milliW := range []int64{first.MinMilliW, (first.MinMilliW + first.DefaultMilliW) / 2, first.MaxMilliW, first.DefaultMilliW} {
		for range 2 { // repeating it changes nothing
			if err := limit(milliW); err != nil || read().LimitMilliW != milliW {
				t.Errorf("%d mW: %v, and the limit is %d", milliW, err, read().LimitMilliW)
			}
		}
	}
	for _, bad := range []int64{1, first.MinMilliW - 1, first.MaxMilliW + 1, 1_000_000_000} {
		if err := limit(bad); err == nil || read().LimitMilliW != first.DefaultMilliW {
			t.Errorf("%d mW: %v, and the limit is %d", bad, err, read().LimitMilliW)
		}
	}
	for _, mhz := range []int64{slices.Min(first.ClocksMHz), slices.Max(first.ClocksMHz), 0, 0} {
		if err := tuner.LockClock(t.Context(), uuid, mhz); err != nil {
			t.Errorf("%d MHz: %v", mhz, err)
		}
	}
	if got := read(); got.LimitMilliW != first.DefaultMilliW || !slices.Equal(got.ClocksMHz, first.ClocksMHz) {
		t.Errorf("in the end %+v", got)
	}
	const none = "GPU-00000000-0000-0000-0000-000000000000"
	if _, err := tuner.Tuning(t.Context(), none); err == nil {
		t.Error("a card that is not there tells of itself")
	}
	if tuner.SetPowerLimit(t.Context(), none, first.DefaultMilliW) == nil || tuner.LockClock(t.Context(), none, 0) == nil {
		t.Error("a card that is not there was set")
	}
}
