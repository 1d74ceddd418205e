package jobcmd

import (
	"context"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// Signed cuts the sign off a relative time limit such as +30 or -10; sign is
// 0 for an absolute one.
func Signed(v string) (sign int, rest string) {
	if rest, ok := strings.CutPrefix(v, "+"); ok {
		return 1, rest
	}
	if rest, ok := strings.CutPrefix(v, "-"); ok {
		return -1, rest
	}
	return 0, v
}

// UpdateRequests returns the requests that change the job, array or tasks
// named by req. With a sign its time limit is relative to theirs: the
// resulting limit is computed first, so that repeating the change after a
// lost answer is safe.
func UpdateRequests(ctx context.Context, c *client.Client, req *apiv1.UpdateJobRequest, sign int) ([]*apiv1.UpdateJobRequest, error) {
	if sign == 0 || req.TimeLimit == nil {
		return []*apiv1.UpdateJobRequest{req}, nil
	}
	by := time.Duration(sign) * req.TimeLimit.AsDuration()
	jobs, err := client.ListJobs(ctx, c, &apiv1.ListJobsRequest{Ids: []uint64{req.Id}, Finished: true})
	if err != nil {
		return nil, err
	}
	if err := (client.JobRefs{{ID: req.Id}}).Missing(jobs); err != nil {
		return nil, err
	}
	var out []*apiv1.UpdateJobRequest
	for _, j := range jobs {
		tasks, err := tasksOf(req, j)
		if err != nil {
			return nil, err
		}
		if console.Terminal(j.GetState()) || j.GetArrayJobId() != 0 && tasks == "" {
			continue
		}
		now := j.GetSpec().GetTimeLimit().AsDuration()
		switch {
		case now == 0:
			return nil, cluster.Errorf(cluster.CodeConflict, "job %s has no time limit to change by %s; set one, such as --time 2h", client.JobLabel(j), by)
		case now+by < time.Second:
			return nil, cluster.Errorf(cluster.CodeInvalid, "job %s has a time limit of %s, which cannot change by %s; to end the job: berth cancel %[1]s", client.JobLabel(j), now, by)
		}
		one := proto.CloneOf(req)
		one.Tasks, one.TimeLimit = tasks, durationpb.New(now+by)
		if n := len(out); n > 0 && out[n-1].TimeLimit.AsDuration() == now+by && tasks != "" {
			out[n-1].Tasks += "," + tasks
			continue
		}
		out = append(out, one)
	}
	if len(out) == 0 {
		return nil, cluster.Errorf(cluster.CodeConflict, "job %s has ended and cannot be changed", console.JobOrTasks(req.Id, req.Tasks))
	}
	return out, nil
}

// tasksOf returns those of the tasks that j stands for which req names, ""
// for none and for a job that is no task.
func tasksOf(req *apiv1.UpdateJobRequest, j *apiv1.Job) (string, error) {
	if j.GetArrayJobId() == 0 {
		return "", nil
	}
	text := j.GetArrayTasks()
	if j.GetArrayCount() < 2 {
		_, text, _ = strings.Cut(client.JobLabel(j), "_")
	}
	has, err := cluster.ParseTasks(text)
	if err != nil || req.Tasks == "" && j.GetArrayJobId() == req.Id {
		return text, err
	}
	some, err := cluster.ParseTasks(req.Tasks)
	if err != nil {
		return "", err
	}
	return has.Format(has.In(&some)), nil
}
