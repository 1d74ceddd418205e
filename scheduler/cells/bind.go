package cells

import (
	"cmp"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
)

// Job is a job that holds GPUs.
type Job struct {
	ID     cluster.JobID
	Tenant string
	// Preemptible jobs may run in cells of others, until those are asked for.
	Preemptible bool
	// Ending means that its GPUs are already being cleared: no job counts on it,
	// and none can use them yet.
	Ending bool
	// Since is when it was placed: of a tenant's preemptible jobs the first count
	// as its own, as far as its cells go.
	Since cluster.Time
	GPUs  []cluster.GPUID
}

// Binding is which blocks of the cluster currently stand for whose cells, and which
// jobs run where. It is computed from the running jobs; equal arguments give an
// equal one, in whatever order they are listed.
type Binding struct {
	tenants []Tenant
	index   map[string]int32
	types   map[string]*forest
	places  map[string]*place
	names   []string // of types, sorted
	jobs    map[cluster.JobID]*resident
	short   []Shortage
	asked   map[ask]bool // until the next start
}

// resident is a job as a binding sees it.
type resident struct {
	Job
	tenant int32
	// own jobs may not be ended: they are not preemptible, or count towards their
	// tenant's guarantee.
	own bool
}

// place is the state of one type.
type place struct {
	f     *forest
	need  [][]int
	on    [][]*resident // by leaf
	claim []int32       // by leaf: the tenant for which it is being cleared, or free
	label []int32       // by leaf: whose cell it is in, or free
	cells []bound
	broke bool // some cell has no block
}

// Bind computes the binding of a fleet. Nodes that take no jobs count as gone. If
// the guarantees cannot all be kept, Short says which.
func Bind(nodes []*cluster.Node, tenants []Tenant, jobs []Job) *Binding {
	b := &Binding{tenants: sortTenants(tenants), index: map[string]int32{}, types: forests(nodes), places: map[string]*place{}, jobs: map[cluster.JobID]*resident{}, asked: map[ask]bool{}}
	for i := range b.tenants {
		b.index[b.tenants[i].Name] = int32(i)
		for _, c := range b.tenants[i].Cells {
			if b.types[c.GPUType] == nil {
				b.types[c.GPUType] = &forest{gpuType: c.GPUType, leafAt: map[cluster.GPUID]int32{}}
			}
		}
	}
	for t := range b.types {
		b.names = append(b.names, t)
	}
	slices.Sort(b.names)
	for _, t := range b.names {
		f := b.types[t]
		pl := &place{f: f, need: needs(b.tenants, t), on: make([][]*resident, len(f.leaves)), claim: filled(len(f.leaves)), label: filled(len(f.leaves))}
		b.places[t] = pl
	}
	jobs = slices.Clone(jobs)
	slices.SortFunc(jobs, func(x, y Job) int { return cmp.Or(cmp.Compare(x.Since, y.Since), cmp.Compare(x.ID, y.ID)) })
	for i := range jobs {
		b.enter(&resident{Job: jobs[i], tenant: b.tenantOf(jobs[i].Tenant), own: !jobs[i].Preemptible && !jobs[i].Ending})
	}
	for _, t := range b.names {
		b.bindType(b.places[t])
	}
	return b
}

func filled(n int) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = free
	}
	return out
}

func (b *Binding) tenantOf(name string) int32 {
	if i, ok := b.index[name]; ok {
		return i
	}
	return int32(len(b.tenants))
}

// enter places a job on its GPUs.
func (b *Binding) enter(r *resident) {
	b.jobs[r.ID] = r
	for _, g := range r.GPUs {
		for _, t := range b.names {
			if i, ok := b.types[t].leafAt[g]; ok {
				b.places[t].on[i] = append(b.places[t].on[i], r)
			}
		}
	}
}

// bindType finds a block for each cell and determines which preemptible jobs count
// as their tenant's own: those that its cells would hold if they were packed well,
// as long as no other tenant loses cells by it.
func (b *Binding) bindType(pl *place) {
	firmOnly, ok := pl.problem(b).solve()
	if !ok {
		p := pl.problem(b)
		pl.broke = true
		pl.adopt(p.partial())
		b.tellShort(pl, p)
	} else {
		pl.adopt(firmOnly)
	}
	within := b.withinGuarantee(pl)
	if len(within) == 0 {
		return
	}
	if pl.broke {
		for _, r := range within {
			r.own = pl.inside(r)
		}
		return
	}
	for _, r := range within {
		r.own = true
	}
	if all, ok := pl.problem(b).solve(); ok {
		pl.adopt(all)
		return
	}
	for _, r := range within {
		r.own = false
	}
	for _, r := range within {
		r.own = true
		if more, ok := pl.problem(b).solve(); ok {
			pl.adopt(more)
		} else {
			r.own = false
		}
	}
}

// withinGuarantee lists the preemptible jobs of a type that their tenant's cells
// could hold in addition to its own, first come first.
func (b *Binding) withinGuarantee(pl *place) []*resident {
	var out []*resident
	seen := map[cluster.JobID]struct{}{}
	var all []*resident
	for _, on := range pl.on {
		for _, r := range on {
			if _, ok := seen[r.ID]; !ok && r.Preemptible && !r.Ending && int(r.tenant) < len(b.tenants) {
				seen[r.ID] = struct{}{}
				all = append(all, r)
			}
		}
	}
	slices.SortFunc(all, func(x, y *resident) int { return cmp.Or(cmp.Compare(x.Since, y.Since), cmp.Compare(x.ID, y.ID)) })
	loads := make([][]load, len(b.tenants))
	for t := range loads {
		loads[t] = b.charged(pl, int32(t))
	}
	charged := make([]bool, len(pl.on))
	for i := range pl.on {
		charged[i] = slices.ContainsFunc(pl.on[i], func(o *resident) bool { return o.own })
	}
	for _, r := range all {
		ws := map[int32]int{} // by node
		for _, g := range r.GPUs {
			if i, ok := pl.f.leafAt[g]; ok && !charged[i] {
				ws[pl.f.leaves[i].node]++
			}
		}
		l := loadOf(ws)
		if l.nodes > 0 && !pl.holds(r.tenant, loads[r.tenant], l.width, l.nodes) {
			continue
		}
		out = append(out, r)
		if l.nodes > 0 {
			loads[r.tenant] = append(loads[r.tenant], l)
		}
		for _, g := range r.GPUs {
			if i, ok := pl.f.leafAt[g]; ok {
				charged[i] = true
			}
		}
	}
	return out
}

// inside reports whether a job is wholly in cells of its tenant.
func (pl *place) inside(r *resident) bool {
	return !slices.ContainsFunc(r.GPUs, func(g cluster.GPUID) bool {
		i, ok := pl.f.leafAt[g]
		return ok && pl.label[i] != r.tenant
	})
}

// mayOwn reports whether a job is in no cell of others.
func (pl *place) mayOwn(r *resident) bool {
	return !slices.ContainsFunc(r.GPUs, func(g cluster.GPUID) bool {
		i, ok := pl.f.leafAt[g]
		return ok && pl.label[i] != r.tenant && pl.label[i] != free
	})
}

// problem returns the binding problem of the type as it is.
func (pl *place) problem(b *Binding) *problem {
	n := len(pl.f.leaves)
	firm, busy := filled(n), make([]bool, n)
	for i := range firm {
		firm[i], busy[i] = pl.holder(i), len(pl.on[i]) > 0
	}
	used := make([][]int, len(pl.need))
	for t := range used {
		used[t] = pl.usedCells(int32(t), b.charged(pl, int32(t)))
	}
	return newProblem(pl.f, pl.need, used, firm, busy)
}

// holder returns the permanent holder of a leaf: the tenant whose job may not be
// ended there or for which it is being cleared.
func (pl *place) holder(i int) int32 {
	h := pl.claim[i]
	if pl.f.leaves[i].gone {
		return mixed
	}
	for _, r := range pl.on[i] {
		switch {
		case !r.own || r.tenant == h:
		case h == free:
			h = r.tenant
		default:
			return mixed
		}
	}
	return h
}

func (pl *place) adopt(cells []bound) {
	pl.cells = slices.Clone(cells)
	for i := range pl.label {
		pl.label[i] = free
	}
	for _, c := range cells {
		b := &pl.f.blocks[c.block]
		for i := b.lo; i < b.hi; i++ {
			pl.label[i] = c.tenant
		}
	}
}

func (b *Binding) tellShort(pl *place, p *problem) {
	for t := range b.tenants {
		for l := MaxLevel; l >= 0; l-- {
			if n := p.short[t][l]; n > 0 {
				b.short = append(b.short, Shortage{b.tenants[t].Name, pl.f.gpuType, 1 << l, pl.need[t][l], n})
			}
		}
	}
}

// Short lists the guarantees that the hardware in service cannot keep, by type,
// tenant and size; none if all are kept.
func (b *Binding) Short() []Shortage { return b.short }

// Own reports whether a job is safe: it is not preemptible, or counts towards its
// tenant's guarantee.
func (b *Binding) Own(id cluster.JobID) bool {
	r := b.jobs[id]
	return r != nil && r.own
}

// Holder returns in whose cell a GPU is; ok is false for one that is guaranteed to
// no tenant, or unknown.
func (b *Binding) Holder(gpu cluster.GPUID) (tenant string, ok bool) {
	for _, t := range b.names {
		if i, in := b.types[t].leafAt[gpu]; in {
			if l := b.places[t].label[i]; l >= 0 {
				return b.tenants[l].Name, true
			}
			return "", false
		}
	}
	return "", false
}
