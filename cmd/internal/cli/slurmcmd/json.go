package slurmcmd

import (
	"context"
	"slices"

	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/cli/view"
	"github.com/berth-scheduler/berth/cmd/internal/slurm"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// jsonJobs and jsonNodes are what --json prints: the objects under the keys that
// Slurm has them under, and Berth's own fields in them.
type jsonJobs struct {
	Jobs []view.JobView `json:"jobs"`
}

func printJobsJSON(e *console.Env, jobs []*apiv1.Job) error {
	out := jsonJobs{Jobs: []view.JobView{}}
	for _, j := range jobs {
		out.Jobs = append(out.Jobs, view.Job(j))
	}
	_, err := console.PrintList(e, console.FormatJSON, out)
	return err
}

func printNodesJSON(e *console.Env, nodes []*apiv1.Node) error {
	_, err := console.PrintList(e, console.FormatJSON, map[string]any{"nodes": view.Nodes(nodes)})
	return err
}

// squeueJSON is squeue --json: the jobs that the other options choose, in the
// order of their ids.
func squeueJSON(ctx context.Context, e *console.Env, c *client.Client, q *slurm.Squeue, tasks []console.TaskRef) error {
	if err := knownStates(q); err != nil {
		return err
	}
	got, err := client.ListJobs(ctx, c, squeueRequest(q, tasks))
	if err != nil {
		return err
	}
	if len(q.Jobs)+len(tasks) == 1 && len(got) == 0 {
		return errSlurmJob
	}
	if got, err = chosenTasks(e, got, q.Jobs, tasks); err != nil {
		return err
	}
	v := viewFrom(e)
	return printJobsJSON(e, slices.DeleteFunc(got, func(j *apiv1.Job) bool {
		s := slurmJob(v, j)
		return !q.Wants(&s)
	}))
}

// chosenTasks leaves of arrays what onlyTasks does; several tasks that wait as
// one job stay together.
func chosenTasks(e *console.Env, jobs []*apiv1.Job, ids []uint64, refs []console.TaskRef) ([]*apiv1.Job, error) {
	var out []*apiv1.Job
	v := viewFrom(e)
	for _, j := range jobs {
		left, err := onlyTasks([]slurm.Job{slurmJob(v, j)}, ids, refs)
		if err != nil {
			return nil, err
		}
		if len(left) > 0 {
			out = append(out, j)
		}
	}
	return out, nil
}

// sinfoJSON is sinfo --json, and that of scontrol show node.
func sinfoJSON(ctx context.Context, e *console.Env, c *client.Client, s *slurm.Sinfo) error {
	nodes, err := client.GetNodes(ctx, c, nil)
	if err != nil {
		return err
	}
	v := viewFrom(e)
	return printNodesJSON(e, slices.DeleteFunc(nodes, func(n *apiv1.Node) bool {
		x := slurmNode(v, n)
		return !s.Wants(&x) || len(s.Partitions) > 0 && !slices.ContainsFunc(x.Partitions, func(p string) bool { return slices.Contains(s.Partitions, p) })
	}))
}
