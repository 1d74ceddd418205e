package fragment

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster/draws"
)

var _ = draws.Fixed()

// TestGrowthAsDefined: by how much fragmentation grows is the difference of the
// measure before and after (Weng et al., ATC 2023, equations 1 to 4), each worked out
// from nothing: for each shape all that is idle if the node cannot run it, else what
// is idle on the cards that cannot.
func TestGrowthAsDefined(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var mix Mix
		var shapes []Shape
		unable := int64(rapid.IntRange(0, 3).Draw(t, "unable"))
		mix.AddUnable(unable)
		for range rapid.IntRange(1, 6).Draw(t, "shapes") {
			s := Shape{
				GPUs: rapid.IntRange(1, 3).Draw(t, "gpus"), Alone: rapid.Bool().Draw(t, "alone"), Mem: rapid.Int64Range(1, 20).Draw(t, "mem") * 50,
				Milli: rapid.Int64Range(1, 20).Draw(t, "milli") * 50, CPUMilli: rapid.Int64Range(0, 8).Draw(t, "cores") * 1000, HostMiB: rapid.Int64Range(0, 8).Draw(t, "host") << 12,
			}
			if s.Alone {
				s.Mem, s.Milli = 1000, 1000
			}
			shapes = append(shapes, s)
			mix.Add(s, 1)
		}
		typical := mix.Typical()
		if n := int64(len(shapes)) + unable; typical.Total() != n {
			t.Fatalf("stands for %d jobs, there are %d", typical.Total(), n)
		}
		var cards []CardLeft
		for range rapid.IntRange(1, 4).Draw(t, "cards") {
			c := CardLeft{Mem: rapid.Int64Range(0, 20).Draw(t, "free mem") * 50, Milli: rapid.Int64Range(0, 20).Draw(t, "free milli") * 50, Takes: rapid.Bool().Draw(t, "takes")}
			if rapid.Bool().Draw(t, "empty") {
				c = CardLeft{Mem: 1000, Milli: 1000, Takes: true, Empty: true}
			}
			cards = append(cards, c)
		}
		cpu, host := rapid.Int64Range(0, 10).Draw(t, "free cores")*1000, rapid.Int64Range(0, 10).Draw(t, "free host")<<12
		takes := rapid.Int64Range(0, 3).Draw(t, "takes cores") * 1000
		i := rapid.IntRange(0, len(cards)-1).Draw(t, "on")
		was := cards[i]
		is := was.After(&Shape{GPUs: 1, Mem: 200, Milli: 300}, false)
		var m Measure
		typical.Measure(&m, cpu, host, cards)
		before := fragmentsOf(shapes, unable, cpu, host, cards)
		after := slices.Clone(cards)
		after[i] = CardLeft{Mem: max(0, was.Mem-200), Milli: max(0, was.Milli-300), Takes: was.Takes}
		want := (fragmentsOf(shapes, unable, cpu-takes, host, after) - before) / typical.Total()
		if got := typical.Growth(&m, cpu-takes, host, []CardLeft{was}, []CardLeft{is}); got != want {
			t.Fatalf("grows by %d, want %d", got, want)
		}
	})
}

func fragmentsOf(shapes []Shape, unable, cpu, host int64, cards []CardLeft) (sum int64) {
	idle := func(c CardLeft) int64 { return max(c.Mem, c.Milli) }
	all := int64(0)
	for _, c := range cards {
		all += idle(c)
	}
	sum = unable * all
	for _, s := range shapes {
		n, usable := 0, int64(0)
		for _, c := range cards {
			if c.Takes && (s.Alone && c.Empty || !s.Alone && c.Mem >= s.Mem && c.Milli >= s.Milli) {
				n, usable = n+1, usable+idle(c)
			}
		}
		if n < s.GPUs || cpu < s.CPUMilli || host < s.HostMiB {
			usable = 0
		}
		sum += all - usable
	}
	return sum
}

// TestTypicalCoversNineteenInTwenty: of the popular shapes, the most popular first,
// as many as cover 95 % of the jobs, and at most 32.
func TestTypicalCoversNineteenInTwenty(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		weights []int64
		want    []int64
	}{
		{"all that there are", []int64{3, 2, 1}, []int64{3, 2, 1}},
		{"the popular first", []int64{1, 2, 3}, []int64{3, 2, 1}},
		{"19 of 20 are enough", []int64{19, 1}, []int64{19}},
		{"94 of 100 are not", []int64{94, 6}, []int64{94, 6}},
		{"95 of 100 are", []int64{95, 5}, []int64{95}},
		{"what was taken back is none", []int64{5, 0, 1}, []int64{5, 1}},
	} {
		var mix Mix
		for i, w := range c.weights {
			mix.Add(Shape{GPUs: 1, Mem: int64(i+1) * 100, Milli: 100}, w)
		}
		typical := mix.Typical()
		var got []int64
		for k := range typical.Shapes() {
			got = append(got, typical.Weight(k))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: weights %v, want %v", c.name, got, c.want)
		}
	}
	var many Mix
	for i := range 50 {
		many.Add(Shape{GPUs: 1, Mem: 50 + int64(i%20)*50, Milli: 50 + int64(i/20)*50, CPUMilli: int64(i) * 1000}, 1)
	}
	if typical := many.Typical(); len(typical.Shapes()) != 32 {
		t.Errorf("%d shapes of 50, want 32", len(typical.Shapes()))
	}
	var near Mix // within a step of 50 thousandths they are one, with the mean
	near.Add(Shape{GPUs: 1, Mem: 101, Milli: 50}, 1)
	near.Add(Shape{GPUs: 1, Mem: 149, Milli: 50}, 1)
	near.Add(Shape{GPUs: 1, Mem: 151, Milli: 50}, 1)
	if typical := near.Typical(); len(typical.Shapes()) != 2 || typical.Shapes()[0].Mem != 125 || typical.Shapes()[1].Mem != 151 {
		t.Errorf("shapes %+v, want 125 twice and 151", typical.Shapes())
	}
}
