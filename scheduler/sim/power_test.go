package sim_test

import (
	"strings"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/scheduler"
	"github.com/berth-scheduler/berth/scheduler/power"
	"github.com/berth-scheduler/berth/scheduler/sim"
	"github.com/berth-scheduler/berth/scheduler/sim/workload"
)

// TestPowerByHand: of two nodes one is off after an hour and the other an hour after its
// job ended, until a job comes for which one of them boots; both stores agree.
func TestPowerByHand(t *testing.T) {
	t.Parallel()
	job := func(id string, submit, lasts float64) workload.Job {
		return workload.Job{ID: id, Submit: hours(submit), Duration: hours(lasts), GPUs: 1, UsedMilli: 500, MemMiB: 1000}
	}
	for _, c := range []struct {
		name         string
		keep         int
		jobs         []workload.Job
		off, pct     float64 // hours, and part of the time of both nodes
		wakes        int
		waited, made float64 // hours: the mean wait, and the end
	}{
		{"one boots", 0, []workload.Job{job("a", 0, 2), job("b", 5, 1)}, 7.5, 100 * 7.5 / 13, 1, 0.25, 6.5},
		{"one stays up", 1, []workload.Job{job("a", 0, 2), job("b", 5, 1)}, 4, 100.0 / 3, 0, 0, 6},
		{"who comes soon finds one", 0, []workload.Job{job("a", 0, 2), job("b", 2.5, 1)}, 2.5, 100 * 2.5 / 7, 0, 0, 3.5},
	} {
		for _, log := range []bool{false, true} {
			r := simulate(t, &workload.Workload{Name: c.name, Jobs: c.jobs}, workload.Homogeneous(2, 1, "T4", 16000), sim.Options{
				Planner: sim.NewBerth(scheduler.ModeFFD, 0), Log: log,
				Power: &sim.Power{Rule: power.Rule{Idle: time.Hour, ResumeTimeout: time.Hour, KeepIdle: c.keep, AtOnce: 10}, Boot: 30 * time.Minute},
			})
			about(t, c.name+": node-hours off", r.NodeHoursOff, c.off, 1e-6)
			about(t, c.name+": part of them", r.NodesOffPct, c.pct, 1e-6)
			about(t, c.name+": mean wait", r.MeanWait, 3600*c.waited, 1e-6)
			about(t, c.name+": makespan", r.Makespan, 3600*c.made, 1e-6)
			if *r.WakeUps != c.wakes {
				t.Errorf("%s: %d wake-ups, want %d", c.name, *r.WakeUps, c.wakes)
			}
		}
	}
}

// TestForecastByHand: a day before, a node was held at the hours at which jobs come. Who comes
// second waits for a node that boots under the rule of idle nodes, and finds one that was
// powered up in time where that is forecast; both stores agree. What is drawn adds up.
func TestForecastByHand(t *testing.T) {
	t.Parallel()
	job := func(id string, submit, lasts float64) workload.Job {
		return workload.Job{ID: id, Submit: hours(submit), Duration: hours(lasts), GPUs: 1, UsedMilli: 500, MemMiB: 1000}
	}
	held := func(from, to float64) power.Span {
		return power.Span{Node: "n000000", Kind: "1xT4", From: sim.Epoch.Add(hours(from)), To: sim.Epoch.Add(hours(to))}
	}
	fleet := workload.Homogeneous(2, 1, "T4", 16000)
	fleet.Nodes[0].IdleW, fleet.Nodes[0].MaxW = 20, 120
	for _, c := range []struct {
		name         string
		forecast     *power.Forecast
		late         int
		by, waited   float64
		leastOff     float64
		calls, wakes int
	}{
		{"idle", nil, 1, 1800, 0.25 * 3600, 7.5, 1, 1},
		{"forecast", &power.Forecast{Every: 10 * time.Minute, Horizon: 2 * time.Hour, Learn: time.Hour}, 0, 0, 0, 4, 1, 1},
		{"too little is known", &power.Forecast{Every: 10 * time.Minute, Horizon: 2 * time.Hour, Learn: 100 * time.Hour}, 1, 1800, 0.25 * 3600, 7.5, 1, 1},
	} {
		for _, log := range []bool{false, true} {
			r := simulate(t, &workload.Workload{Name: c.name, Jobs: []workload.Job{job("a", 0, 2), job("b", 5, 1)}}, fleet, sim.Options{
				Planner: sim.NewBerth(scheduler.ModeFFD, 0), Log: log,
				Power: &sim.Power{
					Rule: power.Rule{Idle: time.Hour, ResumeTimeout: time.Hour, AtOnce: 10, Forecast: c.forecast}, Boot: 30 * time.Minute,
					Past: []power.Span{held(-24, -22), held(-19, -18)}, Since: sim.Epoch.Add(hours(-26)), HostW: 100, OffW: 10,
				},
			})
			about(t, c.name+": mean wait", r.MeanWait, c.waited, 1e-6)
			about(t, c.name+": late by", r.MeanLate, c.by, 1e-6)
			if *r.JobsLate != c.late || *r.WakeUps != c.wakes || *r.NodeHoursOff < c.leastOff {
				t.Errorf("%s: %d late, %d wake-ups, %g node-hours off", c.name, *r.JobsLate, *r.WakeUps, *r.NodeHoursOff)
			}
			span := *r.Makespan / 3600
			about(t, c.name+": nodes off", r.NodesOff, *r.NodeHoursOff/span, 1e-6)
			about(t, c.name+": in use", r.NodesBusyPct, 100*3/(2*span-*r.NodeHoursOff), 1e-6)
			about(t, c.name+": woken in a day", r.WakeUpsPerDay, float64(c.wakes)*24/span, 1e-6)
			about(t, c.name+": how often", r.WakeCallsPerDay, float64(c.calls)*24/span, 1e-6)
			about(t, c.name+": energy", r.EnergyKWh, ((2*span-*r.NodeHoursOff)*120+*r.NodeHoursOff*10+3*50)/1000, 1e-6)
		}
	}
}

func TestPowerOptions(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*sim.Power){
		"time above 0":   func(p *sim.Power) { p.Idle = 0 },
		"less than 0 W":  func(p *sim.Power) { p.OffW = -1 },
		"every second":   func(p *sim.Power) { p.Forecast.Every = 0 },
		"to a week":      func(p *sim.Power) { p.Forecast.Horizon = 8 * 24 * time.Hour },
		"nodes to spare": func(p *sim.Power) { p.Forecast.SparePercent = 101 },
	} {
		p := &sim.Power{Rule: power.Rule{Idle: time.Hour, AtOnce: 1, Forecast: &power.Forecast{Every: time.Minute, Horizon: time.Hour}}}
		change(p)
		o := sim.Options{Planner: sim.NewBerth(scheduler.ModeFFD, 0), Power: p}
		if err := o.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
