package scheduler

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
)

// spareTooSmall leaves out the classes on which the job ran out of memory, or
// may by the upper quantile of a confident prediction, if there is one that is
// large enough and could ever run it: SchedTune's veto (section IV-C) on the
// side of caution. A job that dies alone on a card has taken it for nothing.
func (p *pass) spareTooSmall(it *item, why veto, large func(c int) bool) {
	for c := range it.needs {
		if it.needs[c].way == wayNone || !large(c) || !p.everOn(it, c) {
			continue
		}
		for o := range it.needs {
			if !large(o) && it.needs[o].way != wayNone {
				it.needs[o].way, it.needs[o].why = wayNone, why
			}
		}
		return
	}
}

// everOn reports whether some node with cards of class c could ever run a job.
func (p *pass) everOn(it *item, c int) bool {
	return slices.ContainsFunc(p.f.classes[c].groups, func(g group) bool {
		h := &p.f.hosts[g.host]
		return h.use.CPUMilli >= it.cpu && h.use.MemMiB >= it.mem && int(g.hi-g.lo) >= it.gpus && (it.node == "" || it.node == h.node.ID)
	})
}

// sparing is what spareTooSmall does for one job, worked out of nodes for who
// asks about it: which cards it leaves out, and which would do.
type sparing struct {
	least           int64 // what the job must have after an out-of-memory
	observed, tight *cluster.GPU
}

// place is a kind of card on a kind of node.
type place struct {
	gpu      *cluster.GPU
	cpu, mem int64
	count    int
}

// placesOf lists the kinds of cards on kinds of nodes that take jobs, in the
// order of classes, so that a job need not look at thousands alike.
func placesOf(nodes []*cluster.Node) []place {
	type kind struct {
		classKey
		cpu, mem int64
		count    int
	}
	seen := map[kind]bool{}
	var out []place
	for _, n := range nodes {
		if !n.Schedulable() {
			continue
		}
		counts := map[classKey]int{}
		for i := range n.GPUs {
			if n.Open(&n.GPUs[i]) {
				counts[classOf(&n.GPUs[i])]++
			}
		}
		for i := range n.GPUs {
			g := &n.GPUs[i]
			k := kind{classOf(g), n.CPUMilli, n.MemMiB, counts[classOf(g)]}
			if g.SellableMiB > 0 && n.Open(g) && !seen[k] {
				seen[k] = true
				out = append(out, place{g, k.cpu, k.mem, k.count})
			}
		}
	}
	slices.SortStableFunc(out, func(a, b place) int {
		return cmp.Or(cmp.Compare(a.gpu.Type, b.gpu.Type), cmp.Compare(a.gpu.SellableMiB, b.gpu.SellableMiB),
			compareBool(a.gpu.Shareable(), b.gpu.Shareable()))
	})
	return out
}

func classOf(g *cluster.GPU) classKey { return classKey{g.Type, g.SellableMiB, g.Shareable(), 0} }

// sparingOf looks for cards that are large enough and could ever run job.
func sparingOf(places []place, job *cluster.Job, pol *Policy) sparing {
	s := sparing{least: job.MinGPUMemMiB}
	if job.Spec.GPUs == 0 {
		return s
	}
	cpu, mem := HostOf(job, pol)
	ever := func(p *place) bool { return p.cpu >= cpu && p.mem >= mem && p.count >= job.Spec.GPUs }
	for i := range places {
		g := places[i].gpu
		if e, _ := cluster.EstimateFor(job.Estimates, g.Type); s.least > 0 && s.observed == nil && g.SellableMiB >= s.least &&
			ever(&places[i]) && needOn(job, g, &e, pol).way != wayNone {
			s.observed = g
		}
	}
	for i := range places {
		g := places[i].gpu
		e, _ := cluster.EstimateFor(job.Estimates, g.Type)
		if nd := needOn(job, g, &e, pol); s.tight == nil && ever(&places[i]) && nd.way != wayNone && !nd.tight && s.veto(g, &nd) == vetoNone {
			s.tight = g
		}
	}
	return s
}

// veto reports whether the job leaves a card like g alone though its need nd
// could be laid there.
func (s *sparing) veto(g *cluster.GPU, nd *need) veto {
	switch {
	case nd.way == wayNone:
		return nd.why
	case s.observed != nil && g.SellableMiB < s.least:
		return vetoObserved
	case s.tight != nil && nd.tight:
		return vetoTight
	}
	return vetoNone
}

// words say it in numbers.
func (s *sparing) words(why veto, g *cluster.GPU, e *cluster.Estimate) string {
	if why == vetoObserved {
		return fmt.Sprintf("ran out of memory before and now needs %s, the card sells %s; %s holds it", gib(s.least), gib(g.SellableMiB), s.observed.Type)
	}
	return fmt.Sprintf("may take up to %s (95 %%), the card sells %s; %s holds it; declare the memory to overrule the prediction",
		gib(e.GPUMemP95MiB), gib(g.SellableMiB), s.tight.Type)
}
