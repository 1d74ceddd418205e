package power_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/scheduler/power"
)

const day0 = cluster.Time(1_800_000_000_000_000)

// hourly is a signal of these prices, an hour each.
func hourly(values ...float64) *power.Signal {
	s := &power.Signal{Unit: "EUR/kWh"}
	for i, v := range values {
		s.Prices = append(s.Prices, power.Price{From: day0.Add(time.Duration(i) * time.Hour), Value: v})
	}
	return s
}

func TestReadSignal(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		`[{"from": "2026-03-14T01:00:00Z", "value": 0.31}, {"from": "2026-03-14T03:00:00+01:00", "value": -0.12}]`,
		"from,value\n2026-03-14T01:00:00Z,0.31\n2026-03-14T02:00:00Z,-0.12\n",
		"2026-03-14T01:00:00Z, 0.31\n2026-03-14T02:00:00Z, -0.12",
	} {
		s, err := power.ReadSignal([]byte(text), "u")
		if err != nil || len(s.Prices) != 2 || s.Unit != "u" || s.Prices[1].Value != -0.12 || s.Prices[1].From.Sub(s.Prices[0].From) != time.Hour {
			t.Fatalf("%s: %+v, %v", text, s, err)
		}
		if s.Ends().Sub(s.Prices[0].From) != 2*time.Hour {
			t.Errorf("it ends at %v", s.Ends().Std())
		}
	}
	for text, want := range map[string]string{
		"":                                    "without values",
		"[]":                                  "without values",
		`[{"from": "2026-03-14T01:00:00Z"}]`:  "value 1: has no value",
		`[{"from": "yesterday", "value": 1}]`: "no JSON",
		`[{"from": "0001-01-01T00:00:00Z", "value": 1}]`:                                               "beyond what can be",
		`[{"from": "2026-03-14T01:00:00Z", "value": 1e10}]`:                                            "beyond what can be",
		`[{"from": "2026-03-14T01:00:00Z", "value": 1}, {"from": "2026-03-14T01:00:00Z", "value": 2}]`: "do not rise",
		"2026-03-14T02:00:00Z,1\n2026-03-14T01:00:00Z,2":                                               "do not rise",
		"2026-03-14T02:00:00Z,1\n2026-03-14T03:00:00Z,NaN":                                             "beyond what can be",
		"2026-03-14T02:00:00Z,1\nsoon,2":                                                               "line 2",
		"2026-03-14T02:00:00Z,1,2":                                                                     "no CSV",
		strings.Repeat(" ", power.MaxSignalBytes+1):                                                    "more than",
	} {
		if s, err := power.ReadSignal([]byte(text), ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q is read as %v, %v; want %q", text, s, err, want)
		}
	}
}

func TestDeferByHand(t *testing.T) {
	t.Parallel()
	h := time.Hour
	for _, c := range []struct {
		name      string
		s         *power.Signal
		at        time.Duration
		within    time.Duration
		length    time.Duration
		until     time.Duration // -1 is now
		then, now float64
	}{
		{"to the cheapest hour", hourly(3, 2, 1, 2), 0, 4 * h, h, 2 * h, 1, 3},
		{"across two hours", hourly(3, 2, 1, 2), 0, 4 * h, 2 * h, h, 1.5, 2.5},
		{"so that it ends when the price rises", hourly(3, 1, 1, 9), h / 2, 4 * h, 90 * time.Minute, h, 1, 5.0 / 3},
		{"no longer than it may", hourly(3, 2, 1, 2), 0, 2*h + h/2, h, 90 * time.Minute, 1.5, 3},
		{"for nothing cheaper", hourly(1, 2, 3), 0, 3 * h, h, -1, 0, 0},
		{"for next to nothing", hourly(1, 0.995), 0, 2 * h, h, -1, 0, 0},
		{"of unknown length, half its time", hourly(3, 3, 1, 1), 0, 4 * h, 0, 2 * h, 1, 3},
		{"with a price below nothing", hourly(-1, -2), 0, 2 * h, h, h, -2, -1},
		{"after the signal", hourly(1, 2), 2 * h, 4 * h, h, -1, 0, 0},
		{"without one", nil, 0, 4 * h, h, -1, 0, 0},
		{"longer than the signal", hourly(3, 1), 0, 48 * h, 24 * h, -1, 0, 0},
		{"no time left", hourly(3, 1), 0, h / 2, h, -1, 0, 0},
	} {
		d := power.Deferral{Submitted: day0, Within: c.within, Length: c.length}
		w, waits := d.Of(c.s, day0.Add(c.at))
		if waits != (c.until >= 0) {
			t.Errorf("%s: waits %v: %+v", c.name, waits, w)
			continue
		}
		if waits && (w.Until != day0.Add(c.until) || math.Abs(w.Then-c.then) > 1e-9 || math.Abs(w.Instead-c.now) > 1e-9) {
			t.Errorf("%s: waits until %v for %g instead of %g, want %v, %g, %g", c.name, w.Until.Sub(day0), w.Then, w.Instead, c.until, c.then, c.now)
		}
	}
}

// TestNoMinuteIsCheaper than the one that a job waits for, of all in which it may start; and
// it never waits longer than it may, nor for a price that nobody knows.
func TestNoMinuteIsCheaper(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var values []float64
		for range rapid.IntRange(1, 30).Draw(t, "hours") {
			values = append(values, float64(rapid.IntRange(-5, 50).Draw(t, "price")))
		}
		s := hourly(values...)
		now := day0.Add(time.Duration(rapid.IntRange(-30, 60*len(values)).Draw(t, "now")) * time.Minute)
		length := time.Duration(rapid.IntRange(1, 600).Draw(t, "length")) * time.Minute
		within := time.Duration(rapid.IntRange(1, 2000).Draw(t, "within")) * time.Minute
		w, waits := power.Deferral{Submitted: now, Within: within, Length: length}.Of(s, now)
		cost := func(at cluster.Time) (sum float64, known bool) {
			for m := time.Duration(0); m < length; m += time.Minute {
				v, known := s.At(at.Add(m))
				if !known {
					return 0, false
				}
				sum += v
			}
			return sum / length.Minutes(), true
		}
		if waits {
			got, known := cost(w.Until)
			if !known || math.Abs(got-w.Then) > 1e-6 || w.Until <= now || w.Until.Add(length) > now.Add(within) {
				t.Fatalf("waits until %v for %g, which is %g, %v", w.Until.Sub(now), w.Then, got, known)
			}
		}
		best, known := cost(now)
		if !known {
			return
		}
		for at := now; at.Add(length) <= now.Add(within); at = at.Add(time.Minute) {
			c, known := cost(at)
			if known && waits && c < w.Then-1e-6 {
				t.Fatalf("waits until %v for %g, and %v later it is %g", w.Until.Sub(now), w.Then, at.Sub(now), c)
			}
			if known && !waits && best-c > 0.0101*math.Abs(best) {
				t.Fatalf("starts now at %g, and %v later it is %g", best, at.Sub(now), c)
			}
		}
	})
}

func TestDeferralOf(t *testing.T) {
	t.Parallel()
	j := &cluster.Job{Spec: &cluster.Spec{Defer: time.Hour, TimeLimit: 3 * time.Minute}}
	for i, want := range []time.Duration{3 * time.Minute, 2 * time.Minute, 5 * time.Minute} {
		if got := power.DeferralOf(j, 7); got != (power.Deferral{Submitted: 7, Within: time.Hour, Length: want}) {
			t.Error(fmt.Sprint(i, got))
		}
		if i == 0 {
			j.Spec.Duration = 2 * time.Minute
		} else {
			j.Estimates = []cluster.Estimate{{Duration: time.Minute}, {Duration: 5 * time.Minute}}
		}
	}
}
