package cells

import (
	"cmp"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
)

// Request is a job that wants GPUs GPUs of one type on one node, or on each of
// several.
type Request struct {
	ID          cluster.JobID
	Tenant      string
	Preemptible bool
	// Sent says why a job with a checkpoint hook is not preemptible now, "" for
	// one that is, or has none.
	Sent    string
	GPUType string
	GPUs    int
	// Nodes is how many nodes at once, 0 as 1.
	Nodes int
	// Barred are tenants from whose cells it borrows none, since jobs of theirs
	// with a guarantee to these are about to start.
	Barred []string
}

// nodes returns how many nodes it runs on.
func (r *Request) nodes() int { return max(1, r.Nodes) }

// Answer is the outcome of a request.
type Answer struct {
	// GPUs are the GPUs it gets, none if it waits.
	GPUs []cluster.GPUID
	// Now means that they are all free; otherwise Victims have to end first, and
	// any job already ending there.
	Now bool
	// Victims are the jobs to end for it, sorted; empty if Now.
	Victims []cluster.JobID
	// Guaranteed means that its tenant's cells can hold it along with the tenant's
	// own jobs. Such a request always gets GPUs.
	Guaranteed bool
}

// rebinds bounds for how many places a changed binding is tried.
const rebinds = 64

// Guaranteed reports whether a tenant's cells can hold one more job of its own.
func (b *Binding) Guaranteed(tenant, gpuType string, gpus int) bool {
	return b.GuaranteedOn(tenant, gpuType, gpus, 1)
}

// GuaranteedOn is Guaranteed for a job on several nodes, with so many GPUs on each.
func (b *Binding) GuaranteedOn(tenant, gpuType string, gpus, nodes int) bool {
	t := b.tenantOf(tenant)
	pl := b.places[gpuType]
	if pl == nil || int(t) >= len(b.tenants) || gpus < 1 {
		return false
	}
	k := ask{t, gpuType, gpus, nodes}
	yes, known := b.asked[k]
	if !known {
		yes = pl.holds(t, append(b.charged(pl, t), pl.claimed(t)...), gpus, nodes)
		b.asked[k] = yes
	}
	return yes
}

// ask is a question that many requests share.
type ask struct {
	tenant  int32
	gpuType string
	gpus    int
	nodes   int
}

// claimed lists what is being cleared for a tenant.
func (pl *place) claimed(tenant int32) []load {
	var out []load
	for _, n := range pl.f.nodes {
		w := 0
		for i := n.lo; i < n.hi; i++ {
			if pl.claim[i] == tenant {
				w++
			}
		}
		if w > 0 {
			out = append(out, load{w, 1})
		}
	}
	return out
}

// Place answers a request and leaves the binding as it is, except for which blocks
// stand for whose cells; Take enters the answer. ok, if not nil, reports whether
// the rest of a node's resources hold the job once the victims have ended there;
// for a job on several nodes it is called for each.
func (b *Binding) Place(r Request, ok func(gpus []cluster.GPUID, victims []cluster.JobID) bool) Answer {
	pl := b.places[r.GPUType]
	if pl == nil || r.GPUs < 1 {
		return Answer{}
	}
	q := &query{b: b, pl: pl, r: r, t: b.tenantOf(r.Tenant), ok: ok, guaranteed: b.GuaranteedOn(r.Tenant, r.GPUType, r.GPUs, r.nodes())}
	mine := func(i int32) bool { return pl.label[i] == q.t }
	loose := func(i int32) bool { return pl.label[i] == free || pl.label[i] == q.t }
	any := func(i int32) bool {
		l := pl.label[i]
		return l < 0 || l == q.t || !slices.Contains(r.Barred, b.tenants[l].Name)
	}
	tries := []func() Answer{}
	if q.guaranteed {
		tries = append(tries, func() Answer { return q.best(mine, false) })
	}
	if q.guaranteed && q.inOneCell() { // closer together than where it would start at once
		tries = append(tries, func() Answer { return q.best(mine, true) })
	}
	tries = append(tries, func() Answer { return q.best(loose, false) })
	if q.guaranteed {
		tries = append(tries, func() Answer { return q.rebind(false) },
			func() Answer { return q.best(mine, true) }, func() Answer { return q.best(loose, true) }, func() Answer { return q.rebind(true) })
	}
	if r.Preemptible { // last: in a cell of others it would be preempted for them
		tries = append(tries, func() Answer { return q.best(any, false) })
	}
	for _, try := range tries {
		if a := try(); a.GPUs != nil {
			return a
		}
	}
	return Answer{Guaranteed: q.guaranteed}
}

// query is one request in progress.
type query struct {
	b          *Binding
	pl         *place
	r          Request
	t          int32
	ok         func([]cluster.GPUID, []cluster.JobID) bool
	guaranteed bool
}

// option is a set of GPUs in one block or node.
type option struct {
	leaves  []int32
	victims []*resident
	lost    int // GPUs that victims have in all
	size    int32
	splits  int32 // the size of the largest group around it that could be used
	spare   int   // leaves of the block that could be used and are not
}

func (q *query) answer(o *option) Answer {
	a := q.together([]*option{o})
	if q.ok != nil && !q.ok(a.GPUs, a.Victims) {
		return Answer{Guaranteed: q.guaranteed}
	}
	return a
}

// best returns the cheapest set of GPUs among those allowed.
func (q *query) best(allowed func(int32) bool, evict bool) Answer {
	opts := q.options(allowed, evict)
	if q.r.nodes() > 1 {
		return q.bestSpan(opts)
	}
	for i := range opts {
		if a := q.answer(&opts[i]); a.GPUs != nil {
			return a
		}
		if q.ok == nil {
			break
		}
	}
	return Answer{}
}

// usable reports whether a leaf is available: now, or once preemptible jobs have
// ended.
func (q *query) usable(i int32, evict bool) bool {
	if q.pl.f.leaves[i].gone || q.pl.claim[i] != free {
		return false
	}
	return !slices.ContainsFunc(q.pl.on[i], func(r *resident) bool { return r.own || !evict })
}

// options lists sets of GPUs, the best first: fewest victims, least lost by them,
// out of the smallest group that would be split, least left over, first.
func (q *query) options(allowed func(int32) bool, evict bool) []option {
	f := q.pl.f
	can := make([]bool, len(f.leaves))
	upTo := make([]int, len(f.leaves)+1) // how many before a leaf
	for i := range can {
		can[i] = allowed(int32(i)) && q.usable(int32(i), evict)
		upTo[i+1] = upTo[i]
		if can[i] {
			upTo[i+1]++
		}
	}
	count := func(s span) int { return upTo[s.hi] - upTo[s.lo] }
	var out []option
	add := func(s span, splits int32) {
		if count(s) < q.r.GPUs {
			return
		}
		var leaves []int32
		for i := s.lo; i < s.hi; i++ {
			if can[i] {
				leaves = append(leaves, i)
			}
		}
		o := q.choose(s, leaves)
		o.splits = splits
		out = append(out, o)
	}
	for l := level(q.r.GPUs); l <= f.whole && l < len(f.levels); l++ {
		for _, b := range f.levels[l] {
			splits := f.blocks[b].hi - f.blocks[b].lo
			for a := b; a >= 0 && count(f.blocks[a].span) == int(f.blocks[a].hi-f.blocks[a].lo); a = f.blocks[a].parent {
				splits = f.blocks[a].hi - f.blocks[a].lo
			}
			add(f.blocks[b].span, splits)
		}
	}
	for _, n := range f.nodes {
		add(n, n.hi-n.lo)
	}
	slices.SortStableFunc(out, func(x, y option) int {
		return cmp.Or(cmp.Compare(len(x.victims), len(y.victims)), cmp.Compare(x.lost, y.lost), cmp.Compare(x.size, y.size),
			cmp.Compare(x.splits, y.splits), cmp.Compare(x.spare, y.spare), cmp.Compare(x.leaves[0], y.leaves[0]))
	})
	return out
}

// choose takes as many usable leaves of a block as asked for, without needless
// victims, such that the smallest aligned groups are used up first.
func (q *query) choose(s span, can []int32) option {
	o := option{size: s.hi - s.lo, spare: len(can) - q.r.GPUs, victims: q.victims(can)}
	can = q.leavesWith(can, o.victims)
	in := map[int32]struct{}{}
	for _, i := range can {
		in[i] = struct{}{}
	}
	around := map[int32]int{}
	for _, i := range can {
		around[i] = q.around(i, s, in)
	}
	slices.SortStableFunc(can, func(x, y int32) int {
		return cmp.Or(-cmp.Compare(len(q.newVictims([]int32{x})), len(q.newVictims([]int32{y}))), cmp.Compare(around[x], around[y]), cmp.Compare(x, y))
	})
	o.leaves = slices.Clone(can[:q.r.GPUs])
	slices.Sort(o.leaves)
	for _, v := range o.victims {
		o.lost += len(v.GPUs)
	}
	return o
}

// victims chooses which jobs to end so that enough of some leaves are free:
// repeatedly the one that frees most, then loses least, then came last; finally it
// drops those that turned out not to be needed.
func (q *query) victims(can []int32) []*resident {
	var out []*resident
	all := q.newVictims(can)
	slices.SortFunc(all, func(x, y *resident) int {
		return cmp.Or(cmp.Compare(len(x.GPUs), len(y.GPUs)), -cmp.Compare(x.Since, y.Since), -cmp.Compare(x.ID, y.ID))
	})
	for len(q.leavesWith(can, out)) < q.r.GPUs {
		best, most := -1, -1
		for i, v := range all {
			if n := len(q.leavesWith(can, append(out[:len(out):len(out)], v))); !slices.Contains(out, v) && min(n, q.r.GPUs) > most {
				best, most = i, min(n, q.r.GPUs)
			}
		}
		out = append(out, all[best])
	}
	for i := 0; i < len(out); {
		if rest := slices.Delete(slices.Clone(out), i, i+1); len(q.leavesWith(can, rest)) >= q.r.GPUs {
			out = rest
		} else {
			i++
		}
	}
	return out
}

// leavesWith lists the leaves that are free once some victims have ended.
func (q *query) leavesWith(can []int32, vs []*resident) []int32 {
	var out []int32
	for _, i := range can {
		if !slices.ContainsFunc(q.newVictims([]int32{i}), func(v *resident) bool { return !slices.Contains(vs, v) }) {
			out = append(out, i)
		}
	}
	return out
}

// newVictims returns the jobs on leaves that are not ending yet.
func (q *query) newVictims(leaves []int32) []*resident {
	var out []*resident
	for _, i := range leaves {
		for _, r := range q.pl.on[i] {
			if !r.Ending && !slices.Contains(out, r) {
				out = append(out, r)
			}
		}
	}
	return out
}

// around returns the size of the largest aligned group around a leaf, within a
// span, of leaves of a set.
func (q *query) around(i int32, s span, in map[int32]struct{}) int {
	size := 1
	for w := int32(2); w <= s.hi-s.lo; w *= 2 {
		lo := s.lo + (i-s.lo)/w*w
		if lo+w > s.hi {
			break
		}
		for k := lo; k < lo+w; k++ {
			if _, ok := in[k]; !ok {
				return size
			}
		}
		size = int(w)
	}
	return size
}

// rebind looks for a place that would be right if blocks stood for other cells,
// since a guaranteed request must find one.
func (q *query) rebind(evict bool) Answer {
	opts := q.options(func(int32) bool { return true }, evict)
	if q.r.nodes() > 1 {
		return q.rebindSpan(opts)
	}
	for i := range opts {
		if i == rebinds && q.pl.broke {
			break
		}
		o := &opts[i]
		for _, l := range o.leaves {
			q.pl.claim[l] = q.t
		}
		cells, ok := q.pl.problem(q.b).solve()
		for _, l := range o.leaves {
			q.pl.claim[l] = free
		}
		if !ok {
			continue
		}
		if a := q.answer(o); a.GPUs != nil {
			q.pl.adopt(cells)
			return a
		}
	}
	return Answer{}
}

// Take enters the answer to a request: the job runs there or, if others have to end
// first, the GPUs are reserved for it.
func (b *Binding) Take(r Request, a Answer) {
	if len(a.GPUs) == 0 {
		return
	}
	clear(b.asked)
	t, pl := b.tenantOf(r.Tenant), b.places[r.GPUType]
	if a.Now {
		j := &resident{Job: Job{ID: r.ID, Tenant: r.Tenant, Preemptible: r.Preemptible, GPUs: a.GPUs, Since: 1<<63 - 1}, tenant: t}
		j.own = !r.Preemptible || a.Guaranteed && pl.mayOwn(j)
		b.enter(j)
		return
	}
	for _, g := range a.GPUs {
		if i, ok := pl.f.leafAt[g]; ok {
			pl.claim[i] = t
		}
	}
	for _, id := range a.Victims {
		if v := b.jobs[id]; v != nil {
			v.Ending = true
		}
	}
}
