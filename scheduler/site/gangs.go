package site

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler/cells"
	"github.com/berth-scheduler/berth/scheduler/policies"
	"github.com/berth-scheduler/berth/scheduler/rules"
)

// Where GPUs are guaranteed to tenants, policies place single-node jobs under
// cells, and jobs with GPUs on several nodes are placed here, before them: first
// those that their tenants' cells can hold on as many nodes, with room made where
// others borrowed, then those that find room. To the policy each node's part of a
// gang is a job of its own that runs there, so a tenant's own GPUs are counted in
// one way.

// gangs is the part of a pass under tenants that handles jobs on several nodes.
type gangs struct {
	*Chosen
	ten  *policies.Tenancy
	snap *dispatch.Snapshot
	led  *dispatch.Ledger
	b    *cells.Binding
	kept map[cluster.NodeID]*policies.Kept
	plan dispatch.Plan
	// running holds the running jobs as the policy should see them, real the job
	// behind each part that it sees as a job of its own.
	running []*cluster.Job
	real    map[cluster.JobID]*cluster.Job
	first   map[string]struct{} // tenants with a gang that already waits for cells
	barred  []string            // see entering
	node    map[cluster.GPUID]*cluster.Node
	on      map[cluster.NodeID][]*cluster.Job // running jobs by node
}

// spanning reports whether a job takes GPUs of several nodes, but not all of each.
func spanning(j *cluster.Job) bool {
	return j.Spec.GPUs > 0 && j.Spec.NodeCount() > 1 && !j.Spec.WholeNodes()
}

// planTenants asks the policy about the single-node jobs, after the gangs were
// placed.
func (c *Chosen) planTenants(snap *dispatch.Snapshot, kept []policies.Kept) (dispatch.Plan, []policies.Kept) {
	runs := func(j *cluster.Job) bool { return j.Live() != nil && j.Live().Gang != nil && j.Spec.GPUs > 0 }
	if !slices.ContainsFunc(snap.Waiting, spanning) && !slices.ContainsFunc(snap.Running, runs) {
		return c.ask(snap, kept)
	}
	g := newGangs(c, snap, kept)
	var all []*cluster.Job
	view := *snap
	view.Waiting = nil
	for _, j := range snap.Waiting {
		if spanning(j) {
			all = append(all, j)
		} else {
			view.Waiting = append(view.Waiting, j)
		}
	}
	slices.SortFunc(all, func(a, b *cluster.Job) int {
		return cmp.Or(cmp.Compare(a.Eligible, b.Eligible), cmp.Compare(a.ID, b.ID))
	})
	rest := slices.DeleteFunc(all, func(j *cluster.Job) bool { // none of these is preempted for the others
		held := g.held(j)
		if held {
			g.place(j)
		}
		return held
	})
	g.barred = g.entering(view.Waiting)
	for _, j := range rest {
		g.place(j)
	}
	view.Ledger, view.Running, view.Terms = g.led, g.running, g.terms()
	slices.SortFunc(view.Running, func(a, b *cluster.Job) int { return cmp.Compare(a.ID, b.ID) })
	list := make([]policies.Kept, 0, len(g.kept))
	for _, id := range slices.Sorted(maps.Keys(g.kept)) {
		list = append(list, *g.kept[id])
	}
	plan, keeps := c.ask(&view, list)
	g.take(&plan)
	return g.plan, keeps
}

// terms returns the terms of the snapshot, and those of parts. A gang that is
// within its team's guarantee as a whole may not be preempted, which its parts
// alone need not show: one node may have room for several of them.
func (g *gangs) terms() map[cluster.JobID]dispatch.Terms {
	out := maps.Clone(g.snap.Terms)
	for id, j := range g.real {
		switch t, ok := g.snap.Terms[j.ID]; {
		case g.b.Own(j.ID):
			delete(out, j.ID)
		case ok:
			out[id] = t
		}
	}
	return out
}

func newGangs(c *Chosen, snap *dispatch.Snapshot, kept []policies.Kept) *gangs {
	ten := c.Tenancy()
	g := &gangs{Chosen: c, ten: ten, snap: snap, led: snap.Ledger.Clone(), b: ten.Bind(snap), plan: dispatch.Plan{BaseIndex: snap.Index},
		kept: map[cluster.NodeID]*policies.Kept{}, real: map[cluster.JobID]*cluster.Job{}, first: map[string]struct{}{}, node: map[cluster.GPUID]*cluster.Node{}, on: map[cluster.NodeID][]*cluster.Job{}}
	for i := range kept {
		k := kept[i]
		g.kept[k.Node] = &k
	}
	for _, n := range snap.Nodes {
		for i := range n.GPUs {
			g.node[n.GPUs[i].ID] = n
		}
	}
	for _, j := range snap.Running {
		g.runs(j)
		if a := j.Live(); a != nil {
			for _, b := range a.Held() {
				g.on[b.Node] = append(g.on[b.Node], j)
			}
		}
	}
	return g
}

// runs shows a running job to the policy, one on several nodes as a job on each.
func (g *gangs) runs(j *cluster.Job) {
	a := j.Live()
	if a == nil || a.Gang == nil {
		g.running = append(g.running, j)
		return
	}
	for rank, b := range a.Held() {
		part, spec, one := *j, *j.Spec, *a
		one.Berth, one.Gang = *b, nil
		spec.Nodes = 0
		part.Spec, part.Attempts = &spec, append(slices.Clone(j.Attempts[:len(j.Attempts)-1]), one)
		if rank > 0 {
			part.ID = partID(j.ID, rank)
			g.real[part.ID] = j
		}
		g.running = append(g.running, &part)
	}
}

// Ids that no job has: for a gang's parts after the first, and for what is reserved
// for one on a node. MaxNodes ranks fit next to the id.
const (
	partIDs = cluster.JobID(1) << 62
	keptIDs = cluster.JobID(1) << 63
)

func partID(id cluster.JobID, rank int) cluster.JobID {
	return partIDs | id*cluster.MaxNodes | cluster.JobID(rank)
}

// entering lists the teams with a waiting single-node job that their cells hold:
// the policy starts it, or has room made, after the gangs.
func (g *gangs) entering(waiting []*cluster.Job) (out []string) {
	for _, j := range waiting {
		of := g.ten.Of(j.Owner)
		if j.Spec.GPUs > 0 && of != "" && !slices.Contains(out, of) && slices.ContainsFunc(g.types(j), func(t onType) bool { return g.b.Guaranteed(of, t.name, j.Spec.GPUs) }) {
			out = append(out, of)
		}
	}
	return out
}

// held reports whether a gang's team is guaranteed the room, on GPUs of some type.
func (g *gangs) held(j *cluster.Job) bool {
	of := g.ten.Of(j.Owner)
	return slices.ContainsFunc(g.types(j), func(t onType) bool { return g.b.GuaranteedOn(of, t.name, j.Spec.GPUs, j.Spec.NodeCount()) })
}

// place starts a gang, has room made for it, or gives the reason why it waits.
func (g *gangs) place(j *cluster.Job) {
	of, held := g.ten.Of(j.Owner), false
	for _, typ := range g.types(j) {
		r := g.request(j, of, typ.name)
		guaranteed := g.b.GuaranteedOn(of, typ.name, r.GPUs, r.Nodes)
		held = held || guaranteed
		if guaranteed && g.passed(j, of) {
			continue
		}
		a := g.choose(j, &typ, r)
		switch {
		case len(a.GPUs) == 0:
			continue
		case a.Now:
			g.start(j, &typ, r, a)
			return
		}
		g.b.Take(r, a)
		g.clear(j, &typ, a)
		g.wait(j, cluster.Reason{Code: cluster.ReasonResources, Detail: fmt.Sprintf(
			"its cards in the cells of team %s are being cleared on %d nodes: %d that borrowed them are asked to end, others end already", of, r.Nodes, len(a.Victims))})
		return
	}
	if !held {
		g.gather(j, of)
	}
	g.wait(j, g.why(j, of, held))
}

func (g *gangs) wait(j *cluster.Job, r cluster.Reason) {
	g.plan.Unplaced = append(g.plan.Unplaced, dispatch.Unplaced{Job: j.ID, Reason: r})
}

// why returns the reason why a gang waits for which no room is being made.
func (g *gangs) why(j *cluster.Job, of string, held bool) cluster.Reason {
	all := g.types(j)
	for i := range all {
		if why := g.b.Why(g.request(j, of, all[i].name)); why != "" {
			return cluster.Reason{Code: cluster.ReasonTenantCells, Detail: why}
		}
	}
	switch {
	case len(all) == 0:
		return cluster.Reason{Code: cluster.ReasonNodes, Detail: fmt.Sprintf("no type of GPU in service has what it needs on each of %d nodes", j.Spec.NodeCount())}
	case held && g.passed(j, of):
		return cluster.Reason{Code: cluster.ReasonQueueOrder, Detail: fmt.Sprintf("the cells of team %s can hold it, and a job of the team that waits for longer comes before it", of)}
	}
	return cluster.Reason{Code: cluster.ReasonNodes, Detail: fmt.Sprintf(
		"the cells of team %s can hold it, but fewer than %d nodes have %d GPUs, the cores and the memory that it needs beside who may not be ended there", of, j.Spec.NodeCount(), j.Spec.GPUs)}
}

func (g *gangs) request(j *cluster.Job, of, gpuType string) cells.Request {
	return cells.Request{ID: j.ID, Tenant: of, Preemptible: lendable(g.snap, j), Sent: policies.SentHome(g.snap, j), GPUType: gpuType, GPUs: j.Spec.GPUs, Nodes: j.Spec.NodeCount(), Barred: g.barred}
}

// passed reports whether a single-node job of the tenant that has waited longer has
// room in its cells, and comes first; for hours none does.
func (g *gangs) passed(j *cluster.Job, of string) bool {
	if old := g.Policy.FIFOAge; old > 0 && g.snap.Now.Sub(j.Eligible) >= old {
		return false
	}
	return slices.ContainsFunc(g.snap.Waiting, func(o *cluster.Job) bool {
		return o.Spec.GPUs > 0 && !Spans(o) && o.Eligible < j.Eligible && g.ten.Of(o.Owner) == of &&
			slices.ContainsFunc(g.types(o), func(t onType) bool { return g.b.Guaranteed(of, t.name, o.Spec.GPUs) })
	})
}

// onType is what a job takes of GPUs of a type, all of which are alike or larger
// than the smallest.
type onType struct {
	name string
	need rules.Need
	gpu  *cluster.GPU
}

// types lists the types on which a job can run, the fastest first.
func (g *gangs) types(j *cluster.Job) []onType {
	var out []onType
	for _, n := range g.snap.Nodes {
		for i := range n.GPUs {
			c := &n.GPUs[i]
			if c.SellableMiB < j.MinGPUMemMiB || !n.Schedulable() {
				continue
			}
			k := slices.IndexFunc(out, func(o onType) bool { return o.name == c.Type })
			if k >= 0 && out[k].gpu.SellableMiB <= c.SellableMiB {
				continue
			}
			e, _ := cluster.EstimateFor(j.Estimates, c.Type)
			need := rules.NeedOn(j, c, &e, &g.Policy)
			switch {
			case need.Way == rules.WayNone:
			case k >= 0:
				out[k] = onType{c.Type, need, c}
			default:
				out = append(out, onType{c.Type, need, c})
			}
		}
	}
	slices.SortFunc(out, func(a, b onType) int { return cmp.Or(cmp.Compare(a.need.Dur, b.need.Dur), cmp.Compare(a.name, b.name)) })
	return out
}

// choose finds GPUs for a gang, preferably on nodes that delayed none of its
// attempts. Nodes that it asks for by name are all included.
func (g *gangs) choose(j *cluster.Job, t *onType, r cells.Request) cells.Answer {
	for _, late := range []bool{false, true} {
		if late && j.Undone() == 0 {
			break
		}
		a := g.b.Place(r, func(gpus []cluster.GPUID, victims []cluster.JobID) bool {
			n := g.node[gpus[0]]
			return (late || !j.HeldUpBy(n.ID)) && g.holds(j, t, n, gpus, victims)
		})
		if len(a.GPUs) > 0 && g.hasNamed(j, a.GPUs) && g.onFew(j, a.GPUs) {
			return a
		}
	}
	return cells.Answer{}
}

func (g *gangs) hasNamed(j *cluster.Job, gpus []cluster.GPUID) bool {
	if !j.Spec.Where.Named() {
		return true
	}
	named := map[cluster.NodeID]struct{}{}
	for _, id := range gpus {
		if n := g.node[id]; j.Spec.Where.Nodes.Holds(n.ID) {
			named[n.ID] = struct{}{}
		}
	}
	return len(named) == min(j.Spec.Where.Nodes.Len(), j.Spec.NodeCount())
}

// onFew reports whether the nodes are on as few switches as the gang still insists
// on.
func (g *gangs) onFew(j *cluster.Job, gpus []cluster.GPUID) bool {
	most, _ := j.FewSwitches(g.snap.Now)
	on := map[string]struct{}{}
	for _, id := range gpus {
		on[g.node[id].SwitchPath()] = struct{}{}
	}
	return most == 0 || len(on) <= most
}

// holds reports whether a node has what a gang needs there once the victims have
// ended.
func (g *gangs) holds(j *cluster.Job, t *onType, n *cluster.Node, gpus []cluster.GPUID, victims []cluster.JobID) bool {
	if !j.Spec.Allows(n) {
		return false
	}
	if k := g.kept[n.ID]; k != nil && k.For != j.ID {
		return false
	}
	b := g.berth(j, t, n, gpus)
	empty := !slices.ContainsFunc(gpus, func(id cluster.GPUID) bool { u, _ := g.led.GPU(id); return u.Shares > 0 })
	if empty && g.led.Fits(&b).Code == "" {
		return true
	}
	u, ok := g.led.Node(n.ID)
	cpu, mem := u.CPUMilli-u.UsedCPU, u.MemMiB-u.UsedMem
	for _, o := range g.on[n.ID] {
		leaves := o.State == cluster.JobCompleting || o.Cancel != nil || o.Preempting() || slices.Contains(victims, o.ID)
		if rank := o.Live().Rank(n.ID); leaves && o.Live().PartLive(rank) {
			part := o.Live().BerthAt(rank)
			cpu, mem = cpu+part.CPUMilli, mem+part.MemMiB
		}
	}
	return ok && !empty && cpu >= b.CPUMilli && mem >= b.MemMiB
}

// berth returns what a gang takes of a node.
func (g *gangs) berth(j *cluster.Job, t *onType, n *cluster.Node, gpus []cluster.GPUID) cluster.Berth {
	b := cluster.Berth{Node: n.ID}
	b.CPUMilli, b.MemMiB = rules.HostOf(j, &g.Policy)
	for _, id := range gpus {
		b.GPUs = append(b.GPUs, cluster.GPUShare{GPU: id, Share: t.need.Share(n.GPU(id).SellableMiB)})
	}
	slices.SortFunc(b.GPUs, func(x, y cluster.GPUShare) int { return cmp.Compare(x.GPU, y.GPU) })
	return b
}

// berths returns what a gang takes of all nodes of an answer, by their ids.
func (g *gangs) berths(j *cluster.Job, t *onType, a cells.Answer) []cluster.Berth {
	by := map[cluster.NodeID][]cluster.GPUID{}
	for _, id := range a.GPUs {
		by[g.node[id].ID] = append(by[g.node[id].ID], id)
	}
	var out []cluster.Berth
	for _, id := range slices.Sorted(maps.Keys(by)) {
		out = append(out, g.berth(j, t, g.node[by[id][0]], by[id]))
	}
	return out
}

func (g *gangs) start(j *cluster.Job, t *onType, r cells.Request, a cells.Answer) {
	all := g.berths(j, t, a)
	st := dispatch.Start{Job: j.ID, Attempt: uint32(len(j.Attempts)) + 1, Berth: all[0], Rest: all[1:]}
	_, st.Estimate, _ = rules.ShareOn(j, t.gpu, g.Policy)
	st.Why = fmt.Sprintf("%s: %d nodes with %d of %s each", g.Name(), r.Nodes, r.GPUs, t.name)
	if a.Guaranteed {
		st.Why += fmt.Sprintf(", in the cells of team %s", r.Tenant)
	}
	for _, s := range st.AllGPUs() {
		if q := g.snap.Queues[s.GPU]; len(q) > 0 && st.Overtook == "" {
			st.Overtook = fmt.Sprintf("%s has one queue in which j%d does not stand first", g.Name(), q[0].Job)
		}
	}
	g.b.Take(r, a)
	g.led.TakeStart(&st)
	g.plan.Starts = append(g.plan.Starts, st)
	g.runs(st.Began(j, g.snap.Now))
}

// clear proposes to preempt the jobs in the way of a gang, and reserves the GPUs
// meanwhile.
func (g *gangs) clear(j *cluster.Job, t *onType, a cells.Answer) {
	for _, id := range a.Victims {
		i, ok := slices.BinarySearchFunc(g.snap.Running, id, func(o *cluster.Job, id cluster.JobID) int { return cmp.Compare(o.ID, id) })
		if !ok {
			continue
		}
		g.plan.Preempt = append(g.plan.Preempt, dispatch.Preemption{
			Job: id, Attempt: g.snap.Running[i].Live().No, For: j.ID,
			Why: fmt.Sprintf("tenant %s is guaranteed the %d nodes of which it borrowed a part", g.ten.Of(j.Owner), j.Spec.NodeCount()),
		})
	}
	g.keep(j, t, a)
}

// gather reserves what is free of its tenant's cells for a gang that they could
// hold but do not now, the tenant's first one: as many nodes as there are, and more
// from pass to pass, or smaller jobs of the tenant would take them one after the
// other forever.
func (g *gangs) gather(j *cluster.Job, of string) {
	if _, other := g.first[of]; other || of == "" {
		return
	}
	for _, t := range g.types(j) {
		r := g.request(j, of, t.name)
		if !g.b.EverHolds(r) {
			continue
		}
		g.first[of] = struct{}{}
		for r.Nodes--; r.Nodes > 0; r.Nodes-- {
			if !g.b.GuaranteedOn(of, t.name, r.GPUs, r.Nodes) {
				continue
			}
			if a := g.choose(j, &t, r); a.Now {
				r.Preemptible = false
				g.b.Take(r, a)
				g.keep(j, &t, a)
				return
			}
		}
		return
	}
}

// keep shows the policy a non-preemptible job of the gang's tenant on each node of
// an answer, so that no other job gets the GPUs, and lets no job join the
// residents.
func (g *gangs) keep(j *cluster.Job, t *onType, a cells.Answer) {
	for i, b := range g.berths(j, t, a) {
		spec := *j.Spec
		spec.Nodes, spec.Checkpoint = 0, cluster.Checkpoint{}
		run := &cluster.Job{ID: keptIDs | j.ID*cluster.MaxNodes | cluster.JobID(i), Spec: &spec, Owner: j.Owner, State: cluster.JobRunning, Estimates: j.Estimates, Submitted: j.Submitted,
			Attempts: []cluster.Attempt{{No: 1, State: cluster.JobRunning, Berth: b, Placed: g.snap.Now, Started: g.snap.Now}}}
		g.running = append(g.running, run)
		k := &policies.Kept{Node: b.Node, CPUMilli: b.CPUMilli, MemMiB: b.MemMiB, Until: g.snap.Now, For: j.ID}
		for _, s := range b.GPUs {
			k.GPUs = append(k.GPUs, s.GPU)
		}
		g.kept[b.Node] = k
	}
}

// take adds what the policy planned: if it would preempt a part of a gang, that is
// the gang.
func (g *gangs) take(plan *dispatch.Plan) {
	g.plan.Starts = append(g.plan.Starts, plan.Starts...)
	g.plan.Moves = append(g.plan.Moves, plan.Moves...)
	g.plan.Unplaced = append(g.plan.Unplaced, plan.Unplaced...)
	for _, x := range plan.Preempt {
		if j := g.real[x.Job]; j != nil {
			x.Job = j.ID
		}
		if !slices.ContainsFunc(g.plan.Preempt, func(o dispatch.Preemption) bool { return o.Job == x.Job }) {
			g.plan.Preempt = append(g.plan.Preempt, x)
		}
	}
}
