package site

import (
	"maps"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler/deadline"
)

// MayMakeRoom reports whether policies may preempt a job at all. One with a
// deadline was promised its end.
func MayMakeRoom(j *cluster.Job) bool { return j.Spec.Checkpoint.Set() && j.Spec.Deadline == 0 }

// termsOf collects what policies use besides specs: the deadlines of waiting jobs,
// and which jobs may be preempted; nil if there is nothing to say.
func termsOf(waiting, running []*cluster.Job) (out map[cluster.JobID]dispatch.Terms) {
	set := func(id cluster.JobID, t dispatch.Terms) {
		if t == (dispatch.Terms{}) {
			return
		}
		if out == nil {
			out = map[cluster.JobID]dispatch.Terms{}
		}
		out[id] = t
	}
	for _, j := range waiting {
		set(j.ID, dispatch.Terms{Deadline: j.Spec.Deadline, Preemptible: MayMakeRoom(j)})
	}
	for _, j := range running {
		set(j.ID, dispatch.Terms{Preemptible: MayMakeRoom(j), Shrinks: j.Spec.Checkpoint.Set() && j.Spec.Deadline > 0 && j.Spec.Elastic()})
	}
	return out
}

// unqueuedDeadline reports whether a job with a deadline waits that no pass has
// queued yet: what is promised to the others is on the nodes of their queues, and
// the fast path keeps away from there.
func unqueuedDeadline(waiting []*cluster.Job) bool {
	return slices.ContainsFunc(waiting, func(j *cluster.Job) bool {
		return j.Spec.Deadline > 0 && j.Spec.GPUs > 0 && j.State == cluster.JobPending
	})
}

// makesRoom reports whether passes preempt jobs for a promised deadline: the
// scheduler's own do, and those of the order edf.
func (c *Chosen) makesRoom() bool {
	if c.Planner == nil {
		return true
	}
	p, ok := c.Planner.(interface{ MakesRoomForDeadlines() bool })
	return ok && p.MakesRoomForDeadlines()
}

// Admit refuses jobs, which have ids in order and are not in snap, if their
// deadlines cannot be met along with those already promised. Preemptible jobs count
// as such if the policy preempts.
func Admit(snap *dispatch.Snapshot, jobs []*cluster.Job, s *Site) (promises map[*cluster.Job]deadline.Check, err error) {
	promises = map[*cluster.Job]deadline.Check{}
	byPart := map[string][]*cluster.Job{}
	for _, j := range jobs {
		byPart[j.Spec.Partition] = append(byPart[j.Spec.Partition], j)
	}
	for _, name := range slices.Sorted(maps.Keys(byPart)) {
		part := PartitionOf(snap, byPart[name][0])
		if part != nil && part.Down && slices.ContainsFunc(byPart[name], func(j *cluster.Job) bool { return j.Spec.Deadline > 0 }) {
			return nil, cluster.Errorf(cluster.CodeInvalid, "deadline: cannot be promised while partition %s is down: nothing starts there until an administrator sets it to up", part.Name)
		}
		pol := s.Of(name).Policy
		pol.DeadlineShareMilli /= int64(overlaps(snap, part))
		seen := *Within(snap, part)
		if seen.Terms = nil; s.Of(name).makesRoom() {
			seen.Terms = termsOf(seen.Waiting, seen.Running)
		}
		checks, err := deadline.Admit(&seen, byPart[name], pol)
		if err != nil {
			return nil, err
		}
		maps.Copy(promises, checks)
	}
	return promises, nil
}
