package service_test

import (
	"cmp"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster/service"
)

const (
	hourSlots = int64(12)
	daySlots  = 24 * hourSlots
)

// week is a history of whole days until a slot, by what each slot has.
func week(until int64, days int, load func(slot int64) float64) (h *service.History) {
	for s := until - int64(days)*daySlots; s < until; s++ {
		h = h.With(service.Noted{Slot: s, Load: load(s)})
	}
	return h
}

// TestHistory against a map: what was told last of a week is there, the highest of what was
// told twice, and what is no load changes nothing.
func TestHistory(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var h *service.History
		model, first, last := map[int64]float64{}, int64(0), int64(-1)
		for range rapid.IntRange(1, 40).Draw(t, "reports") {
			s := 5000 + rapid.OneOf(rapid.Int64Range(-5, 40), rapid.Int64Range(-3000, 5000)).Draw(t, "slot")
			v := rapid.OneOf(rapid.Float64Range(0, 100), rapid.SampledFrom([]float64{math.NaN(), math.Inf(1), math.Inf(-1), -1, 1e300, 1e15, 0})).Draw(t, "load")
			before := h
			h = h.With(service.Noted{Slot: s, Load: v})
			if !(v >= 0 && v <= 1e15) {
				if h != before {
					t.Fatalf("%v is a load", v)
				}
				continue
			}
			if len(model) == 0 || s < first || s-last >= service.Week {
				model, first, last = map[int64]float64{}, s, s
			}
			last = max(last, s)
			first = max(first, last-service.Week+1)
			model[s] = max(model[s], float64(float32(v)))
			for k := range model {
				if k < first {
					delete(model, k)
				}
			}
			if !h.Valid() || h.First != first || int64(len(h.Loads)) != last-first+1 || h.Known() != time.Duration(len(model))*service.Slot {
				t.Fatalf("from %d (%d), %d slots until %d, %v of %d known, valid %v", h.First, first, len(h.Loads), last, h.Known(), len(model), h.Valid())
			}
			for i, v := range h.Loads {
				if want, known := model[first+int64(i)]; known && float64(v) != want || !known && v != -1 {
					t.Fatalf("slot %d is %v, want %v (%v)", first+int64(i), v, want, known)
				}
			}
		}
	})
	for _, bad := range []*service.History{{}, {First: -1, Loads: []float32{1}}, {Loads: []float32{-2}}, {Loads: []float32{float32(math.NaN())}}, {Loads: make([]float32, service.Week+1)}, {Loads: []float32{1}, Each: -1}, {First: 1 << 40, Loads: []float32{1}}} {
		if bad.Valid() {
			t.Errorf("%+v is valid", bad)
		}
	}
	one := (*service.History)(nil).With(service.Noted{Slot: 1, Load: 1, Each: 7})
	if two := one.With(service.Noted{Slot: 2, Load: 1, Each: math.NaN()}); two.Each != 7 || len(one.Loads) != 1 {
		t.Errorf("one replica bears %v; before %+v", two.Each, one)
	}
	for _, slot := range []int64{-1, math.MaxInt64, math.MinInt64} {
		if one.With(service.Noted{Slot: slot, Load: 1}) != one {
			t.Errorf("slot %d", slot)
		}
	}
}

// naivePeak is the forecast as DESIGN.md tells it, of a map of loads.
func naivePeak(model map[int64]float64, now, ahead time.Duration) (load float64, at time.Duration, ok bool) {
	usual := func(s int64) (float64, bool) {
		var of []float64
		var days []int64
		for d := int64(1); d <= 7; d++ {
			if v, known := model[s-d*daySlots]; known {
				of, days = append(of, v), append(days, s-d*daySlots)
			}
		}
		if len(of) == 1 {
			before, b := model[days[0]-1]
			after, a := model[days[0]+1]
			if b || a {
				return min(of[0], max(before, after)), true
			}
		}
		slices.Sort(of)
		if len(of) == 0 {
			return 0, false
		}
		return of[(len(of)-1)/2], true
	}
	slot := int64(now / (5 * time.Minute))
	sum, n := 0.0, 0
	for s := slot; s < slot+daySlots; s++ {
		if v, known := usual(s); known {
			sum, n = sum+v, n+1
		}
	}
	if n < 260 { // of 288
		return 0, 0, false
	}
	got, want := 0.0, 0.0
	for s := slot - hourSlots; s < slot; s++ {
		is, a := model[s]
		if was, b := usual(s); a && b {
			got, want = got+is+0.25*sum/float64(n), want+was+0.25*sum/float64(n)
		}
	}
	trend := 1.0
	if want > 0 {
		trend = min(1.5, got/want)
	}
	for s := slot; s <= int64((now+min(ahead, time.Hour))/(5*time.Minute)); s++ {
		if v, known := usual(s); known && (!ok || v > load) {
			load, at, ok = v, time.Duration(s)*5*time.Minute, true
		}
	}
	return load * trend, at, ok
}

// TestForecastNaive: the forecast is that of the naive model, whatever is known.
func TestForecastNaive(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		until := rapid.Int64Range(10_000, 12_000).Draw(t, "slot")
		days := rapid.IntRange(1, 8).Draw(t, "days")
		seed := rapid.IntRange(1, 1000).Draw(t, "noise")
		missing := rapid.SampledFrom([]int{0, 0, 3, 9, 40}).Draw(t, "missing, in a hundred")
		model := map[int64]float64{}
		var h *service.History
		for s := until - int64(days)*daySlots; s < until; s++ {
			r := int(s) * 7919 * seed % 1009
			if s > until-service.Week && r%100 < missing {
				continue
			}
			v := float64(float32(50 + 40*math.Sin(float64(s)/46) + float64(r%17)))
			h = h.With(service.Noted{Slot: s, Load: v})
			if s >= until-service.Week {
				model[s] = v
			}
		}
		for s := range model {
			if s < h.First {
				delete(model, s)
			}
		}
		now := time.Duration(until)*service.Slot + time.Duration(rapid.IntRange(0, 299).Draw(t, "into"))*time.Second
		ahead := time.Duration(rapid.IntRange(0, 7000).Draw(t, "ahead")) * time.Second
		load, at, want := naivePeak(model, now, ahead)
		f, ok := h.Peak(now, ahead)
		if ok != want || ok && (math.Abs(f.Load-load) > 1e-6*load || f.At != at || f.Ahead != min(ahead, time.Hour)) {
			t.Fatalf("%d days: %+v, %v; want %v at %v, %v", days, f, ok, load, at, want)
		}
	})
}

// TestForecastByHand: the cases for which the rule is made.
func TestForecastByHand(t *testing.T) {
	t.Parallel()
	const until = int64(700 * daySlots) // midnight
	now := time.Duration(until) * service.Slot
	office := func(s int64) float64 { // 10 by night, 100 from 08:00 to 18:00
		if h := s % daySlots / hourSlots; h >= 8 && h < 18 {
			return 100
		}
		return 10
	}
	odd := func(day int64, load float64) func(int64) float64 {
		return func(s int64) float64 {
			if s/daySlots == 700-day {
				return load
			}
			return office(s)
		}
	}
	morning := now + 8*time.Hour
	upTo := func(h *service.History, hours int64, load func(int64) float64) *service.History {
		for s := int64(until); s < until+hours*hourSlots; s++ {
			h = h.With(service.Noted{Slot: s, Load: load(s)})
		}
		return h
	}
	for what, v := range map[string]struct {
		h          *service.History
		now, ahead time.Duration
		want       float64 // -1 is no forecast
	}{
		"nothing known":                       {nil, now, time.Minute, -1},
		"a day less three hours":              {week(until, 1, office).With(service.Noted{}), now, time.Minute, -1},
		"a day, by night":                     {week(until, 1, office), now, 4 * time.Minute, 10},
		"a day, before the rise":              {upTo(week(until, 1, office), 8, office), morning - 3*time.Minute, 4 * time.Minute, 100},
		"a day, the rise is too far":          {upTo(week(until, 1, office), 7, office), morning - 30*time.Minute, 4 * time.Minute, 10},
		"a day, but at most an hour is seen":  {week(until, 1, office), now, 24 * time.Hour, 10},
		"a week with one day of nothing":      {upTo(week(until, 7, odd(3, 0)), 8, office), morning, time.Minute, 100},
		"a week with one day of ten thousand": {upTo(week(until, 7, odd(1, 10_000)), 8, office), morning, time.Minute, 100},
		"two days, one of ten thousand":       {upTo(week(until, 2, odd(1, 10_000)), 8, office), morning, time.Minute, 100},
		"a holiday: nothing since midnight":   {upTo(week(until, 5, office), 9, func(int64) float64 { return 0 }), now + 9*time.Hour, time.Minute, 100 * (11.875 / 111.875)},
		"twice as much as usual":              {upTo(week(until, 5, office), 10, func(s int64) float64 { return 2 * office(s) }), now + 10*time.Hour, time.Minute, 150},
		"a quiet night, twice as much":        {upTo(week(until, 5, office), 4, func(s int64) float64 { return 2 * office(s) }), now + 4*time.Hour, time.Minute, 10 * (31.875 / 21.875)},
	} {
		if what == "a day less three hours" {
			v.h = nil
			for s := int64(until) - 21*hourSlots; s < until; s++ {
				v.h = v.h.With(service.Noted{Slot: s, Load: office(s)})
			}
		}
		f, ok := v.h.Peak(v.now, v.ahead)
		if ok != (v.want >= 0) || ok && math.Abs(f.Load-v.want) > 0.01 {
			t.Errorf("%s: %+v, %v, want %v", what, f, ok, v.want)
		}
	}
	// One report that is huge, on the only day known.
	h := week(until, 1, func(s int64) float64 { return cmp.Or(map[int64]float64{until - 100: 1e9}[s], 5) })
	for s := range daySlots {
		if f, ok := h.Peak(now+time.Duration(s)*service.Slot, 0); !ok || f.Load > 5.001 {
			t.Fatalf("%d slots after: %+v, %v", s, f, ok)
		}
	}
}

// TestRecorder: of each slot the highest load of its looks, once it has ended; what is no
// load is none, and a slot without any is not told.
func TestRecorder(t *testing.T) {
	t.Parallel()
	var r service.Recorder
	var got []service.Noted
	at := 1000*service.Slot - 7*time.Second
	for i := range 1800 {
		load := float64(i % 100)
		switch s := int64(at / service.Slot); {
		case s == 1001 && i%15 != 0:
			load = math.NaN()
		case s == 1002:
			load = []float64{math.NaN(), -1, math.Inf(-1)}[i%3]
		case s == 1003:
			load = math.Inf(1)
		}
		if n, ended := r.Saw(load, at); ended {
			got = append(got, n)
		}
		at += time.Second
	}
	if len(got) < 4 || got[0].Slot != 999 || got[0].Load != 0 || got[1].Slot != 1000 || got[1].Load < 85 || got[1].Load > 99 {
		t.Fatalf("%+v", got)
	}
	for _, n := range got {
		if n.Slot == 1002 || n.Slot == 1003 && n.Load != 1e15 {
			t.Errorf("%+v", n)
		}
	}
}

// TestAhead: the autoscaler never has fewer than its measured load asks for or than it has
// without a forecast, has as many as the forecast asks for, and without one does what it
// does where nothing is known.
func TestAhead(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := service.Service{Name: "web", Replicas: 2, Min: 1, Max: 40, Scale: service.Scale{On: service.Rate, Target: 10}, NoForecast: rapid.Bool().Draw(t, "off")}
		scale := rapid.Float64Range(0, 3).Draw(t, "other days")
		h := week(700*daySlots, rapid.IntRange(0, 3).Draw(t, "days"), func(slot int64) float64 { return scale * float64(slot%daySlots) })
		var with, without service.Scaler
		have := 2
		start := time.Duration(700*daySlots) * service.Slot
		for i, rate := range rapid.SliceOfN(rapid.Float64Range(0, 300), 1, 90).Draw(t, "rates") {
			at := start + time.Duration(i)*15*time.Second
			seen := service.Seen{Ready: have, Measured: service.Measured{Known: true, Rate: rate}, History: h, ColdStart: time.Minute}
			plain := seen
			plain.History = nil
			had := without.Next(&s, have, &plain, at)
			was := have
			have = with.Next(&s, have, &seen, at)
			told := with.Told()
			ahead := told.Forecast.Ahead > 0
			if have < had || have < min(told.Asked, s.Max, 2*was) || !ahead && have != had || ahead != (!s.NoForecast && h != nil) || told.N != have || have > s.Max || ahead && told.Forecast.Ahead != 75*time.Second {
				t.Fatalf("look %d: %d of %d replicas, %d without a forecast, %+v", i, have, was, had, told)
			}
			if ahead && have < min(int(math.Ceil(told.Forecast.Load/11)), s.Max) {
				t.Fatalf("look %d: %d replicas for %+v", i, have, told)
			}
		}
	})
}

// TestToldInWords: why there are so many.
func TestToldInWords(t *testing.T) {
	t.Parallel()
	f := service.Forecast{Load: 1, Ahead: time.Minute}
	for want, v := range map[string]service.Told{
		"":                                       {N: 3},
		"until a request comes":                  {Asleep: true},
		"its load asks for 0; it has 1 at least": {Known: true, N: 1, Least: 1, Most: 4},
		"a request waits":                        {Asleep: true, N: 1},
		"its load asks for 2":                    {Known: true, Asked: 2, N: 2, Least: 1, Most: 4},
		"its load asks for 2, the forecast for 0":                                  {Known: true, Asked: 2, N: 2, Forecast: f, Least: 1, Most: 4},
		"its load asks for 2, the forecast for 3":                                  {Known: true, Asked: 2, Ahead: 3, Forecast: f, N: 3, Least: 1, Most: 4},
		"its load asks for 2, the forecast for 9; it may have 4":                   {Known: true, Asked: 2, Ahead: 9, Forecast: f, N: 4, Least: 1, Most: 4},
		"its load asks for 9; they at most double at a time":                       {Known: true, Asked: 9, N: 4, Least: 1, Most: 20},
		"its load asks for 2; it has 3 at least":                                   {Known: true, Asked: 2, N: 3, Least: 3, Most: 20},
		"its load asks for 2; fewer after five minutes in which fewer were enough": {Known: true, Asked: 2, N: 4, Least: 1, Most: 20},
	} {
		if got := v.String(); got != want {
			t.Errorf("%+v: %q, want %q", v, got, want)
		}
	}
}

// TestAheadOfAnObjective: what one replica bears is what is learnt, and until then what was
// learnt before; without either nothing is done ahead.
func TestAheadOfAnObjective(t *testing.T) {
	t.Parallel()
	now := time.Duration(700*daySlots) * service.Slot
	s := service.Service{Name: "web", Replicas: 2, Min: 1, Max: 40, SLO: service.SLO{Percent: 95, Within: time.Second}}
	h := week(700*daySlots, 2, func(int64) float64 { return 110 })
	for each, want := range map[float32]int{0: 2, 10: 10, 20: 5} {
		known := *h
		known.Each = each
		var c service.Scaler
		seen := service.Seen{Ready: 2, Measured: service.Measured{Known: true, Rate: 20}, History: &known}
		if got := c.Next(&s, 2, &seen, now); got != want || seen.Total(&s) != 20 {
			t.Errorf("of %v a second each: %d replicas, want %d; the load is %v", each, got, want, seen.Total(&s))
		}
	}
	// What is learnt now counts before what was.
	p := newPlant(10, nil)
	p.run(10*time.Minute, 9)
	known := *h
	known.Each = 1
	if each := p.c.Each(); each < 7 || each > 9 {
		t.Fatalf("one replica bears %v", each)
	}
	p.c.Next(&p.s, p.have, &service.Seen{Ready: p.have, Measured: p.m.Measure(p.now), History: &known}, now)
	if told := p.c.Told(); told.Ahead < 11 || told.Ahead > 15 {
		t.Errorf("told %+v", told)
	}
	// A load of nothing that a service is scaled by is none.
	for _, v := range []struct {
		s    service.Service
		seen service.Seen
	}{
		{service.Service{Min: 1, Max: 1, Scale: service.Scale{On: "q", Target: 1}}, service.Seen{Loads: []float64{1}}},
		{service.Service{Min: 1, Max: 4}, service.Seen{Loads: []float64{1}, Measured: service.Measured{Known: true}}},
		{service.Service{Min: 1, Max: 4, Scale: service.Scale{On: "q", Target: 1}, NoForecast: true}, service.Seen{Loads: []float64{1}}},
		{service.Service{Min: 1, Max: 4, Scale: service.Scale{On: "q", Target: 1}}, service.Seen{Loads: []float64{math.NaN(), -1, math.Inf(1)}, Measured: service.Measured{Known: true, Rate: 5}}},
		{s, service.Seen{Loads: []float64{1}}},
	} {
		if got := v.seen.Total(&v.s); !math.IsNaN(got) {
			t.Errorf("%+v: %v", v, got)
		}
	}
	q := service.Service{Min: 1, Max: 4, Scale: service.Scale{On: "q", Target: 2}}
	for want, loads := range map[float64][]float64{6: {1, 2, 3}, 512: {1e300, 1e308, 1e308}, 0: {0, math.NaN()}} {
		if got := (&service.Seen{Loads: loads}).Total(&q); got != want {
			t.Errorf("%v: %v in all, want %v", loads, got, want)
		}
	}
}
