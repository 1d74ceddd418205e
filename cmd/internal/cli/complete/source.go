package complete

import (
	"context"
	"maps"
	"slices"
	"strconv"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// source lists the items of a kind, each perhaps with a tab and a
// description; nothing if the coordinators do not answer.
type source func(ctx context.Context, e *console.Env, c *client.Client) []string

// mostJobs bounds how many jobs are proposed.
const mostJobs = 500

// jobs returns the caller's jobs that have not ended.
func jobs(ctx context.Context, e *console.Env, c *client.Client) (out []string) {
	req := &apiv1.ListJobsRequest{Users: []string{e.User()}, Brief: true, PageSize: mostJobs}
	resp, _ := client.PageOfJobs.Ask(ctx, c, client.Reads, req)
	tasks := map[uint64]int{}
	for _, j := range resp.GetJobs() {
		tasks[j.GetArrayJobId()] += max(1, int(j.GetArrayCount()))
	}
	told := map[uint64]bool{0: true}
	for _, j := range resp.GetJobs() {
		if of := j.GetArrayJobId(); !told[of] && tasks[of] > 1 {
			told[of] = true
			out = append(out, strconv.FormatUint(of, 10)+"\t"+console.Escape(j.GetName())+", "+strconv.Itoa(tasks[of])+" tasks")
		}
		if j.GetArrayCount() > 1 { // those that have not begun
			continue
		}
		out = append(out, client.JobLabel(j)+"\t"+console.Escape(j.GetName())+", "+j.GetState())
	}
	return out
}

func nodes(ctx context.Context, _ *console.Env, c *client.Client) (out []string) {
	for _, n := range allNodes(ctx, c) {
		out = append(out, n.GetId())
	}
	return out
}

func gpuTypes(ctx context.Context, _ *console.Env, c *client.Client) []string {
	types := map[string]bool{}
	for _, n := range allNodes(ctx, c) {
		for _, g := range n.GetGpus() {
			types[g.GetType()] = true
		}
	}
	return slices.Sorted(maps.Keys(types))
}

func allNodes(ctx context.Context, c *client.Client) []*apiv1.Node {
	resp, _ := client.ListNodes.Ask(ctx, c, client.Reads, &apiv1.ListNodesRequest{Brief: true})
	return resp.GetNodes()
}

func partitions(ctx context.Context, _ *console.Env, c *client.Client) (out []string) {
	resp, _ := client.ListPartitions.Ask(ctx, c, client.Reads, &apiv1.ListPartitionsRequest{})
	for _, p := range resp.GetPartitions() {
		out = append(out, p.GetName())
	}
	return out
}

func reservations(ctx context.Context, _ *console.Env, c *client.Client) (out []string) {
	all, _ := client.GetReservations(ctx, c, nil)
	for _, r := range all {
		out = append(out, r.GetName())
	}
	return out
}

func accounts(ctx context.Context, _ *console.Env, c *client.Client) (out []string) {
	for _, a := range standing(ctx, c).GetAccounts() {
		out = append(out, a.GetName())
	}
	return out
}

func qos(ctx context.Context, _ *console.Env, c *client.Client) (out []string) {
	for _, q := range standing(ctx, c).GetQos() {
		out = append(out, q.GetName())
	}
	return out
}

func standing(ctx context.Context, c *client.Client) (resp *apiv1.ListStandingResponse) {
	resp, _ = client.ListStanding.Ask(ctx, c, client.Reads, &apiv1.ListStandingRequest{})
	return resp
}

func states(context.Context, *console.Env, *client.Client) (out []string) {
	for s := cluster.JobState(1); s.Valid(); s++ {
		out = append(out, s.String())
	}
	return out
}
