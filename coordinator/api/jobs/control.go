package jobs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/coordinator/api/authorize"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

// faults are the names, in answers, of why a job was left unchanged.
var faults = map[cluster.Code]string{cluster.CodeNotFound: "NOT_FOUND", cluster.CodeDenied: "DENIED", cluster.CodeConflict: "CONFLICT"}

// ControlJobs holds, releases and requeues jobs, each with its own outcome.
func (s *jobServer) ControlJobs(ctx context.Context, req *apiv1.ControlJobsRequest) (*apiv1.ControlJobsResponse, error) {
	who := authorize.CallerOf(ctx)
	if n := len(req.Ids) + len(req.Tasks); n < 1 || n > maxJobsPerCall {
		return nil, cluster.Errorf(cluster.CodeInvalid, "ids: %d in one request, 1 to %d are allowed", n, maxJobsPerCall)
	}
	if req.Action < apiv1.JobAction_JOB_ACTION_HOLD || req.Action > apiv1.JobAction_JOB_ACTION_REQUEUE_HOLD && req.Action != apiv1.JobAction_JOB_ACTION_THROTTLE {
		return nil, cluster.Errorf(cluster.CodeInvalid, "action: %d is not one that this coordinator knows", req.Action)
	}
	resp := &apiv1.ControlJobsResponse{}
	var a asked
	var at []*apiv1.ControlResult // of a.want
	for _, w := range s.wishes(req.Ids, req.Tasks) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		res := &apiv1.ControlResult{Id: w.id, Tasks: w.tasks}
		resp.Results = append(resp.Results, res)
		cmd, ranks, err := s.controlWish(who, req, w)
		if err != nil {
			blame(res, err)
			continue
		}
		if c := cmd.GetChangeTasks(); c != nil {
			a.addTasks(c, ranks)
		} else {
			a.add(cmd)
		}
		at = append(at, res)
	}
	if len(a.cmds) == 0 {
		return resp, s.c.office.Verify(ctx)
	}
	a.merge(s.tasksOf)
	results, err := s.c.prop.Each(ctx, a.cmds...)
	if err != nil {
		return nil, err
	}
	throttle := req.Action == apiv1.JobAction_JOB_ACTION_THROTTLE
	for i := range a.want {
		w := &a.want[i]
		r := results[w.cmd]
		if !throttle { // which concerns the array as a whole
			r.Tasks = w.counts(&r)
		}
		tellTasks(at[i], a.cmds[w.cmd], &r)
		if w.ranks != nil || r.Err != nil || req.Action != apiv1.JobAction_JOB_ACTION_HOLD {
			continue
		}
		if j, ok := s.c.fsm.Job(cluster.JobID(at[i].Id)); ok && j.Hold != nil && j.State.Live() {
			at[i].Message = "it keeps running, and is held once it is queued again"
		}
	}
	return resp, nil
}

// controlCommand returns the log command for an action on a job. What an
// administrator holds only an administrator releases, unless its owner was allowed
// to.
func controlCommand(who authorize.Caller, req *apiv1.ControlJobsRequest, id uint64) *logv1.Command {
	by, admin := uint32(who.UID), who.Admin && !req.AsUser
	switch req.Action {
	case apiv1.JobAction_JOB_ACTION_REQUEUE, apiv1.JobAction_JOB_ACTION_REQUEUE_HOLD:
		return &logv1.Command{Kind: &logv1.Command_RequeueJob{RequeueJob: &logv1.RequeueJob{
			Job: id, By: by, Admin: admin, Hold: req.Action == apiv1.JobAction_JOB_ACTION_REQUEUE_HOLD,
		}}}
	default:
		release := req.Action == apiv1.JobAction_JOB_ACTION_RELEASE
		return &logv1.Command{Kind: &logv1.Command_HoldJob{HoldJob: &logv1.HoldJob{Job: id, By: by, Admin: admin || release && who.Admin, Release: release}}}
	}
}

func blame(r *apiv1.ControlResult, err error) {
	r.Fault, r.Message = "CONFLICT", err.Error()
	if e, ok := errors.AsType[*cluster.Error](err); ok {
		r.Message = e.Msg
		if f, ok := faults[e.Code]; ok {
			r.Fault = f
		}
	}
}

// holder names the user who holds a job. The names of users without a job there are
// not known.
func holder(j *cluster.Job) string {
	switch j.Hold.By {
	case j.Owner.UID:
		return j.Owner.Name
	case 0:
		return "root"
	}
	return fmt.Sprintf("uid %d", j.Hold.By)
}

// barredDetail says in words what keeps a job from being planned.
func (c *Jobs) barredDetail(j *cluster.Job, r cluster.Reason) string {
	switch r.Code {
	case cluster.ReasonArrayLimit:
		return c.throttleDetail(j)
	case cluster.ReasonStandby:
		return fmt.Sprintf("service %s has all the replicas it should have; berth service scale %s allows more", j.Spec.Service.Name, j.Spec.Service.Name)
	case cluster.ReasonHeldUser:
		return fmt.Sprintf("held by %s; berth release %s lets it start", holder(j), j.Label())
	case cluster.ReasonHeldAdmin:
		return fmt.Sprintf("held by an administrator (%s); only administrators release it", holder(j))
	case cluster.ReasonBeginTime:
		if why := c.lead.Cheaper(j, cluster.TimeOf(c.clock())); why != "" {
			return why
		}
		return "not before " + max(j.Spec.Begin, j.DependAt).Std().UTC().Format(time.RFC3339)
	case cluster.ReasonDependency:
		return "waits for " + j.Dependency()
	case cluster.ReasonDependNever:
		return j.Dependency() + ": this can never be met; cancel the job"
	}
	return r.Detail
}
