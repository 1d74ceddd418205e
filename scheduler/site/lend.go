package site

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
)

// Limits on borrowing, so that what a job loses by giving back stays small next to
// its gain.
const (
	// LoanRest is how long a job that gave back a loan may not borrow.
	LoanRest = time.Minute
	// MaxLoans is how often a job gives back a loan before it may not borrow any
	// more: each time leaves an attempt in the memory of every coordinator.
	MaxLoans = 100
)

// CannotBorrow says why a waiting job may not have GPUs of a partition that lends
// to its own, in words, "" if it may. It must be able to give them back: with a
// checkpoint hook within that hook's grace period, or because it is short, by the
// ninth decile of its prediction or by its limit.
func CannotBorrow(j *cluster.Job, l *cluster.Lending, now cluster.Time) string {
	last, n := j.GaveBack()
	switch {
	case j.Spec.GPUs == 0:
		return "it asks for no GPU"
	case j.Spec.Service != nil:
		return "it is a replica of a service, which others count on"
	case j.Spec.Deadline > 0:
		return "it has a deadline, which nothing that may be asked back can be promised for"
	case n >= MaxLoans:
		return fmt.Sprintf("it gave back what it had on loan %d times", n)
	case n > 0 && now.Sub(last) < LoanRest:
		return fmt.Sprintf("it gave back what it had on loan %s ago, less than %s", cluster.TimeText(now.Sub(last).Round(time.Second)), cluster.TimeText(LoanRest))
	case j.Spec.Checkpoint.Set():
		return ""
	case l.Short <= 0:
		return "it has no checkpoint hook"
	}
	end := j.LatestEnd(now)
	switch {
	case end <= now.Add(l.Short):
		return ""
	case end == math.MaxInt64:
		return fmt.Sprintf("it has no checkpoint hook, and nobody knows whether it ends within %s", cluster.TimeText(l.Short))
	}
	return fmt.Sprintf("it has no checkpoint hook, and may take %s, more than %s", cluster.TimeText(end.Sub(now).Round(time.Second)), cluster.TimeText(l.Short))
}

// Loans counts the GPUs of a partition that are on loan to jobs of others, and
// those of others that its jobs borrow.
func Loans(running []*cluster.Job, p *cluster.Partition) (lent, borrowed int) {
	cards := map[cluster.GPUID]struct{}{}
	for _, j := range running {
		switch j.OnLoan() {
		case "":
			continue
		case p.Name:
			for _, g := range j.Live().HeldGPUs() {
				cards[g.GPU] = struct{}{}
			}
		}
		if j.Spec.Partition == p.Name {
			borrowed += len(j.Live().HeldGPUs())
		}
	}
	return len(cards), borrowed
}

// WhyLoans says how loans concern a waiting job: what is given back for it, and why
// it gets nothing from the partitions that lend to its own. snap is of the whole
// cluster.
func WhyLoans(snap *dispatch.Snapshot, j *cluster.Job) (lines []string) {
	for _, o := range snap.Running {
		if a := o.Live(); a != nil && a.Loan != "" && a.Preempt != nil && a.Preempt.For == j.ID {
			grace := ""
			if o.Spec.Checkpoint.Set() {
				grace = ": it saves its state, for " + cluster.TimeText(o.Spec.Checkpoint.Grace) + " at most"
			}
			lines = append(lines, fmt.Sprintf("job %s gives back for it what it has on loan from partition %s%s", o.ID, a.Loan, grace))
		}
	}
	for _, l := range snap.Partitions {
		if l.Name == j.Spec.Partition || !slices.Contains(l.Lend.To, j.Spec.Partition) {
			continue
		}
		why := CannotBorrow(j, &l.Lend, snap.Now)
		switch {
		case why != "":
			why = "and lends nothing to this job: " + why
		case l.Down:
			why = "and is down"
		default:
			why = "and has nothing idle now on which it would start, or a job of its own waits for what is given back"
		}
		lines = append(lines, fmt.Sprintf("partition %s lends idle GPUs to jobs of partition %s, %s", l.Name, j.Spec.Partition, why))
	}
	return lines
}

// lend starts jobs that could not start in their own partitions on GPUs lent by
// others: GPUs where no job of the lender runs or waits. A partition whose jobs
// wait for loans to be returned lends nothing meanwhile, or those GPUs would be
// lent again.
func (d *division) lend() {
	for _, l := range d.snap.Partitions {
		if !l.Lend.On() || l.Down || d.returns[l.Name] {
			continue
		}
		for _, name := range l.Lend.To {
			i := slices.IndexFunc(d.parts, func(p *partPass) bool { return p.part != nil && p.name == name })
			if i < 0 || name == l.Name {
				continue
			}
			if view, asked := d.lendable(l, d.parts[i]); len(view.Waiting) > 0 && len(view.Nodes) > 0 {
				c := *d.site.Of(l.Name)
				c.Policy.YieldAfter = 0 // borrowers preempt no job
				plan := c.pass(view)
				d.borrow(l, d.parts[i], &plan, asked)
			}
		}
	}
}

// lendable returns the snapshot in which jobs of a partition borrow from a lender,
// and the original jobs by id: in the snapshot they are in no queue.
func (d *division) lendable(l *cluster.Partition, p *partPass) (*dispatch.Snapshot, map[cluster.JobID]*cluster.Job) {
	view := *d.snap
	view.Waiting, view.Nodes, view.Running = nil, nil, nil
	view.Queues = map[cluster.GPUID][]dispatch.Waiter{}
	asked := map[cluster.JobID]*cluster.Job{}
	for _, n := range d.nodes(&partPass{part: l}) {
		if free := d.idle(n, p.part); free != nil {
			view.Nodes = append(view.Nodes, free)
			view.Running = append(view.Running, d.live[n.ID]...)
		}
	}
	if len(view.Nodes) == 0 {
		return &view, asked
	}
	view.Running = byID(view.Running)
	for _, j := range p.waiting {
		if !d.begun[j.ID] && CannotBorrow(j, &l.Lend, d.snap.Now) == "" {
			asked[j.ID] = j
			free := *j
			free.Queue, free.State = "", cluster.JobPending
			view.Waiting = append(view.Waiting, &free)
		}
	}
	return &view, asked
}

// idle returns what of a lender's node may be lent to a partition: the GPUs where
// no jobs but borrowers run and none wait. It is nil for nothing, and for a node
// that is the borrower's own.
func (d *division) idle(n *cluster.Node, to *cluster.Partition) *cluster.Node {
	if to.Nodes.Holds(n.ID) {
		return nil
	}
	taken := map[cluster.GPUID]struct{}{}
	for _, j := range d.live[n.ID] {
		if j.OnLoan() == "" {
			for _, g := range j.Live().HeldGPUs() {
				taken[g.GPU] = struct{}{}
			}
		}
	}
	out := *n
	out.GPUs = slices.DeleteFunc(slices.Clone(n.GPUs), func(g cluster.GPU) bool {
		_, busy := taken[g.ID]
		return busy || len(d.snap.Queues[g.ID]) > 0 || len(d.stood[g.ID]) > 0
	})
	if len(out.GPUs) == 0 {
		return nil
	}
	return &out
}

// borrow adds the starts of a plan as loans, and applies them for the later passes.
func (d *division) borrow(l *cluster.Partition, p *partPass, plan *dispatch.Plan, asked map[cluster.JobID]*cluster.Job) {
	loans := dispatch.Plan{}
	for _, st := range plan.Starts {
		if asked[st.Job] == nil || len(st.AllGPUs()) == 0 {
			continue // on cores it could run where it belongs
		}
		st.Loan, st.Overtook = l.Name, ""
		st.Why = fmt.Sprintf("on loan from partition %s, whose own jobs get it back when they wait: %s", l.Name, st.Why)
		loans.Starts = append(loans.Starts, st)
	}
	if len(loans.Starts) == 0 {
		return
	}
	d.take(p, loans)
	d.plan.Moves = slices.DeleteFunc(d.plan.Moves, func(m dispatch.QueueMove) bool { return d.begun[m.Job] })
	d.plan.Unplaced = slices.DeleteFunc(d.plan.Unplaced, func(u dispatch.Unplaced) bool { return d.begun[u.Job] })
}

// byID sorts jobs and drops duplicates.
func byID(jobs []*cluster.Job) []*cluster.Job {
	slices.SortFunc(jobs, func(a, b *cluster.Job) int { return int(a.ID) - int(b.ID) })
	return slices.CompactFunc(jobs, func(a, b *cluster.Job) bool { return a.ID == b.ID })
}
