package place

import (
	"fmt"
	"slices"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/scheduler/policies/mirror"
	"github.com/berth-scheduler/berth/scheduler/policies/order"
	"github.com/berth-scheduler/berth/scheduler/policies/scene"
	"github.com/berth-scheduler/berth/scheduler/rules"
)

// profileTime is how long a job runs alone before it is known: the minute of
// Yeung et al.
const profileTime = time.Minute

// reactive runs each job alone for a minute before it may share. Source: the
// "reactive" baseline of Yeung et al., "Towards GPU Utilization Prediction for
// Cloud Deep Learning" (HotCloud 2020), section 6. The paper leaves open what
// happens after the minute. A preemptible job is ended and waits again, which
// matches the paper's figures; any other stays and may be joined from then on.
//
// A job is known once one of its earlier attempts, or the running one, took a
// minute. The snapshot's estimates stand in for the profile; until then they are
// used only for the memory to reserve.
type reactive struct{ known map[cluster.JobID]struct{} }

func newReactive(p *scene.Scene, _ *order.Turns) scene.Rule {
	r := reactive{map[cluster.JobID]struct{}{}}
	for i := range p.Fleet.Runs {
		if profiled(p.Fleet.Runs[i].Job, p.Now) {
			r.known[p.Fleet.Runs[i].Job.ID] = struct{}{}
		}
	}
	for _, t := range p.Tasks {
		if profiled(t.Job, p.Now) {
			r.known[t.ID] = struct{}{}
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

// Choose takes a GPU in use before an empty one, so that GPUs stay empty for
// profiling; jobs not known get empty ones.
func (r reactive) Choose(p *scene.Scene, t *scene.Task) []int32 {
	var empty []int32
	known := r.knows(t.ID)
	for gi := range p.Fleet.Groups {
		if !known && (empty != nil || p.Fleet.Groups[gi].Empty < t.GPUs) || !p.MayHold(t, int32(gi)) {
			continue
		}
		cards := p.Pick(t, int32(gi), func(a, b *mirror.Card) int { return rules.CompareBool(a.Use.Shares == 0, b.Use.Shares == 0) })
		switch {
		case cards == nil:
		case p.Fleet.Cards[cards[0]].Use.Shares > 0:
			return cards
		case empty == nil:
			empty = p.Keep(cards)
		}
	}
	return empty
}

func (r reactive) Admits(p *scene.Scene, t *scene.Task, c *mirror.Card) bool {
	if !r.knows(t.ID) {
		return false
	}
	return !slices.ContainsFunc(c.On, func(o mirror.Resident) bool { return !r.knows(p.Fleet.Runs[o.Run].Job.ID) })
}

func (r reactive) Tag(t *scene.Task) int64 {
	if r.knows(t.ID) {
		return 1
	}
	return 0
}

// Finish ends the profiles that are done, while a job waits for room.
func (r reactive) Finish(p *scene.Scene) {
	p.LeaveQueues()
	if len(p.Plan.Starts) == len(p.Tasks) {
		return
	}
	for i := range p.Fleet.Runs {
		o := &p.Fleet.Runs[i]
		if o.Fresh || len(o.Job.Attempts) != 1 || o.Job.Spec.GPUs == 0 || o.Job.Spec.Exclusive || !r.knows(o.Job.ID) || !p.MayAsk() || p.Asked(o.Job.ID) ||
			o.Job.State != cluster.JobRunning || o.Job.Cancel != nil || !p.Snap.Terms[o.Job.ID].Preemptible || o.Job.Preempting() {
			continue
		}
		p.Ask(o, 0, fmt.Sprintf("profiled for %s", profileTime))
	}
}
