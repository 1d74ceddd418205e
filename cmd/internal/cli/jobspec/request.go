package jobspec

import (
	"errors"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/batch"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
)

// defaultOutput is where standard output goes when the user names no file,
// defaultTaskOutput the same for the tasks of an array.
const (
	defaultOutput     = "berth-%j.out"
	defaultTaskOutput = "berth-%A_%a.out"
)

// FromArgs reads the spec file, the flags and the command of a submit or
// predict. dash is the index of -- in args, or -1. A FILE argument ends in
// .yaml or .yml.
func (r *Request) FromArgs(e *console.Env, file string, args []string, dash int) error {
	before, command := args, []string(nil)
	if dash >= 0 {
		before, command = args[:dash], args[dash:]
	}
	if len(before) > 0 && IsScript(before[0]) && file == "" {
		if err := r.fromScript(e, before[0], args[1:]); err != nil {
			return noScript(args, err)
		}
		return r.ApplyFlags()
	}
	if len(r.Slurm.Set) > 0 {
		if err := r.resolveSlurm(e, "", nil); err != nil {
			return err
		}
		if r.Slurm.Asked.Wrapped {
			if len(args) > 0 || file != "" {
				return console.Usagef("--wrap: there is already another command, %s", console.ShortQuote(max(file, strings.Join(args, " "))))
			}
			if err := failedPlace(r.Wrap(caller(e), r.Slurm.Asked)); err != nil {
				return err
			}
			return r.ApplyFlags()
		}
	}
	for _, a := range before {
		if IsScript(a) {
			return console.Usagef("argument %s: put the command after --, such as: -- %s", console.ShortQuote(a), console.Escape(strings.Join(before, " ")))
		}
		if file != "" {
			return console.Usagef("spec file %s: there is already another, %s", console.ShortQuote(a), console.ShortQuote(file))
		}
		file = a
	}
	if file != "" {
		fromFile, err := readSpecFile(e, r, file)
		if err != nil {
			return err
		}
		r.Spec.Command = fromFile
	}
	if err := r.ApplyFlags(); err != nil {
		return err
	}
	if file == "-" && r.Run.features == "-" {
		return console.Usagef("--features: standard input is already the spec file; give the features in a file")
	}
	if dash >= 0 && len(command) == 0 {
		return console.Usagef("the command after -- is missing, such as: -- python train.py")
	}
	if len(command) > 0 {
		r.Spec.Command = command
	}
	return nil
}

// Complete fills in what was left open from the caller's environment and
// checks the result as the server will. Warnings are for standard error.
func (r *Request) Complete(e *console.Env) (warnings []string, err error) {
	if warnings, err = r.Fill(e); err != nil {
		return nil, err
	}
	if err := r.Spec.Check(); err != nil {
		return nil, console.Usagef("%w", err)
	}
	return warnings, nil
}

// Fill is Complete without the check, for a result that may be only a part.
func (r *Request) Fill(e *console.Env) (warnings []string, err error) {
	s := &r.Spec
	if len(s.Command) == 0 {
		return nil, console.Usagef("the command is missing; put it after --, such as: -- python train.py, or name a spec file")
	}
	if s.Name == "" {
		s.Name = defaultName(s.Command[0])
	}
	r.ImpliedGPUs()
	if s.Stdout == "" {
		s.Stdout = defaultOutput
		if s.Array != nil {
			s.Stdout = defaultTaskOutput
		}
	}
	if warnings, err = r.Settle(caller(e)); err != nil {
		return nil, placed(err)
	}
	more, err := r.readModel(e)
	if err != nil {
		return nil, err
	}
	warnings = append(warnings, more...)
	for _, f := range [...]struct{ flag, v string }{{"image", s.Image}, {"comment", s.Comment}} {
		if !utf8.ValidString(f.v) { // the wire format cannot carry it
			return nil, console.Usagef("--%s %s: not valid UTF-8", f.flag, console.ShortQuote(f.v))
		}
	}
	if err := errors.Join(r.require(), r.Place()); err != nil {
		return nil, console.Usagef("%w", err)
	}
	if r.slowdown != nil {
		if s.Power.Cap, err = s.Power.Cap.WithSlowdown(*r.slowdown); err != nil {
			return nil, console.Usagef("%w", err)
		}
	}
	s.Retry.Times = int(r.retries)
	return warnings, nil
}

// ImpliedGPUs gives a job one GPU when any GPU option was given.
func (r *Request) ImpliedGPUs() { r.Job.ImpliedGPUs(r.Run.named()) }

// caller returns e in the form that package batch uses.
func caller(e *console.Env) *batch.Caller {
	return &batch.Caller{Getwd: e.Getwd, Hostname: e.Hostname, Environ: e.Environ, Now: e.Now}
}

// placed gives an error of package batch its exit code.
func placed(err error) error {
	if _, ok := errors.AsType[*batch.PlaceError](err); ok {
		return &console.ExitError{Code: console.ExitFailed, Err: err}
	}
	return console.Usagef("%w", err)
}

// defaultName returns the program's base name, or "job" if that is not a valid name.
func defaultName(program string) string {
	name := filepath.Base(program)
	if cluster.CheckJobName(name) != nil {
		return "job"
	}
	return name
}

// SpecArgs are the flags and arguments that submit and predict share.
type SpecArgs struct {
	Request
	File string
}

// Register adds the flags of every field to cmd.
func (a *SpecArgs) Register(cmd *cobra.Command) {
	addFields(cmd.Flags(), &a.Request)
	cmd.Flags().StringVar(&a.File, "spec", "", "read the job from this YAML `FILE`; - is standard input; flags override it")
	cmd.Flags().SortFlags = false
	cmd.Args = cobra.ArbitraryArgs
}

// Read calls FromArgs and Complete, and prints the warnings.
func (a *SpecArgs) Read(e *console.Env, args []string, dash int) error {
	if err := a.FromArgs(e, a.File, args, dash); err != nil {
		return err
	}
	warnings, err := a.Complete(e)
	if err != nil {
		return err
	}
	for _, w := range warnings {
		e.Warnf("warning: %s", console.Escape(w))
	}
	return nil
}
