package modelcmd

import (
	"context"
	"errors"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/cli/jobspec"
	"github.com/berth-scheduler/berth/cmd/internal/tracer"
	"github.com/berth-scheduler/berth/cmd/internal/units"
	"github.com/berth-scheduler/berth/model/graph"
)

// traceOptions are the flags of berth features trace.
type traceOptions struct {
	cfg                  tracer.Config
	factory              string
	precision, optimizer string
	memory, output       string
	verbose              bool
}

// newTraceCmd traces a program's first training step on this machine's CPU.
func newTraceCmd(e *console.Env) *cobra.Command {
	var o traceOptions
	cmd := &cobra.Command{
		Use:   "trace (SCRIPT | --factory MODULE:FUNCTION) [ARGUMENT]...",
		Short: "Run a PyTorch program's first step and show what it needs",
		Long: "Run a PyTorch program on this machine's CPU through its first training step, and show what that needs.\n" +
			"The program runs as you, with your files and network but without GPUs; then it is killed with everything\n" +
			"it started. It computes with the batch it is given, so large ones may be slow.\n" +
			"\n" +
			"With --factory, one function of the program runs instead: it returns the model and its inputs, and\n" +
			"optionally a function from the model's output to the loss, and an optimizer or its name. It is called\n" +
			"with batch and seq_len if it accepts them and they are given. Where PyTorch can, the model is traced by\n" +
			"shapes alone, which is fast and takes no memory, however large the model.",
		Example: "  berth features trace train.py --epochs 1\n  berth features trace --timeout 5m --python ~/env/bin/python train.py\n" +
			"  berth features trace --factory mymodel:make --batch 32 --optimizer adamw -o json",
		Args: func(_ *cobra.Command, args []string) error {
			if o.factory == "" && len(args) == 0 {
				return console.Usagef("the script is missing, such as: berth features trace train.py; or give a function with --factory")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return runTrace(cmd.Context(), e, &o, args) },
	}
	f := cmd.Flags()
	f.SetInterspersed(false) // what follows the script belongs to the script
	f.StringVar(&o.factory, "factory", "", "trace the model that this `MODULE:FUNCTION`, or FILE.py:FUNCTION, returns")
	f.StringVar(&o.cfg.Python, "python", "python3", "Python `INTERPRETER` to use")
	f.DurationVar(&o.cfg.Timeout, "timeout", time.Minute, "give up after this `TIME`")
	f.StringVar(&o.memory, "memory", "", "limit each process to this `SIZE` of address space, such as 32G")
	f.Int64Var(&o.cfg.Batch, "batch", 0, "`SAMPLES` per step, if the model's input does not tell")
	f.Int64Var(&o.cfg.SeqLen, "seq-len", 0, "`TOKENS` per sample, likewise")
	f.StringVar(&o.precision, "precision", "", "number `FORMAT`, instead of the one observed: "+console.Joined(graph.Precisions()))
	f.StringVar(&o.optimizer, "optimizer", "", "`OPTIMIZER`, instead of the one observed: "+console.Joined(graph.Optimizers()))
	f.BoolVar(&o.cfg.Inference, "inference", false, "trace only a forward pass")
	f.BoolVar(&o.cfg.Values, "values", false, "with --factory, compute with actual values, not only shapes")
	f.BoolVarP(&o.verbose, "verbose", "v", false, "copy the program's output to standard error")
	f.SortFlags = false
	console.AddFormat(cmd, &o.output, console.FormatTable, console.FormatJSON, console.FormatYAML)
	return cmd
}

// complete turns flags and arguments into what to trace.
func (o *traceOptions) complete(e *console.Env, args []string) error {
	c := &o.cfg
	c.Target, c.Args = o.factory, args
	if c.Factory = o.factory != ""; !c.Factory {
		c.Target, c.Args = args[0], args[1:]
	}
	if c.Precision = graph.Precision(o.precision); o.precision != "" && !slices.Contains(graph.Precisions(), c.Precision) {
		return console.Usagef("--precision %s: want one of %s", console.ShortQuote(o.precision), console.Joined(graph.Precisions()))
	}
	if c.Optimizer = graph.Optimizer(o.optimizer); o.optimizer != "" && !slices.Contains(graph.Optimizers(), c.Optimizer) {
		return console.Usagef("--optimizer %s: want one of %s", console.ShortQuote(o.optimizer), console.Joined(graph.Optimizers()))
	}
	if c.Inference && o.optimizer != "" {
		return console.Usagef("--optimizer and --inference: inference has no optimizer")
	}
	if o.memory != "" {
		mib, err := units.ParseMiB(o.memory)
		if err != nil {
			return console.Usagef("--memory: %w", err)
		}
		c.MemBytes = mib << 20
	}
	if o.verbose {
		c.Output = e.Stderr
	}
	c.Env = e.Environ()
	var err error
	if c.Dir, err = e.Getwd(); err != nil {
		return err
	}
	if err := c.Validate(); err != nil {
		return console.Usagef("%w", err)
	}
	return nil
}

func runTrace(ctx context.Context, e *console.Env, o *traceOptions, args []string) error {
	if err := o.complete(e, args); err != nil {
		return err
	}
	r, err := tracer.Run(ctx, o.cfg)
	switch {
	case errors.Is(err, os.ErrNotExist), errors.Is(err, os.ErrPermission):
		return console.Usagef("%w", err)
	case err != nil:
		return err
	}
	sure, err := confidence(&r.Features)
	if err != nil {
		return err
	}
	v := jobspec.NewFeaturesView(&r.Features, sure, r.Notes)
	if done, err := console.PrintList(e, console.Format(o.output), v); done {
		return err
	}
	how := "with values, on the CPU"
	if r.Shapes {
		how = "by shapes alone"
	}
	peak := ""
	if v.TracedBytes > 0 {
		peak = console.BytesText(v.TracedBytes) + " (weights, gradients and activations at once)"
	}
	console.KeyValues(e, "", append(featureRows(&v), "Traced peak", peak, "Traced", how+", PyTorch "+r.Torch)...)
	for _, n := range r.Notes {
		e.Warnf("warning: %s", console.Escape(n))
	}
	return nil
}
