package scheduler

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler/fleet"
	"github.com/berth-scheduler/berth/scheduler/rules"
)

// Limits on how many jobs one pass makes room for, and how many each may preempt.
const (
	maxRoomFor = 16
	maxVictims = 64
)

// makeRoom proposes preemptions for jobs whose QOS entitles them to room and that
// do not start: on one node, as few as suffice, and of those the ones that lose
// least. It proposes nothing while another job is already being preempted for the
// same one.
func (p *pass) makeRoom(order []rank) {
	if p.standing == nil {
		return
	}
	m := &maker{p: p, taken: map[cluster.JobID]struct{}{}}
	for i := range p.plan.Preempt {
		m.taken[p.plan.Preempt[i].Job] = struct{}{}
	}
	for n, r := 0, 0; r < len(order) && n < maxRoomFor; r++ {
		it := &p.items[order[r].item]
		if it.gone || it.spans() || it.job.Spec.WholeNodes() || it.gpus == 0 && p.realms != nil || !p.standing.Preempts(it.job) {
			continue
		}
		if _, held := p.teller.limited[it.job.ID]; held {
			continue
		}
		m.learn()
		if m.coming(it.job.ID) {
			continue
		}
		n++
		m.forJob(it)
	}
}

// maker chooses which jobs to preempt for others.
type maker struct {
	p *pass
	// on holds the preemptible attempts on each node; nil until first needed.
	on    map[cluster.NodeID][]*cluster.Job
	taken map[cluster.JobID]struct{}
	asked map[cluster.JobID]struct{} // jobs for which another is already being preempted
}

func (m *maker) learn() {
	if m.on != nil {
		return
	}
	m.on, m.asked = map[cluster.NodeID][]*cluster.Job{}, map[cluster.JobID]struct{}{}
	for _, j := range m.p.running {
		a := j.Live()
		if a == nil {
			continue
		}
		if a.Preempt != nil {
			m.asked[a.Preempt.For] = struct{}{}
		}
		if a.Gang == nil && j.Unpreemptible(cluster.Time(m.p.now)) == "" {
			m.on[a.Berth.Node] = append(m.on[a.Berth.Node], j)
		}
	}
}

func (m *maker) coming(id cluster.JobID) bool {
	_, ok := m.asked[id]
	return ok
}

// forJob considers every node and takes the one where least is lost.
func (m *maker) forJob(it *item) {
	var best []*cluster.Job
	least := int64(rules.Forever)
	for i := range m.p.f.Hosts {
		h := &m.p.f.Hosts[i]
		if h.Place < 0 || it.node != "" && it.node != h.Node.ID || !it.job.Spec.Allows(h.Node) {
			continue
		}
		var may []*cluster.Job
		for _, j := range m.on[h.Node.ID] {
			if _, gone := m.taken[j.ID]; !gone && m.p.standing.MayPreempt(it.job, j) {
				may = append(may, j)
			}
		}
		if len(may) == 0 {
			continue
		}
		if vs := m.onNode(it, h, may); len(vs) > 0 && len(vs) <= maxVictims {
			if loss := m.loss(vs); best == nil || loss < least {
				best, least = vs, loss
			}
		}
	}
	for _, j := range best {
		m.taken[j.ID] = struct{}{}
		m.p.plan.Preempt = append(m.p.plan.Preempt, dispatch.Preemption{
			Job: j.ID, Attempt: j.Live().No, For: it.job.ID, Why: fmt.Sprintf("qos %s goes before qos %s", it.job.Spec.QOS, j.Spec.QOS),
		})
	}
}

// loss is what ending the jobs loses, in thousandths of a GPU × microseconds. Each
// job adds a constant, so that a few large ones are not preferred to many small
// ones that ran as long.
func (m *maker) loss(vs []*cluster.Job) int64 {
	sum := int64(0)
	for _, j := range vs {
		sum += m.lossOf(j)
	}
	return sum
}

func (m *maker) lossOf(j *cluster.Job) int64 {
	a := j.Live()
	gpu, core := a.Rate()
	return a.Ran(cluster.Time(m.p.now)).Milliseconds()*(gpu+core/16) + 60_000*cluster.WholeGPU
}

// onNode returns the jobs to preempt on a node so that the job fits there, none if
// it would not fit even then. It first tentatively removes all candidates, then
// puts back, the most expensive first, each without which the job still fits: those
// left are the ones needed.
func (m *maker) onNode(it *item, h *fleet.Host, may []*cluster.Job) []*cluster.Job {
	slices.SortFunc(may, func(a, b *cluster.Job) int {
		return cmp.Or(cmp.Compare(m.lossOf(b), m.lossOf(a)), cmp.Compare(a.ID, b.ID))
	})
	out := slices.Clone(may)
	if !m.fits(it, h, out) {
		return nil
	}
	for _, j := range may {
		without := slices.DeleteFunc(slices.Clone(out), func(o *cluster.Job) bool { return o.ID == j.ID })
		if m.fits(it, h, without) {
			out = without
		}
	}
	return out
}

// fits reports whether the job fits a node once the jobs in gone have left.
func (m *maker) fits(it *item, h *fleet.Host, gone []*cluster.Job) bool {
	cpu, mem := h.Use.CPUMilli-h.Use.UsedCPU-it.cpu, h.Use.MemMiB-h.Use.UsedMem-it.mem
	for _, j := range gone {
		cpu += j.Live().Berth.CPUMilli
		mem += j.Live().Berth.MemMiB
	}
	if cpu < 0 || mem < 0 {
		return false
	}
	if it.gpus == 0 {
		return true
	}
	free := map[int32]int{} // GPUs that would hold it, by class
	for i := h.Lo; i < h.Hi; i++ {
		c := &m.p.f.Cards[i]
		if c.Class < 0 || it.needs[c.Class].Way == rules.WayNone || c.Use.Closed {
			continue
		}
		use := c.Use
		for _, j := range gone {
			for _, g := range j.Live().Berth.GPUs {
				if g.GPU == use.ID {
					use.UsedMiB -= g.Share.MemMiB
					use.UsedMilli -= g.Share.Milli
					use.Shares--
					use.Exclusive = use.Exclusive && !g.Share.Exclusive
				}
			}
		}
		n := &it.needs[c.Class]
		if n.Way == rules.WayWhole && use.Shares > 0 || use.FreeShares() < 1 || use.Shares >= max(1, m.p.pol.MaxShares) ||
			n.Way == rules.WayShare && (n.Mem > use.FreeMiB() || n.Milli > use.FreeMilli()) {
			continue
		}
		if free[c.Class]++; free[c.Class] >= it.gpus {
			return true
		}
	}
	return false
}
