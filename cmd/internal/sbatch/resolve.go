package sbatch

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/berth-scheduler/berth/cluster"
)

// Fate is what becomes of one setting.
type Fate uint8

// The fates, from best to worst. A mapped option achieves its purpose in
// Berth by other means; an overridden one is replaced by something stronger.
const (
	Honoured Fate = iota
	Mapped
	Overridden
	Ignored
	Refused
)

// String returns the fate as displayed.
func (f Fate) String() string {
	return [...]string{"honoured", "mapped", "overridden", "ignored", "refused"}[f]
}

// Outcome says what becomes of one setting and, if it has no effect, what to
// write instead.
type Outcome struct {
	From   Origin
	Option string // as it may be written again: --time=10:00
	Fate   Fate
	Note   string
	Fix    string
}

// Line returns the outcome as one line, without its origin.
func (o Outcome) Line() string {
	var b strings.Builder
	b.WriteString(o.Option + ": " + o.Fate.String())
	if o.Note != "" {
		b.WriteString(": " + o.Note)
	}
	if o.Fix != "" {
		b.WriteString("; " + o.Fix)
	}
	return b.String()
}

// Request is what a script and its options request, in Berth's terms. Zero
// means unspecified.
type Request struct {
	Name, Comment string
	GPUs          int64
	GPUsSaid      bool // even if it is 0
	GPUType       string
	// GPUFreq is the clock of its GPUs, which then are whole ones; "" leaves the
	// default.
	GPUFreq cluster.GPUFreq
	// Nodes is on how many it runs at once, 0 for one; Tasks is how many
	// processes the script then makes on each. Resources are per node.
	Nodes, Tasks int64
	// MostNodes is the most nodes it runs on if the cluster chooses; 0 if it does not.
	MostNodes                     int64
	CPUs, MemMiB                  int64
	AllMem                        bool // all of a node's, in place of MemMiB
	TimeLimit                     time.Duration
	Node, Partition, Account, QOS string
	// NodeList are nodes that it must have, all of them, Exclude those that it
	// must not have, Constraint the features required of nodes; WholeNodes are
	// not shared with any other job.
	NodeList, Exclude, Constraint, Reservation string
	Switches                                   string // as cluster.ParseSwitches reads it
	WholeNodes                                 bool
	Nice                                       int32
	Requeue                                    bool
	Dir, Stdin, Stdout, Stderr, Export         string
	Hold                                       bool
	// Begin is a time as slurm.ParseNext reads it, "" for now.
	Begin                        string
	Depends                      []cluster.Dependency
	Array                        *cluster.Array
	DependAny, KillInvalidDepend bool
	// Warning is the signal before the time limit; Truncate empties the output
	// files; Deadline is a time as slurm.ParseNext reads it, "" for none.
	Warning                       cluster.Warning
	Truncate                      bool
	Mail                          cluster.Mail
	Deadline                      string
	Wait, Parsable, Test          bool
	Quiet, Verbose, Help, Version bool
	// Cluster is this cluster's name, if --clusters named it.
	Cluster string
	// Wrap is the command of --wrap; Wrapped says that there was one.
	Wrap    string
	Wrapped bool
	// Env are the SLURM_* variables that describe the request.
	Env []string
	// Own are the settings of Berth's own flags, the weakest first.
	Own []Setting
}

// Resolve decides what becomes of the settings, which come in any order: the
// later source wins, and within one the later setting. Faults become refused
// outcomes. Outcomes are in the order of the settings.
func Resolve(set []Setting, faults []Fault) (*Request, []Outcome) {
	r := &resolver{req: &Request{}, tasks: 1}
	ordered := bySource(set)
	last := map[string]int{}
	for i, s := range ordered {
		last[key(s)] = i
	}
	for i, s := range ordered {
		o, valid := r.one(s)
		if hint := unexpanded(s); hint != "" {
			o.Note = strings.TrimPrefix(o.Note+"; "+hint, "; ")
		}
		if by := replacedBy(s, i, last); by >= 0 && valid {
			o.Fate, o.Note, o.Fix = Overridden, "by --"+ordered[by].Name+", "+ordered[by].From.String(), ""
		}
		r.out = append(r.out, o)
	}
	for _, f := range faults {
		r.out = append(r.out, Outcome{From: f.From, Option: "directive", Fate: Refused, Note: f.Msg, Fix: f.Fix})
	}
	r.finish()
	return r.req, r.out
}

// bySource sorts stably by strength of source.
func bySource(set []Setting) []Setting {
	out := make([]Setting, 0, len(set))
	for src := FromSlurmLine; src <= FromCommandLine; src++ {
		for _, s := range set {
			if s.From.Source == src {
				out = append(out, s)
			}
		}
	}
	return out
}

// key returns what a setting shares with those that replace it.
func key(s Setting) string {
	switch {
	case s.Own:
		return "own " + s.Name
	case s.Name == "no-requeue":
		return "requeue"
	case s.Name == "tasks-per-node":
		return "ntasks-per-node"
	case s.Name == "cluster":
		return "clusters"
	default:
		return s.Name
	}
}

// ownReplace maps a flag of Berth's to the options of Slurm's that it
// replaces. A script that Slurm accepts and Berth would refuse is fixed by
// a line that only Berth reads.
var ownReplace = map[string][]string{
	"name": {"job-name"}, "mem": {"mem", "mem-per-cpu", "mem-per-gpu"}, "time": {"time"}, "node": {"nodelist", "nodefile"}, "partition": {"partition"}, "account": {"account"}, "qos": {"qos"}, "nice": {"nice"},
	"cpus": {"cpus-per-task", "cpus-per-gpu", "mincpus", "ntasks", "ntasks-per-node", "tasks-per-node", "ntasks-per-gpu"},
	"gpus": {"gres", "gpus", "gpus-per-node", "gpus-per-task", "gpus-per-socket"}, "gpu-type": {"constraint", "prefer"}, "nodes": {"nodes"},
	"image": {"container"}, "requeue-on-loss": {"requeue", "no-requeue"}, "exclusive": {"exclusive", "oversubscribe"}, "gpu-freq": {"gpu-freq"},
	"comment": {"comment"}, "mail-type": {"mail-type"}, "mail-user": {"mail-user"}, "signal": {"signal"}, "open-mode": {"open-mode"}, "deadline": {"deadline"}, "chdir": {"chdir"}, "output": {"output"}, "error": {"error"}, "input": {"input"},
	"hold": {"hold"}, "begin": {"begin"}, "dependency": {"dependency"}, "kill-on-invalid-dep": {"kill-on-invalid-dep"},
	"export": {"export", "export-file", "get-user-env"},
}

// replacedBy returns the index of the setting that replaces s at i, or -1.
func replacedBy(s Setting, i int, last map[string]int) int {
	if s.Own && s.Name == "mount" { // each adds another
		return -1
	}
	if by := last[key(s)]; by != i {
		return by
	}
	if s.Own {
		return -1
	}
	for own, names := range ownReplace {
		if by, there := last["own "+own]; there && slices.Contains(names, s.Name) {
			return by
		}
	}
	return -1
}

type resolver struct {
	req *Request
	out []Outcome

	tasks, cpusPerTask, perNode, perGPU int64
	tasksSaid                           bool
	perNodeSaid                         int64 // by the request and not derived, on several nodes
	uneven                              int64 // all tasks, if not all nodes have equally many; else 0
	cpusPerGPU, minCPUs                 int64
	mem, memPerCPU, memPerGPU           int64
	memFrom                             map[string]int // option → index of its outcome
	gpus                                map[string][]Gres
	gpuText                             map[string]string
	named                               []cluster.NodeID // by --nodelist
	nodesSaid                           bool
}

// one parses a setting. It is not valid if sbatch would refuse it too: then
// no later setting can fix it.
func (r *resolver) one(s Setting) (o Outcome, valid bool) {
	o = Outcome{From: s.From, Option: written(s)}
	if s.Own {
		r.req.Own = append(r.req.Own, s)
		if s.From.Source == FromSlurmLine {
			o.Note = "unknown to sbatch; a " + berthMark + " line works for both"
		}
		return o, true
	}
	rule, ok := rules()[s.Name]
	if !ok {
		panic("sbatch: no rule for --" + s.Name) // a test holds the tables together
	}
	o.Fate, o.Note, o.Fix = rule.fate, rule.note, rule.fix
	if rule.read == nil {
		return o, true
	}
	v, err := rule.read(r, s.Value)
	if err != nil {
		o.Fate, o.Fix = Refused, fixValue(s.Name, s.Value)
		o.Note = err.Error()
		return o, false
	}
	if v != nil {
		o.Fate, o.Note, o.Fix = v.fate, v.note, v.fix
	}
	return o, true
}

// refuse marks the outcome of an option, or adds one for what several options
// amount to together.
func (r *resolver) refuse(option, note, fix string) {
	for i := len(r.out) - 1; i >= 0; i-- {
		o := &r.out[i]
		if strings.HasPrefix(o.Option, "--"+option) && o.Fate != Overridden {
			if o.Fate != Refused {
				o.Fate, o.Note, o.Fix = Refused, note, fix
			}
			return
		}
	}
	r.out = append(r.out, Outcome{From: Origin{Source: FromCommandLine}, Option: "--" + option, Fate: Refused, Note: note, Fix: fix})
}

// note completes the note of an option once all settings are known.
func (r *resolver) note(option, format string, args ...any) {
	for i := range r.out {
		o := &r.out[i]
		if (o.Option == "--"+option || strings.HasPrefix(o.Option, "--"+option+"=")) && o.Fate == Mapped {
			o.Note = fmt.Sprintf(format, args...)
		}
	}
}

// remark sets what became of an option once all settings are known.
func (r *resolver) remark(option, note string) {
	for i := range r.out {
		if o := &r.out[i]; strings.HasPrefix(o.Option, "--"+option+"=") && (o.Fate == Honoured || o.Fate == Mapped) {
			o.Fate, o.Note = Mapped, note
		}
	}
}

// ignore says that nothing comes of an option once all settings are known.
func (r *resolver) ignore(option, note, fix string) {
	for i := range r.out {
		if o := &r.out[i]; strings.HasPrefix(o.Option, "--"+option+"=") && (o.Fate == Honoured || o.Fate == Mapped) {
			o.Fate, o.Note, o.Fix = Ignored, note, fix
		}
	}
}

// finish computes what several options amount to together.
func (r *resolver) finish() {
	r.finishRange()
	r.finishWhere()
	r.finishNodes()
	r.finishGPUs()
	r.finishFreq()
	r.finishTasks()
	r.finishCPUs()
	r.finishMem()
	r.finishWarning()
	r.finishEnv()
}

// finishWarning drops a warning that would precede the job.
func (r *resolver) finishWarning() {
	w, limit := r.req.Warning, r.req.TimeLimit
	if !w.Set() || limit == 0 || w.Before < limit {
		return
	}
	r.req.Warning = cluster.Warning{}
	r.ignore("signal", "that is no later than the job's start, when sbatch would send it", "ask for more time, or for a later signal")
}

// gpuOptions are the ways to request GPUs; on one node they are equivalent.
var gpuOptions = []string{"gres", "gpus", "gpus-per-node", "gpus-per-task"}

func (r *resolver) finishGPUs() {
	said := ""
	for _, s := range r.req.Own {
		if n, err := count(s.Value); s.Name == "gpus" && err == nil {
			r.req.GPUs, r.req.GPUsSaid, r.gpus = n, true, nil
		}
	}
	for _, name := range gpuOptions {
		list, ok := r.gpus[name]
		if !ok {
			continue
		}
		n, typ := int64(0), ""
		for _, g := range list {
			n += g.Count
			if g.Type != "" && typ != "" && g.Type != typ {
				r.refuse(name, "asks for two types of GPU", "ask for one type, or leave the type out")
				return
			}
			typ = max(typ, g.Type)
		}
		n = r.each(name, n)
		if r.req.Nodes > 1 && name != "gpus-per-task" {
			r.note(name, "%d on each of %d nodes", n, r.req.Nodes)
		}
		if name == "gpus-per-task" {
			if !r.tasksSaid && n > 0 && r.req.GPUsSaid {
				r.tasks, r.tasksSaid = max(1, r.req.GPUs/n), true
			}
			n *= r.tasks
		}
		if r.req.GPUsSaid && n != r.req.GPUs {
			r.refuse(name, fmt.Sprintf("asks for %d GPUs, but --%s for %d", n, said, r.req.GPUs), "leave one of them out")
			return
		}
		if typ != "" && r.req.GPUType != "" && typ != r.req.GPUType {
			r.refuse(name, "asks for type "+typ+" and --"+said+" for "+r.req.GPUType, "leave one of them out")
			return
		}
		said, r.req.GPUs, r.req.GPUsSaid, r.req.GPUType = name, n, true, max(r.req.GPUType, typ)
	}
}

// finishFreq drops a clock if there are no GPUs for it.
func (r *resolver) finishFreq() {
	if r.req.GPUFreq == "" || r.req.GPUs > 0 {
		return
	}
	r.req.GPUFreq = ""
	r.ignore("gpu-freq", "the job asks for no GPUs", "add --gpus")
}

func (r *resolver) finishTasks() {
	switch {
	case r.perGPU > 0 && !r.tasksSaid:
		if r.req.GPUs == 0 {
			r.refuse("ntasks-per-gpu", "the job has no GPUs", "add --gpus")
		}
		r.tasks, r.tasksSaid = max(1, r.perGPU*r.req.GPUs), true
	case r.perNode > 0 && !r.tasksSaid:
		r.tasks, r.tasksSaid = r.perNode, true
	case r.perNode > 0 && r.tasks > r.perNode:
		r.refuse("ntasks-per-node", fmt.Sprintf("%d tasks with %d per node need %d nodes; a job without --nodes runs on one", r.tasks, r.perNode, (r.tasks+r.perNode-1)/r.perNode),
			"raise it to the number of tasks")
	}
}

func (r *resolver) finishCPUs() {
	switch {
	case r.cpusPerGPU > 0 && r.req.GPUs == 0:
		r.refuse("cpus-per-gpu", "the job has no GPUs", "add --gpus, or use --cpus-per-task")
	case r.cpusPerGPU > 0 && r.cpusPerTask > 0:
		r.refuse("cpus-per-gpu", "cannot be combined with --cpus-per-task", "leave one of them out")
	case r.cpusPerGPU > 0:
		r.req.CPUs = r.cpusPerGPU * r.req.GPUs
	case r.cpusPerTask > 0 || r.tasksSaid:
		r.req.CPUs = r.tasks * max(1, r.cpusPerTask)
	}
	r.req.CPUs = max(r.req.CPUs, r.minCPUs)
	r.note("cpus-per-gpu", "%d cores for %d GPUs", r.req.CPUs, r.req.GPUs)
	tasks := "1 task"
	if r.tasks != 1 {
		tasks = fmt.Sprintf("%d tasks", r.tasks)
	}
	for _, name := range []string{"ntasks", "ntasks-per-node", "tasks-per-node", "ntasks-per-gpu"} {
		switch {
		case r.uneven > 0:
			r.note(name, "%d tasks, at most %s and %d cores on each of %d nodes; the script runs once, on the first, and starts its tasks with srun", r.uneven, tasks, r.req.CPUs, r.req.Nodes)
			continue
		case r.req.Nodes > 1:
			r.note(name, "%s and %d cores on each of %d nodes; the script runs once, on the first, and starts its tasks with srun", tasks, r.req.CPUs, r.req.Nodes)
			continue
		}
		r.note(name, "%s, %d cores in total; the script itself runs once", tasks, r.req.CPUs)
	}
	r.note("gpus-per-task", "%d GPUs for %s", r.req.GPUs, tasks)
}

// memOptions are the ways to request memory; one source may use only one.
var memOptions = []string{"mem", "mem-per-cpu", "mem-per-gpu"}

func (r *resolver) finishMem() {
	strongest, said := -1, ""
	for _, name := range memOptions {
		i, ok := r.memFrom[name]
		if !ok {
			continue
		}
		src := int(r.out[i].From.Source)
		switch {
		case src == strongest:
			r.refuse(name, "cannot be combined with --"+said, "leave one of them out")
			return
		case src > strongest:
			if said != "" {
				r.override(said, name)
			}
			strongest, said = src, name
		default:
			r.override(name, said)
		}
	}
	if map[string]int64{"mem": r.mem, "mem-per-cpu": r.memPerCPU, "mem-per-gpu": r.memPerGPU}[said] == 0 {
		r.req.AllMem = said != ""
		return
	}
	switch said {
	case "mem":
		r.req.MemMiB = r.mem
	case "mem-per-cpu":
		r.req.MemMiB = times(r.memPerCPU, max(1, r.req.CPUs))
		r.note(said, "%d MiB for %d cores", r.req.MemMiB, max(1, r.req.CPUs))
	case "mem-per-gpu":
		if r.req.GPUs == 0 {
			r.refuse(said, "the job has no GPUs", "add --gpus, or use --mem")
			return
		}
		r.req.MemMiB = times(r.memPerGPU, r.req.GPUs)
		r.note(said, "%s of host memory for %d GPUs; GPU memory is predicted, or given with --gpu-mem", cluster.MemText(r.req.MemMiB), r.req.GPUs)
	}
}

func times(a, b int64) int64 {
	if b > 0 && a > (1<<62)/b {
		return 1 << 62
	}
	return a * b
}

func (r *resolver) override(name, by string) {
	i, j := r.memFrom[name], r.memFrom[by]
	o := &r.out[i]
	o.Fate, o.Note, o.Fix = Overridden, "by --"+by+", "+r.out[j].From.String(), ""
}
