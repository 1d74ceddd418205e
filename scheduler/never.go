package scheduler

import (
	"fmt"
	"slices"
	"strings"

	"github.com/berth-scheduler/berth/cluster"
)

// NeverFits tells whether job could never run on nodes, were they all empty;
// drained and silent nodes count, since they may come back. The error has
// CodeInvalid and says what is the largest there is. It is nil when some node
// could run the job, and when no node is registered at all: then it waits.
func NeverFits(nodes []*cluster.Node, job *cluster.Job, pol Policy) *cluster.Error {
	if len(nodes) == 0 {
		return nil
	}
	cpu, mem := hostOf(job, pol)
	var near nearest
	for _, n := range nodes {
		if job.Spec.Node != "" && job.Spec.Node != n.ID {
			continue
		}
		if couldRun(n, job, cpu, mem, pol) {
			return nil
		}
		near.look(n, job, pol)
	}
	return cluster.Errorf(cluster.CodeInvalid, "never satisfiable: needs %s; %s", wants(job, cpu, mem), near.String())
}

// couldRun tells whether n could run job if nothing else lay there.
func couldRun(n *cluster.Node, job *cluster.Job, cpu, mem int64, pol Policy) bool {
	if n.CPUMilli < cpu || n.MemMiB < mem {
		return false
	}
	return job.Spec.GPUs == 0 || feasibleGPUs(n, job, pol) >= job.Spec.GPUs
}

// feasibleGPUs is how many alike GPUs of n the job could lie on.
func feasibleGPUs(n *cluster.Node, job *cluster.Job, pol Policy) int {
	most := 0
	for i := range n.GPUs {
		g := &n.GPUs[i]
		e, _ := cluster.EstimateFor(job.Estimates, g.Type)
		if nd := needOn(job, g, &e, pol); nd.way == wayNone {
			continue
		}
		same := 0
		for k := range n.GPUs {
			if o := &n.GPUs[k]; o.Type == g.Type && o.SellableMiB == g.SellableMiB && o.Shareable() == g.Shareable() {
				same++
			}
		}
		most = max(most, same)
	}
	return most
}

func wants(job *cluster.Job, cpu, mem int64) string {
	s := job.Spec
	var b strings.Builder
	if s.GPUs > 0 {
		b.WriteString(gpus(s.GPUs))
		if s.GPUType != "" {
			b.WriteString(" of type " + s.GPUType)
		}
		switch need := max(s.GPUMemMiB, job.MinGPUMemMiB); {
		case need > 0:
			b.WriteString(" with " + gib(need))
		case len(job.Estimates) > 0:
			if m := leastPredicted(job); m > 0 {
				b.WriteString(" with " + gib(m) + " (predicted; --gpu-mem overrules it)")
			}
		}
		b.WriteString(", ")
	}
	fmt.Fprintf(&b, "%s and %s of host memory", cores(cpu), gib(mem))
	if s.GPUs > 1 {
		b.WriteString(" on one node")
	}
	if s.Node != "" {
		fmt.Fprintf(&b, " on node %s", s.Node)
	}
	return b.String()
}

func leastPredicted(job *cluster.Job) int64 {
	least := int64(0)
	for i := range job.Estimates {
		if e := &job.Estimates[i]; e.GPUType != cluster.CPUType && (least == 0 || e.GPUMemMiB < least) {
			least = e.GPUMemMiB
		}
	}
	return least
}

// nearest is the node that comes nearest to what a job needs.
type nearest struct {
	node  *cluster.Node
	gpu   *cluster.GPU
	count int
	types []string // those that it does not want, in the order of nodes
}

func (b *nearest) look(n *cluster.Node, job *cluster.Job, pol Policy) {
	if job.Spec.GPUs == 0 {
		if b.node == nil || n.CPUMilli > b.node.CPUMilli || n.CPUMilli == b.node.CPUMilli && n.MemMiB > b.node.MemMiB {
			b.node = n
		}
		return
	}
	if b.node == nil {
		b.node = n
	}
	for i := range n.GPUs {
		g := &n.GPUs[i]
		if job.Spec.GPUType != "" && g.Type != job.Spec.GPUType {
			if !slices.Contains(b.types, g.Type) {
				b.types = append(b.types, g.Type)
			}
			continue
		}
		count := 0
		for k := range n.GPUs {
			if n.GPUs[k].Type == g.Type {
				count++
			}
		}
		if b.gpu == nil || b.less(n, g, count, job) {
			b.node, b.gpu, b.count = n, g, count
		}
	}
}

// less tells whether what was found so far is smaller: by count when the
// count is what lacks, and else by memory, then cores, then host memory.
func (b *nearest) less(n *cluster.Node, g *cluster.GPU, count int, job *cluster.Job) bool {
	if have, now := min(b.count, job.Spec.GPUs), min(count, job.Spec.GPUs); b.gpu.SellableMiB == g.SellableMiB && have != now {
		return have < now
	}
	switch {
	case b.gpu.SellableMiB != g.SellableMiB:
		return b.gpu.SellableMiB < g.SellableMiB
	case b.node.CPUMilli != n.CPUMilli:
		return b.node.CPUMilli < n.CPUMilli
	}
	return b.node.MemMiB < n.MemMiB
}

func (b *nearest) String() string {
	switch {
	case b.node == nil:
		return "no such node is registered"
	case b.gpu == nil && len(b.types) > 0:
		return "there are only " + strings.Join(b.types, ", ")
	case b.gpu == nil:
		return fmt.Sprintf("the largest has %s and %s of host memory (node %s)%s", cores(b.node.CPUMilli), gib(b.node.MemMiB), b.node.ID, b.gpuNote())
	}
	return fmt.Sprintf("the largest has %s for jobs on each GPU, %s and %s of host memory (node %s, %d × %s)",
		gib(b.gpu.SellableMiB), cores(b.node.CPUMilli), gib(b.node.MemMiB), b.node.ID, b.count, b.gpu.Type)
}

func (b *nearest) gpuNote() string {
	if len(b.node.GPUs) == 0 {
		return ", no GPU"
	}
	return fmt.Sprintf(", %d × %s", len(b.node.GPUs), b.node.GPUs[0].Type)
}
