package scheduler

import (
	"fmt"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
)

// gpus looks at each GPU of a node with cores and memory enough.
func (x *explainer) gpus(n *cluster.Node) {
	var free []int
	for i := range n.GPUs {
		g := &n.GPUs[i]
		if x.gpu(n, g) {
			free = append(free, i)
		}
	}
	for len(free) > 0 { // of a node with several kinds of card a job gets one
		first := &n.GPUs[free[0]]
		x.room(n, slices.DeleteFunc(slices.Clone(free), func(i int) bool { return !sameKind(&n.GPUs[i], first) }))
		free = slices.DeleteFunc(free, func(i int) bool { return sameKind(&n.GPUs[i], first) })
	}
}

// room looks at cards of one kind of a node that have all that the job needs of each.
func (x *explainer) room(n *cluster.Node, free []int) {
	if len(free) < x.job.Spec.GPUs {
		all := 0
		for i := range n.GPUs {
			if sameKind(&n.GPUs[i], &n.GPUs[free[0]]) {
				all++
			}
		}
		x.tallyOn(n.GPUs[free[0]].Type, cluster.ReasonGPUs, all, int64(x.job.Spec.GPUs-len(free)), func() string {
			return fmt.Sprintf("node %s: %d of %s with room, needs %d at once", n.ID, len(free), gpus(all), x.job.Spec.GPUs)
		})
		return
	}
	g := &n.GPUs[free[0]]
	if u, ok := x.snap.Ledger.Node(n.ID); ok && x.strands(n, &u, free) {
		x.tallyOn(g.Type, cluster.ReasonCPU, len(free), 0, func() string {
			return "node " + string(n.ID) + ": " + x.keptWords(n, &u)
		})
		return
	}
	if q := x.snap.Queues[g.ID]; len(q) > 0 && q[0].Job != x.job.ID {
		x.tallyOn(g.Type, cluster.ReasonQueueOrder, len(free), int64(len(q)), func() string {
			return fmt.Sprintf("%s has room, but job %d stands before it in the queue there", cardName(n, g), q[0].Job)
		})
		return
	}
	x.tallyOn(g.Type, cluster.ReasonUnconfirmed, len(free), 0, func() string {
		return fmt.Sprintf("%s has room; the next pass decides", cardName(n, g))
	})
}

// strands reports whether the job, on the GPUs that have room, would leave too
// little of the node to those that stay idle.
func (x *explainer) strands(n *cluster.Node, u *cluster.NodeUse, free []int) bool {
	idle, takes := x.idle(n), 0
	for _, i := range free {
		if g, ok := x.snap.Ledger.GPU(n.GPUs[i].ID); ok && g.Shares == 0 {
			takes++
		}
	}
	s := spareOf(u, len(n.GPUs), &x.pol)
	return s.strands(u, idle, min(takes, x.job.Spec.GPUs), x.cpu, x.mem) && !bulkyEver(x.snap.Nodes, &n.GPUs[free[0]], x.job, &x.pol)
}

func (x *explainer) idle(n *cluster.Node) (idle int) {
	for i := range n.GPUs {
		if g, ok := x.snap.Ledger.GPU(n.GPUs[i].ID); ok && g.Idle() {
			idle++
		}
	}
	return idle
}

func (x *explainer) keptWords(n *cluster.Node, u *cluster.NodeUse) string {
	s := spareOf(u, len(n.GPUs), &x.pol)
	return fmt.Sprintf("needs %s and %s of host memory, more than the part of its GPUs (%s and %s each); %d idle keep %s and %s each",
		cores(x.cpu), gib(x.mem), cores(s.partCPU), gib(s.partMem), x.idle(n), cores(s.leastCPU), gib(s.leastMem))
}

// keptFromPlain reports whether a job without GPUs waits for what idle GPUs
// keep; see keepForIdle.
func (x *explainer) keptFromPlain(n *cluster.Node, u *cluster.NodeUse) bool {
	s := spareOf(u, len(n.GPUs), &x.pol)
	var cpu, mem int64
	for _, j := range x.snap.Waiting {
		if k := int64(j.Spec.GPUs); k > 0 {
			c, m := HostOf(j, &x.pol)
			cpu, mem = max(cpu, (c+k-1)/k), max(mem, (m+k-1)/k)
		}
	}
	idle := int64(x.idle(n))
	old := x.pol.FIFOAge > 0 && x.snap.Now >= x.job.Eligible.Add(x.pol.FIFOAge)
	return s.gpus > 0 && !old && (u.CPUMilli-u.UsedCPU-idle*min(cpu, s.partCPU) < x.cpu || u.MemMiB-u.UsedMem-idle*min(mem, s.partMem) < x.mem)
}
