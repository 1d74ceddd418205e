package coordinator

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/fsm"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	"github.com/berth-scheduler/berth/scheduler"
)

// expireEvery is how often the leader looks for deadlines that passed.
const expireEvery = time.Second

// setDeadline makes a deadline of a span, and refuses one that has passed.
func setDeadline(s *cluster.Spec, now cluster.Time) error {
	if s.DeadlineIn > 0 {
		s.Deadline, s.DeadlineIn = now.Add(s.DeadlineIn), 0
	}
	if s.Deadline > 0 && s.Deadline <= now {
		return cluster.Errorf(cluster.CodeInvalid, "deadline: %s has passed; it is %s", s.Deadline.Std().UTC().Format(time.RFC3339), now.Std().UTC().Format(time.RFC3339))
	}
	return nil
}

// admitted proposes cmd, which submits jobs, if their deadlines can be met
// beside those that were promised before. Promises are made one after the other:
// each is asked about, and stands in the state, before the next one is.
func (c *Coordinator) admitted(ctx context.Context, jobs []*cluster.Job, now cluster.Time, cmd *logv1.SubmitJob) (fsm.Result, error) {
	if slices.ContainsFunc(jobs, func(j *cluster.Job) bool { return j.Spec.Deadline > 0 }) {
		select {
		case c.promising <- struct{}{}:
			defer func() { <-c.promising }()
		case <-ctx.Done():
			return fsm.Result{}, ctx.Err()
		}
		if err := c.admit(jobs, now); err != nil {
			return fsm.Result{}, err
		}
	}
	return c.prop.One(ctx, &logv1.Command{Kind: &logv1.Command_SubmitJob{SubmitJob: cmd}})
}

// admit refuses jobs whose deadlines cannot be met.
func (c *Coordinator) admit(jobs []*cluster.Job, now cluster.Time) error {
	snap, _ := c.fsm.SchedulerSnapshotAt(now)
	for i, j := range jobs { // they have no ids yet; any that are in order will do
		if j.ID == 0 {
			j.ID = cluster.JobID(1<<62 + i)
			defer func() { j.ID = 0 }()
		}
	}
	byPart := map[string][]*cluster.Job{}
	for _, j := range jobs {
		byPart[j.Spec.Partition] = append(byPart[j.Spec.Partition], j)
	}
	for _, name := range slices.Sorted(maps.Keys(byPart)) {
		part := partitionOf(snap, byPart[name][0])
		pol := c.scheduling().of(name).Policy
		pol.DeadlineShareMilli /= int64(overlaps(snap, part))
		if err := scheduler.Admit(within(snap, part), byPart[name], pol); err != nil {
			return err
		}
	}
	return nil
}

// overlaps is the most partitions that a node of part belongs to: each of them
// promises its part of what deadlines may claim, and no GPU is promised twice.
func overlaps(snap *cluster.Snapshot, part *cluster.Partition) int {
	most := 1
	if part == nil {
		return most
	}
	for _, n := range snap.Nodes {
		if !part.Nodes.Holds(n.ID) {
			continue
		}
		of := 0
		for _, p := range snap.Partitions {
			if p.Nodes.Holds(n.ID) {
				of++
			}
		}
		most = max(most, of)
	}
	return most
}

// termsOf gathers what policies go by beside specs: the deadlines of those who
// wait, and who may be preempted. due tells that somebody with a deadline waits
// whom no pass has given a queue yet: what is promised to the others is on the
// nodes of their queues, and the fast path keeps away from there.
func termsOf(waiting, running []*cluster.Job) (out map[cluster.JobID]cluster.Terms, due bool) {
	set := func(id cluster.JobID, t cluster.Terms) {
		if t == (cluster.Terms{}) {
			return
		}
		if out == nil {
			out = map[cluster.JobID]cluster.Terms{}
		}
		out[id] = t
	}
	for _, j := range waiting {
		due = due || j.Spec.Deadline > 0 && j.Spec.GPUs > 0 && j.State == cluster.JobPending
		set(j.ID, cluster.Terms{Deadline: j.Spec.Deadline, Preemptible: mayMakeRoom(j)})
	}
	for _, j := range running {
		set(j.ID, cluster.Terms{Preemptible: mayMakeRoom(j)})
	}
	return out, due
}

// expire ends waiting jobs whose deadline has passed, and drains whose time is
// over, until ctx ends.
func (c *Coordinator) expire(ctx context.Context) error {
	for sleep(ctx, expireEvery) {
		c.endDrains(ctx)
		ids := c.fsm.Expired(cluster.TimeOf(c.cfg.Clock()))
		for chunk := range slices.Chunk(ids, maxJobsPerCall) {
			cmd := &logv1.ExpireJobs{}
			for _, id := range chunk {
				cmd.Jobs = append(cmd.Jobs, uint64(id))
			}
			if _, err := c.prop.One(ctx, &logv1.Command{Kind: &logv1.Command_ExpireJobs{ExpireJobs: cmd}}); err != nil && ctx.Err() == nil {
				c.log.WarnContext(ctx, "cannot end jobs whose deadline passed", "err", err)
				break
			}
		}
	}
	return ctx.Err()
}
