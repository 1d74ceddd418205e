package scheduler_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler"
	"github.com/berth-scheduler/berth/scheduler/explain"
	. "github.com/berth-scheduler/berth/scheduler/schedtest"
)

// bully slows whoever is beside it down by 1.8, and nobody slows it down.
func bully() *dispatch.Interference {
	const half = 4.0 / 7 // bends 1 to 1.8: (2+x)/(2-x) = 1.8
	return &dispatch.Interference{
		MaxBend: 1.6, BandwidthPerUtil: 0.5, Jobs: map[string]dispatch.Temper{"bully": {Self: 7}, "meek": {Self: 8, Family: 9}},
		Cards: []dispatch.Sharing{{GPUType: a100, Effects: map[uint64]dispatch.Effect{7: {Aggression: half}, 8: {Aggression: -half, Sensitivity: 0}}}},
	}
}

func light(id cluster.JobID, sig string, more ...JobOption) *cluster.Job {
	return Job(id, append([]JobOption{Mem(1000), Util(100), Lasts(time.Hour), Signed(sig)}, more...)...)
}

func TestNobodyIsSlowedDownBeyondTheLimit(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		edit   func(pol *scheduler.Policy, know *dispatch.Interference)
		cards  int
		mode   string
		first  string
		next   string
		beside bool
		why    string
	}{
		{"a newcomer would slow the resident down", nil, 1, "sim", "meek", "bully", false, "would slow job 1 down 1.8×, the limit is 1.5×"},
		{"the resident would slow the newcomer down", nil, 1, "sim", "bully", "meek", false, "would itself be slowed down 1.8×, the limit is 1.5×"},
		{"nobody is slowed down", nil, 1, "sim", "meek", "meek", true, ""},
		{"there is an empty card", nil, 2, "sim", "meek", "bully", false, ""},
		{"a higher limit", func(p *scheduler.Policy, _ *dispatch.Interference) { p.MaxSlowdownMilli = 1900 }, 1, "sim", "meek", "bully", true, ""},
		{"no limit", func(p *scheduler.Policy, _ *dispatch.Interference) { p.MaxSlowdownMilli = 0 }, 1, "sim", "meek", "bully", true, ""},
		{"slices of MIG", nil, 1, "mig", "meek", "bully", true, ""},
		{"another way of sharing", nil, 1, "mps", "meek", "bully", true, ""},
		{"sharing loses", func(_ *scheduler.Policy, k *dispatch.Interference) {
			k.Cards[0].Never, k.Cards[0].Pairs, k.Cards[0].SpeedSum = true, 40, 0.93
		}, 1, "sim", "meek", "meek", false, "their speeds add up to 0.93 in 40 pairs"},
		{"sharing loses, but nobody asked for a limit", func(p *scheduler.Policy, k *dispatch.Interference) {
			p.MaxSlowdownMilli, k.Cards[0].Never = 0, true
		}, 1, "sim", "meek", "meek", true, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w, pol := NewWorld([]*cluster.Node{Node("n1", tc.cards, a100, CapMode(tc.mode))}), scheduler.Default()
			if w.Know = bully(); tc.edit != nil {
				tc.edit(&pol, w.Know)
			}
			for i, sig := range []string{tc.first, tc.next} {
				w.Submit(light(cluster.JobID(i)+1, sig))
				p := scheduler.Schedule(w.Snapshot(), pol)
				w.Apply(&p)
			}
			on := w.OnGPU(GPU("n1", 0))
			if got := len(on) == 2; got != tc.beside {
				t.Errorf("on the first card are %v, beside each other %t", on, tc.beside)
			}
			if tc.why == "" {
				return
			}
			x := scheduler.Explain(w.Snapshot(), w.Jobs[2], pol)
			i := slices.IndexFunc(x, func(e explain.Explanation) bool { return e.Reason.Code == cluster.ReasonSharing })
			if i < 0 || !strings.Contains(x[i].Reason.Detail, tc.why) {
				t.Errorf("explained by %v, want %q", x, tc.why)
			}
			p := scheduler.Schedule(w.Snapshot(), pol)
			if len(p.Unplaced) != 1 || p.Unplaced[0].Reason.Code != cluster.ReasonSharing || !strings.Contains(p.Unplaced[0].Reason.Detail, tc.why) {
				t.Errorf("unplaced %v, want %q", p.Unplaced, tc.why)
			}
		})
	}
}

// TestCalm: while there are empty cards for all who wait nobody shares for more than a fifth
// of what the limit allows; once there are not, the limit decides, as it does where no card
// in use will do within the fifth and none is empty.
func TestCalm(t *testing.T) {
	t.Parallel()
	slower := func(by float64) *dispatch.Interference { // whoever is beside "loud"
		x := bully()
		x.Jobs = map[string]dispatch.Temper{"loud": {Self: 7}, "meek": {Self: 8}}
		x.Cards[0].Effects = map[uint64]dispatch.Effect{7: {Aggression: 2 * by / (2 + by)}}
		return x
	}
	for _, tc := range []struct {
		name   string
		by     float64
		cards  int
		newer  int
		gpus   int
		beside int // on the first card in the end
	}{
		{"more than a fifth, and there is an empty card", 0.3, 2, 1, 1, 1},
		{"less than a fifth", 0.09, 2, 1, 1, 2},
		{"more wait than cards are empty", 0.3, 2, 2, 1, 3},
		{"no card is empty", 0.3, 1, 1, 1, 2},
		{"a gang, and there are empty cards for it", 0.3, 3, 1, 2, 1},
		{"a gang, and there are not", 0.3, 2, 1, 2, 2},
		{"a gang that is slowed down by less", 0.09, 3, 1, 2, 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := NewWorld([]*cluster.Node{Node("n1", tc.cards, a100)}, light(1, "loud"))
			w.Know = slower(tc.by)
			p := scheduler.Schedule(w.Snapshot(), scheduler.Default())
			w.Apply(&p)
			for i := range tc.newer {
				w.Submit(light(cluster.JobID(i+2), "meek", GPUs(tc.gpus)))
			}
			p = scheduler.Schedule(w.Snapshot(), scheduler.Default())
			w.Apply(&p)
			if on := w.OnGPU(GPU("n1", 0)); len(p.Starts) != tc.newer || len(on) != tc.beside {
				t.Errorf("%d started, on the first card are %v, want %d and %d", len(p.Starts), on, tc.newer, tc.beside)
			}
		})
	}
}

// TestOvercommitKeepsTheLimit: slowdowns are those of what jobs are predicted to
// keep busy, not of what they reserve of it.
func TestOvercommitKeepsTheLimit(t *testing.T) {
	t.Parallel()
	pol := scheduler.Default()
	pol.OvercommitMilli = 1250
	half := func(id cluster.JobID, mib int64) *cluster.Job {
		return Job(id, Predict(a100, mib, 600, time.Hour), Signed("s"))
	}
	for compute, beside := range map[float64]bool{1.3: true, 1.6: false} { // 1.47 and 1.58 times as long by 600; 1.37 by 480
		w := NewWorld([]*cluster.Node{Node("n1", 1, a100)}, half(1, 9000))
		w.Know = &dispatch.Interference{MaxBend: 1.6, Jobs: map[string]dispatch.Temper{}, Cards: []dispatch.Sharing{{GPUType: a100, Compute: compute}}}
		p := scheduler.Schedule(w.Snapshot(), pol)
		w.Apply(&p)
		w.Submit(half(2, 9000))
		p = scheduler.Schedule(w.Snapshot(), pol)
		if got := len(p.Starts) == 1; got != beside {
			t.Errorf("compute %g: started %t, want %t", compute, got, beside)
		}
		why := explain.Explanation{}
		for _, e := range scheduler.Explain(w.Snapshot(), w.Jobs[2], pol) {
			why = e
		}
		if slow := strings.Contains(why.Reason.Detail, "slow job 1 down 1.6"); slow == beside {
			t.Errorf("compute %g: explained by %q", compute, why.Reason.Detail)
		}
	}
}

// TestTheFastPathKeepsThemApart: a job that ends makes room, but not for one
// that would slow down who stays.
func TestTheFastPathKeepsThemApart(t *testing.T) {
	t.Parallel()
	for sig, want := range map[string]int{"bully": 0, "meek": 1} {
		w := NewWorld([]*cluster.Node{Node("n1", 1, a100)}, light(1, "meek"), light(2, "meek", Mem(70_000)))
		p := scheduler.Schedule(w.Snapshot(), scheduler.Default())
		w.Apply(&p)
		w.Know = bully()
		w.Submit(light(3, sig, Mem(60_000)))
		p = scheduler.Schedule(w.Snapshot(), scheduler.Default())
		w.Apply(&p)
		w.End(2)
		asShort(w)
		p = scheduler.OnRelease(w, []cluster.GPUID{GPU("n1", 0)}, scheduler.Default())
		if len(p.Starts) != want {
			t.Errorf("%s: %d starts, want %d", sig, len(p.Starts), want)
		}
	}
}

func drawKnowledge(t *rapid.T) *dispatch.Interference {
	know := &dispatch.Interference{MaxBend: 1.6, BandwidthPerUtil: 0.5, Jobs: map[string]dispatch.Temper{}}
	number := func(name string, most float64) float64 { return rapid.Float64Range(0, most).Draw(t, name) }
	for i := range 4 {
		know.Jobs[fmt.Sprintf("s%d", i)] = dispatch.Temper{Self: uint64(i) + 1, Family: uint64(i)/2 + 11}
	}
	for _, typ := range []string{a100, small, t4} {
		s := dispatch.Sharing{
			GPUType: typ, Never: rapid.IntRange(0, 9).Draw(t, "never") == 0, Switch: number("switch", 0.2), Compute: number("compute", 2), Memory: number("memory", 1),
			Bandwidth: number("bandwidth", 2), Effects: map[uint64]dispatch.Effect{}, Histories: map[[2]uint64]float64{},
		}
		for _, id := range []uint64{1, 2, 3, 4, 11, 12} {
			s.Effects[id] = dispatch.Effect{Sensitivity: number("sensitivity", 1) - 0.4, Aggression: number("aggression", 1) - 0.4}
			s.Histories[[2]uint64{id, 3}] = number("history", 0.8) - 0.4
		}
		know.Cards = append(know.Cards, s)
	}
	return know
}

// TestEveryPlacementRespectsTheLimit: whatever was learned, after each pass and
// each release nobody who shares a card is predicted to be slowed down beyond
// the limit, nobody shares where sharing loses, and equal arguments give an
// equal plan.
func TestEveryPlacementRespectsTheLimit(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w, pol := NewWorld(drawNodes(t)), scheduler.Default()
		w.Know = drawKnowledge(t)
		pol.MaxSlowdownMilli = rapid.Int64Range(1100, 2500).Draw(t, "limit")
		id := cluster.JobID(0)
		for range rapid.IntRange(1, 5).Draw(t, "rounds") {
			for range rapid.IntRange(1, 12).Draw(t, "batch") {
				id++
				j := drawJob(t, id)
				j.Spec.Signature = rapid.SampledFrom([]string{"s0", "s1", "s2", "s3", "unknown"}).Draw(t, "signature")
				w.Submit(j)
			}
			snap := w.Snapshot()
			p := scheduler.Schedule(snap, pol)
			slices.Reverse(snap.Running)
			slices.Reverse(snap.Waiting)
			if d := cmp.Diff(p, scheduler.Schedule(snap, pol)); d != "" {
				t.Fatalf("another plan in another order: %s", d)
			}
			w.Apply(&p)
			respected(t, w, pol)
			freed := w.Advance(time.Duration(rapid.IntRange(0, 60).Draw(t, "minutes")) * time.Minute)
			p = scheduler.OnRelease(w, freed, pol)
			w.Apply(&p)
			respected(t, w, pol)
		}
		if len(w.Rejected) > 0 {
			t.Fatalf("rejected: %v", w.Rejected)
		}
	})
}

// respected reckons anew, from the definition.
func respected(t *rapid.T, w *World, pol scheduler.Policy) {
	for _, n := range w.Nodes {
		for i := range n.GPUs {
			g := &n.GPUs[i]
			on, s := w.OnGPU(g.ID), w.Know.SharingOn(g)
			if len(on) < 2 || s == nil {
				continue
			}
			if s.Never {
				t.Fatalf("jobs %v share %s, where sharing loses", on, g.ID)
			}
			for _, v := range on {
				if slow := slowdownBy(w, s, g.ID, on, v); slow*1000 > float64(pol.MaxSlowdownMilli)*(1+1e-9) {
					t.Fatalf("job %d beside %v on %s is slowed down %.3f, the limit is %d", v, on, g.ID, slow, pol.MaxSlowdownMilli)
				}
			}
		}
	}
}

func slowdownBy(w *World, s *dispatch.Sharing, gpu cluster.GPUID, on []cluster.JobID, v cluster.JobID) float64 {
	util := func(id cluster.JobID) float64 {
		for _, gs := range w.Jobs[id].Live().Berth.GPUs {
			if gs.GPU == gpu {
				return float64(gs.Share.Milli) / 1000
			}
		}
		return 0
	}
	temper := func(id cluster.JobID) dispatch.Temper { return w.Know.Jobs[w.Jobs[id].Spec.Signature] }
	slow, need, pairs := 1.0, util(v)/2, 0.0
	for _, o := range on {
		if o == v {
			continue
		}
		beyond := max(0, util(v)/2+util(o)/2-1)
		x := s.Offset(temper(v), temper(o))
		x = max(-w.Know.MaxBend, min(w.Know.MaxBend, x))
		pair := 1 + s.Switch + s.Compute*util(v)*util(o) + s.Memory*util(v)*util(o)/2 + s.Bandwidth*beyond
		slow += max(1, pair*(2+x)/(2-x)) - 1
		need += util(o) / 2
		pairs += beyond
	}
	if len(on) > 2 {
		slow += s.Bandwidth * max(0, max(0, need-1)-pairs)
	}
	return slow
}
