package learner

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/model"
)

// TestGPUTypes: of each type the largest card and node count and each driver, and one is
// simulated only where all its cards are.
func TestGPUTypes(t *testing.T) {
	t.Parallel()
	card := func(gpuType, mode string, mib int64) cluster.GPU {
		return cluster.GPU{Type: gpuType, CapMode: mode, MemMiB: mib}
	}
	got := GPUTypes([]*cluster.Node{
		{ID: "n1", Driver: "580.1", MemMiB: 100, CPUMilli: 8000, GPUs: []cluster.GPU{card("T4", "sim", 15000), card("T4", "sim", 15000), card("A100", "sim", 80000)}},
		{ID: "n2", Driver: "570.2", MemMiB: 200, CPUMilli: 4000, GPUs: []cluster.GPU{card("T4", "sim", 16000), card("T4", "watch", 16000), card("H100", "mps", 80000)}},
		{ID: "n3", MemMiB: 50, CPUMilli: 1000, GPUs: []cluster.GPU{card("T4", "sim", 15000), card("H100", "sim", 80000)}},
	})
	want := []model.TypeInfo{
		{Name: "A100", MemMiB: 80000, HostMiB: 100, HostCPUMilli: 8000, Simulated: true, Drivers: "580.1"},
		{Name: "H100", MemMiB: 80000, HostMiB: 200, HostCPUMilli: 4000, Drivers: "570.2"},
		{Name: "T4", MemMiB: 16000, HostMiB: 200, HostCPUMilli: 8000, Drivers: "570.2 580.1"},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("types (-want +got):\n%s", d)
	}
}

// TestTypesAreKept: types are counted once for a list of nodes, and anew for another.
func TestTypesAreKept(t *testing.T) {
	t.Parallel()
	var l Learner
	list := func(gpuType string) []*cluster.Node {
		return []*cluster.Node{{ID: "n1", GPUs: []cluster.GPU{{Type: gpuType, MemMiB: 1}}}}
	}
	t4, a100 := list("T4"), list("A100")
	for _, tc := range []struct {
		nodes []*cluster.Node
		want  string
	}{{t4, "T4"}, {t4, "T4"}, {a100, "A100"}, {t4, "T4"}} {
		if got := l.Types(tc.nodes); len(got) != 1 || got[0].Name != tc.want {
			t.Errorf("%v, want %s", got, tc.want)
		}
	}
	if a, b := l.Types(t4), l.Types(t4); &a[0] != &b[0] {
		t.Error("the same nodes were counted twice")
	}
	if got := l.Types(nil); got != nil {
		t.Errorf("without nodes %v", got)
	}
}
