package policies

import (
	"fmt"
	"time"

	"github.com/berth-scheduler/berth/cluster"
)

// profileTime is how long a job runs alone before it is known: the minute of
// Yeung et al.
const profileTime = time.Minute

// reactive runs each job alone for a minute before it may share. Source: the
// "reactive" baseline of Yeung et al., "Towards GPU Utilization Prediction for
// Cloud Deep Learning" (HotCloud 2020), section 6. The paper leaves open what
// happens after the minute. A job whose terms allow to preempt it is ended and
// waits again, which is what matches the paper's figures; any other stays and
// may be joined from then on.
//
// A job is known when one of its earlier attempts, or the one that runs, took
// a minute. What the profile would have found are the estimates of the
// snapshot, which nobody looks at before, but for the memory to reserve.
type reactive struct{ known map[cluster.JobID]struct{} }

func newReactive(p *pass) placer {
	r := reactive{map[cluster.JobID]struct{}{}}
	for i := range p.runs {
		if profiled(p.runs[i].job, p.now) {
			r.known[p.runs[i].job.ID] = struct{}{}
		}
	}
	for _, t := range p.tasks {
		if profiled(t.job, p.now) {
			r.known[t.id] = struct{}{}
		}
	}
	return r
}

// profiled reports whether some attempt of a job has run for the minute.
func profiled(j *cluster.Job, now int64) bool {
	for i := range j.Attempts {
		a := &j.Attempts[i]
		end := a.Ended
		if end == 0 {
			end = cluster.Time(now)
		}
		if a.Started > 0 && end.Sub(a.Started) >= profileTime {
			return true
		}
	}
	return false
}

func (r reactive) knows(id cluster.JobID) bool {
	_, ok := r.known[id]
	return ok
}

// choose takes a used card before an empty one, so that cards stay empty for
// profiling; who is not known gets empty ones.
func (r reactive) choose(p *pass, t *task) []int32 {
	var empty []int32
	known := r.knows(t.id)
	for gi := range p.f.groups {
		if !known && (empty != nil || p.f.groups[gi].empty < t.gpus) || !p.mayHold(t, int32(gi)) {
			continue
		}
		cards := p.pick(t, int32(gi), func(a, b *card) int { return boolInt(a.use.Shares == 0) - boolInt(b.use.Shares == 0) })
		switch {
		case cards == nil:
		case p.f.cards[cards[0]].use.Shares > 0:
			return cards
		case empty == nil:
			empty = p.keep(cards)
		}
	}
	return empty
}

func (r reactive) admits(p *pass, t *task, c *card) bool {
	if !r.knows(t.id) {
		return false
	}
	for _, o := range c.on {
		if !r.knows(p.runs[o.run].job.ID) {
			return false
		}
	}
	return true
}

func (r reactive) tag(t *task) int64 { return int64(boolInt(r.knows(t.id))) }

// finish ends the profiles that are done, while somebody waits for room.
func (r reactive) finish(p *pass) {
	p.leaveQueues()
	if len(p.plan.Starts) == len(p.tasks) {
		return
	}
	for i := range p.runs {
		o := &p.runs[i]
		if o.fresh || len(o.job.Attempts) != 1 || o.job.Spec.GPUs == 0 || o.job.Spec.Exclusive || !r.knows(o.job.ID) || len(p.plan.Preempt) >= p.opt.MaxPreempt || p.ends(o.job.ID) ||
			o.job.State != cluster.JobRunning || o.job.Cancel != nil || !p.snap.Terms[o.job.ID].Preemptible || o.job.Preempting() {
			continue
		}
		p.plan.Preempt = append(p.plan.Preempt, cluster.Preemption{
			Job: o.job.ID, Attempt: o.job.Live().No, Why: fmt.Sprintf("%s: profiled for %s", p.label, profileTime),
		})
	}
}
