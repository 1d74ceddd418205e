package lab

import (
	"fmt"
	"math"

	"github.com/spf13/cobra"

	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/scheduler/sim/plot"
)

// newCurvesCmd draws what a job reported of its metric and what its GPUs
// showed, for berth show --plot.
func newCurvesCmd(e *console.Env, c *client.Client) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use: "curves JOB", Short: "Plot a job's GPU curves", Hidden: true, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, task, err := console.ParseTask(args[0])
			if err != nil {
				return err
			}
			got, err := client.GetSeries.Ask(cmd.Context(), c, client.Reads, &apiv1.GetSeriesRequest{Id: id, Task: task})
			if err != nil {
				return err
			}
			charts := chartsOf(e, args[0], got)
			if len(charts) == 0 {
				return fmt.Errorf("nothing is known of what the GPUs of job %s showed; it is kept for at most a week", args[0])
			}
			data, err := plot.Charts(charts).Bytes(plot.Format(output))
			if err != nil {
				return err
			}
			_, err = e.Stdout.Write(data)
			return err
		},
	}
	console.AddFormat(cmd, &output, console.Format(plot.SVG), console.Format(plot.PNG))
	return cmd
}

func chartsOf(e *console.Env, job string, got *apiv1.GetSeriesResponse) (out []plot.Chart) {
	if steps, values := got.GetSteps(), got.GetValues(); len(steps) > 1 && len(steps) == len(values) {
		out = append(out, plot.Chart{Title: fmt.Sprintf("%s of job %s", got.GetMetric(), job), At: floats(steps, 1), Curves: []plot.Curve{{Values: values}}})
	}
	for _, g := range got.GetGpus() {
		n := len(g.GetAt())
		if n == 0 || len(g.GetUsedMib()) != n || len(g.GetUtilMilli()) != n || len(g.GetPowerW()) != n {
			continue
		}
		at, name := floats(g.GetAt(), 1), fmt.Sprintf("%s %d of %s, all of it, while job %s ran", g.GetType(), g.GetIndex(), g.GetNode(), job)
		zone := e.Now().Location()
		out = append(out, plot.Chart{Title: name, Unit: "% of the card", At: at, Zone: zone, From0: true, Most: 100, Curves: []plot.Curve{
			{Name: "memory", Values: floats(g.GetUsedMib(), 100/float64(max(1, g.GetMemMib())))}, {Name: "busy", Values: floats(g.GetUtilMilli(), 0.1)},
		}}, plot.Chart{Unit: "watts", At: at, Zone: zone, From0: true, Curves: []plot.Curve{{Name: "power", Values: floats(g.GetPowerW(), 1)}}})
	}
	return out
}

// floats scales values; those below 0 are unknown.
func floats[T int32 | int64 | uint32 | uint64](vs []T, by float64) []float64 {
	out := make([]float64, len(vs))
	for i, v := range vs {
		if out[i] = float64(v) * by; v < 0 {
			out[i] = math.NaN()
		}
	}
	return out
}
