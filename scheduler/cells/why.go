package cells

import "fmt"

// Widest is the largest job of one node that a tenant's cells of a type could
// hold if they were empty.
func (b *Binding) Widest(tenant, gpuType string) int {
	pl, t := b.places[gpuType], b.tenantOf(tenant)
	if pl == nil {
		return 0
	}
	for l := MaxLevel; l >= 0; l-- {
		if pl.need[t][l] > 0 {
			return 1 << l
		}
	}
	return 0
}

// Why says in numbers why a request has to wait, as far as its tenant's cells
// go, and what would help. It is "" when they are not the reason.
func (b *Binding) Why(r Request) string {
	for _, s := range b.short {
		if s.Tenant == r.Tenant && s.GPUType == r.GPUType && s.GPUs >= r.GPUs && b.Guaranteed(r.Tenant, r.GPUType, r.GPUs) {
			return s.String() + ": nodes are drained or silent, or others who may not be ended lie there"
		}
	}
	if b.Guaranteed(r.Tenant, r.GPUType, r.GPUs) {
		return ""
	}
	if r.Tenant == "" {
		return say(r, "its user is of no team with a guarantee")
	}
	widest := b.Widest(r.Tenant, r.GPUType)
	if widest == 0 {
		return say(r, fmt.Sprintf("team %s is guaranteed no %s", r.Tenant, r.GPUType))
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
