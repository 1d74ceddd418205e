package workload

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster/draws"
)

var _ = draws.Fixed()

// TestBuiltAsDescribed: a fleet has as many cards of each type as its description,
// with their memory and sharing, and the cores and memory of all its machines,
// whether these are pooled or not; ids are sorted and unique.
func TestBuiltAsDescribed(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		f := Fleet{MaxShares: rapid.IntRange(0, 4).Draw(t, "shares"), ReservedMiB: rapid.Int64Range(0, 500).Draw(t, "reserved"), Pool: rapid.Bool().Draw(t, "pool"), Islands: rapid.Bool().Draw(t, "islands")}
		type kind struct {
			gpuType string
			mem     int64
			shares  int
		}
		cards, islands := map[kind]int{}, map[kind]int{}
		cores, memory, machines, widest := int64(0), int64(0), 0, 0
		for range rapid.IntRange(1, 4).Draw(t, "entries") {
			s := NodeSpec{Count: rapid.IntRange(1, 3).Draw(t, "count"), GPUs: rapid.IntRange(0, 3).Draw(t, "GPUs"), GPUType: rapid.SampledFrom([]string{"A", "B", ""}).Draw(t, "type"),
				MemMiB: rapid.SampledFrom([]int64{0, 8000, 16000}).Draw(t, "memory"), CPUMilli: rapid.Int64Range(1, 9).Draw(t, "cores"), HostMemMiB: rapid.Int64Range(1, 9).Draw(t, "host"), MaxShares: rapid.IntRange(0, 2).Draw(t, "own shares")}
			f.Nodes = append(f.Nodes, s)
			k := kind{s.GPUType, s.MemMiB, s.MaxShares}
			if k.gpuType == "" {
				k.gpuType = "gpu"
			}
			if k.mem == 0 {
				k.mem = 16 << 10
			}
			for _, shares := range []int{f.MaxShares, 3} {
				if k.shares == 0 {
					k.shares = shares
				}
			}
			cards[k] += s.Count * s.GPUs
			if s.GPUs > 0 {
				islands[k] += s.Count
			} else {
				delete(cards, kind{}) // none
			}
			if cards[k] == 0 {
				delete(cards, k)
			}
			cores, memory, machines, widest = cores+int64(s.Count)*s.CPUMilli, memory+int64(s.Count)*s.HostMemMiB, machines+s.Count, max(widest, s.GPUs)
		}
		if err := f.Check(); err != nil {
			t.Fatal(err)
		}
		got, held, all := map[kind]int{}, 0, 0
		for i, n := range f.Build() {
			cores, memory, held = cores-n.CPUMilli, memory-n.MemMiB, max(held, len(n.GPUs))
			if want := fmt.Sprintf("n%06d", i); string(n.ID) != want || !n.Schedulable() {
				t.Fatalf("node %d is %s, it takes jobs: %t", i, n.ID, n.Schedulable())
			}
			for k, g := range n.GPUs {
				got[kind{g.Type, g.MemMiB, g.MaxShares}]++
				all++
				if g.Index != k || k > 0 && n.GPUs[k-1].ID >= g.ID || g.SellableMiB > g.MemMiB-f.ReservedMiB || g.SellableMiB <= 0 {
					t.Fatalf("card %d of %s: %+v", k, n.ID, g)
				}
				if f.Islands && f.Pool && k > 0 && g.NUMA != n.GPUs[k-1].NUMA && g.NUMA != n.GPUs[k-1].NUMA+1 {
					t.Fatalf("card %d of %s is in machine %d after %d", k, n.ID, g.NUMA, n.GPUs[k-1].NUMA)
				}
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(cards) || cores != 0 || memory != 0 || all != f.GPUs() {
			t.Fatalf("%v, want %v; %d cores and %d MiB are missing; %d cards, said %d", got, cards, cores, memory, all, f.GPUs())
		}
		if f.Widest() != widest || f.Holds() != held {
			t.Fatalf("widest %d, holds %d; want %d, %d", f.Widest(), f.Holds(), widest, held)
		}
		var types []string
		for k := range cards {
			types = append(types, k.gpuType)
		}
		slices.Sort(types)
		if types = slices.Compact(types); !slices.Equal(types, f.Types()) {
			t.Fatalf("types %v, want %v", f.Types(), types)
		}
	})
}

// TestFleetsThatAreRefused: each field just within and just beyond its bounds.
func TestFleetsThatAreRefused(t *testing.T) {
	t.Parallel()
	good := NodeSpec{Count: 2, GPUs: 4}
	for _, c := range []struct {
		name   string
		change func(*Fleet)
		want   string // in the error, "" for none
	}{
		{"none", func(f *Fleet) { f.Nodes = nil }, "there are none"},
		{"no machine", func(f *Fleet) { f.Nodes[0].Count = 0 }, "nodes[0].count"},
		{"most machines", func(f *Fleet) { f.Nodes[0] = NodeSpec{Count: 100_000} }, ""},
		{"more", func(f *Fleet) { f.Nodes[0] = NodeSpec{Count: 100_001} }, "nodes[0].count"},
		{"more in two entries", func(f *Fleet) { f.Nodes = []NodeSpec{{Count: 60_000}, {Count: 60_000}} }, "120000 in all"},
		{"most cards", func(f *Fleet) { f.Nodes = []NodeSpec{{Count: 244, GPUs: 4096}, {Count: 1, GPUs: 576}} }, ""},
		{"one more", func(f *Fleet) { f.Nodes = []NodeSpec{{Count: 244, GPUs: 4096}, {Count: 1, GPUs: 577}} }, "1000001 GPUs"},
		{"a wide machine", func(f *Fleet) { f.Nodes[0].GPUs = 4097 }, "nodes[0].gpus"},
		{"a memory below 0", func(f *Fleet) { f.Nodes[0].MemMiB = -1 }, "below 0"},
		{"cores below 0", func(f *Fleet) { f.Nodes[0].CPUMilli = -1 }, "below 0"},
		{"host memory below 0", func(f *Fleet) { f.Nodes[0].HostMemMiB = -1 }, "below 0"},
		{"shares of a machine", func(f *Fleet) { f.Nodes[0].MaxShares = 1025 }, "nodes[0].max_shares"},
		{"shares of all", func(f *Fleet) { f.MaxShares = 1025 }, "max_shares: 1025"},
		{"idle above busy", func(f *Fleet) { f.Nodes[0].IdleW = 10; f.Nodes[0].MaxW = 9 }, "idle_w"},
		{"idle as busy", func(f *Fleet) { f.Nodes[0].IdleW = 10; f.Nodes[0].MaxW = 10 }, ""},
	} {
		f := Fleet{Nodes: []NodeSpec{good}}
		c.change(&f)
		err := f.Check()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

// TestPowerIsKnownOfAllOrNone: of every type with cards, or nothing is told.
func TestPowerIsKnownOfAllOrNone(t *testing.T) {
	t.Parallel()
	a, b := NodeSpec{Count: 1, GPUs: 1, GPUType: "A", IdleW: 50, MaxW: 300}, NodeSpec{Count: 1, GPUs: 1, GPUType: "B"}
	bare := NodeSpec{Count: 1}
	if got := (&Fleet{Nodes: []NodeSpec{a, bare}}).Power(); len(got) != 1 || got["A"] != [2]int64{50, 300} {
		t.Errorf("%v", got)
	}
	if got := (&Fleet{Nodes: []NodeSpec{a, b}}).Power(); got != nil {
		t.Errorf("of a type that nobody knows: %v", got)
	}
}

// TestJobsInOrder: by arrival, then by number, whatever order the rows have; j9 comes
// before j10.
func TestJobsInOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := &Workload{}
		n := rapid.IntRange(1, 12).Draw(t, "jobs")
		for i := range n {
			w.Jobs = append(w.Jobs, Job{ID: fmt.Sprint("j", i+5), Submit: time.Duration(rapid.IntRange(0, 2).Draw(t, "submit")) * time.Hour, Duration: time.Hour, Priority: i})
		}
		for i := n - 1; i > 0; i-- {
			k := rapid.IntRange(0, i).Draw(t, "shuffle")
			w.Jobs[i], w.Jobs[k] = w.Jobs[k], w.Jobs[i]
		}
		w.Sort()
		for i := 1; i < n; i++ {
			a, b := w.Jobs[i-1], w.Jobs[i]
			if a.Submit > b.Submit || a.Submit == b.Submit && a.Priority > b.Priority {
				t.Fatalf("%s at %s before %s at %s", a.ID, a.Submit, b.ID, b.Submit)
			}
		}
	})
}

// TestChanceIsOfTheJob: its random numbers follow from seed, id and purpose alone.
func TestChanceIsOfTheJob(t *testing.T) {
	t.Parallel()
	seen := map[uint64]string{}
	for _, seed := range []uint64{1, 2} {
		for _, id := range []string{"a", "ab", ""} {
			for _, purpose := range []string{"b", "", "ab"} {
				v, name := Chance(seed, id, purpose).Uint64(), fmt.Sprint(seed, " ", id, " ", purpose)
				if again := Chance(seed, id, purpose).Uint64(); again != v {
					t.Errorf("%s: %d, then %d", name, v, again)
				}
				if seen[v] != "" {
					t.Errorf("%s and %s have the same numbers", name, seen[v])
				}
				seen[v] = name
			}
		}
	}
}
