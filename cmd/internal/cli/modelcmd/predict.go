package modelcmd

import (
	"cmp"
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/cli/jobspec"
	"github.com/berth-scheduler/berth/cmd/internal/cli/view"
	"github.com/berth-scheduler/berth/cmd/internal/units"
	"github.com/berth-scheduler/berth/model"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/conv/apiconv"
)

type predictOptions struct {
	jobspec.SpecArgs
	format  string
	explain bool
	beside  string
}

// NewPredictCmd returns the command predict.
func NewPredictCmd(e *console.Env, c *client.Client) *cobra.Command {
	var o predictOptions
	cmd := &cobra.Command{
		Use:   "predict [flags] [FILE.yaml | -- COMMAND [ARG…]]",
		Short: "Predict what a job would need, without submitting it",
		Long: "Predict what a job would need on each GPU type, without submitting it. With --beside, also show how the\n" +
			"job and those named would slow each other down on one GPU; with --beside alone, only how those named would.",
		Example: "  berth predict --onnx resnet50.onnx --batch 64 --steps 20000\n" +
			"  berth predict --model bert-base --batch 32 --seq-len 512 --explain\n" +
			"  berth predict job.yaml\n" +
			"  berth features trace -o json train.py | berth predict --features - --beside 17\n" +
			"  berth predict --beside 17,18",
		RunE: func(cmd *cobra.Command, args []string) error {
			return runPredict(cmd.Context(), e, c, &o, args, cmd.ArgsLenAtDash())
		},
	}
	o.Register(cmd)
	cmd.Flags().BoolVar(&o.explain, "explain", false, "show what the memory estimate and slowdowns consist of")
	cmd.Flags().StringVar(&o.beside, "beside", "", "how it shares one GPU with these `JOBS`, such as 17 or 17,18")
	// -o is the job's output file here, as in submit.
	cmd.Flags().StringVar(&o.format, "format", "table", "output format: table, json or yaml")
	console.AddFilter(cmd, &o.format, "format", console.FormatTable, console.FormatJSON, console.FormatYAML)
	return cmd
}

func runPredict(ctx context.Context, e *console.Env, c *client.Client, o *predictOptions, args []string, dash int) error {
	f := console.Format(o.format)
	if f != console.FormatTable && f != console.FormatJSON && f != console.FormatYAML {
		return console.Usagef("--format %s: want one of table, json, yaml", console.ShortQuote(o.format))
	}
	req := &apiv1.PredictRequest{}
	var err error
	if o.beside != "" {
		if req.Beside, err = console.ParseIDs([]string{o.beside}); err != nil {
			return err
		}
	}
	if len(req.Beside) == 0 || len(args) > 0 || o.File != "" || len(o.Flags) > 0 {
		if req.Spec, err = o.describe(e, args, dash); err != nil {
			return err
		}
	} else if len(req.Beside) == 1 {
		return console.Usagef("--beside %d: describe the job to run beside it, or name another one, such as: --beside %d,18", req.Beside[0], req.Beside[0])
	}
	resp, err := client.Predict.Ask(ctx, c, client.Reads, req)
	if err != nil {
		return err
	}
	views := []*view.PredictedView{}
	for _, p := range resp.GetPredictions() {
		views = append(views, view.Prediction(p))
	}
	var all any = views
	if len(req.Beside) > 0 {
		all = view.BesideView{Predictions: views, Sharing: view.Sharing(resp.GetSharing())}
	}
	if done, err := console.PrintList(e, f, all); done {
		return err
	}
	if req.Spec != nil {
		printPredictions(e, resp.GetPredictions(), o.explain)
		printPromise(e, req.Spec, resp)
	}
	if len(req.Beside) > 0 {
		view.PrintSharing(e, resp.GetSharing(), o.explain, req.Spec != nil)
	}
	return nil
}

// printPromise says what a deadline needs, or why it cannot be met.
func printPromise(e *console.Env, s *apiv1.JobSpec, resp *apiv1.PredictResponse) {
	if text := cmp.Or(resp.GetCannotSay(), resp.GetForecast().GetMissing()); text != "" && (s.GetDeadline() != nil || s.GetDeadlineIn() != nil) {
		e.Printf("%s\n", console.Escape(text))
	}
}

// TestSubmit reports what a job would take instead of submitting it.
func TestSubmit(ctx context.Context, e *console.Env, c *client.Client, spec *cluster.Spec) error {
	resp, err := client.Predict.Ask(ctx, c, client.Reads, &apiv1.PredictRequest{Spec: apiconv.SpecToAPI(spec)})
	if err != nil {
		return err
	}
	printPredictions(e, resp.GetPredictions(), false)
	return testOnly(e, spec, resp)
}

// testOnly reports when the job would start: Slurm's line, for scripts that
// read it, and a range.
func testOnly(e *console.Env, spec *cluster.Spec, resp *apiv1.PredictResponse) error {
	f := resp.GetForecast()
	if f == nil {
		if resp.GetCannotSay() != "" {
			e.Warnf("cannot say when it would start: %s", console.Escape(resp.GetCannotSay()))
		}
		return nil
	}
	cpus := int64(spec.NodeCount()) * max(1, (spec.CPUMilli+999)/1000)
	at := f.GetStartP50().AsTime()
	if now := e.Now(); at.Before(now) {
		at = now
	}
	where := ""
	if f.GetNode() != "" {
		where = " on nodes " + console.Escape(f.GetNode())
	}
	if spec.Partition != "" {
		where += " in partition " + spec.Partition
	}
	e.Warnf("Job %d to start at %s using %d processors%s", resp.GetNextJob(), at.In(e.Now().Location()).Format("2006-01-02T15:04:05"), cpus, where)
	e.Warnf("expected start: %s (as predicted, and 90th percentile)", client.StartText(e, f, ""))
	return nil
}

// describe builds the job to predict.
func (o *predictOptions) describe(e *console.Env, args []string, dash int) (*apiv1.JobSpec, error) {
	if err := o.FromArgs(e, o.File, args, dash); err != nil {
		return nil, err
	}
	if len(o.Spec.Command) == 0 {
		o.Spec.Command = []string{"true"} // the command does not affect a model's cost
	}
	if o.beside != "" && !o.GPUsSaid {
		o.Spec.GPUs, o.GPUsSaid = 1, true // which it would share
	}
	warnings, err := o.Complete(e)
	if err != nil {
		return nil, err
	}
	for _, w := range warnings {
		e.Warnf("warning: %s", console.Escape(w))
	}
	o.Spec.Env = nil // irrelevant to a prediction
	return apiconv.SpecToAPI(&o.Spec), nil
}

// printFloors shows what context and libraries take under each driver.
func printFloors(e *console.Env, floors []*apiv1.DriverFloor) {
	for _, f := range floors {
		from := "as under the one before"
		if n := f.GetRuns(); n > 0 {
			from = "from " + console.Plural(int(n), "run", "runs")
		}
		e.Printf("  context and libraries under driver %s: %s, %s\n", console.Escape(f.GetDriver()), units.HumanMiB(f.GetMib()), from)
	}
}

func printPredictions(e *console.Env, ps []*apiv1.Prediction, explain bool) {
	t := &console.Table{Cols: []console.Column{
		{Head: "GPU_TYPE"}, {Head: "GPU_MEM", Right: true}, {Head: "95%", Right: true}, {Head: "GPU_USE", Right: true}, {Head: "TIME", Right: true},
		{Head: "MEMORY", Right: true}, {Head: "CPUS", Right: true}, {Head: "POWER", Right: true}, {Head: "CONFIDENCE", Right: true}, {Head: "FROM"},
	}}
	for _, p := range ps {
		power := "-"
		if p.GetPowerW() > 0 {
			power = strconv.FormatInt(p.GetPowerW(), 10) + " W"
		}
		mem, p95, use := console.MemOrDash(p.GetGpuMemMib()), console.MemOrDash(p.GetGpuMemP95Mib()), console.PercentOf(p.GetGpuUtilMilli())
		if p.GetGpuType() == cluster.CPUType {
			mem, p95, use = "-", "-", "-"
		}
		t.Add(p.GetGpuType(), mem, p95, use, console.TimeText(p),
			console.MemOrDash(p.GetHostMemMib()), console.Cores(p.GetCpuMilli()), power, fmt.Sprintf("%.0f%%", 100*p.GetConfidence()), console.OrNone(p.GetSource()))
	}
	t.Print(e)
	for _, p := range ps {
		if by := p.GetTimeBy(); by != "" {
			e.Printf("\nTIME grows with %s, as runs of this program show.\n", console.Escape(by))
			break
		}
	}
	if !explain {
		return
	}
	for _, p := range ps {
		what, most := "GPU memory", p.GetGpuMemMib()
		if p.GetGpuType() == cluster.CPUType {
			what, most = "Host memory", p.GetHostMemMib()
		}
		e.Printf("\n%s on %s\n", what, console.Escape(p.GetGpuType()))
		if len(p.GetParts()) == 0 {
			e.Printf("  no parts: the figure is %s as a whole\n", console.Escape(console.OrNone(p.GetSource())))
			continue
		}
		var kv []string
		sum := int64(0)
		for _, part := range p.GetParts() {
			sum += part.GetMib()
			kv = append(kv, part.GetName(), units.HumanMiB(part.GetMib()))
		}
		kv = append(kv, "in all", units.HumanMiB(sum))
		// Rounding up each part makes the sum a little larger.
		if d := sum - most; d > int64(len(p.GetParts())) || d < -1 {
			why := "predicted, from " + console.OrNone(p.GetSource())
			if p.GetSource() == string(model.SourceGraph) || p.GetSource() == string(model.SourceCatalogue) {
				why = "the card has"
			}
			kv = append(kv, why, units.HumanMiB(most))
		}
		console.KeyValues(e, "  ", kv...)
		printFloors(e, p.GetFloors())
	}
}
