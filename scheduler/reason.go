package scheduler

import (
	"fmt"

	"github.com/berth-scheduler/berth/cluster"
)

// reasonKey is what the words of a reason depend on.
type reasonKey struct {
	shape  shape
	queued bool
}

// tellUnplaced gives each job that does not start its reason.
func (p *pass) tellUnplaced() {
	n := 0
	for i := range p.items {
		if !p.items[i].gone {
			n++
		}
	}
	if n == 0 {
		return
	}
	p.plan.Unplaced = make([]cluster.Unplaced, 0, n)
	for i := range p.items {
		if it := &p.items[i]; !it.gone {
			p.plan.Unplaced = append(p.plan.Unplaced, cluster.Unplaced{Job: it.job.ID, Reason: p.reason(it)})
		}
	}
}

// reason says why a job does not start. Jobs of one shape share the words.
func (p *pass) reason(it *item) cluster.Reason {
	c := p.likeliest(it)
	if c < 0 {
		if it.job.Spec.GPUs == 0 {
			return p.plainReason(it)
		}
		return p.neverReason(it)
	}
	key := reasonKey{shape: p.shapeOf(it, c)}
	if r, ok := p.words[key]; ok {
		return r
	}
	r := p.missing(it, c, len(p.words) < p.pol.MaxReasons)
	if len(p.words) < p.pol.MaxReasons {
		p.words[key] = r
	}
	return r
}

// likeliest is the class whose lack is told: that of its queue, or else the
// fastest.
func (p *pass) likeliest(it *item) int {
	if it.queue >= 0 {
		if c := p.f.cards[it.queue].class; c >= 0 && it.needs[c].way != wayNone {
			return int(c)
		}
	}
	best := -1
	for c := range it.needs {
		if it.needs[c].way != wayNone && (best < 0 || it.needs[c].dur < it.needs[best].dur) {
			best = c
		}
	}
	return best
}

// missing says what the job misses on class c.
func (p *pass) missing(it *item, c int, inWords bool) cluster.Reason {
	k, n := &p.f.classes[c], &it.needs[c]
	want := p.want(it, c)
	most := k.empty.at[1]
	if n.way == wayShare {
		most = most.most(&k.used.at[1])
	}
	code, have, needs := cluster.ReasonResources, "", ""
	switch {
	case n.way == wayWhole && it.job.Spec.GPUs > 1 && p.mostEmpty(k) < it.job.Spec.GPUs:
		code = cluster.ReasonGPUs
		have, needs = gpus(p.mostEmpty(k))+" free on one node", gpus(it.job.Spec.GPUs)
	case n.way == wayWhole && p.mostEmpty(k) == 0:
		code, have, needs = cluster.ReasonExclusive, "no GPU is empty", "one alone"
	case most.mem < want.mem:
		code = cluster.ReasonGPUMem
		have, needs = fmt.Sprintf("at most %s free on one GPU", gib(max(0, most.mem))), gib(want.mem)
	case most.milli < want.milli:
		code = cluster.ReasonGPUCompute
		have, needs = fmt.Sprintf("at most %s of one GPU free", percent(max(0, most.milli))), percent(want.milli)
	case most.slots < 1:
		code, have, needs = cluster.ReasonGPUSlots, "as many jobs on each GPU as may share it", "a place"
	case most.cpu < want.cpu:
		code = cluster.ReasonCPU
		have, needs = fmt.Sprintf("at most %s free on a node with room on a GPU", cores(max(0, most.cpu))), cores(want.cpu)
	case most.host < want.host:
		code = cluster.ReasonHostMem
		have, needs = fmt.Sprintf("at most %s of host memory free on a node with room on a GPU", gib(max(0, most.host))), gib(want.host)
	case most.until < want.until:
		code, have, needs = cluster.ReasonQueueOrder, "GPUs with room are kept for jobs that waited longer", about(n.dur)
	default:
		have, needs = "no GPU has all that it needs at once", fmt.Sprintf("%s, %s of a GPU, %s and %s of host memory",
			gib(n.mem), percent(n.milli), cores(it.cpu), gib(it.mem))
	}
	if !inWords {
		return cluster.Reason{Code: code}
	}
	return cluster.Reason{Code: code, Detail: fmt.Sprintf("%s: %s, needs %s", k.gpuType, have, needs)}
}

func (p *pass) mostEmpty(k *class) int {
	for n := len(k.free) - 1; n > 0; n-- {
		if k.free[n].next(0) >= 0 {
			return n
		}
	}
	return 0
}

func (p *pass) plainReason(it *item) cluster.Reason {
	most := p.f.plain.at[1]
	switch {
	case len(p.f.hosts) == 0:
		return cluster.Reason{Code: cluster.ReasonNoNodes, Detail: "no node is registered"}
	case len(p.f.order) == 0:
		return cluster.Reason{Code: cluster.ReasonNodeDown, Detail: "every node is drained or silent"}
	case most.cpu < it.cpu:
		return cluster.Reason{Code: cluster.ReasonCPU, Detail: fmt.Sprintf("at most %s free on one node, needs %s", cores(max(0, most.cpu)), cores(it.cpu))}
	case most.host < it.mem:
		return cluster.Reason{Code: cluster.ReasonHostMem, Detail: fmt.Sprintf("at most %s of host memory free on one node, needs %s", gib(max(0, most.host)), gib(it.mem))}
	}
	return cluster.Reason{Code: cluster.ReasonResources, Detail: fmt.Sprintf("no node has %s and %s of host memory at once", cores(it.cpu), gib(it.mem))}
}

// neverReason tells why no class at all can run the job.
func (p *pass) neverReason(it *item) cluster.Reason {
	if len(p.f.hosts) == 0 {
		return cluster.Reason{Code: cluster.ReasonNoNodes, Detail: "no node is registered"}
	}
	if len(p.f.classes) == 0 {
		return cluster.Reason{Code: cluster.ReasonNodeDown, Detail: "every node with GPUs is drained or silent"}
	}
	worst := cluster.Reason{}
	for c := range it.needs {
		k := &p.f.classes[c]
		e, _ := cluster.EstimateFor(it.job.Estimates, k.gpuType)
		if r := vetoReason(it.job, k.rep, &e, it.needs[c].why); worst.Code == "" || r.Code != cluster.ReasonGPUType {
			worst = r
		}
	}
	return worst
}
