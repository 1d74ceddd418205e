package optimum

import (
	"fmt"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster/draws"
	"github.com/berth-scheduler/berth/scheduler/sim/slowdown"
	"github.com/berth-scheduler/berth/scheduler/sim/workload"
)

var _ = draws.Fixed()

// drawSmall draws jobs of one card.
func drawSmall(t *rapid.T, most int) *workload.Workload {
	w := &workload.Workload{Name: "small"}
	for i := range rapid.IntRange(1, most).Draw(t, "jobs") {
		w.Jobs = append(w.Jobs, workload.Job{
			ID: fmt.Sprintf("j%d", i), Duration: time.Duration(rapid.IntRange(1, 60).Draw(t, "minutes")) * time.Minute, GPUs: 1,
			UsedMilli: rapid.Int64Range(50, 1000).Draw(t, "milli"), MemMiB: rapid.Int64Range(500, 8000).Draw(t, "mem"),
		})
	}
	return w
}

func drawWorld(t *rapid.T) slowdown.Interference {
	return rapid.SampledFrom([]slowdown.Interference{slowdown.DefaultCurve(), slowdown.Free{}, slowdown.Linear{Beside: 0.35}, slowdown.Curve{Beside: 0.2, Over: 0.5}}).Draw(t, "world")
}

// TestPatternBound holds the bound by patterns against the optimum by search,
// and against what the scheduler makes of the same jobs.
func TestPatternBound(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w, world := drawSmall(t, 6), drawWorld(t)
		f := workload.Homogeneous(1, rapid.IntRange(1, 2).Draw(t, "cards"), "T4", 8000)
		f.MaxShares = rapid.IntRange(1, 3).Draw(t, "shares")
		best, err := ShortestMakespan(w, &f, world)
		if err != nil {
			t.Fatal(err)
		}
		w.Sort()
		b, ok := Of(w, &f, world, false)
		if !ok || b.Makespan > best.Seconds()+1e-6 {
			t.Fatalf("the bound of %g s is above the optimum of %g s", b.Makespan, best.Seconds())
		}
		if a := b.MakespanAlone; f.MaxShares == 1 && a > best.Seconds()+1e-6 {
			t.Fatalf("the bound alone of %g s is above the optimum of %g s", a, best.Seconds())
		}
	})
}

// TestPricesObeyPatterns checks the prices of larger programs, with several
// types and gangs, against every pattern.
func TestPricesObeyPatterns(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w, world := drawSmall(t, 40), drawWorld(t)
		f := workload.Fleet{MaxShares: rapid.IntRange(1, 4).Draw(t, "shares"), Nodes: []workload.NodeSpec{{Count: 2, GPUs: 4, GPUType: "A", MemMiB: 16000}, {Count: 1, GPUs: 3, GPUType: "B", MemMiB: 8000}}}
		for i := range w.Jobs {
			w.Jobs[i].GPUs = rapid.IntRange(1, 4).Draw(t, "gpus")
			w.Jobs[i].On = []workload.OnType{{Type: "B", Duration: w.Jobs[i].Duration * time.Duration(rapid.IntRange(1, 4).Draw(t, "slower"))}}
		}
		types := cardTypes(&f, true, 0)
		classes, of := classify(w, types, classLimit(f.MaxShares), world)
		if classes == nil {
			t.Fatal("no classes")
		}
		p := program{classes: classes, types: types, world: world}
		got := p.solve()
		if got == nil {
			t.Fatal("no prices")
		}
		// The cheapest prices of types that cover all patterns must fit the fleet.
		all := 0.0
		for k := range types {
			most := 0.0
			for _, c := range p.cols {
				sum := 0.0
				for _, e := range c.entry {
					sum += e.v * got[e.c]
				}
				if c.t == k {
					most = max(most, sum)
				}
			}
			all += most * float64(types[k].cards)
		}
		if all > 1 {
			t.Fatalf("prices take %g of the fleet's time, at most 1 is there", all)
		}
		for i, c := range of {
			if c < 0 || classes[c].count < w.Jobs[i].GPUs {
				t.Fatalf("job %d is of class %d", i, c)
			}
		}
	})
}

// TestSimplexAgrees checks that the prices are the best that there are, by the
// program written the other way round: times of patterns that do all the work
// and take no longer than the prices say. By weak duality no prices are better.
func TestSimplexAgrees(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w, world := drawSmall(t, 4), drawWorld(t)
		f := workload.Homogeneous(1, 3, "T4", 12000)
		types := cardTypes(&f, true, 0)
		classes, _ := classify(w, types, 40, world)
		p := program{classes: classes, types: types, world: world}
		prices := p.solve()
		got := 0.0
		for c, v := range prices {
			got += v * classes[c].work
		}
		if want := shortest(&p) / float64(types[0].cards); got > want*(1+1e-6) || got < want*(1-1e-6) {
			t.Fatalf("%d classes, %d patterns: %g s, patterns can do it in %g s", len(classes), len(p.cols), got, want)
		}
	})
}

// shortest is the least sum of the times of patterns that do the work of all
// classes. It tries every basis, and judges the times that come out by
// themselves.
func shortest(p *program) float64 {
	n, best := len(p.classes), math.Inf(1)
	basis := make([]int, 0, n)
	var try func(from int)
	try = func(from int) {
		if len(basis) == n {
			best = min(best, times(p, basis))
			return
		}
		for k := from; k < len(p.cols)+n; k++ {
			basis = append(basis, k)
			try(k + 1)
			basis = basis[:len(basis)-1]
		}
	}
	try(0)
	return best
}

// times is how long the patterns of a basis run, endless when they do not do the work.
func times(p *program, basis []int) float64 {
	n := len(p.classes)
	a := square(n)
	for i, k := range basis {
		if k >= len(p.cols) {
			a[k-len(p.cols)][i] = -1
			continue
		}
		for _, e := range p.cols[k].entry {
			a[e.c][i] = e.v
		}
	}
	inv, ok := inverse(a)
	if !ok {
		return math.Inf(1)
	}
	sum, done := 0.0, make([]float64, n)
	for i, k := range basis {
		y := 0.0
		for c := range n {
			y += inv[i][c] * p.classes[c].work
		}
		if y < -1e-6 {
			return math.Inf(1)
		}
		if k < len(p.cols) {
			sum += y
			for _, e := range p.cols[k].entry {
				done[e.c] += y * e.v
			}
		}
	}
	for c := range n {
		if done[c] < p.classes[c].work*(1-1e-9) {
			return math.Inf(1)
		}
	}
	return sum
}

// TestCardsBound holds the bounds of packing against the optimum by search.
func TestCardsBound(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := drawSmall(t, 9)
		f := workload.Homogeneous(1, 9, "T4", 8000)
		f.MaxShares = rapid.IntRange(1, 3).Draw(t, "shares")
		best, err := FewestCards(w, &f)
		if err != nil {
			t.Fatal(err)
		}
		l2, pattern := CardsBound(w, &f)
		if l2 > best || pattern > best || pattern < 1 || l2 < 1 {
			t.Fatalf("bounds %d and %d, the optimum is %d", l2, pattern, best)
		}
	})
}

func TestKnownOptima(t *testing.T) {
	t.Parallel()
	job := func(minutes int, milli, mem int64) workload.Job {
		return workload.Job{ID: fmt.Sprint(minutes, milli, mem), Duration: time.Duration(minutes) * time.Minute, GPUs: 1, UsedMilli: milli, MemMiB: mem}
	}
	for name, c := range map[string]struct {
		jobs    []workload.Job
		cards   int
		minutes float64
		fewest  int
	}{
		"nobody minds":         {[]workload.Job{job(10, 300, 100), job(10, 300, 100), job(10, 300, 100)}, 1, 10, 1},
		"memory parts them":    {[]workload.Job{job(10, 300, 6000), job(10, 300, 6000)}, 1, 20, 2},
		"a fourth waits":       {[]workload.Job{job(10, 100, 1), job(10, 100, 1), job(10, 100, 1), job(5, 100, 1)}, 1, 15, 2},
		"two cards":            {[]workload.Job{job(10, 600, 6000), job(6, 600, 6000), job(5, 600, 6000)}, 2, 11, 3},
		"a short one squeezes": {[]workload.Job{job(30, 500, 5000), job(10, 500, 3000), job(20, 500, 3000)}, 1, 30, 2},
	} {
		w := &workload.Workload{Jobs: c.jobs}
		f := workload.Homogeneous(1, c.cards, "T4", 8000)
		got, err := ShortestMakespan(w, &f, slowdown.Free{})
		if err != nil || math.Abs(got.Minutes()-c.minutes) > 1e-6 {
			t.Errorf("%s: %g minutes, %v; want %g", name, got.Minutes(), err, c.minutes)
		}
		if n, err := FewestCards(w, &f); err != nil || n != c.fewest {
			t.Errorf("%s: %d cards, %v; want %d", name, n, err, c.fewest)
		}
	}
	f := workload.Homogeneous(1, 1, "T4", 8000)
	pair := &workload.Workload{Jobs: []workload.Job{job(60, 600, 1000), job(60, 600, 1000)}}
	sold, err := ShortestMakespan(pair, &f, slowdown.DefaultCurve()) // 1 + 0.06 + 0.2 times as long
	within, werr := ShortestMakespanWithin(pair, &f, slowdown.DefaultCurve())
	if err != nil || werr != nil || math.Abs(sold.Minutes()-75.6) > 1e-6 || within != 2*time.Hour {
		t.Errorf("two of 60 %%: %s, %v; without overselling %s, %v; want 1h15m36s and 2h", sold, err, within, werr)
	}
	for _, bad := range []workload.Job{{ID: "gang", GPUs: 2, Duration: 1}, {ID: "late", GPUs: 1, Submit: 1, Duration: 1}, {ID: "big", GPUs: 1, Duration: 1, MemMiB: 9000}} {
		if _, err := ShortestMakespan(&workload.Workload{Jobs: []workload.Job{bad}}, &f, slowdown.Free{}); err == nil {
			t.Errorf("%s: was solved", bad.ID)
		}
	}
}

func TestMartelloToth(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		items []int64
		want  int
	}{{nil, 0}, {[]int64{60, 60, 60}, 3}, {[]int64{50, 50, 50}, 2}, {[]int64{70, 40, 30, 60}, 2}, {[]int64{51, 27, 27, 27, 51, 27, 27, 27}, 3}} {
		if got := martelloToth(c.items, 100); got != c.want {
			t.Errorf("%v: %d, want %d", c.items, got, c.want)
		}
	}
}
