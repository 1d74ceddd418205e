package scheduler

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler/fleet"
	"github.com/berth-scheduler/berth/scheduler/rules"
	"github.com/berth-scheduler/berth/scheduler/say"
)

// fitter finds the GPUs on which a job fits.
type fitter struct {
	*scene
	failed map[shape]int64
	// failedLike is failed by Need.Like, for jobs that take one GPU of any node; matched
	// is set once waiting jobs have that.
	failedLike []int64
	matched    bool
	bulks      map[shape]bool
	frag       *frag   // nil if fragmentation plays no part
	typical    *learn  // running and waiting jobs, computed on first use
	judged     int     // how often a job was compared with the residents of a GPU
	careful    bool    // something is reserved for deadlines; see want
	guest      guest   // whom suits asked about last
	picked     []int32 // scratch
	chosen     []int   // scratch
}

// shape is everything about a job that decides on which GPUs of a class it fits,
// except how long it stays. What failed once in a pass fails again, since a pass
// only ever takes.
//
// It holds no pointers, so that a map of a hundred thousand is soon hashed and never
// scanned.
type shape struct {
	mem, milli, cpu, host int64
	class, gpus, kind     int32
	node                  int32 // the one it asks for, 0 for none, -1 for one that is not here
	nodes                 int32
	few                   int32 // how few switches it still insists on
	way                   rules.Way
	strict                bool
}

func (ft *fitter) shapeOf(it *item, c int) shape {
	n := &it.needs[c]
	s := shape{
		mem: n.Mem, milli: n.Milli, cpu: it.cpu, host: it.mem,
		class: int32(c), gpus: int32(it.gpus), kind: it.kind, nodes: int32(it.nodes), way: n.Way,
		strict: it.gpus > 1 && n.Way == rules.WayWhole && ft.strict(it, &ft.f.Classes[c], n.Dur),
	}
	if it.nodes > 1 {
		few, _ := it.job.FewSwitches(cluster.Time(ft.now))
		s.few = int32(few)
	}
	if it.node != "" {
		s.node = -1
		if host, ok := ft.f.HostAt[it.node]; ok {
			s.node = host + 1
		}
	}
	return s
}

// want returns what each GPU must have left for the job.
func (ft *fitter) want(it *item, c int) fleet.Room {
	n := &it.needs[c]
	dur := n.Dur
	if ft.careful { // deadlines are promised for nine cases in ten
		e, _ := cluster.EstimateFor(it.job.Estimates, ft.f.Classes[c].GPUType)
		dur = rules.Stretched(dur, rules.Tail, &e, it.job.Spec.TimeLimit)
	}
	return fleet.Room{Mem: n.Mem, Milli: n.Milli, Slots: 1, CPU: it.cpu, Host: it.mem, Until: ft.now + dur}
}

// mayFit is a cheap check: false means that the job certainly does not fit.
func (ft *fitter) mayFit(it *item, c int) bool {
	if ft.limits != nil && ft.overLimit(it, c) || ft.traded(it, c) {
		return false
	}
	want := ft.want(it, c)
	k := &ft.f.Classes[c]
	if ft.bulky(it, c) || it.gpus > 1 {
		want.CPU, want.Host = -1, -1 // the leaves hold what one GPU may take
	}
	if !k.Empty.May(&want) && (it.needs[c].Way == rules.WayWhole || !k.Used.May(&want)) {
		return false
	}
	return ft.crowd == nil && ft.forgets(it, c) || want.Until < ft.failedUntil(it, c)
}

// forgets reports whether failures of a job on class c need not be remembered, as
// long as it was compared with no residents: the search for a single share is
// cheaper, and what failed fails again. That is not so once something reserved ahead
// of its turn is given back, see turnOf.
func (ft *fitter) forgets(it *item, c int) bool {
	k := &ft.f.Classes[c]
	return ft.frag == nil && !ft.spanning && it.gpus == 1 && it.needs[c].Way == rules.WayShare &&
		it.cpu <= k.EasyCPU && it.mem <= k.EasyMem && it.node == ""
}

// fit appends the GPUs of class c that a job would take now, none if it does not
// fit. One share goes to the first GPU in use that holds it, in the order of nodes
// and ids, then to the first empty one, so that empty GPUs stay empty. Whole GPUs
// come from the node with the fewest empty ones.
func (ft *fitter) fit(it *item, c int, to []int32) []int32 {
	ft.frag.begin(ft, it, c)
	want, at, judged := ft.want(it, c), len(to), ft.judged
	if calm, ok := ft.calm(it, c, want); ok {
		to = ft.look(it, c, calm, to)
	}
	if ft.crowd.calmly(false); len(to) == at {
		to = ft.look(it, c, want, to)
	}
	ft.frag.chose(ft, it, c, to)
	if len(to) == 0 && (ft.judged > judged || !ft.forgets(it, c)) {
		ft.noteFailed(it, c)
	}
	return to
}

// look is fit under the slowdown limit that holds now.
func (ft *fitter) look(it *item, c int, want fleet.Room, to []int32) []int32 {
	k := &ft.f.Classes[c]
	lo, hi, ok := ft.span(it, k)
	switch bulky := ft.bulky(it, c); {
	case !ok:
	case it.needs[c].Way == rules.WayWhole:
		to = ft.fitWhole(k, it, &want, to)
	case it.gpus == 1 && bulky:
		to = ft.fitBulky(it, c, want, lo, hi, to)
	case it.gpus > 1:
		to = ft.fitSpread(it, c, &want, lo, hi, to)
	case ft.frag != nil:
		to = ft.bestShare(it, c, &want, lo, hi, to)
	default:
		place := ft.suited(it, c, &want, lo, hi)
		if place < 0 || place >= hi {
			place = k.Empty.First(lo, &want)
		}
		if place >= 0 && place < hi {
			to = append(to, k.Cards[place])
		}
	}
	return to
}

// fitWhole looks for empty GPUs on one node, the one with the fewest that suffice,
// so that nodes stay whole for larger jobs.
func (ft *fitter) fitWhole(k *fleet.Class, it *item, want *fleet.Room, to []int32) []int32 {
	n := it.gpus
	if it.node != "" {
		return ft.takeEmpty(k, it, ft.f.GroupOn(it.node, k), want, to)
	}
	for _, near := range [...]bool{true, false} {
		if near && (n < 2 || !k.Parted) {
			continue
		}
		if ft.frag != nil {
			if to = ft.bestWhole(k, it, want, near, to); len(to) > 0 {
				return to
			}
		}
		for free := n; free < len(k.Free) && ft.frag == nil; free++ {
			for i := k.Free[free].Next(0); i >= 0; i = k.Free[free].Next(i + 1) {
				g := &k.Groups[i]
				if near && ft.f.Nearest(k, g, n, want, nil) < 0 {
					continue
				}
				if to = ft.takeEmpty(k, it, g, want, to); len(to) > 0 {
					return to
				}
			}
		}
		if near && ft.strict(it, k, want.Until-ft.now) {
			return to
		}
	}
	return to
}

// takeEmpty appends n empty GPUs of a group, or none.
func (ft *fitter) takeEmpty(k *fleet.Class, it *item, g *fleet.Group, want *fleet.Room, to []int32) []int32 {
	n := it.gpus
	h := &ft.f.Hosts[g.Host]
	if int(g.Empty) < n || h.ForeignQueue || h.FreeCPU() < want.CPU || h.FreeMem() < want.Host ||
		!h.KeepsEnough(want.CPU, want.Host, n) && !ft.bulky(it, int(ft.f.Cards[k.Cards[g.Lo]].Class)) {
		return to
	}
	at := len(to)
	if n > 1 && k.Parted {
		ft.f.Nearest(k, g, n, want, &to)
		if len(to) == at+n {
			return to
		}
		return to[:at]
	}
	for _, i := range k.Cards[g.Lo:g.Hi] {
		if c := &ft.f.Cards[i]; c.Open(want) {
			if to = append(to, i); len(to) == at+n {
				return to
			}
		}
	}
	return to[:at]
}

// fitSpread looks for shares of n GPUs of one node: the first node that has them,
// and there GPUs in use before empty ones.
func (ft *fitter) fitSpread(it *item, c int, want *fleet.Room, lo, hi int, to []int32) []int32 {
	k := &ft.f.Classes[c]
	each := *want
	each.CPU, each.Host = -1, -1 // of the node; spreadOn checks
	want = &each
	for from := lo; from < hi; {
		place := k.Used.First(from, want)
		if e := k.Empty.First(from, want); place < 0 || e >= 0 && e < place {
			place = e
		}
		if place < 0 || place >= hi {
			return to
		}
		g := &k.Groups[ft.f.Cards[k.Cards[place]].Group]
		if int(g.Hi-g.Lo) >= it.gpus {
			if to = ft.spreadOn(it, c, g, want, to); len(to) > 0 {
				return to
			}
		}
		from = int(g.Hi)
	}
	return to
}

func (ft *fitter) spreadOn(it *item, c int, g *fleet.Group, want *fleet.Room, to []int32) []int32 {
	k, at, takes := &ft.f.Classes[c], len(to), 0
	h := &ft.f.Hosts[g.Host]
	if h.FreeCPU() < it.cpu || h.FreeMem() < it.mem {
		return to
	}
	for _, t := range []*fleet.Tree{k.Used, k.Empty} {
		for place := t.First(int(g.Lo), want); place >= 0 && place < int(g.Hi); place = t.First(place+1, want) {
			if ft.crowd != nil && !ft.suits(it, c, k.Cards[place]) {
				continue
			}
			if t == k.Empty {
				takes++
			}
			if to = append(to, k.Cards[place]); len(to) == at+it.gpus {
				if !h.KeepsEnough(it.cpu, it.mem, takes) && !ft.bulky(it, c) {
					return to[:at]
				}
				slices.Sort(to[at:])
				return to
			}
		}
	}
	return to[:at]
}

// fitBulky looks for a place for one share of a job that may strand GPUs; the
// indexes do not know how much of a node it may take.
func (ft *fitter) fitBulky(it *item, c int, want fleet.Room, lo, hi int, to []int32) []int32 {
	k := &ft.f.Classes[c]
	want.CPU, want.Host = -1, -1
	for _, t := range []*fleet.Tree{k.Used, k.Empty} {
		for place := t.First(lo, &want); place >= 0 && place < hi; place = t.First(place+1, &want) {
			h := &ft.f.Hosts[ft.f.Cards[k.Cards[place]].Host]
			if h.FreeCPU() >= it.cpu && h.FreeMem() >= it.mem && (ft.crowd == nil || ft.suits(it, c, k.Cards[place])) {
				return append(to, k.Cards[place])
			}
		}
	}
	return to
}

// maxNearer is how many nodes that have what a job reads one pass tries for it.
const maxNearer = 16

// nearer returns the GPUs on which a job that would get cards has most of what it
// reads at hand, if that breaks into nothing more, otherwise cards.
func (ft *fitter) nearer(it *item, c int, cards []int32) []int32 {
	if it.node != "" {
		return cards
	}
	tiers := ft.near.Tiers(it.job)
	if len(tiers) == 0 {
		return cards
	}
	breaks, here, left := ft.breaks(cards), ft.scoreOn(it, ft.f.Cards[cards[0]].Host), maxNearer
	defer func() { it.node = "" }()
	for _, tier := range tiers {
		if tier.Score <= here {
			break
		}
		tries := min(left, len(tier.Nodes))
		left -= tries
		for n := range tries {
			if it.node = tier.Nodes[(int(it.job.ID)+n)%len(tier.Nodes)]; !ft.mayFit(it, c) {
				continue
			}
			if there := ft.fit(it, c, nil); len(there) > 0 && ft.breaks(there) <= breaks {
				return there
			}
		}
	}
	return cards
}

// scoreOn returns how much of what a job reads a node has.
func (s *scene) scoreOn(it *item, host int32) int {
	return s.near.Score(it.job, s.f.Hosts[host].Node.ID)
}

// opens returns how many of the GPUs are empty.
func (ft *fitter) opens(cards []int32) (n int) {
	for _, i := range cards {
		if ft.f.Cards[i].Use.Shares == 0 {
			n++
		}
	}
	return n
}

// startPlain places a job that needs no GPU: on a node without GPUs if one has
// room, otherwise where it takes nothing that idle GPUs need; see plainPlace.
func (p *pass) startPlain(it *item) bool {
	want := fleet.Room{Mem: -1, Milli: -1, Slots: -1, CPU: it.cpu, Host: it.mem, Until: -1}
	if !p.f.Plain.May(&want) {
		return false
	}
	place, why := p.plains.plainPlace(it, &want)
	if place < 0 {
		return false
	}
	hi := p.f.Order[place]
	e, _ := cluster.EstimateFor(it.job.Estimates, cluster.CPUType)
	if it.cores != nil {
		e, why = it.cores.Est, "on "+say.Cores(it.cpu)+", since no GPU could ever run it; "+why
	}
	p.commit(it, &dispatch.Start{
		Job: it.job.ID, Attempt: uint32(len(it.job.Attempts)) + 1, Estimate: e, Why: why,
		Berth: cluster.Berth{Node: p.f.Hosts[hi].Node.ID, CPUMilli: it.cpu, MemMiB: it.mem},
	}, hi)
	return true
}

// place starts a job on GPUs of class c.
func (p *pass) place(it *item, c int, cards []int32) {
	n, k := &it.needs[c], &p.f.Classes[c]
	first := &p.f.Cards[cards[0]]
	st := dispatch.Start{
		Job: it.job.ID, Attempt: uint32(len(it.job.Attempts)) + 1,
		Berth: cluster.Berth{Node: p.f.Hosts[first.Host].Node.ID, CPUMilli: it.cpu, MemMiB: it.mem, GPUs: make([]cluster.GPUShare, 0, len(cards))},
		Why:   p.why(it, n, k, first, len(cards)),
	}
	_, st.Estimate, _ = rules.ShareOn(it.job, k.Rep, p.pol)
	takes := p.fitter.opens(cards)
	for _, i := range cards {
		st.Berth.GPUs = append(st.Berth.GPUs, cluster.GPUShare{GPU: p.f.Cards[i].Use.ID, Share: n.Share(k.Sellable)})
		if st.Overtook == "" {
			st.Overtook = p.overtakes(it, c, i)
		}
	}
	slices.SortFunc(st.Berth.GPUs, func(a, b cluster.GPUShare) int { return cmp.Compare(a.GPU, b.GPU) })
	p.f.Hosts[first.Host].Occupy(it.cpu, it.mem, takes)
	p.commit(it, &st, first.Host)
	p.lines.settle(it, c, cards)
	p.crowd.settled(it, n.Busy, cards)
}

// commit takes the berth in the ledger. The indexes hold only what the ledger says,
// so a refusal here is a bug.
func (p *pass) commit(it *item, st *dispatch.Start, host int32) {
	if r := p.f.Led.Fits(&st.Berth); r.Code != "" {
		panic("scheduler: index and ledger disagree on job " + st.Job.String() + ": " + r.String())
	}
	p.f.Led.Take(&st.Berth)
	it.gone = true
	p.countStart(it, st)
	p.fitter.frag.changed(host)
	p.plan.Starts = append(grown(p.plan.Starts), *st)
	p.f.Took(host, st.Berth.GPUs)
	p.plains.spared(host)
}

// why says in words why a job runs where it does.
func (p *pass) why(it *item, n *rules.Need, k *fleet.Class, c *fleet.Card, cards int) string {
	b := make([]byte, 0, 96)
	at := p.near.Words(it.job, p.f.Hosts[c.Host].Node.ID)
	switch {
	case n.Way == rules.WayWhole && cards > 1:
		b = strconv.AppendInt(b, int64(cards), 10)
		b = append(b, " whole "...)
		b = append(b, k.GPUType...)
		b = append(b, cmp.Or(at, " on the node with the fewest free that are enough")...)
	case n.Way == rules.WayWhole:
		b = append(b, "alone on "...)
		b = append(b, k.GPUType...)
		b = append(b, cmp.Or(at, ", on the node with the fewest free")...)
	default:
		b = append(b, "first "...)
		b = append(b, k.GPUType...)
		b = append(b, " with "...)
		b = append(b, cluster.MemText(n.Mem)...)
		b = append(b, " and "...)
		b = append(b, say.Percent(n.Milli)...)
		b = append(b, " free, beside "...)
		b = append(b, say.Jobs(c.Use.Shares)...)
		b = append(b, at...)
	}
	b = append(b, "; "...)
	b = append(b, say.TimeWords(it.job, k.GPUType, n.Dur)...)
	if it.job.Spec.Objective != "" {
		e, _ := cluster.EstimateFor(it.job.Estimates, k.GPUType)
		b = append(b, "; of the types that are free the best for "...)
		b = append(b, it.job.Spec.Objective...)
		b = append(b, " ("...)
		b = append(b, p.pol.GoalWords(it.job, k.GPUType, &e, n, k.Sellable)...)
		b = append(b, ')')
	}
	return string(b)
}

// overtakes names the job that a start on a GPU overtakes in its queue, "" if none
// waits ahead of it.
func (p *pass) overtakes(it *item, c int, i int32) string {
	k := &p.f.Cards[i]
	for k.Head < len(k.Queue) {
		head := p.find(k.Queue[k.Head].Job)
		if head != nil && head == it {
			return ""
		}
		if head == nil || !head.gone {
			return p.overtook(it, head, c, k, k.Queue[k.Head])
		}
		k.Head++
	}
	return ""
}

func (p *pass) overtook(it, head *item, c int, k *fleet.Card, w dispatch.Waiter) string {
	if head == nil {
		return "job " + w.Job.String() + ": is not old, and not looked at in this pass"
	}
	why := lacks(head.job, &head.needs[c], k, &p.f.Hosts[k.Host], p.pol)
	if why == "" && p.crowd != nil {
		at := p.f.CardAt[k.Use.ID]
		if v := p.fitter.judge(head, &head.needs[c], at); v.Against() {
			why = v.Words(p.crowd.rules[at].Sharing, p.pol.MaxSlowdownMilli)
		}
	}
	if why == "" {
		why = "would fit as well; the pass takes " + p.turns.before(it, head)
	}
	return "job " + head.job.ID.String() + ": " + why
}

// lacks says in numbers what a job misses on a GPU, "" if one GPU has it all.
func lacks(j *cluster.Job, n *rules.Need, k *fleet.Card, h *fleet.Host, pol Policy) string {
	cpu, mem := rules.HostOf(j, &pol)
	num := func(v int64) string { return strconv.FormatInt(max(0, v), 10) }
	switch {
	case n.Way == rules.WayNone:
		return "cannot run there any more"
	case n.Way == rules.WayWhole && k.Use.Shares > 0:
		return "needs the GPU alone, " + say.Jobs(k.Use.Shares) + " on it"
	case n.Way == rules.WayShare && n.Mem > k.Use.FreeMiB():
		return "needs " + num(n.Mem) + " MiB, " + num(k.Use.FreeMiB()) + " free"
	case n.Way == rules.WayShare && n.Milli > k.Use.FreeMilli():
		return "needs " + say.Percent(n.Milli) + " of the GPU, " + say.Percent(k.Use.FreeMilli()) + " free"
	case k.Use.FreeShares() < 1:
		return "needs a place, " + say.Jobs(k.Use.Shares) + " on the GPU"
	case h.Use.UsedCPU+cpu > h.Use.CPUMilli:
		return "needs " + say.Cores(cpu) + ", " + say.Cores(max(0, h.Use.CPUMilli-h.Use.UsedCPU)) + " free"
	case h.Use.UsedMem+mem > h.Use.MemMiB:
		return "needs " + num(mem) + " MiB of host memory, " + num(h.Use.MemMiB-h.Use.UsedMem) + " free"
	case j.Spec.GPUs > 1:
		return "needs " + say.GPUs(j.Spec.GPUs) + " of the node at once"
	}
	return ""
}

// strict reports whether a gang still waits for GPUs of one group: for a tenth of
// its run, at most NearAge, if some node of the class has such a group.
func (ft *fitter) strict(it *item, k *fleet.Class, dur int64) bool {
	if !k.Parted || it.gpus > k.Largest || it.kept || it.due {
		return false
	}
	return ft.now < it.eligible+min(dur/10, ft.pol.NearAge.Microseconds())
}
