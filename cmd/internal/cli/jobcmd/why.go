package jobcmd

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/cli/view"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// NewWhyCmd returns the command why.
func NewWhyCmd(e *console.Env, c *client.Client) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:     "why JOB",
		Short:   "Say in numbers why a job waits, or how it ended",
		Example: "  berth why 12",
		Args:    console.OneArg("job id"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runWhy(cmd.Context(), e, c, console.Format(output), args[0])
		},
	}
	console.AddFormat(cmd, &output, console.FormatTable, console.FormatJSON, console.FormatYAML)
	return cmd
}

type whyView struct {
	Job          view.JobView      `json:"job"`
	Explanations []explanationView `json:"explanations"`
	Forecast     *forecastView     `json:"forecast"`
}

type explanationView struct {
	Code    string `json:"code"`
	Detail  string `json:"detail"`
	Count   uint32 `json:"count"`
	GPUType string `json:"gpu_type"`
}

type forecastView struct {
	Node     string     `json:"node"`
	GPU      string     `json:"gpu"`
	GPUType  string     `json:"gpu_type"`
	Missing  string     `json:"missing"`
	StartP50 *time.Time `json:"start_p50"`
	StartP90 *time.Time `json:"start_p90"`
	Ahead    uint32     `json:"ahead"`
}

func viewForecast(f *apiv1.Forecast) *forecastView {
	if f == nil {
		return nil
	}
	return &forecastView{f.GetNode(), f.GetGpu(), f.GetGpuType(), f.GetMissing(), view.Stamp(f.GetStartP50()), view.Stamp(f.GetStartP90()), f.GetAhead()}
}

func runWhy(ctx context.Context, e *console.Env, c *client.Client, f console.Format, arg string) error {
	id, task, err := console.ParseTask(arg)
	if err != nil {
		return err
	}
	var resp *apiv1.ExplainJobResponse
	err = c.Jobs(ctx, client.Reads, func(ctx context.Context, s apiv1.JobServiceClient) (err error) {
		resp, err = s.ExplainJob(ctx, &apiv1.ExplainJobRequest{Id: id, Task: task})
		return err
	})
	if err != nil {
		return err
	}
	view := whyView{Job: view.Job(resp.GetJob()), Explanations: []explanationView{}, Forecast: viewForecast(resp.GetForecast())}
	for _, x := range resp.GetExplanations() {
		view.Explanations = append(view.Explanations, explanationView{x.GetCode(), x.GetDetail(), x.GetCount(), x.GetGpuType()})
	}
	if done, err := console.PrintList(e, f, view); done {
		return err
	}
	e.Printf("%s\n", console.Escape(whySentence(e, resp.GetJob())))
	for _, x := range resp.GetExplanations() {
		line := console.ReasonText(x.GetCode(), x.GetDetail())
		if x.GetCount() > 1 {
			line = fmt.Sprintf("%d × %s", x.GetCount(), line)
		}
		e.Printf("  %s\n", console.Escape(line))
	}
	if d := deadlineText(e, resp.GetJob()); d != "" {
		e.Printf("Deadline: %s\n", d)
	}
	if f := resp.GetForecast(); f != nil {
		e.Printf("Nearest: %s\n", console.Escape(f.GetMissing()))
		e.Printf("Expected start: %s (as predicted, and in nine cases of ten)\n", client.StartText(e, f, ""))
	}
	return nil
}

// whySentence says where the job stands.
func whySentence(e *console.Env, j *apiv1.Job) string {
	head := fmt.Sprintf("Job %d (%s)", j.GetId(), j.GetName())
	reason := console.ReasonText(j.GetReason(), j.GetReasonDetail())
	if reason != "" {
		reason = ": " + reason
	}
	switch {
	case console.Waiting(j.GetState()):
		text := head + " waits"
		if j.GetQueue() != "" {
			text += fmt.Sprintf(", place %d in the queue of %s", j.GetQueuePosition(), j.GetQueue())
		}
		if t := console.When(e, j.GetEstimatedStart()); t != "" {
			text += ", expected to start at " + t
		}
		return text + reason
	case console.Terminal(j.GetState()):
		text := head + " ended " + j.GetState()
		if x := exitText(j.ExitCode, j.GetSignal()); x != "" {
			text += ", " + x
		}
		return text + reason
	default:
		text := fmt.Sprintf("%s is %s on %s", head, j.GetState(), console.OrDash(j.GetNode()))
		if n := len(j.GetAttempts()); n > 0 && j.GetAttempts()[n-1].GetWhy() != "" {
			text += ", placed there because: " + j.GetAttempts()[n-1].GetWhy()
		}
		return text + reason
	}
}
