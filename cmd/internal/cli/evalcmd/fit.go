package evalcmd

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/safefile"
	"github.com/berth-scheduler/berth/model"
	"github.com/berth-scheduler/berth/model/eval"
	"github.com/berth-scheduler/berth/model/learn"
)

type fitOptions struct {
	train string
	only  []string
	out   string
	seed  uint64
}

func newModelFitCmd(e *console.Env) *cobra.Command {
	var o fitOptions
	cmd := &cobra.Command{
		Use:   "fit --train DIR FILE",
		Short: "Train a model on data sets of measured runs",
		Long: "Train a model on data sets of measured runs, laid out as for berth model eval, and write it to FILE.\n" +
			"Equal data give an equal file on every machine. Give the file to a cluster with berth model import.",
		Example: "  berth model fit --train data ours.weights\n" +
			"  berth model fit --train data --only schedtune,neusight,litgpt,timm_speed default.weights",
		Args: console.OneArg("file to write"),
		RunE: func(_ *cobra.Command, args []string) error {
			o.out = args[0]
			return runModelFit(e, &o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.train, "train", "", "`DIR` of the data sets to learn from")
	f.StringSliceVar(&o.only, "only", nil, "names of the data sets to learn from; by default all")
	f.Uint64Var(&o.seed, "seed", 0, "seed for sampling rows")
	return cmd
}

func runModelFit(e *console.Env, o *fitOptions) error {
	if o.train == "" {
		return console.Usagef("--train is missing: give the directory of the data sets")
	}
	loader := eval.Loader{Note: func(s string) { e.Warnf("note: %s", console.Escape(s)) }}
	sets, err := loader.Load(o.train)
	if err != nil {
		return fmt.Errorf("--train: %w", err)
	}
	if sets, err = pickSets(sets, o.only); err != nil {
		return err
	}
	samples := eval.Samples(sets)
	w, err := learn.Fit(samples, model.CoreWeights(), learn.Options{Seed: o.seed})
	if err != nil {
		return fmt.Errorf("learn from %d samples: %w", len(samples), err)
	}
	blob := w.Encode()
	if err := safefile.Replace(o.out, blob, 0o644); err != nil {
		return fmt.Errorf("write %s: %w", o.out, err)
	}
	t := &console.Table{Cols: []console.Column{
		{Head: "TARGET"}, {Head: "SAMPLES", Right: true}, {Head: "GROUPS", Right: true}, {Head: "TYPES", Right: true}, {Head: "TREES", Right: true},
		{Head: "MARGIN", Right: true}, {Head: "NEW_FAMILY", Right: true}, {Head: "NEW_TYPE", Right: true},
	}}
	for _, target := range model.Targets() {
		l := &w.Learned[target]
		if len(l.Groups) == 0 {
			continue
		}
		row := []string{target.String(), strconv.FormatInt(l.Samples, 10), strconv.Itoa(len(l.Groups)), strconv.Itoa(len(l.Types)), strconv.Itoa(l.Forest.Trees())}
		for _, m := range l.Margins {
			row = append(row, fmt.Sprintf("x%.2f", math.Exp(m)))
		}
		t.Add(row...)
	}
	t.Print(e)
	e.Warnf("%d bytes, checksum %08x, are in %s", len(blob), w.Checksum(), o.out)
	return nil
}

// pickSets keeps only the named data sets.
func pickSets(sets []eval.Set, only []string) ([]eval.Set, error) {
	if len(only) == 0 {
		return sets, nil
	}
	var names []string
	for i := range sets {
		if !slices.Contains(names, sets[i].Dataset) {
			names = append(names, sets[i].Dataset)
		}
	}
	for _, n := range only {
		if !slices.Contains(names, n) {
			return nil, console.Usagef("--only: data set %q: must be one of %s", n, strings.Join(names, ", "))
		}
	}
	return slices.DeleteFunc(sets, func(s eval.Set) bool { return !slices.Contains(only, s.Dataset) }), nil
}
