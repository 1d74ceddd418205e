package fsm

import (
	"fmt"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/fsm/command"
	"github.com/berth-scheduler/berth/fsm/jobs"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

const (
	requestLife = 10 * time.Minute
	maxRequests = 1_000_000
	defaultKeep = 20_000
	lastJobID   = 1 << 62 // ids never wrap
	maxAttempts = 100
)

func (s *State) apply(index uint64, cmd *logv1.Command) Result {
	var r Result
	switch k := cmd.Kind.(type) {
	case *logv1.Command_SubmitJob:
		r = s.submit(index, k.SubmitJob)
	case *logv1.Command_CancelJob:
		r = s.cancel(index, k.CancelJob)
	case *logv1.Command_ApplyPlan:
		p := conv.PlanFromLog(k.ApplyPlan)
		r.Plan = s.applyPlan(index, &p)
	case *logv1.Command_ReportAttempt:
		r = s.report(index, k.ReportAttempt)
	case *logv1.Command_RegisterNode:
		r = s.register(index, k.RegisterNode.GetNode())
	case *logv1.Command_SetNodeState:
		r = s.setNodeState(index, k.SetNodeState)
	case *logv1.Command_DrainNode, *logv1.Command_DrainGpu, *logv1.Command_SetSharing:
		r = s.fleet.Apply(cmd)
	case *logv1.Command_RemoveNode:
		r = s.removeNode(k.RemoveNode)
	case *logv1.Command_CreateToken, *logv1.Command_UseToken, *logv1.Command_DenyIdentity:
		r = s.keyring.Apply(s.entry(), cmd)
	case *logv1.Command_PublishWeights, *logv1.Command_InstallWeights, *logv1.Command_RollbackWeights, *logv1.Command_PinWeights,
		*logv1.Command_ImportRuns, *logv1.Command_InstallInterference:
		r = s.learned.Apply(s.entry(), cmd)
	case *logv1.Command_AddWebhook, *logv1.Command_RemoveWebhook, *logv1.Command_SettleNotices:
		r = s.outbox.Apply(s.entry(), cmd)
	case *logv1.Command_ExpireJobs:
		r = s.expireJobs(index, k.ExpireJobs)
	case *logv1.Command_PreemptAttempt:
		r = s.preempt(index, k.PreemptAttempt)
	case *logv1.Command_UndoGang:
		r = s.undoGang(index, k.UndoGang)
	case *logv1.Command_FenceNode:
		r = s.fence(index, k.FenceNode)
	case *logv1.Command_SetPartition:
		r = s.setPartition(index, k.SetPartition)
	case *logv1.Command_RemovePartition:
		r = s.removePartition(k.RemovePartition)
	case *logv1.Command_SetStanding:
		if r = s.books.Apply(s.entry(), cmd); r.Err == nil {
			s.roll.Changed(Change{Partition: "*"}) // plan anew
		}
	case *logv1.Command_SetReservation:
		r = s.setReservation(index, k.SetReservation)
	case *logv1.Command_RemoveReservation:
		r = s.removeReservation(k.RemoveReservation)
	case *logv1.Command_Checkpoint:
		// The FSM compares it: it keeps the hashes.
	case *logv1.Command_InitCluster:
		r = s.initCluster(k.InitCluster)
	default:
		r = s.applyToJobs(index, cmd)
	}
	r.Index = index
	return r
}

// applyToJobs applies what is made of jobs that are there, beside cancels, and what
// users bring for those to come.
func (s *State) applyToJobs(index uint64, cmd *logv1.Command) (r Result) {
	switch k := cmd.Kind.(type) {
	case *logv1.Command_HoldJob:
		r = s.hold(index, k.HoldJob)
	case *logv1.Command_RequeueJob:
		r = s.requeue(index, k.RequeueJob)
	case *logv1.Command_ChangeTasks:
		r = s.changeTasks(index, k.ChangeTasks)
	case *logv1.Command_MarkAttempt:
		r = s.mark(index, k.MarkAttempt)
	case *logv1.Command_IdleAttempt:
		r = s.idle(index, k.IdleAttempt)
	case *logv1.Command_ResizeAttempt:
		r = resize(s, index, k.ResizeAttempt)
	case *logv1.Command_NoteProgress:
		noteProgress(s, index, k.NoteProgress)
	case *logv1.Command_PutBulk:
		r = s.blobs.Put(s.entry(), k.PutBulk)
	case *logv1.Command_UpdateJob:
		r = s.updateJob(index, k.UpdateJob)
	case *logv1.Command_EstimateJobs:
		r = s.estimateJobs(index, k.EstimateJobs)
	default:
		// To go on would be to store something else than those who know it.
		panic(fmt.Sprintf("fsm: entry %d: a command of a kind that this berth does not know: %T", index, cmd.Kind))
	}
	return r
}

// submit adds jobs, all or none. The same request gets the same answer again.
// Whether the spec may run is the leader's to check: a rule that changes from
// version to version must not decide what replicas store.
func (s *State) submit(index uint64, c *logv1.SubmitJob) Result {
	if s.at.Version < command.ChangeVersion {
		s.requests.Expire(s.at.Now) // from then on a refusal changes nothing, and forgets nothing
	}
	owner := conv.OwnerFromLog(c.Owner)
	if c.RequestId == "" || len(c.BodyHash) < len(jobs.Request{}.BodyHash) {
		return refuse(cluster.CodeInvalid, "request id: is missing, or the hash of the request has %d bytes", len(c.BodyHash))
	}
	req := &jobs.Request{
		Key: jobs.KeyOf(owner.UID, c.RequestId), BodyHash: [16]byte(c.BodyHash), First: cluster.JobID(c.FirstJob), Count: len(c.Jobs), At: s.at.Now,
	}
	if old := s.requests.Get(req.Key); old != nil && s.at.Now.Sub(old.At) <= jobs.RequestLife {
		if old.BodyHash != req.BodyHash {
			return refuse(cluster.CodeAlreadyExists, "request id %q was used for another request; make a new one", c.RequestId)
		}
		return Result{Jobs: old.Jobs(), Existing: true}
	}
	if req.First < s.roll.NextID || req.First > lastJobID {
		return refuse(cluster.CodeConflict, "job id %d was given before; submit again", req.First)
	}
	if len(c.Jobs) == 0 {
		return refuse(cluster.CodeInvalid, "jobs: there are none in the request")
	}
	all := make([]*cluster.Job, len(c.Jobs))
	next := req.First
	s.roll.Depends.Begun = map[cluster.JobID]cluster.Time{}
	defer func() { s.roll.Depends.Begun = nil }()
	for i, nj := range c.Jobs {
		spec, err := conv.SpecNamed(nj.Spec, s.roll.BulkNamed)
		if err != nil {
			return refuseSpec(fmt.Sprintf("job %d of the request", i), err)
		}
		if err := s.fleet.NoPartition(spec); err != nil {
			return Result{Err: err}
		}
		all[i] = &cluster.Job{
			ID: next, Revision: index, Owner: owner, Spec: spec, State: cluster.JobPending,
			Reason: s.fleet.WaitsFor(spec), Estimates: conv.EstimatesFromLog(nj.Estimates),
			Submitted: s.at.Now, Eligible: s.at.Now,
		}
		if err := s.bar(all[i]); err != nil {
			return Result{Err: err}
		}
		next += cluster.JobID(spec.Len())
	}
	if err := s.books.MaySubmit(all); err != nil {
		return Result{Err: err}
	}
	req.ListIDs(all)
	s.putNew(all)
	s.roll.NextID = next
	s.requests.Add(req)
	return Result{Jobs: req.Jobs()}
}

// putNew stores the jobs of a submit that is not refused.
func (s *State) putNew(jobs []*cluster.Job) {
	s.requests.Expire(s.at.Now)
	s.blobs.Take(s.at.Now, jobs)
	for _, j := range jobs {
		s.roll.Intern(j)
		if j.Spec.Array != nil {
			j = s.roll.NewTasks(j)
		}
		s.roll.Change(nil, j, Change{New: true})
	}
}

// cancel ends a waiting job at once, and asks the agent to end a live one.
func (s *State) cancel(index uint64, c *logv1.CancelJob) Result {
	old := s.roll.Job(cluster.JobID(c.Job))
	if old != nil && !old.State.Terminal() {
		old = s.roll.Own(old.ID)
	}
	return Result{Cancel: s.cancelJob(index, old, cluster.UID(c.By), c.Admin)}
}

// cancelJob does so to a job, or to all that it folds.
func (s *State) cancelJob(index uint64, old *cluster.Job, by cluster.UID, admin bool) CancelOutcome {
	switch {
	case old == nil:
		return NotFound
	case old.State.Terminal():
		return Finished
	case old.Cancel != nil:
		return Cancelled // on its way; who asked first stays on record
	}
	j := old.Clone()
	j.Cancel = &cluster.CancelRequest{At: s.at.Now, By: by, Admin: admin}
	j.Revision = index
	if j.State.Waiting() {
		s.roll.Queues.Leave(j)
		j.Hold = nil
		j.State, j.Ended, j.Reason = cluster.JobCancelled, s.at.Now, cancelReason(j)
	}
	s.roll.Change(old, j, Change{})
	return Cancelled
}

func cancelReason(j *cluster.Job) cluster.Reason {
	if a := j.Last(); a != nil && a.Idle != nil && a.Idle.Stage == cluster.IdleEnded {
		return cluster.Reason{Code: cluster.ReasonIdle, Detail: "ended by its partition's policy: its GPUs stood idle"}
	}
	if j.Cancel != nil && j.Cancel.Admin {
		return cluster.Reason{Code: cluster.ReasonByAdmin}
	}
	return cluster.Reason{Code: cluster.ReasonByUser}
}
