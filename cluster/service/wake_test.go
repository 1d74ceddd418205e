package service_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-scheduler/berth/cluster/service"
)

// TestWokenAheadOfItsLoad: a service that sleeps at night is there when its usual load
// comes, as long before as a replica takes to start; on a day on which nobody comes it waits
// an hour longer than it is told to, sleeps, and is woken by requests alone for twelve
// hours. A request before that, or --forecast off, leaves all as it was.
func TestWokenAheadOfItsLoad(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	var h *service.History
	for slot := range 3 * int64(day/service.Slot) { // of three days, from eight to six
		load := 0.0
		if at := time.Duration(slot) * service.Slot % day; at >= 8*time.Hour && at < 18*time.Hour {
			load = 25
		}
		h = h.With(service.Noted{Slot: slot, Load: load})
	}
	rps := service.Scale{On: service.Rate, Target: 10}
	for _, c := range []struct {
		name  string
		s     service.Service
		cold  time.Duration
		comes time.Duration // the first request, 0 for none
		want  []string      // when the number changes
	}{
		{"nobody comes", service.Service{Max: 4, IdleAfter: 10 * time.Minute, Scale: rps}, 2 * time.Minute, 0, []string{"7h57m0s 3", "9h7m0s 0"}},
		{"unknown start", service.Service{Max: 4, IdleAfter: 10 * time.Minute, Scale: rps}, 0, 0, []string{"7h55m0s 3", "9h5m0s 0"}},
		{"fewer than it needs", service.Service{Max: 2, IdleAfter: 10 * time.Minute, Scale: rps}, 2 * time.Minute, 0, []string{"7h57m0s 2", "9h7m0s 0"}},
		{"a request in vain time", service.Service{Max: 4, IdleAfter: 10 * time.Minute, Scale: rps}, 2 * time.Minute, 10 * time.Hour, []string{"7h57m0s 3", "9h7m0s 0", "10h0m0s 1"}},
		{"off", service.Service{Max: 4, IdleAfter: 10 * time.Minute, Scale: rps, NoForecast: true}, 2 * time.Minute, 10 * time.Hour, []string{"10h0m0s 1"}},
		{"not scaled by load", service.Service{Max: 4, IdleAfter: 10 * time.Minute}, 2 * time.Minute, 10 * time.Hour, []string{"10h0m0s 1"}},
	} {
		var sc service.Scaler
		var got []string
		have := 0
		awake := time.Duration(0)
		for at := time.Duration(0); at <= 10*time.Hour; at += 5 * time.Second {
			seen := service.Seen{Ready: have, History: h, ColdStart: c.cold, Measured: service.Measured{Known: true, Idle: at - awake}}
			if c.comes > 0 && at >= c.comes {
				seen.Measured.Waiting = 1
			}
			if n := sc.Next(&c.s, have, &seen, 3*day+at); n != have {
				got, have, awake = append(got, at.Truncate(time.Minute).String()+" "+string(rune('0'+n))), n, at
			}
		}
		if c.comes > 0 {
			got = got[:min(len(got), len(c.want))]
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, d)
		}
		if told := sc.Told(); c.comes > 0 && !slices.Contains([]string{"a request waits", ""}, told.String()) {
			t.Errorf("%s: %s", c.name, told.String())
		}
	}
	told := service.Told{Asleep: true, Ahead: 3, N: 3, Forecast: service.Forecast{Load: 25, Ahead: time.Minute}}
	if got := told.String(); got != "nobody asks yet, the forecast is for 3" {
		t.Errorf("woken because %s", got)
	}
}
