package experiment

import (
	"context"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/draws"
	"github.com/berth-scheduler/berth/scheduler/power"
	"github.com/berth-scheduler/berth/scheduler/sim"
	"github.com/berth-scheduler/berth/scheduler/sim/workload"
)

var _ = draws.Fixed()

// TestWindowOfJobs: jobs that are cut into nodes and into windows hold as many GPUs for as long
// as before, in all windows together.
func TestWindowOfJobs(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		held := func(jobs []workload.Job) (sum time.Duration) {
			for _, j := range jobs {
				if j.GPUs < 1 || j.GPUs > cesNode || j.Duration <= 0 || j.Submit < 0 {
					t.Fatalf("%+v", j)
				}
				sum += j.Duration * time.Duration(j.GPUs)
			}
			return sum
		}
		var jobs []workload.Job
		want := time.Duration(0)
		for i := range rapid.IntRange(0, 8).Draw(t, "jobs") {
			j := workload.Job{
				ID: fmt.Sprint(i), Submit: time.Duration(rapid.IntRange(0, 50).Draw(t, "submit")), Duration: time.Duration(rapid.IntRange(1, 60).Draw(t, "duration")),
				GPUs: rapid.IntRange(1, 30).Draw(t, "gpus"),
			}
			want += j.Duration * time.Duration(j.GPUs)
			jobs = append(jobs, j)
		}
		cut, got := time.Duration(rapid.IntRange(0, 120).Draw(t, "cut")), time.Duration(0)
		for _, w := range [][]workload.Job{within(split(jobs), 0, cut), within(split(jobs), cut, 200)} {
			got += held(w)
		}
		if got != want {
			t.Fatalf("%d GPU times in the windows, want %d", got, want)
		}
	})
}

// TestCESAsPublishedByHand: five more are woken when too few are up, all but five go when fewer
// were needed and fewer will be, and none in the two hours after others were woken.
func TestCESAsPublishedByHand(t *testing.T) {
	t.Parallel()
	level := func(parts ...[2]int) (y []float64) {
		for _, p := range parts {
			for range p[0] {
				y = append(y, float64(p[1]))
			}
		}
		return y
	}
	for name, c := range map[string]struct {
		y                []float64
		calls, up, inUse float64 // calls of a day; nodes up on average
	}{
		"always the same": {level([2]int{144 + 35, 40}), 0, 45, 100 * 40.0 / 45},
		"rises once":      {level([2]int{72, 40}, [2]int{72 + 35, 50}), 1, (72*45 + 72*55) / 144.0, 100 * 45.0 / 50},
		"rises by little": {level([2]int{72, 40}, [2]int{72 + 35, 45}), 0, 45, 100 * 42.5 / 45},
	} {
		off, calls, busy := cesPublished(c.y)
		if n := cesNodes - off; n < c.up-0.01 || n > c.up+0.01 || calls != c.calls || busy < c.inUse-0.01 || busy > c.inUse+0.01 {
			t.Errorf("%s: %g are up, woken %g times, %g %% in use; want %g, %g, %g", name, n, calls, busy, c.up, c.calls, c.inUse)
		}
	}
	var falls []float64
	for i := range 144 + 35 {
		falls = append(falls, float64(100-min(60, max(0, i-30)*4)))
	}
	if off, _, _ := cesPublished(falls); off < 70 {
		t.Errorf("%g are off on average of demand that falls from 100 to 40", off)
	}
}

// TestForecastOfInventedJobs: on jobs that come by day the forecast has far fewer jobs wait for
// a boot than the rule of idle nodes, and saves energy over no rule.
func TestForecastOfInventedJobs(t *testing.T) {
	t.Parallel()
	rng := workload.Chance(1, "invented", "days")
	var jobs []workload.Job
	const days = 12
	for d := range days {
		for i := range 60 {
			at := time.Duration(d)*24*time.Hour + time.Duration((9+3*rng.NormFloat64())*float64(time.Hour))
			jobs = append(jobs, workload.Job{
				ID: fmt.Sprintf("%d-%d", d, i), Submit: max(0, at), Duration: time.Duration((0.2 + rng.ExpFloat64()) * float64(time.Hour)), GPUs: []int{1, 2, 4, 8}[rng.IntN(4)], Milli: 1000,
			})
		}
	}
	fleet := workload.Homogeneous(20, cesNode, cesType, 32<<10)
	fleet.MaxShares, fleet.Nodes[0].IdleW, fleet.Nodes[0].MaxW = 1, 30, 300
	run := &cesRun{fleet: fleet, since: sim.Epoch.Add(-8 * 24 * time.Hour), jobs: &workload.Workload{Name: "invented", Jobs: within(jobs, 8*24*time.Hour, days*24*time.Hour)}}
	for i, j := range within(jobs, 0, 8*24*time.Hour) { // as if any two shared a node
		run.past = append(run.past, power.Span{Node: cluster.NodeID(fmt.Sprint(i / 2)), Kind: cesKind, From: run.since.Add(j.Submit), To: run.since.Add(j.Submit + j.Duration)})
	}
	got := map[string]*sim.Result{}
	for _, v := range cesVariants() {
		r, _, err := run.run(context.Background(), &Config{}, v.rule)
		if err != nil {
			t.Fatal(err)
		}
		got[v.name] = r
	}
	on, idle, ahead := got["always on"], got["idle"], got["forecast"]
	if *on.NodesOff != 0 || *ahead.NodesOff < 5 || *ahead.NodesOff > *idle.NodesOff {
		t.Errorf("off on average: %g with a forecast, %g by idling, %g always on", *ahead.NodesOff, *idle.NodesOff, *on.NodesOff)
	}
	if 10**ahead.JobsLate > *idle.JobsLate || *on.JobsLate != 0 {
		t.Errorf("%d jobs late and %d boots with a forecast, %d and %d by idling, %d late always on", *ahead.JobsLate, *ahead.WakeUps, *idle.JobsLate, *idle.WakeUps, *on.JobsLate)
	}
	if *ahead.EnergyKWh >= *on.EnergyKWh || *idle.EnergyKWh >= *ahead.EnergyKWh {
		t.Errorf("kWh: %g with a forecast, %g by idling, %g always on", *ahead.EnergyKWh, *idle.EnergyKWh, *on.EnergyKWh)
	}
}

// TestDeferredJobs: who may wait comes no earlier, ends by what is predicted within what it said,
// and never pays more for that than at once; parts of one job come together.
func TestDeferredJobs(t *testing.T) {
	t.Parallel()
	const within = 12 * time.Hour
	signal := daily(4 * 24 * time.Hour)
	var jobs []workload.Job
	for i := range 60 {
		j := workload.Job{ID: fmt.Sprint(i), Submit: time.Duration(i) * 67 * time.Minute, Duration: time.Duration(i*i) * time.Minute / 4, GPUs: 20}
		if i%7 == 6 {
			j.Duration = 13 * time.Hour
		}
		jobs = append(jobs, split([]workload.Job{j})...)
	}
	got, waiting := deferred(jobs, signal, within, 0.5)
	moved := 0
	for i := range jobs {
		was, is := jobs[i].Submit, got[i].Submit
		if is == was {
			continue
		}
		moved++
		if is < was || is > was+within {
			t.Errorf("job %s comes at %s, not at %s", jobs[i].ID, is, was)
		}
		if i%3 == 0 && (got[i+1].Submit != is || got[i+2].Submit != is) {
			t.Errorf("parts of job %s come apart", jobs[i].ID)
		}
	}
	if moved != waiting || moved < len(jobs)/4 || moved > 3*len(jobs)/4 {
		t.Errorf("%d of %d wait, and %d come later", waiting, len(jobs), moved)
	}
	if none, n := deferred(jobs, signal, within, 0); n != 0 || none[5].Submit != jobs[5].Submit {
		t.Errorf("%d wait and none may", n)
	}
	for h, want := range map[int]float64{4: 0.15, 16: 0.45, 28: 0.15, 10: 0.30} {
		if at, known := signal.At(sim.Epoch.Add(time.Duration(h) * time.Hour)); !known || at < want-1e-9 || at > want+1e-9 {
			t.Errorf("at %d: %g EUR/kWh, want %g", h, at, want)
		}
	}
}
