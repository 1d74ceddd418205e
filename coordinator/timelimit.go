package coordinator

import (
	"context"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/fsm"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

// updateTasks changes the time limit of an array, or of some of its tasks: nothing
// else of them can be changed, since they are all alike.
func (s *jobServer) updateTasks(ctx context.Context, who caller, req *apiv1.UpdateJobRequest) (*apiv1.UpdateJobResponse, error) {
	rest := proto.CloneOf(req)
	rest.Id, rest.Tasks, rest.TimeLimit = 0, "", nil
	if req.TimeLimit == nil || proto.Size(rest) > 0 {
		return nil, cluster.Errorf(cluster.CodeConflict, "job %d is an array, whose tasks are all alike: their time limit, and how many run at once, can be changed, the rest not; cancel it and submit another", req.Id)
	}
	cmd, ranks, err := s.changeCommand(who, taskWish{id: req.Id, array: true, tasks: req.Tasks})
	if err != nil {
		return nil, err
	}
	limit := req.TimeLimit.AsDuration()
	cmd.Change, cmd.TimeLimitUs, cmd.Admin = logv1.TaskChange_TASK_CHANGE_TIME_LIMIT, limit.Microseconds(), who.admin
	live, _ := s.c.fsm.Jobs(fsm.Query{States: liveStates, Keep: func(j *cluster.Job) bool {
		return uint64(j.ArrayJobID) == req.Id && cluster.SpanHas(ranks, j.Rank())
	}})
	for _, j := range live {
		if err := s.c.mayRunLonger(j, limit); err != nil {
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
	s.c.log.InfoContext(ctx, "time limit of tasks changed", "job", req.Id, "uid", who.uid)
	after, err := s.c.named(req.Id, nil)
	if err != nil {
		return nil, err
	}
	return &apiv1.UpdateJobResponse{Job: s.c.view(after, who, full)}, nil
}

var liveStates = []cluster.JobState{cluster.JobStarting, cluster.JobRunning, cluster.JobCompleting, cluster.JobUnreachable}

// mayRunLonger refuses a time limit by which a job that runs would go on into a
// reservation of others on what it holds: that was promised to be free then.
func (c *Coordinator) mayRunLonger(j *cluster.Job, limit time.Duration) error {
	a := j.Live()
	if a == nil || !fsm.LongerLimit(limit, j.Spec.TimeLimit) {
		return nil
	}
	now := cluster.TimeOf(c.cfg.Clock())
	began := a.Started
	if began == 0 {
		began = now
	}
	probe := j.Clone()
	spec := *j.Spec
	spec.TimeLimit, probe.Spec = limit, &spec
	end := probe.LatestEnd(began)
	for _, r := range c.fsm.Reservations() {
		for _, b := range a.Berths() {
			at, bars := r.Bars(j, b.Node, "", now, end)
			for i := 0; i < len(b.GPUs) && !bars; i++ {
				at, bars = r.Bars(j, b.Node, b.GPUs[i].GPU, now, end)
			}
			if bars {
				return cluster.Errorf(cluster.CodeConflict, "time: job %s would run into the reservation %s, which begins on %s at %s; give it at most %s, or change the reservation first",
					j.Label(), r.Name, b.Node, at.Std().Format(time.RFC3339), max(0, at.Sub(began)).Truncate(time.Second))
			}
		}
	}
	return nil
}
