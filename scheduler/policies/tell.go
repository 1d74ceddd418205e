package policies

import (
	"fmt"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/scheduler/rules"
)

// left is the most that any place has left of each resource at the end of a
// pass, for reasons.
type left struct {
	mem, milli, cpu, host int64
	empty                 int // on one host
	free                  bool
}

// tell gives each job that does not start its reason.
func (p *pass) tell() {
	if len(p.tasks) == len(p.plan.Starts) || p.opt.Base.MaxReasons < 0 {
		return
	}
	most := make([]left, len(p.f.classes))
	plain := left{}
	for gi := range p.f.groups {
		g := &p.f.groups[gi]
		h, m := &p.f.hosts[g.host], &most[g.class]
		m.mem, m.milli, m.empty = max(m.mem, g.mem), max(m.milli, g.milli), max(m.empty, g.empty)
		m.cpu, m.host = max(m.cpu, h.use.CPUMilli-h.use.UsedCPU), max(m.host, h.use.MemMiB-h.use.UsedMem)
		m.free = m.free || g.free
	}
	for i := range p.f.hosts {
		h := &p.f.hosts[i]
		plain.cpu, plain.host = max(plain.cpu, h.use.CPUMilli-h.use.UsedCPU), max(plain.host, h.use.MemMiB-h.use.UsedMem)
	}
	p.plan.Unplaced = make([]cluster.Unplaced, 0, len(p.tasks)-len(p.plan.Starts))
	for _, t := range p.tasks {
		if !t.gone {
			p.plan.Unplaced = append(p.plan.Unplaced, cluster.Unplaced{Job: t.id, Reason: p.reason(t, most, &plain)})
		}
	}
}

// reason says what a job lacks on the fastest class that could run it.
func (p *pass) reason(t *task, most []left, plain *left) cluster.Reason {
	if len(p.f.hosts) == 0 {
		if len(p.snap.Nodes) == 0 {
			return cluster.Reason{Code: cluster.ReasonNoNodes, Detail: "no node is registered"}
		}
		return cluster.Reason{Code: cluster.ReasonNodeDown, Detail: "every node is drained or silent"}
	}
	m, n := plain, (*need)(nil)
	for c := range t.needs {
		if o := &t.needs[c]; o.ok && (n == nil || o.dur < n.dur) {
			n, m = o, &most[c]
		}
	}
	if n == nil {
		switch {
		case t.gpus == 0:
			n = &need{}
		case t.never.Code != "":
			return t.never
		default:
			return cluster.Reason{Code: cluster.ReasonNodeDown, Detail: "every node with GPUs is drained or silent"}
		}
	}
	if p.cells != nil && t.gpus > 0 && len(p.plan.Unplaced) < p.opt.Base.MaxReasons {
		if r := p.cells.reason(t); r.Code != "" {
			return r
		}
	}
	return p.lacking(t, n, m)
}

func (p *pass) lacking(t *task, n *need, m *left) cluster.Reason {
	say := func(code cluster.ReasonCode, format string, args ...any) cluster.Reason {
		if len(p.plan.Unplaced) >= p.opt.Base.MaxReasons {
			return cluster.Reason{Code: code} // words cost more than the pass
		}
		return cluster.Reason{Code: code, Detail: fmt.Sprintf(format, args...)}
	}
	if t.spans() {
		return p.gangs.spanReason(t)
	}
	switch {
	case t.gpus > 1 && n.share.Exclusive && m.empty < t.gpus:
		return say(cluster.ReasonGPUs, "at most %d GPUs empty on one node, needs %d", m.empty, t.gpus)
	case n.share.Exclusive && m.empty == 0:
		return say(cluster.ReasonExclusive, "no GPU is empty, needs one alone")
	case t.gpus > 0 && !m.free:
		return say(cluster.ReasonGPUSlots, "no GPU takes one more job")
	case n.share.MemMiB > m.mem && t.gpus > 0:
		return say(cluster.ReasonGPUMem, "at most %d MiB free on one GPU, needs %d", m.mem, n.share.MemMiB)
	case n.share.Milli > m.milli && t.gpus > 0:
		return say(cluster.ReasonGPUCompute, "at most %d thousandths of one GPU free, needs %d", m.milli, n.share.Milli)
	case t.cpu > m.cpu:
		return say(cluster.ReasonCPU, "at most %d thousandths of a core free on one node, needs %d", m.cpu, t.cpu)
	case t.mem > m.host:
		return say(cluster.ReasonHostMem, "at most %d MiB of host memory free on one node, needs %d", m.host, t.mem)
	case p.gangs.before(t) != 0:
		return say(cluster.ReasonQueueOrder, "job %d is before it and waits for room", p.gangs.before(t))
	}
	return say(cluster.ReasonResources, "no place has all at once that it needs, beside whom it may lie")
}

// spanReason says how many nodes have room for a task over several: of the class
// of which most have.
func (p *gangs) spanReason(t *task) cluster.Reason {
	if len(p.plan.Unplaced) >= p.opt.Base.MaxReasons {
		return cluster.Reason{Code: cluster.ReasonNodes} // words cost more than the pass
	}
	most, what := 0, "cores and host memory free"
	for hi := range p.f.hosts {
		if when, ok := p.clearsPlain(t, &p.f.hosts[hi]); t.gpus == 0 && ok && when == p.now {
			most++
		}
	}
	for c := range t.needs {
		if !t.needs[c].ok || p.f.classes[c].family != int32(c) {
			continue
		}
		x := p.ofFamily(t, int32(c), func(gi int32) (rules.Part, bool) {
			defer p.remember(gi)()
			return rules.Part{}, p.roomOn(t, gi)
		})
		if n := len(x.parts); n > most || most == 0 {
			most, what = n, fmt.Sprintf("room for %d of %s", t.gpus, p.f.classes[c].gpuType)
		}
	}
	switch {
	case most >= t.nodes && p.before(t) != 0:
		return cluster.Reason{Code: cluster.ReasonQueueOrder, Detail: fmt.Sprintf("%s with room, but job %d is before it and waits for room", nodesText(most), p.before(t))}
	case most >= t.nodes && t.job.Spec.Where.Named():
		what += ", not all that it asks for by name"
	}
	if t.whole {
		what += " and nobody there"
	}
	return cluster.Reason{Code: cluster.ReasonNodes, Detail: fmt.Sprintf("%s with %s, needs %d at once", nodesText(most), what, t.nodes)}
}

func nodesText(n int) string {
	if n == 1 {
		return "1 node"
	}
	return fmt.Sprintf("%d nodes", n)
}
