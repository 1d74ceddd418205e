package frugal_test

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/agent/power/frugal"
	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/draws"
)

var _ = draws.Fixed()

// card is a card and a job on it: what it does at a limit, in parts of its default.
type card struct {
	defaultW, leastW int64
	cost             func(watts int64) cluster.StepCost
}

// compute is a job of which a part goes with the clock, whose power goes with its cube.
func compute(defaultW, idleW, leastW int64, part float64) card {
	return card{defaultW, leastW, func(w int64) cluster.StepCost {
		f := math.Cbrt(float64(max(w, idleW+1)-idleW) / float64(defaultW-idleW))
		rate := 10 / (part/f + 1 - part)
		return cluster.StepCost{PerSecond: rate, Joules: float64(w) / rate}
	}}
}

// drive has a job run under a search until it is done or as many seconds have passed, with
// what it says once in every seconds; caps are those that were held.
func drive(s *frugal.Search, c card, every float64, seconds int) (caps []int64) {
	at := time.Unix(1_000_000, 0)
	steps, joules, said := 0.0, 0.0, 0.0
	held := int64(0)
	hold := func() {
		if p := s.Percent(); len(caps) == 0 || p != caps[len(caps)-1] {
			caps = append(caps, p)
		}
		held = max(c.leastW, c.defaultW*s.Percent()/100)
		s.Held(at, held)
		if now := s.Percent(); now != caps[len(caps)-1] { // the card goes no lower
			caps = append(caps, now)
			held = max(c.leastW, c.defaultW*now/100)
			s.Held(at, held)
		}
	}
	hold()
	for range 10 * seconds {
		at = at.Add(100 * time.Millisecond)
		cost := c.cost(held)
		steps, joules, said = steps+cost.PerSecond/10, joules+cost.Joules*cost.PerSecond/10, said+0.1
		if said < every-1e-9 {
			continue
		}
		said = 0
		if s.Step(frugal.Seen{At: at, Step: int64(math.Round(steps * 1000)), Joules: joules}) {
			hold()
		}
		if s.Done() {
			break
		}
	}
	return caps
}

// naive is the best of all the caps there are, by what they cost.
func naive(c card, percents []int64, slowdown int) (watts int64) {
	watts = c.defaultW
	for _, p := range percents {
		w := max(c.leastW, c.defaultW*p/100)
		if got := c.cost(w); got.Joules < c.cost(watts).Joules*(1-1e-6) && got.PerSecond >= c.cost(c.defaultW).PerSecond*(1-float64(slowdown)/100) {
			watts = w
		}
	}
	return watts
}

// TestFindsWhatNaiveFinds: on cards that are the slower the lower their limit, the search
// holds in the end the best of all caps that do not slow the job down too much.
func TestFindsWhatNaiveFinds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		idle := rapid.Int64Range(10, 100).Draw(t, "idle")
		full := rapid.Int64Range(150, 700).Draw(t, "default")
		c := compute(full, idle, full/rapid.Int64Range(2, 8).Draw(t, "least"), rapid.Float64Range(0.05, 1).Draw(t, "part"))
		slow := rapid.IntRange(0, cluster.MaxSlowdown).Draw(t, "slowdown")
		s := frugal.New(frugal.Usual(slow), nil)
		caps := drive(s, c, rapid.SampledFrom([]float64{0.1, 0.5, 2, 7}).Draw(t, "every"), 3600)
		if !s.Done() {
			t.Fatalf("not done after an hour; caps %v", caps)
		}
		var all []int64
		for p := int64(100); p >= 10; p -= 5 {
			all = append(all, p)
		}
		got, want := s.Found(), naive(c, all, slow)
		if near := c.cost(got.CapW).Joules / c.cost(want).Joules; got.CapW != want && (near > 1.001 || near < 0.999) {
			t.Fatalf("left with %d W, want %d W: %+v", got.CapW, want, got)
		}
		if got.After.PerSecond < got.Before.PerSecond*(1-float64(slow)/100) || got.After.Joules > got.Before.Joules || !got.Sane() || got.DefaultW != full {
			t.Fatalf("found %+v", got)
		}
		if last := caps[len(caps)-1]; max(c.leastW, full*last/100) != got.CapW || s.Percent() != last {
			t.Fatalf("holds %d %% in the end and found %d W of %d", last, got.CapW, full)
		}
		for _, p := range caps[:len(caps)-1] { // no cap that is far too slow was held
			if w := max(c.leastW, full*(p+5)/100); p < 95 && c.cost(w).PerSecond < 0.999*c.cost(full).PerSecond*(1-float64(slow)/100) {
				t.Fatalf("tried %d %% although %d %% was too slow already: %v", p, p+5, caps)
			}
		}
	})
}

func TestSearchByHand(t *testing.T) {
	t.Parallel()
	a100 := compute(400, 60, 100, 0.6)
	before := func(w int64) *cluster.CapSearch { return &cluster.CapSearch{DefaultW: 400, CapW: w} }
	for _, c := range []struct {
		name   string
		card   card
		slow   int
		before *cluster.CapSearch
		caps   []int64
	}{
		{"five percent", a100, 5, nil, []int64{100, 95, 90, 85, 80, 100, 85}},
		{"none", a100, 0, nil, []int64{100, 95, 100}},
		{"from what was found before", a100, 5, before(340), []int64{100, 90, 85, 80, 100, 85}},
		{"from the limit itself", a100, 5, before(400), []int64{100, 95, 100, 95}},
		{"as low as the card goes", compute(400, 60, 340, 0.6), 50, nil, []int64{100, 95, 90, 85, 80, 100, 85}},
		{"slow steps of a card that draws as much whatever its limit", card{300, 100, func(w int64) cluster.StepCost {
			return cluster.StepCost{PerSecond: 1 + float64(w)/10_000, Joules: 300 / (1 + float64(w)/10_000)}
		}}, 1, nil, []int64{100, 95, 90, 85, 80, 75, 70, 65, 100}},
	} {
		s := frugal.New(frugal.Usual(c.slow), c.before)
		if caps := drive(s, c.card, 0.5, 3600); !equal(caps, c.caps) {
			t.Errorf("%s: held %v, want %v; %+v", c.name, caps, c.caps, s.Found())
		}
	}
}

func equal(a, b []int64) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// TestWhatIsNotMeasured: the first seconds of a job and of a cap, what lies across a count
// that begins anew, and too few steps or too short a time.
func TestWhatIsNotMeasured(t *testing.T) {
	t.Parallel()
	at := time.Unix(0, 0)
	s := frugal.New(frugal.Usual(5), nil)
	s.Held(at, 400)
	step := func(sec int, n int64, joules float64, want bool) {
		t.Helper()
		if got := s.Step(frugal.Seen{At: at.Add(time.Duration(sec) * time.Second), Step: n, Joules: joules}); got != want {
			t.Fatalf("step %d after %d s: another cap %v, want %v", n, sec, got, want)
		}
	}
	step(0, 0, 0, false)
	step(19, 1000, 99999, false) // warm-up
	step(20, 1001, 100_000, false)
	step(29, 2001, 200_000, false) // too short
	step(31, 5, 300_000, false)    // began anew
	step(41, 14, 300_900, false)   // 9 steps
	step(42, 15, 301_100, true)    // 10 in 11 s
	s.Held(at.Add(42*time.Second), 380)
	step(43, 16, 301_200, false) // it has not settled
	step(44, 17, 301_300, false)
	step(53, 27, 302_300, false) // 10 s since it was said first, 9 since it has
	if s.Late(at.Add(42*time.Second+30*time.Minute)) || !s.Late(at.Add(43*time.Second+30*time.Minute)) {
		t.Error("patience")
	}
	step(60, 37, 303_000, true)
	s.Held(at.Add(60*time.Second), 360)
	step(63, 40, 303_300, false)
	step(83, 42, 303_600, false)
	step(100, 50, 304_600, true) // 10 steps in 37 s: too slow
	if s.Percent() != 100 || s.Done() {
		t.Fatalf("at %d %% after a cap that is too slow", s.Percent())
	}
	s.Held(at.Add(100*time.Second), 400)
	step(103, 51, 305_000, false)
	step(113, 71, 306_000, true)
	got := s.Found()
	if !s.Done() || got.Before != (cluster.StepCost{PerSecond: 2, Joules: 50}) || got.CapW != 400 || got.DefaultW != 400 {
		t.Errorf("found %+v", got)
	}
}

func TestBest(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		costs []cluster.StepCost
		slow  int
		want  int
	}{
		{[]cluster.StepCost{{PerSecond: 10, Joules: 40}}, 5, 0},
		{[]cluster.StepCost{{PerSecond: 10, Joules: 40}, {PerSecond: 9.5, Joules: 30}}, 5, 1},
		{[]cluster.StepCost{{PerSecond: 10, Joules: 40}, {PerSecond: 9.49, Joules: 30}}, 5, 0},
		{[]cluster.StepCost{{PerSecond: 10, Joules: 40}, {PerSecond: 11, Joules: 40}}, 5, 0},
		{[]cluster.StepCost{{PerSecond: 10, Joules: 40}, {PerSecond: 10, Joules: 39}, {PerSecond: 10, Joules: 39}}, 0, 1},
		{[]cluster.StepCost{{}, {}}, 5, 0},
	} {
		if got := frugal.Best(c.costs, c.slow); got != c.want {
			t.Errorf("%v at %d %%: %d, want %d", c.costs, c.slow, got, c.want)
		}
	}
}
