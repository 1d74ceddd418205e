package cli

import (
	"fmt"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/slurm"
)

// defaultOutput is where standard output goes when the user names no file.
const defaultOutput = "berth-%j.out"

// fromArgs reads the spec file, the flags and the command of a submit or
// predict. dash is where -- stood in args, or -1. A FILE argument ends in
// .yaml or .yml.
func (r *request) fromArgs(e *Env, file string, args []string, dash int) error {
	before, command := args, []string(nil)
	if dash >= 0 {
		before, command = args[:dash], args[dash:]
	}
	if len(before) > 0 && isScript(before[0]) && file == "" {
		if err := r.fromScript(e, before[0], args[1:]); err != nil {
			return noScript(args, err)
		}
		return r.applyFlags()
	}
	if len(r.slurm.set) > 0 {
		if err := r.resolveSlurm(e, "", nil); err != nil {
			return err
		}
		if r.slurm.asked.Wrapped {
			if len(args) > 0 || file != "" {
				return Usagef("--wrap: there is another command already, %s", shortQuote(max(file, strings.Join(args, " "))))
			}
			if err := r.fromWrap(e); err != nil {
				return err
			}
			return r.applyFlags()
		}
	}
	for _, a := range before {
		if isScript(a) {
			return Usagef("argument %s: put the command after --, such as: -- %s", shortQuote(a), escape(strings.Join(before, " ")))
		}
		if file != "" {
			return Usagef("spec file %s: another one, %s, is there already", shortQuote(a), shortQuote(file))
		}
		file = a
	}
	if file != "" {
		fromFile, err := readSpecFile(e, r, file)
		if err != nil {
			return err
		}
		r.spec.Command = fromFile
	}
	if err := r.applyFlags(); err != nil {
		return err
	}
	if file == "-" && r.run.features == "-" {
		return Usagef("--features: standard input is the spec file already; give the features in a file")
	}
	if dash >= 0 && len(command) == 0 {
		return Usagef("the command after -- is missing, such as: -- python train.py")
	}
	if len(command) > 0 {
		r.spec.Command = command
	}
	return nil
}

// complete fills what was left open from the caller's surroundings and checks
// the result as the server will. Warnings are for standard error.
func (r *request) complete(e *Env) (warnings []string, err error) {
	s := &r.spec
	if len(s.Command) == 0 {
		return nil, Usagef("the command is missing; put it after --, such as: -- python train.py, or name a spec file")
	}
	if s.Name == "" {
		s.Name = defaultName(s.Command[0])
	}
	r.impliedGPUs()
	if err := r.setDir(e); err != nil {
		return nil, err
	}
	if s.Stdout == "" {
		s.Stdout = defaultOutput
	}
	if at, ok := slurm.ParseTime(r.begin, e.Now()); ok && at.After(e.Now()) {
		s.Begin = cluster.TimeOf(at) // what has passed is now
	}
	if at, ok := slurm.ParseDeadline(r.deadline, e.Now()); ok {
		s.Deadline, s.DeadlineIn = cluster.TimeOf(at), 0
	}
	if s.Env, warnings, err = jobEnv(e.Environ(), r.export, r.env); err != nil {
		return nil, err
	}
	more, err := r.readModel(e)
	if err != nil {
		return nil, err
	}
	warnings = append(warnings, more...)
	for _, f := range [...]struct{ flag, v string }{{"image", s.Image}, {"comment", s.Comment}} {
		if !utf8.ValidString(f.v) { // the wire cannot carry it
			return nil, Usagef("--%s %s: is not UTF-8", f.flag, shortQuote(f.v))
		}
	}
	s.Nodes, s.Tasks = int(r.nodes), int(r.tasks)
	if err := s.Check(); err != nil {
		return nil, Usagef("%w", err)
	}
	return warnings, nil
}

// impliedGPUs gives a job one GPU when anything about one was said.
func (r *request) impliedGPUs() {
	s := &r.spec
	if !r.gpus && (s.Exclusive || s.GPUType != "" || s.GPUMemMiB > 0 || s.GPUMilli > 0 || r.run.named()) {
		s.GPUs = 1
	}
}

func (r *request) setDir(e *Env) error {
	if filepath.IsAbs(r.spec.Dir) {
		r.spec.Dir = filepath.Clean(r.spec.Dir)
		return nil
	}
	wd, err := e.Getwd()
	if err != nil {
		return &ExitError{ExitFailed, fmt.Errorf("this directory cannot be named (%w); go to another one, or give one with --chdir", err)}
	}
	r.spec.Dir = filepath.Join(wd, r.spec.Dir)
	return nil
}

// defaultName is the program's base name, or "job" when that may not name one.
func defaultName(program string) string {
	name := filepath.Base(program)
	if cluster.CheckJobName(name) != nil {
		return "job"
	}
	return name
}

// specArgs are the flags and arguments that submit and predict share.
type specArgs struct {
	request
	file string
}

func (a *specArgs) register(cmd *cobra.Command) {
	addFields(cmd.Flags(), &a.request)
	cmd.Flags().StringVar(&a.file, "spec", "", "read the job from this YAML `FILE`; - is standard input. Flags win over it")
	cmd.Flags().SortFlags = false
	cmd.Args = cobra.ArbitraryArgs
}

// read does fromArgs and complete, and prints the warnings.
func (a *specArgs) read(e *Env, args []string, dash int) error {
	if err := a.fromArgs(e, a.file, args, dash); err != nil {
		return err
	}
	warnings, err := a.complete(e)
	if err != nil {
		return err
	}
	for _, w := range warnings {
		e.warnf("warning: %s", escape(w))
	}
	return nil
}
