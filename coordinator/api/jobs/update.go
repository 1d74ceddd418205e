package jobs

import (
	"context"

	"google.golang.org/protobuf/proto"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/coordinator/api/admission"
	"github.com/berth-scheduler/berth/coordinator/api/authorize"
	"github.com/berth-scheduler/berth/coordinator/api/resource"
	"github.com/berth-scheduler/berth/fsm"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	"github.com/berth-scheduler/berth/proto/conv"
	"github.com/berth-scheduler/berth/proto/conv/apiconv"
)

// UpdateJob changes what a job asked for: anything of a waiting job, the time
// limit, name, comment and requeueing of a running one, the time limit of an array.
func (s *jobServer) UpdateJob(ctx context.Context, req *apiv1.UpdateJobRequest) (*apiv1.UpdateJobResponse, error) {
	who := authorize.CallerOf(ctx)
	if err := s.c.office.Verify(ctx); err != nil {
		return nil, err
	}
	if _, array := s.c.fsm.Array(cluster.JobID(req.Id)); array || req.Tasks != "" {
		return s.updateTasks(ctx, who, req)
	}
	if j, ok := s.c.fsm.Job(cluster.JobID(req.Id)); ok && j.InArray() {
		req = proto.CloneOf(req)
		req.Id, req.Tasks = uint64(j.ArrayJobID), j.TasksText()
		return s.updateTasks(ctx, who, req)
	}
	if j, ok := s.c.fsm.Job(cluster.JobID(req.Id)); ok && j.Spec.Deadline > 0 {
		done, err := s.c.admission.Promising(ctx)
		if err != nil {
			return nil, err
		}
		defer done()
	}
	resp := &apiv1.UpdateJobResponse{}
	if err := resource.Set(ctx, s.c.prop, func() (*logv1.Command, error) {
		j, ok := s.c.fsm.Job(cluster.JobID(req.Id))
		if !ok {
			return nil, noJob(req.Id)
		}
		if err := s.c.auth.May(who, authorize.Cancel, &j.Owner); err != nil {
			return nil, err
		}
		spec, err := s.updated(who, j, req, resp)
		if err != nil {
			return nil, err
		}
		if len(j.Depends) > 0 && len(spec.Depends) == 0 {
			// Older coordinators keep what it waited for, and then cannot read
			// their snapshots.
			if err := s.c.prop.Reads(fsm.ClearsDepends, "dependency: none where there was one"); err != nil {
				return nil, err
			}
		}
		cmd := &logv1.UpdateJob{Job: req.Id, Spec: s.c.admission.Stored(spec), Base: j.Revision}
		return &logv1.Command{Kind: &logv1.Command_UpdateJob{UpdateJob: cmd}}, nil // the planner or the job itself may be faster
	}); err != nil {
		return nil, err
	}
	s.c.log.InfoContext(ctx, "job changed", "job", req.Id, "uid", who.UID)
	after, ok := s.c.fsm.Job(cluster.JobID(req.Id))
	if !ok {
		return nil, noJob(req.Id)
	}
	resp.Job = s.c.view(after, who, full)
	return resp, nil
}

// updated returns the spec of a job as a request changes it, checked like that of a
// new job, and what there is to say about that in resp.
func (s *jobServer) updated(who authorize.Caller, j *cluster.Job, req *apiv1.UpdateJobRequest, resp *apiv1.UpdateJobResponse) (*cluster.Spec, error) {
	if j.State.Terminal() {
		return nil, cluster.Errorf(cluster.CodeConflict, "job %d has ended as %s and cannot be changed", j.ID, j.State)
	}
	spec := *j.Spec
	if err := change(&spec, req); err != nil {
		return nil, err
	}
	if err := changeWhere(&spec, req); err != nil {
		return nil, err
	}
	if err := mayRaise(who, j, &spec); err != nil {
		return nil, err
	}
	if !j.State.Waiting() {
		if err := s.c.admission.MayRunLonger(j, spec.TimeLimit); err != nil {
			return nil, err
		}
		return &spec, mayChangeLive(j, &spec)
	}
	if err := spec.Check(); err != nil {
		return nil, err
	}
	probe := j.Clone()
	probe.Spec = &spec
	as := authorize.Caller{UID: j.Owner.UID, GID: j.Owner.GID, Name: j.Owner.Name, Admin: who.Admin}
	part, warnings, err := s.c.admission.EnterFor(as, probe, s.c.fsm.Partitions())
	resp.Warnings, resp.Promises = warnings, nil
	switch {
	case err != nil && who.Admin && spec.TimeLimit != j.Spec.TimeLimit && spec.Partition == j.Spec.Partition:
		// An administrator may raise a limit above the partition's.
	case err != nil:
		return nil, err
	}
	if spec.Deadline > 0 && asksForMore(j.Spec, &spec) {
		if resp.Promises, err = s.c.admission.Promise([]*cluster.Job{probe}, cluster.TimeOf(s.c.clock())); err != nil {
			return nil, err
		}
	}
	return &spec, s.c.admission.NeverFits(s.c.fsm.Nodes(), part, probe)
}

// asksForMore reports whether a changed job may need other places than before, or
// them for longer, so that its deadline has to be promised anew.
func asksForMore(old, spec *cluster.Spec) bool {
	was := *old
	was.Name, was.Comment, was.RequeueOnLoss, was.Nice, was.Retry, was.Account, was.QOS = spec.Name, spec.Comment, spec.RequeueOnLoss, spec.Nice, spec.Retry, spec.Account, spec.QOS
	if !cluster.LongerLimit(spec.TimeLimit, old.TimeLimit) {
		was.TimeLimit = spec.TimeLimit
	}
	return !proto.Equal(conv.SpecNaming(&was), conv.SpecNaming(spec))
}

// mayRaise denies users what only administrators may change.
func mayRaise(who authorize.Caller, j *cluster.Job, spec *cluster.Spec) error {
	switch {
	case who.Admin:
	case cluster.LongerLimit(spec.TimeLimit, j.Spec.TimeLimit):
		return cluster.Errorf(cluster.CodeDenied, "time: only administrators may raise a submitted job's time limit, here from %s; lower it, or cancel the job and submit it again", cluster.LimitText(j.Spec.TimeLimit))
	case spec.Nice < j.Spec.Nice:
		return cluster.Errorf(cluster.CodeDenied, "nice: only administrators may lower it, here from %d; raise it, or cancel the job and submit it again", j.Spec.Nice)
	}
	return nil
}

// mayChangeLive refuses to change what a running job was placed by, or what its
// agents were told at its start.
func mayChangeLive(j *cluster.Job, spec *cluster.Spec) error {
	was := *j.Spec
	was.Name, was.Comment, was.RequeueOnLoss, was.Nice, was.TimeLimit, was.Retry = spec.Name, spec.Comment, spec.RequeueOnLoss, spec.Nice, spec.TimeLimit, spec.Retry
	if !proto.Equal(conv.SpecNaming(&was), conv.SpecNaming(spec)) {
		return cluster.Errorf(cluster.CodeConflict, "job %d is %s: only its time limit, name, comment, nice, requeueing and retries can be changed now; the rest once it is queued again", j.ID, j.State)
	}
	return spec.Check()
}

// change applies the plain fields of a request.
func change(spec *cluster.Spec, req *apiv1.UpdateJobRequest) error {
	if req.TimeLimit != nil {
		spec.TimeLimit = req.TimeLimit.AsDuration()
	}
	set(&spec.Name, req.Name)
	set(&spec.Comment, req.Comment)
	set(&spec.Partition, req.Partition)
	set(&spec.Account, req.Account)
	set(&spec.QOS, req.Qos)
	set(&spec.Nice, req.Nice)
	set(&spec.RequeueOnLoss, req.RequeueOnLoss)
	set(&spec.CPUMilli, req.CpuMilli)
	set(&spec.MemMiB, req.MemMib)
	if req.Retries != nil {
		spec.Retry.Times = int(min(req.GetRetries(), cluster.MaxRetries+1))
	}
	set(&spec.Retry.On, req.RetryOn)
	if spec.Retry.Times == 0 && req.RetryOn == nil {
		spec.Retry.On = ""
	}
	if req.Nodes != nil {
		spec.Nodes, spec.NodeRange = int(min(req.GetNodes(), cluster.MaxNodes+1)), cluster.NodeRange{}
	}
	if req.Gpus != nil {
		spec.GPUs, spec.GPURange = int(min(req.GetGpus(), cluster.MaxGPUsPerJob+1)), cluster.GPURange{}
	}
	if !spec.Elastic() {
		spec.BatchScaling, spec.InPlace = "", false // it has several sizes
	}
	switch {
	case req.BeginNow:
		spec.Begin = 0
	case req.Begin != nil:
		spec.Begin = cluster.TimeOf(req.Begin.AsTime())
	}
	if req.Deadline != nil {
		return cluster.Errorf(cluster.CodeInvalid, "deadline: promised when the job was submitted and cannot be changed; cancel the job and submit it again")
	}
	if err := spec.Power.Set(req.PowerCap, req.GpuFreq); err != nil {
		return err
	}
	if req.SetDepends {
		spec.Depends, spec.DependAny = apiconv.DependsFromAPI(req.Depends), req.DependAny
	}
	return nil
}

func set[T any](to, v *T) {
	if v != nil {
		*to = *v
	}
}

// changeWhere applies what a request says of nodes and reservations.
func changeWhere(spec *cluster.Spec, req *apiv1.UpdateJobRequest) error {
	if req.Features == nil && req.NodeList == nil && req.Exclude == nil && req.Reservation == nil {
		return nil
	}
	var now cluster.Where
	if spec.Where != nil {
		now = *spec.Where
	}
	nodes, exclude, features, inside := now.Nodes.String(), now.Exclude.String(), now.Features.String(), now.Reservation
	if nodes == "" && req.NodeList != nil {
		nodes = string(spec.Node)
	}
	set(&nodes, req.NodeList)
	set(&exclude, req.Exclude)
	set(&features, req.Features)
	set(&inside, req.Reservation)
	w, err := cluster.WhereOf(nodes, exclude, features, now.Whole, inside, now.Switches.String())
	if err != nil {
		return err
	}
	spec.Where = w
	if req.NodeList == nil {
		return nil
	}
	spec.Node = ""
	if n := len(admission.NamedNodes(spec)); n > spec.NodeCount() {
		spec.Nodes = n
	}
	return nil
}
