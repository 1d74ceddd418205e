package sim_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler"
	"github.com/berth-scheduler/berth/scheduler/sim"
	"github.com/berth-scheduler/berth/scheduler/sim/slowdown"
	"github.com/berth-scheduler/berth/scheduler/sim/workload"
)

// oneCard starts whoever fits on the only card, in order of jobs.
type oneCard struct{}

func (oneCard) Name() string { return "one card" }

func (oneCard) Plan(snap *dispatch.Snapshot) (plan dispatch.Plan) {
	led, n := snap.Ledger.Clone(), snap.Nodes[0]
	for _, j := range snap.Waiting {
		e := j.Estimates[0]
		st := dispatch.Start{Job: j.ID, Attempt: uint32(len(j.Attempts)) + 1, Estimate: e, Berth: cluster.Berth{
			Node: n.ID, CPUMilli: 1, MemMiB: 1, GPUs: []cluster.GPUShare{{GPU: n.GPUs[0].ID, Share: cluster.Share{MemMiB: e.GPUMemP95MiB, Milli: e.Milli}}},
		}}
		if led.Fits(&st.Berth).Code == "" {
			led.Take(&st.Berth)
			plan.Starts = append(plan.Starts, st)
		}
	}
	return plan
}

// grower is a job whose memory takes a tenth of its peak more in each of the first ten
// steps of so many seconds. It runs for 180 steps, and is predicted to end at once.
type grower struct {
	comes, step            int
	peak, predicted, milli int64

	state                     int
	began, ends, look, seenAt int
	share, was                int64 // was is 0 unless it has less than it was granted
	held, seen                int64
	resized                   bool // and so it is not cut any more
	cuts, grown, harmed       int
}

const (
	growerComes = iota
	growerWaits
	growerRuns
	growerDone
)

const growersCard = 16000

// growers are on one card.
type growers []grower

// running are those who run, in order.
func (gs growers) running(yield func(*grower) bool) {
	for i := range gs {
		if gs[i].state == growerRuns && !yield(&gs[i]) {
			return
		}
	}
}

// begin starts whoever fits.
func (gs growers) begin(now int) (any bool) {
	mib, milli, n := int64(0), int64(0), 0
	for g := range gs.running {
		mib, milli, n = mib+g.share, milli+g.milli, n+1
	}
	for i := range gs {
		if g := &gs[i]; g.state == growerWaits && n < 3 && mib+g.predicted <= growersCard && milli+g.milli <= 1000 {
			mib, milli, n, any = mib+g.predicted, milli+g.milli, n+1, true
			g.state, g.began, g.share, g.was, g.seen, g.held = growerRuns, now, g.predicted, 0, 0, max(1, g.peak/10)
			g.notice(now)
		}
	}
	return any
}

// notice is that it holds other memory than before.
func (g *grower) notice(now int) {
	if g.held > g.seen {
		g.seen, g.seenAt = g.held, now
	}
	switch {
	case g.was > 0:
		g.look = now + 5
	case !g.resized:
		g.look = now + 20
	}
}

// end ends those who were cut and hold more than others leave them.
func (gs growers) end(now int) (any bool) {
	for g := range gs.running {
		room := int64(growersCard)
		for o := range gs.running {
			if o != g {
				room -= max(o.share, o.held)
			}
		}
		if g.was > 0 && g.held > g.share && g.held > min(g.was, room) {
			g.state, g.look, any = growerWaits, -1, true
			g.harmed++
		}
	}
	return any
}

// follow is the eager rule, a tenth and 256 MiB.
func (gs growers) follow(g *grower, now int) {
	others := int64(0)
	for o := range gs.running {
		if o != g {
			others += o.share
		}
	}
	want := g.seen + g.seen/10 + 256
	switch {
	case g.was == 0 && !g.resized && now-g.seenAt >= 20 && want <= g.share-max(g.share/20, 1):
		g.was, g.share, g.resized = g.share, want, true
		g.cuts++
	case g.was > 0 && g.seen*1000 > g.share*920 && min(want, g.was) > g.share:
		if want = min(want, g.was); others+want > growersCard {
			g.look = now + 5
			return
		}
		g.share = want
		g.grown++
		if g.share == g.was {
			g.was = 0
		}
	}
}

// run runs them second by second.
func (gs growers) run() {
	for now, done := 0, 0; done < len(gs); now++ {
		rose := false
		for i := range gs {
			g := &gs[i]
			switch held := max(1, g.peak*int64(min(10, (now-g.began)/g.step+1))/10); {
			case g.state == growerComes && g.comes == now:
				g.state = growerWaits
			case g.state != growerRuns:
			case now == g.began+180*g.step:
				g.state, g.ends = growerDone, now
				done++
			case held != g.held:
				g.held, rose = held, true
				g.notice(now)
			}
		}
		if rose {
			gs.end(now)
		}
		for g := range gs.running {
			if g.look == now {
				gs.follow(g, now)
			}
		}
		for gs.begin(now) && gs.end(now) {
		}
	}
}

// workload is the same for the simulator.
func (gs growers) workload() *workload.Workload {
	w := &workload.Workload{Name: "growers"}
	for i, g := range gs {
		w.Jobs = append(w.Jobs, workload.Job{
			ID: fmt.Sprintf("j%02d", i), Submit: seconds(g.comes), Duration: seconds(180 * g.step), GPUs: 1, MemMiB: g.peak, UsedMilli: g.milli,
			Predicted: []cluster.Estimate{{GPUType: "T4", GPUMemMiB: g.predicted, GPUMemP95MiB: g.predicted, Milli: g.milli, Duration: time.Second, ConfidenceMilli: 1000, Source: "graph"}},
		})
	}
	return w
}

// TestGrowersAsANaiveLoop: cuts, growth, harm and ends are those of a loop over seconds
// that shares nothing with the simulator.
func TestGrowersAsANaiveLoop(t *testing.T) {
	t.Parallel()
	var cuts, grown, harmed atomic.Int64
	rapid.Check(t, func(t *rapid.T) {
		var gs growers
		for range rapid.IntRange(1, 12).Draw(t, "jobs") {
			g := grower{peak: rapid.Int64Range(100, 14000).Draw(t, "peak"), step: rapid.IntRange(1, 60).Draw(t, "step"), milli: rapid.Int64Range(10, 400).Draw(t, "milli")}
			g.predicted = min(growersCard, g.peak+g.peak*rapid.Int64Range(0, 10).Draw(t, "too much")/10)
			g.comes = rapid.IntRange(0, 600).Draw(t, "comes")
			gs = append(gs, g)
		}
		slices.SortStableFunc(gs, func(a, b grower) int { return a.comes - b.comes })
		r := simulate(t, gs.workload(), workload.Homogeneous(1, 1, "T4", growersCard), sim.Options{
			Planner: oneCard{}, World: slowdown.Free{}, Resize: cluster.ResizeEager, Rise: sim.Rise{PeakAt: sim.DefaultPeakAt}, CapMemory: rapid.Bool().Draw(t, "cap"),
		})
		gs.run()
		var want [3]int
		var took []float64
		for _, g := range gs {
			want[0], want[1], want[2] = want[0]+g.cuts, want[1]+g.grown, want[2]+g.harmed
			took = append(took, float64(g.ends-g.comes))
		}
		slices.Sort(took)
		if got := [3]int{*r.Cuts, *r.Growths, *r.Harmed}; got != want || r.OOMs != want[2] {
			t.Fatalf("cuts, growths and jobs harmed are %v (%d out of memory), want %v", got, r.OOMs, want)
		}
		if !slices.EqualFunc(r.Completions, took, func(a, b float64) bool { return math.Abs(a-b) < 1e-5 }) {
			t.Fatalf("completion after %v, want %v", r.Completions, took)
		}
		cuts.Add(int64(want[0]))
		grown.Add(int64(want[1]))
		harmed.Add(int64(want[2]))
	})
	t.Logf("%d cuts, %d growths, %d jobs harmed", cuts.Load(), grown.Load(), harmed.Load())
	if cuts.Load() == 0 || grown.Load() == 0 || harmed.Load() == 0 {
		t.Error("too little happened")
	}
}

// TestLateGrowers: whatever a job's memory does within what was predicted, it completes,
// and loses one attempt at most to a cut. The state machine and its stand-in agree.
func TestLateGrowers(t *testing.T) {
	t.Parallel()
	var grown, harmed, yielded atomic.Int64
	defer func() {
		t.Logf("%d growths, %d jobs harmed, %d made room", grown.Load(), harmed.Load(), yielded.Load())
		if grown.Load() == 0 || yielded.Load() == 0 {
			t.Error("too little happened")
		}
	}()
	rapid.Check(t, func(t *rapid.T) {
		w, opt := genWorkload(t), genOptions(t)
		for i := range w.Jobs { // or there is room for few
			w.Jobs[i].UsedMilli = (w.Jobs[i].UsedMilli + 4) / 5
			w.Jobs[i].Submit /= 10
		}
		opt.MTBF, opt.Repair, opt.Errors = 0, 0, sim.Errors{MemMargin: rapid.SampledFrom([]float64{0, 0.3, 1}).Draw(t, "margin")}
		opt.Errors.Hide = rapid.IntRange(0, 3).Draw(t, "hide") == 0
		opt.Planner = sim.NewBerth(scheduler.ModeFFD, 0)
		opt.Preemptible = rapid.Bool().Draw(t, "hooks")
		opt.Resize = rapid.SampledFrom([]cluster.ResizeMode{cluster.ResizeConservative, cluster.ResizeEager}).Draw(t, "mode")
		opt.Rise = sim.Rise{PeakAt: rapid.SampledFrom([]float64{0, 0.05, 0.5}).Draw(t, "peak at"), Late: rapid.SampledFrom([]float64{0.2, 1}).Draw(t, "late")}
		f := workload.Homogeneous(1, 4, "T4", 16000)
		var got []string
		for _, log := range []bool{false, true} {
			opt.Log = log
			r := simulate(t, w, f, opt)
			if r.Completed != len(w.Jobs) || *r.Harmed > *r.Cuts || r.OOMs != *r.Harmed {
				t.Fatalf("%d of %d completed; %d cuts, %d growths, %d harmed, %d out of memory", r.Completed, len(w.Jobs), *r.Cuts, *r.Growths, *r.Harmed, r.OOMs)
			}
			got = append(got, asJSON(t, r))
			grown.Add(int64(*r.Growths))
			harmed.Add(int64(*r.Harmed))
			yielded.Add(int64(r.Preemptions))
		}
		if d := cmp.Diff(got[0], got[1]); d != "" {
			t.Fatalf("the state machine and its stand-in disagree (-stand-in +log):\n%s", d)
		}
	})
}

// TestNothingToCut: where predictions are exact there is nothing to cut, and all goes as
// it does without.
func TestNothingToCut(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w, opt := genWorkload(t), genOptions(t)
		for i := range w.Jobs { // those of several have them alone
			w.Jobs[i].GPUs = min(1, w.Jobs[i].GPUs)
		}
		opt.Planner, opt.Errors = sim.NewBerth(scheduler.ModeFFD, 0), sim.Errors{}
		opt.Rise = sim.Rise{PeakAt: sim.DefaultPeakAt}
		f := workload.Homogeneous(2, 4, "T4", 16000)
		off := simulate(t, w, f, opt)
		opt.Resize = cluster.ResizeConservative
		on := simulate(t, w, f, opt)
		if *on.Cuts+*on.Growths+*on.Harmed > 0 {
			t.Fatalf("%d cuts, %d growths, %d harmed", *on.Cuts, *on.Growths, *on.Harmed)
		}
		on.Cuts, on.Growths, on.Harmed, on.Events = nil, nil, nil, off.Events
		if d := cmp.Diff(asJSON(t, off), asJSON(t, on)); d != "" {
			t.Fatalf("without (-) and with (+):\n%s", d)
		}
	})
}

// TestResizeOptions: what cannot be simulated is refused.
func TestResizeOptions(t *testing.T) {
	t.Parallel()
	f := workload.Homogeneous(1, 1, "T4", 16000)
	for _, opt := range []sim.Options{
		{Resize: cluster.ResizeEager},
		{Resize: cluster.ResizeEager, Rise: sim.Rise{PeakAt: 0.1}, OOMFatal: true},
		{Rise: sim.Rise{PeakAt: 1.1}}, {Rise: sim.Rise{PeakAt: math.NaN()}}, {Rise: sim.Rise{Late: -0.1}},
	} {
		opt.Planner = oneCard{}
		if _, err := sim.Run(context.Background(), &workload.Workload{}, &f, opt); err == nil {
			t.Errorf("%+v: is not refused", opt)
		}
	}
}
