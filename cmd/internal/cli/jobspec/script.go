package jobspec

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/berth-scheduler/berth/cmd/internal/batch"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/sbatch"
)

// slurmArgs are options in Slurm's terms, and how strictly they are handled.
type slurmArgs struct {
	Set    []sbatch.Setting
	strict bool
	quiet  bool
	// Asked is what script and options resolved to; nil before.
	Asked *sbatch.Request
	// Typed says that the GPU type is a name of Slurm's configuration.
	Typed bool
}

// Quiet reports whether the user wants only a job's id.
func (s *slurmArgs) Quiet() bool { return s.quiet || s.Asked != nil && s.Asked.Quiet }

// RegisterSlurm also adds the options of sbatch that are not Berth's own.
// They are not in --help, which they would double.
func RegisterSlurm(fs *pflag.FlagSet, s *slurmArgs) {
	fs.BoolVar(&s.strict, "strict", false, "refuse Slurm scripts or options that are neither honoured nor mapped")
	fs.BoolVarP(&s.quiet, "quiet", "Q", false, "do not report how each Slurm option is handled")
	for _, o := range sbatch.SlurmOptions() {
		if fs.Lookup(o.Name) != nil || o.Name == "help" || o.Name == "version" {
			continue
		}
		short := ""
		if o.Short != 0 && fs.ShorthandLookup(string(o.Short)) == nil {
			short = string(o.Short)
		}
		f := fs.VarPF(&slurmFlag{o, s}, o.Name, short, "same as in sbatch")
		f.Hidden = true
		switch o.Arg {
		case sbatch.NoArg:
			f.NoOptDefVal = "true"
		case sbatch.MayArg:
			f.NoOptDefVal = noValue
		}
	}
}

// noValue stands for the value of an option given without one.
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

// OwnOptions returns Berth's flags as options of package sbatch.
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

// fromScript builds the job of a batch script: name is the file, or "-"
// for standard input; args are the script's own.
func (r *Request) fromScript(e *console.Env, name string, args []string) error {
	data, path, err := loadScript(e, name)
	if err != nil {
		return err
	}
	script, err := sbatch.Read(data)
	switch {
	case err != nil && e.Prog != "": // in Slurm's words, and no more
		return err
	case errors.Is(err, sbatch.ErrNoInterpreter):
		return refusal("", fmt.Errorf("%s is not a batch script: its first line is not #! with an interpreter, such as #!/bin/sh; put a program and its arguments after --, such as: -- %s", console.ShortQuote(name), runsIt(name)))
	case err != nil:
		return refusal(name, err)
	}
	if err := r.resolveSlurm(e, name, script); err != nil {
		return err
	}
	if r.Slurm.Asked.Wrapped {
		return console.Usagef("--wrap: there is already a script, %s", console.ShortQuote(name))
	}
	return failedPlace(r.Script(caller(e), r.Slurm.Asked, data, path, args))
}

// runsIt returns a command for a file that does not name its interpreter.
func runsIt(name string) string {
	switch filepath.Ext(name) {
	case ".py":
		return "python " + name
	case ".sh":
		return "sh " + name
	}
	if !strings.Contains(name, "/") {
		name = "./" + name
	}
	return name
}

// failedPlace gives a batch.PlaceError its exit code; other errors stay.
func failedPlace(err error) error {
	if _, ok := errors.AsType[*batch.PlaceError](err); ok {
		return placed(err)
	}
	return err
}

// loadScript reads a script, bounded, and returns its absolute name.
func loadScript(e *console.Env, name string) (data []byte, path string, err error) {
	data, path, err = batch.ReadScript(caller(e), name, console.ReadBounded, e.TypedIn())
	if failed := failedPlace(err); failed != err {
		return nil, "", failed
	}
	switch {
	case console.Interrupted(err):
		return nil, "", err
	case err != nil && e.Prog != "":
		return nil, "", &console.ExitError{Code: console.ExitFailed, Err: sbatch.Message(fmt.Sprintf("Unable to open file %s", name))}
	case err != nil:
		return nil, "", console.Usagef("script: %w", err)
	}
	return data, path, nil
}

// resolveSlurm decides what becomes of the options of a script, the
// environment and the command line, reports it, and takes the result over.
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

// typedOwn turns Berth's own options among Slurm's into flags, as on the
// command lines of sbatch and salloc.
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

// truthOf returns the value of a flag that may be given without one.
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

// report says what becomes of each option, and fails on refused ones. Options
// typed on a command line that take effect are not mentioned; nor are, for
// srun and salloc, whose output programs read, options that are done by other
// means. sbatch mentions only ignored options, since programs take text on
// its standard error for a failure; its -v, and lint, report all.
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
			e.Warnf("%s:%d: a directive after the first command is only a comment, for sbatch too", console.Escape(name), line)
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

// refusal returns the error for a script that cannot be accepted.
func refusal(name string, err error) error {
	if name != "" {
		err = fmt.Errorf("%s: %w", console.ShortQuote(name), err)
	}
	return &console.ExitError{Code: console.ExitUsage, Err: err}
}

// TakeOver puts the request into the spec; see batch.Job.Take.
func (r *Request) TakeOver(a *sbatch.Request) {
	r.Take(a)
	r.Slurm.Typed = a.GPUType != ""
}

// IsScript reports whether an argument before -- is a batch script: a file
// that is not a spec file.
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
	return console.Usagef("%w; put a command after --, such as: -- %s", u.Err, console.Escape(strings.Join(args, " ")))
}
