package sim_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/scheduler"
	"github.com/berth-scheduler/berth/scheduler/policies"
	"github.com/berth-scheduler/berth/scheduler/sim"
	"github.com/berth-scheduler/berth/scheduler/sim/trace"
	"github.com/berth-scheduler/berth/scheduler/sim/workload"
)

// BenchmarkRun replays 10,000 invented jobs on 512 cards, a third of which
// are busy, with the state machine and with its stand-in.
func BenchmarkRun(b *testing.B) {
	w := &workload.Workload{Name: "invented"}
	for i := range 10_000 {
		w.Jobs = append(w.Jobs, workload.Job{
			ID: fmt.Sprintf("j%d", i), Submit: time.Duration(i) * 20 * time.Second, Duration: time.Duration(1+i%97) * time.Minute, GPUs: 1 + i%3,
			MemMiB: int64(1000 + i%7000), UsedMilli: int64(100 + i%800),
		})
	}
	f := workload.Homogeneous(64, 8, "T4", 16000)
	for name, log := range map[string]bool{"log": true, "stand-in": false} {
		b.Run(name, func(b *testing.B) {
			began, events := time.Now(), 0
			for b.Loop() {
				r, err := sim.Run(context.Background(), w, &f, sim.Options{Planner: sim.NewBerth(scheduler.ModeFFD, 0), PassEvery: time.Second, Log: log})
				if err != nil {
					b.Fatal(err)
				}
				events += r.Events
			}
			b.ReportMetric(float64(events)/time.Since(began).Seconds(), "events/s")
		})
	}
}

// BenchmarkVenus replays the first 20,000 jobs of the trace that $BERTH_TRACES
// holds as helios-venus, and tells events a second.
func BenchmarkVenus(b *testing.B) {
	dir := os.Getenv("BERTH_TRACES")
	if dir == "" {
		b.Skip("set BERTH_TRACES to a folder with helios-venus")
	}
	w, _, err := trace.Load(dir+"/helios-venus", trace.Options{MaxJobs: 20000})
	if err != nil {
		b.Fatal(err)
	}
	f, _ := trace.FleetFor(w)
	f.Pool = true
	began, events := time.Now(), 0
	for b.Loop() {
		r, err := sim.Run(context.Background(), w, &f, sim.Options{Planner: sim.NewBerth(scheduler.ModeFFD, 0), PassEvery: time.Second})
		if err != nil {
			b.Fatal(err)
		}
		events += r.Events
	}
	b.ReportMetric(float64(events)/time.Since(began).Seconds(), "events/s")
}

// BenchmarkQueues replays lists that keep hundreds of jobs waiting, from
// $BERTH_TRACES, by policies with a fast path and without, and tells events a
// second.
func BenchmarkQueues(b *testing.B) {
	dir := os.Getenv("BERTH_TRACES")
	if dir == "" {
		b.Skip("set BERTH_TRACES to a folder with lucid-window")
	}
	for mix, nodes := range map[string]int{"m3": 8, "v2": 64} {
		w, _, err := trace.Load(dir+"/lucid-window", trace.Options{Mix: mix})
		if err != nil {
			b.Fatal(err)
		}
		f := workload.Homogeneous(nodes, 8, "gpu", 24<<10)
		f.Pool = true
		for _, name := range []string{"ffd", "slot+fifo", "slot+qssf", "slot+las"} {
			b.Run(mix+"/"+name, func(b *testing.B) {
				var p sim.Planner = sim.NewBerth(scheduler.ModeFFD, 0)
				if name != "ffd" {
					if p, err = policies.New(name, policies.Options{}); err != nil {
						b.Fatal(err)
					}
				}
				opt := sim.Options{Planner: p, PassEvery: time.Second, Preemptible: name == "slot+las", Errors: sim.Errors{Hide: true}}
				if opt.Preemptible {
					opt.Tick = 10 * time.Minute
				}
				began, events := time.Now(), 0
				for b.Loop() {
					r, err := sim.Run(context.Background(), w, &f, opt)
					if err != nil {
						b.Fatal(err)
					}
					events += r.Events
				}
				b.ReportMetric(float64(events)/time.Since(began).Seconds(), "events/s")
			})
		}
	}
}
