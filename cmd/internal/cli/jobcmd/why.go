package jobcmd

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/accounting"
	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/cli/view"
	"github.com/berth-scheduler/berth/cmd/internal/units"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// NewWhyCmd returns the command why.
func NewWhyCmd(e *console.Env, c *client.Client) *cobra.Command {
	return console.Formatted(&cobra.Command{
		Use:   "why [JOB]",
		Short: "Explain why a job waits, or how it ended",
		Long: "Explain, with figures, why a job waits or how it ended; without an id, your latest job. For an array,\n" +
			"this is the first waiting task of the state that most of its unfinished tasks are in; for some of its\n" +
			"tasks, as lists show them, the first one.",
		Example: "  berth why 12\n  berth why '30_[5-9]'\n  berth why",
		Args:    console.MaybeOneArg("job id"),
	}, func(ctx context.Context, f console.Format, args []string) error {
		args, err := client.OrLatest(ctx, e, c, args)
		if err != nil {
			return err
		}
		return runWhy(ctx, e, c, f, args[0])
	}, console.FormatTable, console.FormatJSON, console.FormatYAML)
}

type whyView struct {
	Job          view.JobView      `json:"job"`
	Explanations []explanationView `json:"explanations"`
	Forecast     *view.Forecast    `json:"forecast"`
	Room         *roomView         `json:"room"`
	FairShare    *fairShareView    `json:"fair_share"`
}

// roomView is when quotas are expected to let the job start.
type roomView struct {
	P50   *time.Time `json:"p50"`
	P90   *time.Time `json:"p90"`
	Words string     `json:"words"`
}

type fairShareView struct {
	Account       string  `json:"account"`
	Rank          uint32  `json:"rank"`
	Of            uint32  `json:"of"`
	Factor        float64 `json:"factor"`
	AccountShares float64 `json:"account_shares"`
	AccountUse    float64 `json:"account_use"`
	UserShares    float64 `json:"user_shares"`
	UserUse       float64 `json:"user_use"`
	WeightMilli   uint32  `json:"weight_milli"`
}

func viewStanding(v *whyView, r *apiv1.ExplainJobResponse) {
	if m := r.GetRoom(); m != nil {
		v.Room = &roomView{view.Stamp(m.GetP50()), view.Stamp(m.GetP90()), m.GetWords()}
	}
	if f := r.GetFairShare(); f != nil {
		v.FairShare = &fairShareView{f.GetAccount(), f.GetRank(), f.GetOf(), f.GetFactor(), f.GetAccountShares(), f.GetAccountUse(), f.GetUserShares(), f.GetUserUse(), f.GetWeightMilli()}
	}
}

type explanationView struct {
	Code    string `json:"code"`
	Detail  string `json:"detail"`
	Count   uint32 `json:"count"`
	GPUType string `json:"gpu_type"`
}

func runWhy(ctx context.Context, e *console.Env, c *client.Client, f console.Format, arg string) error {
	id, task, err := console.ParseShown(arg)
	if err != nil {
		return err
	}
	resp, err := client.ExplainJob.Ask(ctx, c, client.Reads, &apiv1.ExplainJobRequest{Id: id, Task: task})
	if err != nil {
		return err
	}
	if j := resp.GetJob(); j != nil { // the same figure in both
		j.EstimatedStart = resp.GetForecast().GetStartP90()
	}
	view := whyView{Job: view.Job(resp.GetJob()), Explanations: []explanationView{}, Forecast: view.ForecastOf(resp.GetForecast())}
	for _, x := range resp.GetExplanations() {
		view.Explanations = append(view.Explanations, explanationView{x.GetCode(), x.GetDetail(), x.GetCount(), x.GetGpuType()})
	}
	viewStanding(&view, resp)
	if done, err := console.PrintList(e, f, view); done {
		return err
	}
	e.Printf("%s\n", console.Escape(whySentence(e, resp.GetJob(), client.CardsOf(ctx, c, []*apiv1.Job{resp.GetJob()}))))
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
		e.Printf("Expected start: %s (as predicted, and 90th percentile)\n", client.StartText(e, f, ""))
	}
	printStanding(e, resp)
	return nil
}

// printStanding says when quotas have room, and how the job ranks by fair share.
func printStanding(e *console.Env, r *apiv1.ExplainJobResponse) {
	if m := r.GetRoom(); m != nil {
		e.Printf("Room in the quota: %s (as predicted, and 90th percentile), when %s\n",
			client.StartText(e, &apiv1.Forecast{StartP50: m.GetP50(), StartP90: m.GetP90()}, ""), console.Escape(m.GetWords()))
	}
	for _, x := range r.GetExplanations() {
		switch {
		case ofCells(x) && strings.Contains(x.GetDetail(), "of its cells in use"):
			e.Printf("Room in the cells: once jobs of the team end\n")
		case r.GetRoom() == nil && !ofCells(x) && accounting.LimitReason(cluster.ReasonCode(x.GetCode())):
			e.Printf("Room in the quota: not expected by itself; ask an administrator for more\n")
		default:
			continue
		}
		break
	}
	f := r.GetFairShare()
	if f == nil || !console.Waiting(r.GetJob().GetState()) {
		return
	}
	text := fmt.Sprintf("Fair share: place %d of %d (factor %.2f)", f.GetRank(), f.GetOf(), f.GetFactor())
	percent := func(x float64) string { return fmt.Sprintf("%.0f %%", 100*x) }
	if a := f.GetAccount(); a != "" {
		text += fmt.Sprintf(": account %s has %s of the shares beside it and had %s of the use; %s %s of the account's shares and %s of its use",
			a, percent(f.GetAccountShares()), percent(f.GetAccountUse()), r.GetJob().GetUser(), percent(f.GetUserShares()), percent(f.GetUserUse()))
	} else {
		text += ": in no account, so in the middle until anything is used"
	}
	e.Printf("%s\n", console.Escape(text))
	if w := f.GetWeightMilli(); w == 0 {
		e.Printf("Fair share does not count in the order here (scheduling.fairshare is 0)\n")
	} else {
		e.Printf("Fair share is %s of the order here, job length the rest\n", percent(float64(w)/1000))
	}
}

// ofCells reports whether a job waits for the cells of its tenant, not for a quota of an
// account or a user: both have one code.
func ofCells(x *apiv1.Explanation) bool {
	quota := strings.HasPrefix(x.GetDetail(), "account ") || strings.HasPrefix(x.GetDetail(), "user ")
	return x.GetCode() == string(cluster.ReasonTenantCells) && !quota
}

// whySentence describes the job's situation in a sentence.
func whySentence(e *console.Env, j *apiv1.Job, cards client.Cards) string {
	head := fmt.Sprintf("Job %s (%s)", client.JobLabel(j), j.GetName())
	if a := j.GetArray(); a.GetSize() > 1 {
		head = fmt.Sprintf("Array %d: %s. Job %s (%s)", j.GetArrayJobId(), client.TaskStates(a), client.JobLabel(j), j.GetName())
	}
	reason := console.ReasonText(j.GetReason(), j.GetReasonDetail())
	if reason != "" {
		reason = ": " + reason
	}
	switch {
	case console.Waiting(j.GetState()):
		text := head + " waits"
		if j.GetQueue() != "" {
			text += fmt.Sprintf(", place %d in the queue of %s", j.GetQueuePosition(), cards.Name(j.GetQueue()))
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
		if g := j.GetGpus(); len(g) > 0 && g[0].GetShare().GetGrantedMib() > 0 {
			text += fmt.Sprintf("; its share shrank from %s to the %s that it uses, with a margin, and regrows before it needs more",
				units.HumanMiB(g[0].GetShare().GetGrantedMib()), units.HumanMiB(g[0].GetShare().GetMemMib()))
		}
		return text + reason
	}
}
