package workload

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestPoolKeepsIslands: machines of a pool are told apart by their NUMA number
// if that is asked for, whatever entries they come from.
func TestPoolKeepsIslands(t *testing.T) {
	t.Parallel()
	specs := []NodeSpec{{Count: 2, GPUs: 2, GPUType: "A"}, {Count: 1, GPUs: 1, GPUType: "B"}, {Count: 1, GPUs: 3, GPUType: "A"}}
	for _, c := range []struct {
		name  string
		fleet Fleet
		want  map[string][]int
	}{
		{"machines", Fleet{Nodes: specs, Islands: true}, map[string][]int{"n000000": {0, 0}, "n000001": {0, 0}, "n000002": {0}, "n000003": {0, 0, 0}}},
		{"a pool", Fleet{Nodes: specs, Pool: true}, map[string][]int{"n000000": {0, 0, 0, 0, 0, 0, 0}, "n000001": {0}}},
		{"a pool with islands", Fleet{Nodes: specs, Pool: true, Islands: true}, map[string][]int{"n000000": {0, 0, 1, 1, 2, 2, 2}, "n000001": {0}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got := map[string][]int{}
			for _, n := range c.fleet.Build() {
				for i := range n.GPUs {
					got[string(n.ID)] = append(got[string(n.ID)], n.GPUs[i].NUMA)
				}
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Errorf("NUMA numbers by node (-want +got):\n%s", d)
			}
		})
	}
}
