package scheduler

import (
	"cmp"
	"slices"
	"time"

	"github.com/berth-scheduler/berth/cluster"
)

// DeadlineCheck is the answer to whether deadlines can be met.
type DeadlineCheck struct {
	// End is when the job would have ended by the plan, at the latest in nine
	// of ten cases; 0 when nothing reserved for deadlines could run it.
	End cluster.Time
	// GPUType is where, and Before how many jobs with deadlines go before it.
	GPUType string
	Before  int
}

// Admit tells whether jobs, which are not in snap yet, can meet their deadlines
// without making another miss its own. The error has CodeInvalid and says
// what is missing in numbers. Jobs without a deadline are always admitted.
//
// It is the demand check of EDF, carried out by laying the jobs with deadlines
// on the GPUs in order of their deadlines (Chronus; gangs do not divide, so
// that summing up demands would promise too much): of each type
// Policy.DeadlineShareMilli of the GPUs, those that become free first by the
// time limits of who is there. Each counts as alone on its GPUs, for as long as
// nine in ten such predictions stay below, at most its time limit.
func Admit(snap *cluster.Snapshot, jobs []*cluster.Job, pol Policy) *cluster.Error {
	if !slices.ContainsFunc(jobs, func(j *cluster.Job) bool { return j.Spec.Deadline > 0 }) {
		return nil
	}
	d := newDemand(snap, &pol)
	old := d.lay(due(snap.Waiting))
	all := append(due(snap.Waiting), due(jobs)...)
	now := d.lay(all)
	for _, j := range due(jobs) {
		if c := now[j]; c.End == 0 || c.End > j.Spec.Deadline {
			return d.refusal(j, c)
		}
	}
	for _, j := range due(snap.Waiting) {
		if was := old[j]; was.End > 0 && was.End <= j.Spec.Deadline && now[j].End > j.Spec.Deadline {
			return cluster.Errorf(cluster.CodeInvalid, "deadline: job %d, which was promised its end by %s, would then end at %s; ask for a later deadline or fewer GPUs",
				j.ID, clock(j.Spec.Deadline), clock(now[j].End))
		}
	}
	return nil
}

// due are the jobs with deadlines, the earliest first.
func due(jobs []*cluster.Job) []*cluster.Job {
	var out []*cluster.Job
	for _, j := range jobs {
		if j.Spec.Deadline > 0 && j.Spec.GPUs >= 0 {
			out = append(out, j)
		}
	}
	slices.SortStableFunc(out, byDeadline)
	return out
}

func byDeadline(a, b *cluster.Job) int {
	return cmp.Or(cmp.Compare(a.Spec.Deadline, b.Spec.Deadline), cmp.Compare(a.ID, b.ID))
}

// demand is the part of the GPUs that deadlines may claim, and when each
// becomes free.
type demand struct {
	pol   *Policy
	now   int64
	types []string
	slots map[string][]slot // by type
	reps  map[string]*cluster.GPU
}

type slot struct {
	node cluster.NodeID
	gpu  cluster.GPUID
	free int64
}

func newDemand(snap *cluster.Snapshot, pol *Policy) *demand {
	d := &demand{pol: pol, now: int64(snap.Now), slots: map[string][]slot{}, reps: map[string]*cluster.GPU{}}
	clears := map[cluster.GPUID]int64{}
	for _, j := range snap.Running {
		a := j.Live()
		if a == nil {
			continue
		}
		end := endAt(j, a, tail, d.now, pol)
		for _, gs := range a.Berth.GPUs {
			clears[gs.GPU] = max(clears[gs.GPU], end)
		}
	}
	for _, n := range sortedNodes(snap.Nodes) {
		for i := range n.GPUs {
			g := &n.GPUs[i]
			if !n.Schedulable() || g.SellableMiB <= 0 {
				continue
			}
			if d.reps[g.Type] == nil || g.SellableMiB < d.reps[g.Type].SellableMiB {
				d.reps[g.Type] = g
			}
			d.slots[g.Type] = append(d.slots[g.Type], slot{n.ID, g.ID, max(d.now, clears[g.ID])})
		}
	}
	for t, s := range d.slots {
		slices.SortFunc(s, func(a, b slot) int {
			return cmp.Or(cmp.Compare(a.free, b.free), cmp.Compare(a.node, b.node), cmp.Compare(a.gpu, b.gpu))
		})
		most := (int64(len(s))*min(1000, max(0, pol.DeadlineShareMilli)) + 999) / 1000
		d.slots[t] = s[:most]
		d.types = append(d.types, t)
	}
	slices.Sort(d.types)
	return d
}

// lay plans the jobs, which are in order of their deadlines, and returns what
// became of each.
func (d *demand) lay(jobs []*cluster.Job) map[*cluster.Job]DeadlineCheck {
	slots := map[string][]slot{}
	for t, s := range d.slots {
		slots[t] = slices.Clone(s)
	}
	slices.SortStableFunc(jobs, byDeadline)
	out := make(map[*cluster.Job]DeadlineCheck, len(jobs))
	for i, j := range jobs {
		best, on := DeadlineCheck{}, []int(nil)
		if j.Spec.GPUs == 0 { // cores are not rationed by deadline
			best.End = cluster.Time(d.now + d.length(j, cluster.CPUType))
		}
		for _, t := range d.types {
			if j.Spec.GPUs == 0 {
				break
			}
			if e, _ := cluster.EstimateFor(j.Estimates, t); needOn(j, d.reps[t], &e, d.pol).way == wayNone {
				continue
			}
			at, start := earliest(slots[t], j.Spec.GPUs, j.Spec.Node)
			if end := cluster.Time(start + d.length(j, t)); at != nil && (best.End == 0 || end < best.End) {
				best, on = DeadlineCheck{End: end, GPUType: t}, at
			}
		}
		best.Before = i
		for _, k := range on {
			slots[best.GPUType][k].free = int64(best.End)
		}
		out[j] = best
	}
	return out
}

// length is how long a job takes on a type at most, in nine of ten cases.
func (d *demand) length(j *cluster.Job, gpuType string) int64 {
	e, _ := cluster.EstimateFor(j.Estimates, gpuType)
	return stretched(durationOf(j, &e, d.pol), tail, &e, j.Spec.TimeLimit)
}

// earliest returns the n slots of one node that are free together first, nil
// when no node has so many.
func earliest(slots []slot, n int, node cluster.NodeID) (at []int, start int64) {
	start = forever
	byNode := map[cluster.NodeID][]int{}
	for i := range slots {
		if node == "" || slots[i].node == node {
			byNode[slots[i].node] = append(byNode[slots[i].node], i)
		}
	}
	for i := range slots { // in a fixed order
		own := byNode[slots[i].node]
		if len(own) < n || own[0] != i {
			continue
		}
		slices.SortFunc(own, func(a, b int) int { return cmp.Or(cmp.Compare(slots[a].free, slots[b].free), cmp.Compare(a, b)) })
		if s := slots[own[n-1]].free; s < start {
			at, start = own[:n], s
		}
	}
	return at, start
}

func clock(t cluster.Time) string { return t.Std().UTC().Format("2006-01-02 15:04:05 MST") }

func (d *demand) refusal(j *cluster.Job, c DeadlineCheck) *cluster.Error {
	if c.End == 0 {
		return cluster.Errorf(cluster.CodeInvalid, "deadline: no node has %s among the %s of each type that deadlines may claim; ask for fewer, or submit without a deadline",
			gpus(j.Spec.GPUs), percent(d.pol.DeadlineShareMilli))
	}
	where := ""
	if c.GPUType != "" {
		where = " on " + c.GPUType
	}
	return cluster.Errorf(cluster.CodeInvalid, "deadline %s cannot be met: it takes up to %s%s and would end at %s, behind %s with earlier deadlines and what runs; ask for that time or later, fewer GPUs, or a shorter --time",
		clock(j.Spec.Deadline), about(d.length(j, c.GPUType)), where, clock(c.End), jobs(c.Before))
}

// Slack is how much later than expected a job may end and still meet its
// deadline; negative when it is expected to miss it. ok is false for a job
// without a deadline, or one that has ended.
func Slack(job *cluster.Job, now cluster.Time, pol Policy) (slack time.Duration, ok bool) {
	if job.Spec.Deadline == 0 || job.State.Terminal() {
		return 0, false
	}
	if a := job.Live(); a != nil {
		return job.Spec.Deadline.Sub(cluster.Time(endAt(job, a, middle, int64(now), &pol))), true
	}
	return time.Duration(laxity(job, int64(now), &pol)) * time.Microsecond, true
}

// laxity is how long a waiting job may still wait beyond its expected start,
// in microseconds, on the type that is fastest for it.
func laxity(job *cluster.Job, now int64, pol *Policy) int64 {
	d := int64(forever)
	for i := range job.Estimates {
		if e := &job.Estimates[i]; (e.GPUType == cluster.CPUType) == (job.Spec.GPUs == 0) && (job.Spec.GPUType == "" || job.Spec.GPUType == e.GPUType) {
			d = min(d, durationOf(job, e, pol))
		}
	}
	if d == forever {
		d = durationOf(job, &cluster.Estimate{}, pol)
	}
	return int64(job.Spec.Deadline) - max(now, int64(job.EstStart)) - d
}
