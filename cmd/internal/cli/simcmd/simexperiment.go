package simcmd

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/scheduler/sim/experiment"
	"github.com/berth-scheduler/berth/scheduler/sim/plot"
)

type experimentOptions struct {
	traces, colocation, plot, output, resize string
	quick, check                             bool
	plotFormats                              []string
}

func newSimExperimentCmd(e *console.Env) *cobra.Command {
	var o experimentOptions
	var about strings.Builder
	for _, x := range experiment.All() {
		fmt.Fprintf(&about, "\n  %-10s %s", x.Name, x.About)
	}
	cmd := &cobra.Command{
		Use:   "experiment NAME [--traces DIR]",
		Short: "Reproduce a paper's evaluation, or measure the optimality gap",
		Long: "Reproduce a paper's evaluation and compare the results with its claims. The report says what had to\n" +
			"be assumed. The experiments:" + about.String(),
		Example: "  berth sim experiment yeung --traces ./traces\n  berth sim experiment openb --traces ./traces --quick -o json",
		Args:    console.OneArg("name of an experiment"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runExperiment(cmd.Context(), e, &o, args[0])
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.traces, "traces", "", "folder `DIR` with one subfolder per trace")
	f.StringVar(&o.colocation, "colocation", "", "folder `DIR` with the co-location speed tables; by default colocation next to the traces")
	f.BoolVar(&o.quick, "quick", false, "use fewer seeds and lists, enough to see the shape")
	f.StringVar(&o.resize, "resize", "off", "add variants of yeung and schedtune whose GPU shares follow use: `MODE` off, conservative or eager")
	f.BoolVar(&o.check, "check", false, "fail if a claim is not met")
	f.StringVar(&o.plot, "plot", "", "write plots of the comparison to the folder `DIR`")
	f.StringSliceVar(&o.plotFormats, "plot-format", []string{string(plot.SVG)}, "`FORMATS` of the plots: "+strings.Join(plot.Formats(), ", "))
	console.AddFormat(cmd, &o.output, console.FormatTable, console.FormatJSON, console.FormatYAML)
	return cmd
}

func runExperiment(ctx context.Context, e *console.Env, o *experimentOptions, name string) error {
	x, err := experiment.ByName(name)
	if err != nil {
		return console.Usagef("%s", err.Error())
	}
	if o.traces == "" && x.NeedsTraces() {
		return console.Usagef("--traces is missing; name the folder with the traces")
	}
	if o.colocation == "" {
		o.colocation = filepath.Join(o.traces, "..", "colocation")
	}
	if err := checkPlotFormats(o.plotFormats); err != nil {
		return err
	}
	mode, err := resizeMode(o.resize)
	if err != nil {
		return err
	}
	if mode != cluster.ResizeOff && name != "yeung" && name != "schedtune" {
		return console.Usagef("--resize: only yeung and schedtune have variants with it, not %s", name)
	}
	bar := newSimProgress(e, 1)
	defer bar.end()
	began := time.Now()
	c := experiment.Config{Traces: o.traces, Colocation: o.colocation, Quick: o.quick, Resize: mode, Clock: func() time.Duration { return time.Since(began) }}
	if bar.f != nil {
		c.Note = func(what string) { fmt.Fprintf(e.Stderr, "\r\x1b[K%s", what) }
	}
	rep, err := x.Run(ctx, c)
	if err != nil {
		return notFoundIfMissing(err)
	}
	bar.end()
	if err := o.plotBars(rep); err != nil {
		return err
	}
	done, err := console.PrintList(e, console.Format(o.output), rep)
	if err != nil {
		return err
	}
	if !done {
		printExperiment(e, rep)
	}
	return o.verdict(rep)
}

// verdict fails the command for claims that were not met, if requested.
func (o *experimentOptions) verdict(rep *experiment.Report) error {
	if !o.check {
		return nil
	}
	for _, c := range rep.Claims {
		if !c.Met {
			return fmt.Errorf("%s: %s: wanted %.4g, got %.4g", rep.Name, c.What, c.Want, c.Got)
		}
	}
	return nil
}

func printExperiment(e *console.Env, rep *experiment.Report) {
	e.Printf("%s\n\n", console.Escape(rep.Title))
	t := &console.Table{Cols: []console.Column{{Head: "VARIANT"}, {Head: "SEEDS", Right: true}}}
	for _, c := range rep.Columns {
		t.Cols = append(t.Cols, console.Column{Head: strings.ToUpper(c), Right: true})
	}
	for _, l := range rep.Lines {
		row := []string{l.Variant, strconv.Itoa(l.Seeds)}
		for _, c := range rep.Columns {
			row = append(row, meanCell(l, c))
		}
		t.Add(row...)
	}
	t.Print(e)
	e.Printf("\n")
	cl := &console.Table{Cols: []console.Column{{Head: "CLAIM"}, {Head: "WANTED", Right: true}, {Head: "GOT", Right: true}, {Head: "MET"}}}
	for _, c := range rep.Claims {
		cl.Add(c.What, strconv.FormatFloat(c.Want, 'f', 2, 64), strconv.FormatFloat(c.Got, 'f', 2, 64), map[bool]string{true: "yes", false: "no"}[c.Met])
	}
	cl.Print(e)
	e.Printf("\nassumed:\n")
	for _, a := range rep.Assumptions {
		e.Printf("- %s\n", console.Escape(a))
	}
}

// meanCell formats a mean with half of its 95 % interval.
func meanCell(l experiment.Line, c string) string { return meanCI(l.Mean, l.CI95, c) }

func meanCI(mean, half map[string]float64, c string) string {
	v, ok := mean[c]
	if !ok {
		return "-"
	}
	s := strconv.FormatFloat(v, 'f', digitsOf(v), 64)
	if ci := half[c]; ci > 0 {
		s += "±" + strconv.FormatFloat(ci, 'f', digitsOf(v), 64)
	}
	return s
}

func digitsOf(v float64) int {
	switch {
	case v >= 1000 || v <= -1000:
		return 0
	case v >= 10 || v <= -10:
		return 2
	}
	return 3
}
