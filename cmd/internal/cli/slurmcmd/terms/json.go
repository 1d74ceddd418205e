package terms

import (
	"cmp"
	"context"
	"slices"

	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/slurm"
	"github.com/berth-scheduler/berth/cmd/internal/slurm/openapi"
)

// PrintJobs prints jobs in the order of their ids; the waiting part of an
// array is one job with the array's id, as in tables.
func PrintJobs(e *console.Env, jobs []slurm.Job) error {
	slices.SortStableFunc(jobs, func(a, b slurm.Job) int { return cmp.Compare(a.ID, b.ID) })
	slurm.Masters(jobs)
	list := console.JSONList{Of: openapi.NewHead(), Member: "jobs"}
	var job openapi.Job
	for i := range jobs {
		job = openapi.NewJob(&jobs[i])
		if err := list.Add(e, &job); err != nil {
			return err
		}
	}
	return list.Close(e)
}

// PrintNodes prints nodes as sinfo --json and scontrol show node do.
func PrintNodes(ctx context.Context, e *console.Env, c *client.Client, s *slurm.Sinfo) error {
	got, err := client.GetNodes(ctx, c, nil)
	if err != nil {
		return err
	}
	v := ViewFrom(e)
	var nodes []slurm.Node
	for _, n := range got {
		x := Node(v, n)
		in := func(p string) bool { return slices.Contains(s.Partitions, p) }
		if s.Wants(&x) && (len(s.Partitions) == 0 || slices.ContainsFunc(x.Partitions, in)) {
			nodes = append(nodes, x)
		}
	}
	_, err = console.PrintList(e, console.FormatJSON, openapi.NewNodes(nodes))
	return err
}
