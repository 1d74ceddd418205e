package experiment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"time"

	"github.com/berth-scheduler/berth/scheduler/elastic"
	"github.com/berth-scheduler/berth/scheduler/sim"
	"github.com/berth-scheduler/berth/scheduler/sim/trace"
	"github.com/berth-scheduler/berth/scheduler/sim/workload"
)

// threeTypes marks runs on the fleet of Sia's evaluation.
const threeTypes = ", three types"

// gavel stands for fixed sizes where Gavel's policy decides who runs, and on which type.
const gavel elastic.Sizing = "gavel"

// widest is the most GPUs of an elastic job in the experiment: those of a node.
const widest = 8

// sizing compares ways to choose the number of GPUs of elastic jobs.
func sizing(ctx context.Context, c Config) (*Report, error) {
	rep := &Report{
		Name: "sizing", Title: "Jobs of elastic size on 64 GPUs: fixed, least, marginal gain, AFS (NSDI 2021), Optimus (EuroSys 2018), Pollux (OSDI 2021), Sia (SOSP 2023)",
		Columns: []string{"mean_jct_s", "median_jct_s", "p99_jct_s", "mean_wait_s", "makespan_s", "allocation_pct", "preemptions"},
		Assumptions: []string{
			"8 nodes of 8 GPUs, each GPU one job's alone; first fit by the default policy (ffd), which decides who starts; a size is chosen at the start, and a running job begins again with another at most once in ten minutes, one job of all a minute, at a loss of 40 s",
			"fixed: each job has as many GPUs as it asks for; none: one; the others 1 to 8 of one node, by the rules of package elastic as a coordinator runs them",
			"n GPUs are n/(1+e(n-1)) times as fast as one; e is drawn for each program, evenly from 0.02 to 0.3, and the scheduler takes 0.1 until a job ran with two sizes",
			"run times that the scheduler is told are off by LogNormal(0, 0.5); a step is worth the same with any number of GPUs, so that the goodput of Pollux is the throughput",
			"three types: the 64 GPUs of Sia's evaluation, 6 nodes of 4 T4, 3 of 8 RTX 2080 Ti, 2 of 8 A100; a job takes the time of the workload on an RTX 2080 Ti, and on the others by the most samples per second of its program in the step times of Sia's artifact, which the scheduler is told but for the error above; gavel: fixed sizes, Gavel's policy (OSDI 2020) by its rounds",
			"synthetic: 200 jobs (40 when quick), exponential times between arrivals, GPUs asked for 1, 2, 4 and 8 as 5 : 2 : 2 : 1, GPU time LogNormal with a median of 2 hours and a sigma of 1.3, of 6 programs",
		},
	}
	jobs := 200
	if c.Quick {
		jobs = 40
	}
	runs := []struct {
		name string
		load float64
	}{{"synthetic, load 0.5", 0.5}, {"synthetic, load 0.9", 0.9}}
	var typedRuns []string
	alike := workload.Homogeneous(8, 8, "gpu", 0)
	for _, r := range runs {
		invent := func(seed uint64) (*workload.Workload, error) { return inventElastic(seed, r.load, jobs), nil }
		if err := compareSizings(ctx, &c, rep, r.name, c.seeds(10, 2), alike, invent); err != nil {
			return nil, err
		}
		typedRuns = append(typedRuns, r.name+threeTypes)
		if err := compareSizings(ctx, &c, rep, r.name+threeTypes, c.seeds(10, 2), siaFleet(), typed(invent)); err != nil {
			return nil, err
		}
	}
	for _, list := range []string{"philly", "newtrace"} {
		name := "Sia's " + list
		read := func(seed uint64) (*workload.Workload, error) { return siaElastic(&c, list, seed) }
		err := compareSizings(ctx, &c, rep, name, c.seeds(8, 2), alike, read)
		if err == nil {
			typedRuns = append(typedRuns, name+threeTypes)
			err = compareSizings(ctx, &c, rep, name+threeTypes, c.seeds(8, 2), siaFleet(), typed(read))
		}
		switch {
		case errors.Is(err, os.ErrNotExist):
			rep.Assumptions = append(rep.Assumptions, name+" is left out: the folder of traces has no sia-workloads")
		case err != nil:
			return nil, err
		default:
			rep.Assumptions = append(rep.Assumptions, name+": 8 samples of the workload, each a seed; run times are the middle of each program's class of GPU time over the GPUs asked for, and jobs of more than 8 GPUs are taken for jobs of 8")
		}
	}
	rep.claimSizings(typedRuns)
	return rep, nil
}

// claimSizings adds that any sizing does better than fixed sizes, and that where there
// are several types Sia does better than all others, by as much as its paper says.
func (r *Report) claimSizings(typedRuns []string) {
	for _, name := range []string{"synthetic, load 0.5", "synthetic, load 0.9"} {
		for _, s := range []elastic.Sizing{elastic.AFS, elastic.Optimus, elastic.Pollux, elastic.Marginal, elastic.Sia} {
			r.Claims = append(r.Claims, atLeast(fmt.Sprintf("%s: %s against fixed sizes, less mean time to the end, %%", name, s), 0, -r.change(name+" fixed", name+" "+string(s), "mean_jct_s")))
		}
	}
	for _, name := range typedRuns {
		best := math.Inf(1)
		for _, s := range []elastic.Sizing{gavel, "fixed", elastic.AFS, elastic.Optimus, elastic.Pollux, elastic.Marginal} {
			best = min(best, r.mean(name+" "+string(s), "mean_jct_s"))
		}
		r.Claims = append(r.Claims, atLeast(name+": sia against the best of the others, less mean time to the end, %", 30, 100*(1-r.mean(name+" "+string(elastic.Sia), "mean_jct_s")/best)))
	}
}

// compareSizings adds a line for fixed sizes, and one for each sizing.
func compareSizings(ctx context.Context, c *Config, rep *Report, name string, seeds uint64, fleet workload.Fleet, of func(seed uint64) (*workload.Workload, error)) error {
	sizings := append([]elastic.Sizing{""}, elastic.Sizings()...)
	if len(fleet.Nodes) > 1 {
		sizings = append([]elastic.Sizing{gavel}, sizings...)
	}
	for _, s := range sizings {
		variant := name + " " + cmp.Or(string(s), "fixed")
		c.note("%s", variant)
		err := rep.repeat(ctx, variant, seeds, func(seed uint64) (setup, error) {
			w, err := of(seed)
			if err != nil {
				return setup{}, err
			}
			f := fleet
			f.MaxShares = 1
			opt := sim.Options{
				Seed: seed, Errors: sim.Errors{Hide: true, Duration: 0.5}, Preemptible: true, PreemptSmall: 40 * time.Second, PreemptLarge: 40 * time.Second,
				NoZoom: true, PassEvery: 10 * time.Second, Tick: time.Minute, Clock: c.Clock,
			}
			p := sim.NewBerth("ffd", 1)
			p.Policy.YieldAfter = 0 // no job is preempted for the sake of order
			opt.Planner = p
			if s == gavel {
				if opt.Planner, err = planner(string(gavel), seed, 1); err != nil {
					return setup{}, err
				}
			} else if s != "" {
				opt.Planner = sim.NewSized(p, elastic.Rules{Sizing: s})
				for i := range w.Jobs {
					w.Jobs[i].Least, w.Jobs[i].Most = 1, widest
				}
			}
			return setup{w, f, opt}, nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// exchangeOf returns what the exchange of gradients costs a program.
func exchangeOf(program string) float64 {
	return 0.02 + 0.28*workload.Chance(1, program, "exchange").Float64()
}

// siaFleet returns the 64 GPUs of the evaluation of Sia.
func siaFleet() workload.Fleet {
	f, _ := trace.FleetFor(&workload.Workload{Form: "sia"})
	return f
}

// speeds is how many times as fast as a T4 one GPU of the other types of Sia's
// evaluation trains its programs, each with the batch of most samples per second, by
// the step times of its artifact. They hold none of deepspeech2: its are the geometric
// means of the others.
var speeds = map[string][2]float64{
	"bert": {2.06, 10.8}, "cifar10": {2.26, 6.89}, "imagenet": {1.99, 4.77}, "yolov3": {0.48, 2.91}, "deepspeech2": {1.45, 5.67},
}

// typed gives jobs a run time on each type of Sia's fleet, that of the workload being
// on an RTX 2080 Ti. A program that was not measured has the speeds of one that was.
func typed(of func(seed uint64) (*workload.Workload, error)) func(seed uint64) (*workload.Workload, error) {
	return func(seed uint64) (*workload.Workload, error) {
		w, err := of(seed)
		if err != nil {
			return nil, err
		}
		for i := range w.Jobs {
			j := &w.Jobs[i]
			times, ok := speeds[j.Model]
			if !ok {
				names := slices.Sorted(maps.Keys(speeds))
				times = speeds[names[workload.Chance(1, j.Model, "speeds").IntN(len(names))]]
			}
			on := func(typ string, times float64) workload.OnType {
				return workload.OnType{Type: typ, Duration: max(time.Minute, time.Duration(float64(j.Duration)/times))}
			}
			j.On = []workload.OnType{on("T4", 1/times[0]), on("A100", times[1]/times[0])}
		}
		return w, nil
	}
}

// inventElastic invents jobs that ask for load times the GPU hours of 64 GPUs while
// they arrive.
func inventElastic(seed uint64, load float64, jobs int) *workload.Workload {
	const cards = 64
	w := &workload.Workload{Name: "synthetic"}
	chance := workload.Chance(seed, "jobs", "elastic")
	mean := 2 * time.Hour.Seconds() * math.Exp(1.3*1.3/2) // GPU time
	at := 0.0
	for i := range jobs {
		gpus := []int{1, 1, 1, 1, 1, 2, 2, 4, 4, 8}[chance.IntN(10)]
		program := fmt.Sprintf("program-%d", chance.IntN(6))
		work := 2 * time.Hour.Seconds() * math.Exp(1.3*chance.NormFloat64())
		w.Jobs = append(w.Jobs, workload.Job{
			ID: fmt.Sprintf("j%d", i), Submit: time.Duration(at * float64(time.Second)), GPUs: gpus, Milli: 1000, Model: program, Exchange: exchangeOf(program),
			Duration: time.Duration(max(60, work/float64(gpus)) * float64(time.Second)),
		})
		at += chance.ExpFloat64() * mean / cards / load
	}
	return w
}

// siaElastic reads a sample of Sia's workloads, from 1 on.
func siaElastic(c *Config, list string, sample uint64) (*workload.Workload, error) {
	path, err := c.trace("sia-workloads")
	if err != nil {
		return nil, err
	}
	opt := trace.Options{Mix: fmt.Sprintf("%s:%d", list, sample)}
	w, _, err := trace.Load(path, opt)
	if err != nil {
		return nil, err
	}
	for i := range w.Jobs {
		j := &w.Jobs[i]
		j.Exchange, j.Milli = exchangeOf(j.Model), 1000
		if j.GPUs > widest {
			j.Duration, j.GPUs = time.Duration(float64(j.Duration)*j.Slower(widest)), widest
		}
	}
	return w, nil
}
