package scheduler

import (
	"fmt"
	"slices"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/accounting"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler/fair"
	"github.com/berth-scheduler/berth/scheduler/rules"
	"github.com/berth-scheduler/berth/scheduler/say"
)

// classDue is the class of jobs with a deadline: promises are kept before all
// priorities.
const classDue = accounting.MaxPriority + 1

// Ranks of jobs with a priority are below 0, a range for each priority, the
// greatest first, with the others' ranks in it, 64 to one.
const (
	rankClass = 1 << 56
	rankShift = 6
)

// inClass is a rank within one priority.
func inClass(rank int64, class int8) int64 {
	if class <= 0 {
		return rank
	}
	return min(max(0, rank)>>rankShift, rankClass-1) - int64(class)*rankClass
}

// priorityOf returns the priority of a rank.
func priorityOf(rank int64) int8 {
	if rank >= 0 {
		return 0
	}
	return int8((-rank + rankClass - 1) / rankClass)
}

// classless returns a rank without its priority.
func classless(rank int64) int64 {
	if rank >= 0 {
		return rank
	}
	return (rank + int64(priorityOf(rank))*rankClass) << rankShift
}

// mix adds fair shares and nice values to an order. Both are places: all waiting
// jobs by least served user, each user's jobs in their existing order; and as many
// places back as a job's nice value says. So weights mean the same whatever waits.
// Deadlines and old jobs keep their places, so that none starves, and so do all if
// there are empty GPUs for everything.
func (ts *turns) mix(order []rank) {
	fair := ts.pol.FairMilli > 0 && ts.standing != nil && ts.standing.Fair != nil
	if !fair && !ts.niced || len(order) < 2 {
		return
	}
	keys, scores := make([]rank, len(order)), make([]int64, len(order))
	for i, r := range order {
		keys[i] = rank{item: int32(i), id: cluster.JobID(i)}
		scores[i] = int64(i) * cluster.WholeGPU
		if fair {
			keys[i].first = int64(ts.standing.Fair.Place(assocOf(ts.items[r.item].job)))
		}
	}
	if fair {
		keys = sorted(keys, &ts.mem.sorter)
		w := min(ts.pol.FairMilli, cluster.WholeGPU)
		for k, r := range keys {
			scores[r.item] = (cluster.WholeGPU-w)*int64(r.item) + w*int64(k)
		}
	}
	for i, r := range order {
		keys[i] = rank{item: int32(i), id: cluster.JobID(i), class: r.class}
		if r.tier != tierDue && r.tier != tierOld {
			keys[i].tier, keys[i].first = 1, scores[i]+int64(ts.items[r.item].job.Spec.Nice)*cluster.WholeGPU
		}
	}
	was := slices.Clone(order)
	for i, k := range sorted(keys, &ts.mem.sorter) {
		order[i] = was[k.item]
	}
}

func assocOf(j *cluster.Job) accounting.Assoc {
	return accounting.Assoc{Account: j.Spec.Account, UID: j.Owner.UID}
}

// takesOn returns how much of GPUs a job takes on class c, in thousandths.
func (s *scene) takesOn(it *item, c int) int64 {
	k := &s.f.Classes[c]
	return int64(it.allGPUs()) * cluster.ShareMilli(it.needs[c].Share(k.Sellable), k.Sellable)
}

// atLimit reports whether a quota keeps a job from starting, whatever is free. The
// job leaves its queue: others go on, and what comes free there is not kept for it.
func (ls *lines) atLimit(it *item) bool {
	if ls.limits == nil {
		return false
	}
	least := int64(0)
	if it.gpus > 0 {
		least = rules.Forever
		for c := range it.needs {
			if it.needs[c].Way != rules.WayNone {
				least = min(least, ls.takesOn(it, c))
			}
		}
		if least == rules.Forever {
			return false // it starts nowhere, and gets that reason
		}
	}
	if it.cores != nil {
		least = 0
	}
	r := ls.limits.MayStart(accounting.WhoOf(it.job), least)
	if r.Code == "" {
		return false
	}
	if ls.teller.limited == nil {
		ls.teller.limited = map[cluster.JobID]cluster.Reason{}
	}
	ls.teller.limited[it.job.ID] = r
	if ls.moves < ls.pol.MaxMoves && (it.queue >= 0 || it.job.State == cluster.JobQueued || it.job.Reason.Code != r.Code) {
		ls.moves++
		ls.leave(it, r.Code)
	}
	return true
}

// leave takes a job out of its queue, if it is in one, with another reason.
func (ls *lines) leave(it *item, why cluster.ReasonCode) {
	if it.queue >= 0 {
		if ls.loaded {
			ls.addQueued(it, -1)
		}
		it.queue = -1
	}
	it.moved = true
	ls.plan.Moves = append(ls.plan.Moves, dispatch.QueueMove{Job: it.job.ID, Reason: why})
}

// offLimit gives another reason to a job that waited for a quota, no longer does,
// and is in no queue.
func (ls *lines) offLimit(it *item) {
	if it.queue >= 0 || it.moved || ls.moves >= ls.pol.MaxMoves || it.job.State != cluster.JobPending || !accounting.LimitReason(it.job.Reason.Code) {
		return
	}
	if r := ls.teller.reason(it); r.Code != it.job.Reason.Code {
		ls.moves++
		ls.leave(it, r.Code)
	}
}

// overLimit reports whether a job would exceed a quota by what it takes on class c.
func (s *scene) overLimit(it *item, c int) bool {
	return s.limits.MayStart(accounting.WhoOf(it.job), s.takesOn(it, c)).Code != ""
}

// countStart charges a start to the quotas, and to what its account traded for.
func (s *scene) countStart(it *item, st *dispatch.Start) {
	milli := s.f.Led.HeldMilli(st.AllGPUs())
	if s.market != nil && it.gpus > 0 {
		name, _ := s.standing.Fair.Part(it.job)
		if k, ok := slices.BinarySearch(s.market.Types, st.Estimate.GPUType); ok {
			s.market.Took(name, k, milli, s.waitsFor(it, s.market.Types))
		}
	}
	if s.limits != nil {
		s.limits.Count(accounting.HolderOf(it.job), 0, 1, milli)
	}
}

// deal lets the accounts trade GPU types.
func (s *scene) deal() {
	if !s.pol.Trading || s.pol.FairMilli <= 0 || s.standing == nil || s.standing.Fair == nil {
		return
	}
	m := s.newMarket()
	for i := range s.items {
		it := &s.items[i]
		if it.gpus == 0 {
			continue
		}
		t, waits := m.Trader(s.standing.Fair.Part(it.job)), s.waitsFor(it, m.Types)
		most := int64(0)
		for k, n := range waits {
			t.Waits(k, n)
			most = max(most, n)
		}
		t.Wants(most*int64(1+s.more[it.id]), timesOn(it.job, m.Types))
	}
	for _, j := range s.running {
		a := j.Live()
		if a == nil {
			continue
		}
		if k, ok := slices.BinarySearch(m.Types, a.Estimate.GPUType); ok {
			t, milli := m.Trader(s.standing.Fair.Part(j)), s.f.Led.HeldMilli(a.HeldGPUs())
			t.Holds(k, milli)
			t.Wants(milli, timesOn(j, m.Types))
		}
	}
	if m.Deal(); len(m.Trades) > 0 {
		s.market, s.plan.Trades = m, m.Trades
	}
}

// newMarket returns a market of the GPUs of the fleet.
func (s *scene) newMarket() *fair.Market {
	var types []string
	for c := range s.f.Classes {
		types = append(types, s.f.Classes[c].GPUType)
	}
	slices.Sort(types)
	types = slices.Compact(types)
	gpus, free := make([]int64, len(types)), make([]int64, len(types))
	for c := range s.f.Classes {
		k, _ := slices.BinarySearch(types, s.f.Classes[c].GPUType)
		gpus[k] += int64(len(s.f.Classes[c].Cards)) * cluster.WholeGPU
		for _, i := range s.f.Classes[c].Cards {
			if u := &s.f.Cards[i].Use; u.FreeShares() > 0 {
				free[k] += max(0, u.FreeMilli())
			}
		}
	}
	return fair.NewMarket(types, gpus, free)
}

// waitsFor returns what a waiting job would take of each type, in thousandths of GPUs: 0
// of one on which it may not run, or for which it waits for a quota.
func (s *scene) waitsFor(it *item, types []string) []int64 {
	out := make([]int64, len(types))
	for c := range it.needs {
		if it.needs[c].Way != rules.WayNone && (s.limits == nil || !s.overLimit(it, c)) {
			k, _ := slices.BinarySearch(types, s.f.Classes[c].GPUType)
			out[k] = max(out[k], s.takesOn(it, c))
		}
	}
	return out
}

// timesOn returns how long a job is surely predicted to run on each type, nil if that is
// not known of all.
func timesOn(j *cluster.Job, types []string) []time.Duration {
	out := make([]time.Duration, len(types))
	for k, t := range types {
		d, ok := accounting.Timed(j.Estimates, t)
		if !ok || j.Spec.GPUType != "" {
			return nil
		}
		out[k] = d
	}
	return out
}

// traded reports whether a job may not take class c now, since its account traded that
// type and others wait for it. Jobs that are old or have a deadline may.
func (s *scene) traded(it *item, c int) bool {
	if s.market == nil || it.old || it.due {
		return false
	}
	name, _ := s.standing.Fair.Part(it.job)
	k, _ := slices.BinarySearch(s.market.Types, s.f.Classes[c].GPUType)
	return s.market.Keeps(name, k, s.takesOn(it, c))
}

// tradedWords say what a job's account traded of class c's type.
func (s *scene) tradedWords(it *item, c int) string {
	name, _ := s.standing.Fair.Part(it.job)
	gpuType := s.f.Classes[c].GPUType
	k, _ := slices.BinarySearch(s.market.Types, gpuType)
	words := fmt.Sprintf("%s: %s may hold %s of them while others wait", gpuType, name, say.GPUs(s.market.May(name, k)))
	for _, t := range s.market.Trades {
		if (t.Seller == name || t.Buyer == name) && (t.Sold == gpuType || t.Paid == gpuType) {
			return words + "; " + t.String()
		}
	}
	return words
}
