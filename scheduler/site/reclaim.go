package site

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/accounting"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler/rules"
)

// Limits on one pass's reclaiming, for each partition.
const (
	maxReclaims  = 64 // jobs for which something is given back
	reclaimNodes = 16 // nodes tried for each besides the one that its pass chose
	exactLoans   = 8  // loans on a node up to which all combinations are tried
)

// reclaimer finds which loans are given back for the waiting jobs of a partition:
// as few as suffice for each, and of those the ones that lose the least (Aryl
// counts preemptions).
type reclaimer struct {
	d    *division
	p    *partPass
	view *dispatch.Snapshot // in which everything that may be given back is
	// real is what would be left if the jobs already giving back or chosen were
	// gone.
	real  *dispatch.Ledger
	loans []*cluster.Job // jobs that may be asked to give back and are not chosen
}

// reclaim proposes to give back what waiting jobs of a partition need. Their own
// pass decides whether they would start without the loans, so that no job is ended
// for one that waits for something else, and no job of the partition is ended if
// loans suffice.
func (d *division) reclaim(p *partPass) {
	r := &reclaimer{d: d, p: p}
	if len(d.loans) == 0 || !r.look() {
		return
	}
	due := map[cluster.JobID]struct{}{}
	for n := 0; n < maxReclaims && len(r.view.Waiting) > 0; {
		pass := *r.view
		pass.Ledger, pass.Queues, pass.Limits = r.view.Ledger.Clone(), maps.Clone(r.view.Queues), r.view.Limits.Clone()
		plan := p.chosen.within(p.part).pass(&pass)
		began := 0
		for i := range plan.Starts {
			if j := p.find(plan.Starts[i].Job); n < maxReclaims && r.begin(j, plan.Starts[i]) {
				due[j.ID] = struct{}{}
				began++
				n++
			}
		}
		if began == 0 {
			break
		}
	}
	if len(due) == 0 {
		return
	}
	d.returns[p.name] = true
	d.plan.Preempt = slices.DeleteFunc(d.plan.Preempt, func(v dispatch.Preemption) bool {
		_, back := due[v.For]
		return back && !v.Loan
	})
}

// look collects the loans where the partition is; false means that nothing can be
// given back.
func (r *reclaimer) look() bool {
	d := r.d
	r.view = d.view(r.p)
	r.view.Waiting = slices.DeleteFunc(slices.Clone(r.p.waiting), func(j *cluster.Job) bool { return d.begun[j.ID] })
	if len(r.view.Waiting) == 0 {
		return false
	}
	r.view.Ledger, r.real = d.snap.Ledger.Clone(), d.snap.Ledger.Clone()
	r.view.Limits = d.snap.Limits.Clone()
	gone := map[cluster.JobID]struct{}{}
	for _, j := range r.view.Running {
		_, chosen := d.back[j.ID]
		leaves := j.OnLoan() != "" && (chosen || j.Live().Preempt != nil)
		if !leaves && !d.returnable(j) || j.Spec.Partition == r.p.name {
			continue
		}
		gone[j.ID] = struct{}{}
		lift(r.view.Ledger, j)
		if leaves {
			lift(r.real, j)
		} else {
			r.loans = append(r.loans, j)
		}
	}
	r.view.Running = slices.DeleteFunc(slices.Clone(r.view.Running), func(j *cluster.Job) bool { _, there := gone[j.ID]; return there })
	return len(gone) > 0
}

// returnable reports whether a job's loan may be reclaimed now: without a
// checkpoint hook only once the job has run longer than expected.
func (d *division) returnable(j *cluster.Job) bool {
	if j.Unreturnable() != "" {
		return false
	}
	if j.Spec.Checkpoint.Set() {
		return true
	}
	short := int64(0)
	for _, p := range d.snap.Partitions {
		if p.Name == j.OnLoan() {
			short = p.Lend.Short.Microseconds()
		}
	}
	return j.Live().Ran(d.snap.Now).Microseconds() >= short
}

// lift removes a job from a ledger, from all of its nodes.
func lift(led *dispatch.Ledger, j *cluster.Job) {
	for _, b := range j.Live().Held() {
		led.Release(b)
	}
}

// lay puts a lifted job back.
func lay(led *dispatch.Ledger, j *cluster.Job) {
	for _, b := range j.Live().Held() {
		led.Take(b)
	}
}

// begin tentatively starts a job where the fewest give back, and records which.
func (r *reclaimer) begin(j *cluster.Job, st dispatch.Start) bool {
	who, ok := r.fewest(&st)
	if !ok {
		return false
	}
	if len(who) > 0 && !Spans(j) && r.d.site.Of(r.p.name).Tenancy() == nil {
		st, who = r.elsewhere(j, st, who)
	}
	for _, v := range who {
		lift(r.real, v)
		r.loans = slices.DeleteFunc(r.loans, func(o *cluster.Job) bool { return o == v })
		r.d.back[v.ID] = struct{}{}
		r.d.plan.Preempt = append(r.d.plan.Preempt, dispatch.Preemption{
			Job: v.ID, Attempt: v.Live().No, For: j.ID, Loan: true, Why: fmt.Sprintf("given back to partition %s, which lent it", r.p.lender(v)),
		})
	}
	r.real.TakeStart(&st)
	r.view.Ledger.TakeStart(&st)
	leave(r.view.Queues, j)
	if r.view.Limits != nil {
		r.view.Limits.Count(accounting.HolderOf(j), 0, 1, r.view.Ledger.HeldMilli(st.AllGPUs()))
	}
	r.view.Waiting = slices.DeleteFunc(r.view.Waiting, func(o *cluster.Job) bool { return o.ID == j.ID })
	r.view.Running = byID(append(r.view.Running, st.Began(j, r.view.Now)))
	return true
}

// lender names the partition to which a job gives back what p's jobs wait for: a
// job on a node of several gives back to the one that waits there.
func (p *partPass) lender(j *cluster.Job) string {
	if p.name == "" {
		return j.OnLoan()
	}
	return p.name
}

// elsewhere looks on other nodes for a place where fewer jobs give back, or as many
// that lose less. A replica of a service goes where its pass spreads it unless
// fewer suffice elsewhere.
func (r *reclaimer) elsewhere(j *cluster.Job, st dispatch.Start, who []*cluster.Job) (dispatch.Start, []*cluster.Job) {
	looked := 0
	for _, n := range r.view.Nodes {
		if n.ID == st.Berth.Node || !slices.ContainsFunc(r.loans, func(v *cluster.Job) bool { return slices.Contains(v.Live().NodeIDs(), n.ID) }) {
			continue
		}
		if looked++; looked > reclaimNodes {
			break
		}
		one := *r.view
		one.Nodes, one.Waiting, one.Queues, one.Limits = []*cluster.Node{n}, []*cluster.Job{j}, map[cluster.GPUID][]dispatch.Waiter{}, r.view.Limits.Clone()
		one.Ledger = r.view.Ledger.Clone()
		one.Running = slices.DeleteFunc(slices.Clone(r.view.Running), func(o *cluster.Job) bool { return !slices.Contains(o.Live().NodeIDs(), n.ID) })
		plan := r.p.chosen.within(r.p.part).pass(&one)
		if len(plan.Starts) != 1 {
			continue
		}
		other, ok := r.fewest(&plan.Starts[0])
		if ok && (len(other) < len(who) || len(other) == len(who) && j.Spec.Service == nil && r.loss(other) < r.loss(who)) {
			st, who = plan.Starts[0], other
		}
	}
	return st, who
}

// fewest returns which jobs give back so that a start fits where it is planned, on
// any of the GPUs of its type there if it is on one node: as few as suffice, and of
// those the ones that lose the least. ok is false if it would not fit even if all
// did.
func (r *reclaimer) fewest(st *dispatch.Start) (who []*cluster.Job, ok bool) {
	if r.fits(st) {
		return nil, true
	}
	var near []*cluster.Job
	for _, j := range r.loans {
		if slices.ContainsFunc(j.Live().NodeIDs(), func(id cluster.NodeID) bool { return st.On(id) }) {
			near = append(near, j)
		}
	}
	slices.SortFunc(near, func(a, b *cluster.Job) int { // least loss first
		return cmp.Or(cmp.Compare(r.loss([]*cluster.Job{a}), r.loss([]*cluster.Job{b})), cmp.Compare(b.ID, a.ID))
	})
	if len(near) <= exactLoans {
		return r.exactly(st, near)
	}
	size := func(j *cluster.Job) int64 { return r.d.snap.Ledger.HeldMilli(j.Live().HeldGPUs()) }
	slices.SortStableFunc(near, func(a, b *cluster.Job) int { return cmp.Compare(size(b), size(a)) })
	for _, j := range near {
		lift(r.real, j)
	}
	who = slices.Clone(near)
	if ok = r.fits(st); ok {
		for _, j := range slices.Backward(near) { // the smallest stay, and of those the most expensive
			lay(r.real, j)
			if r.fits(st) {
				who = slices.DeleteFunc(who, func(o *cluster.Job) bool { return o == j })
			} else {
				lift(r.real, j)
			}
		}
	}
	for _, j := range who {
		lay(r.real, j)
	}
	return who, ok
}

// exactly tries all combinations of a few, in order of their number and loss.
func (r *reclaimer) exactly(st *dispatch.Start, near []*cluster.Job) (who []*cluster.Job, ok bool) {
	for set := 1; set < 1<<len(near); set++ {
		var some []*cluster.Job
		for i, j := range near {
			if set>>i&1 == 1 {
				some = append(some, j)
			}
		}
		if ok && (len(some) > len(who) || len(some) == len(who) && r.loss(some) >= r.loss(who)) {
			continue
		}
		for _, j := range some {
			lift(r.real, j)
		}
		if r.fits(st) {
			who, ok = some, true
		}
		for _, j := range some {
			lay(r.real, j)
		}
	}
	return who, ok
}

// fits reports whether a start fits what is left; a start on one node moves to the
// first GPUs of its type that fit.
func (r *reclaimer) fits(st *dispatch.Start) bool {
	if len(st.Rest) == 0 && len(st.Berth.GPUs) > 0 {
		if to, ok := r.onCards(&st.Berth); ok {
			st.Berth = to
			return true
		}
		return false
	}
	for _, b := range st.Berths() {
		if r.real.Fits(b).Code != "" {
			return false
		}
	}
	return true
}

// onCards returns a berth on any GPUs of its node, of the planned type, that the
// partition has.
func (r *reclaimer) onCards(b *cluster.Berth) (cluster.Berth, bool) {
	if r.real.Fits(b).Code == "" {
		return *b, true
	}
	out := *b
	out.GPUs = nil
	share := b.GPUs[0].Share
	u, _ := r.real.GPU(b.GPUs[0].GPU)
	at := slices.IndexFunc(r.view.Nodes, func(n *cluster.Node) bool { return n.ID == b.Node })
	if at < 0 {
		return out, false
	}
	for i := range r.view.Nodes[at].GPUs {
		g := &r.view.Nodes[at].GPUs[i]
		one := cluster.Berth{Node: b.Node, GPUs: []cluster.GPUShare{{GPU: g.ID, Share: share}}}
		if g.Type == u.Type && len(out.GPUs) < len(b.GPUs) && r.real.Fits(&one).Code == "" {
			out.GPUs = append(out.GPUs, one.GPUs[0])
		}
	}
	return out, len(out.GPUs) == len(b.GPUs) && r.real.Fits(&out).Code == ""
}

// loss returns what jobs lose by giving back, in thousandths of a GPU times
// milliseconds: the time to save their state and restart, or all that a job without
// a hook did.
func (r *reclaimer) loss(who []*cluster.Job) (sum int64) {
	for _, j := range who {
		lost := j.Live().Ran(r.d.snap.Now).Milliseconds()
		if j.Spec.Checkpoint.Set() {
			lost = rules.YieldCost(j) / 1000
		}
		gpu, _ := j.Live().Rate()
		sum += lost * gpu
	}
	return sum
}
