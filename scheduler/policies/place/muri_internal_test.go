package place

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestPeriodAsDefined: the iteration of a group that takes turns on three resources
// lasts Σ_j max_i of the stages that meet (Zhao et al., SIGCOMM 2022, section 4.1),
// with the best of all offsets, no two of which are the same.
func TestPeriodAsDefined(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var group []stages
		for range rapid.IntRange(1, 5).Draw(t, "jobs") {
			gpu := rapid.Int64Range(0, 1000).Draw(t, "gpu")
			cpu := rapid.Int64Range(0, 1000-gpu).Draw(t, "cpu")
			group = append(group, stages{gpu, cpu, 1000 - gpu - cpu})
		}
		want := int64(len(group)) * 1000 // one after the other
		if len(group) <= 3 {
			var offsets [3]int
			var try func(i int)
			try = func(i int) {
				if i < len(group) {
					for offsets[i] = range 3 {
						if !slices.Contains(offsets[:i], offsets[i]) {
							try(i + 1)
						}
					}
					return
				}
				sum := int64(0)
				for slot := range 3 {
					longest := int64(0)
					for k := range group {
						longest = max(longest, group[k][(slot+offsets[k])%3])
					}
					sum += longest
				}
				want = min(want, sum)
			}
			if len(group) > 1 {
				try(0)
			}
		}
		if got := period(group); got != want {
			t.Fatalf("%v takes %d, want %d", group, got, want)
		}
		// A group is worth it if a tenth more gets done than one after the other.
		if got, want := gains(group), len(group) < 2 || 11*period(group) <= 10*1000*int64(len(group)); got != want {
			t.Fatalf("%v is made: %t, want %t", group, got, want)
		}
	})
}

// TestPeriod works the group's iteration of Muri out by hand: with rows a, b
// and offset 1 it is Σ max(a[j], b[j+1]).
func TestPeriod(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		group []stages
		want  int64
		gains bool
	}{
		{"alone", []stages{{700, 200, 100}}, 1000, true},
		{"halves that fit into one another", []stages{{500, 500, 0}, {500, 500, 0}}, 1500, true},           // 500+500+500
		{"both want the same", []stages{{900, 0, 100}, {900, 0, 100}}, 1900, false},                        // 900+100+900
		{"complements", []stages{{600, 0, 400}, {400, 600, 0}}, 1000, true},                                // 600+0+400 at offset 1
		{"three that take turns", []stages{{340, 330, 330}, {340, 330, 330}, {340, 330, 330}}, 1020, true}, // 340+340+340
		{"four take turns", []stages{{1, 1, 998}, {1, 1, 998}, {1, 1, 998}, {1, 1, 998}}, 4000, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if got := period(c.group); got != c.want || gains(c.group) != c.gains {
				t.Errorf("period %d, gains %t, want %d, %t", got, gains(c.group), c.want, c.gains)
			}
		})
	}
}

// TestStagesOfByHand: what of an iteration is on the GPU, on cores, and elsewhere.
func TestStagesOfByHand(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		milli, cpu, perCard int64
		want                stages
	}{
		{450, 1000, 32_000, stages{450, 31, 519}}, {300, 22_000, 32_000, stages{300, 687, 13}}, {900, 32_000, 32_000, stages{900, 100, 0}},
		{1200, 0, 32_000, stages{1000, 0, 0}}, {-5, 0, 32_000, stages{0, 0, 1000}}, {500, 1000, 0, stages{500, 500, 0}},
	} {
		if got := stagesOf(c.milli, c.cpu, c.perCard); got != c.want {
			t.Errorf("stages of %d with %d of %d cores: %v, want %v", c.milli, c.cpu, c.perCard, got, c.want)
		}
	}
	for jobs, want := range map[int]int64{0: 1000, 1: 1000, 2: 1310, 3: 1478, 4: 1350} {
		if got := Contention(jobs); got != want {
			t.Errorf("contention of %d is %d, want %d", jobs, got, want)
		}
	}
}

// TestThreeInterleaved: while one is on the network another computes; each of three
// that do nothing else has its own two of the four slots.
func TestThreeInterleaved(t *testing.T) {
	t.Parallel()
	x := Stages{time.Second, 0, time.Second}
	if got := Period([]Stages{x, x, x}); got != 4*time.Second {
		t.Errorf("three take %s, want 4 s", got)
	}
	x = Stages{time.Second, 0, 0}
	if got := Period([]Stages{x, x, x}); got != 3*time.Second {
		t.Errorf("three that only compute take %s, want 3 s", got)
	}
}

// TestLucidClasses: tiny, medium and jumbo, to the thousandth.
func TestLucidClasses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		milli, mem int64
		want       int
	}{{0, 0, 0}, {249, 499, 0}, {250, 499, 1}, {659, 499, 1}, {660, 0, 2}, {0, 500, 2}, {249, 500, 2}, {1000, 1000, 2}} {
		if got := lucidClass(c.milli, c.mem, 1000); got != c.want {
			t.Errorf("%d of compute and %d of memory is %d, want %d", c.milli, c.mem, got, c.want)
		}
	}
}
