package explain

import (
	"fmt"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler/rules"
	"github.com/berth-scheduler/berth/scheduler/say"
)

// gpus checks each GPU of a node with enough cores and memory.
func (x *explainer) gpus(n *cluster.Node) {
	var free []int
	for i := range n.GPUs {
		g := &n.GPUs[i]
		if x.gpu(n, g) {
			free = append(free, i)
		}
	}
	for len(free) > 0 { // of a node with several kinds of GPU a job gets one kind
		first := &n.GPUs[free[0]]
		x.room(n, slices.DeleteFunc(slices.Clone(free), func(i int) bool { return !rules.Twins(&n.GPUs[i], first) }))
		free = slices.DeleteFunc(free, func(i int) bool { return rules.Twins(&n.GPUs[i], first) })
	}
}

// room checks the GPUs of one kind on a node that have everything the job needs of
// each.
func (x *explainer) room(n *cluster.Node, free []int) {
	if len(free) < x.job.Spec.GPUs {
		all := 0
		for i := range n.GPUs {
			if rules.Twins(&n.GPUs[i], &n.GPUs[free[0]]) {
				all++
			}
		}
		x.tallyOn(n.GPUs[free[0]].Type, cluster.ReasonGPUs, all, int64(x.job.Spec.GPUs-len(free)), func() string {
			return fmt.Sprintf("node %s: %d of %s with room, needs %d at once", n.ID, len(free), say.GPUs(all), x.job.Spec.GPUs)
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
	var kept, open []int
	for _, i := range free {
		if x.keptFor(&n.GPUs[i]) != 0 {
			kept = append(kept, i)
		} else {
			open = append(open, i)
		}
	}
	if x.job.Spec.GPUs > 1 { // all or none
		if len(open) < x.job.Spec.GPUs {
			kept, open = append(kept, open...), nil
		} else {
			kept, open = nil, free
		}
	}
	if len(kept) > 0 {
		first := &n.GPUs[kept[0]]
		x.tallyOn(g.Type, cluster.ReasonQueueOrder, len(kept), -1, func() string {
			return fmt.Sprintf("%s has room, but is kept for waiting job %d", cardName(n, first), x.keptFor(first))
		})
	}
	if len(open) > 0 {
		x.free(n, open)
	}
}

// free checks GPUs that nothing keeps from the job but the jobs ahead of it.
func (x *explainer) free(n *cluster.Node, open []int) {
	g := &n.GPUs[open[0]]
	if q := x.snap.Queues[g.ID]; len(q) > 0 && q[0].Job != x.job.ID {
		x.tallyOn(g.Type, cluster.ReasonQueueOrder, len(open), int64(len(q)), func() string {
			return fmt.Sprintf("%s has room, but job %d is ahead of it in the queue there", cardName(n, g), q[0].Job)
		})
		return
	}
	x.tallyOn(g.Type, cluster.ReasonUnconfirmed, len(open), 0, func() string {
		return fmt.Sprintf("%s has room; the next pass decides", cardName(n, g))
	})
}

// keptFor returns for which job a pass keeps a GPU from a job on one node, 0 for
// none.
func (x *explainer) keptFor(g *cluster.GPU) cluster.JobID {
	if len(x.snap.Waiting) < 2 || inNoQueue(x.job) || x.by.Kept == nil {
		return 0
	}
	if x.kept == nil {
		x.kept = x.by.Kept(x.snap, x.job, x.pol)
	}
	return x.kept(g.ID)
}

// strands reports whether the job, on the GPUs that have room, would leave too
// little of the node to those that stay idle.
func (x *explainer) strands(n *cluster.Node, u *dispatch.NodeUse, free []int) bool {
	idle, takes := x.idle(n), 0
	for _, i := range free {
		if g, ok := x.snap.Ledger.GPU(n.GPUs[i].ID); ok && g.Shares == 0 {
			takes++
		}
	}
	if k := x.job.Spec.GPUs; k > 1 { // a pass takes those in use first, and then no others
		takes = max(0, k-(len(free)-takes))
	}
	s := rules.SpareOf(u, len(n.GPUs), &x.pol)
	return s.Strands(u, idle, min(takes, x.job.Spec.GPUs), x.cpu, x.mem) && !rules.BulkyEver(x.snap.Nodes, &n.GPUs[free[0]], x.job, &x.pol)
}

func (x *explainer) idle(n *cluster.Node) (idle int) {
	for i := range n.GPUs {
		if g, ok := x.snap.Ledger.GPU(n.GPUs[i].ID); ok && g.Idle() {
			idle++
		}
	}
	return idle
}

func (x *explainer) keptWords(n *cluster.Node, u *dispatch.NodeUse) string {
	s := rules.SpareOf(u, len(n.GPUs), &x.pol)
	return fmt.Sprintf("needs %s and %s of host memory, more than its GPUs' part (%s and %s each); %d idle ones keep %s and %s each",
		say.Cores(x.cpu), cluster.MemText(x.mem), say.Cores(s.PartCPU), cluster.MemText(s.PartMem), x.idle(n), say.Cores(s.LeastCPU), cluster.MemText(s.LeastMem))
}

// keptFromPlain reports whether a job without GPUs waits for what idle GPUs
// keep; see keepForIdle.
func (x *explainer) keptFromPlain(n *cluster.Node, u *dispatch.NodeUse) bool {
	s := rules.SpareOf(u, len(n.GPUs), &x.pol)
	var cpu, mem int64
	for _, j := range x.snap.Waiting {
		if k := int64(j.Spec.GPUs); k > 0 {
			c, m := rules.HostOf(j, &x.pol)
			cpu, mem = max(cpu, (c+k-1)/k), max(mem, (m+k-1)/k)
		}
	}
	idle := int64(x.idle(n))
	old := x.pol.FIFOAge > 0 && x.snap.Now >= x.job.Eligible.Add(x.pol.FIFOAge)
	return s.GPUs > 0 && !old && (u.CPUMilli-u.UsedCPU-idle*min(cpu, s.PartCPU) < x.cpu || u.MemMiB-u.UsedMem-idle*min(mem, s.PartMem) < x.mem)
}

// coresExplain says why a job that may run on cores does not.
func (x *explainer) coresExplain(c *rules.CoresNeed) {
	now := int64(x.snap.Now)
	why := c.Choosable(x.job, now)
	if why != "" {
		x.tallyOn(cluster.CPUType, cluster.ReasonCPU, 1, 0, func() string { return "on cores: " + why })
		return
	}
	room := 0
	for _, n := range x.snap.Nodes {
		u, ok := x.snap.Ledger.Node(n.ID)
		if ok && n.Schedulable() && u.CPUMilli-u.UsedCPU >= c.CPU && u.MemMiB-u.UsedMem >= c.Mem && x.job.Spec.Allows(n) {
			room++
		}
	}
	x.tallyOn(cluster.CPUType, cluster.ReasonCPU, 1, 0, func() string {
		if room == 0 {
			return fmt.Sprintf("on cores: no node has %s and %s of host memory free", say.Cores(c.CPU), cluster.MemText(c.Mem))
		}
		gpu := ""
		if est := x.job.EstStart.Sub(x.snap.Now); est > 0 {
			gpu = fmt.Sprintf("; on a GPU it is expected to start in %s", say.About(est.Microseconds()))
		}
		return fmt.Sprintf("on cores: %s have room for %s; it would take %s there, no better for %s than waiting%s, or idle GPUs need what is free",
			say.Nodes(room), say.Cores(c.CPU), c.Words(&x.pol), x.job.Spec.Objective, gpu)
	})
}
