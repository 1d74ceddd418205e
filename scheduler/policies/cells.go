package policies

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/scheduler/cells"
)

// Tenancy says who is guaranteed what. With it any placement and order runs
// under cells (package cells): a job that fits the cells of its tenant goes
// before all others, on cards that are the tenant's then, and who only borrowed
// them is ended for it. Orders no longer preempt.
type Tenancy struct {
	Tenants []cells.Tenant
	// Users maps names of users, or their numbers in text, to names of tenants.
	// Who is not listed is of no tenant, and runs on what is left.
	Users map[string]string
}

// Of returns the tenant of a job's owner, "" for none.
func (t *Tenancy) Of(o cluster.Owner) string {
	if name, ok := t.Users[o.Name]; ok && o.Name != "" {
		return name
	}
	return t.Users[strconv.FormatUint(uint64(o.UID), 10)]
}

// Bind works out whose cells the cards of a snapshot are.
func (t *Tenancy) Bind(snap *cluster.Snapshot) *cells.Binding { return t.bind(snap, true) }

func (t *Tenancy) bind(snap *cluster.Snapshot, rest bool) *cells.Binding {
	jobs := make([]cells.Job, 0, len(snap.Running))
	for _, j := range snap.Running {
		a := j.Live()
		if a == nil || len(a.Berth.GPUs) == 0 {
			continue
		}
		c := cells.Job{
			ID: j.ID, Tenant: t.Of(j.Owner), Since: max(a.Placed, a.Started), Preemptible: lendable(snap, j, rest),
			Ending: j.State == cluster.JobCompleting || j.Cancel != nil || j.Preempting(),
		}
		for _, g := range a.Berth.GPUs {
			c.GPUs = append(c.GPUs, g.GPU)
		}
		jobs = append(jobs, c)
	}
	return cells.Bind(snap.Nodes, t.Tenants, jobs)
}

// lendable reports whether a job may lie where others have a claim: it can be
// ended whenever they ask.
func lendable(snap *cluster.Snapshot, j *cluster.Job, rest bool) bool {
	return snap.Terms[j.ID].Preemptible && (!rest || j.Rested(snap.Now))
}

// SentHome says of a job that could borrow if it had not been preempted shortly ago when
// it may again, "" for all others: who lies on cards of others must be one that can be
// ended when they come, and nobody is asked twice within cluster.PreemptEvery.
func SentHome(snap *cluster.Snapshot, j *cluster.Job) string {
	if !snap.Terms[j.ID].Preemptible || j.Rested(snap.Now) {
		return ""
	}
	rest, ok := j.RestsFor(snap.Now)
	if !ok {
		return fmt.Sprintf("it was preempted %d times and borrows no more", cluster.MaxPreemptions)
	}
	return fmt.Sprintf("it was preempted shortly ago and borrows again in %s, since nobody is asked twice in %s", rest.Round(time.Second), cluster.PreemptEvery)
}

// cellMode says on which cards a task is tried.
type cellMode int8

const (
	modeMine  cellMode = iota + 1 // cells of its tenant
	modeLoose                     // and what nobody is guaranteed
	modeAny                       // and what others do not use
)

// guard keeps a pass within the cells.
type guard struct {
	p       *pass
	ten     *Tenancy
	b       *cells.Binding
	queues  bool // the placer keeps queues of cards
	mode    cellMode
	label   []string        // by card: whose cell it is in
	kept    []cluster.JobID // by card: for whom it is being cleared
	blocked map[string]struct{}
	heads   map[cluster.JobID]bool            // for whom room is kept in their cells
	cleared map[cluster.JobID][]cluster.JobID // victims of this pass, by who gets their place
}

func newGuard(p *pass) *guard {
	g := &guard{p: p, ten: p.opt.Tenants, mode: modeAny, label: make([]string, len(p.f.cards)), kept: make([]cluster.JobID, len(p.f.cards)),
		blocked: map[string]struct{}{}, heads: map[cluster.JobID]bool{}, cleared: map[cluster.JobID][]cluster.JobID{}}
	g.b = g.ten.bind(p.snap, p.opt.MinRun >= 0)
	g.read()
	return g
}

// read takes over whose each card is.
func (g *guard) read() {
	for i := range g.p.f.cards {
		g.label[i], _ = g.b.Holder(g.p.f.cards[i].use.ID)
	}
	clear(g.p.failed)
}

// allows reports whether t may lie on a card, as far as cells go. Who lies in a
// cell is either its tenant or somebody who borrows, never both on one card.
func (g *guard) allows(t *task, ci int32) bool {
	if g.kept[ci] != 0 && g.kept[ci] != t.id {
		return false
	}
	whose, of := g.label[ci], g.ten.Of(t.job.Owner)
	switch {
	case whose == "":
		return g.mode >= modeLoose
	case whose != of && (g.mode < modeAny || !g.lendable(t)):
		return false
	}
	for _, r := range g.p.f.cards[ci].on {
		if o := g.ten.Of(g.p.runs[r.run].job.Owner); (o == whose) != (of == whose) {
			return false
		}
	}
	return true
}

// allowsAll holds the choice of a placer that remembers scores against the
// cells once more.
func (g *guard) allowsAll(t *task, cards []int32) bool {
	return !slices.ContainsFunc(cards, func(ci int32) bool { return !g.allows(t, ci) })
}

func (g *guard) lendable(t *task) bool { return lendable(g.p.snap, t.job, g.p.opt.MinRun >= 0) }

// key parts tasks of one shape that may lie on different cards.
func (g *guard) key(t *task) cellKey {
	return cellKey{g.ten.Of(t.job.Owner), g.mode, g.lendable(t)}
}

// cellKey is the part of a shape that cells need.
type cellKey struct {
	tenant   string
	mode     cellMode
	lendable bool
}

// run is a pass under cells: first those whom their tenants' cells hold, each
// tenant's in the order, then everybody else.
func (g *guard) run(queues bool) {
	p := g.p
	g.queues = queues
	for _, t := range p.sorted() {
		of := g.ten.Of(t.job.Owner)
		if _, ok := g.blocked[of]; of == "" || t.gpus == 0 || ok {
			continue
		}
		if g.startOwn(t) {
			continue
		}
		if len(g.cleared[t.id]) > 0 || g.waitsForRoom(t) {
			continue
		}
		if g.everHeld(t) { // the cells are in use: none of the tenant passes it but by backfill
			g.blocked[of] = struct{}{}
			g.heads[t.id] = true
			if p.opt.Backfill == BackfillEASY && !queues {
				g.mode = modeMine
				p.holdCards(t)
			}
		}
	}
	for _, t := range p.sorted() {
		if t.gone || g.waitsForRoom(t) {
			continue
		}
		switch {
		case g.start(t) || p.opt.Backfill == BackfillAny || t.gpus > 0 && queues && !t.spans():
		case p.opt.Backfill == BackfillEASY:
			g.mode = modeLoose
			p.hold(t)
		case p.everFits(t):
			p.head = t
			return
		}
	}
}

// waitsForRoom reports whether cards are being cleared for t.
func (g *guard) waitsForRoom(t *task) bool { return slices.Contains(g.kept, t.id) }

// start tries t on the tenant's cells, then on what is nobody's, then on what
// others leave.
func (g *guard) start(t *task) bool {
	if t.gpus == 0 {
		return g.p.start(t)
	}
	if g.queues { // a placer that queues who does not fit is asked once
		if g.mode = modeLoose; g.lendable(t) {
			g.mode = modeAny
		}
		return g.p.start(t)
	}
	for m := modeMine; m <= modeAny; m++ {
		if m == modeAny && !g.lendable(t) || m == modeMine && (g.ten.Of(t.job.Owner) == "" || g.heads[t.id]) {
			continue
		}
		g.mode = m
		if g.p.start(t) {
			return true
		}
	}
	return false
}

// types lists the types of card on which t can lie, the fastest first.
func (g *guard) types(t *task) []string {
	type on struct {
		name string
		dur  int64
	}
	var all []on
	for c := range t.needs {
		name := g.p.f.classes[c].gpuType
		if t.needs[c].ok && !slices.ContainsFunc(all, func(o on) bool { return o.name == name }) {
			all = append(all, on{name, t.needs[c].dur})
		}
	}
	slices.SortStableFunc(all, func(a, b on) int { return cmp.Or(cmp.Compare(a.dur, b.dur), cmp.Compare(a.name, b.name)) })
	out := make([]string, len(all))
	for i := range all {
		out[i] = all[i].name
	}
	return out
}

// everHeld reports whether the tenant's cells could hold t if they were empty.
func (g *guard) everHeld(t *task) bool {
	of := g.ten.Of(t.job.Owner)
	return slices.ContainsFunc(g.types(t), func(name string) bool { return g.b.Widest(of, name) >= t.gpus })
}

// startOwn starts t if its tenant is guaranteed the room, or has it cleared.
func (g *guard) startOwn(t *task) bool {
	of := g.ten.Of(t.job.Owner)
	var types []string
	for _, name := range g.types(t) {
		if g.b.Guaranteed(of, name, t.gpus) {
			types = append(types, name)
		}
	}
	if len(types) == 0 { // beside others of the tenant there may be room
		g.mode = modeMine
		return !g.queues && g.p.start(t)
	}
	for g.mode = modeMine; g.mode <= modeLoose && !g.queues; g.mode++ {
		if g.p.start(t) {
			return true
		}
	}
	for _, name := range types {
		r := cells.Request{ID: t.id, Tenant: of, GPUType: name, GPUs: t.gpus, Preemptible: g.lendable(t)}
		a := g.b.Place(r, func(gpus []cluster.GPUID, victims []cluster.JobID) bool { return g.holds(t, gpus, victims) })
		if len(a.GPUs) == 0 {
			continue
		}
		g.read() // cells may be bound otherwise now
		if a.Now {
			g.p.place(t, g.cards(a.GPUs))
			return true
		}
		g.b.Take(r, a)
		g.clearFor(t, a)
		return false
	}
	return false
}

func (g *guard) cards(gpus []cluster.GPUID) []int32 {
	out := make([]int32, 0, len(gpus))
	for _, id := range gpus {
		out = append(out, g.p.f.cardAt[id])
	}
	return out
}

// holds reports whether cards of one group, and what the node has beside them
// once some have ended there, are enough for t.
func (g *guard) holds(t *task, gpus []cluster.GPUID, victims []cluster.JobID) bool {
	p := g.p
	group := int32(-1)
	for _, id := range gpus {
		ci, ok := p.f.cardAt[id]
		if !ok || group >= 0 && p.f.cards[ci].group != group || g.kept[ci] != 0 {
			return false
		}
		group = p.f.cards[ci].group
	}
	gr := &p.f.groups[group]
	h := &p.f.hosts[gr.host]
	if !t.needs[gr.class].ok || t.job.Spec.Node != "" && t.job.Spec.Node != h.node.ID {
		return false
	}
	cpu, mem := h.use.CPUMilli-h.use.UsedCPU, h.use.MemMiB-h.use.UsedMem
	for _, ri := range h.runs {
		r := &p.runs[ri]
		ending := r.job.State == cluster.JobCompleting || r.job.Cancel != nil || r.job.Preempting()
		if !r.fresh && (ending && len(victims) > 0 || slices.Contains(victims, r.job.ID)) {
			cpu, mem = cpu+r.berth.CPUMilli, mem+r.berth.MemMiB
		}
	}
	if len(victims) > 0 || !g.empty(gpus) {
		return cpu >= t.cpu && mem >= t.mem
	}
	for _, id := range gpus { // now: as the ledger says
		c := &p.f.cards[p.f.cardAt[id]]
		if n := &t.needs[gr.class]; c.use.FreeShares() < 1 || n.share.MemMiB > c.use.FreeMiB() || n.share.Milli > c.use.FreeMilli() || n.share.Exclusive && c.use.Shares > 0 {
			return false
		}
	}
	return cpu >= t.cpu && mem >= t.mem
}

func (g *guard) empty(gpus []cluster.GPUID) bool {
	for _, id := range gpus {
		if g.p.f.cards[g.p.f.cardAt[id]].use.Shares > 0 {
			return false
		}
	}
	return true
}

// clearFor proposes to end those in the way, and keeps the cards meanwhile.
func (g *guard) clearFor(t *task, a cells.Answer) {
	p := g.p
	for _, ci := range g.cards(a.GPUs) {
		g.kept[ci] = t.id
	}
	g.cleared[t.id] = a.Victims
	for _, id := range a.Victims {
		i, ok := slices.BinarySearchFunc(p.runs, id, func(r run, id cluster.JobID) int {
			if r.fresh { // those of this pass stand behind
				return 1
			}
			return cmp.Compare(r.job.ID, id)
		})
		if !ok || len(p.plan.Preempt) >= p.opt.MaxPreempt {
			continue
		}
		p.plan.Preempt = append(p.plan.Preempt, cluster.Preemption{
			Job: id, Attempt: p.runs[i].job.Live().No, For: t.id,
			Why: fmt.Sprintf("tenant %s is guaranteed the %d GPUs that it borrowed a part of", g.ten.Of(t.job.Owner), t.gpus),
		})
	}
}

// took enters a start in the binding.
func (g *guard) took(t *task, gpus []cluster.GPUShare) {
	if len(gpus) == 0 {
		return
	}
	a := cells.Answer{Now: true}
	for _, s := range gpus {
		a.GPUs = append(a.GPUs, s.GPU)
	}
	name := g.p.f.classes[g.p.f.groups[g.p.f.cards[g.p.f.cardAt[a.GPUs[0]]].group].class].gpuType
	of := g.ten.Of(t.job.Owner)
	a.Guaranteed = g.b.Guaranteed(of, name, t.gpus)
	g.b.Take(cells.Request{ID: t.id, Tenant: of, GPUType: name, GPUs: t.gpus, Preemptible: g.lendable(t)}, a)
}

// reason says why t waits as far as its tenant goes; the code is empty when
// that is not why.
func (g *guard) reason(t *task) cluster.Reason {
	of := g.ten.Of(t.job.Owner)
	if vs := g.cleared[t.id]; g.waitsForRoom(t) {
		return cluster.Reason{Code: cluster.ReasonResources, Detail: fmt.Sprintf("its cards in the cells of team %s are being cleared: %d that borrowed them are asked to end, others end already", of, len(vs))}
	}
	for _, name := range g.types(t) {
		if why := g.b.Why(cells.Request{ID: t.id, Tenant: of, GPUType: name, GPUs: t.gpus, Preemptible: g.lendable(t), Sent: SentHome(g.p.snap, t.job)}); why != "" {
			return cluster.Reason{Code: cluster.ReasonTenantCells, Detail: why}
		}
	}
	return cluster.Reason{}
}
