package sruncmd

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/berth-scheduler/berth/cmd/internal/cli/jobspec"
	"github.com/berth-scheduler/berth/cmd/internal/sbatch"
)

// stepOptions are options of srun that sbatch does not have, or interprets differently.
var stepOptions = []sbatch.Option{
	{Name: "accel-bind", Arg: sbatch.NeedsArg}, {Name: "bcast", Arg: sbatch.MayArg}, {Name: "bcast-exclude", Arg: sbatch.NeedsArg},
	{Name: "compress", Arg: sbatch.MayArg}, {Name: "x11", Arg: sbatch.MayArg}, {Name: "cpu-bind", Arg: sbatch.NeedsArg},
	{Name: "disable-status", Short: 'X'}, {Name: "epilog", Arg: sbatch.NeedsArg}, {Name: "error", Short: 'e', Arg: sbatch.NeedsArg},
	{Name: "exact"}, {Name: "het-group", Arg: sbatch.NeedsArg}, {Name: "immediate", Short: 'I', Arg: sbatch.MayArg},
	{Name: "input", Short: 'i', Arg: sbatch.NeedsArg}, {Name: "interactive"}, {Name: "jobid", Arg: sbatch.NeedsArg},
	{Name: "kill-on-bad-exit", Short: 'K', Arg: sbatch.MayArg}, {Name: "label", Short: 'l'}, {Name: "mpi", Arg: sbatch.NeedsArg},
	{Name: "msg-timeout", Arg: sbatch.NeedsArg}, {Name: "multi-prog"}, {Name: "no-allocate", Short: 'Z'},
	{Name: "output", Short: 'o', Arg: sbatch.NeedsArg}, {Name: "overlap"}, {Name: "preserve-env", Short: 'E'},
	{Name: "prolog", Arg: sbatch.NeedsArg}, {Name: "pty"}, {Name: "quit-on-interrupt"}, {Name: "relative", Short: 'r', Arg: sbatch.NeedsArg},
	{Name: "resv-ports", Arg: sbatch.MayArg}, {Name: "send-libs", Arg: sbatch.MayArg}, {Name: "slurmd-debug", Arg: sbatch.NeedsArg},
	{Name: "task-epilog", Arg: sbatch.NeedsArg}, {Name: "task-prolog", Arg: sbatch.NeedsArg}, {Name: "threads", Short: 'T', Arg: sbatch.NeedsArg},
	{Name: "unbuffered", Short: 'u'}, {Name: "wait", Short: 'W', Arg: sbatch.NeedsArg}, {Name: "no-shell"}, {Name: "bell"}, {Name: "no-bell"},
	{Name: "kill-command", Arg: sbatch.MayArg}, {Name: "idle-limit", Arg: sbatch.NeedsArg},
}

// OptionNames returns the long options that srun has besides those of sbatch.
func OptionNames() []string {
	var out []string
	for _, o := range stepOptions {
		out = append(out, o.Name)
	}
	return out
}

// optionsHelp is the text on options in help and manual pages: those that are
// not sbatch's, or differ, and then sbatch's.
func optionsHelp() string {
	var own strings.Builder
	own.WriteString("Options of srun and salloc only:\n")
	for _, o := range stepOptions {
		note := ""
		if why := refusedOptions[o.Name]; why != "" {
			note = "refused: " + why
		}
		own.WriteString(sbatch.OptionLine(o, note))
	}
	return own.String() + "\nShared with sbatch, for a job of their own.\n" + sbatch.OptionsHelp()
}

// refusedOptions would change what runs, and are not supported.
var refusedOptions = map[string]string{
	"het-group":   "a job has one group of nodes",
	"bcast":       "programs are not sent to the nodes; keep it on a shared file system",
	"x11":         "displays are not forwarded; berth tunnel connects to a port in a job, such as a VNC server's",
	"no-allocate": "a command runs in a job",
}

// bothOptions apply inside a job as well as to a job of its own; the other
// ones of sbatch apply to jobs alone.
var bothOptions = []string{"ntasks", "nodes", "nodelist", "exclude", "cpus-per-task", "gpus", "gpus-per-node", "gpus-per-task", "gres", "ntasks-per-node", "tasks-per-node", "chdir", "export", "job-name", "overcommit", "open-mode", "exclusive", "mem", "mem-per-cpu"}

// options are the words before the command.
type options struct {
	// values are srun's own options and those that apply inside a job.
	values map[string]string
	// alloc are the options of a job of its own.
	alloc   []sbatch.Setting
	command []string
	// each is the command of each task, with --multi-prog.
	each [][]string
}

func (o *options) has(name string) bool { _, ok := o.values[name]; return ok }

// take reads the variables that say how steps share a job.
func (o *options) take(getenv func(string) string) {
	for _, name := range []string{"exact", "exclusive", "overlap"} {
		if getenv("SLURM_"+strings.ToUpper(name)) != "" && !o.has(name) {
			o.values[name] = ""
		}
	}
}

// alone reports whether a step needs cores that no other such step uses.
func (o *options) alone() bool {
	return (o.has("exact") || o.has("exclusive") || o.has("cpus-per-task")) && !o.has("overlap") && !o.has("overcommit")
}

// ownFlags returns Berth's flags that are not also Slurm's options.
func ownFlags() []sbatch.Option {
	var out []sbatch.Option
	slurm := sbatch.SlurmOptions()
	for _, o := range jobspec.OwnOptions() {
		taken := func(x sbatch.Option) bool { return x.Name == o.Name }
		if !slices.ContainsFunc(slurm, taken) && !slices.ContainsFunc(stepOptions, taken) {
			out = append(out, sbatch.Option{Name: o.Name, Arg: o.Arg})
		}
	}
	return out
}

// parse parses the words of srun or salloc.
func parse(args []string) (*options, error) {
	words := make([]sbatch.Word, len(args))
	for i, a := range args {
		words[i].Text = a
	}
	set, faults, rest := sbatch.Scan(words, sbatch.FromCommandLine, slices.Concat(stepOptions, ownFlags()), true)
	if len(faults) > 0 {
		return nil, optionError(faults[0].Msg)
	}
	o := &options{values: map[string]string{}}
	for _, s := range set {
		step := s.Own && slices.ContainsFunc(stepOptions, func(x sbatch.Option) bool { return x.Name == s.Name })
		if why := refusedOptions[s.Name]; step && why != "" {
			return nil, fmt.Errorf("--%s: %s", s.Name, why)
		}
		if step || slices.Contains(bothOptions, s.Name) || s.Name == "quiet" || s.Name == "verbose" || s.Name == "help" || s.Name == "version" || s.Name == "usage" {
			o.values[s.Name] = s.Value
		}
		if !step {
			o.alloc = append(o.alloc, s)
		}
	}
	for _, w := range rest {
		if w.Text == ":" {
			return nil, errors.New("several programs separated by colons form a job of several groups, and " + refusedOptions["het-group"] + "; start each with its own srun, in the background")
		}
		o.command = append(o.command, w.Text)
	}
	return o, nil
}

// optionError is a message of getopt.
type optionError string

func (e optionError) Error() string { return string(e) }

// number reads an option or, if it was not given, a variable; 0 if neither.
func (o *options) number(name, variable string, getenv func(string) string) (int, error) {
	text, ok := o.values[name]
	if !ok {
		n, _ := strconv.Atoi(getenv(variable)) // a value that is no number was not srun's
		return max(0, n), nil
	}
	text, _, _ = strings.Cut(text, "-") // a range of nodes begins with the minimum
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > 1<<20 {
		return 0, slurmWords("Invalid numeric value \"%s\" for --%s.", o.values[name], name)
	}
	return n, nil
}
