package mirror

import (
	"cmp"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/scheduler/rules"
)

// Run is an attempt that holds shares: one of the snapshot, or one that this
// pass starts.
type Run struct {
	Job   *cluster.Job
	Berth *cluster.Berth
	Est   cluster.Estimate
	Began int64
	// host and cards are its place in the mirror, -1 for a host that takes no jobs;
	// revision is that of the job when this was looked up.
	host     int32
	cards    []int32
	Revision uint64
	// End is when it is expected to end, Latest when it must have.
	End, Latest int64
	Fresh       bool
	// An attempt on several nodes is as many consecutive runs: this is the one at
	// Part, from 0 on, of Parts; both are 0 for an attempt on one.
	Part, Parts int32
}

// Resident is a share of a GPU.
type Resident struct {
	Run   int32 // in Fleet.Runs
	Share cluster.Share
}

// AddRun enters a run on its host and GPUs.
func (f *Fleet) AddRun(r Run) {
	f.Locate(&r)
	f.Runs = append(f.Runs, r)
	f.Enter(int32(len(f.Runs) - 1))
}

// Locate finds the places of a run in the mirror.
func (f *Fleet) Locate(r *Run) {
	r.host = -1
	if hi, ok := f.HostAt[r.Berth.Node]; ok {
		r.host = hi
	}
	r.cards = make([]int32, len(r.Berth.GPUs))
	for i, g := range r.Berth.GPUs {
		r.cards[i] = -1
		if ci, ok := f.CardAt[g.GPU]; ok {
			r.cards[i] = ci
		}
	}
}

// Enter records a run where it is.
func (f *Fleet) Enter(ri int32) {
	r := &f.Runs[ri]
	if r.host >= 0 {
		f.Hosts[r.host].Runs = append(f.Hosts[r.host].Runs, ri)
	}
	for i, ci := range r.cards {
		if ci >= 0 {
			c := &f.Cards[ci]
			c.On = append(c.On, Resident{ri, r.Berth.GPUs[i].Share})
		}
	}
}

// Number marks the runs from first on as parts of one attempt.
func (f *Fleet) Number(first int) {
	for i := first; i < len(f.Runs); i++ {
		f.Runs[i].Part, f.Runs[i].Parts = int32(i-first), int32(len(f.Runs)-first)
	}
}

// Siblings returns the runs of the attempt that a run is part of.
func (f *Fleet) Siblings(ri int32) (lo, hi int32) {
	lo = ri - f.Runs[ri].Part
	return lo, lo + max(1, f.Runs[ri].Parts)
}

// Held returns the GPUs of the attempt that a run is part of, on all of its nodes.
func (f *Fleet) Held(ri int32) []cluster.GPUShare {
	lo, hi := f.Siblings(ri)
	if hi-lo == 1 {
		return f.Runs[ri].Berth.GPUs
	}
	var out []cluster.GPUShare
	for ; lo < hi; lo++ {
		out = append(out, f.Runs[lo].Berth.GPUs...)
	}
	return out
}

// LiesIn reports whether a run has GPUs of a group.
func (f *Fleet) LiesIn(r *Run, gi int32) bool {
	return slices.ContainsFunc(r.Berth.GPUs, func(g cluster.GPUShare) bool {
		ci, ok := f.CardAt[g.GPU]
		return ok && f.Cards[ci].Group == gi
	})
}

// ByLatest returns the runs of a host, the first to end first.
func (f *Fleet) ByLatest(h *Host) []int32 {
	runs := slices.Clone(h.Runs)
	slices.SortFunc(runs, func(a, b int32) int {
		return cmp.Or(cmp.Compare(f.Runs[a].Latest, f.Runs[b].Latest), cmp.Compare(f.Runs[a].Job.ID, f.Runs[b].Job.ID))
	})
	return runs
}

// Start takes what a run should hold in the ledger and enters it, unless the ledger
// says why it cannot.
func (f *Fleet) Start(r Run) cluster.Reason {
	if why := f.Led.Fits(r.Berth); why.Code != "" {
		return why
	}
	f.Led.Take(r.Berth)
	f.AddRun(r)
	started := &f.Runs[len(f.Runs)-1]
	f.refresh(started.host, started)
	return cluster.Reason{}
}

// refresh updates the mirror of a host from the ledger after a start there.
func (f *Fleet) refresh(hi int32, started *Run) {
	h := &f.Hosts[hi]
	u, _ := f.Led.Node(h.Node.ID)
	h.Use.UsedCPU, h.Use.UsedMem = u.UsedCPU, u.UsedMem
	last := int32(-1)
	for _, ci := range started.cards {
		c := &f.Cards[ci]
		u, _ := f.Led.GPUAt(c.at)
		c.take(u)
		last = c.Group // all are of one
	}
	if last >= 0 {
		f.sum(last)
	}
	f.Changed = append(f.Changed, hi)
}

// Lift removes a run from a group and its host in the mirror.
func (f *Fleet) Lift(gi, ri int32) {
	r, h := &f.Runs[ri], &f.Hosts[f.Groups[gi].Host]
	h.Use.UsedCPU -= r.Berth.CPUMilli
	h.Use.UsedMem -= r.Berth.MemMiB
	for _, gs := range r.Berth.GPUs {
		ci, ok := f.CardAt[gs.GPU]
		if !ok || f.Cards[ci].Group != gi {
			continue
		}
		c := &f.Cards[ci]
		c.Use.UsedMiB -= gs.Share.MemMiB
		c.Use.UsedMilli -= gs.Share.Milli
		c.Use.Shares--
		c.Use.Exclusive = false
		c.On = slices.DeleteFunc(slices.Clone(c.On), func(o Resident) bool { return o.Run == ri })
	}
}

// Remove removes a run from the mirror permanently.
func (f *Fleet) Remove(ri int32) {
	r := &f.Runs[ri]
	hi, ok := f.HostAt[r.Berth.Node]
	if !ok {
		return
	}
	h := &f.Hosts[hi]
	use := h.Use
	for _, gi := range h.Groups {
		f.Lift(gi, ri)
	}
	h.Use = use // of which Lift took its part for each group
	h.Use.UsedCPU -= r.Berth.CPUMilli
	h.Use.UsedMem -= r.Berth.MemMiB
	h.Runs = slices.DeleteFunc(h.Runs, func(o int32) bool { return o == ri })
}

// Remember saves the mirror of a group, whose GPUs it opens to all, and returns a
// function that restores it.
func (f *Fleet) Remember(gi int32) (undo func()) {
	g := &f.Groups[gi]
	h := &f.Hosts[g.Host]
	kept := make([]Card, len(g.Cards))
	for i, ci := range g.Cards {
		kept[i] = f.Cards[ci]
		f.Cards[ci].Until = rules.Forever
	}
	use := h.Use
	return func() {
		for i, ci := range g.Cards {
			f.Cards[ci] = kept[i]
		}
		h.Use = use
	}
}
