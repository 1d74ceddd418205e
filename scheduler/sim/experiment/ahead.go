package experiment

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/berth-scheduler/berth/cluster/service"
	"github.com/berth-scheduler/berth/scheduler/sim"
	"github.com/berth-scheduler/berth/scheduler/sim/workload"
)

// The parameters of the experiment.
const (
	aheadDays, aheadFrom = 14, 1 // days simulated, and the first one that counts
	aheadEach            = 10.0  // requests per second that a replica answers
	aheadTarget          = 7.0   // and its target, by --scale-on rps
	aheadTop             = 280.0 // requests per second of the highest hour, before noise
	aheadLate            = 1.0   // seconds in the queue from which a request is late
	aheadStep            = 15 * time.Second
)

// aheadWays are compared: with more spare load each, a service that follows
// measurements costs about as much as one with a forecast.
var aheadWays = []struct {
	name   string
	target float64
	off    bool
}{{"measured alone", aheadTarget, true}, {"measured alone, rps=6.75", 6.75, true}, {"forecast", aheadTarget, false}}

func aheadService(curve string, target float64, off bool) *service.Service {
	return &service.Service{Name: curve, Replicas: 1, Min: 1, Max: 64, Scale: service.Scale{On: service.Rate, Target: target}, NoForecast: off}
}

// ahead compares a service that has replicas before the day's load comes with one
// that follows measurements.
func ahead(ctx context.Context, c Config) (*Report, error) {
	rep := &Report{
		Name: "ahead", Title: "Replicas of a service ahead of the daily rise (MArk, ATC 2019)",
		Columns: []string{"late_pct", "late_minutes", "replica_h", "most_replicas"},
		Assumptions: []string{
			fmt.Sprintf("one service of 1 to 64 replicas, each of which answers %.0f requests a second; scaled on rps=%.0f, or on less, by the autoscaler of package service, every %s; requests wait in one queue, and are late that come while it holds more than %.0f s of work", aheadEach, aheadTarget, aheadStep, aheadLate),
			fmt.Sprintf("load, of %.0f requests a second at its top: day goes as a cosine between %.0f and %.0f %% as that of experiment loans; office is 10 %% by night and rises from 08:00 within 20 minutes, with a dip at noon, and has two days in seven at 30 %%; odd is office with one day of nothing and one of thrice its night at all hours; batch is 10 %% with 10 minutes at 60 %% at the beginning of each third hour. All with noise of 5 %% every 15 minutes and of 3 %% every 15 s; the curves are ours", aheadTop, 100*loanLow, 100*loanHigh),
			fmt.Sprintf("%d days, of which those from the second on count; a replica takes requests so long after it was asked for as is told, costs from when it is asked for, and one that is taken away costs for 10 s more", aheadDays),
		},
	}
	seeds := c.seeds(5, 2)
	curves, starts := []string{"day", "office", "odd", "batch"}, []time.Duration{30 * time.Second, 2 * time.Minute, 5 * time.Minute}
	if c.Quick {
		curves, starts = curves[1:2], starts[1:2]
	}
	for _, curve := range curves {
		for _, start := range starts {
			for _, way := range aheadWays {
				if err := ctx.Err(); err != nil {
					return nil, err
				}
				name := fmt.Sprintf("%s, %s to start: %s", curve, start, way.name)
				c.note("%s", name)
				rep.Lines = append(rep.Lines, aheadLine(name, aheadService(curve, way.target, way.off), start, seeds))
			}
		}
	}
	of := func(name, figure string) float64 {
		return rep.mean("office, 2m0s to start: "+name, figure)
	}
	rep.Claims = []Claim{
		atLeast("office, 2m0s to start: fewer late requests with the forecast, %", 50, -100*(of("forecast", "late_pct")/of("measured alone", "late_pct")-1)),
		atLeast("the same, beside one that costs as much and follows what is measured, %", 50, -100*(of("forecast", "late_pct")/of("measured alone, rps=6.75", "late_pct")-1)),
		atMost("office, 2m0s to start: more replica-hours with the forecast, %", 10, 100*(of("forecast", "replica_h")/of("measured alone", "replica_h")-1)),
	}
	return rep, nil
}

func aheadLine(name string, s *service.Service, start time.Duration, seeds uint64) Line {
	l := Line{Variant: name, Seeds: int(seeds), Mean: map[string]float64{}, CI95: map[string]float64{}}
	all := map[string][]float64{}
	for seed := uint64(1); seed <= seeds; seed++ {
		for k, v := range aheadRun(seed, s, start) {
			all[k] = append(all[k], v)
		}
	}
	for k, vs := range all {
		l.Mean[k], l.CI95[k] = sim.MeanCI(vs)
	}
	return l
}

// aheadLevel returns the part of its top that a load has at a time, before noise.
func aheadLevel(curve string, at time.Duration) float64 {
	day, h := int(at/(24*time.Hour)), (at % (24 * time.Hour)).Hours()
	switch curve {
	case "day":
		return (loanLow+loanHigh)/2 - (loanHigh-loanLow)/2*math.Cos(2*math.Pi*h/24)
	case "batch":
		if at%(3*time.Hour) < 10*time.Minute {
			return 0.6
		}
		return 0.1
	}
	if curve == "odd" {
		switch day {
		case 4:
			return 0
		case 8:
			return 0.3
		}
	}
	busy := min(1, max(0, (h-8)*3), max(0, (18.5-h)*2))
	if h >= 12 && h < 13 {
		busy *= 0.7
	}
	if day%7 >= 5 {
		busy *= 0.3
	}
	return 0.1 + 0.9*busy
}

// aheadRun simulates one service, named after its load.
func aheadRun(seed uint64, s *service.Service, start time.Duration) map[string]float64 {
	var scaler service.Scaler
	var kept *service.History
	var loads service.Recorder
	ready := []time.Duration{0} // when each replica takes requests
	rng := workload.Chance(seed, s.Name, "ahead")
	slow, queue := 0.0, 0.0
	asked, late, lateFor, hours, most := 0.0, 0.0, 0.0, 0.0, 0
	for at := time.Duration(0); at < aheadDays*24*time.Hour; at += aheadStep {
		if at%(15*time.Minute) == 0 {
			slow = 0.05 * rng.NormFloat64()
		}
		rate := aheadTop * max(0, aheadLevel(s.Name, at)*(1+slow+0.03*rng.NormFloat64()))
		serving := 0
		for _, from := range ready {
			if from <= at {
				serving++
			}
		}
		queue = max(0, queue+(rate-aheadEach*float64(serving))*aheadStep.Seconds())
		if at >= aheadFrom*24*time.Hour {
			asked += rate
			if queue > aheadLate*aheadEach*float64(max(1, serving)) {
				late, lateFor = late+rate, lateFor+aheadStep.Minutes()
			}
			hours, most = hours+float64(len(ready))*aheadStep.Hours(), max(most, len(ready))
		}
		now := at + aheadStep // 0 is never
		seen := service.Seen{Ready: serving, Measured: service.Measured{Known: true, Steady: true, Rate: rate}, History: kept, ColdStart: start}
		if n, ended := loads.Saw(seen.Total(s), now); ended {
			kept = kept.With(n)
		}
		want := scaler.Next(s, len(ready), &seen, now)
		for len(ready) < want {
			ready = append(ready, now+start)
		}
		if gone := len(ready) - want; gone > 0 && at >= aheadFrom*24*time.Hour {
			hours += float64(gone) * (10 * time.Second).Hours()
		}
		ready = ready[:want]
	}
	return map[string]float64{"late_pct": 100 * late / asked, "late_minutes": lateFor, "replica_h": hours, "most_replicas": float64(most)}
}
