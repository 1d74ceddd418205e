package experiment

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/service"
	"github.com/berth-scheduler/berth/scheduler"
	"github.com/berth-scheduler/berth/scheduler/sim"
	"github.com/berth-scheduler/berth/scheduler/sim/trace"
	"github.com/berth-scheduler/berth/scheduler/sim/workload"
	"github.com/berth-scheduler/berth/scheduler/site"
)

// The parameters of the experiment.
const (
	loanNode   = 8 // GPUs of a node
	loanApps   = 8 // services
	loanSave   = 30 * time.Second
	loanPass   = 5 * time.Second
	loanTarget = 4    // target of requests in flight per replica
	loanLow    = 0.35 // of all GPUs of serve at night, and by day
	loanHigh   = 0.90
	// lateAfter is how late a requested replica may start: others save their state,
	// with a pass before and one after.
	lateAfter = loanSave + 2*loanPass
)

// loans compares a cluster in which the services' part lends its idle GPUs with one
// in which it does not.
func loans(ctx context.Context, c Config) (*Report, error) {
	jobs := 6_000
	if c.Quick {
		jobs = 2_000
	}
	w, err := trainers(&c, jobs)
	if err != nil {
		return nil, err
	}
	const nodes = 16
	rep := loanReport(w, nodes)
	for _, load := range []float64{0.8, 0.9, 1} {
		loaded(w, nodes*loanNode, load)
		if err := rep.lendTo(ctx, &c, w, nodes, fmt.Sprintf(", %.0f %% asked for", 100*load)); err != nil {
			return nil, err
		}
	}
	rep.claim(", 90 % asked for")
	return rep, nil
}

// trainers returns the jobs of Philly that fit a node and run for a day at most,
// after its first quarter: of the jobs already present when the trace begins it has
// only the long ones.
func trainers(c *Config, jobs int) (*workload.Workload, error) {
	path, err := c.trace("philly")
	if err != nil {
		return nil, err
	}
	w, _, err := trace.Load(path, trace.Options{})
	if err != nil {
		return nil, err
	}
	w.Sort()
	begin := w.Jobs[len(w.Jobs)-1].Submit / 4
	w.Jobs = slices.DeleteFunc(w.Jobs, func(j workload.Job) bool {
		return j.Submit < begin || j.GPUs > loanNode || j.GPUs < 1 || j.Duration > 24*time.Hour
	})
	w.Jobs = w.Jobs[:min(len(w.Jobs), jobs)]
	for i := range w.Jobs {
		w.Jobs[i].Submit -= begin
	}
	return w, nil
}

// loaded spreads arrivals so that the work of all jobs is a part of what so many
// GPUs do until the last arrives.
func loaded(w *workload.Workload, cards int, part float64) {
	work := 0.0
	for i := range w.Jobs {
		work += w.Jobs[i].Duration.Seconds() * float64(w.Jobs[i].GPUs)
	}
	by := work / (float64(cards) * part) / w.Jobs[len(w.Jobs)-1].Submit.Seconds()
	for i := range w.Jobs {
		w.Jobs[i].Submit = time.Duration(float64(w.Jobs[i].Submit) * by).Round(time.Microsecond)
	}
}

func loanReport(w *workload.Workload, nodes int) *Report {
	return &Report{
		Name: "loans", Title: "Idle cards of services on loan to training jobs (Aryl, EuroSys 2023)",
		Columns: []string{"queue_mean_s", "queue_median_s", "queue_p95_s", "delay_mean_s", "lent_gpu_h", "preemptions", "replicas", "late_pct", "latest_s", "busy_pct"},
		Assumptions: []string{
			fmt.Sprintf("%s: %d jobs of up to %d GPUs and a day on %d nodes of %d, arrivals spread so that their work is the part told of what those cards do until the last one; every job has its cards alone and a checkpoint hook; run times known to LogNormal(0, 0.5); order of policy slot, nobody makes room but for a lender", w.Name, len(w.Jobs), loanNode, nodes, loanNode),
			fmt.Sprintf("beside them %d services on as many nodes, replicas of one GPU: the load of each goes as a cosine between %.0f and %.0f %% of its part by night and day, an hour apart, with 5 %% of noise every 15 minutes; the autoscaler of package service chooses how many, every 15 s; the curve is ours", loanApps, 100*loanLow, 100*loanHigh),
			fmt.Sprintf("who gives back holds its cards for %s and loses 60 s more; a full pass every %s; a replica is late that starts more than %s after it was asked for, what it takes to be healthy not counted", loanSave, loanPass, lateAfter),
			"queue is the time to the first start, delay that to the end less the run time; busy_pct is the part of all GPUs in use until the last arrival; one seed",
		},
	}
}

// lendTo runs training jobs on so many nodes next to services on as many, without
// loans and with them.
func (r *Report) lendTo(ctx context.Context, c *Config, w *workload.Workload, nodes int, load string) error {
	replicas := served(nodes*loanNode, w.Jobs[len(w.Jobs)-1].Submit)
	all := &workload.Workload{Name: w.Name, Form: w.Form, Notes: w.Notes, Jobs: slices.Concat(w.Jobs, replicas)}
	for i := range w.Jobs {
		all.Jobs[i].Partition, all.Jobs[i].Milli, all.Jobs[i].User = "train", 1000, ""
	}
	for _, way := range []struct {
		name string
		lend []string
	}{{"apart", nil}, {"loans", []string{"train"}}} {
		c.note("%s: %s%s", w.Name, way.name, load)
		o, err := runLoans(ctx, c, all, nodes, way.lend)
		if err != nil {
			return fmt.Errorf("%s: %w", way.name, err)
		}
		r.Lines = append(r.Lines, o.line(way.name+load, nodes))
	}
	return nil
}

// claim compares the results of one load with the targets.
func (r *Report) claim(load string) {
	r.Claims = []Claim{
		atLeast("loans against apart"+load+", less mean queueing of training, %", 30, -r.change("apart"+load, "loans"+load, "queue_mean_s")),
		atMost("loans"+load+": replicas that start late, %", 0.1, r.mean("loans"+load, "late_pct")),
		atLeast("loans"+load+": GPU-hours lent", 1, r.mean("loans"+load, "lent_gpu_h")),
	}
}

// served returns the replicas that services on so many GPUs have until a time, as
// jobs: each from when the autoscaler requests it until it removes it, the latest
// first.
func served(cards int, until time.Duration) (out []workload.Job) {
	const every, day = 15 * time.Second, 24 * time.Hour
	per := max(1, cards/loanApps)
	for app := range loanApps {
		name := fmt.Sprintf("service-%d", app)
		s := &service.Service{Name: name, Replicas: 1, Min: 1, Max: per, Scale: service.Scale{On: "in_flight", Target: loanTarget}}
		var scaler service.Scaler
		var there []time.Duration
		have, noise, rng := 1, 0.0, workload.Chance(1, name, "load")
		close := func(at time.Duration) {
			from := there[len(there)-1]
			there = there[:len(there)-1]
			out = append(out, workload.Job{
				ID: fmt.Sprintf("%s-%d", name, len(out)), Submit: from, Duration: at - from, GPUs: 1, Milli: 1000, Partition: "serve", Serves: true,
			})
		}
		for at := time.Duration(0); at < until; at += every {
			if at%(15*time.Minute) == 0 {
				noise = 0.05 * rng.NormFloat64()
			}
			phase := 2 * math.Pi * (at + time.Duration(app)*time.Hour).Hours() / day.Hours()
			level := min(1, max(0, (loanLow+loanHigh)/2-(loanHigh-loanLow)/2*math.Cos(phase)+noise))
			loads := make([]float64, have)
			for i := range loads {
				loads[i] = level * float64(per) * loanTarget / float64(have)
			}
			have = scaler.Next(s, have, &service.Seen{Ready: len(loads), Loads: loads}, at+every) // 0 is never
			for len(there) < have {
				there = append(there, at)
			}
			for len(there) > have {
				close(at)
			}
		}
		for len(there) > 0 {
			close(until)
		}
	}
	return out
}

// loanRun is the result of one way.
type loanRun struct {
	w           *workload.Workload
	first, end  map[string]time.Duration
	lent, busy  float64 // GPU seconds
	serve       int     // GPUs below this are the services'
	last        time.Duration
	preemptions int
}

// Attempt implements sim.Observer.
func (o *loanRun) Attempt(job string, cards []int, from, to time.Duration, _ cluster.JobState) {
	if at, there := o.first[job]; !there || from < at {
		o.first[job] = from
	}
	o.end[job] = max(o.end[job], to)
	spent := float64(len(cards)) * (to - from).Seconds()
	o.busy += float64(len(cards)) * max(0, min(to, o.last)-from).Seconds()
	if len(cards) > 0 && cards[0] < o.serve && !o.serves(job) {
		o.lent += spent
	}
}

func (o *loanRun) serves(job string) bool { return len(job) > 8 && job[:8] == "service-" }

// Level implements sim.Observer.
func (o *loanRun) Level(time.Duration, int64, int64, int64, int) {}

func runLoans(ctx context.Context, c *Config, w *workload.Workload, nodes int, lend []string) (*loanRun, error) {
	o := &loanRun{w: w, first: map[string]time.Duration{}, end: map[string]time.Duration{}, serve: nodes * loanNode}
	for i := range w.Jobs {
		o.last = max(o.last, w.Jobs[i].Submit)
	}
	f := workload.Homogeneous(2*nodes, loanNode, "gpu", 0)
	f.MaxShares = 1
	parts := []*cluster.Partition{{Name: "serve", Lend: cluster.Lending{To: lend}}, {Name: "train"}}
	for i, p := range parts {
		var err error
		if p.Nodes, err = cluster.ParseHostList(fmt.Sprintf("n[%06d-%06d]", i*nodes, (i+1)*nodes-1)); err != nil {
			return nil, err
		}
	}
	pol := scheduler.Default()
	pol.Mode, pol.MaxShares, pol.MaxReasons, pol.YieldAfter = scheduler.ModeSlot, 1, -1, 0
	r, err := sim.Run(ctx, w, &f, sim.Options{
		Planner: sim.Sited{Site: site.Site{Chosen: site.Chosen{Policy: pol}}}, Seed: 1, Errors: sim.Errors{Duration: 0.5}, Preemptible: true,
		PreemptSmall: time.Minute, PreemptLarge: time.Minute, Save: loanSave, Partitions: parts, Observe: o, NoZoom: true, PassEvery: loanPass, Tick: time.Minute, Clock: c.Clock,
	})
	if err != nil {
		return nil, err
	}
	if r.Completed != len(w.Jobs) {
		return nil, fmt.Errorf("%d of %d jobs completed", r.Completed, len(w.Jobs))
	}
	o.preemptions = r.Preemptions
	return o, nil
}

// line collects the figures of a way.
func (o *loanRun) line(name string, nodes int) Line {
	l := Line{Variant: name, Seeds: 1, Mean: map[string]float64{}, CI95: map[string]float64{}}
	var queue []float64
	delay, late, replicas, latest := 0.0, 0, 0, time.Duration(0)
	for i := range o.w.Jobs {
		j := &o.w.Jobs[i]
		wait := max(0, o.first[j.ID]-j.Submit) // times are rounded to microseconds
		if j.Serves {
			replicas++
			if latest = max(latest, wait); wait > lateAfter {
				late++
			}
			continue
		}
		queue = append(queue, wait.Seconds())
		delay += max(0, o.end[j.ID]-j.Submit-j.Duration).Seconds()
	}
	slices.Sort(queue)
	sum := 0.0
	for _, q := range queue {
		sum += q
	}
	n := len(queue)
	l.Mean["queue_mean_s"], l.Mean["queue_median_s"], l.Mean["queue_p95_s"] = sum/float64(n), queue[n/2], queue[n*95/100]
	l.Mean["delay_mean_s"], l.Mean["lent_gpu_h"], l.Mean["preemptions"] = delay/float64(n), o.lent/3600, float64(o.preemptions)
	l.Mean["replicas"], l.Mean["late_pct"], l.Mean["latest_s"] = float64(replicas), 100*float64(late)/float64(max(1, replicas)), latest.Seconds()
	l.Mean["busy_pct"] = 100 * o.busy / (2 * loanNode * float64(nodes) * o.last.Seconds())
	return l
}
