package power

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler/schedtest"
)

const slot = 10 * time.Minute

// base is a moment at which a slot begins.
var base = cluster.Time(int64(now) / slot.Microseconds() * slot.Microseconds())

// TestDemandAsALoopOverSeconds: of jobs that come and go each slot has the most nodes that
// were held at once, whatever the order in which it is told, and whoever shares a node.
func TestDemandAsALoopOverSeconds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		const slots = 12
		d := Demand{Slot: 10 * time.Second}
		since := base.Add(time.Duration(rapid.IntRange(0, 9).Draw(t, "since")) * time.Second)
		end := since.Add(slots * 10 * time.Second)
		var spans []Span
		for range rapid.IntRange(0, 12).Draw(t, "spans") {
			from := rapid.IntRange(-30, 10*slots).Draw(t, "from")
			s := Span{Node: cluster.NodeID(fmt.Sprint("n", rapid.IntRange(1, 4).Draw(t, "node"))), Kind: "a", From: since.Add(time.Duration(from) * time.Second)}
			if rapid.IntRange(0, 4).Draw(t, "runs") > 0 {
				s.To = s.From.Add(time.Duration(rapid.IntRange(0, 60).Draw(t, "lasts")) * time.Second)
			}
			spans = append(spans, s)
		}
		d.Recall([]Kind{"a", "b"}, spans, since, end)
		var want []float64
		for at := since; at < end; at = at.Add(time.Second) {
			if at == since || int64(at)%d.Slot.Microseconds() == 0 {
				want = append(want, 0)
			}
			held := map[cluster.NodeID]struct{}{}
			for _, s := range spans {
				if s.From <= at && (s.To == 0 || s.To > at) {
					held[s.Node] = struct{}{}
				}
			}
			want[len(want)-1] = max(want[len(want)-1], float64(len(held)))
		}
		if int64(end)%d.Slot.Microseconds() != 0 {
			want = want[:len(want)-1] // it is not over
		}
		if diff := cmp.Diff(want, d.Slots("a")); diff != "" {
			t.Fatal(diff)
		}
		if got := d.Slots("b"); len(got) != len(want) || slices.Max(got) != 0 {
			t.Fatalf("of b: %v", got)
		}
	})
}

// TestDemandIsBounded: what is long ago is forgotten, also where nobody looked for long.
func TestDemandIsBounded(t *testing.T) {
	t.Parallel()
	d := Demand{Slot: slot}
	at := base
	for i := range MaxSlots + 10 {
		d.Observe("a", at, i%7)
		at = at.Add(slot)
	}
	if got := d.Slots("a"); len(got) != MaxSlots || got[len(got)-1] != float64(max((MaxSlots+8)%7, (MaxSlots+7)%7)) {
		t.Fatalf("%d slots, the last %v", len(got), got[len(got)-1])
	}
	d.Observe("a", at.Add(10*MaxSlots*slot), 1)
	got := d.Slots("a")
	if len(got) != MaxSlots || slices.Min(got) != slices.Max(got) {
		t.Fatalf("after a long time: %d slots from %v to %v", len(got), slices.Min(got), slices.Max(got))
	}
}

// TestPeakByHand: methods say what they are to, and a simpler one where too little is known.
func TestPeakByHand(t *testing.T) {
	t.Parallel()
	h := Seasons{Horizon: 2, Day: 4, Week: 8}
	for name, c := range map[string]struct {
		y    []float64
		m    Method
		want float64
		by   Method
	}{
		"nothing is known":           {nil, ByRegression, 0, ByLast},
		"what is now":                {[]float64{3, 5, 4}, ByLast, 4, ByLast},
		"a day ago it rose by two":   {[]float64{1, 3, 2, 1, 6}, ByDay, 8, ByDay},
		"it fell":                    {[]float64{5, 3, 4, 1, 6}, ByDay, 5, ByDay},
		"never below nothing":        {[]float64{9, 1, 2, 1, 3}, ByDay, 0, ByDay},
		"no day yet":                 {[]float64{1, 3, 2, 1}, ByDay, 1, ByLast},
		"a week ago it rose by four": {[]float64{1, 3, 5, 1, 0, 0, 0, 0, 2}, ByWeek, 6, ByWeek},
		"no week yet":                {[]float64{1, 3, 2, 1, 6}, ByWeek, 8, ByDay},
		"too little for a fit":       {[]float64{1, 3, 2, 1, 6}, ByRegression, 8, ByDay},
	} {
		if got, by := h.Peak(c.y, c.m); got != c.want || by != c.by {
			t.Errorf("%s: %v by %s, want %v by %s", name, got, by, c.want, c.by)
		}
	}
	if got := SeasonsOf(slot, 3*time.Hour); got != (Seasons{18, 144, 1008}) {
		t.Errorf("%+v", got)
	}
}

// TestRegressionLearnsAPattern that no season of its own tells: demand that goes by the day
// around a level that wanders.
func TestRegressionLearnsAPattern(t *testing.T) {
	t.Parallel()
	h := SeasonsOf(slot, 3*time.Hour)
	var y []float64
	level, state := 40.0, uint64(1)
	chance := func() float64 { // as good as any, and the same everywhere
		state = state*6364136223846793005 + 1442695040888963407
		return float64(state>>40)/float64(1<<24) - 0.5
	}
	for i := range 3 * h.Week {
		level += 0.8*chance() + (40-level)/200
		y = append(y, math.Round(level+10*math.Sin(2*math.Pi*float64(i)/float64(h.Day))+chance()))
	}
	from := len(y) - h.Week
	errs := map[Method]Errors{}
	for _, m := range Methods() {
		errs[m] = h.Measure(y, from, m)
		if errs[m].N != h.Week-h.Horizon {
			t.Fatalf("%s: measured at %d slots", m, errs[m].N)
		}
	}
	for _, m := range []Method{ByLast, ByDay, ByWeek} {
		if errs[ByRegression].MAE >= errs[m].MAE || errs[ByRegression].RMSE >= errs[m].RMSE {
			t.Errorf("by regression it is off by %+v, by %s by %+v", errs[ByRegression], m, errs[m])
		}
	}
	if e := errs[ByLast]; e.Short <= 0 || e.Short > e.MAE || e.RMSE < e.MAE || e.SMAPE <= 0 {
		t.Errorf("%+v", e)
	}
}

// TestForecastOfWhatStays: what was always the same is forecast to stay, by every method, and
// whatever comes is never a number that is none.
func TestForecastOfWhatStays(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		h := Seasons{Horizon: rapid.IntRange(1, 6).Draw(t, "horizon"), Day: 12, Week: 84}
		n := rapid.IntRange(1, 400).Draw(t, "slots")
		level := float64(rapid.IntRange(0, 50).Draw(t, "level"))
		flat, wild := slices.Repeat([]float64{level}, n), make([]float64, n)
		for i := range wild {
			wild[i] = float64(rapid.IntRange(0, 3).Draw(t, "y"))
		}
		for _, m := range Methods() {
			if got, by := h.Peak(flat, m); math.Abs(got-level) > 0.01 {
				t.Fatalf("%s, by %s: %v of %d slots with %v", m, by, got, n, level)
			}
			got, by := h.Peak(wild, m)
			if again, _ := h.Peak(wild, m); math.IsNaN(got) || math.IsInf(got, 0) || got < 0 || again != got {
				t.Fatalf("%s, by %s: %v, then %v", m, by, got, again)
			}
		}
	})
}

func TestKindOf(t *testing.T) {
	t.Parallel()
	n := schedtest.Node("n1", 2, "T4")
	if got := KindOf(n, nil); got != "2xT4" {
		t.Error(got)
	}
	n.GPUs = append(n.GPUs, cluster.GPU{Type: "A100"})
	parts := []*cluster.Partition{{Name: "a", Nodes: hosts(t, "n[1-2]")}, {Name: "b", Nodes: hosts(t, "n2")}, {Name: "c", Nodes: hosts(t, "n1")}}
	if got := KindOf(n, parts); got != "1xA100+2xT4 in a,c" {
		t.Error(got)
	}
	n.GPUs = nil
	if got := KindOf(n, nil); got != "no GPUs" {
		t.Error(got)
	}
	many := &dispatch.Snapshot{}
	for i := range MaxKinds + 5 {
		many.Nodes = append(many.Nodes, schedtest.Node(cluster.NodeID(fmt.Sprintf("n%03d", i)), 1, fmt.Sprint("T", i)))
	}
	kinds := KindsOf(many, &Rule{Exclude: hosts(t, "n000")})
	seen := map[Kind]int{}
	for _, k := range kinds {
		seen[k]++
	}
	if len(kinds) != MaxKinds+4 || len(seen) != MaxKinds+1 || seen[otherKinds] != 4 {
		t.Errorf("%d nodes of %d kinds, %d of others", len(kinds), len(seen), seen[otherKinds])
	}
}

// TestSpansOf: each attempt held its nodes from when it was placed until it ended, and the live
// one holds them; nodes that are gone are left out.
func TestSpansOf(t *testing.T) {
	t.Parallel()
	j := running(1, "n1", "n2", "gone")
	lost := cluster.Attempt{No: 1, State: cluster.JobNodeFail, Placed: now, Berth: cluster.Berth{Node: "n3"}}
	over := cluster.Attempt{No: 2, State: cluster.JobFailed, Placed: now.Add(time.Minute), Ended: now.Add(time.Hour), Berth: cluster.Berth{Node: "n1"}}
	live := j.Attempts[0]
	live.No, live.Placed = 3, now.Add(2*time.Hour)
	j.Attempts = []cluster.Attempt{lost, over, live}
	want := []Span{
		{"n3", "c", now, now}, {"n1", "a", now.Add(time.Minute), now.Add(time.Hour)},
		{"n1", "a", now.Add(2 * time.Hour), 0}, {"n2", "b", now.Add(2 * time.Hour), 0},
	}
	if d := cmp.Diff(want, SpansOf(j, map[cluster.NodeID]Kind{"n1": "a", "n2": "b", "n3": "c"})); d != "" {
		t.Error(d)
	}
}
