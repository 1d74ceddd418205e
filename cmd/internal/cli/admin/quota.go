package admin

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/accounting"
	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/units"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// NewQuotaCmd returns the command quota.
func NewQuotaCmd(e *console.Env, c *client.Client) *cobra.Command {
	cmd := &cobra.Command{
		Use: "quota", Short: "Set, show, list and remove limits for accounts, users and QOS",
		Long: "A quota limits what an account (with all accounts below it), a user, each user, or a QOS may use. Half\n" +
			"a GPU counts 0.5. berth why names the quota a job waits for; a job that can never fit one is refused.",
		Example: "  berth quota set --account bio --gpus 8 --gpu-hours 500/month\n  berth quota set --each-user --jobs 1000\n  berth quota list",
	}
	cmd.AddCommand(newQuotaListCmd(e, c, "list"), newQuotaListCmd(e, c, "show"), newQuotaSetCmd(e, c), newQuotaRemoveCmd(e, c))
	return cmd
}

type quotaSubject struct {
	account, qos, user string
	each               bool
}

func (s *quotaSubject) flags(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&s.account, "account", "", "this `ACCOUNT` and all below it")
	fs.StringVar(&s.qos, "qos", "", "this `QOS`")
	fs.StringVar(&s.user, "user", "", "this `USER`, in total or in the account")
	fs.BoolVar(&s.each, "each-user", false, "each user without such a quota of their own, in total, in the account or in the QOS")
	fs.SortFlags = false
}

func (s *quotaSubject) quota(e *console.Env) (*apiv1.Quota, error) {
	q := &apiv1.Quota{Account: strings.ToLower(s.account), Qos: strings.ToLower(s.qos), Each: s.each, Limits: &apiv1.Limits{}}
	if s.user != "" {
		var err error
		if q.Uid, q.Name, err = uidOf(e, s.user); err != nil {
			return nil, err
		}
		q.User = true
	}
	return q, nil
}

func sameSubject(a, b *apiv1.Quota) bool {
	return a.GetAccount() == b.GetAccount() && a.GetQos() == b.GetQos() && a.GetUser() == b.GetUser() && a.GetEach() == b.GetEach() && a.GetUid() == b.GetUid()
}

func newQuotaListCmd(e *console.Env, c *client.Client, use string) *cobra.Command {
	var output string
	var s quotaSubject
	cmd := &cobra.Command{
		Use: use, Short: "List quotas and how much of each is used", Args: cobra.NoArgs, Example: "  berth quota " + use,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runQuotas(cmd.Context(), e, c, console.Format(output), &s)
		},
	}
	if use == "show" {
		cmd.Short, cmd.Example = "Show the quotas of an account, a user or a QOS", "  berth quota show --account bio"
	}
	s.flags(cmd)
	console.AddFormat(cmd, &output, console.FormatTable, console.FormatJSON, console.FormatYAML)
	return cmd
}

type quotaView struct {
	For        string  `json:"for"`
	GPUs       float64 `json:"gpus"`
	GPUsUsed   float64 `json:"gpus_used"`
	Running    int64   `json:"running"`
	RunningNow int64   `json:"running_now"`
	Jobs       int64   `json:"jobs"`
	JobsNow    int64   `json:"jobs_now"`
	GPUHours   float64 `json:"gpu_hours"`
	Period     string  `json:"period"`
	HoursUsed  float64 `json:"gpu_hours_used"`
	MaxSeconds float64 `json:"max_seconds"`
	MaxGPUs    int64   `json:"max_gpus"`
	each       bool
}

func subjectText(q *apiv1.Quota) string {
	var parts []string
	for _, p := range []struct{ kind, name string }{{"account", q.GetAccount()}, {"qos", q.GetQos()}} {
		if p.name != "" {
			parts = append(parts, p.kind+" "+p.name)
		}
	}
	switch {
	case q.GetUser():
		parts = append(parts, "user "+cmp.Or(q.GetName(), strconv.Itoa(int(q.GetUid()))))
	case q.GetEach():
		parts = append(parts, "each user")
	}
	return console.Escape(strings.Join(parts, ", "))
}

func runQuotas(ctx context.Context, e *console.Env, c *client.Client, f console.Format, s *quotaSubject) error {
	only, err := s.quota(e)
	if err != nil {
		return err
	}
	resp, err := getStanding(ctx, c, &apiv1.ListStandingRequest{})
	if err != nil {
		return err
	}
	list := []quotaView{}
	for _, q := range resp.GetQuotas() {
		if only.Account != "" && q.Account != only.Account || only.Qos != "" && q.Qos != only.Qos || only.User && (!q.User || q.Uid != only.Uid) || only.Each && !q.Each {
			continue
		}
		l := q.GetLimits()
		list = append(list, quotaView{
			For: subjectText(q), GPUs: float64(l.GetGpuMilli()) / 1000, GPUsUsed: float64(q.GetGpuMilli()) / 1000, Running: l.GetRunning(), RunningNow: q.GetRunning(),
			Jobs: l.GetJobs(), JobsNow: q.GetJobs(), GPUHours: cluster.GPUTime(l.GetGpuTimeUs()).Hours(), Period: l.GetPeriod(), HoursUsed: cluster.GPUTime(q.GetGpuTimeUs()).Hours(),
			MaxSeconds: l.GetMaxTime().AsDuration().Seconds(), MaxGPUs: l.GetMaxGpus(), each: q.GetEach(),
		})
	}
	if done, err := console.PrintList(e, f, list); done {
		return err
	}
	if len(list) == 0 {
		e.Warnf("there are no such quotas")
		return nil
	}
	t := &console.Table{Cols: []console.Column{
		{Head: "FOR"}, {Head: "GPUS", Right: true}, {Head: "RUNNING", Right: true}, {Head: "JOBS", Right: true}, {Head: "GPU-HOURS", Right: true},
		{Head: "MAX-TIME", Right: true}, {Head: "MAX-GPUS", Right: true},
	}}
	for _, v := range list {
		of := func(used, limit string) string {
			switch {
			case limit == "0":
				return "-"
			case v.each:
				return limit
			}
			return used + "/" + limit
		}
		num := func(f float64) string { return accounting.Milli(int64(math.Round(f * 1000))) }
		hours := of(fmt.Sprintf("%.1f", v.HoursUsed), num(v.GPUHours))
		if v.Period != "" && hours != "-" {
			hours += " a " + v.Period
		}
		maxTime := "-"
		if v.MaxSeconds > 0 {
			maxTime = units.FormatDuration(durationOf(v.MaxSeconds))
		}
		t.Add(v.For, of(num(v.GPUsUsed), num(v.GPUs)), of(strconv.FormatInt(v.RunningNow, 10), strconv.FormatInt(v.Running, 10)),
			of(strconv.FormatInt(v.JobsNow, 10), strconv.FormatInt(v.Jobs, 10)), hours, maxTime, of("", strconv.FormatInt(v.MaxGPUs, 10)))
	}
	t.Print(e)
	return nil
}

func newQuotaSetCmd(e *console.Env, c *client.Client) *cobra.Command {
	var s quotaSubject
	var gpus, hours, maxTime, running, jobs, maxGPUs string
	cmd := &cobra.Command{
		Use: "set [flags]", Short: "Set limits for an account, a user, each user or a QOS", Args: cobra.NoArgs,
		Long:    "Set limits; those not given stay as they are. none removes a limit; a quota with no limits is removed.",
		Example: "  berth quota set --account bio --gpus 8 --running 50\n  berth quota set --user ada --gpu-hours 100/week\n  berth quota set --qos high --each-user --running 2",
		RunE: func(cmd *cobra.Command, _ []string) error {
			q, err := s.quota(e)
			if err != nil {
				return err
			}
			have, err := getStanding(cmd.Context(), c, &apiv1.ListStandingRequest{})
			if err != nil {
				return err
			}
			if i := slices.IndexFunc(have.GetQuotas(), func(x *apiv1.Quota) bool { return sameSubject(x, q) }); i >= 0 {
				q = have.Quotas[i]
			}
			said := cmd.Flags().Changed
			if err := setLimits(q.Limits, said, gpus, hours, maxTime); err != nil {
				return err
			}
			for _, n := range []struct {
				flag, text string
				to         *int64
			}{{"running", running, &q.Limits.Running}, {"jobs", jobs, &q.Limits.Jobs}, {"max-gpus", maxGPUs, &q.Limits.MaxGpus}} {
				if !said(n.flag) {
					continue
				}
				if *n.to, err = whole(n.text); err != nil {
					return console.Usagef("--%s: %w", n.flag, err)
				}
			}
			l := q.Limits
			remove := l.GpuMilli == 0 && l.Running == 0 && l.Jobs == 0 && l.GpuTimeUs == 0 && l.GetMaxTime().AsDuration() == 0 && l.MaxGpus == 0
			if err := setStanding(cmd.Context(), c, &apiv1.Standing{Kind: &apiv1.Standing_Quota{Quota: q}, Revision: q.Revision}, remove); err != nil {
				return err
			}
			if remove {
				e.Printf("quota of %s: none\n", subjectText(q))
				return nil
			}
			e.Printf("quota of %s: set\n", subjectText(q))
			return nil
		},
	}
	s.flags(cmd)
	fs := cmd.Flags()
	fs.StringVar(&gpus, "gpus", "", "GPUs held at once, a `NUMBER` such as 8 or 0.5, or none")
	fs.StringVar(&running, "running", "", "`NUMBER` of running jobs, or none")
	fs.StringVar(&jobs, "jobs", "", "`NUMBER` of waiting and running jobs, or none")
	fs.StringVar(&hours, "gpu-hours", "", "`BUDGET` of GPU-hours, such as 500 (of decaying usage) or 500/month (day, week, month, quarter, year), or none")
	fs.StringVar(&maxTime, "max-time", "", "maximum time limit of a job, a `TIME`, or none")
	fs.StringVar(&maxGPUs, "max-gpus", "", "`NUMBER` of GPUs per job, or none")
	return cmd
}

func newQuotaRemoveCmd(e *console.Env, c *client.Client) *cobra.Command {
	var s quotaSubject
	cmd := &cobra.Command{
		Use: "remove [flags]", Aliases: []string{"rm"}, Short: "Remove a quota with all its limits", Args: cobra.NoArgs,
		Example: "  berth quota remove --user ada\n  berth quota remove --account bio --each-user",
		RunE: func(cmd *cobra.Command, _ []string) error {
			q, err := s.quota(e)
			if err != nil {
				return err
			}
			if subjectText(q) == "" {
				return console.Usagef("whose quota? give --account, --qos, --user or --each-user")
			}
			have, err := getStanding(cmd.Context(), c, &apiv1.ListStandingRequest{})
			if err != nil {
				return err
			}
			i := slices.IndexFunc(have.GetQuotas(), func(x *apiv1.Quota) bool { return sameSubject(x, q) })
			if i < 0 {
				return cluster.Errorf(cluster.CodeNotFound, "there is no quota of %s; see: berth quota list", subjectText(q))
			}
			q = have.Quotas[i]
			if err := setStanding(cmd.Context(), c, &apiv1.Standing{Kind: &apiv1.Standing_Quota{Quota: q}, Revision: q.Revision}, true); err != nil {
				return err
			}
			e.Printf("quota of %s: none\n", subjectText(q))
			return nil
		},
	}
	s.flags(cmd)
	return cmd
}

// setLimits reads the limits that are not plain numbers.
func setLimits(l *apiv1.Limits, said func(string) bool, gpus, hours, maxTime string) error {
	if said("gpus") {
		n, err := amount(gpus)
		if err != nil {
			return console.Usagef("--gpus: %w", err)
		}
		l.GpuMilli = int64(math.Round(n * 1000))
	}
	if said("gpu-hours") {
		number, period, _ := strings.Cut(hours, "/")
		n, err := amount(number)
		if err != nil {
			return console.Usagef("--gpu-hours: %w", err)
		}
		if period != "" && !slices.Contains(accounting.Periods(), accounting.Period(period)) {
			return console.Usagef("--gpu-hours %s: want day, week, month, quarter or year after the /", console.ShortQuote(hours))
		}
		l.GpuTimeUs, l.Period = int64(n*3.6e9), period
	}
	if said("max-time") {
		d, err := timeOrNone(maxTime)
		if err != nil {
			return console.Usagef("--max-time: %w", err)
		}
		l.MaxTime = durationpb.New(d)
	}
	return nil
}

func amount(text string) (float64, error) {
	if text == "none" {
		return 0, nil
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || !(n > 0 && n < 1e9) {
		return 0, fmt.Errorf("%s: want a number above 0, or none", console.ShortQuote(text))
	}
	return n, nil
}

// whole reads a number of jobs or GPUs; 0 is none, too.
func whole(text string) (int64, error) {
	if text == "none" {
		return 0, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("%s: want a whole number above 0, or none", console.ShortQuote(text))
	}
	return n, nil
}
