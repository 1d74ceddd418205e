package scheduler

import (
	"cmp"
	"slices"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/scheduler/fleet"
	"github.com/berth-scheduler/berth/scheduler/rules"
)

// resident is a share of a GPU and the latest time it ends.
type resident struct {
	end   int64
	share cluster.Share
}

// newcomer is a share that this pass allocated.
type newcomer struct {
	card int32
	load int64
	resident
}

func (ls *lines) needResidents() {
	if ls.residents != nil {
		return
	}
	ls.mem.residents = sized(ls.mem.residents, len(ls.f.Cards))
	ls.residents = ls.mem.residents
	for i := range ls.residents {
		ls.residents[i] = ls.residents[i][:0]
	}
	for _, j := range ls.running {
		a := j.Live()
		if a == nil {
			continue
		}
		_, latest := rules.EndsAt(j, a, ls.now, &ls.pol)
		for _, gs := range a.HeldGPUs() {
			if i, ok := ls.f.CardAt[gs.GPU]; ok {
				ls.residents[i] = append(ls.residents[i], resident{latest, gs.Share})
			}
		}
	}
	for _, s := range ls.started {
		ls.residents[s.card] = append(ls.residents[s.card], s.resident)
	}
}

// keeper reserves GPUs and nodes for waiting jobs.
type keeper struct {
	*scene
	turns     *turns
	fitter    *fitter
	lines     *lines
	keptPlain bool
	reserved  int // GPUs reserved for jobs that are not old
	vacated   map[cluster.JobID]struct{}
	aheads    []ahead
	leaves    [][]leaving // by node, the earliest end first; nil until first needed
	// looked is set once nodes were reserved ahead of turns, lookedAt is the class
	// for which.
	looked   bool
	lookedAt int8

	asks  cluster.JobID // of which job to note, at its turn, what is kept from it
	noted map[cluster.GPUID]cluster.JobID

	sorted []resident // scratch
}

// cardsAKeep is how many GPUs of the fleet there must be for each job that is not
// old and has a reservation.
const cardsAKeep = 64

// reserve reserves GPUs for a job that did not start: for each old one, and for the
// first in the pass that do not fit, as EASY backfill does (Lifka, JSSPP 1995). The
// latter are few: what is reserved for one, others go without.
func (kp *keeper) reserve(it *item) {
	if it.id == kp.asks {
		kp.noted = kp.note()
	}
	switch {
	case it.kept && !it.old: // by a promise
	case it.old:
		kp.keep(it)
	case it.spans() && kp.isVacated(it.id):
		kp.keep(it)
	case it.gpus > 0 && kp.reserved <= len(kp.f.Cards)/cardsAKeep && kp.now-it.eligible >= kp.pol.ReserveAge.Microseconds() && kp.keep(it):
		it.kept = true
		kp.reserved++
	}
}

// note returns for which job each GPU is kept now.
func (kp *keeper) note() map[cluster.GPUID]cluster.JobID {
	kept := map[cluster.GPUID]cluster.JobID{}
	for id, at := range kp.f.CardAt {
		if c := &kp.f.Cards[at]; c.Until != rules.Forever {
			kept[id] = kp.f.Hosts[c.Host].KeptFor
		}
	}
	return kept
}

// isVacated reports whether other jobs are saving their state to make room for a
// job. A job on several nodes needs all of them at once, and what is already free
// there is reserved for it.
func (kp *keeper) isVacated(id cluster.JobID) bool {
	if kp.vacated == nil {
		kp.vacated = map[cluster.JobID]struct{}{}
		for _, j := range kp.running {
			if a := j.Live(); a != nil && a.Preempt != nil {
				kp.vacated[a.Preempt.For] = struct{}{}
			}
		}
	}
	_, ok := kp.vacated[id]
	return ok
}

// keep reserves GPUs for a job until it starts: jobs later in this pass may run on
// them only if they are predicted to end before the job could start there, and
// leave it the node's cores and memory. This is EASY backfill for each queue: the
// job's start counts by the time limits of those before it, the others by
// prediction. It reports whether it reserved any: one job for each queue is enough.
func (kp *keeper) keep(it *item) bool {
	if it.spans() {
		return kp.keepSpan(it)
	}
	if it.gpus == 0 {
		kp.keepNode(it)
		return true
	}
	if it.queue < 0 || kp.f.Cards[it.queue].Kept || !kp.lines.queueHolds(it) {
		return false
	}
	cd := &kp.f.Cards[it.queue]
	cd.Kept = true
	kp.lines.needResidents()
	cards, shadow := kp.shadow(it, it.queue, int(cd.Class))
	if it.old && kp.now-it.eligible-kp.turns.oldAge(it) >= kp.pol.HoldAge.Microseconds() {
		// Predictions have misled it long enough: no job overtakes it any more.
		shadow = kp.now
	}
	for _, i := range cards {
		kp.f.Cards[i].Until = min(kp.f.Cards[i].Until, shadow)
	}
	h := &kp.f.Hosts[cd.Host]
	h.KeptCPU += it.cpu
	h.KeptMem += it.mem
	h.KeptFor = cmp.Or(h.KeptFor, it.job.ID)
	kp.f.Keeps(cd.Host, cards)
	return true
}

// shadow returns the GPUs that a job waits for and when it could start there at the
// latest if no new job arrived.
func (kp *keeper) shadow(it *item, at int32, c int) ([]int32, int64) {
	k := &kp.f.Classes[c]
	g := &k.Groups[kp.f.Cards[at].Group]
	if it.gpus == 1 {
		return []int32{at}, kp.clears(at, &it.needs[c])
	}
	all := kp.clearsOn(k, g, &it.needs[c])
	n := min(it.gpus, len(all))
	cards := make([]int32, 0, n)
	for _, c := range all[:n] {
		cards = append(cards, c.Card)
	}
	return cards, all[n-1].At
}

// clearsOn lists the GPUs of a group by when they have room for a need. For whole
// GPUs this does not depend on the job, and is cached until the next start.
func (kp *keeper) clearsOn(k *fleet.Class, g *fleet.Group, n *rules.Need) []fleet.Freeing {
	if n.Way == rules.WayWhole && g.Clears != nil {
		return g.Clears
	}
	all := make([]fleet.Freeing, 0, g.Hi-g.Lo)
	for _, i := range k.Cards[g.Lo:g.Hi] {
		all = append(all, fleet.Freeing{Card: i, At: kp.clears(i, n)})
	}
	slices.SortFunc(all, func(a, b fleet.Freeing) int { return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Card, b.Card)) })
	if n.Way == rules.WayWhole {
		g.Clears = all
	}
	return all
}

// clears returns when enough jobs on a GPU have ended for n to fit.
func (kp *keeper) clears(i int32, n *rules.Need) int64 {
	use := kp.f.Cards[i].Use
	rs := append(kp.sorted[:0], kp.lines.residents[i]...)
	kp.sorted = rs
	slices.SortFunc(rs, func(a, b resident) int { return cmp.Compare(a.end, b.end) })
	at := kp.now
	for _, r := range rs {
		if n.Way == rules.WayShare && n.Mem <= use.FreeMiB() && n.Milli <= use.FreeMilli() && use.FreeShares() > 0 {
			return at
		}
		use.UsedMiB -= r.share.MemMiB
		use.UsedMilli -= r.share.Milli
		use.Shares--
		use.Exclusive = false
		at = r.end
	}
	return at
}

// keepNode reserves what is free on one node for the oldest job without GPUs that
// waited too long: the node that has most of what it needs, so that what is
// reserved only grows from pass to pass.
func (kp *keeper) keepNode(it *item) {
	if kp.keptPlain {
		return
	}
	best, most := int32(-1), int64(-1)
	for _, i := range kp.f.Order {
		h := &kp.f.Hosts[i]
		if h.Use.CPUMilli < it.cpu || h.Use.MemMiB < it.mem || it.node != "" && it.node != h.Node.ID || kp.refused(it, i) {
			continue
		}
		has := int64(1000)
		if it.cpu > 0 {
			has = min(has, max(0, h.FreeCPU())*1000/it.cpu)
		}
		if it.mem > 0 {
			has = min(has, max(0, h.FreeMem())*1000/it.mem)
		}
		if has > most {
			best, most = i, has
		}
	}
	if best < 0 {
		return
	}
	kp.keptPlain = true
	kp.f.Hosts[best].KeptCPU += it.cpu
	kp.f.Hosts[best].KeptMem += it.mem
	kp.f.Refresh(best)
}

// ahead is what is reserved for a job that needs several nodes until its turn.
type ahead struct {
	it    *item
	parts []rules.Part
	was   []int64 // by GPU, until when it was free before
	bound int64
}

// keepAhead reserves nodes for the first of the jobs that need several and have
// waited for ReserveAge, against jobs that come before them in the pass: nodes
// seldom come free together if shorter jobs take each as soon as it is free. Jobs
// ahead of it may still run there if that delays it by no more than its own run,
// less what it has waited; so it waits for at most about that long beyond what it
// would wait if no job overtook it. Deadlines, old jobs and those of a higher class
// are not held up by it. The order is what is left of the pass's; it acts only at
// the first job of a class that is not old.
func (kp *keeper) keepAhead(order []rank, items []item) {
	class := order[0].class
	if !kp.spanning || items[order[0].item].old || kp.looked && class == kp.lookedAt {
		return
	}
	kp.looked, kp.lookedAt = true, class
	tries := 0 // each tries all nodes
	for _, r := range order {
		it := &items[r.item]
		if r.class != class || tries > len(kp.f.Cards)/cardsAKeep {
			return
		}
		waited := kp.now - it.eligible
		if it.gone || it.old || it.gpus == 0 || !it.spans() || waited < kp.pol.ReserveAge.Microseconds() {
			continue
		}
		tries++
		parts, shadow, class, _ := kp.soonest(it)
		if class < 0 || kp.keepsAny(parts) || kp.limits != nil && kp.overLimit(it, class) {
			continue
		}
		a := ahead{it: it, parts: parts, bound: shadow + max(0, it.needs[class].Dur-waited)}
		for i := range parts {
			for _, c := range parts[i].Cards {
				a.was = append(a.was, kp.f.Cards[c].Until)
				kp.f.Cards[c].Until = min(kp.f.Cards[c].Until, a.bound)
			}
			kp.f.Hosts[parts[i].Host].KeptFor = it.job.ID
			kp.f.Keeps(parts[i].Host, parts[i].Cards)
		}
		kp.aheads = append(kp.aheads, a)
	}
}

// keepsAny reports whether anything is already reserved on one of these nodes.
func (kp *keeper) keepsAny(parts []rules.Part) bool {
	for i := range parts {
		if kp.f.Hosts[parts[i].Host].KeptFor != 0 {
			return true
		}
	}
	return false
}

// turnOf ends what was reserved for a job until its turn.
func (kp *keeper) turnOf(it *item) {
	for k := range kp.aheads {
		a := &kp.aheads[k]
		if a.it != it {
			continue
		}
		n := 0
		for i := range a.parts {
			for _, c := range a.parts[i].Cards {
				if kp.f.Cards[c].Until == a.bound { // no job wanted it reserved for longer
					kp.f.Cards[c].Until = a.was[n]
				}
				n++
			}
			if h := &kp.f.Hosts[a.parts[i].Host]; h.KeptFor == it.job.ID {
				h.KeptFor = 0
			}
			kp.f.Keeps(a.parts[i].Host, a.parts[i].Cards)
		}
	}
}

// behindMost is how far ahead the end of a reservation may be for nodes to be kept
// for a job that waits for it: as far as Slurm's backfill looks (bf_window).
const behindMost = 24 * time.Hour

// soonest is clearest, or, for a job that reservations bar from all nodes at once,
// what is clear first when they are over, as Slurm's backfill plans it: no job that
// would run longer should start on the other nodes meanwhile. behind reports that
// case.
func (kp *keeper) soonest(it *item) (best []rules.Part, shadow int64, class int, behind bool) {
	best, shadow, class = kp.clearest(it)
	if class >= 0 || kp.realms == nil {
		return best, shadow, class, false
	}
	for c := range it.needs {
		n := &it.needs[c]
		if n.Behind == rules.WayNone {
			continue
		}
		n.Way, n.Behind = n.Behind, rules.WayNone
		defer func() { n.Way, n.Behind = rules.WayNone, n.Way }()
		it.behind = true
	}
	if !it.behind {
		return nil, shadow, -1, false
	}
	defer func() { it.behind = false }()
	if best, shadow, class = kp.clearest(it); shadow > kp.now+behindMost.Microseconds() {
		return nil, shadow, -1, false
	}
	return best, shadow, class, true
}

// keepBehind reserves GPUs for a job until reservations are over. Cores and memory
// stay available to all: it may take a day.
func (kp *keeper) keepBehind(it *item, best []rules.Part, shadow int64) {
	for i := range best {
		for _, card := range best[i].Cards {
			kp.f.Cards[card].Until = min(kp.f.Cards[card].Until, shadow)
		}
		h := &kp.f.Hosts[best[i].Host]
		h.KeptFor = cmp.Or(h.KeptFor, it.job.ID)
		kp.f.Keeps(best[i].Host, best[i].Cards)
	}
}
