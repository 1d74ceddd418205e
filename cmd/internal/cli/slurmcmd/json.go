package slurmcmd

import (
	"cmp"
	"context"
	"slices"

	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/slurm"
	"github.com/berth-scheduler/berth/cmd/internal/slurm/openapi"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// printJobsJSON prints jobs in the order of their ids; what waits of an array is one of
// the array's id, as in tables.
func printJobsJSON(e *console.Env, jobs []slurm.Job) error {
	slices.SortStableFunc(jobs, func(a, b slurm.Job) int { return cmp.Compare(a.ID, b.ID) })
	slurm.Masters(jobs)
	_, err := console.PrintList(e, console.FormatJSON, openapi.NewJobs(jobs))
	return err
}

// squeueJSON is squeue --json: the jobs that the other options choose.
func squeueJSON(ctx context.Context, e *console.Env, c *client.Client, q *slurm.Squeue, tasks []console.TaskRef) error {
	jobs, err := queued(ctx, e, c, q, tasks, true)
	if err != nil {
		return err
	}
	return printJobsJSON(e, slices.DeleteFunc(jobs, func(j slurm.Job) bool { return !q.Wants(&j) }))
}

// sinfoJSON is sinfo --json, and that of scontrol show node.
func sinfoJSON(ctx context.Context, e *console.Env, c *client.Client, s *slurm.Sinfo) error {
	got, err := client.GetNodes(ctx, c, nil)
	if err != nil {
		return err
	}
	v := viewFrom(e)
	var nodes []slurm.Node
	for _, n := range got {
		x := slurmNode(v, n)
		in := func(p string) bool { return slices.Contains(s.Partitions, p) }
		if s.Wants(&x) && (len(s.Partitions) == 0 || slices.ContainsFunc(x.Partitions, in)) {
			nodes = append(nodes, x)
		}
	}
	_, err = console.PrintList(e, console.FormatJSON, openapi.NewNodes(nodes))
	return err
}

// sacctJSON is sacct --json.
func sacctJSON(e *console.Env, jobs []*apiv1.Job, steps bool) error {
	v := viewFrom(e)
	rows := make([]slurm.Job, len(jobs))
	for i, j := range jobs {
		rows[i] = acctRow(v, j)
	}
	_, err := console.PrintList(e, console.FormatJSON, openapi.NewAcct(rows, steps))
	return err
}
