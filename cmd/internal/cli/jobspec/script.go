package jobspec

import (
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/sbatch"
	"github.com/berth-scheduler/berth/proto/conv/plainconv"
)

// slurmArgs are options in Slurm's terms, and how strictly they are taken.
type slurmArgs struct {
	Set    []sbatch.Setting
	strict bool
	quiet  bool
	// Asked is what script and options came to; nil before.
	Asked *sbatch.Request
	// Typed tells that the type of GPU is a name of Slurm's configuration.
	Typed bool
}

// Quiet reports whether its owner wants to hear no more of a job than its id.
func (s *slurmArgs) Quiet() bool { return s.quiet || s.Asked != nil && s.Asked.Quiet }

// slurmOutput is where a batch script's output goes when it does not say.
const slurmOutput = "slurm-%j.out"

// slurmTaskOutput is that of the tasks of an array.
const slurmTaskOutput = "slurm-%A_%a.out"

// RegisterSlurm adds the options of sbatch that are not Berth's own as well.
// They are not in --help, which would be twice as long for it.
func RegisterSlurm(fs *pflag.FlagSet, s *slurmArgs) {
	fs.BoolVar(&s.strict, "strict", false, "refuse a script or option of Slurm's that is neither honoured nor mapped")
	fs.BoolVarP(&s.quiet, "quiet", "Q", false, "do not say what becomes of each option of Slurm's")
	for _, o := range sbatch.SlurmOptions() {
		if fs.Lookup(o.Name) != nil || o.Name == "help" || o.Name == "version" {
			continue
		}
		short := ""
		if o.Short != 0 && fs.ShorthandLookup(string(o.Short)) == nil {
			short = string(o.Short)
		}
		f := fs.VarPF(&slurmFlag{o, s}, o.Name, short, "as sbatch has it")
		f.Hidden = true
		switch o.Arg {
		case sbatch.NoArg:
			f.NoOptDefVal = "true"
		case sbatch.MayArg:
			f.NoOptDefVal = noValue
		}
	}
}

// noValue stands for the value of an option that was given without one.
const noValue = "\x00"

// slurmFlag collects one of Slurm's options.
type slurmFlag struct {
	opt sbatch.Option
	to  *slurmArgs
}

// Set implements pflag.Value.
func (f *slurmFlag) Set(v string) error {
	if v == noValue || f.opt.Arg == sbatch.NoArg {
		v = ""
	}
	f.to.Set = append(f.to.Set, sbatch.Setting{Name: f.opt.Name, Value: v, From: sbatch.Origin{Source: sbatch.FromCommandLine}})
	return nil
}

// String implements pflag.Value.
func (f *slurmFlag) String() string { return "" }

// Type implements pflag.Value.
func (f *slurmFlag) Type() string {
	if f.opt.Arg == sbatch.NoArg {
		return "bool"
	}
	return "text"
}

// OwnOptions are Berth's flags as the package sbatch knows options.
func OwnOptions() []sbatch.Option {
	var out []sbatch.Option
	for _, f := range Fields() {
		o := sbatch.Option{Name: f.Name, Arg: sbatch.NeedsArg}
		if f.Short != "" {
			o.Short = f.Short[0]
		}
		if f.Kind == KindTruth {
			o.Arg = sbatch.MayArg
		}
		out = append(out, o)
	}
	return out
}

// fromScript makes the job of a batch script: name is the file, or "-" for
// standard input; args are the script's own.
func (r *Request) fromScript(e *console.Env, name string, args []string) error {
	data, path, err := loadScript(e, name)
	if err != nil {
		return err
	}
	script, err := sbatch.Read(data)
	switch {
	case err != nil && e.Prog != "": // in Slurm's words, and no more
		return err
	case err != nil:
		return refusal(name, err)
	}
	if err := r.resolveSlurm(e, name, script); err != nil {
		return err
	}
	if r.Slurm.Asked.Wrapped {
		return console.Usagef("--wrap: there is a script already, %s", console.ShortQuote(name))
	}
	if r.Spec.Script, err = plainconv.PackScript(data); err != nil {
		return err
	}
	r.tasks = 0 // they are those of its steps
	r.Spec.Command = append([]string{path}, args...)
	return r.scriptDefaults(e, filepath.Base(path))
}

// fromWrap makes the job of --wrap, as sbatch does: a script of one command.
func (r *Request) fromWrap(e *console.Env) error {
	wrap := r.Slurm.Asked.Wrap
	packed, err := plainconv.PackScript([]byte("#!/bin/sh\n# This script was created by sbatch --wrap.\n\n" + wrap + "\n"))
	if err != nil {
		return err
	}
	r.Spec.Script, r.Spec.Command, r.tasks = packed, []string{wrap}, 0
	return r.scriptDefaults(e, "wrap")
}

// scriptDefaults completes a batch script's job as sbatch would.
func (r *Request) scriptDefaults(e *console.Env, name string) error {
	if r.Spec.Name == "" {
		r.Spec.Name = sbatch.CleanName(name)
	}
	if r.Spec.Stdout == "" {
		r.Spec.Stdout = slurmOutput
		if r.Spec.Array != nil {
			r.Spec.Stdout = slurmTaskOutput
		}
	}
	wd, err := e.Getwd()
	if err != nil {
		return &console.ExitError{Code: console.ExitFailed, Err: fmt.Errorf("this directory cannot be named (%w); go to another one", err)}
	}
	host, err := e.Hostname()
	if err != nil {
		return &console.ExitError{Code: console.ExitFailed, Err: fmt.Errorf("name of this machine: %w", err)}
	}
	r.env = append(r.env, r.Slurm.Asked.Env...)
	if x := r.Slurm.Asked.Export; x != "" {
		r.env = append(r.env, "SLURM_EXPORT_ENV="+x)
		if x != "ALL" {
			r.env = append(r.env, "SLURM_GET_USER_ENV=1")
		}
	}
	r.env = append(r.env, "SLURM_SUBMIT_DIR="+wd, "SLURM_SUBMIT_HOST="+host, "SLURM_CLUSTER_NAME=berth")
	return nil
}

// loadScript reads a script, bounded, and returns its absolute name.
func loadScript(e *console.Env, name string) (data []byte, path string, err error) {
	if name == "-" {
		data, err = io.ReadAll(io.LimitReader(e.Stdin, cluster.MaxScript+1))
		path = "sbatch" // as Slurm calls it
	} else {
		if data, err = console.ReadBounded(name, cluster.MaxScript); err == nil && !filepath.IsAbs(name) {
			wd, werr := e.Getwd()
			if werr != nil {
				return nil, "", &console.ExitError{Code: console.ExitFailed, Err: fmt.Errorf("this directory cannot be named (%w); go to another one", werr)}
			}
			path = filepath.Join(wd, name)
		} else {
			path = filepath.Clean(name)
		}
	}
	switch {
	case err != nil && e.Prog != "":
		return nil, "", &console.ExitError{Code: console.ExitFailed, Err: sbatch.Message(fmt.Sprintf("Unable to open file %s", name))}
	case err != nil:
		return nil, "", console.Usagef("script: %w", err)
	}
	return data, path, nil
}

// resolveSlurm decides what becomes of the options of a script, the
// environment and the command line, says so, and takes the result over.
// script may be nil: then only the command line counts.
func (r *Request) resolveSlurm(e *console.Env, name string, script *sbatch.Script) error {
	r.typedOwn()
	set, faults := slices.Clone(r.Slurm.Set), []sbatch.Fault(nil)
	if script == nil && slices.ContainsFunc(set, func(s sbatch.Setting) bool { return !s.Own && s.Name == "wrap" }) {
		set = slices.Concat(sbatch.FromEnv(e.Environ()), set)
	}
	if script != nil {
		own := OwnOptions()
		lines, bad, _ := sbatch.Scan(script.Slurm, sbatch.FromSlurmLine, own, false)
		ours, worse, _ := sbatch.Scan(script.Berth, sbatch.FromBerthLine, own, true)
		set = slices.Concat(lines, sbatch.FromEnv(e.Environ()), ours, set)
		faults = append(bad, worse...)
	}
	for _, t := range r.Flags {
		set = append(set, sbatch.Setting{Name: t.F.Name, Value: t.Text, Own: true, From: sbatch.Origin{Source: sbatch.FromCommandLine}})
	}
	asked, outcomes := sbatch.Resolve(set, faults)
	if script != nil {
		outcomes = append(outcomes, script.Outcomes(set)...)
	}
	r.Slurm.Asked = asked
	if err := r.report(e, name, script, outcomes); err != nil {
		return err
	}
	r.TakeOver(asked)
	r.OwnFlags(asked)
	return nil
}

// typedOwn makes flags of Berth's own options that stand among Slurm's, as they
// do on the command lines of sbatch and salloc.
func (r *Request) typedOwn() {
	all := Fields()
	var rest []sbatch.Setting
	for _, s := range r.Slurm.Set {
		i := slices.IndexFunc(all, func(f Field) bool { return s.Own && f.Name == s.Name })
		if i < 0 {
			rest = append(rest, s)
			continue
		}
		r.Flags = append(r.Flags, FlagText{&all[i], truthOf(&all[i], s.Value)})
	}
	r.Slurm.Set = rest
}

// truthOf is the value of a flag that may stand without one.
func truthOf(f *Field, v string) string {
	if f.Kind == KindTruth && v == "" {
		return "true"
	}
	return v
}

// OwnFlags adds directives that are Berth's own, before what was typed.
func (r *Request) OwnFlags(asked *sbatch.Request) {
	var before []FlagText
	all := Fields()
	for _, s := range asked.Own {
		if i := slices.IndexFunc(all, func(f Field) bool { return f.Name == s.Name }); s.From.Source != sbatch.FromCommandLine && i >= 0 {
			before = append(before, FlagText{&all[i], truthOf(&all[i], s.Value)})
		}
	}
	r.Flags = append(before, r.Flags...)
}

// report says what becomes of each option, and refuses what is refused. Who
// types an option sees it done; of srun and salloc, whose own output is read by
// programs, that goes for options that are done by other means, too. So it does for
// sbatch, which says nothing of what it does: programs take a word on its standard
// error for a failure. Its -v, and lint, say it.
func (r *Request) report(e *console.Env, name string, script *sbatch.Script, outcomes []sbatch.Outcome) error {
	refused, strict := 0, 0
	quiet := r.Slurm.Quiet()
	terse := e.Prog == "sbatch" && !r.Slurm.Asked.Verbose
	for _, o := range outcomes {
		where := o.From.String()
		if o.From.Line > 0 {
			where = fmt.Sprintf("%s:%d", name, o.From.Line)
		}
		bad := o.Fate == sbatch.Refused || r.Slurm.strict && o.Fate == sbatch.Ignored
		done := o.Fate == sbatch.Honoured || o.Fate == sbatch.Mapped && script == nil
		own := done && o.From.Source == sbatch.FromCommandLine || terse && o.Fate != sbatch.Ignored
		if bad || !quiet && !own {
			e.Warnf("%s: %s", console.Escape(where), console.Escape(o.Line()))
		}
		if o.Fate == sbatch.Refused {
			refused++
		} else if bad {
			strict++
		}
	}
	if script != nil && !quiet {
		for _, line := range script.Late {
			e.Warnf("%s:%d: a directive after the first command is a comment, to sbatch as well", console.Escape(name), line)
		}
	}
	switch {
	case refused > 0:
		return refusal(name, fmt.Errorf("not submitted: %s refused; see above", options(refused)))
	case strict > 0:
		return refusal(name, fmt.Errorf("not submitted: %s ignored, and --strict was given", options(strict)))
	}
	return nil
}

func options(n int) string {
	if n == 1 {
		return "1 option is"
	}
	return fmt.Sprintf("%d options are", n)
}

// refusal is the error of a script that cannot be taken.
func refusal(name string, err error) error {
	if name != "" {
		err = fmt.Errorf("%s: %w", console.ShortQuote(name), err)
	}
	return &console.ExitError{Code: console.ExitUsage, Err: err}
}

// TakeOver puts what was asked for into the spec; flags of Berth's come after
// it and win.
func (r *Request) TakeOver(a *sbatch.Request) {
	s := &r.Spec
	s.Name, s.Comment, s.Dir = a.Name, a.Comment, a.Dir
	s.Stdin, s.Stdout, s.Stderr = a.Stdin, a.Stdout, a.Stderr
	s.GPUs, r.Gpus = int(min(a.GPUs, math.MaxInt32)), a.GPUsSaid
	s.GPUType, r.Slurm.Typed = a.GPUType, a.GPUType != ""
	r.where = whereText{a.NodeList, a.Exclude, a.Constraint, a.Reservation, a.WholeNodes}
	s.CPUMilli, s.MemMiB, s.AllMem = min(a.CPUs, 1<<30)*1000, a.MemMiB, a.AllMem
	s.TimeLimit, s.Node, s.Partition = a.TimeLimit, cluster.NodeID(a.Node), a.Partition
	s.Account, s.QOS, s.Nice = a.Account, a.QOS, a.Nice
	s.RequeueOnLoss = a.Requeue
	r.nodes, r.tasks, s.Mail, s.NodeRange = a.Nodes, a.Tasks, a.Mail, cluster.NodeRange{}
	if a.MostNodes > 0 {
		r.nodes = max(1, a.Nodes)
		s.NodeRange = cluster.NodeRange{Min: int(r.nodes), Max: int(a.MostNodes)}
	}
	s.Array = a.Array
	s.Hold, r.begin, s.Depends, s.DependAny, s.KillInvalidDepend = a.Hold, a.Begin, a.Depends, a.DependAny, a.KillInvalidDepend
	s.Warning, s.Truncate, r.deadline = a.Warning, a.Truncate, a.Deadline
	s.Power.Freq, s.Exclusive = a.GPUFreq, a.GPUFreq != "" // a clock is of a whole card
	if a.Export != "" {
		r.export = a.Export
	}
}

// IsScript reports whether an argument before -- is a batch script: a file that
// is no spec file.
func IsScript(arg string) bool {
	ext := strings.ToLower(filepath.Ext(arg))
	return ext != ".yaml" && ext != ".yml"
}

// noScript explains an argument that names no file, which is most often a
// command without its --.
func noScript(args []string, err error) error {
	var u *console.UsageError
	if !errors.As(err, &u) {
		return err
	}
	return console.Usagef("%w; a command goes after --, such as: -- %s", u.Err, console.Escape(strings.Join(args, " ")))
}
