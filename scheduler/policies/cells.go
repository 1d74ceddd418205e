package policies

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler/cells"
	"github.com/berth-scheduler/berth/scheduler/policies/mirror"
	"github.com/berth-scheduler/berth/scheduler/policies/scene"
)

// Tenancy says what is guaranteed to whom. With it any placement and order runs
// under cells (package cells): a job that fits the cells of its tenant goes before
// all others, on GPUs that are then the tenant's, and jobs that only borrowed them
// are preempted for it. Orders no longer preempt.
type Tenancy struct {
	Tenants []cells.Tenant
	// Users maps names of users, or their numbers in text, to names of tenants.
	// Users not listed have no tenant, and run on what is left.
	Users map[string]string
}

// Of returns the tenant of a job's owner, "" for none.
func (t *Tenancy) Of(o cluster.Owner) string {
	if name, ok := t.Users[o.Name]; ok && o.Name != "" {
		return name
	}
	return t.Users[strconv.FormatUint(uint64(o.UID), 10)]
}

// Bind computes to whose cells the GPUs of a snapshot belong. A job on several nodes
// is on all of them.
func (t *Tenancy) Bind(snap *dispatch.Snapshot) *cells.Binding { return t.bind(snap, true) }

func (t *Tenancy) bind(snap *dispatch.Snapshot, rest bool) *cells.Binding {
	jobs := make([]cells.Job, 0, len(snap.Running))
	for _, j := range snap.Running {
		a := j.Live()
		if a == nil || len(a.HeldGPUs()) == 0 {
			continue
		}
		c := cells.Job{
			ID: j.ID, Tenant: t.Of(j.Owner), Since: max(a.Placed, a.Started), Preemptible: lendable(snap, j, rest),
			Ending: j.State == cluster.JobCompleting || j.Cancel != nil || j.Preempting(),
		}
		for _, g := range a.HeldGPUs() {
			c.GPUs = append(c.GPUs, g.GPU)
		}
		jobs = append(jobs, c)
	}
	return cells.Bind(snap.Nodes, t.Tenants, jobs)
}

// lendable reports whether a job may run where others have a claim: it can be ended
// whenever they ask.
func lendable(snap *dispatch.Snapshot, j *cluster.Job, rest bool) bool {
	return snap.Terms[j.ID].Preemptible && (!rest || j.Rested(snap.Now))
}

// SentHome says, for a job that could borrow but was recently preempted, when it
// may again, "" for all others: a borrower must be preemptible when the owners
// come, and no job is asked twice within cluster.PreemptEvery.
func SentHome(snap *dispatch.Snapshot, j *cluster.Job) string {
	if !snap.Terms[j.ID].Preemptible || j.Rested(snap.Now) {
		return ""
	}
	rest, ok := j.RestsFor(snap.Now)
	if !ok {
		return fmt.Sprintf("it was preempted %d times and borrows no more", cluster.MaxPreemptions)
	}
	return fmt.Sprintf("it was preempted shortly ago and borrows again in %s, since nobody is asked twice in %s", rest.Round(time.Second), cluster.PreemptEvery)
}

// cellMode says on which GPUs a task is tried.
type cellMode int8

const (
	modeMine  cellMode = iota + 1 // cells of its tenant
	modeLoose                     // and what is not guaranteed
	modeAny                       // and what others do not use
)

// guard keeps a pass within the cells.
type guard struct {
	p       *pass
	ten     *Tenancy
	b       *cells.Binding
	queues  bool // the placer keeps queues of GPUs
	mode    cellMode
	label   []string        // by GPU: whose cell it is in
	kept    []cluster.JobID // by GPU: for which job it is being cleared
	blocked map[string]struct{}
	heads   map[cluster.JobID]bool            // jobs for which room is kept in their cells
	cleared map[cluster.JobID][]cluster.JobID // victims of this pass, by the job that gets their place
}

func newGuard(p *pass) *guard {
	g := &guard{p: p, ten: p.opt.Tenants, mode: modeAny, label: make([]string, len(p.Fleet.Cards)), kept: make([]cluster.JobID, len(p.Fleet.Cards)),
		blocked: map[string]struct{}{}, heads: map[cluster.JobID]bool{}, cleared: map[cluster.JobID][]cluster.JobID{}}
	g.b = g.ten.bind(p.Snap, p.opt.MinRun >= 0)
	p.Fence, p.starter.guard = g, g
	g.read()
	return g
}

// read records to whom each GPU belongs.
func (g *guard) read() {
	for i := range g.p.Fleet.Cards {
		g.label[i], _ = g.b.Holder(g.p.Fleet.Cards[i].Use.ID)
	}
	clear(g.p.starter.failed)
}

// Allows reports whether t may run on a GPU, as far as cells go. Jobs in a cell are
// either its tenant's or borrowers, never both on one GPU.
func (g *guard) Allows(t *scene.Task, ci int32) bool {
	if g.kept[ci] != 0 && g.kept[ci] != t.ID {
		return false
	}
	whose, of := g.label[ci], g.ten.Of(t.Job.Owner)
	switch {
	case whose == "":
		return g.mode >= modeLoose
	case whose != of && (g.mode < modeAny || !g.lendable(t)):
		return false
	}
	return !slices.ContainsFunc(g.p.Fleet.Cards[ci].On, func(r mirror.Resident) bool {
		o := g.ten.Of(g.p.Fleet.Runs[r.Run].Job.Owner)
		return (o == whose) != (of == whose)
	})
}

// allowsAll checks the choice of a placer that remembers scores against the cells
// again.
func (g *guard) allowsAll(t *scene.Task, cards []int32) bool {
	return !slices.ContainsFunc(cards, func(ci int32) bool { return !g.Allows(t, ci) })
}

func (g *guard) lendable(t *scene.Task) bool { return lendable(g.p.Snap, t.Job, g.p.opt.MinRun >= 0) }

// key distinguishes tasks of one shape that may run on different GPUs.
func (g *guard) key(t *scene.Task) cellKey {
	return cellKey{g.ten.Of(t.Job.Owner), g.mode, g.lendable(t)}
}

// cellKey is the part of a shape that cells need.
type cellKey struct {
	tenant   string
	mode     cellMode
	lendable bool
}

// run runs a pass under cells: first the tasks that their tenants' cells hold, each
// tenant's in the order, then all others.
func (g *guard) run(queues bool) {
	p := g.p
	g.queues = queues
	for _, t := range p.turns.Sorted() {
		of := g.ten.Of(t.Job.Owner)
		if _, ok := g.blocked[of]; of == "" || t.GPUs == 0 || ok {
			continue
		}
		if g.startOwn(t) {
			continue
		}
		if len(g.cleared[t.ID]) > 0 || g.waitsForRoom(t) {
			continue
		}
		if g.everHeld(t) { // the cells are in use: none of the tenant's tasks overtakes it except by backfill
			g.blocked[of] = struct{}{}
			g.heads[t.ID] = true
			if p.opt.Backfill == BackfillEASY && !queues {
				g.mode = modeMine
				p.keeper.holdCards(t)
			}
		}
	}
	for _, t := range p.turns.Sorted() {
		if t.Gone || g.waitsForRoom(t) {
			continue
		}
		switch {
		case g.start(t) || p.opt.Backfill == BackfillAny || t.GPUs > 0 && queues && !t.Spans():
		case p.opt.Backfill == BackfillEASY:
			g.mode = modeLoose
			p.keeper.hold(t)
		case p.EverFits(t):
			p.keeper.head = t
			return
		}
	}
}

// waitsForRoom reports whether GPUs are being cleared for t.
func (g *guard) waitsForRoom(t *scene.Task) bool { return slices.Contains(g.kept, t.ID) }

// start tries t on the tenant's cells, then on what is not guaranteed, then on what
// others leave.
func (g *guard) start(t *scene.Task) bool {
	if t.GPUs == 0 {
		return g.p.starter.start(t)
	}
	if g.queues { // a placer that queues what does not fit is asked once
		if g.mode = modeLoose; g.lendable(t) {
			g.mode = modeAny
		}
		return g.p.starter.start(t)
	}
	for m := modeMine; m <= modeAny; m++ {
		if m == modeAny && !g.lendable(t) || m == modeMine && (g.ten.Of(t.Job.Owner) == "" || g.heads[t.ID]) {
			continue
		}
		g.mode = m
		if g.p.starter.start(t) {
			return true
		}
	}
	return false
}

// types lists the GPU types on which t can run, the fastest first.
func (g *guard) types(t *scene.Task) []string {
	type on struct {
		name string
		dur  int64
	}
	var all []on
	for c := range t.Needs {
		name := g.p.Fleet.Classes[c].GPUType
		if t.Needs[c].OK && !slices.ContainsFunc(all, func(o on) bool { return o.name == name }) {
			all = append(all, on{name, t.Needs[c].Dur})
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
func (g *guard) everHeld(t *scene.Task) bool {
	of := g.ten.Of(t.Job.Owner)
	return slices.ContainsFunc(g.types(t), func(name string) bool { return g.b.Widest(of, name) >= t.GPUs })
}

// startOwn starts t if its tenant is guaranteed the room, or has the room cleared.
func (g *guard) startOwn(t *scene.Task) bool {
	of := g.ten.Of(t.Job.Owner)
	var types []string
	for _, name := range g.types(t) {
		if g.b.Guaranteed(of, name, t.GPUs) {
			types = append(types, name)
		}
	}
	if len(types) == 0 { // next to the tenant's other jobs there may be room
		g.mode = modeMine
		return !g.queues && g.p.starter.start(t)
	}
	for g.mode = modeMine; g.mode <= modeLoose && !g.queues; g.mode++ {
		if g.p.starter.start(t) {
			return true
		}
	}
	for _, name := range types {
		r := cells.Request{ID: t.ID, Tenant: of, GPUType: name, GPUs: t.GPUs, Preemptible: g.lendable(t)}
		a := g.b.Place(r, func(gpus []cluster.GPUID, victims []cluster.JobID) bool { return g.holds(t, gpus, victims) })
		if len(a.GPUs) == 0 {
			continue
		}
		g.read() // cells may be bound differently now
		if a.Now {
			g.p.starter.place(t, g.cards(a.GPUs))
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
		out = append(out, g.p.Fleet.CardAt[id])
	}
	return out
}

// holds reports whether GPUs of one group, and the node's cores and memory once
// some jobs have ended there, suffice for t.
func (g *guard) holds(t *scene.Task, gpus []cluster.GPUID, victims []cluster.JobID) bool {
	p := g.p
	group := int32(-1)
	for _, id := range gpus {
		ci, ok := p.Fleet.CardAt[id]
		if !ok || group >= 0 && p.Fleet.Cards[ci].Group != group || g.kept[ci] != 0 {
			return false
		}
		group = p.Fleet.Cards[ci].Group
	}
	gr := &p.Fleet.Groups[group]
	h := &p.Fleet.Hosts[gr.Host]
	if !t.Needs[gr.Class].OK || t.Job.Spec.Node != "" && t.Job.Spec.Node != h.Node.ID {
		return false
	}
	cpu, mem := h.Use.CPUMilli-h.Use.UsedCPU, h.Use.MemMiB-h.Use.UsedMem
	for _, ri := range h.Runs {
		r := &p.Fleet.Runs[ri]
		ending := r.Job.State == cluster.JobCompleting || r.Job.Cancel != nil || r.Job.Preempting()
		if !r.Fresh && (ending && len(victims) > 0 || slices.Contains(victims, r.Job.ID)) {
			cpu, mem = cpu+r.Berth.CPUMilli, mem+r.Berth.MemMiB
		}
	}
	if len(victims) > 0 || !g.empty(gpus) {
		return cpu >= t.CPU && mem >= t.Mem
	}
	for _, id := range gpus { // now: as the ledger says
		c := &p.Fleet.Cards[p.Fleet.CardAt[id]]
		if n := &t.Needs[gr.Class]; c.Use.FreeShares() < 1 || n.Share.MemMiB > c.Use.FreeMiB() || n.Share.Milli > c.Use.FreeMilli() || n.Share.Exclusive && c.Use.Shares > 0 {
			return false
		}
	}
	return cpu >= t.CPU && mem >= t.Mem
}

func (g *guard) empty(gpus []cluster.GPUID) bool {
	return !slices.ContainsFunc(gpus, func(id cluster.GPUID) bool {
		return g.p.Fleet.Cards[g.p.Fleet.CardAt[id]].Use.Shares > 0
	})
}

// clearFor proposes to preempt the jobs in the way, and reserves the GPUs
// meanwhile.
func (g *guard) clearFor(t *scene.Task, a cells.Answer) {
	p := g.p
	for _, ci := range g.cards(a.GPUs) {
		g.kept[ci] = t.ID
	}
	g.cleared[t.ID] = a.Victims
	for _, id := range a.Victims {
		i, ok := slices.BinarySearchFunc(p.Fleet.Runs, id, func(r mirror.Run, id cluster.JobID) int {
			if r.Fresh { // those of this pass come last
				return 1
			}
			return cmp.Compare(r.Job.ID, id)
		})
		if !ok || !p.MayAsk() {
			continue
		}
		p.Plan.Preempt = append(p.Plan.Preempt, dispatch.Preemption{
			Job: id, Attempt: p.Fleet.Runs[i].Job.Live().No, For: t.ID,
			Why: fmt.Sprintf("tenant %s is guaranteed the %d GPUs that it borrowed a part of", g.ten.Of(t.Job.Owner), t.GPUs),
		})
	}
}

// took enters a start into the binding.
func (g *guard) took(t *scene.Task, gpus []cluster.GPUShare) {
	if len(gpus) == 0 {
		return
	}
	a := cells.Answer{Now: true}
	for _, s := range gpus {
		a.GPUs = append(a.GPUs, s.GPU)
	}
	name := g.p.Fleet.Classes[g.p.Fleet.Groups[g.p.Fleet.Cards[g.p.Fleet.CardAt[a.GPUs[0]]].Group].Class].GPUType
	of := g.ten.Of(t.Job.Owner)
	a.Guaranteed = g.b.Guaranteed(of, name, t.GPUs)
	g.b.Take(cells.Request{ID: t.ID, Tenant: of, GPUType: name, GPUs: t.GPUs, Preemptible: g.lendable(t)}, a)
}

// reason says why t waits as far as its tenant goes; the code is empty if that is
// not the reason.
func (g *guard) reason(t *scene.Task) cluster.Reason {
	of := g.ten.Of(t.Job.Owner)
	if vs := g.cleared[t.ID]; g.waitsForRoom(t) {
		return cluster.Reason{Code: cluster.ReasonResources, Detail: fmt.Sprintf("its cards in the cells of team %s are being cleared: %d that borrowed them are asked to end, others end already", of, len(vs))}
	}
	for _, name := range g.types(t) {
		if why := g.b.Why(cells.Request{ID: t.ID, Tenant: of, GPUType: name, GPUs: t.GPUs, Preemptible: g.lendable(t), Sent: SentHome(g.p.Snap, t.Job)}); why != "" {
			return cluster.Reason{Code: cluster.ReasonTenantCells, Detail: why}
		}
	}
	return cluster.Reason{}
}
