package sim_test

import (
	"context"
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/cluster"
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

// waits is an Observer that counts, at each event, how many jobs wait.
type waits struct{ sum, events float64 }

func (*waits) Attempt(string, []int, time.Duration, time.Duration, cluster.JobState) {}

func (w *waits) Level(_ time.Duration, _, _, _ int64, waiting int) {
	w.sum += float64(waiting)
	w.events++
}

// cpuTime returns the processor time that this process has taken.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkWeek replays weeks of $BERTH_TRACES by the default policy on fleets so small
// that few, hundreds or a thousand jobs wait, and tells how many do, and events a second
// of CPU time.
func BenchmarkWeek(b *testing.B) {
	dir := os.Getenv("BERTH_TRACES")
	if dir == "" {
		b.Skip("set BERTH_TRACES to a folder with philly, helios-venus and microsoft-itp-2021")
	}
	const week = 7 * 24 * time.Hour
	for _, c := range []struct {
		trace string
		from  time.Duration
		nodes []int
	}{{"philly", 0, []int{69, 40, 30}}, {"helios-venus", 10 * week, []int{135, 60}}, {"microsoft-itp-2021", week, []int{140, 70, 48}}} {
		w, _, err := trace.Load(dir+"/"+c.trace, trace.Options{Since: c.from, Until: c.from + week})
		if err != nil {
			b.Fatal(err)
		}
		for _, nodes := range c.nodes {
			b.Run(fmt.Sprintf("%s/gpus=%d", c.trace, 8*nodes), func(b *testing.B) {
				f := workload.Homogeneous(nodes, 8, "gpu", 16<<10)
				f.Pool = true
				began, events, seen := cpuTime(b), 0, &waits{}
				for b.Loop() {
					r, err := sim.Run(context.Background(), w, &f, sim.Options{Planner: sim.NewBerth(scheduler.ModeFFD, 0), PassEvery: time.Second, Observe: seen})
					if err != nil {
						b.Fatal(err)
					}
					events += r.Events
				}
				b.ReportMetric(float64(events)/(cpuTime(b)-began).Seconds(), "events/cpu-s")
				b.ReportMetric(seen.sum/seen.events, "waiting")
			})
		}
	}
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
