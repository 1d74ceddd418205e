package evalcmd

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/model/eval"
)

type evalOptions struct {
	train, test           string
	targets, splits, with []string
	output, plot          string
	seed                  uint64
}

func newModelEvalCmd(e *console.Env) *cobra.Command {
	var o evalOptions
	cmd := &cobra.Command{
		Use:   "eval --train DIR [--test DIR]",
		Short: "Evaluate predictions against data sets of measured runs",
		Long: "Evaluate predictions against data sets of measured runs, one folder of CSV files each. Without --test,\n" +
			"each data set is cross-validated: by random rows, and by leaving out whole models, model families and\n" +
			"GPU types. With --test, everything in --train is trained on, and those rows of --test are scored that\n" +
			"hold something never trained on. A row that was trained on is refused.",
		Example: "  berth model eval --train data\n" +
			"  berth model eval --train data --test held-out --target memory --split family -o json",
		Args: console.NoArgs,
		RunE: func(*cobra.Command, []string) error { return runModelEval(e, &o) },
	}
	f := cmd.Flags()
	f.StringVar(&o.train, "train", "", "`DIR` of the data sets to learn from")
	f.StringVar(&o.test, "test", "", "`DIR` of the data sets to score; by default --train is cross-validated")
	f.StringSliceVar(&o.targets, "target", nil, "what to predict: memory, memory_summary, util, time; by default all")
	f.StringSliceVar(&o.splits, "split", nil, "splits to test: random, model, family, gpu, model_gpu; by default all that apply")
	f.StringSliceVar(&o.with, "with", eval.DefaultTrainers(), "predictors to compare: "+strings.Join(eval.TrainerNames(), ", "))
	f.StringVar(&o.plot, "plot", "", "`DIR` for SVG plots of predictions against measurements, and of errors by split")
	f.Uint64Var(&o.seed, "seed", 1, "seed of the random split")
	console.AddFormat(cmd, &o.output, console.FormatTable, console.FormatJSON, console.FormatYAML)
	return cmd
}

func runModelEval(e *console.Env, o *evalOptions) error {
	if o.train == "" {
		return console.Usagef("--train is missing: give the directory of the data sets")
	}
	opt, err := o.parse()
	if err != nil {
		return err
	}
	note := func(s string) { e.Warnf("note: %s", console.Escape(s)) }
	loader := eval.Loader{Note: note}
	train, err := loader.Load(o.train)
	if err != nil {
		return fmt.Errorf("--train: %w", err)
	}
	var test []eval.Set
	if o.test != "" && o.test != o.train {
		if test, err = loader.Load(o.test); err != nil {
			return fmt.Errorf("--test: %w", err)
		}
	}
	results, err := eval.Run(train, test, opt)
	if err != nil {
		return fmt.Errorf("evaluate: %w", err)
	}
	if len(results) == 0 {
		note("nothing was scored: no data set has enough rows for these targets and splits")
	}
	if o.plot != "" {
		files, err := eval.Plot(o.plot, results)
		if err != nil {
			return fmt.Errorf("--plot: %w", err)
		}
		note(fmt.Sprintf("%d plots are in %s", len(files), o.plot))
	}
	report := eval.NewReport(results)
	if done, err := console.PrintList(e, console.Format(o.output), report); done {
		return err
	}
	printEval(e, report)
	scored := train
	if test != nil {
		scored = test
	}
	for i := range scored {
		if t := scored[i].SkippedText(); t != "" && (len(opt.Targets) == 0 || slices.Contains(opt.Targets, scored[i].Target)) {
			note(fmt.Sprintf("%s, %s: %d rows; left out: %s", scored[i].Dataset, scored[i].Target, len(scored[i].Rows), t))
		}
	}
	return nil
}

func (o *evalOptions) parse() (eval.Options, error) {
	opt := eval.Options{Seed: o.seed}
	for _, s := range o.targets {
		t, err := eval.ParseTarget(s)
		if err != nil {
			return opt, console.Usagef("--%s", err.Error())
		}
		opt.Targets = append(opt.Targets, t)
	}
	for _, s := range o.splits {
		sp, err := eval.ParseSplit(s)
		if err != nil {
			return opt, console.Usagef("--%s", err.Error())
		}
		opt.Splits = append(opt.Splits, sp)
	}
	for _, s := range o.with {
		t, err := eval.New(s)
		if err != nil {
			return opt, console.Usagef("--with: %s", err.Error())
		}
		opt.Trainers = append(opt.Trainers, t)
	}
	return opt, nil
}

func printEval(e *console.Env, r eval.Report) {
	t := &console.Table{Cols: []console.Column{
		{Head: "DATASET"}, {Head: "TARGET"}, {Head: "SPLIT"}, {Head: "WITH"}, {Head: "N", Right: true}, {Head: "TRAINED", Right: true},
		{Head: "MAPE", Right: true}, {Head: "MEDIAN", Right: true}, {Head: "P90", Right: true}, {Head: "RMSLE", Right: true}, {Head: "UNDER", Right: true},
		{Head: "P95_COVERS", Right: true}, {Head: "P95_WASTE", Right: true}, {Head: "OOM", Right: true},
	}}
	for _, l := range r.Results {
		t.Add(l.Dataset, l.Target, l.Split, l.Trainer, strconv.Itoa(l.N), strconv.Itoa(l.TrainedN),
			percentFigure(l.MAPE), percentFigure(l.MedianAPE), percentFigure(l.P90APE), figure(l.RMSLE, 3), percentFigure(l.Under),
			percentFigure(l.P95Coverage), percentFigure(l.P95Waste), percentFigure(l.OOMRate))
	}
	t.Print(e)
}

func percentFigure(v *float64) string {
	if s := figure(v, 1); s != "-" {
		return s + "%"
	}
	return "-"
}

func figure(v *float64, digits int) string {
	if v == nil {
		return "-"
	}
	return strings.TrimSpace(strconv.FormatFloat(*v, 'f', digits, 64))
}
