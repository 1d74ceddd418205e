package scheduler

import (
	"cmp"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler/company"
	"github.com/berth-scheduler/berth/scheduler/fleet"
	"github.com/berth-scheduler/berth/scheduler/rules"
)

// View is the live state that the fast path reads. The fast path neither changes
// nor keeps what it returns.
type View interface {
	Now() cluster.Time
	Index() uint64
	Ledger() *dispatch.Ledger
	Job(cluster.JobID) (*cluster.Job, bool)
	Node(cluster.NodeID) (*cluster.Node, bool)
	Queue(cluster.GPUID) []dispatch.Waiter
}

// CompanyView is a View that also knows which jobs run on a GPU and how they slow
// each other down. With a plain View no jobs are kept apart for that.
type CompanyView interface {
	View
	OnGPU(cluster.GPUID) []cluster.JobID
	Interference() *dispatch.Interference
}

// OnRelease starts jobs waiting in the queues of gpus, on which something ended:
// from each queue the old and the short ones that fit, in order, down to
// Policy.ReleaseDepth. Longer jobs wait for the next full pass, which knows whether
// a job in another queue comes first: that time is much to a short job and nothing
// to a long one. OnRelease reads only these queues, the nodes of these GPUs, and
// the heads of the other queues there: a head that is old is not overtaken, neither
// on its GPU nor, if it wants several, anywhere on its node. It moves no job and
// gives no reasons; the next full pass does.
func OnRelease(v View, gpus []cluster.GPUID, pol Policy) dispatch.Plan {
	r := release{v: v, pol: &pol, now: int64(v.Now()), led: v.Ledger()}
	r.plan.BaseIndex = v.Index()
	if cv, ok := v.(CompanyView); ok {
		if r.on, r.limited = cv.OnGPU, pol.MaxSlowdownMilli > 0; r.limited {
			r.know = cv.Interference()
		}
	}
	if rv, ok := v.(interface{ Reservations() dispatch.Reservations }); ok {
		r.reserved = rv.Reservations()
	}
	for _, g := range gpus {
		r.queue(g)
	}
	return r.plan
}

type release struct {
	v    View
	pol  *Policy
	now  int64
	led  *dispatch.Ledger
	plan dispatch.Plan
	// What this plan takes; the ledger must not change. A release concerns a few
	// GPUs, so a scan beats a map; gpuAt is used for more than fewGPUs.
	gpus  []dispatch.GPUUse
	gpuAt map[cluster.GPUID]int
	nodes []dispatch.NodeUse
	gone  []cluster.JobID
	cards []*dispatch.GPUUse // scratch
	know  *dispatch.Interference
	on    func(cluster.GPUID) []cluster.JobID // nil if the view does not know
	// limited means that slowdowns count.
	limited  bool
	reserved dispatch.Reservations
}

// gpu returns the release's account of a GPU, nil for an unknown one. Pointers are
// valid until the next call.
func (r *release) gpu(id cluster.GPUID) *dispatch.GPUUse {
	if i := r.indexOf(id); i >= 0 {
		return &r.gpus[i]
	}
	u, ok := r.led.GPU(id)
	if !ok {
		return nil
	}
	r.gpus = append(r.gpus, u)
	if r.gpuAt != nil {
		r.gpuAt[id] = len(r.gpus) - 1
	}
	return &r.gpus[len(r.gpus)-1]
}

// fewGPUs is up to how many GPUs a scan is faster.
const fewGPUs = 16

func (r *release) indexOf(id cluster.GPUID) int {
	if len(r.gpus) <= fewGPUs {
		return slices.IndexFunc(r.gpus, func(u dispatch.GPUUse) bool { return u.ID == id })
	}
	if r.gpuAt == nil {
		r.gpuAt = make(map[cluster.GPUID]int, 4*fewGPUs)
		for i := range r.gpus {
			r.gpuAt[r.gpus[i].ID] = i
		}
	}
	if i, ok := r.gpuAt[id]; ok {
		return i
	}
	return -1
}

func (r *release) node(id cluster.NodeID) *dispatch.NodeUse {
	for i := range r.nodes {
		if r.nodes[i].ID == id {
			return &r.nodes[i]
		}
	}
	u, ok := r.led.Node(id)
	if !ok {
		return nil
	}
	r.nodes = append(r.nodes, u)
	return &r.nodes[len(r.nodes)-1]
}

// queue starts the jobs that fit from a GPU's queue.
func (r *release) queue(id cluster.GPUID) {
	q := r.v.Queue(id)
	u := r.gpu(id)
	if len(q) == 0 || u == nil {
		return
	}
	n, ok := r.v.Node(u.Node)
	use := r.node(u.Node)
	if !ok || use == nil || !use.Schedulable || !n.Schedulable() {
		return
	}
	c := n.GPU(id)
	if c == nil {
		return
	}
	var passed *cluster.Job
	for _, w := range q[:min(len(q), max(1, r.pol.ReleaseDepth))] {
		if u = r.gpu(id); u.FreeShares() < 1 || u.Shares >= max(1, r.pol.MaxShares) {
			return
		}
		j, ok := r.v.Job(w.Job)
		if !ok || !j.State.Waiting() || j.Cancel != nil || slices.Contains(r.gone, w.Job) {
			continue
		}
		if !RankIsOld(w.Rank) && !rankedShort(w.Rank) {
			return
		}
		if r.try(j, n, c, passed) {
			continue
		}
		if RankIsOld(w.Rank) {
			return // the next full pass knows which jobs may overtake it
		}
		if passed == nil {
			passed = j
		}
	}
}

// try starts j on c, and on others of its node if it wants several. passed is the
// job ahead of it that does not fit.
func (r *release) try(j *cluster.Job, n *cluster.Node, c *cluster.GPU, passed *cluster.Job) bool {
	if due := j.Spec.Deadline > 0 && j.Spec.Elastic(); due { // a pass knows how many units it needs
		return false
	}
	if j.Spec.GPUs < 1 || !j.Spec.Allows(n) || j.Spec.WholeNodes() || r.reserved.Outside(j, cluster.Time(r.now)).Code != "" {
		return false
	}
	e, _ := cluster.EstimateFor(j.Estimates, c.Type)
	nd := rules.NeedOn(j, c, &e, r.pol)
	cpu, mem := rules.HostOf(j, r.pol)
	h := r.node(n.ID)
	if nd.Way == rules.WayNone || h.UsedCPU+cpu > h.CPUMilli || h.UsedMem+mem > h.MemMiB || !r.pick(j, n, c, &nd) {
		return false
	}
	if s := rules.SpareOf(h, len(n.GPUs), r.pol); s.GPUs > 0 && (cpu > s.PartCPU || mem > s.PartMem) && r.strands(n, &s, cpu, mem) {
		return false
	}
	st := dispatch.Start{
		Job: j.ID, Attempt: uint32(len(j.Attempts)) + 1, Why: "next in the queue of a GPU that became free",
		Berth: cluster.Berth{Node: n.ID, CPUMilli: cpu, MemMiB: mem},
	}
	for _, u := range r.cards {
		st.Berth.GPUs = append(st.Berth.GPUs, cluster.GPUShare{GPU: u.ID, Share: nd.Share(u.SellableMiB)})
	}
	if r.reserved.Keeps(j, &st.Berth, cluster.Time(r.now)).Code != "" {
		return false
	}
	if passed == nil {
		passed = r.earlier(j, st.Berth.GPUs, c.ID)
	}
	if passed != nil {
		st.Overtook = r.overtook(j, passed, c, h)
	}
	if r.blocked(j, n, st.Berth.GPUs) {
		return false
	}
	_, st.Estimate, _ = rules.ShareOn(j, c, *r.pol)
	r.take(&st)
	return true
}

// strands reports whether the job for which pick chose GPUs would leave too little
// to the node's idle GPUs, but would not on the empty node: a job too large even
// for that need not wait for it.
func (r *release) strands(n *cluster.Node, s *rules.Spare, cpu, mem int64) bool {
	idle, takes := 0, 0
	for i := range n.GPUs {
		if r.shares(n.GPUs[i].ID) == 0 && n.Open(&n.GPUs[i]) {
			idle++
		}
	}
	for _, u := range r.cards {
		if u.Shares == 0 {
			takes++
		}
	}
	empty := dispatch.NodeUse{CPUMilli: n.CPUMilli, MemMiB: n.MemMiB}
	return s.Strands(r.node(n.ID), idle, takes, cpu, mem) && !s.Strands(&empty, len(n.GPUs), len(r.cards), cpu, mem)
}

// shares returns how many shares a GPU has; unlike gpu it moves nothing in memory.
func (r *release) shares(id cluster.GPUID) int {
	if i := r.indexOf(id); i >= 0 {
		return r.gpus[i].Shares
	}
	u, _ := r.led.GPU(id)
	return u.Shares
}

// pick chooses c and as many more of the node's GPUs like it as j wants; the choice
// is in r.cards, sorted by id.
func (r *release) pick(j *cluster.Job, n *cluster.Node, c *cluster.GPU, nd *rules.Need) bool {
	r.cards = r.cards[:0]
	for i := range n.GPUs { // so that no pointer into r.gpus moves
		if j.Spec.GPUs > 1 {
			r.gpu(n.GPUs[i].ID)
		}
	}
	if u := r.gpu(c.ID); r.holds(u, nd) && r.suits(j, c, nd) {
		r.cards = append(r.cards, u)
	} else {
		return false
	}
	for i := 0; i < len(n.GPUs) && len(r.cards) < j.Spec.GPUs; i++ {
		o := &n.GPUs[i]
		if o.ID == c.ID || o.Type != c.Type || o.SellableMiB != c.SellableMiB {
			continue
		}
		if u := r.gpu(o.ID); u != nil && r.holds(u, nd) && r.suits(j, o, nd) {
			r.cards = append(r.cards, u)
		}
	}
	slices.SortFunc(r.cards, func(a, b *dispatch.GPUUse) int { return cmp.Compare(a.ID, b.ID) })
	return len(r.cards) == j.Spec.GPUs
}

func (r *release) holds(u *dispatch.GPUUse, nd *rules.Need) bool {
	if nd.Way == rules.WayWhole {
		return u.Shares == 0 && u.FreeShares() > 0
	}
	return u.FreeShares() > 0 && u.Shares < max(1, r.pol.MaxShares) && nd.Mem <= u.FreeMiB() && nd.Milli <= u.FreeMilli()
}

// suits reports whether all jobs on a GPU stay fast enough if j joins them.
func (r *release) suits(j *cluster.Job, c *cluster.GPU, nd *rules.Need) bool {
	v := r.judge(j, c, nd)
	return !v.Against() && !r.regretted(c.ID)
}

// regretted reports whether some job on a GPU is slower than the limit.
func (r *release) regretted(id cluster.GPUID) bool {
	if r.on == nil || !r.limited {
		return false
	}
	n := r.shares(id)
	return n > 0 && slices.ContainsFunc(r.on(id), func(o cluster.JobID) bool {
		j, ok := r.v.Job(o)
		return ok && rules.Overran(j, r.now, n, r.pol)
	})
}

func (r *release) judge(j *cluster.Job, c *cluster.GPU, nd *rules.Need) company.Verdict {
	s := r.know.SharingOn(c)
	switch {
	case nd.Way != rules.WayShare, s == nil && c.Scope == cluster.ScopeAnyone:
		return company.Verdict{}
	case r.on == nil && r.shares(c.ID) > 0: // the next full pass knows which job runs there
		return company.Verdict{Strange: c}
	case r.on == nil:
		return company.Verdict{}
	}
	var on []company.Sharer
	for _, id := range r.on(c.ID) {
		if o, ok := r.v.Job(id); ok && o.Live() != nil {
			on = r.mates(on, o, &o.Live().Estimate, o.Live().HeldGPUs(), c)
		}
	}
	for i := range r.plan.Starts {
		if o, ok := r.v.Job(r.plan.Starts[i].Job); ok {
			on = r.mates(on, o, &r.plan.Starts[i].Estimate, r.plan.Starts[i].Berth.GPUs, c)
		}
	}
	if v := company.Strangers(c, on, &j.Owner); v.Strange != nil {
		return v
	}
	nature := company.NatureOf(r.know, s, j.Spec.Signature, nil)
	return company.Judge(r.know, s, on, company.SharerOf(j, 0, nd.Busy, &nature), r.pol.MaxSlowdownMilli)
}

func (r *release) mates(on []company.Sharer, j *cluster.Job, e *cluster.Estimate, shares []cluster.GPUShare, gpu *cluster.GPU) []company.Sharer {
	for _, gs := range shares {
		if gs.GPU == gpu.ID {
			nature := company.NatureOf(r.know, r.know.SharingOn(gpu), j.Spec.Signature, nil)
			on = company.Insert(on, company.SharerOf(j, j.ID, cluster.BusyMilli(j.Spec, gs.Share, e), &nature))
		}
	}
	return on
}

// earlier returns the job ahead of j in the queue of one of the other GPUs.
func (r *release) earlier(j *cluster.Job, on []cluster.GPUShare, at cluster.GPUID) *cluster.Job {
	for _, gs := range on {
		if gs.GPU == at {
			continue
		}
		if o, _ := r.head(gs.GPU); o != nil && o.ID != j.ID {
			return o
		}
	}
	return nil
}

// head returns the first job of a queue that this plan has not started, and the
// rank of its place.
func (r *release) head(id cluster.GPUID) (*cluster.Job, int64) {
	for _, w := range r.v.Queue(id) {
		if slices.Contains(r.gone, w.Job) {
			continue
		}
		j, _ := r.v.Job(w.Job)
		return j, w.Rank
	}
	return nil, 0
}

// blocked reports whether starting j would take from an older head that waited too
// long: on one of its GPUs, or anywhere on its node if that head wants several. A
// head with a deadline has its promise on that node; only the next pass knows on
// which GPU.
func (r *release) blocked(j *cluster.Job, n *cluster.Node, on []cluster.GPUShare) bool {
	for i := range n.GPUs {
		o, rank := r.head(n.GPUs[i].ID)
		if o == nil || o.ID == j.ID || !RankIsOld(rank) || !comesBefore(o, j) {
			continue
		}
		if o.Spec.GPUs > 1 || o.Spec.Deadline > 0 || slices.ContainsFunc(on, func(g cluster.GPUShare) bool { return g.GPU == n.GPUs[i].ID }) {
			return true
		}
		cpu, mem := rules.HostOf(o, r.pol)
		jc, jm := rules.HostOf(j, r.pol)
		if h := r.node(n.ID); h.UsedCPU+cpu+jc > h.CPUMilli || h.UsedMem+mem+jm > h.MemMiB {
			return true
		}
	}
	return false
}

// comesBefore reports which of two jobs that may not be overtaken is first: by
// deadline, then by age.
func comesBefore(a, b *cluster.Job) bool {
	x, y := a.Spec.Deadline, b.Spec.Deadline
	if x != y && (x == 0 || y == 0) {
		return y == 0
	}
	return cmp.Or(cmp.Compare(x, y), cmp.Compare(a.Eligible, b.Eligible), cmp.Compare(a.ID, b.ID)) < 0
}

func (r *release) overtook(j, passed *cluster.Job, c *cluster.GPU, h *dispatch.NodeUse) string {
	e, _ := cluster.EstimateFor(passed.Estimates, c.Type)
	nd := rules.NeedOn(passed, c, &e, r.pol)
	why := lacks(passed, &nd, &fleet.Card{Use: *r.gpu(c.ID)}, &fleet.Host{Use: *h}, *r.pol)
	if why == "" {
		if v := r.judge(passed, c, &nd); v.Against() {
			why = v.Words(r.know.SharingOn(c), r.pol.MaxSlowdownMilli)
		}
	}
	why = cmp.Or(why, "stands in another queue of the node")
	return "job " + passed.ID.String() + ": " + why
}

func (r *release) take(st *dispatch.Start) {
	h := r.node(st.Berth.Node)
	h.UsedCPU += st.Berth.CPUMilli
	h.UsedMem += st.Berth.MemMiB
	for _, gs := range st.Berth.GPUs {
		u := r.gpu(gs.GPU)
		u.UsedMiB += gs.Share.MemMiB
		u.UsedMilli += gs.Share.Milli
		u.Shares++
		u.Exclusive = u.Exclusive || gs.Share.Exclusive
	}
	r.gone = append(r.gone, st.Job)
	r.plan.Starts = append(r.plan.Starts, *st)
}
