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

// newTraceCmd watches a program's first training step on this machine's CPU.
func newTraceCmd(e *console.Env) *cobra.Command {
	var o traceOptions
	cmd := &cobra.Command{
		Use:   "trace (SCRIPT | --factory MODULE:FUNCTION) [ARGUMENT]...",
		Short: "Run a PyTorch program until its first step is over, and show what that needs",
		Long: "Run a PyTorch program on this machine's CPU until its first training step is over, and show what\n" +
			"that needs. The program runs as you, with your files and the network, but without GPUs; it and all that\n" +
			"it started are then killed. It computes with the batch that it is given, so it may be slow for large ones.\n\n" +
			"With --factory it is not the program that runs but one function of it, which returns the model and its\n" +
			"inputs, and if wanted a function from the model's output to the loss, and an optimizer or its name. It is\n" +
			"called with batch and seq_len, if it takes these and they are given. Where PyTorch can, it is traced by\n" +
			"shapes alone, which is fast and takes no memory for any size of model.",
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
	f.SetInterspersed(false) // what follows the script is the script's
	f.StringVar(&o.factory, "factory", "", "trace the model that this `MODULE:FUNCTION`, or FILE.py:FUNCTION, returns")
	f.StringVar(&o.cfg.Python, "python", "python3", "`INTERPRETER` to run it with")
	f.DurationVar(&o.cfg.Timeout, "timeout", time.Minute, "give up after this `TIME`")
	f.StringVar(&o.memory, "memory", "", "bound each process to this `SIZE` of address space, such as 32G")
	f.Int64Var(&o.cfg.Batch, "batch", 0, "`SAMPLES` a step, when it cannot be told from the model's input")
	f.Int64Var(&o.cfg.SeqLen, "seq-len", 0, "`TOKENS` a sample, likewise")
	f.StringVar(&o.precision, "precision", "", "number `FORMAT` instead of the one that was seen: "+console.Joined(graph.Precisions()))
	f.StringVar(&o.optimizer, "optimizer", "", "`OPTIMIZER` instead of the one that was seen: "+console.Joined(graph.Optimizers()))
	f.BoolVar(&o.cfg.Inference, "inference", false, "trace a forward pass alone")
	f.BoolVar(&o.cfg.Values, "values", false, "with --factory: compute with numbers, not with shapes alone")
	f.BoolVarP(&o.verbose, "verbose", "v", false, "pass on to standard error what the program prints")
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
