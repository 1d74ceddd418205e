package sim_test

import (
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
