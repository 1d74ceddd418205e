package fsm

import (
	"crypto/sha256"
	"fmt"
	"strconv"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

const (
	requestLife  = 10 * time.Minute
	maxRequests  = 1_000_000
	defaultKeep  = 20_000
	maxSamples   = 4096
	lastJobID    = 1 << 62 // ids never wrap
	perSignature = 64
	perUser      = maxSamples / 4
	maxAttempts  = 100
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
	case *logv1.Command_DrainNode:
		r = s.drain(index, k.DrainNode)
	case *logv1.Command_SetSharing:
		r = s.setSharing(k.SetSharing)
	case *logv1.Command_DrainGpu:
		r = s.drainGPU(index, k.DrainGpu)
	case *logv1.Command_RemoveNode:
		r = s.removeNode(index, k.RemoveNode)
	case *logv1.Command_CreateToken:
		r = s.createToken(k.CreateToken.GetToken())
	case *logv1.Command_UseToken:
		r = s.useToken(k.UseToken)
	case *logv1.Command_DenyIdentity:
		r = s.deny(k.DenyIdentity)
	case *logv1.Command_PublishWeights:
		r = s.publish(k.PublishWeights)
	case *logv1.Command_InstallWeights:
		r = s.install(k.InstallWeights)
	case *logv1.Command_RollbackWeights:
		r = s.rollback(k.RollbackWeights)
	case *logv1.Command_PinWeights:
		r = s.pinWeights(k.PinWeights)
	case *logv1.Command_ImportRuns:
		r = s.importRuns(k.ImportRuns)
	case *logv1.Command_InstallInterference:
		r = s.installInterference(k.InstallInterference)
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
		r = s.setStanding(index, k.SetStanding)
	case *logv1.Command_SetReservation:
		r = s.setReservation(index, k.SetReservation)
	case *logv1.Command_RemoveReservation:
		r = s.removeReservation(k.RemoveReservation)
	case *logv1.Command_AddWebhook, *logv1.Command_RemoveWebhook, *logv1.Command_SettleNotices, *logv1.Command_MarkAttempt, *logv1.Command_IdleAttempt:
		r = s.applyTelling(index, cmd)
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

// applyToJobs applies what users make of jobs that are there, beside cancels.
func (s *State) applyToJobs(index uint64, cmd *logv1.Command) (r Result) {
	switch k := cmd.Kind.(type) {
	case *logv1.Command_HoldJob:
		r = s.hold(index, k.HoldJob)
	case *logv1.Command_RequeueJob:
		r = s.requeue(index, k.RequeueJob)
	case *logv1.Command_ChangeTasks:
		r = s.changeTasks(index, k.ChangeTasks)
	case *logv1.Command_UpdateJob:
		r = s.updateJob(index, k.UpdateJob)
	default:
		// To go on would be to store something else than those who know it.
		panic(fmt.Sprintf("fsm: entry %d: a command of a kind that this berth does not know: %T", index, cmd.Kind))
	}
	return r
}

func refuse(c cluster.Code, format string, args ...any) Result {
	return Result{Err: cluster.Errorf(c, format, args...)}
}

// keyOf keeps users' request ids apart, whatever they hold.
func keyOf(uid cluster.UID, id string) requestKey {
	buf := strconv.AppendUint(nil, uint64(uid), 10)
	sum := sha256.Sum256(append(append(buf, 0), id...))
	return requestKey(sum[:16])
}

// submit adds jobs, all or none. The same request gets the same answer again.
// Whether the spec may run is the leader's to check: a rule that changes from
// version to version must not decide what replicas store.
func (s *State) submit(index uint64, c *logv1.SubmitJob) Result {
	if s.rules < changeVersion {
		s.expireRequests() // from then on a refusal changes nothing, and forgets nothing
	}
	owner := conv.OwnerFromLog(c.Owner)
	if c.RequestId == "" || len(c.BodyHash) < len(request{}.bodyHash) {
		return refuse(cluster.CodeInvalid, "request id: is missing, or the hash of the request has %d bytes", len(c.BodyHash))
	}
	req := &request{
		key: keyOf(owner.UID, c.RequestId), bodyHash: [16]byte(c.BodyHash), first: cluster.JobID(c.FirstJob), count: len(c.Jobs), at: s.now,
	}
	if old, ok := s.requests[req.key]; ok && s.now.Sub(old.at) <= requestLife {
		if old.bodyHash != req.bodyHash {
			return refuse(cluster.CodeAlreadyExists, "request id %q was used for another request; make a new one", c.RequestId)
		}
		return Result{Jobs: old.jobs(), Existing: true}
	}
	if req.first < s.nextJob || req.first > lastJobID {
		return refuse(cluster.CodeConflict, "job id %d was given before; submit again", req.first)
	}
	if len(c.Jobs) == 0 {
		return refuse(cluster.CodeInvalid, "jobs: there are none in the request")
	}
	jobs := make([]*cluster.Job, len(c.Jobs))
	next := req.first
	s.begun = map[cluster.JobID]cluster.Time{}
	defer func() { s.begun = nil }()
	for i, nj := range c.Jobs {
		spec, err := conv.SpecFromLog(nj.Spec)
		if err != nil {
			return refuse(cluster.CodeInvalid, "job %d of the request: %v", i, err)
		}
		if err := s.noPartition(spec); err != nil {
			return Result{Err: err}
		}
		jobs[i] = &cluster.Job{
			ID: next, Revision: index, Owner: owner, Spec: spec, State: cluster.JobPending,
			Reason: s.waitsFor(spec), Estimates: conv.EstimatesFromLog(nj.Estimates),
			Submitted: s.now, Eligible: s.now,
		}
		if err := s.bar(jobs[i]); err != nil {
			return Result{Err: err}
		}
		next += cluster.JobID(spec.Len())
	}
	if err := s.maySubmit(jobs); err != nil {
		return Result{Err: err}
	}
	req.listIDs(jobs)
	s.putNew(jobs)
	s.nextJob = next
	s.addRequest(req)
	return Result{Jobs: req.jobs()}
}

// putNew stores the jobs of a submit that is not refused.
func (s *State) putNew(jobs []*cluster.Job) {
	s.expireRequests()
	for _, j := range jobs {
		s.cache.job(j)
		if j.Spec.Array != nil {
			j = s.newTasks(j)
		}
		s.putJob(nil, j)
		s.changed(Change{Job: j.ID, New: true})
	}
}

func (s *State) addRequest(r *request) {
	s.requests[r.key] = r
	s.reqOrder = append(s.reqOrder, r)
	s.hash.requests.touch(r.key)
}

// expireRequests forgets the answers that are too old, and the oldest when
// there are too many for one more.
func (s *State) expireRequests() {
	n := 0
	for n < len(s.reqOrder) && (s.now.Sub(s.reqOrder[n].at) > requestLife || len(s.reqOrder)-n >= maxRequests) {
		delete(s.requests, s.reqOrder[n].key)
		s.hash.requests.touch(s.reqOrder[n].key)
		s.reqOrder[n] = nil
		n++
	}
	s.reqOrder = s.reqOrder[n:]
}

// cancel ends a waiting job at once, and asks the agent to end a live one.
func (s *State) cancel(index uint64, c *logv1.CancelJob) Result {
	old := s.job(cluster.JobID(c.Job))
	if old != nil && !old.State.Terminal() {
		old = s.own(old.ID)
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
	j.Cancel = &cluster.CancelRequest{At: s.now, By: by, Admin: admin}
	j.Revision = index
	if j.State.Waiting() {
		s.unqueue(j)
		j.Hold = nil
		j.State, j.Ended, j.Reason = cluster.JobCancelled, s.now, cancelReason(j)
	}
	s.putJob(old, j)
	s.changed(Change{Job: j.ID})
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
