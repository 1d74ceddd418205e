package cells

import "fmt"

// Widest returns the largest single-node job that a tenant's cells of a type could
// hold if they were empty.
func (b *Binding) Widest(tenant, gpuType string) int {
	pl, t := b.places[gpuType], b.tenantOf(tenant)
	if pl == nil {
		return 0
	}
	need := pl.flat(t)
	for l := MaxLevel; l >= 0; l-- {
		if need[l] > 0 {
			return 1 << l
		}
	}
	return 0
}

// wholeNodes returns how many nodes of a type a tenant's cells are, including those
// of several.
func (b *Binding) wholeNodes(tenant, gpuType string) int {
	pl := b.places[gpuType]
	return pl.flat(b.tenantOf(tenant))[pl.f.whole]
}

// EverHolds reports whether a tenant's cells could hold a request if they were empty.
func (b *Binding) EverHolds(r Request) bool {
	pl, t := b.places[r.GPUType], b.tenantOf(r.Tenant)
	return pl != nil && int(t) < len(b.tenants) && pl.holds(t, nil, r.GPUs, r.nodes())
}

// Why says in numbers why a request has to wait, as far as its tenant's cells go,
// and what would help. It is "" if they are not the reason.
func (b *Binding) Why(r Request) string {
	guaranteed := b.GuaranteedOn(r.Tenant, r.GPUType, r.GPUs, r.nodes())
	for _, s := range b.short {
		if s.Tenant == r.Tenant && s.GPUType == r.GPUType && s.GPUs >= r.GPUs && guaranteed {
			return s.String() + ": nodes are drained or silent, or others who may not be ended lie there"
		}
	}
	if guaranteed {
		return ""
	}
	if r.Tenant == "" {
		return say(r, "its user is of no team with a guarantee")
	}
	widest := b.Widest(r.Tenant, r.GPUType)
	if widest == 0 {
		return say(r, fmt.Sprintf("team %s is guaranteed no %s", r.Tenant, r.GPUType))
	}
	if n := b.wholeNodes(r.Tenant, r.GPUType); r.nodes() > 1 && n < r.nodes() {
		return say(r, fmt.Sprintf("the cells of team %s are %d whole nodes, and it needs %d at once", r.Tenant, n, r.nodes()))
	}
	if r.GPUs > widest {
		return say(r, fmt.Sprintf("the largest cells of team %s have %d GPUs, and it needs %d on one node", r.Tenant, widest, r.GPUs))
	}
	for _, u := range b.Usage(r.Tenant) {
		if u.GPUType != r.GPUType {
			continue
		}
		text := fmt.Sprintf("team %s has %d of %d GPUs of its cells in use", r.Tenant, min(u.Used, u.GPUs), u.GPUs)
		if u.Used < u.GPUs {
			text += fmt.Sprintf(", and no cell holds %d more", r.GPUs)
			if r.nodes() > 1 {
				text += fmt.Sprintf(" on each of %d nodes", r.nodes())
			}
		}
		return say(r, text)
	}
	return ""
}

func say(r Request, why string) string {
	if r.Sent != "" {
		return why + "; " + r.Sent
	}
	if r.Preemptible {
		return why + "; it borrows as soon as cards are idle"
	}
	return why + "; it may borrow when preemptible: submit with a checkpoint hook"
}
