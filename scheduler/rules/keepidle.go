package rules

import (
	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
)

// Spare is what a node keeps of its cores and host memory so that none of its idle
// GPUs is stranded (CODA, Synergy): a job may take its part, the node's total
// divided by its GPUs, for each GPU it gets; more only if every GPU that stays idle
// keeps the minimum that a job needs.
type Spare struct {
	GPUs               int64
	PartCPU, PartMem   int64 // of one GPU
	LeastCPU, LeastMem int64 // what an idle GPU keeps
}

// SpareOf returns what a node with so many GPUs keeps.
func SpareOf(u *dispatch.NodeUse, gpus int, pol *Policy) Spare {
	if gpus == 0 || pol.KeepCPUMilli <= 0 && pol.KeepMemMiB <= 0 {
		return Spare{}
	}
	s := Spare{GPUs: int64(gpus), PartCPU: u.CPUMilli / int64(gpus), PartMem: u.MemMiB / int64(gpus)}
	s.LeastCPU, s.LeastMem = min(s.PartCPU, max(0, pol.KeepCPUMilli)), min(s.PartMem, max(0, pol.KeepMemMiB))
	return s
}

// Most returns how much of a resource a job that takes so many of the idle GPUs may
// ask for: free is the total free, kept what all idle GPUs keep of it.
func Most(free, part, kept, least, takes int64) int64 {
	return max(min(free, part*max(1, takes)), free-kept+least*takes)
}

// Strands reports whether a job that takes so many of a node's idle GPUs takes more
// of the node than the others can spare; u is the node's account.
func (s *Spare) Strands(u *dispatch.NodeUse, idle, takes int, cpu, mem int64) bool {
	return s.GPUs > 0 && (cpu > Most(u.CPUMilli-u.UsedCPU, s.PartCPU, int64(idle)*s.LeastCPU, s.LeastCPU, int64(takes)) ||
		mem > Most(u.MemMiB-u.UsedMem, s.PartMem, int64(idle)*s.LeastMem, s.LeastMem, int64(takes)))
}

// BulkyEver is bulky by a scan of all nodes: whether no node could hold the job on
// GPUs like g without stranding some.
func BulkyEver(nodes []*cluster.Node, g *cluster.GPU, job *cluster.Job, pol *Policy) bool {
	cpu, mem := HostOf(job, pol)
	for _, n := range nodes {
		alike := 0
		for i := range n.GPUs {
			if o := &n.GPUs[i]; n.Open(o) && o.Type == g.Type && o.SellableMiB == g.SellableMiB && o.Shareable() == g.Shareable() {
				alike++
			}
		}
		if !n.Schedulable() || alike == 0 || alike < job.Spec.GPUs || !job.Spec.Allows(n) {
			continue
		}
		u := dispatch.NodeUse{CPUMilli: n.CPUMilli, MemMiB: n.MemMiB}
		if s := SpareOf(&u, len(n.GPUs), pol); cpu <= n.CPUMilli && mem <= n.MemMiB && !s.Strands(&u, len(n.GPUs), max(1, job.Spec.GPUs), cpu, mem) {
			return false
		}
	}
	return true
}
