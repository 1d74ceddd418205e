package importcmd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/slurmconf"
)

// Runner runs a command of berth as if it had been typed.
type Runner func(ctx context.Context, args []string) error

// NewImportCmd returns the command import.
func NewImportCmd(e *console.Env, c *client.Client, run Runner) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "import",
		Short:   "Import another scheduler's setup",
		Example: "  berth import slurm --conf /etc/slurm/slurm.conf",
	}
	cmd.AddCommand(newSlurmCmd(e, c, run))
	return cmd
}

// DefaultConf is where Slurm's packages look for slurm.conf.
const DefaultConf = "/etc/slurm/slurm.conf"

type slurmOptions struct {
	files      slurmconf.Files
	partitions []string
	script     string
	output     string
	all        bool
	apply      bool
	sacct      string
	gpuType    string
}

func newSlurmCmd(e *console.Env, c *client.Client, run Runner) *cobra.Command {
	var o slurmOptions
	cmd := &cobra.Command{
		Use:   "slurm [flags]",
		Short: "Import a Slurm site's partitions, limits and history",
		Long: "Read slurm.conf and gres.conf and report what is imported and what is dropped, with line, key and\n" +
			"reason; then list the commands that set up the same here, and what agent.yaml should say on each kind\n" +
			"of node. Nothing is changed without --apply, which runs these commands; Slurm's own files are only\n" +
			"read. Runs from a history (--sacct) help predict jobs of the same owner and name that have not run\n" +
			"here yet, as far as Slurm measured them.",
		Example: "  berth import slurm\n" +
			"  berth import slurm --conf slurm.conf --gres gres.conf --partition gpu --script setup.sh\n" +
			"  sacctmgr dump tux file=tux.dump; sacctmgr -P show qos > qos.txt\n" +
			"  berth import slurm --dump tux.dump --qos qos.txt --apply\n" +
			"  " + strings.ReplaceAll(slurmconf.SacctCommand, " -o ", " -o \\\n    ") + " >jobs.txt\n" +
			"  berth import slurm --sacct jobs.txt --apply",
		Args: console.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runSlurm(cmd.Context(), e, c, &o, run) },
	}
	fs := cmd.Flags()
	fs.StringVar(&o.files.Conf, "conf", DefaultConf, "slurm.conf; included `FILE`s are read too")
	fs.StringVar(&o.files.Gres, "gres", "", "gres.conf; by default the `FILE` next to slurm.conf, if there is one")
	fs.StringVar(&o.files.Topology, "topology", "", "topology.conf, to report what is dropped from the `FILE`")
	fs.StringVar(&o.files.Dump, "dump", "", "list the commands for the accounts and users in a `FILE` from sacctmgr dump")
	fs.StringVar(&o.files.QOS, "qos", "", "list the commands for the QOS in a `FILE` from sacctmgr -P show qos")
	fs.StringVar(&o.sacct, "sacct", "", "teach the predictor the jobs in a `FILE` from sacct -P")
	fs.StringVar(&o.gpuType, "gpu-type", "", "GPU `TYPE` in this cluster for jobs whose history does not name one")
	fs.StringArrayVar(&o.partitions, "partition", nil, "only the partition `NAME`; repeatable")
	fs.StringVar(&o.script, "script", "", "write the commands to this `FILE`; - prints only them, on standard output")
	fs.BoolVar(&o.all, "all", false, "also show what is imported, key by key")
	fs.BoolVar(&o.apply, "apply", false, "run the commands")
	console.AddFormat(cmd, &o.output, console.FormatTable, console.FormatJSON, console.FormatYAML)
	fs.SortFlags = false
	return cmd
}

func runSlurm(ctx context.Context, e *console.Env, c *client.Client, o *slurmOptions, run Runner) error {
	if o.apply && (console.Format(o.output) != console.FormatTable || o.script == "-") {
		return console.Usagef("--apply: prints the commands' output; leave out -o and --script -")
	}
	s, err := readSite(o)
	if err != nil {
		return err
	}
	history, err := readHistory(o.sacct)
	if err != nil {
		return err
	}
	for _, name := range o.partitions {
		if !slices.ContainsFunc(s.Partitions, func(p slurmconf.Partition) bool { return p.Name == name }) {
			return &console.ExitError{Code: console.ExitNotFound, Err: fmt.Errorf("--partition %s: not in %s", console.ShortQuote(name), o.files.Conf)}
		}
	}
	steps := s.Steps(o.partitions)
	if o.script != "" {
		if err := writeScript(e, o, steps); err != nil || o.script == "-" {
			return err
		}
	}
	done, err := console.PrintList(e, console.Format(o.output), viewSite(s, steps, viewHistory(o.sacct, history)))
	if done || err != nil {
		return err
	}
	printSite(e, s, steps, o)
	printHistory(e, o.sacct, history)
	if !o.apply {
		return nil
	}
	if err := apply(ctx, e, steps, run); err != nil || history == nil {
		return err
	}
	return learn(ctx, e, c, history, o.gpuType)
}

// readSite reads the files that the options name.
func readSite(o *slurmOptions) (*slurmconf.Site, error) {
	if o.files.Gres == "" {
		beside := filepath.Join(filepath.Dir(o.files.Conf), "gres.conf")
		if _, err := os.Stat(beside); err == nil {
			o.files.Gres = beside
		}
	}
	open := func(name string) ([]byte, error) { return console.ReadBounded(name, slurmconf.MaxFile) }
	s, err := slurmconf.Read(open, o.files)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, &console.ExitError{Code: console.ExitNotFound, Err: err}
	case err != nil:
		return nil, &console.ExitError{Code: console.ExitFailed, Err: err}
	}
	return s, nil
}

// apply runs the commands, and continues after those that need a node which
// has not joined yet.
func apply(ctx context.Context, e *console.Env, steps []slurmconf.Step, run Runner) error {
	e.Printf("\n")
	failed := 0
	for i, step := range steps {
		err := run(ctx, step.Args)
		switch {
		case err == nil:
		case step.Later && ctx.Err() == nil:
			failed++
			e.Warnf("%s: %v; run it again once the node has joined: %s", console.Escape(step.Why), err, console.Escape(step.String()))
		default:
			e.Warnf("%s: %d of %d commands were run; running all of them again is safe", console.Escape(step.String()), i, len(steps))
			return err
		}
	}
	if failed > 0 {
		e.Warnf("%d of %d commands must be run again later", failed, len(steps))
	}
	return nil
}

// writeScript writes the commands as a shell script.
func writeScript(e *console.Env, o *slurmOptions, steps []slurmconf.Step) error {
	var b strings.Builder
	fmt.Fprintf(&b, "#!/bin/sh\n# Made by berth import slurm from %s. Read it before you run it.\nset -e\n", o.files.Conf)
	later := false
	for _, s := range steps {
		if s.Later && !later {
			b.WriteString("\n# These need the node: run them once its agent has joined.\nset +e\n")
			later = true
		}
		b.WriteString(s.String() + "\n")
	}
	if o.script == "-" {
		e.Printf("%s", b.String())
		return nil
	}
	if err := os.WriteFile(o.script, []byte(b.String()), 0o755); err != nil {
		return &console.ExitError{Code: console.ExitFailed, Err: fmt.Errorf("--script: %w", err)}
	}
	return nil
}
