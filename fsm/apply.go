package fsm

import (
	"bytes"
	"crypto/sha256"
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
	maxWeights   = 256 << 10
	maxSamples   = 4096
	perSignature = 64
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
		r = Result{Plan: s.applyPlan(index, &p)}
	case *logv1.Command_ReportAttempt:
		r = s.report(index, k.ReportAttempt)
	case *logv1.Command_RegisterNode:
		r = s.register(index, conv.NodeFromLog(k.RegisterNode.GetNode()))
	case *logv1.Command_SetNodeState:
		r = s.setNodeState(index, k.SetNodeState)
	case *logv1.Command_DrainNode:
		r = s.drain(index, k.DrainNode)
	case *logv1.Command_RemoveNode:
		r = s.removeNode(k.RemoveNode)
	case *logv1.Command_CreateToken:
		r = s.createToken(k.CreateToken.GetToken())
	case *logv1.Command_UseToken:
		r = s.useToken(k.UseToken)
	case *logv1.Command_DenyIdentity:
		r = s.deny(k.DenyIdentity)
	case *logv1.Command_PublishWeights:
		r = s.publish(k.PublishWeights)
	case *logv1.Command_Checkpoint:
		r = Result{} // compared by the FSM, which keeps the hashes
	case *logv1.Command_InitCluster:
		r = s.initCluster(k.InitCluster)
	}
	r.Index = index
	return r
}

func refuse(c cluster.Code, format string, args ...any) Result {
	return Result{Err: cluster.Errorf(c, format, args...)}
}

func keyOf(uid uint32, id string) requestKey {
	h := sha256.New()
	h.Write(strconv.AppendUint(nil, uint64(uid), 10))
	h.Write([]byte{0})
	h.Write([]byte(id))
	var k requestKey
	copy(k[:], h.Sum(nil))
	return k
}

// submit adds jobs, all or none. The same request gets the same answer again.
func (s *State) submit(index uint64, c *logv1.SubmitJob) Result {
	s.expireRequests()
	owner := conv.OwnerFromLog(c.Owner)
	key := keyOf(uint32(owner.UID), c.RequestId)
	if old, ok := s.requests[key]; ok {
		if !bytes.Equal(old.bodyHash[:], cut(c.BodyHash)) {
			return refuse(cluster.CodeAlreadyExists, "request id %q was used for another request; make a new one", c.RequestId)
		}
		return Result{Jobs: old.jobs, Existing: true}
	}
	first := cluster.JobID(c.FirstJob)
	if first < s.nextJob || len(c.Jobs) == 0 {
		return refuse(cluster.CodeConflict, "job id %d was given before; submit again", first)
	}
	req := request{at: s.now}
	copy(req.bodyHash[:], c.BodyHash)
	for i, nj := range c.Jobs {
		j := &cluster.Job{
			ID: first + cluster.JobID(i), Revision: index, Owner: owner, Spec: conv.SpecFromLog(nj.Spec), State: cluster.JobPending,
			Reason: cluster.Reason{Code: cluster.ReasonUnconfirmed}, Estimates: conv.EstimatesFromLog(nj.Estimates),
			Submitted: s.now, Eligible: s.now,
		}
		s.putJob(nil, j)
		s.changes = append(s.changes, Change{Job: j.ID, New: true})
		req.jobs = append(req.jobs, j.ID)
	}
	s.nextJob = first + cluster.JobID(len(c.Jobs))
	s.requests[key] = req
	s.reqOrder = append(s.reqOrder, key)
	s.hash.touch(kindRequest, string(key[:]))
	return Result{Jobs: req.jobs}
}

func cut(b []byte) []byte {
	var h [16]byte
	copy(h[:], b)
	return h[:]
}

func (s *State) expireRequests() {
	n := 0
	for n < len(s.reqOrder) && (s.now.Sub(s.requests[s.reqOrder[n]].at) > requestLife || len(s.reqOrder)-n > maxRequests) {
		k := s.reqOrder[n]
		delete(s.requests, k)
		s.hash.touch(kindRequest, string(k[:]))
		n++
	}
	s.reqOrder = s.reqOrder[n:]
}

// cancel ends a waiting job at once, and asks the agent to end a live one.
func (s *State) cancel(index uint64, c *logv1.CancelJob) Result {
	old, ok := s.jobs[cluster.JobID(c.Job)]
	if !ok {
		return Result{Cancel: NotFound}
	}
	if old.State.Terminal() {
		return Result{Cancel: Finished}
	}
	j := old.Clone()
	if j.Cancel == nil {
		j.Cancel = &cluster.CancelRequest{At: s.now, By: cluster.UID(c.By), Admin: c.Admin}
	}
	if j.State.Waiting() {
		s.unqueue(j)
		j.State, j.Ended, j.Reason = cluster.JobCancelled, s.now, cancelReason(j)
	}
	j.Revision = index
	s.putJob(old, j)
	s.changes = append(s.changes, Change{Job: j.ID})
	return Result{Cancel: Cancelled}
}

func cancelReason(j *cluster.Job) cluster.Reason {
	if j.Cancel != nil && j.Cancel.Admin {
		return cluster.Reason{Code: cluster.ReasonByAdmin}
	}
	return cluster.Reason{Code: cluster.ReasonByUser}
}
