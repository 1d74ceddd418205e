package slurmcmd

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berth-scheduler/berth/cmd/internal/batch"
	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/cli/jobcmd"
	"github.com/berth-scheduler/berth/cmd/internal/cli/jobspec"
	"github.com/berth-scheduler/berth/cmd/internal/sbatch"
	"github.com/berth-scheduler/berth/cmd/internal/slurm"
)

// Applet returns the arguments for Main, given the process's argument
// vector: called through a link named sbatch, the binary is sbatch.
func Applet(argv []string) []string {
	if len(argv) == 0 {
		return nil
	}
	if name := filepath.Base(argv[0]); slices.Contains(slurm.Commands(), name) {
		return append([]string{name}, argv[1:]...)
	}
	return argv[1:]
}

// NewSbatchCmd returns submit with the options, messages and exit codes of sbatch.
func NewSbatchCmd(e *console.Env, c *client.Client) *cobra.Command {
	return &cobra.Command{
		Use:                "sbatch [OPTIONS…] [SCRIPT [ARG…]]",
		Short:              "Submit a batch script, like Slurm's sbatch",
		Example:            sbatchExamples,
		Hidden:             true,
		DisableFlagParsing: true,
		Args:               cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			e.Prog = "sbatch"
			return asSbatch(runSbatch(cmd.Context(), e, c, args))
		},
	}
}

// asSbatch gives every failure of sbatch itself its exit code; that of an
// awaited job stays.
func asSbatch(err error) error {
	var exit *console.ExitError
	switch {
	case err == nil, errors.Is(err, console.ErrQuiet), console.Interrupted(err), errors.As(err, &exit) && (exit.Err == nil || exit.Code == exitOptions):
		return err
	case errors.As(err, &exit):
		return &console.ExitError{Code: console.ExitFailed, Err: exit.Err}
	}
	if u, ok := errors.AsType[*console.UsageError](err); ok {
		return &console.ExitError{Code: console.ExitFailed, Err: u.Err}
	}
	for _, own := range []error{sbatch.ErrEmpty, sbatch.ErrNoInterpreter, sbatch.ErrDOS, errWrapArgs} {
		if errors.Is(err, own) {
			return &console.ExitError{Code: console.ExitFailed, Err: own}
		}
	}
	return &console.ExitError{Code: console.ExitFailed, Err: sbatch.Message("Batch job submission failed: " + sbatch.InSlurmWords(err))}
}

var errWrapArgs = sbatch.Message("Script arguments not permitted with --wrap option")

// exitOptions is sbatch's exit code for options that cannot be parsed.
const exitOptions = 255

func runSbatch(ctx context.Context, e *console.Env, c *client.Client, args []string) error {
	words := make([]sbatch.Word, len(args))
	for i, a := range args {
		words[i].Text = a
	}
	set, faults, rest := sbatch.Scan(words, sbatch.FromCommandLine, jobspec.OwnOptions(), false)
	if len(faults) > 0 {
		hint := ""
		if fix := faults[0].Fix; fix != "" {
			hint = "; try " + strings.TrimSuffix(fix, "?")
		}
		return &console.ExitError{Code: exitOptions, Err: errors.New(faults[0].Msg + hint + "\nTry \"sbatch --help\" for more information")}
	}
	// What the command line alone determines, before any script is read.
	first, _ := sbatch.Resolve(set, nil)
	switch {
	case first.Help:
		e.Printf("%s\n%sExamples:\n%s\n", sbatchHelp, sbatch.OptionsHelp(), sbatchExamples)
		return nil
	case first.Version:
		e.Printf("%s\n", slurm.Versioned)
		return nil
	}
	o := &jobcmd.SubmitOptions{Count: "1", RequestID: batch.TakeID(e.Getenv)}
	o.Slurm.Set = set
	var script []string
	for _, w := range rest {
		script = append(script, w.Text)
	}
	if len(script) > 0 && first.Wrapped {
		return errWrapArgs
	}
	if len(script) == 0 && !first.Wrapped {
		script = []string{"-"}
	}
	return jobcmd.RunSubmit(ctx, e, c, o, script, -1)
}

const sbatchHelp = `Usage: sbatch [OPTIONS...] [SCRIPT [ARGS...]]

Accepts the options of Slurm's sbatch 22.05 and submits to Berth. What is not honoured is
reported on standard error (-v: also what is; -Q: nothing), and by "berth lint SCRIPT".
Berth's own options, listed by "berth submit --help", are accepted as well.
`

const sbatchExamples = "  berth sbatch -G 1 -t 2:00:00 train.sh\n" +
	"  ln -s /usr/bin/berth-sbatch /usr/local/bin/sbatch && sbatch train.sh"
