package nodes

import (
	"slices"

	"github.com/berth-scheduler/berth/cluster"
)

// Lay records that a job is on a GPU. The order is that of ids, so that a restored
// replica has the same.
func (f *Fleet) Lay(gpu cluster.GPUID, id cluster.JobID) {
	on := f.gpuJobs[gpu]
	i, _ := slices.BinarySearch(on, id)
	f.gpuJobs[gpu] = slices.Concat(on[:i], []cluster.JobID{id}, on[i:])
}

// Release releases what the live attempt of old holds.
func (f *Fleet) Release(old *cluster.Job) []cluster.GPUID {
	var freed []cluster.GPUID
	for _, b := range old.Last().Held() {
		freed = append(freed, f.ReleaseBerth(old.ID, b)...)
	}
	return freed
}

// ReleaseBerth releases what a job holds on one node.
func (f *Fleet) ReleaseBerth(job cluster.JobID, b *cluster.Berth) []cluster.GPUID {
	f.ledger.Release(b)
	var freed []cluster.GPUID
	for _, g := range b.GPUs {
		freed = append(freed, g.GPU)
		on := slices.DeleteFunc(slices.Clone(f.gpuJobs[g.GPU]), func(id cluster.JobID) bool { return id == job })
		if len(on) == 0 {
			delete(f.gpuJobs, g.GPU)
		} else {
			f.gpuJobs[g.GPU] = on
		}
	}
	return freed
}

// Reshare replaces the shares of a, and returns the GPUs on which that freed
// something. b is the copy of a that is to be stored.
func (f *Fleet) Reshare(a, b *cluster.Attempt, to []cluster.GPUShare) (freed []cluster.GPUID) {
	f.ledger.Release(&a.Berth)
	b.Berth.GPUs = slices.Clone(to)
	f.ledger.Take(&b.Berth)
	for _, g := range to {
		freed = append(freed, g.GPU)
	}
	return freed
}

// GiveBack restores an attempt's previous shares, if they are still free.
func (f *Fleet) GiveBack(a, b *cluster.Attempt, was []cluster.GPUShare) bool {
	f.ledger.Release(&a.Berth)
	had := a.Berth
	had.GPUs = slices.Clone(was)
	if f.ledger.Fits(&had).Code != "" {
		f.ledger.Take(&a.Berth)
		return false
	}
	f.ledger.Take(&had)
	b.Berth = had
	return true
}

// Within reports whether shares are of the same GPUs in the same order as most, and none
// is larger.
func Within(shares, most []cluster.GPUShare) bool {
	return slices.EqualFunc(shares, most, func(x, m cluster.GPUShare) bool {
		return x.GPU == m.GPU && x.Share.MemMiB > 0 && x.Share.Milli > 0 && x.Share.MemMiB <= m.Share.MemMiB &&
			x.Share.Milli <= m.Share.Milli && (!x.Share.Exclusive || m.Share.Exclusive)
	})
}

// Smaller reports whether cut are shares of the same GPUs in the same order, none
// larger than in have and none exclusive.
func Smaller(cut, have []cluster.GPUShare) bool {
	return slices.EqualFunc(cut, have, func(c, h cluster.GPUShare) bool {
		whole := h.Share.Exclusive
		return c.GPU == h.GPU && c.Share.MemMiB > 0 && c.Share.Milli > 0 && !c.Share.Exclusive &&
			(whole || c.Share.MemMiB <= h.Share.MemMiB && c.Share.Milli <= h.Share.Milli) && c.Share.Milli <= cluster.WholeGPU
	})
}

// Larger returns a, shares of the same GPUs in the same order as b, with each
// amount raised to b's where that is more.
func Larger(a, b []cluster.GPUShare) []cluster.GPUShare {
	out := slices.Clone(a)
	for i := range out {
		x, y := &out[i].Share, b[i].Share
		x.MemMiB, x.Milli, x.Exclusive = max(x.MemMiB, y.MemMiB), max(x.Milli, y.Milli), x.Exclusive || y.Exclusive
	}
	return out
}
