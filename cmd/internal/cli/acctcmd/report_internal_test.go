package acctcmd

import (
	"testing"
	"time"
)

// TestGPUsFor: what rounds to nothing is left out.
func TestGPUsFor(t *testing.T) {
	t.Parallel()
	from := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	until := from.Add(10 * time.Hour)
	for _, c := range []struct {
		hours float64
		v     reportView
		want  string
	}{
		{0.2, reportView{}, ""},
		{36, reportView{}, ", some 1.5 GPU-days"},
		{0.4, reportView{From: &from, Until: &until}, ""},
		{20, reportView{From: &from, Until: &until}, ", some 2.0 GPUs for 10h00m"},
	} {
		if got := gpusFor(c.hours, &c.v); got != c.want {
			t.Errorf("%g hours are %q, want %q", c.hours, got, c.want)
		}
	}
}
