package policies

import "github.com/berth-scheduler/berth/cluster"

// Kept is what a pass keeps of a node for those who wait: who ends after Until
// must leave the cores and the memory free, and may not lie on the GPUs.
type Kept struct {
	Node             cluster.NodeID
	CPUMilli, MemMiB int64
	Until            cluster.Time
	GPUs             []cluster.GPUID
	For              cluster.JobID
}

// PlanBeside is Plan for some of those who wait, after passes for others: what
// these keep binds it, too. It returns what is kept then of the snapshot's nodes,
// in the order of their ids.
func (e *engine) PlanBeside(snap *cluster.Snapshot, kept []Kept) (cluster.Plan, []Kept) {
	p := newPass(snap, e)
	for i := range kept {
		p.honour(&kept[i])
	}
	plan := e.run(p)
	return plan, p.kept()
}

// honour keeps what an earlier pass does.
func (p *pass) honour(k *Kept) {
	hi, ok := p.f.hostAt[k.Node]
	if !ok {
		return
	}
	h := &p.f.hosts[hi]
	h.keptCPU, h.keptMem, h.until, h.foreign = k.CPUMilli, k.MemMiB, int64(k.Until), true
	p.earlier = k.For
	for _, id := range k.GPUs {
		if ci, ok := p.f.cardAt[id]; ok {
			p.f.cards[ci].until = int64(k.Until)
		}
	}
}

// afterKept is when a place is a job's that is clear at when: not before the
// first who has it kept by an earlier pass, unless the job is gone by then.
func (p *pass) afterKept(hi int32, when, dur int64) int64 {
	if h := &p.f.hosts[hi]; h.foreign && when < h.until && dur > h.until-when {
		return h.until
	}
	return when
}

// before is for whom places are kept where t waits, 0 for nobody.
func (p *pass) before(t *task) cluster.JobID {
	if p.head != nil && p.head != t {
		return p.head.id
	}
	return p.earlier
}

// kept is what is kept at the end of the pass.
func (p *pass) kept() (out []Kept) {
	for hi := range p.f.hosts {
		h := &p.f.hosts[hi]
		if h.until == forever {
			continue
		}
		k := Kept{Node: h.node.ID, CPUMilli: h.keptCPU, MemMiB: h.keptMem, Until: cluster.Time(h.until), For: p.earlier}
		if p.head != nil && !h.foreign {
			k.For = p.head.id
		}
		for _, gi := range h.groups {
			for _, ci := range p.f.groups[gi].cards {
				if c := &p.f.cards[ci]; c.until < forever {
					k.GPUs = append(k.GPUs, c.use.ID)
				}
			}
		}
		out = append(out, k)
	}
	return out
}
