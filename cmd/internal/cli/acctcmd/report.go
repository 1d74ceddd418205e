package acctcmd

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/cli/view"
	"github.com/berth-scheduler/berth/cmd/internal/units"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// boardLength is how many lines the waste board has.
const boardLength = 5

type reportOptions struct {
	filterFlags
	csvFlag
	by, output string
}

// NewReportCmd returns the command report.
func NewReportCmd(e *console.Env, c *client.Client) *cobra.Command {
	var o reportOptions
	cmd := &cobra.Command{
		Use:   "report",
		Short: "Report GPU usage by user, account, partition or GPU type",
		Long: "Summarize ended jobs by user, account, partition or GPU type, over the last 7 days unless --since\n" +
			"or --last is given. ALLOCATED is GPU-hours on the GPUs that jobs ran on, CHARGED is ALLOCATED times\n" +
			"the share of each GPU held, and USED is ALLOCATED times how busy the GPUs were, for jobs that were\n" +
			"measured. IDLE is GPU-hours of jobs that kept their GPUs below 5 % busy. The waste board lists who\n" +
			"held the most GPU-hours without using them.",
		Example: "  berth report --by account --last 30d\n  berth report --by gpu-type --since 2026-03-01 --until 2026-04-01 -o csv",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return runReport(cmd.Context(), e, c, &o) },
	}
	fs := cmd.Flags()
	o.filterFlags.add(fs)
	o.csvFlag.add(fs)
	fs.StringVar(&o.by, "by", "user", "group by user, account, partition or gpu-type")
	console.AddFormat(cmd, &o.output, console.FormatTable, console.FormatJSON, console.FormatCSV, console.FormatYAML)
	return cmd
}

// reportView is what -o json and yaml print.
type reportView struct {
	By    string     `json:"by"`
	From  *time.Time `json:"from"`
	Until *time.Time `json:"until"`
	Lines []lineView `json:"lines"`
	Total lineView   `json:"total"`
	// Incomplete says that jobs may be missing, Behind that the latest may be.
	Incomplete bool `json:"incomplete"`
	Behind     bool `json:"behind"`
}

type lineView struct {
	Key               string  `json:"key"`
	Jobs              uint64  `json:"jobs"`
	Completed         uint64  `json:"completed"`
	Failed            uint64  `json:"failed"`
	Cancelled         uint64  `json:"cancelled"`
	AllocatedGPUHours float64 `json:"allocated_gpu_hours"`
	ChargedGPUHours   float64 `json:"charged_gpu_hours"`
	MeasuredGPUHours  float64 `json:"measured_gpu_hours"`
	UsedGPUHours      float64 `json:"used_gpu_hours"`
	WastedGPUHours    float64 `json:"wasted_gpu_hours"`
	CoreHours         float64 `json:"core_hours"`
	WaitP50Seconds    float64 `json:"wait_p50_seconds"`
	WaitP95Seconds    float64 `json:"wait_p95_seconds"`
	IdleGPUHours      float64 `json:"idle_gpu_hours"`

	used float64 // fraction of what was measured; the hours are rounded
}

func viewLine(l *apiv1.ReportLine) lineView {
	used := 0.0
	if m := l.GetMeasuredGpuSeconds(); m > 0 {
		used = l.GetUsedGpuSeconds() / m
	}
	hours := func(s float64) float64 { return float64(int64(s/3.6+0.5)) / 1000 }
	return lineView{
		Key: l.GetKey(), Jobs: l.GetJobs(), Completed: l.GetCompleted(), Failed: l.GetFailed(), Cancelled: l.GetCancelled(),
		AllocatedGPUHours: hours(l.GetAllocatedGpuSeconds()), ChargedGPUHours: hours(l.GetChargedGpuSeconds()),
		MeasuredGPUHours: hours(l.GetMeasuredGpuSeconds()), UsedGPUHours: hours(l.GetUsedGpuSeconds()), WastedGPUHours: hours(wasted(l)),
		CoreHours: hours(l.GetCoreSeconds()), WaitP50Seconds: l.GetWaitP50Seconds(), WaitP95Seconds: l.GetWaitP95Seconds(),
		IdleGPUHours: hours(l.GetIdleGpuSeconds()), used: used,
	}
}

// wasted returns the GPU-seconds that were held, measured and idle.
func wasted(l *apiv1.ReportLine) float64 {
	return max(0, l.GetMeasuredGpuSeconds()-l.GetUsedGpuSeconds())
}

func runReport(ctx context.Context, e *console.Env, c *client.Client, o *reportOptions) error {
	if !slices.Contains([]string{"user", "account", "partition", "gpu-type"}, o.by) {
		return console.Usagef("--by %s: want user, account, partition or gpu-type", console.ShortQuote(o.by))
	}
	cells, err := o.cells(console.Format(o.output))
	if err != nil {
		return err
	}
	if o.since == "" && o.last == "" {
		o.last = "7d"
	}
	q, _, err := o.filter(ctx, e, c, nil)
	if err != nil {
		return err
	}
	r, gaps, err := client.Report(ctx, c, &apiv1.GetReportRequest{Filter: q, By: o.by})
	if err != nil {
		return err
	}
	v := &reportView{By: o.by, From: view.Stamp(q.EndedFrom), Until: view.Stamp(q.EndedBefore), Lines: []lineView{}, Total: viewLine(r.GetTotal()), Incomplete: gaps.Incomplete, Behind: gaps.Behind}
	for _, l := range r.GetLines() {
		v.Lines = append(v.Lines, viewLine(l))
	}
	if o.output == string(console.FormatCSV) {
		err = reportCSV(e, cells, v)
	} else {
		err = printReport(e, console.Format(o.output), v)
	}
	if err != nil {
		return err
	}
	if len(v.Lines) == 0 {
		e.WarnUnknown(q.GetUsers())
	}
	warnGaps(e, gaps)
	return nil
}

func printReport(e *console.Env, f console.Format, v *reportView) error {
	if done, err := console.PrintList(e, f, v); done {
		return err
	}
	heads := map[string]string{"user": "USER", "account": "ACCOUNT", "partition": "PARTITION", "gpu-type": "TYPE"}
	t := &console.Table{Cols: []console.Column{{Head: heads[v.By], Shrink: true}}}
	for _, h := range []string{"JOBS", "OK", "FAILED", "ALLOCATED", "CHARGED", "USED", "USED%", "IDLE", "WAIT P50", "WAIT P95"} {
		t.Cols = append(t.Cols, console.Column{Head: h, Right: true})
	}
	for i := range v.Lines {
		addLine(t, &v.Lines[i], console.OrDash(v.Lines[i].Key))
	}
	addLine(t, &v.Total, "all")
	t.Print(e)
	board(e, v)
	return nil
}

func addLine(t *console.Table, l *lineView, key string) {
	used := "-"
	if l.MeasuredGPUHours > 0 {
		used = fmt.Sprintf("%.0f%%", 100*l.used)
	}
	ok := "-"
	if ran := l.Completed + l.Failed; ran > 0 {
		ok = fmt.Sprintf("%d%%", 100*l.Completed/ran)
	}
	t.Add(key, strconv.FormatUint(l.Jobs, 10), ok, strconv.FormatUint(l.Failed, 10), hoursText(l.AllocatedGPUHours), hoursText(l.ChargedGPUHours),
		hoursText(l.UsedGPUHours), used, hoursText(l.IdleGPUHours), console.Clock(time.Duration(l.WaitP50Seconds*float64(time.Second))), console.Clock(time.Duration(l.WaitP95Seconds*float64(time.Second))))
}

func hoursText(h float64) string { return strconv.FormatFloat(h, 'f', 1, 64) + "h" }

// board names the users who held GPUs without using them.
func board(e *console.Env, v *reportView) {
	lines := slices.DeleteFunc(slices.Clone(v.Lines), func(l lineView) bool { return l.WastedGPUHours < 0.05 })
	if len(lines) == 0 {
		return
	}
	slices.SortStableFunc(lines, func(a, b lineView) int { return cmp.Compare(b.WastedGPUHours, a.WastedGPUHours) })
	e.Printf("\nHeld and not used\n")
	t := &console.Table{NoHead: true, Cols: []console.Column{{Head: ""}, {Head: "", Right: true}, {Head: ""}}}
	for _, l := range lines[:min(len(lines), boardLength)] {
		text := "of " + hoursText(l.MeasuredGPUHours) + gpusFor(l.WastedGPUHours, v)
		if l.IdleGPUHours >= 0.05 {
			text += fmt.Sprintf("; %s by jobs that hardly used them at all", hoursText(l.IdleGPUHours))
		}
		t.Add("  "+console.OrDash(l.Key), hoursText(l.WastedGPUHours), text)
	}
	t.Print(e)
}

// gpusFor converts an amount of hours to GPUs over the time of the report; "" if it
// is hardly any.
func gpusFor(hours float64, v *reportView) string {
	n, what := hours/24, "GPU-days"
	if v.From != nil && v.Until != nil {
		span := v.Until.Sub(*v.From)
		n, what = hours/span.Hours(), "GPUs for "+units.HumanDuration(span)
	}
	if n < 0.05 {
		return ""
	}
	return fmt.Sprintf(", some %.1f %s", n, what)
}

func reportCSV(e *console.Env, cells console.Cells, v *reportView) error {
	w := console.NewCSV(e.Out, cells)
	_ = w.Write([]string{v.By, "jobs", "completed", "failed", "cancelled", "allocated_gpu_hours", "charged_gpu_hours", "measured_gpu_hours", "used_gpu_hours",
		"wasted_gpu_hours", "core_hours", "wait_p50_seconds", "wait_p95_seconds", "idle_gpu_hours"})
	f := func(x float64) string { return strconv.FormatFloat(x, 'f', 3, 64) }
	n := func(x uint64) string { return strconv.FormatUint(x, 10) }
	for i := range v.Lines {
		l := &v.Lines[i]
		_ = w.Write([]string{l.Key, n(l.Jobs), n(l.Completed), n(l.Failed), n(l.Cancelled), f(l.AllocatedGPUHours), f(l.ChargedGPUHours),
			f(l.MeasuredGPUHours), f(l.UsedGPUHours), f(l.WastedGPUHours), f(l.CoreHours), f(l.WaitP50Seconds), f(l.WaitP95Seconds), f(l.IdleGPUHours)})
	}
	return w.Flush()
}
