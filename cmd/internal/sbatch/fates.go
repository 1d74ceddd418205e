package sbatch

import (
	"fmt"
	"strings"
)

// said describes options whose fate depends on their value; for the others
// the rules do.
var said = map[string][2]string{
	"job-name":        {"honoured", "names of more than 63 bytes, or with a slash, are adapted"},
	"output":          {"honoured", "with every pattern; the default is `slurm-%j.out`"},
	"error":           {"honoured", "with every pattern; by default the same file as the output"},
	"input":           {"honoured", "with every pattern; the default is `/dev/null`"},
	"export":          {"honoured", "`ALL`, `NONE`, `NIL` or a list"},
	"wrap":            {"honoured", "a script of one command, as with sbatch"},
	"deadline":        {"honoured", "refused unless the job can end by then; a time of day that has passed is tomorrow's"},
	"open-mode":       {"honoured", "the default is `append`"},
	"gres":            {"honoured or refused", "`gpu[:type]:n`; a type is mapped to the cluster's only type of that name. Shards, MPS and other resources are refused"},
	"gpus":            {"honoured", "`[type:]n` in total, divided evenly over several nodes"},
	"gpus-per-task":   {"mapped", "times the number of tasks"},
	"cpus-per-gpu":    {"mapped", "times the number of GPUs"},
	"mem":             {"honoured", "0 is all memory: with `--exclusive` that of its nodes, otherwise that of the smallest node that could run the job"},
	"mem-per-cpu":     {"mapped", "times the number of cores"},
	"mem-per-gpu":     {"mapped", "host memory, times the number of GPUs; see `--gpu-mem` for the GPU's own"},
	"ntasks":          {"mapped", "times `--cpus-per-task` cores; on one node the script runs once, on several once per task"},
	"ntasks-per-node": {"mapped", "number of tasks per node"}, "tasks-per-node": {"mapped", "number of tasks per node"},
	"ntasks-per-gpu": {"mapped", "tasks for each GPU"}, "ntasks-per-tres": {"mapped", "tasks for each GPU"},
	"nodes":               {"honoured or refused", "1 to 256; a range takes as many as are free at the start, with equal GPUs on each; its minimum if the job asks for no GPUs, for a total over all nodes, or is an array"},
	"time":                {"honoured", "every form, rounded up to minutes; more than 30 days is refused"},
	"exclusive":           {"honoured or ignored", "whole nodes, with all their memory unless the job asks for an amount; `user` and `mcs` are ignored: who shares a GPU is the site's policy"},
	"nodelist":            {"honoured or refused", "a list such as `gpu[01-04]`, all of which are used; a file of names is refused"},
	"switches":            {"honoured", "waits for that few switches, for five minutes unless a time is given; then any nodes are used"},
	"partition":           {"honoured or mapped", "one of the cluster's (`berth partition list`); of several, the first that accepts the job and is up. Without partitions it is ignored, with a note"},
	"clusters":            {"honoured or ignored", "`berth`, which the answer then names as Slurm does; others are ignored, there is only one cluster"},
	"cluster":             {"honoured or ignored", "as `--clusters`"},
	"begin":               {"honoured", ""},
	"kill-on-invalid-dep": {"honoured", ""},
	"dependency":          {"honoured or refused", "`after`, `afterany`, `afterok`, `afternotok` and `singleton`, `aftercorr` and `after:ID+MINUTES`, of jobs, arrays and tasks such as 12_3, joined by `,` or `?`; `afterburstbuffer`, `expand` and unknown jobs are refused"},
	"array":               {"honoured", "every form, with `%N`; at most `limits.array_tasks` tasks (default 100,000)"},
	"signal":              {"honoured or mapped", "`B:` signals only the script's shell; otherwise every process of the job except that shell; KILL, STOP and real-time signals are ignored, and one that would come no later than the start"},
	"mail-type":           {"honoured", "if the site sends mail; there is no staging, so STAGE_OUT never comes"},
	"mail-user":           {"honoured or refused", "up to five addresses of letters, digits and `._+=-`, separated by commas"},
	"help":                {"honoured", ""}, "usage": {"honoured", ""}, "version": {"honoured", ""},
}

// fateOf returns what becomes of an option, as a word and as a sentence.
func fateOf(name string) (outcome, note string) {
	if row, ok := said[name]; ok {
		return row[0], row[1]
	}
	r := rules()[name]
	note = r.note
	if r.fix != "" {
		note += "; " + r.fix
	}
	return r.fate.String(), note
}

// OptionsHelp is the text on sbatch's options in help and manual pages:
// supported ones, with their peculiarities, then those that are not.
func OptionsHelp() string {
	var b strings.Builder
	for _, part := range []struct{ title, outcome string }{
		{"Options:", ""},
		{"Options that are ignored, with a note to the job's owner:", Ignored.String()},
		{"Options that are refused:", Refused.String()},
	} {
		b.WriteString(part.title + "\n")
		for _, o := range slurmOptions {
			outcome, note := fateOf(o.Name)
			if (outcome == Ignored.String() || outcome == Refused.String()) != (part.outcome != "") || part.outcome != "" && outcome != part.outcome {
				continue
			}
			b.WriteString(OptionLine(o, strings.ReplaceAll(note, "`", "")))
		}
		b.WriteString("\n")
	}
	return b.String()
}

// OptionLine formats one option of a list, with a note that continues on
// further lines if it exceeds 80 columns.
func OptionLine(o Option, note string) string {
	const column, width = 30, 80
	name := "      --" + o.Name
	if o.Short != 0 {
		name = fmt.Sprintf("  -%c, --%s", o.Short, o.Name)
	}
	switch o.Arg {
	case NeedsArg:
		name += "=…"
	case MayArg:
		name += "[=…]"
	}
	line := fmt.Sprintf("%-*s", column-1, name)
	var b strings.Builder
	for word := range strings.FieldsSeq(note) {
		if len([]rune(line))+1+len([]rune(word)) > width && strings.TrimSpace(line) != "" {
			b.WriteString(strings.TrimRight(line, " ") + "\n")
			line = strings.Repeat(" ", column-1)
		}
		line += " " + word
	}
	b.WriteString(strings.TrimRight(line, " ") + "\n")
	return b.String()
}
