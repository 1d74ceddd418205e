package deadline

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/scheduler/rules"
	"github.com/berth-scheduler/berth/scheduler/say"
)

// want is what a job takes: so many nodes at once, with so many GPUs on each or, if
// they are to be its alone, with all.
type want struct {
	nodes, gpus int
	whole       bool
}

// slotNode is the slots of one type on one node.
type slotNode struct {
	id cluster.NodeID
	at []int
	// like tells apart GPUs of one type that are not the same to a job on several
	// nodes: the slots are on such a GPU, nil if they differ among each other.
	like *cluster.GPU
}

// slotNodes groups the slots of a type, in the order in which nodes come first.
func slotNodes(slots []slot) (nodes []slotNode, of map[cluster.NodeID]int) {
	of = map[cluster.NodeID]int{}
	for i := range slots {
		k, ok := of[slots[i].node]
		if !ok {
			k = len(nodes)
			of[slots[i].node] = k
			nodes = append(nodes, slotNode{id: slots[i].node})
		}
		nodes[k].at = append(nodes[k].at, i)
	}
	return nodes, of
}

// likeOf returns the GPU that those of a node are like, nil if they differ.
func (d *demand) likeOf(slots []slot, at []int) *cluster.GPU {
	n := d.node[slots[at[0]].node]
	g := n.GPU(slots[at[0]].gpu)
	if slices.ContainsFunc(at, func(i int) bool { return !alike(g, n.GPU(slots[i].gpu)) }) {
		return nil
	}
	return g
}

// alike reports whether a job on several nodes may have both of two GPUs of a type.
func alike(g, o *cluster.GPU) bool {
	return g.SellableMiB == o.SellableMiB && g.Shareable() == o.Shareable()
}

// asked returns the node that a job asks for, nil if any will do.
func asked(j *cluster.Job) []cluster.NodeID {
	if j.Spec.Node == "" {
		return nil
	}
	return []cluster.NodeID{j.Spec.Node}
}

// stays returns the nodes on which a job was planned before; nil if there are none,
// or not all of them can have it.
func (d *demand) stays(j *cluster.Job) []cluster.NodeID {
	on := j.Promised
	if c := d.planned[j]; len(c.Nodes) > 0 {
		on = c.Nodes
	} else if n := d.nodeOf[j.Queue]; n != "" {
		return []cluster.NodeID{n}
	}
	if len(on) < j.Spec.NodeCount() || slices.ContainsFunc(on, func(n cluster.NodeID) bool { return d.open[n] == 0 || j.HeldUpBy(n) }) {
		return nil
	}
	return on
}

// among returns the nodes with GPUs of a type, or those of the given ones.
func (d *demand) among(gpuType string, on []cluster.NodeID) []slotNode {
	if on == nil {
		return d.nodes[gpuType]
	}
	var out []slotNode
	for _, n := range on {
		if k, ok := d.at[gpuType][n]; ok {
			out = append(out, d.nodes[gpuType][k])
		}
	}
	return out
}

// room is where a job may be placed on GPUs of one type.
type room struct {
	d     *demand
	job   *cluster.Job
	slots []slot
	nodes []slotNode
	left  int // how many slots may be promised that are not yet
	may   func(*slot) bool
}

// earliest returns the slots that a job wants and that are free together first, nil
// if there are none.
func (r *room) earliest(w want) (at []int, start int64) {
	start = rules.Forever
	if w.nodes > 1 || w.whole {
		c, on := r.together(w, rules.Forever)
		if on == nil {
			return nil, start
		}
		return on, c.Start
	}
	for k := range r.nodes {
		own := r.usable(r.nodes[k].at)
		if len(own) < w.gpus {
			continue
		}
		slices.SortFunc(own, func(a, b int) int { return cmp.Or(cmp.Compare(r.slots[a].free, r.slots[b].free), cmp.Compare(a, b)) })
		if own = r.first(own, w.gpus); own == nil {
			continue
		}
		if s := r.slots[own[w.gpus-1]].free; s < start {
			at, start = own, s
		}
	}
	return at, start
}

// usable returns those of the slots at that the job may have.
func (r *room) usable(at []int) []int {
	own := make([]int, 0, len(at))
	for _, i := range at {
		if (r.left > 0 || r.slots[i].mine) && (r.may == nil || r.may(&r.slots[i])) {
			own = append(own, i)
		}
	}
	return own
}

// first returns the first n of slots of which no more are promised anew than may be,
// nil if there are not so many.
func (r *room) first(own []int, n int) []int {
	left := r.left
	out := make([]int, 0, n)
	for _, i := range own {
		if len(out) == n {
			break
		}
		if !r.slots[i].mine {
			if left == 0 {
				continue
			}
			left--
		}
		out = append(out, i)
	}
	if len(out) < n {
		return nil
	}
	return out
}

// cleared is earliest with preemption for jobs that would start after latest: on
// the nodes where the job starts by then and the preempted ones lose least.
func (r *room) cleared(w want, latest int64) (best Check, at []int) {
	if w.nodes > 1 || w.whole {
		return r.together(w, latest)
	}
	best.Start, best.lost = rules.Forever, rules.Forever
	for k := range r.nodes {
		own := r.usable(r.nodes[k].at)
		if len(own) < w.gpus {
			continue
		}
		slices.SortFunc(own, r.sooner(latest))
		if own = r.first(own, w.gpus); own == nil {
			continue
		}
		if c := r.check(own, latest); c.better(&best, latest) {
			best, at = c, own
		}
	}
	return best, at
}

// sooner orders slots by when a job has them that must start by latest, then by what
// is lost for that.
func (r *room) sooner(latest int64) func(a, b int) int {
	return func(a, b int) int {
		x, y := &r.slots[a], &r.slots[b]
		return cmp.Or(cmp.Compare(max(latest, x.due(latest)), max(latest, y.due(latest))), cmp.Compare(x.loses(latest), y.loses(latest)),
			cmp.Compare(x.free, y.free), cmp.Compare(a, b))
	}
}

// check returns when a job has the slots, and who yields for that.
func (r *room) check(on []int, latest int64) (c Check) {
	for _, i := range on {
		c.Start = max(c.Start, r.slots[i].due(latest))
		for _, j := range r.slots[i].yields(latest) {
			if !slices.Contains(c.Yield, j) {
				c.Yield = append(c.Yield, j)
			}
		}
	}
	for _, j := range c.Yield {
		c.lost += lostBy(j, r.d.now)
	}
	return c
}

// part is what a job on several nodes could have of one of them by some time.
type part struct {
	node  *slotNode
	own   []int // its slots, in the order in which they are taken
	fresh int   // how many of them would be promised anew
	named bool  // the job asks for the node
	start int64
	lost  int64
}

// together returns the slots that a job wants on several nodes, or on whole ones,
// and has together first, if it starts by latest all the same to it; nil if there are
// none. The nodes' GPUs are alike.
func (r *room) together(w want, latest int64) (best Check, at []int) {
	var likes []*cluster.GPU
	for k := range r.nodes {
		g := r.nodes[k].like
		if g == nil || slices.ContainsFunc(likes, func(o *cluster.GPU) bool { return alike(g, o) }) {
			continue
		}
		likes = append(likes, g)
		var times []int64
		for _, i := range r.alikeTo(g) {
			times = append(times, r.byWhen(i, w, latest))
		}
		slices.Sort(times)
		times = slices.Compact(times)
		t, _ := slices.BinarySearchFunc(times, true, func(at int64, _ bool) int {
			if r.choose(g, w, at, latest) == nil {
				return -1
			}
			return 0
		})
		if t == len(times) {
			continue
		}
		on := r.choose(g, w, times[t], latest)
		c := r.check(on, latest)
		for _, i := range on {
			if w.whole {
				c.Start = max(c.Start, r.d.cores[r.slots[i].node])
			}
		}
		if at == nil || c.better(&best, latest) {
			best, at = c, on
		}
	}
	return best, at
}

// alikeTo returns the slots that are like a GPU.
func (r *room) alikeTo(g *cluster.GPU) (out []int) {
	for k := range r.nodes {
		if n := &r.nodes[k]; n.like != nil && alike(g, n.like) {
			out = append(out, n.at...)
		}
	}
	return out
}

// byWhen returns when a job has a slot; by which time of those before latest is all
// the same to it.
func (r *room) byWhen(i int, w want, latest int64) int64 {
	s := &r.slots[i]
	at := s.due(latest)
	if w.whole {
		at = max(at, r.d.cores[s.node])
	}
	if latest < rules.Forever {
		at = max(at, latest)
	}
	return at
}

// choose returns the slots of as many nodes as a job wants, with GPUs like g, that it
// has by a time; nil if there are too few. Of more, those come first that it asks
// for, of which the fewest are promised anew if few may be, that did not delay it
// before, where least is lost, and that are free first.
func (r *room) choose(g *cluster.GPU, w want, by, latest int64) (on []int) {
	var parts []part
	tight := r.left < w.nodes*w.gpus || w.whole
	for k := range r.nodes {
		n := &r.nodes[k]
		if n.like == nil || !alike(g, n.like) {
			continue
		}
		if p, ok := r.partOf(n, w, by, latest, tight); ok {
			parts = append(parts, p)
		}
	}
	slices.SortStableFunc(parts, func(a, b part) int {
		fewer := 0
		if tight {
			fewer = cmp.Compare(a.fresh, b.fresh)
		}
		return cmp.Or(rules.CompareBool(!a.named, !b.named), fewer, rules.CompareBool(r.job.HeldUpBy(a.node.id), r.job.HeldUpBy(b.node.id)),
			cmp.Compare(a.lost, b.lost), cmp.Compare(a.start, b.start))
	})
	if len(parts) < w.nodes {
		return nil
	}
	left, named := r.left, 0
	for _, p := range parts[:w.nodes] {
		left -= p.fresh
		if p.named {
			named++
		}
		on = append(on, p.own...)
	}
	if where := r.job.Spec.Where; left < 0 || where.Named() && named < min(w.nodes, where.Nodes.Len()) {
		return nil
	}
	return on
}

// partOf returns what the job could have of a node by a time.
func (r *room) partOf(n *slotNode, w want, by, latest int64, tight bool) (p part, ok bool) {
	own := slices.DeleteFunc(r.usable(n.at), func(i int) bool { return r.byWhen(i, w, latest) > by })
	if w.whole {
		if len(own) < r.d.open[n.id] || len(own) > cluster.MaxGPUsPerJob {
			return p, false
		}
		w.gpus = max(w.gpus, len(own))
	}
	if len(own) < w.gpus {
		return p, false
	}
	sooner := r.sooner(latest)
	slices.SortFunc(own, func(a, b int) int {
		mine := 0
		if tight {
			mine = rules.CompareBool(!r.slots[a].mine, !r.slots[b].mine)
		}
		return cmp.Or(mine, sooner(a, b))
	})
	p = part{node: n, own: own[:w.gpus], named: r.job.Spec.Where.Named() && r.job.Spec.Where.Nodes.Holds(n.id)}
	for _, i := range p.own {
		if !r.slots[i].mine {
			p.fresh++
		}
	}
	c := r.check(p.own, latest)
	p.start, p.lost = c.Start, c.lost
	return p, true
}

// lacking says what a job needs at once and no GPUs are enough for.
func lacking(j *cluster.Job) string {
	n, gpus := j.Spec.NodeCount(), say.GPUs(j.Spec.GPUs)
	switch {
	case j.Spec.WholeNodes() && n > 1:
		return say.Nodes(n) + " have all of their GPUs"
	case j.Spec.WholeNodes():
		return "node has all of its GPUs"
	case n > 1:
		return fmt.Sprintf("%s have %s each, of one type and alike,", say.Nodes(n), gpus)
	}
	return "node has " + gpus
}
