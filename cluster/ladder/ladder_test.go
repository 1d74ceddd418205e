package ladder

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/berth-scheduler/berth/cluster"
)

// sized is a node of two GPUs of a type.
func sized(id cluster.NodeID, gpuType string, mib int64) *cluster.Node {
	n := &cluster.Node{ID: id, State: cluster.NodeReady, CPUMilli: 64_000, MemMiB: 1 << 19}
	for _, g := range []string{"-g0", "-g1"} {
		n.GPUs = append(n.GPUs, cluster.GPU{ID: cluster.GPUID(string(id) + g), Type: gpuType, MemMiB: mib, SellableMiB: mib})
	}
	return n
}

// oom is an attempt that ran out of memory on one GPU of node a1.
func oom(no uint32, share cluster.Share, peak int64) cluster.Attempt {
	return cluster.Attempt{
		No: no, State: cluster.JobOutOfMemory, Usage: cluster.Usage{GPUOOM: true, GPUMemPeakMiB: peak}, Estimate: cluster.Estimate{GPUType: "estimated"},
		Berth: cluster.Berth{Node: "a1", GPUs: []cluster.GPUShare{{GPU: "a1-g0", Share: share}}},
	}
}

func TestLadder(t *testing.T) {
	t.Parallel()
	part := func(mib int64) cluster.Share { return cluster.Share{MemMiB: mib, Milli: 300} }
	whole := func(mib int64) cluster.Share {
		return cluster.Share{MemMiB: mib, Milli: cluster.WholeGPU, Exclusive: true}
	}
	a100 := sized("a1", "A100", 40_000)
	h100, h200 := sized("h1", "H100", 80_000), sized("h2", "H200", 140_000)
	onlyA, err := cluster.ParseHostList("a[1-9]")
	if err != nil {
		t.Fatal(err)
	}
	beside := func(a cluster.Attempt) cluster.Attempt {
		a.Neighbours = []cluster.JobID{7}
		return a
	}
	for _, c := range []struct {
		name     string
		spec     cluster.Spec
		ladder   Ladder
		nodes    []*cluster.Node
		attempts []cluster.Attempt
		want     Rung   // without Why
		why      string // a part of it
	}{
		{"it was the host's memory, and nobody knows how much", cluster.Spec{}, Ladder{}, nil, []cluster.Attempt{{No: 1, State: cluster.JobOutOfMemory, Berth: cluster.Berth{GPUs: []cluster.GPUShare{{}}}}}, Rung{}, ""},
		{"it had no GPU", cluster.Spec{}, Ladder{}, nil, []cluster.Attempt{{No: 1, Usage: cluster.Usage{GPUOOM: true}}}, Rung{}, ""},
		{"first: half as much again", cluster.Spec{}, Ladder{}, nil, []cluster.Attempt{oom(1, part(8000), 7900)}, Rung{Again: true, MinGPUMemMiB: 12_000}, ""},
		{"first: above its peak", cluster.Spec{}, Ladder{}, nil, []cluster.Attempt{oom(1, part(8000), 20_000)}, Rung{Again: true, MinGPUMemMiB: 22_000}, ""},
		{"first: not above the largest", cluster.Spec{}, Ladder{}, nil, []cluster.Attempt{oom(1, part(39_000), 1<<50)}, Rung{Again: true, MinGPUMemMiB: 40_000}, ""},
		{"the largest of its type", cluster.Spec{GPUType: "A100"}, Ladder{}, []*cluster.Node{h100}, []cluster.Attempt{oom(1, part(39_000), 0)}, Rung{Again: true, MinGPUMemMiB: 40_000}, ""},
		{"the largest of its node", cluster.Spec{Node: "a1"}, Ladder{}, []*cluster.Node{h100}, []cluster.Attempt{oom(1, part(39_000), 0)}, Rung{Again: true, MinGPUMemMiB: 40_000}, ""},
		{"none of its type is left", cluster.Spec{GPUType: "T4"}, Ladder{}, nil, []cluster.Attempt{oom(1, part(39_000), 0)}, Rung{Again: true, MinGPUMemMiB: 58_500}, ""},
		{"second: a whole GPU", cluster.Spec{}, Ladder{}, nil, []cluster.Attempt{oom(1, part(8000), 0), oom(2, part(12_000), 0)}, Rung{Again: true, Whole: true, MinGPUMemMiB: 18_000}, ""},
		{"third on a share", cluster.Spec{}, Ladder{}, nil, []cluster.Attempt{oom(1, part(8000), 0), oom(2, part(12_000), 0), oom(3, part(18_000), 0)}, Rung{}, ""},

		{"a declared cap", cluster.Spec{GPUMemMiB: 8000}, Ladder{}, nil, []cluster.Attempt{oom(1, part(8000), 8000)}, Rung{}, ""},
		{"a declared cap beside others", cluster.Spec{GPUMemMiB: 8000}, Ladder{}, nil, []cluster.Attempt{beside(oom(1, part(8000), 8000))}, Rung{Again: true, MinGPUMemMiB: 12_000}, ""},
		{"above a declared cap beside others", cluster.Spec{GPUMemMiB: 8000}, Ladder{}, nil, []cluster.Attempt{beside(oom(1, part(8000), 8001))}, Rung{}, ""},
		{"above a declared cap beside others, once", cluster.Spec{GPUMemMiB: 8000}, Ladder{TrustPeak: true}, nil, []cluster.Attempt{beside(oom(1, part(8000), 8001))}, Rung{Again: true, MinGPUMemMiB: 12_000}, ""},
		{"a share above what it declares", cluster.Spec{GPUMemMiB: 8000}, Ladder{}, nil, []cluster.Attempt{oom(2, part(12_000), 12_000)}, Rung{Again: true, MinGPUMemMiB: 18_000}, ""},

		{"whole, and a larger one is there", cluster.Spec{}, Ladder{}, []*cluster.Node{h100}, []cluster.Attempt{oom(1, whole(40_000), 40_000)}, Rung{Again: true, Whole: true, MinGPUMemMiB: 44_000}, ""},
		{"whole, and a larger one is there, once", cluster.Spec{}, Ladder{EndAtWhole: true}, []*cluster.Node{h100}, []cluster.Attempt{oom(1, whole(40_000), 40_000)}, Rung{}, ""},
		{"whole, and the larger ends at its size", cluster.Spec{}, Ladder{}, []*cluster.Node{h100}, []cluster.Attempt{oom(1, whole(40_000), 79_000)}, Rung{Again: true, Whole: true, MinGPUMemMiB: 80_000}, ""},
		{"whole, and the next is a little larger", cluster.Spec{}, Ladder{}, []*cluster.Node{h100}, []cluster.Attempt{oom(1, whole(40_000), 0)}, Rung{Again: true, Whole: true, MinGPUMemMiB: 40_001}, ""},
		{"whole, and there is no larger", cluster.Spec{}, Ladder{}, nil, []cluster.Attempt{oom(1, whole(40_000), 40_000)}, Rung{}, "all 40000 MiB of a A100, and no larger"},
		{"whole, of a node that left", cluster.Spec{}, Ladder{}, nil, []cluster.Attempt{{No: 1, Usage: cluster.Usage{GPUOOM: true}, Estimate: cluster.Estimate{GPUType: "estimated"}, Berth: cluster.Berth{Node: "gone", GPUs: []cluster.GPUShare{{GPU: "x", Share: whole(50_000)}}}}}, Rung{}, "all 50000 MiB of a estimated, and no larger"},
		{"whole, and its type has no larger", cluster.Spec{GPUType: "A100"}, Ladder{}, []*cluster.Node{h100}, []cluster.Attempt{oom(1, whole(40_000), 0)}, Rung{}, "no larger GPU"},
		{"whole, and the larger is not in its partition", cluster.Spec{}, Ladder{Partition: &cluster.Partition{Nodes: onlyA}}, []*cluster.Node{h100}, []cluster.Attempt{oom(1, whole(40_000), 0)}, Rung{}, "no larger GPU"},
		{"whole, and its partition has other types", cluster.Spec{}, Ladder{Partition: &cluster.Partition{Nodes: onlyA, GPUTypes: []string{"H100"}}}, []*cluster.Node{h100}, []cluster.Attempt{oom(1, whole(40_000), 0)}, Rung{}, "no larger GPU"},
		{"whole, and it declared less", cluster.Spec{GPUMemMiB: 40_000}, Ladder{}, []*cluster.Node{h100}, []cluster.Attempt{oom(1, whole(40_000), 0)}, Rung{}, "it declares 40000 MiB"},
		{"whole, on the same again", cluster.Spec{}, Ladder{}, []*cluster.Node{h100, h200}, []cluster.Attempt{oom(1, whole(40_000), 0), oom(2, whole(40_000), 0)}, Rung{}, "no less before; the largest that could ever run it is H200 with 140000 MiB"},
		{"whole, on larger and larger", cluster.Spec{}, Ladder{}, []*cluster.Node{h100, h200}, []cluster.Attempt{oom(1, part(8000), 0), oom(2, part(12_000), 0), oom(3, whole(40_000), 0), oom(4, whole(80_000), 0)}, Rung{Again: true, Whole: true, MinGPUMemMiB: 80_001}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			j := &cluster.Job{Spec: &c.spec, Attempts: c.attempts}
			for range 2 { // in either order of nodes
				c.ladder.Nodes = slices.Values(append([]*cluster.Node{a100}, c.nodes...))
				got := c.ladder.Next(j, j.Last())
				why := got.Why
				if got.Why = ""; got != c.want || c.why == "" && why != "" || !strings.Contains(why, c.why) {
					t.Fatalf("%+v, %q, want %+v, %q", got, why, c.want, c.why)
				}
				slices.Reverse(c.nodes)
			}
		})
	}
}

// TestLadderOfCutShares: a job that ran out of what was left to it gets what it had been
// granted, and no rung of the ladder is used up.
func TestLadderOfCutShares(t *testing.T) {
	l := Ladder{Nodes: func(yield func(*cluster.Node) bool) {
		yield(&cluster.Node{ID: "n", GPUs: []cluster.GPU{{ID: "g", Type: "A", SellableMiB: 80000}}})
	}}
	cut := func(was cluster.Share, peak int64) cluster.Attempt {
		return cluster.Attempt{State: cluster.JobOutOfMemory, Usage: cluster.Usage{GPUOOM: true, GPUMemPeakMiB: peak}, Berth: cluster.Berth{Node: "n", GPUs: []cluster.GPUShare{{GPU: "g", Share: cluster.Share{MemMiB: 2000, Milli: 100}}}},
			Resize: &cluster.ResizeMark{Was: []cluster.GPUShare{{GPU: "g", Share: was}}}}
	}
	again := func(mib int) string {
		return fmt.Sprintf("its share had been cut to what it used; it runs again with the %d MiB that it was granted", mib)
	}
	share, whole := cluster.Share{MemMiB: 9000, Milli: 100}, cluster.Share{MemMiB: 80000, Milli: cluster.WholeGPU, Exclusive: true}
	for _, c := range []struct {
		name     string
		declared int64
		before   []cluster.Attempt
		last     cluster.Attempt
		want     Rung
	}{
		{"below its grant", 0, nil, cut(share, 2100), Rung{Again: true, MinGPUMemMiB: 9000, Why: again(9000)}},
		{"declared", 9000, nil, cut(share, 2100), Rung{Again: true, MinGPUMemMiB: 9000, Why: again(9000)}},
		{"a whole GPU", 0, nil, cut(whole, 2100), Rung{Again: true, Whole: true, MinGPUMemMiB: 80000, Why: again(80000)}},
		{"above its grant", 0, nil, cut(share, 9100), Rung{Again: true, MinGPUMemMiB: 13500}},
		{"above what it declared", 9000, nil, cut(share, 9100), Rung{}},
		{"the first true one counts as the first", 0, []cluster.Attempt{cut(share, 2100)}, cut(share, 9100), Rung{Again: true, MinGPUMemMiB: 13500}},
	} {
		j := &cluster.Job{Spec: &cluster.Spec{GPUs: 1, GPUMemMiB: c.declared}, Attempts: append(slices.Clone(c.before), c.last)}
		if got := l.Next(j, j.Last()); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}
