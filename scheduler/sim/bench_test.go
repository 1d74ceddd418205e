package sim_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/scheduler"
	"github.com/berth-scheduler/berth/scheduler/sim"
	"github.com/berth-scheduler/berth/scheduler/sim/trace"
)

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
