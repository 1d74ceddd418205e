package lead

import (
	"maps"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler/site"
)

// beside plans snap, whose ledger and queues it modifies, around what stray
// processes hold.
func (p *planner) beside(snap *dispatch.Snapshot, sched *Scheduling, kind site.Pass) dispatch.Plan {
	held := p.held()
	if p.less = len(held) > 0; !p.less {
		return site.Plan(snap, &sched.Site, kind)
	}
	view := wary(snap, held)
	view.Queues = maps.Clone(snap.Queues)
	plan := site.Plan(view, &sched.Site, kind)
	plan.Starts = careful(snap, held, plan.Starts)
	if len(plan.Preempt) == 0 {
		return plan
	}
	// No job is preempted because of gossip: only those that would be without it.
	plan.Preempt = onlyAmong(plan.Preempt, site.Plan(snap, &sched.Site, kind).Preempt)
	return plan
}

// onlyAmong keeps the preemptions that others name as well, and for each job that
// should get the room all of them or none: a job on several nodes gains nothing
// from a part.
func onlyAmong(preempt, others []dispatch.Preemption) []dispatch.Preemption {
	named := func(v dispatch.Preemption) bool {
		return slices.ContainsFunc(others, func(w dispatch.Preemption) bool { return w.Job == v.Job && w.Attempt == v.Attempt })
	}
	var out []dispatch.Preemption
	for _, v := range preempt {
		missing := func(w dispatch.Preemption) bool { return w.For == v.For && !named(w) }
		if named(v) && (v.For == 0 || !slices.ContainsFunc(preempt, missing)) {
			out = append(out, v)
		}
	}
	return out
}

// Wary returns a snapshot as the planner sees it: what stray processes hold of a
// GPU, by its node's gossip before the node has told the leader, which takes
// seconds longer, counts as a share without an owner. So what fits next to it may
// start, but nothing that wants the GPU alone. snap is not modified.
func (l *Leader) Wary(snap *dispatch.Snapshot) *dispatch.Snapshot { return wary(snap, l.held()) }

func wary(snap *dispatch.Snapshot, held map[cluster.GPUID]int64) *dispatch.Snapshot {
	if len(held) == 0 {
		return snap
	}
	out := *snap
	out.Nodes, out.Ledger = slices.Clone(snap.Nodes), snap.Ledger.Clone()
	for i, n := range out.Nodes {
		if !slices.ContainsFunc(n.GPUs, func(g cluster.GPU) bool { return held[g.ID] > 0 }) {
			continue
		}
		more := *n
		more.GPUs = slices.Clone(n.GPUs)
		strays := cluster.Berth{Node: n.ID}
		for k := range more.GPUs {
			if g := &more.GPUs[k]; held[g.ID] > 0 {
				g.MaxShares++ // it takes no job's place
				strays.GPUs = append(strays.GPUs, cluster.GPUShare{GPU: g.ID, Share: cluster.Share{MemMiB: held[g.ID]}})
			}
		}
		out.Nodes[i] = &more
		out.Ledger.SetNode(&more)
		out.Ledger.Take(&strays)
	}
	return &out
}

// careful drops starts on a GPU with stray processes that do not fit there. It is a
// veto, no more: the state machine decides starts.
func careful(snap *dispatch.Snapshot, held map[cluster.GPUID]int64, starts []dispatch.Start) []dispatch.Start {
	if len(held) == 0 {
		return starts
	}
	led := wary(snap, held).Ledger
	return slices.DeleteFunc(starts, func(st dispatch.Start) bool {
		for _, b := range st.Berths() {
			for _, g := range b.GPUs {
				if held[g.GPU] > 0 && led.Fits(b).Code != "" {
					return true
				}
			}
		}
		led.TakeStart(&st)
		return false
	})
}
