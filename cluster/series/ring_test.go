package series

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster/draws"
)

var _ = draws.Fixed()

// naive is a ring that keeps every reading.
type naive struct {
	step  int64
	steps int64
	at    int64
	all   map[int64][]Reading
}

func (n *naive) add(now int64, v Reading) {
	at := now / n.step * n.step
	if at != n.at {
		for old := range n.all {
			if old != at && (old-at)%(n.step*n.steps) == 0 {
				delete(n.all, old)
			}
		}
		if was, ok := n.all[at]; ok { // it goes on, with its mean as one reading
			m := n.sample(at, was)
			n.all[at] = []Reading{{UsedMiB: m.UsedMiB, UtilMilli: int64(m.UtilMilli), PowerW: int64(m.PowerW)}}
		}
	}
	n.at = at
	n.all[at] = append(n.all[at], v)
}

func (n *naive) sample(at int64, all []Reading) Sample {
	m := Sample{At: at, UtilMilli: -1}
	var utils, told, watts, powered int64
	for _, v := range all {
		m.UsedMiB = max(m.UsedMiB, v.UsedMiB)
		if v.UtilMilli >= 0 {
			utils, told = utils+min(1000, v.UtilMilli), told+1
		}
		if v.PowerW > 0 {
			watts, powered = watts+v.PowerW, powered+1
		}
	}
	if told > 0 {
		m.UtilMilli = int32(utils / told)
	}
	if powered > 0 {
		m.PowerW = uint32(watts / powered)
	}
	return m
}

func (n *naive) of(from, to int64) []Sample {
	var out []Sample
	for _, at := range slices.Sorted(maps.Keys(n.all)) {
		if at >= from/n.step*n.step && at <= to && at > to/n.step*n.step-n.step*n.steps {
			out = append(out, n.sample(at, n.all[at]))
		}
	}
	return out
}

// TestRingIsTheNaiveOne with clocks that stand, go on, skip whole rings and go back, and
// with what is saved and restored in between.
func TestRingIsTheNaiveOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := &naive{step: rapid.SampledFrom([]int64{1, 10, 300}).Draw(t, "step"), steps: rapid.Int64Range(1, 12).Draw(t, "steps"), all: map[int64][]Reading{}}
		length := time.Duration(n.step) * time.Second
		r, now := NewRing(length, int(n.steps)), int64(1_000_000_000)
		for range rapid.IntRange(0, 60).Draw(t, "acts") {
			now += rapid.OneOf(rapid.Int64Range(0, 2*n.step), rapid.Int64Range(-3*n.step, 0), rapid.Int64Range(0, 3*n.step*n.steps)).Draw(t, "later")
			v := Reading{UsedMiB: rapid.Int64Range(0, 1<<20).Draw(t, "used"), UtilMilli: rapid.Int64Range(-1, 1100).Draw(t, "util"), PowerW: rapid.Int64Range(0, 700).Draw(t, "watts")}
			before, going := r.Going()
			ended, ok := r.Add(time.Unix(now, 0), v)
			if want := going && before.At != now/n.step*n.step; ok != want || ok && ended != before {
				t.Fatalf("ended: %v, %v, want %v, %v", ended, ok, before, want)
			}
			n.add(now, v)
			if rapid.IntRange(0, 9).Draw(t, "restart") == 0 {
				again := NewRing(length, int(n.steps))
				for _, k := range r.all {
					if m := Decode(Encode(k.sample())); k.at != 0 && !again.Put(m) {
						t.Fatalf("%v is not restored", m)
					}
				}
				r, n.at = again, 0
			}
			from := now - rapid.Int64Range(-n.step, 2*n.step*n.steps).Draw(t, "from")
			to := from + rapid.Int64Range(-n.step, 3*n.step*n.steps).Draw(t, "to")
			if d := cmp.Diff(n.of(from, to), r.Of(time.Unix(from, 0), time.Unix(to, 0))); d != "" {
				t.Fatal(d)
			}
		}
	})
}

// TestPutRefuses what no ring of that step holds.
func TestPutRefuses(t *testing.T) {
	r := NewRing(CoarseStep, CoarseSteps)
	good := Sample{At: 1_000_000_200, UsedMiB: 5, UtilMilli: 1000, PowerW: 300}
	if !r.Put(good) {
		t.Fatal("a good one is refused")
	}
	for _, change := range []func(*Sample){
		func(m *Sample) { m.At = 0 }, func(m *Sample) { m.At = -300 }, func(m *Sample) { m.At++ }, func(m *Sample) { m.At = 1 << 32 * 300 },
		func(m *Sample) { m.UsedMiB = -1 }, func(m *Sample) { m.UsedMiB = 1 << 31 },
		func(m *Sample) { m.UtilMilli = 1001 }, func(m *Sample) { m.UtilMilli = -2 }, func(m *Sample) { m.PowerW = 1 << 16 },
	} {
		m := good
		if change(&m); r.Put(m) {
			t.Errorf("%v is taken", m)
		}
	}
	r.Put(Decode(slices.Repeat([]byte{0xff}, Size)))
	if got := r.Of(time.Unix(0, 0), time.Unix(1_000_000_300, 0)); len(got) != 1 || got[0] != good {
		t.Errorf("%v", got)
	}
}

func TestMerge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string, mib int64) (out []Sample) {
			for _, at := range rapid.SliceOfDistinct(rapid.Int64Range(1, 30), rapid.ID).Draw(t, name) {
				out = append(out, Sample{At: at, UsedMiB: mib})
			}
			slices.SortFunc(out, func(a, b Sample) int { return int(a.At - b.At) })
			return out
		}
		a, b, want := draw("a", 1), draw("b", 2), map[int64]int64{}
		for _, m := range slices.Concat(a, b) {
			want[m.At] = m.UsedMiB
		}
		got, before := Merge(a, b), int64(0)
		for _, m := range got {
			if m.At <= before || want[m.At] != m.UsedMiB {
				t.Fatalf("%v of %v and %v", got, a, b)
			}
			before = m.At
		}
		if len(got) != len(want) {
			t.Fatalf("%d of %d", len(got), len(want))
		}
	})
}
