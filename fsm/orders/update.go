package orders

import (
	"fmt"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/fsm/command"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

// updateJob replaces a job's spec. A waiting job leaves its queue and is considered
// again; for a running one the leader allows only changes that affect its end or
// its next attempt.
func (d *Desk) updateJob(c *logv1.UpdateJob) command.Result {
	old := d.roll.Job(cluster.JobID(c.Job))
	spec, err := conv.SpecNamed(c.Spec, d.roll.BulkNamed)
	switch {
	case old == nil:
		return command.Refuse(cluster.CodeNotFound, "job %d is not known", c.Job)
	case err != nil:
		return refuseSpec(fmt.Sprintf("job %d", c.Job), err)
	case old.InArray():
		return command.Refuse(cluster.CodeConflict, "job %s is of an array, whose tasks are all alike: how many run at once can be changed, the rest not; cancel it and submit another", old.Label())
	case old.State.Terminal():
		return command.Refuse(cluster.CodeConflict, "job %d has ended as %s and cannot be changed", c.Job, old.State)
	case old.Revision != c.Base:
		return command.Refuse(cluster.CodeConflict, "job %d changed meanwhile", c.Job)
	case d.roll.Fleet.NoPartition(spec) != nil:
		return command.Result{Err: d.roll.Fleet.NoPartition(spec)}
	case d.roll.At.Version >= command.ChangeVersion && spec.Array != nil:
		return command.Refuse(cluster.CodeInvalid, "job %d: a job that was submitted cannot become an array; cancel it and submit one", c.Job)
	case d.roll.At.Version >= command.ChangeVersion && !old.State.Waiting() && !slices.Equal(spec.Depends, old.Spec.Depends):
		return command.Refuse(cluster.CodeConflict, "job %d is %s: what it waits for can be changed when it waits again", c.Job, old.State)
	}
	j := old.Clone()
	j.Spec = spec
	if err := d.roll.Books.MayCharge(old, j); err != nil {
		return command.Result{Err: err}
	}
	d.roll.Blobs.Apart(d.roll.At.Now, spec)
	d.roll.Texts.Spec(j.Owner.UID, spec)
	if old.State.Waiting() {
		if err := d.roll.Depends.Look(j); err != nil {
			return command.Result{Err: err}
		}
		if err := d.roll.Depends.Circular(j); err != nil && d.roll.At.Version >= command.CircleVersion {
			return command.Result{Err: err}
		}
		d.roll.Queues.Leave(j)
		began := j.Eligible
		d.roll.WaitAgain(j)
		j.Eligible = max(began, spec.Begin)
	}
	d.roll.Depends.Reindex(old, j)
	d.roll.Changed(command.Change{Job: j.ID, New: old.State.Waiting()})
	return command.Result{}
}

// estimateJobs gives waiting jobs new estimates because something was learned since
// they were submitted. The leader predicts, and this only stores. Jobs that began
// or ended meanwhile keep what they were placed by, and a queued one keeps its
// place until the next pass considers it.
func (d *Desk) estimateJobs(c *logv1.EstimateJobs) command.Result {
	groups := make([][]cluster.Estimate, len(c.GetGroups()))
	for i, g := range c.GetGroups() {
		es := conv.EstimatesFromLog(g.GetEstimates())
		for k := range es {
			if k > 0 && es[k-1].GPUType >= es[k].GPUType {
				return command.Refuse(cluster.CodeInvalid, "estimates of group %d: %q and %q are not in order", i, es[k-1].GPUType, es[k].GPUType)
			}
			d.roll.Texts.Estimate(&es[k])
		}
		groups[i] = slices.Clip(es)
	}
	for i, g := range c.GetGroups() {
		for _, id := range g.GetJobs() {
			old := d.roll.Jobs.Get(cluster.JobID(id)) // a fold, too
			if old == nil || !old.State.Waiting() {
				continue
			}
			j := old.Clone()
			j.Estimates, j.Estimated = groups[i], d.roll.At.Now
			d.roll.Change(old, j, command.Change{New: true})
		}
	}
	return command.Result{}
}
