package rules

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
)

// ClassKey is what a job's need on a GPU depends on. GPUs of one type that sell
// different amounts, as after a driver update on half of the nodes, are different
// classes.
type ClassKey struct {
	GPUType   string
	Sellable  int64
	Shareable bool
	Realm     int32
}

// Alike reports whether GPUs differ at most in their realm.
func (k *ClassKey) Alike(o *ClassKey) bool {
	return k.GPUType == o.GPUType && k.Sellable == o.Sellable && k.Shareable == o.Shareable
}

// Compare orders classes by type, then by what they sell, whether they are shared, and realm.
func (k *ClassKey) Compare(o *ClassKey) int {
	return cmp.Or(cmp.Compare(k.GPUType, o.GPUType), cmp.Compare(k.Sellable, o.Sellable), CompareBool(k.Shareable, o.Shareable), cmp.Compare(k.Realm, o.Realm))
}

func classOf(g *cluster.GPU) ClassKey { return ClassKey{g.Type, g.SellableMiB, g.Shareable(), 0} }

// Place is a kind of GPU on a kind of node.
type Place struct {
	gpu      *cluster.GPU
	cpu, mem int64
	count    int
}

// PlacesOf lists the kinds of GPUs on kinds of nodes that take jobs, in the order
// of classes, so that a job need not check thousands of identical ones.
func PlacesOf(nodes []*cluster.Node) []Place {
	type kind struct {
		ClassKey
		cpu, mem int64
		count    int
	}
	seen := map[kind]bool{}
	var out []Place
	for _, n := range nodes {
		if !n.Schedulable() {
			continue
		}
		counts := map[ClassKey]int{}
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
				out = append(out, Place{g, k.cpu, k.mem, k.count})
			}
		}
	}
	slices.SortStableFunc(out, func(a, b Place) int {
		return cmp.Or(cmp.Compare(a.gpu.Type, b.gpu.Type), cmp.Compare(a.gpu.SellableMiB, b.gpu.SellableMiB),
			CompareBool(a.gpu.Shareable(), b.gpu.Shareable()))
	})
	return out
}

// Sparing is what spareTooSmall does for one job, computed from nodes for a user's
// question: which GPUs it excludes, and which would do.
type Sparing struct {
	least           int64 // what the job must have after an out-of-memory
	observed, tight *cluster.GPU
}

// SparingOf looks for GPUs that are large enough and could ever run job.
func SparingOf(places []Place, job *cluster.Job, pol *Policy) Sparing {
	s := Sparing{least: job.MinGPUMemMiB}
	if job.Spec.GPUs == 0 {
		return s
	}
	cpu, mem := HostOf(job, pol)
	ever := func(p *Place) bool { return p.cpu >= cpu && p.mem >= mem && p.count >= job.Spec.GPUs }
	for i := range places {
		g := places[i].gpu
		if e, _ := cluster.EstimateFor(job.Estimates, g.Type); s.least > 0 && s.observed == nil && g.SellableMiB >= s.least &&
			ever(&places[i]) && NeedOn(job, g, &e, pol).Way != WayNone {
			s.observed = g
		}
	}
	for i := range places {
		g := places[i].gpu
		e, _ := cluster.EstimateFor(job.Estimates, g.Type)
		if nd := NeedOn(job, g, &e, pol); s.tight == nil && ever(&places[i]) && nd.Way != WayNone && !nd.Tight && s.Veto(g, &nd) == VetoNone {
			s.tight = g
		}
	}
	return s
}

// Veto reports whether the job avoids a GPU like g although its need nd would fit
// there.
func (s *Sparing) Veto(g *cluster.GPU, nd *Need) Veto {
	switch {
	case nd.Way == WayNone:
		return nd.Why
	case s.observed != nil && g.SellableMiB < s.least:
		return VetoObserved
	case s.tight != nil && nd.Tight:
		return VetoTight
	}
	return VetoNone
}

// Words says so in numbers.
func (s *Sparing) Words(why Veto, g *cluster.GPU, e *cluster.Estimate) string {
	if why == VetoObserved {
		return fmt.Sprintf("ran out of memory before and now needs %s, the card sells %s; %s holds it", cluster.MemText(s.least), cluster.MemText(g.SellableMiB), s.observed.Type)
	}
	return fmt.Sprintf("may take up to %s (95 %%), the card sells %s; %s holds it; declare the memory to overrule the prediction",
		cluster.MemText(e.GPUMemP95MiB), cluster.MemText(g.SellableMiB), s.tight.Type)
}

// ByNode compares nodes by their ids.
func ByNode(a, b *cluster.Node) int { return cmp.Compare(a.ID, b.ID) }

// SortedNodes returns a copy of nodes in order of their ids.
func SortedNodes(nodes []*cluster.Node) []*cluster.Node {
	nodes = slices.Clone(nodes)
	slices.SortFunc(nodes, ByNode)
	return nodes
}

// CompareBool puts false before true.
func CompareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}
