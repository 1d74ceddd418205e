package admin

import (
	"context"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/cli/view"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

func newGPUIdleCmd(e *console.Env, c *client.Client) *cobra.Command {
	return console.Formatted(&cobra.Command{
		Use: "idle", Short: "List jobs that leave their GPUs idle",
		Long: "List running jobs that leave their GPUs idle under their partition's policy (berth partition set\n" +
			"--idle), and which of its steps each has reached.",
		Example: "  berth gpu idle", Args: cobra.NoArgs,
	}, client.Bound(e, c, runGPUIdle), console.FormatTable, console.FormatJSON, console.FormatYAML)
}

func runGPUIdle(ctx context.Context, e *console.Env, c *client.Client, f console.Format, _ []string) error {
	all, err := client.ListJobs(ctx, c, &apiv1.ListJobsRequest{States: []string{cluster.JobRunning.String()}})
	if err != nil {
		return err
	}
	views := []view.JobView{}
	t := &console.Table{Cols: []console.Column{{Head: "JOBID", Right: true}, {Head: "NAME", Shrink: true}, {Head: "USER"}, {Head: "NODE"}, {Head: "GPUS", Right: true}, {Head: "WHAT BECOMES OF IT", Shrink: true}}}
	for _, j := range all {
		if j.GetReason() != string(cluster.ReasonIdle) {
			continue
		}
		views = append(views, view.Job(j))
		t.Add(strconv.FormatUint(j.GetId(), 10), j.GetName(), j.GetUser(), j.GetNode(), strconv.Itoa(int(j.GetGpusWanted())), j.GetReasonDetail())
	}
	if done, err := console.PrintList(e, f, views); done {
		return err
	}
	if len(views) == 0 {
		e.Warnf("no job leaves its GPUs idle, in partitions with an idle policy (berth partition set NAME --idle)")
		return nil
	}
	t.Print(e)
	return nil
}
