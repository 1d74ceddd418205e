package fragment

import "testing"

// TestGrowth works the measure of Weng et al. (ATC 2023), section 4.2, out by
// hand: a node with two cards of which 400 and 700 thousandths are idle, and
// what is lost of it to the one typical job.
func TestGrowth(t *testing.T) {
	t.Parallel()
	cards := []CardLeft{{400, 400, true, false}, {700, 700, true, false}}
	for _, c := range []struct {
		name string
		s    Shape
		want int64
	}{
		{"half a card: the 400 are lost", Shape{GPUs: 1, Mem: 500, Milli: 500}, 400},
		{"a third: nothing is lost", Shape{GPUs: 1, Mem: 350, Milli: 350}, 0},
		{"a whole card: all is lost", Shape{GPUs: 1, Alone: true, Mem: 1000, Milli: 1000}, 1100},
		{"two halves: one card is not enough", Shape{GPUs: 2, Mem: 500, Milli: 500}, 1100},
		{"two thirds of ten: both are", Shape{GPUs: 2, Mem: 350, Milli: 350}, 0},
		{"too many cores", Shape{GPUs: 1, Mem: 350, Milli: 350, CPUMilli: 5000}, 1100},
		{"too much memory", Shape{GPUs: 1, Mem: 350, Milli: 350, HostMiB: 20 << 10}, 1100},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var mix Mix
			mix.Add(c.s, 3)
			typical := mix.Typical()
			var m Measure
			typical.Measure(&m, 4000, 16<<10, cards)
			if got := m.frag / typical.Total(); got != c.want {
				t.Errorf("fragmentation %d, want %d", got, c.want)
			}
			// A job that takes all of the second card leaves the first.
			full := CardLeft{Empty: false}
			after := []CardLeft{cards[0], full}
			var m2 Measure
			typical.Measure(&m2, 3000, 16<<10, after)
			if got, want := typical.Growth(&m, 3000, 16<<10, cards[1:], []CardLeft{full}), (m2.frag-m.frag)/typical.Total(); got != want {
				t.Errorf("it grows by %d, measured anew by %d", got, want)
			}
		})
	}
}

func TestFragmentationScore(t *testing.T) {
	t.Parallel()
	// int(100/(1+e^Δ)): 46.26 at 0.15, 26.89 at 1, 73.11 at -1.
	for growth, want := range map[int64]int8{0: 50, 150: 46, 1000: 26, -1000: 73, 100_000: 0, -100_000: 100} {
		if got := Score(growth); got != want {
			t.Errorf("the score of %d is %d, want %d", growth, got, want)
		}
	}
}

func TestTypical(t *testing.T) {
	t.Parallel()
	var m Mix
	for i, n := range []int64{90, 5, 4, 1} {
		m.Add(Shape{GPUs: 1, Milli: int64(100 * (i + 1))}, n)
	}
	if got := m.Typical(); len(got.shapes) != 2 || got.Total() != 95 || got.shapes[0].Milli != 100 || got.shapes[1].Milli != 200 {
		t.Errorf("kept %v, want the first two shapes, 95 jobs", got)
	}
	var many Mix
	for i := range int64(100) {
		many.Add(Shape{GPUs: 1, Milli: 1, CPUMilli: 1000 * i}, 1)
	}
	if got := many.Typical(); len(got.shapes) != maxShapes || got.shapes[31].CPUMilli != 31_000 {
		t.Errorf("kept %d shapes, want the first %d", len(got.shapes), maxShapes)
	}
	// What is nearly alike is one shape, with the mean of both.
	var near Mix
	near.Add(Shape{GPUs: 1, Mem: 460, Milli: 460, CPUMilli: 11_300, HostMiB: 9000}, 1)
	near.Add(Shape{GPUs: 1, Mem: 490, Milli: 490, CPUMilli: 11_900, HostMiB: 9000}, 2)
	want := Shape{GPUs: 1, Mem: 480, Milli: 480, CPUMilli: 11_700, HostMiB: 9000}
	if got := near.Typical(); len(got.shapes) != 1 || got.shapes[0] != want {
		t.Errorf("got %+v, want one shape %+v", got.shapes, want)
	}
	// What is taken back was never there, and who cannot run there counts.
	near.Add(Shape{GPUs: 1, Milli: 1000}, 1)
	near.Add(Shape{GPUs: 1, Milli: 1000}, -1)
	near.AddUnable(3)
	if got := near.Typical(); got.Total() != 6 || len(got.shapes) != 1 {
		t.Errorf("total %d of %+v, want 6 and one shape", got.Total(), got.shapes)
	}
}
