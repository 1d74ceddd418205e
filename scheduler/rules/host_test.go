package rules

import (
	"testing"

	"github.com/berth-scheduler/berth/cluster"
)

// TestHostOf: what is declared is final, what is predicted surely counts for jobs
// with GPUs, and nobody gets less than the defaults. With several types of GPUs the
// least counts, so that the job is kept from none of them.
func TestHostOf(t *testing.T) {
	t.Parallel()
	pol := Default() // 1,000 milli cores and 2,048 MiB; 300 is sure
	terms := cluster.HostTerms{MemPerGPUMiB: 16_000, CPUPerGPUMilli: 4000, LeastMemMiB: 1024, LeastCPUMilli: 500}
	sure := cluster.Estimate{GPUType: "A100", HostMemMiB: 6000, CPUMilli: 3300, ConfidenceMilli: 600}
	with := func(change func(*cluster.Estimate)) cluster.Estimate {
		e := sure
		change(&e)
		return e
	}
	for name, tc := range map[string]struct {
		spec     cluster.Spec
		es       []cluster.Estimate
		cpu, mem int64
	}{
		"nothing known":     {cluster.Spec{GPUs: 1}, nil, 1000, 2048},
		"predicted":         {cluster.Spec{GPUs: 1}, []cluster.Estimate{sure}, 3300, 6000},
		"declared":          {cluster.Spec{GPUs: 1, CPUMilli: 500, MemMiB: 100}, []cluster.Estimate{sure}, 500, 100},
		"memory declared":   {cluster.Spec{GPUs: 1, MemMiB: 100}, []cluster.Estimate{sure}, 3300, 100},
		"not sure":          {cluster.Spec{GPUs: 1}, []cluster.Estimate{with(func(e *cluster.Estimate) { e.ConfidenceMilli = 299 })}, 1000, 2048},
		"below the floor":   {cluster.Spec{GPUs: 1}, []cluster.Estimate{with(func(e *cluster.Estimate) { e.HostMemMiB, e.CPUMilli = 900, 20 })}, 1000, 2048},
		"without GPUs":      {cluster.Spec{}, []cluster.Estimate{sure}, 1000, 2048},
		"a run on cores":    {cluster.Spec{GPUs: 1, OrCPU: true}, []cluster.Estimate{with(func(e *cluster.Estimate) { e.GPUType = cluster.CPUType })}, 1000, 2048},
		"the lesser of two": {cluster.Spec{GPUs: 1}, []cluster.Estimate{sure, with(func(e *cluster.Estimate) { e.GPUType, e.HostMemMiB, e.CPUMilli = "T4", 4000, 0 })}, 3300, 4000},
		"surely measured":   {cluster.Spec{GPUs: 1}, []cluster.Estimate{with(func(e *cluster.Estimate) { e.ConfidenceMilli, e.HostConfidenceMilli = 0, 400 })}, 3300, 6000},
		"of the partition":  {cluster.Spec{GPUs: 2, Host: terms}, nil, 8000, 32_000},
		"predicted there":   {cluster.Spec{GPUs: 2, Host: terms}, []cluster.Estimate{sure}, 3300, 6000},
		"its floor":         {cluster.Spec{GPUs: 2, Host: terms}, []cluster.Estimate{with(func(e *cluster.Estimate) { e.HostMemMiB, e.CPUMilli = 900, 20 })}, 500, 1024},
		"a floor alone":     {cluster.Spec{GPUs: 1, Host: cluster.HostTerms{LeastMemMiB: 9000}}, nil, 1000, 9000},
		"declared there":    {cluster.Spec{GPUs: 1, CPUMilli: 500, MemMiB: 100, Host: terms}, nil, 500, 100},
	} {
		job := &cluster.Job{Spec: &tc.spec, Estimates: tc.es}
		if cpu, mem := HostOf(job, &pol); cpu != tc.cpu || mem != tc.mem {
			t.Errorf("%s: %d milli cores, %d MiB, want %d, %d", name, cpu, mem, tc.cpu, tc.mem)
		}
	}
	raised := &cluster.Job{Spec: &cluster.Spec{GPUs: 1}, MinHostMemMiB: 5000}
	if _, mem := HostOf(raised, &pol); mem != 5000 {
		t.Errorf("after an out-of-memory: %d MiB, want the 5000 of its ladder", mem)
	}
}

// TestLeastNodeMem: all memory of a node is that of the smallest one that could run the
// job, in whatever order they come.
func TestLeastNodeMem(t *testing.T) {
	t.Parallel()
	node := func(id cluster.NodeID, mem int64, gpus ...string) *cluster.Node {
		n := &cluster.Node{ID: id, State: cluster.NodeReady, CPUMilli: 8000, MemMiB: mem}
		for i, typ := range gpus {
			n.GPUs = append(n.GPUs, cluster.GPU{ID: cluster.GPUID(string(id) + typ), Index: i, Type: typ, MemMiB: 16_000, SellableMiB: 15_000, MaxShares: 3, CapMode: "sim"})
		}
		return n
	}
	nodes := []*cluster.Node{node("big", 9000, "A", "A"), node("cores", 1000), node("mid", 5000, "T"), node("same", 5000, "T")}
	for name, tc := range map[string]struct {
		spec cluster.Spec
		want int64
	}{
		"on cores":               {cluster.Spec{}, 1000},
		"with a GPU":             {cluster.Spec{GPUs: 1}, 5000},
		"of a type":              {cluster.Spec{GPUs: 1, GPUType: "A"}, 9000},
		"with two":               {cluster.Spec{GPUs: 2}, 9000},
		"with more than is":      {cluster.Spec{GPUs: 3}, 0},
		"with more cores":        {cluster.Spec{CPUMilli: 9000}, 0},
		"on a node":              {cluster.Spec{Node: "mid"}, 5000},
		"on one that is not":     {cluster.Spec{Node: "gone"}, 0},
		"on two nodes":           {cluster.Spec{GPUs: 1, Nodes: 2}, 5000},
		"with more GPU memory":   {cluster.Spec{GPUs: 1, GPUMemMiB: 20_000}, 0},
		"whatever else it needs": {cluster.Spec{GPUs: 1, GPUMemMiB: 4000, CPUMilli: 2000}, 5000},
	} {
		if got := LeastNodeMem(nodes, &cluster.Job{ID: 1, Spec: &tc.spec}, Default()); got != tc.want {
			t.Errorf("%s: %d MiB, want %d", name, got, tc.want)
		}
	}
	if got := LeastNodeMem(nil, &cluster.Job{ID: 1, Spec: &cluster.Spec{}}, Default()); got != 0 {
		t.Errorf("no nodes: %d MiB", got)
	}
}
