package site

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/accounting"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler"
)

// division plans a cluster with partitions: one pass each, in order, over what each
// may use. The passes share one ledger and one set of queues, in which each finds
// what earlier ones did, so that nodes of several partitions are not allocated
// twice.
type division struct {
	snap *dispatch.Snapshot // owned: the ledger and the map of queues
	site *Site
	// stood is the queues as they are when a start of this plan is checked: all
	// starts come before the first move, so a job that an earlier pass moves away
	// is still there.
	stood map[cluster.GPUID][]dispatch.Waiter
	// arrival means that the scheduler's own passes see only jobs in no queue.
	arrival bool
	parts   []*partPass
	of      map[cluster.JobID]string // the partition of each waiting job
	at      map[cluster.NodeID]*cluster.Node
	live    map[cluster.NodeID][]*cluster.Job
	plan    dispatch.Plan
	begun   map[cluster.JobID]bool // jobs that this plan starts
	// loans are the jobs that run on GPUs lent by others; back holds those that
	// this plan asks to return them, and for which partitions.
	loans   []*cluster.Job
	back    map[cluster.JobID]struct{}
	returns map[string]bool
}

// partPass is one partition with waiting jobs. part is nil for jobs older than the
// partitions: they may run anywhere.
type partPass struct {
	name    string
	part    *cluster.Partition
	chosen  *Chosen
	waiting []*cluster.Job
	aged    cluster.Time // since when its oldest job waits, if too long
}

// planPartitions plans every partition. Of snap it changes only the ledger and the
// map of queues.
func planPartitions(snap *dispatch.Snapshot, s *Site, arrival bool) dispatch.Plan {
	d := &division{
		snap: snap, site: s, arrival: arrival, stood: maps.Clone(snap.Queues), of: make(map[cluster.JobID]string, len(snap.Waiting)),
		at: make(map[cluster.NodeID]*cluster.Node, len(snap.Nodes)), live: map[cluster.NodeID][]*cluster.Job{},
		begun: map[cluster.JobID]bool{}, back: map[cluster.JobID]struct{}{}, returns: map[string]bool{},
	}
	d.plan.BaseIndex = snap.Index
	for _, n := range snap.Nodes {
		d.at[n.ID] = n
	}
	for _, j := range snap.Running {
		if a := j.Live(); a != nil {
			for _, b := range a.Held() {
				d.live[b.Node] = append(d.live[b.Node], j)
			}
			if a.Loan != "" {
				d.loans = append(d.loans, j)
			}
		}
	}
	d.divide()
	for _, p := range d.parts {
		d.take(p, p.chosen.within(p.part).pass(d.view(p)))
	}
	if arrival {
		return d.plan
	}
	for _, p := range d.parts {
		d.reclaim(p)
	}
	d.lend()
	return d.plan
}

// divide sorts the waiting jobs by partition, partitions where a job has waited too
// long first, then by name.
func (d *division) divide() {
	byName := map[string]*partPass{"": {chosen: d.site.Of("")}}
	for _, p := range d.snap.Partitions {
		byName[p.Name] = &partPass{name: p.Name, part: p, chosen: d.site.Of(p.Name)}
	}
	for _, j := range d.snap.Waiting {
		d.of[j.ID] = j.Spec.Partition
		p := byName[j.Spec.Partition]
		if p == nil || p.part != nil && p.part.Down || d.arrival && p.chosen.Planner == nil && !newcomer(j) {
			continue
		}
		p.waiting = append(p.waiting, j)
		if old := p.chosen.Policy.FIFOAge; old > 0 && d.snap.Now.Sub(j.Eligible) > old && (p.aged == 0 || j.Eligible < p.aged) {
			p.aged = j.Eligible
		}
	}
	for _, p := range byName {
		if len(p.waiting) > 0 {
			d.parts = append(d.parts, p)
		}
	}
	slices.SortFunc(d.parts, func(a, b *partPass) int {
		if (a.aged == 0) != (b.aged == 0) {
			return cmp.Compare(b.aged, a.aged) // 0 is not aged
		}
		return cmp.Or(cmp.Compare(a.aged, b.aged), cmp.Compare(a.name, b.name))
	})
}

// nodes returns what of the cluster belongs to a partition, sorted by id.
func (d *division) nodes(p *partPass) []*cluster.Node {
	if p.part == nil {
		return d.snap.Nodes
	}
	names := p.part.Nodes.Names()
	if names == nil || len(names) > len(d.snap.Nodes) {
		return NodesOf(d.snap.Nodes, p.part)
	}
	out := make([]*cluster.Node, 0, len(names))
	for _, id := range names {
		if n := d.at[id]; n != nil {
			out = append(out, p.part.Part(n))
		}
	}
	slices.SortFunc(out, func(a, b *cluster.Node) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// view returns the snapshot that the pass of a partition sees.
//
// The queues of shared GPUs may hold jobs of other partitions, unknown to the pass:
// the scheduler counts them as unseen, and closes a node where one of them has
// headed a queue for too long. If every pass did so, two partitions could bar each
// other from a node forever. So the oldest of these heads decides whose turn it is
// on the node: its partition is not shown the others.
func (d *division) view(p *partPass) *dispatch.Snapshot {
	out := *d.snap
	all := d.nodes(p)
	out.Waiting, out.Running = p.waiting, nil
	out.Nodes = make([]*cluster.Node, 0, len(all))
	out.Queues = map[cluster.GPUID][]dispatch.Waiter{}
	for _, n := range all {
		turn, strangers := d.turn(n.ID, p)
		out.Running = append(out.Running, d.live[n.ID]...)
		if strangers && p.chosen.Planner != nil && turn != p.name {
			continue // other policies use no queues
		}
		out.Nodes = append(out.Nodes, n)
		for i := range n.GPUs {
			id := n.GPUs[i].ID
			q := d.snap.Queues[id]
			if strangers && turn == p.name {
				q = d.own(q, p)
			}
			if len(q) > 0 {
				out.Queues[id] = q
			}
		}
	}
	out.Running = byID(out.Running) // a job on several of its nodes is listed once
	return &out
}

// turn returns the partition whose turn it is on a node, and reports whether a job
// of another partition than p has waited too long in its queues.
func (d *division) turn(id cluster.NodeID, p *partPass) (turn string, strangers bool) {
	turn = p.name
	var oldest dispatch.Waiter
	n := d.at[id]
	for i := range n.GPUs {
		q := d.snap.Queues[n.GPUs[i].ID]
		if len(q) == 0 {
			continue
		}
		h := q[0]
		of, known := d.of[h.Job]
		if !known || !scheduler.RankIsOld(h.Rank) {
			continue
		}
		strangers = strangers || of != p.name
		if oldest.Job == 0 || h.Rank < oldest.Rank || h.Rank == oldest.Rank && h.Job < oldest.Job {
			oldest, turn = h, of
		}
	}
	return turn, strangers
}

// own leaves jobs of other partitions out of a queue.
func (d *division) own(q []dispatch.Waiter, p *partPass) []dispatch.Waiter {
	var out []dispatch.Waiter
	for _, w := range q {
		if d.of[w.Job] == p.name {
			out = append(out, w)
		}
	}
	return out
}

// take adds what a pass planned, and applies it for the later passes.
func (d *division) take(p *partPass, plan dispatch.Plan) {
	for i := range plan.Starts {
		st := plan.Starts[i]
		if !d.snap.Ledger.TakeStart(&st) {
			continue // a missing node; the state machine would refuse it
		}
		j := p.find(st.Job)
		if d.snap.Limits != nil {
			d.snap.Limits.Count(accounting.HolderOf(j), 0, 1, d.snap.Ledger.HeldMilli(st.AllGPUs()))
		}
		leave(d.snap.Queues, j)
		leave(d.stood, j)
		if st.Overtook == "" {
			st.Overtook = d.passed(&st)
		}
		d.plan.Starts = append(d.plan.Starts, st)
		d.begun[st.Job] = true
		run := st.Began(j, d.snap.Now)
		for _, b := range st.Berths() {
			d.live[b.Node] = append(d.live[b.Node], run)
		}
	}
	for _, m := range plan.Moves {
		leave(d.snap.Queues, p.find(m.Job))
		if m.GPU != "" {
			q := slices.Clone(d.snap.Queues[m.GPU])
			w := dispatch.Waiter{Job: m.Job, Rank: m.Rank}
			at, _ := slices.BinarySearchFunc(q, w, dispatch.Waiter.Compare)
			d.snap.Queues[m.GPU] = slices.Insert(q, at, w)
		}
		d.plan.Moves = append(d.plan.Moves, m)
	}
	for _, v := range plan.Preempt {
		if d.victim(p, v.Job) {
			d.plan.Preempt = append(d.plan.Preempt, v)
		}
	}
	d.plan.Unplaced, d.plan.Trades = append(d.plan.Unplaced, plan.Unplaced...), append(d.plan.Trades, plan.Trades...)
}

// victim reports whether an attempt that a pass would end is of its own partition:
// it may not end others, and reclaim takes back loans.
func (d *division) victim(p *partPass, id cluster.JobID) bool {
	i, ok := slices.BinarySearchFunc(d.snap.Running, id, func(j *cluster.Job, id cluster.JobID) int { return cmp.Compare(j.ID, id) })
	return ok && d.snap.Running[i].Spec.Partition == p.name
}

// find returns a waiting job; a pass places no others.
func (p *partPass) find(id cluster.JobID) *cluster.Job {
	i, ok := slices.BinarySearchFunc(p.waiting, id, func(j *cluster.Job, id cluster.JobID) int { return cmp.Compare(j.ID, id) })
	if !ok {
		panic("site: a pass placed job " + id.String() + ", which it was not shown")
	}
	return p.waiting[i]
}

// leave removes a job from its queue.
func leave(queues map[cluster.GPUID][]dispatch.Waiter, j *cluster.Job) {
	if j.Queue == "" {
		return
	}
	q := slices.DeleteFunc(slices.Clone(queues[j.Queue]), func(w dispatch.Waiter) bool { return w.Job == j.ID })
	if len(q) == 0 {
		delete(queues, j.Queue)
		return
	}
	queues[j.Queue] = q
}

// passed says why a start overtakes jobs of other partitions that head the queues
// of its GPUs, nothing if there are none.
func (d *division) passed(st *dispatch.Start) string {
	for _, g := range st.AllGPUs() {
		if q := d.snap.Queues[g.GPU]; len(q) > 0 {
			return fmt.Sprintf("job %d of partition %s waits there, too; partitions that share a GPU take turns by age", q[0].Job, orNone(d.of[q[0].Job]))
		}
		if q := d.stood[g.GPU]; len(q) > 0 {
			return fmt.Sprintf("job %d of partition %s waits there, and this plan moves it to another queue", q[0].Job, orNone(d.of[q[0].Job]))
		}
	}
	return ""
}

func orNone(partition string) string {
	return cmp.Or(partition, "none")
}
