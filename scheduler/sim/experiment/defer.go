package experiment

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/scheduler/power"
	"github.com/berth-scheduler/berth/scheduler/sim"
	"github.com/berth-scheduler/berth/scheduler/sim/workload"
)

// What a GPU in use draws in the experiment of cheaper hours, in kW; what power
// costs on average and how far from that at most, in EUR/kWh, by an assumed curve;
// and the hour at which it costs least.
const deferKW, deferMean, deferSwing, deferCheapest = 0.3, 0.30, 0.15, 4

// daily returns the cost of power, hour by hour, from the beginning of a run for a
// time.
func daily(span time.Duration) *power.Signal {
	s := &power.Signal{Unit: "EUR/kWh"}
	for h := range int(span.Hours()) + 72 {
		s.Prices = append(s.Prices, power.Price{
			From: sim.Epoch.Add(time.Duration(h) * time.Hour), Value: deferMean - deferSwing*math.Cos(2*math.Pi*float64(h-deferCheapest)/24),
		})
	}
	return s
}

// deferred returns the jobs, a part of which may end within so much of their
// submission, as if submitted with --defer: each begins when power is cheapest by
// its prediction. Parts of one job wait alike. It returns how many wait.
func deferred(jobs []workload.Job, s *power.Signal, within time.Duration, part float64) (out []workload.Job, waiting int) {
	out = slices.Clone(jobs)
	for i := range out {
		j := &out[i]
		id, _, _ := strings.Cut(j.ID, "+")
		if workload.Chance(1, id, "may wait").Float64() >= part {
			continue
		}
		d := power.Deferral{Submitted: sim.Epoch.Add(j.Submit), Within: within}
		d.Length = time.Duration(float64(j.Duration) * math.Exp(0.5*workload.Chance(1, id, "duration").NormFloat64()))
		if w, waits := d.Of(s, d.Submitted); waits {
			j.Submit = w.Until.Sub(sim.Epoch)
			waiting++
		}
	}
	return out, waiting
}

// bills is an Observer that adds up what attempts cost.
type bills struct {
	signal     *power.Signal
	kwh, euros float64
	began, end map[string]time.Duration
}

// Attempt implements sim.Observer.
func (b *bills) Attempt(job string, cards []int, from, to time.Duration, _ cluster.JobState) {
	kwh := deferKW * float64(len(cards)) * (to - from).Hours()
	price, known := b.signal.Mean(sim.Epoch.Add(from), to-from)
	if !known {
		price = deferMean // for what runs on after the signal
	}
	b.kwh, b.euros = b.kwh+kwh, b.euros+kwh*price
	b.began[job], b.end[job] = from, to
}

// Level implements sim.Observer.
func (b *bills) Level(time.Duration, int64, int64, int64, int) {}

// cheaper compares jobs that wait for cheaper hours with those that do not.
func cheaper(ctx context.Context, c Config) (*Report, error) {
	span, past := cesSpan, time.Duration(0)
	if c.Quick {
		span = cesQuick
	}
	run, err := cesWorkload(ctx, &c, span, past)
	if err != nil {
		return nil, err
	}
	rep := &Report{
		Name: "defer", Title: "Jobs that wait for cheaper hours on Helios Venus (as ANDREAS postpones jobs, 2021)",
		Columns: []string{"eur_per_kwh", "eur", "kwh", "waiting_pct", "mean_wait_s", "late_pct"},
		Assumptions: append(cesReport().Assumptions[:2:2],
			fmt.Sprintf("power costs %.2f EUR/kWh on average, %.2f at four in the morning and %.2f at four in the afternoon, along a cosine of ours: prices are no part of the list", deferMean, deferMean-deferSwing, deferMean+deferSwing),
			fmt.Sprintf("a card in use draws %.0f W; what is idle costs the same in all variants and is left out", 1000*deferKW),
			"run times are predicted times LogNormal(0, 0.5); a job waits by the rule of berth submit --defer, the live cluster's",
			"waiting_pct is the part of the jobs that wait, mean_wait_s from the submission to the start of all jobs, late_pct the part of those that wait which end later than they said",
		),
	}
	signal := daily(span)
	for _, v := range []struct {
		name   string
		within time.Duration
		part   float64
	}{{"nobody waits", 0, 0}, {"half of the jobs, --defer 12h", 12 * time.Hour, 0.5}, {"all jobs, --defer 12h", 12 * time.Hour, 1}, {"all jobs, --defer 24h", 24 * time.Hour, 1}} {
		c.note("%s: %s", run.jobs.Name, v.name)
		l, err := run.bill(ctx, &c, signal, v.within, v.part)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", v.name, err)
		}
		l.Variant = v.name
		rep.Lines = append(rep.Lines, l)
	}
	rep.Claims = []Claim{
		atLeast("half of the jobs, --defer 12h: less paid for a kWh, %", 1, -rep.change("nobody waits", "half of the jobs, --defer 12h", "eur_per_kwh")),
		atLeast("all jobs, --defer 24h: less paid for a kWh, %", 1, -rep.change("nobody waits", "all jobs, --defer 24h", "eur_per_kwh")),
		atMost("all jobs, --defer 24h: later than they said, %", 5, rep.mean("all jobs, --defer 24h", "late_pct")),
	}
	return rep, nil
}

// bill runs the window with jobs that wait, and adds up the cost.
func (r *cesRun) bill(ctx context.Context, c *Config, s *power.Signal, within time.Duration, part float64) (Line, error) {
	jobs, waiting := deferred(r.jobs.Jobs, s, within, part)
	b := &bills{signal: s, began: map[string]time.Duration{}, end: map[string]time.Duration{}}
	_, err := sim.Run(ctx, &workload.Workload{Name: r.jobs.Name, Jobs: jobs}, &r.fleet, sim.Options{Planner: cesPlanner(), Seed: 1, Observe: b, PassEvery: time.Second, Clock: c.Clock})
	if err != nil {
		return Line{}, err
	}
	wait, late, may := 0.0, 0.0, 0.0
	for i := range r.jobs.Jobs {
		j := &r.jobs.Jobs[i]
		wait += (b.began[j.ID] - j.Submit).Seconds()
		if jobs[i].Submit != j.Submit {
			may++
			if b.end[j.ID]-j.Submit > within {
				late++
			}
		}
	}
	n := float64(len(jobs))
	return Line{Seeds: 1, CI95: map[string]float64{}, Mean: map[string]float64{
		"eur_per_kwh": b.euros / b.kwh, "eur": b.euros, "kwh": b.kwh, "waiting_pct": 100 * float64(waiting) / n, "mean_wait_s": wait / n, "late_pct": 100 * late / max(1, may),
	}}, nil
}
