package cluster

import (
	"slices"
	"strings"
	"testing"
)

// sized is a node of two GPUs of a type.
func sized(id NodeID, gpuType string, mib int64) *Node {
	n := &Node{ID: id, State: NodeReady, CPUMilli: 64_000, MemMiB: 1 << 19}
	for _, g := range []string{"-g0", "-g1"} {
		n.GPUs = append(n.GPUs, GPU{ID: GPUID(string(id) + g), Type: gpuType, MemMiB: mib, SellableMiB: mib})
	}
	return n
}

// oom is an attempt that ran out of memory on one GPU of node a1.
func oom(no uint32, share Share, peak int64) Attempt {
	return Attempt{
		No: no, State: JobOutOfMemory, Usage: Usage{GPUOOM: true, GPUMemPeakMiB: peak}, Estimate: Estimate{GPUType: "estimated"},
		Berth: Berth{Node: "a1", GPUs: []GPUShare{{GPU: "a1-g0", Share: share}}},
	}
}

func TestLadder(t *testing.T) {
	t.Parallel()
	part := func(mib int64) Share { return Share{MemMiB: mib, Milli: 300} }
	whole := func(mib int64) Share { return Share{MemMiB: mib, Milli: WholeGPU, Exclusive: true} }
	a100 := sized("a1", "A100", 40_000)
	h100, h200 := sized("h1", "H100", 80_000), sized("h2", "H200", 140_000)
	onlyA, err := ParseHostList("a[1-9]")
	if err != nil {
		t.Fatal(err)
	}
	beside := func(a Attempt) Attempt {
		a.Neighbours = []JobID{7}
		return a
	}
	for _, c := range []struct {
		name     string
		spec     Spec
		ladder   Ladder
		nodes    []*Node
		attempts []Attempt
		want     Rung   // without Why
		why      string // a part of it
	}{
		{"it was the host's memory, and nobody knows how much", Spec{}, Ladder{}, nil, []Attempt{{No: 1, State: JobOutOfMemory, Berth: Berth{GPUs: []GPUShare{{}}}}}, Rung{}, ""},
		{"it had no GPU", Spec{}, Ladder{}, nil, []Attempt{{No: 1, Usage: Usage{GPUOOM: true}}}, Rung{}, ""},
		{"first: half as much again", Spec{}, Ladder{}, nil, []Attempt{oom(1, part(8000), 7900)}, Rung{Again: true, MinGPUMemMiB: 12_000}, ""},
		{"first: above its peak", Spec{}, Ladder{}, nil, []Attempt{oom(1, part(8000), 20_000)}, Rung{Again: true, MinGPUMemMiB: 22_000}, ""},
		{"first: not above the largest", Spec{}, Ladder{}, nil, []Attempt{oom(1, part(39_000), 1<<50)}, Rung{Again: true, MinGPUMemMiB: 40_000}, ""},
		{"the largest of its type", Spec{GPUType: "A100"}, Ladder{}, []*Node{h100}, []Attempt{oom(1, part(39_000), 0)}, Rung{Again: true, MinGPUMemMiB: 40_000}, ""},
		{"the largest of its node", Spec{Node: "a1"}, Ladder{}, []*Node{h100}, []Attempt{oom(1, part(39_000), 0)}, Rung{Again: true, MinGPUMemMiB: 40_000}, ""},
		{"none of its type is left", Spec{GPUType: "T4"}, Ladder{}, nil, []Attempt{oom(1, part(39_000), 0)}, Rung{Again: true, MinGPUMemMiB: 58_500}, ""},
		{"second: a whole GPU", Spec{}, Ladder{}, nil, []Attempt{oom(1, part(8000), 0), oom(2, part(12_000), 0)}, Rung{Again: true, Whole: true, MinGPUMemMiB: 18_000}, ""},
		{"third on a share", Spec{}, Ladder{}, nil, []Attempt{oom(1, part(8000), 0), oom(2, part(12_000), 0), oom(3, part(18_000), 0)}, Rung{}, ""},

		{"a declared cap", Spec{GPUMemMiB: 8000}, Ladder{}, nil, []Attempt{oom(1, part(8000), 8000)}, Rung{}, ""},
		{"a declared cap beside others", Spec{GPUMemMiB: 8000}, Ladder{}, nil, []Attempt{beside(oom(1, part(8000), 8000))}, Rung{Again: true, MinGPUMemMiB: 12_000}, ""},
		{"above a declared cap beside others", Spec{GPUMemMiB: 8000}, Ladder{}, nil, []Attempt{beside(oom(1, part(8000), 8001))}, Rung{}, ""},
		{"above a declared cap beside others, once", Spec{GPUMemMiB: 8000}, Ladder{TrustPeak: true}, nil, []Attempt{beside(oom(1, part(8000), 8001))}, Rung{Again: true, MinGPUMemMiB: 12_000}, ""},
		{"a share above what it declares", Spec{GPUMemMiB: 8000}, Ladder{}, nil, []Attempt{oom(2, part(12_000), 12_000)}, Rung{Again: true, MinGPUMemMiB: 18_000}, ""},

		{"whole, and a larger one is there", Spec{}, Ladder{}, []*Node{h100}, []Attempt{oom(1, whole(40_000), 40_000)}, Rung{Again: true, Whole: true, MinGPUMemMiB: 44_000}, ""},
		{"whole, and a larger one is there, once", Spec{}, Ladder{EndAtWhole: true}, []*Node{h100}, []Attempt{oom(1, whole(40_000), 40_000)}, Rung{}, ""},
		{"whole, and the larger ends at its size", Spec{}, Ladder{}, []*Node{h100}, []Attempt{oom(1, whole(40_000), 79_000)}, Rung{Again: true, Whole: true, MinGPUMemMiB: 80_000}, ""},
		{"whole, and the next is a little larger", Spec{}, Ladder{}, []*Node{h100}, []Attempt{oom(1, whole(40_000), 0)}, Rung{Again: true, Whole: true, MinGPUMemMiB: 40_001}, ""},
		{"whole, and there is no larger", Spec{}, Ladder{}, nil, []Attempt{oom(1, whole(40_000), 40_000)}, Rung{}, "all 40000 MiB of a A100, and no larger"},
		{"whole, of a node that left", Spec{}, Ladder{}, nil, []Attempt{{No: 1, Usage: Usage{GPUOOM: true}, Estimate: Estimate{GPUType: "estimated"}, Berth: Berth{Node: "gone", GPUs: []GPUShare{{GPU: "x", Share: whole(50_000)}}}}}, Rung{}, "all 50000 MiB of a estimated, and no larger"},
		{"whole, and its type has no larger", Spec{GPUType: "A100"}, Ladder{}, []*Node{h100}, []Attempt{oom(1, whole(40_000), 0)}, Rung{}, "no larger GPU"},
		{"whole, and the larger is not in its partition", Spec{}, Ladder{Partition: &Partition{Nodes: onlyA}}, []*Node{h100}, []Attempt{oom(1, whole(40_000), 0)}, Rung{}, "no larger GPU"},
		{"whole, and its partition has other types", Spec{}, Ladder{Partition: &Partition{Nodes: onlyA, GPUTypes: []string{"H100"}}}, []*Node{h100}, []Attempt{oom(1, whole(40_000), 0)}, Rung{}, "no larger GPU"},
		{"whole, and it declared less", Spec{GPUMemMiB: 40_000}, Ladder{}, []*Node{h100}, []Attempt{oom(1, whole(40_000), 0)}, Rung{}, "it declares 40000 MiB"},
		{"whole, on the same again", Spec{}, Ladder{}, []*Node{h100, h200}, []Attempt{oom(1, whole(40_000), 0), oom(2, whole(40_000), 0)}, Rung{}, "no less before; the largest that could ever run it is H200 with 140000 MiB"},
		{"whole, on larger and larger", Spec{}, Ladder{}, []*Node{h100, h200}, []Attempt{oom(1, part(8000), 0), oom(2, part(12_000), 0), oom(3, whole(40_000), 0), oom(4, whole(80_000), 0)}, Rung{Again: true, Whole: true, MinGPUMemMiB: 80_001}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			j := &Job{Spec: &c.spec, Attempts: c.attempts}
			for range 2 { // in either order of nodes
				c.ladder.Nodes = slices.Values(append([]*Node{a100}, c.nodes...))
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
