package scheduler

import (
	"cmp"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
)

// item is one waiting job in a pass.
type item struct {
	job      *cluster.Job
	needs    []need // by class
	cpu, mem int64
	node     cluster.NodeID // copies of what the job asks for: the passes'
	gpus     int            // inner loops should not follow its pointers
	queue    int32          // the card in whose queue it stands, -1 for none
	gone     bool           // started in this pass
	kept     bool           // waited so long that nobody may overtake it
	kind     int32          // what is known of its manners; 0 is nothing
}

// rank decides the order of a pass: less goes first.
type rank struct {
	tier  int8
	first int64
	id    cluster.JobID
	item  int32
}

// Tiers of a pass. Partitions, accounts and fair share will come before them.
const (
	tierDue   int8 = iota // with a deadline: the earliest first, as Admit promised
	tierOld               // waited too long: first come, first served
	tierWhole             // whole GPUs and several GPUs, largest first
	tierShare             // shares, largest first
	tierPlain             // no GPU
)

// gather makes items of the jobs that may be placed, sorted by id.
func (p *pass) gather(waiting []*cluster.Job) {
	if !slices.IsSortedFunc(waiting, byJob) {
		waiting = slices.Clone(waiting)
		slices.SortFunc(waiting, byJob)
	}
	classes := len(p.f.classes)
	needs := make([]need, len(waiting)*classes)
	p.items = make([]item, 0, len(waiting))
	for _, j := range waiting {
		if !j.State.Waiting() || j.Cancel != nil {
			continue
		}
		it := item{job: j, queue: -1, gpus: j.Spec.GPUs, node: j.Spec.Node}
		it.cpu, it.mem = hostOf(j, p.pol)
		it.needs, needs = needs[:classes:classes], needs[classes:]
		if j.Spec.GPUs > 0 {
			p.fillNeeds(&it)
			if p.crowd != nil {
				it.kind = p.crowd.kindOf(j)
			}
		}
		if j.Queue != "" {
			if c, ok := p.f.cardAt[j.Queue]; ok {
				it.queue = c
			}
		}
		p.items = append(p.items, it)
	}
	p.indexItems()
}

func byJob(a, b *cluster.Job) int { return cmp.Compare(a.ID, b.ID) }

func (p *pass) fillNeeds(it *item) {
	var e cluster.Estimate
	known := ""
	for c := range p.f.classes {
		k := &p.f.classes[c]
		if c == 0 || k.gpuType != known {
			e, _ = cluster.EstimateFor(it.job.Estimates, k.gpuType)
			known = k.gpuType
		}
		it.needs[c] = needOn(it.job, k.rep, &e, &p.pol)
	}
	if it.job.MinGPUMemMiB > 0 {
		p.spareTooSmall(it)
	}
}

// spareTooSmall leaves out the classes on which the job is known to run out
// of memory, if there is one on which it is not.
func (p *pass) spareTooSmall(it *item) {
	large := func(c int) bool { return p.f.classes[c].sellable >= it.job.MinGPUMemMiB }
	for c := range it.needs {
		if it.needs[c].way == wayNone || !large(c) || !p.everOn(it, c) {
			continue
		}
		for o := range it.needs {
			if !large(o) && it.needs[o].way != wayNone {
				it.needs[o].way, it.needs[o].why = wayNone, vetoObserved
			}
		}
		return
	}
}

// everOn tells whether some node with cards of class c could ever run a job.
func (p *pass) everOn(it *item, c int) bool {
	return slices.ContainsFunc(p.f.classes[c].groups, func(g group) bool {
		h := &p.f.hosts[g.host]
		return h.use.CPUMilli >= it.cpu && h.use.MemMiB >= it.mem && int(g.hi-g.lo) >= it.gpus && (it.node == "" || it.node == h.node.ID)
	})
}

// indexItems makes item lookups by job cheap: ids of waiting jobs lie close
// together, so that a table over their range does it.
func (p *pass) indexItems() {
	n := len(p.items)
	if n == 0 {
		return
	}
	p.firstID = p.items[0].job.ID
	span := uint64(p.items[n-1].job.ID-p.firstID) + 1
	if span > 8*uint64(n)+1024 {
		return
	}
	p.byID = make([]int32, span)
	for i := range p.items {
		p.byID[p.items[i].job.ID-p.firstID] = int32(i) + 1
	}
}

// find returns the item of a job, nil when the pass does not know it.
func (p *pass) find(id cluster.JobID) *item {
	if p.byID != nil {
		if id < p.firstID || uint64(id-p.firstID) >= uint64(len(p.byID)) || p.byID[id-p.firstID] == 0 {
			return nil
		}
		return &p.items[p.byID[id-p.firstID]-1]
	}
	i, ok := slices.BinarySearchFunc(p.items, id, func(it item, id cluster.JobID) int { return cmp.Compare(it.job.ID, id) })
	if !ok {
		return nil
	}
	return &p.items[i]
}

// order returns the items in the order in which the pass tries them.
func (p *pass) order() []rank {
	out := make([]rank, len(p.items))
	for i := range p.items {
		it := &p.items[i]
		r := rank{id: it.job.ID, item: int32(i)}
		it.kept = p.isKept(it)
		switch n := int64(it.gpus); {
		case it.job.Spec.Deadline > 0:
			r.tier, r.first = tierDue, int64(it.job.Spec.Deadline)
		case it.kept || p.old(it.job):
			r.tier, r.first = tierOld, int64(it.job.Eligible)
		case n == 0:
			r.tier, r.first = tierPlain, -it.cpu
		default:
			size, whole := p.size(it)
			r.tier, r.first = tierShare, -size
			if whole || n > 1 {
				r.tier, r.first = tierWhole, -size*n
			}
		}
		out[i] = r
	}
	slices.SortFunc(out, func(a, b rank) int {
		switch {
		case a.tier != b.tier:
			return cmp.Compare(a.tier, b.tier)
		case a.first != b.first:
			return cmp.Compare(a.first, b.first)
		}
		return cmp.Compare(a.id, b.id)
	})
	return out
}

// size is the least dominant fraction of a card over the classes that can run
// the job, in thousandths, and whether all of them run it alone.
func (p *pass) size(it *item) (milli int64, whole bool) {
	milli, whole = cluster.WholeGPU, true
	for c := range it.needs {
		n := &it.needs[c]
		if n.way == wayShare {
			whole = false
			milli = min(milli, n.dominant(p.f.classes[c].sellable))
		}
	}
	return milli, whole
}

// old tells whether a job waited so long that size no longer counts.
func (p *pass) old(j *cluster.Job) bool {
	return p.pol.FIFOAge > 0 && p.now >= int64(j.Eligible.Add(p.pol.FIFOAge))
}

// isKept tells whether it stands at the head of its queue and may no longer
// be overtaken, or needs no GPU and waited too long.
func (p *pass) isKept(it *item) bool {
	if it.gpus == 0 {
		return p.old(it.job)
	}
	if it.queue < 0 {
		return false
	}
	q := p.f.cards[it.queue].queue
	return len(q) > 0 && q[0].Job == it.job.ID && overdue(it.job, q[0].Rank, p.now, &p.pol)
}

// overdue tells whether the head of a queue may no longer be overtaken; rank
// is that of its place.
func overdue(j *cluster.Job, rank, now int64, pol *Policy) bool {
	if pol.FIFOAge > 0 && now >= int64(j.Eligible.Add(pol.FIFOAge)) {
		return true
	}
	return now >= int64(max(j.Eligible, j.EstStart).Add(pol.ReserveAge)) || stoodLong(rank, now, pol)
}

// stoodLong tells whether somebody stands in a queue for QueueAge. Ranks are
// times of joining, so that this can be told of a job that nobody looks up.
func stoodLong(rank, now int64, pol *Policy) bool { return now-rank >= pol.QueueAge.Microseconds() }
