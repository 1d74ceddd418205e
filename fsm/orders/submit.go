package orders

import (
	"errors"
	"fmt"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/fsm/command"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

// lastJobID bounds ids, which never wrap.
const lastJobID = 1 << 62

// submit adds jobs, all or none. A repeated request gets the same answer again.
// Whether a spec may run is the leader's to check: a rule that changes between
// versions must not decide what replicas store.
func (d *Desk) submit(c *logv1.SubmitJob) command.Result {
	if d.roll.At.Version < command.ChangeVersion {
		d.Requests.Expire(d.roll.At.Now) // from that version on a refusal expires nothing
	}
	owner := conv.OwnerFromLog(c.Owner)
	if c.RequestId == "" || len(c.BodyHash) < len(Request{}.BodyHash) {
		return command.Refuse(cluster.CodeInvalid, "request id: is missing, or the hash of the request has %d bytes", len(c.BodyHash))
	}
	req := &Request{
		Key: KeyOf(owner.UID, c.RequestId), BodyHash: [16]byte(c.BodyHash), First: cluster.JobID(c.FirstJob), Count: len(c.Jobs), At: d.roll.At.Now,
	}
	if old := d.Requests.Get(req.Key); old != nil && d.roll.At.Now.Sub(old.At) <= RequestLife {
		if old.BodyHash != req.BodyHash {
			return command.Refuse(cluster.CodeAlreadyExists, "request id %q was used for another request; make a new one", c.RequestId)
		}
		return command.Result{Jobs: old.Jobs(), Existing: true}
	}
	if req.First < d.roll.NextID || req.First > lastJobID {
		return command.Refuse(cluster.CodeConflict, "job id %d was given before; submit again", req.First)
	}
	if len(c.Jobs) == 0 {
		return command.Refuse(cluster.CodeInvalid, "jobs: there are none in the request")
	}
	all := make([]*cluster.Job, len(c.Jobs))
	next := req.First
	d.roll.Depends.Begun = map[cluster.JobID]cluster.Time{}
	defer func() { d.roll.Depends.Begun = nil }()
	for i, nj := range c.Jobs {
		spec, err := conv.SpecNamed(nj.Spec, d.roll.BulkNamed)
		if err != nil {
			return refuseSpec(fmt.Sprintf("job %d of the request", i), err)
		}
		if err := d.roll.Fleet.NoPartition(spec); err != nil {
			return command.Result{Err: err}
		}
		all[i] = &cluster.Job{
			ID: next, Owner: owner, Spec: spec, State: cluster.JobPending,
			Reason: d.roll.Fleet.WaitsFor(spec), Estimates: conv.EstimatesFromLog(nj.Estimates),
			Submitted: d.roll.At.Now, Eligible: d.roll.At.Now,
		}
		if err := d.bar(all[i]); err != nil {
			return command.Result{Err: err}
		}
		next += cluster.JobID(spec.Len())
	}
	if err := d.roll.Books.MaySubmit(all); err != nil {
		return command.Result{Err: err}
	}
	req.ListIDs(all)
	d.putNew(all)
	d.roll.NextID = next
	d.Requests.Add(req)
	return command.Result{Jobs: req.Jobs()}
}

// putNew stores the jobs of an accepted submission.
func (d *Desk) putNew(jobs []*cluster.Job) {
	d.Requests.Expire(d.roll.At.Now)
	d.roll.Blobs.Take(d.roll.At.Now, jobs)
	for _, j := range jobs {
		d.roll.Intern(j)
		if j.Spec.Array != nil {
			j = d.roll.NewTasks(j)
		}
		d.roll.Change(nil, j, command.Change{New: true})
	}
}

// bar records what keeps j, a new job that is not stored yet, from starting.
func (d *Desk) bar(j *cluster.Job) *cluster.Error {
	if err := d.roll.Depends.Look(j); err != nil {
		return err
	}
	if j.Spec.Hold {
		j.Hold = &cluster.Hold{At: d.roll.At.Now, By: j.Owner.UID}
	}
	if r := j.Barred(d.roll.At.Now); r.Code != "" {
		d.roll.WaitAgain(j)
	}
	return nil
}

// refuseSpec refuses a command because of one of its specs, named what.
func refuseSpec(what string, err error) command.Result {
	if errors.Is(err, conv.ErrNoBulk) {
		r := command.Refuse(cluster.CodeUnavailable, "%s: its environment and script are not in the state any more; nothing was done; try again", what)
		r.LacksBulk = true
		return r
	}
	return command.Refuse(cluster.CodeInvalid, "%s: %v", what, err)
}
