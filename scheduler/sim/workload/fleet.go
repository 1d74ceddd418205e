package workload

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/berth-scheduler/berth/cluster"
)

// NodeSpec is Count identical machines.
type NodeSpec struct {
	Count    int    `yaml:"count"`
	GPUs     int    `yaml:"gpus"`
	GPUType  string `yaml:"gpu_type"`
	MemMiB   int64  `yaml:"gpu_mem_mib"`
	CPUMilli int64  `yaml:"cpu_milli"`
	// HostMemMiB is the host's memory.
	HostMemMiB int64 `yaml:"host_mem_mib"`
	// IdleW and MaxW are what a GPU draws idle and busy; 0 is unknown.
	IdleW int64 `yaml:"idle_w"`
	MaxW  int64 `yaml:"max_w"`
	// MaxShares overrides the fleet's for these nodes; 0 does not.
	MaxShares int `yaml:"max_shares"`
	// Data are the data sets on their disks, as imagenet+coco.
	Data string `yaml:"data"`
	// Switch is where they are in the network, as core:leaf3.
	Switch string `yaml:"switch"`
}

// Fleet is the cluster of a simulation.
type Fleet struct {
	Name  string     `yaml:"name"`
	Nodes []NodeSpec `yaml:"nodes"`
	// MaxShares bounds how many jobs may share a GPU; 0 means 3.
	MaxShares int `yaml:"max_shares"`
	// ReservedMiB of each GPU are not allocated.
	ReservedMiB int64 `yaml:"reserved_mib"`
	// Pool puts all GPUs of a type into one node, so that a job may take more GPUs
	// than a node has. Each machine is a NUMA group of it if Islands is set, for
	// policies that place by those; otherwise machines are not distinguished.
	Pool    bool `yaml:"pool"`
	Islands bool `yaml:"islands"`
}

// Defaults for what a description omits; what is plentiful is not counted.
const (
	defaultShares  = 3
	DefaultMemMiB  = 16 << 10
	maxFleetNodes  = 100_000
	maxFleetGPUs   = 1_000_000
	PlentyCPUMilli = 1 << 40
	PlentyMemMiB   = 1 << 40
)

// Check returns an error for an invalid description of a fleet.
func (f *Fleet) Check() error {
	if len(f.Nodes) == 0 {
		return fmt.Errorf("nodes: there are none; give at least one entry with count and gpus")
	}
	total, gpus := 0, 0
	for i, n := range f.Nodes {
		switch {
		case n.Count < 1 || n.Count > maxFleetNodes:
			return fmt.Errorf("nodes[%d].count: %d is outside 1 to %d", i, n.Count, maxFleetNodes)
		case n.GPUs < 0 || n.GPUs > 4096:
			return fmt.Errorf("nodes[%d].gpus: %d is outside 0 to 4096", i, n.GPUs)
		case n.MemMiB < 0 || n.MemMiB > cluster.MaxMemMiB || n.CPUMilli < 0 || n.HostMemMiB < 0:
			return fmt.Errorf("nodes[%d]: an amount is below 0, or gpu_mem_mib is above %d", i, cluster.MaxMemMiB)
		case n.MaxShares < 0 || n.MaxShares > 1024:
			return fmt.Errorf("nodes[%d].max_shares: %d is outside 0 to 1024", i, n.MaxShares)
		case n.IdleW < 0 || n.MaxW < n.IdleW || n.MaxW > 1<<16:
			return fmt.Errorf("nodes[%d]: want 0 <= idle_w <= max_w <= %d", i, 1<<16)
		}
		for _, name := range n.dataSets() {
			if err := cluster.CheckDataName(name); err != nil {
				return fmt.Errorf("nodes[%d]: %w", i, err)
			}
		}
		total += n.Count
		gpus += n.Count * n.GPUs
	}
	if gpus > maxFleetGPUs {
		return fmt.Errorf("nodes: %d GPUs in all, at most %d are allowed", gpus, maxFleetGPUs)
	}
	if total > maxFleetNodes {
		return fmt.Errorf("nodes: %d in all, at most %d are allowed", total, maxFleetNodes)
	}
	if f.MaxShares < 0 || f.MaxShares > 1024 {
		return fmt.Errorf("max_shares: %d is outside 0 to 1024", f.MaxShares)
	}
	return nil
}

// Homogeneous returns a fleet of equal nodes.
func Homogeneous(nodes, gpus int, gpuType string, memMiB int64) Fleet {
	return Fleet{
		Name:  fmt.Sprintf("%dx%d", nodes, gpus),
		Nodes: []NodeSpec{{Count: nodes, GPUs: gpus, GPUType: gpuType, MemMiB: memMiB}},
	}
}

// GPUs returns the number of GPUs.
func (f *Fleet) GPUs() int {
	n := 0
	for _, s := range f.Nodes {
		n += s.Count * s.GPUs
	}
	return n
}

// Widest returns the largest number of GPUs in one node.
func (f *Fleet) Widest() int {
	w := 0
	for _, s := range f.Nodes {
		w = max(w, s.GPUs)
	}
	return w
}

// Holds returns the largest number of GPUs that one job can have.
func (f *Fleet) Holds() int {
	specs, most := f.Nodes, 0
	if f.Pool {
		specs, _ = f.pooled()
	}
	for _, s := range specs {
		most = max(most, s.GPUs)
	}
	return most
}

// Shares returns how many jobs may share a GPU without its own limit.
func (f *Fleet) Shares() int { return cmp.Or(f.MaxShares, defaultShares) }

// Types lists the types of GPU, sorted.
func (f *Fleet) Types() []string {
	var out []string
	for _, s := range f.Nodes {
		if s.GPUs > 0 && !slices.Contains(out, s.Type()) {
			out = append(out, s.Type())
		}
	}
	sort.Strings(out)
	return out
}

// Type returns the type of its GPUs, "gpu" if none is named.
func (s *NodeSpec) Type() string {
	return cmp.Or(s.GPUType, "gpu")
}

// dataSets returns the data sets on the machines' disks, sorted.
func (s *NodeSpec) dataSets() []string {
	if s.Data == "" {
		return nil
	}
	return slices.Compact(slices.Sorted(strings.SplitSeq(s.Data, "+")))
}

// island is where the machines of a pool begin, by the index of their first GPU;
// empty for a node that is one machine.
type island []int

// of returns the number of the machine that a GPU is in.
func (x island) of(card int) int { return max(0, sort.SearchInts(x, card+1)-1) }

// add appends count machines of so many GPUs.
func (x island) add(first, count, gpus int) island {
	for k := range count {
		x = append(x, first+k*gpus)
	}
	return x
}

// pooled merges the entries of each type into one node, and returns where its
// machines begin if they are distinguished.
func (f *Fleet) pooled() ([]NodeSpec, []island) {
	var out []NodeSpec
	var islands []island
	for _, s := range f.Nodes {
		one := s
		one.Count, one.GPUs, one.CPUMilli, one.HostMemMiB = 1, s.Count*s.GPUs, int64(s.Count)*s.CPUMilli, int64(s.Count)*s.HostMemMiB
		i := slices.IndexFunc(out, func(o NodeSpec) bool {
			return o.Type() == s.Type() && o.MemMiB == s.MemMiB && o.IdleW == s.IdleW && o.MaxW == s.MaxW && o.MaxShares == s.MaxShares && o.Data == s.Data && o.Switch == s.Switch && s.GPUs > 0 && o.GPUs > 0
		})
		if i < 0 {
			i = len(out)
			out, islands = append(out, NodeSpec{}), append(islands, nil)
		}
		if f.Islands {
			islands[i] = islands[i].add(out[i].GPUs, s.Count, s.GPUs)
		}
		if out[i] == (NodeSpec{}) {
			out[i] = one
			continue
		}
		out[i].GPUs += one.GPUs
		out[i].CPUMilli += one.CPUMilli
		out[i].HostMemMiB += one.HostMemMiB
	}
	return out, islands
}

// Build returns the nodes as agents would report them, sorted by id.
func (f *Fleet) Build() []*cluster.Node {
	specs, islands := f.Nodes, make([]island, len(f.Nodes))
	if f.Pool {
		specs, islands = f.pooled()
	}
	var out []*cluster.Node
	for k, s := range specs {
		for range s.Count {
			n := &cluster.Node{
				ID: cluster.NodeID(fmt.Sprintf("n%06d", len(out))), State: cluster.NodeReady, BootID: "b",
				CPUMilli: cmp.Or(s.CPUMilli, PlentyCPUMilli), MemMiB: cmp.Or(s.HostMemMiB, PlentyMemMiB),
			}
			if s.Switch != "" {
				n.Features = append(n.Features, cluster.SwitchFeature+s.Switch)
			}
			for _, name := range s.dataSets() {
				n.Features = append(n.Features, cluster.DataFeature+name)
			}
			for i := range s.GPUs {
				mem := cmp.Or(s.MemMiB, DefaultMemMiB)
				n.GPUs = append(n.GPUs, cluster.GPU{
					ID: cluster.GPUID(fmt.Sprintf("GPU-%s-%05d", n.ID, i)), Index: i, Type: s.Type(), NUMA: islands[k].of(i),
					MemMiB: mem, SellableMiB: cluster.Sellable(mem, f.ReservedMiB, 0), MaxShares: cmp.Or(s.MaxShares, f.Shares()), CapMode: "sim",
				})
			}
			out = append(out, n)
		}
	}
	return out
}

// Power returns the idle and busy draw of each type, nil if unknown.
func (f *Fleet) Power() map[string][2]int64 {
	out := map[string][2]int64{}
	for _, s := range f.Nodes {
		if s.GPUs > 0 {
			if s.MaxW == 0 {
				return nil
			}
			out[s.Type()] = [2]int64{s.IdleW, s.MaxW}
		}
	}
	return out
}
