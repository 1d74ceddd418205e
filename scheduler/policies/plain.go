package policies

import "github.com/berth-scheduler/berth/cluster"

// plainer is a placer with a rule of its own for jobs that need no GPU: the
// host with the least number that it gives is taken, of equals the first.
type plainer interface {
	plain(p *pass, t *task, hi int32) int64
}

// startPlain places a job that needs no GPU on the host that plainHost takes.
func (p *pass) startPlain(t *task) bool {
	if p.plainFailed(t) {
		return false
	}
	hi := p.plainHost(t)
	if hi < 0 {
		p.failed[p.plainShape(t)] = t.dur
		return false
	}
	e, _ := cluster.EstimateFor(t.job.Estimates, cluster.CPUType)
	p.commit(t, cluster.Start{
		Job: t.id, Attempt: uint32(len(t.job.Attempts)) + 1, Estimate: e, Why: p.label + ": a node with room, those without GPUs first",
		Berth: cluster.Berth{Node: p.f.hosts[hi].node.ID, CPUMilli: t.cpu, MemMiB: t.mem},
	}, t.dur)
	return true
}

// plainShape is what the choice for a job without GPUs depends on.
func (p *pass) plainShape(t *task) shape {
	return shape{class: -1, cpu: t.cpu, host: t.mem, node: t.job.Spec.Node, nodes: int16(t.nodes), whole: t.whole}
}

func (p *pass) plainFailed(t *task) bool {
	dur, ok := p.failed[p.plainShape(t)]
	return ok && t.dur >= dur
}

// plainHost chooses the host for a job that needs no GPU, -1 where none has room:
// one without GPUs, else by the placer's rule, else the one whose GPUs have least
// left, so that cores are not taken from GPUs that could be used.
func (p *pass) plainHost(t *task) int32 {
	rule, ruled := p.placer.(plainer)
	end := p.now + t.dur
	best, least := int32(-1), int64(forever)
	for hi := range p.f.hosts {
		h := &p.f.hosts[hi]
		if t.cpu > h.freeCPU(end) || t.mem > h.freeMem(end) || t.job.Spec.Node != "" && t.job.Spec.Node != h.node.ID ||
			p.spread != nil && !p.takes(t, int32(hi), -1) {
			continue
		}
		cost := int64(0)
		switch {
		case len(h.node.GPUs) == 0:
			cost = -forever
		case ruled:
			cost = rule.plain(p, t, int32(hi))
		default:
			cost = p.idleGPUs(h)
		}
		if cost < least {
			best, least = int32(hi), cost
		}
	}
	return best
}

// idleGPUs is what the cards of a host have left, see leftOf.
func (p *pass) idleGPUs(h *host) int64 {
	sum := int64(0)
	for _, gi := range h.groups {
		for _, ci := range p.f.groups[gi].cards {
			sum += leftOf(&p.f.cards[ci])
		}
	}
	return sum
}
