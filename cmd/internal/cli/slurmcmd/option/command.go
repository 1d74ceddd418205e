package option

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/sbatch"
	"github.com/berth-scheduler/berth/cmd/internal/slurm"
)

// Command returns one of Slurm's commands: with its own options, messages
// and exit codes, whether it is called through a link or as a subcommand.
func Command(e *console.Env, use, short, example string, flags func(*pflag.FlagSet), run func(context.Context, []string) error) *cobra.Command {
	name, _, _ := strings.Cut(use, " ")
	fs := pflag.NewFlagSet(name, pflag.ContinueOnError)
	fs.SortFlags = false
	fs.Usage = func() {} // -h is answered below
	help := fs.Bool("help", false, "show this text")
	about := fs.BoolP("version", "V", false, "show the version")
	flags(fs)
	var usage *bool
	if fs.Lookup("usage") == nil {
		usage = fs.Bool("usage", false, "the same as --help")
	}
	cmd := &cobra.Command{
		Use: use, Short: short, Example: example, Hidden: true, DisableFlagParsing: true, Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			e.Prog = name
			err := fs.Parse(spelled(fs, args))
			if errors.Is(err, pflag.ErrHelp) { // -h, unless it is an option of its own
				*help = true
			} else if err != nil {
				return AsSlurm(e, Bare(fmt.Sprintf("%s: %s\nTry \"%s --help\" for more information", name, optionFault(err, fs), name)))
			}
			switch {
			case *help || usage != nil && *usage:
				e.Printf("Usage: %s\n\n%s.\n\n%s\nExamples:\n%s\n", use, short, fs.FlagUsages(), example)
				return nil
			case *about:
				e.Printf("%s\n", slurm.Versioned)
				return nil
			}
			if err := settleOptions(e, fs); err != nil {
				return AsSlurm(e, err)
			}
			e.Printf("%s", heading(fs))
			return AsSlurm(e, unreached(name, run(cmd.Context(), fs.Args())))
		},
	}
	cmd.Flags().AddFlagSet(fs)
	return cmd
}

// optionFault returns getopt's message for an option that cannot be parsed.
func optionFault(err error, fs *pflag.FlagSet) string {
	if n, ok := errors.AsType[*pflag.NotExistError](err); ok {
		if short := n.GetSpecifiedShortnames(); short != "" {
			return fmt.Sprintf("invalid option -- '%s'", n.GetSpecifiedName())
		}
		return fmt.Sprintf("unrecognized option '--%s'%s", n.GetSpecifiedName(), optionLike(n.GetSpecifiedName(), fs))
	}
	return err.Error()
}

// optionLike suggests an option for one that does not exist.
func optionLike(name string, fs *pflag.FlagSet) string {
	var known []string
	fs.VisitAll(func(f *pflag.Flag) { known = append(known, "--"+f.Name) })
	return console.DidYouMean("--"+name, known)
}

// Bare is an error that Slurm prints without the command's name.
type Bare string

// Error implements error.
func (b Bare) Error() string { return string(b) }

// loads is the prefix of read-only commands' messages when nothing answers.
var loads = map[string]string{"squeue": "slurm_load_jobs error", "scancel": "scancel: error", "sinfo": "slurm_load_partitions", "scontrol": "scontrol: error"}

// unreached returns an error in Slurm's words, if it means that no coordinator answers.
func unreached(name string, err error) error {
	ce, ok := errors.AsType[*cluster.Error](err)
	if first := loads[name]; ok && ce.Code == cluster.CodeUnavailable && first != "" {
		return Bare(first + ": " + sbatch.InSlurmWords(ce))
	}
	return err
}

// Coded is an error with its own exit code.
type Coded struct {
	Code int
	Msg  string
}

// Error implements error.
func (c Coded) Error() string { return c.Msg }

// AsSlurm gives failures the exit code of Slurm's commands, which is 1.
func AsSlurm(e *console.Env, err error) error {
	var exit *console.ExitError
	var b Bare
	var own Coded
	switch {
	case errors.As(err, &own):
		fmt.Fprintln(e.Stderr, own.Msg)
		return &console.ExitError{Code: own.Code}
	case errors.As(err, &b):
		fmt.Fprintln(e.Stderr, string(b))
		return &console.ExitError{Code: console.ExitFailed}
	case err == nil, errors.Is(err, console.ErrQuiet), console.Interrupted(err):
		return err
	case errors.As(err, &exit):
		return &console.ExitError{Code: console.ExitFailed, Err: exit.Err}
	}
	return &console.ExitError{Code: console.ExitFailed, Err: err}
}

// AddsUp adds an option with a list, to which every use of the option
// appends, as in sacct. In Slurm's other commands the last use wins.
func AddsUp(fs *pflag.FlagSet, to *string, name, short, usage string) {
	fs.VarP((*growing)(to), name, short, usage)
}

// growing is the value of an option whose uses accumulate.
type growing string

func (g *growing) String() string { return string(*g) }
func (g *growing) Type() string   { return "string" }

// Set implements pflag.Value.
func (g *growing) Set(s string) error {
	if *g != "" && s != "" {
		s = "," + s
	}
	*g += growing(s)
	return nil
}

// List splits the list of an option at commas or blanks.
func List(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ' ' })
}

// JobNumbers reads ids; those of arrays and steps count as their job's.
func JobNumbers(list, fault string) ([]uint64, error) {
	var out []uint64
	for _, s := range List(list) {
		id, err := JobNumber(s)
		if err != nil {
			return nil, fmt.Errorf(fault, s)
		}
		out = append(out, id)
	}
	return out, nil
}

// JobNumber reads an id; that of a task or a step counts as its job's.
func JobNumber(s string) (uint64, error) {
	s, _, _ = strings.Cut(s, ".")
	s, _, _ = strings.Cut(s, "_")
	return strconv.ParseUint(s, 10, 63)
}
