package jobs

import (
	"context"

	"google.golang.org/protobuf/proto"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/coordinator/api/authorize"
	"github.com/berth-scheduler/berth/fsm"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

// updateTasks changes the time limit of an array, or of some of its tasks: nothing
// else about them can change, since they are all alike.
func (s *jobServer) updateTasks(ctx context.Context, who authorize.Caller, req *apiv1.UpdateJobRequest) (*apiv1.UpdateJobResponse, error) {
	rest := proto.CloneOf(req)
	rest.Id, rest.Tasks, rest.TimeLimit = 0, "", nil
	if req.TimeLimit == nil || proto.Size(rest) > 0 {
		return nil, cluster.Errorf(cluster.CodeConflict, "job %d is an array with identical tasks: only their time limit and how many run at once can be changed; for more, cancel it and submit another", req.Id)
	}
	cmd, ranks, err := s.changeCommand(who, taskWish{id: req.Id, array: true, tasks: req.Tasks})
	if err != nil {
		return nil, err
	}
	limit := req.TimeLimit.AsDuration()
	cmd.Change, cmd.TimeLimitUs, cmd.Admin = logv1.TaskChange_TASK_CHANGE_TIME_LIMIT, limit.Microseconds(), who.Admin
	live, _ := s.c.fsm.Jobs(fsm.Query{States: liveStates, Keep: func(j *cluster.Job) bool {
		return uint64(j.ArrayJobID) == req.Id && cluster.SpanHas(ranks, j.Rank())
	}})
	for _, j := range live {
		if err := s.c.admission.MayRunLonger(j, limit); err != nil {
			return nil, err
		}
	}
	r, err := s.c.prop.One(ctx, &logv1.Command{Kind: &logv1.Command_ChangeTasks{ChangeTasks: cmd}})
	switch {
	case err != nil:
		return nil, err
	case r.Tasks.Refused > 0 && r.Tasks.Why != nil:
		return nil, r.Tasks.Why
	case r.Tasks.Done == 0:
		return nil, cluster.Errorf(cluster.CodeConflict, "all of these tasks of array %d have ended", req.Id)
	}
	s.c.log.InfoContext(ctx, "time limit of tasks changed", "job", req.Id, "uid", who.UID)
	after, err := s.c.named(req.Id, nil)
	if err != nil {
		return nil, err
	}
	return &apiv1.UpdateJobResponse{Job: s.c.view(after, who, full)}, nil
}

var liveStates = []cluster.JobState{cluster.JobStarting, cluster.JobRunning, cluster.JobCompleting, cluster.JobUnreachable}
