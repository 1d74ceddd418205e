package ladder

import (
	"slices"
	"strings"
	"testing"

	"github.com/berth-scheduler/berth/cluster"
)

// hostOOM is an attempt that ran out of so much host memory, with one GPU of node a1.
func hostOOM(no uint32, mib int64) cluster.Attempt {
	return cluster.Attempt{No: no, State: cluster.JobOutOfMemory, Berth: cluster.Berth{Node: "a1", MemMiB: mib, GPUs: []cluster.GPUShare{{GPU: "a1-g0"}}}}
}

// TestHostLadder: who did not declare host memory and runs out of it gets twice as much,
// then its GPUs' part of a node, then all of one, each more than the last; what is
// declared is final.
func TestHostLadder(t *testing.T) {
	t.Parallel()
	a, b := sized("a1", "A100", 40_000), sized("b1", "A100", 40_000) // two GPUs each
	a.MemMiB, b.MemMiB = 64_000, 128_000
	h := sized("h1", "H100", 80_000)
	h.MemMiB = 512_000
	onlyA, err := cluster.ParseHostList("a[1-9]")
	if err != nil {
		t.Fatal(err)
	}
	onCores := hostOOM(1, 2048)
	onCores.Berth.GPUs = nil
	gpuOOM := oom(1, cluster.Share{MemMiB: 8000, Milli: 300}, 0)
	for _, c := range []struct {
		name     string
		job      cluster.Job
		ladder   Ladder
		nodes    []*cluster.Node
		attempts []cluster.Attempt
		want     int64 // 0 is the end
		why      string
	}{
		{"first: twice as much", cluster.Job{Spec: &cluster.Spec{GPUs: 1}}, Ladder{}, []*cluster.Node{a}, []cluster.Attempt{hostOOM(1, 2048)}, 4096, "runs again with 4096 MiB"},
		{"first: not above the largest", cluster.Job{Spec: &cluster.Spec{GPUs: 1}}, Ladder{}, []*cluster.Node{a}, []cluster.Attempt{hostOOM(1, 40_000)}, 64_000, ""},
		{"second: its part of the largest node", cluster.Job{Spec: &cluster.Spec{GPUs: 1}}, Ladder{}, []*cluster.Node{a, b}, []cluster.Attempt{hostOOM(1, 2048), hostOOM(2, 4096)}, 64_000, ""},
		{"second: twice as much where that is more", cluster.Job{Spec: &cluster.Spec{GPUs: 1}}, Ladder{}, []*cluster.Node{a}, []cluster.Attempt{hostOOM(1, 10_000), hostOOM(2, 20_000)}, 40_000, ""},
		{"third: all of a node", cluster.Job{Spec: &cluster.Spec{GPUs: 1}}, Ladder{}, []*cluster.Node{a, b}, []cluster.Attempt{hostOOM(1, 2048), hostOOM(2, 4096), hostOOM(3, 64_000)}, 128_000, ""},
		{"fourth, as a larger node came", cluster.Job{Spec: &cluster.Spec{GPUs: 1}}, Ladder{}, []*cluster.Node{a, h}, []cluster.Attempt{hostOOM(1, 2048), hostOOM(2, 4096), hostOOM(3, 32_000), hostOOM(4, 64_000)}, 0, "given more 3 times"},
		{"all of the largest", cluster.Job{Spec: &cluster.Spec{GPUs: 1}}, Ladder{}, []*cluster.Node{a}, []cluster.Attempt{hostOOM(1, 64_000)}, 0, "it had 64000 MiB, and no node"},
		{"other ends do not count", cluster.Job{Spec: &cluster.Spec{GPUs: 1}}, Ladder{}, []*cluster.Node{a}, []cluster.Attempt{gpuOOM, hostOOM(2, 2048)}, 4096, ""},
		{"what the GPU's ladder asks for stays", cluster.Job{Spec: &cluster.Spec{GPUs: 1}, NeedWhole: true, MinGPUMemMiB: 40_001}, Ladder{}, []*cluster.Node{a, h}, []cluster.Attempt{hostOOM(1, 300_000)}, 512_000, ""},
		{"and bounds it", cluster.Job{Spec: &cluster.Spec{GPUs: 1}, MinGPUMemMiB: 30_000}, Ladder{Partition: &cluster.Partition{Nodes: onlyA}}, []*cluster.Node{a, b, h}, []cluster.Attempt{hostOOM(1, 60_000)}, 64_000, ""},
		{"its type", cluster.Job{Spec: &cluster.Spec{GPUs: 1, GPUType: "A100"}}, Ladder{}, []*cluster.Node{a, h}, []cluster.Attempt{hostOOM(1, 60_000)}, 64_000, ""},
		{"on cores", cluster.Job{Spec: &cluster.Spec{GPUs: 1, OrCPU: true}}, Ladder{}, []*cluster.Node{{ID: "c1", MemMiB: 3000}}, []cluster.Attempt{onCores}, 3000, ""},
		{"declared", cluster.Job{Spec: &cluster.Spec{GPUs: 1, MemMiB: 2048}}, Ladder{}, []*cluster.Node{a}, []cluster.Attempt{hostOOM(1, 2048)}, 0, ""},
		{"without GPUs", cluster.Job{Spec: &cluster.Spec{}}, Ladder{}, []*cluster.Node{a}, []cluster.Attempt{onCores}, 0, ""},
		{"once", cluster.Job{Spec: &cluster.Spec{GPUs: 1}}, Ladder{HostFinal: true}, []*cluster.Node{a}, []cluster.Attempt{hostOOM(1, 2048)}, 0, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.job.Attempts = c.attempts
			for range 2 { // in either order of nodes
				c.ladder.Nodes = slices.Values(c.nodes)
				got := c.ladder.Next(&c.job, c.job.Last())
				if got.Again != (c.want > 0) || got.MinHostMemMiB != c.want || !strings.Contains(got.Why, c.why) {
					t.Fatalf("%+v, want %d MiB, %q", got, c.want, c.why)
				}
				if got.Again && (got.Whole != c.job.NeedWhole || got.MinGPUMemMiB != c.job.MinGPUMemMiB) {
					t.Errorf("%+v forgets what was learnt of the GPU", got)
				}
				slices.Reverse(c.nodes)
			}
		})
	}
}

// TestHostLadderOutlivesTheGPUs: an out-of-memory on the GPU forgets nothing of the host's.
func TestHostLadderOutlivesTheGPUs(t *testing.T) {
	t.Parallel()
	j := &cluster.Job{Spec: &cluster.Spec{GPUs: 1}, MinHostMemMiB: 4096, Attempts: []cluster.Attempt{oom(1, cluster.Share{MemMiB: 8000, Milli: 300}, 0)}}
	l := Ladder{Nodes: slices.Values([]*cluster.Node{sized("a1", "A100", 40_000)})}
	if r := l.Next(j, j.Last()); !r.Again || r.MinHostMemMiB != 4096 {
		t.Errorf("%+v, want 4096 MiB of the host's", r)
	}
}
