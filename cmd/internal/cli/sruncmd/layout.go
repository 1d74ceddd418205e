package sruncmd

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/berth-scheduler/berth/cmd/internal/sbatch"
	"github.com/berth-scheduler/berth/cmd/internal/slurm"
)

// place is one node of a step, and its tasks.
type place struct {
	node string
	// id is the node's number in the step, first the rank of its first task.
	id, first, tasks int
	// the position in the job by which its GPUs are counted
	inJob int
}

// ranks lists the tasks of a node.
func (p *place) ranks() string {
	out := make([]string, p.tasks)
	for i := range out {
		out[i] = strconv.Itoa(p.first + i)
	}
	return strings.Join(out, ",")
}

// layout is where the tasks of a step run.
type layout struct {
	places []place
	tasks  int
	cpus   int // of each task, as requested; 0 if not
	// gpus is how many of the job's GPUs each node of the step has, 0 for all;
	// eachGPUs how many of them each task sees, 0 for all.
	gpus, eachGPUs int
	exact          bool // the step has its cores to itself
	// memMiB is what the step requested of each node's memory, memPerCPU per core
	// of its tasks; 0 if not.
	memMiB, memPerCPU int64
	warnings          []string
}

func (l *layout) nodes() []string {
	out := make([]string, len(l.places))
	for i, p := range l.places {
		out[i] = p.node
	}
	return out
}

// perNode formats how many tasks the nodes have: 2(x3),1.
func (l *layout) perNode() string {
	var counts []int
	for _, p := range l.places {
		counts = append(counts, p.tasks)
	}
	return foldCounts(counts)
}

func foldCounts(counts []int) string {
	var out []string
	for i := 0; i < len(counts); {
		k := i
		for k < len(counts) && counts[k] == counts[i] {
			k++
		}
		s := strconv.Itoa(counts[i])
		if k-i > 1 {
			s += fmt.Sprintf("(x%d)", k-i)
		}
		out = append(out, s)
		i = k
	}
	return strings.Join(out, ",")
}

// unfoldCounts parses what foldCounts writes.
func unfoldCounts(s string) ([]int, bool) {
	var out []int
	for item := range strings.SplitSeq(s, ",") {
		n, times, folded := strings.Cut(item, "(x")
		k := 1
		count, err := strconv.Atoi(n)
		if folded {
			var terr error
			if k, terr = strconv.Atoi(strings.TrimSuffix(times, ")")); terr != nil {
				return nil, false
			}
		}
		if err != nil || count < 0 || k < 1 || len(out)+k > 1<<16 {
			return nil, false
		}
		for range k {
			out = append(out, count)
		}
	}
	return out, true
}

// job is what a step knows of its job, from the environment.
type job struct {
	id     uint64
	nodes  []string
	counts []int // of tasks on each
	cpus   []int
	memMiB []int64 // on each; nil if unknown
	gpus   int     // on each
	tasks  int
	here   string // the node inside the job that this runs on, "" outside
}

func jobFrom(getenv func(string) string) (*job, error) {
	j := &job{here: getenv("SLURMD_NODENAME")}
	var err error
	if j.id, err = strconv.ParseUint(getenv("SLURM_JOB_ID"), 10, 63); err != nil {
		return nil, fmt.Errorf("SLURM_JOB_ID: %q is not a job", getenv("SLURM_JOB_ID"))
	}
	if j.nodes, err = slurm.Unfold(getenv("SLURM_JOB_NODELIST")); err != nil || len(j.nodes) == 0 {
		return nil, fmt.Errorf("SLURM_JOB_NODELIST: %q names no nodes", getenv("SLURM_JOB_NODELIST"))
	}
	fill := func(counts []int, ok bool) []int {
		for ok && len(counts) > 0 && len(counts) < len(j.nodes) {
			counts = append(counts, counts[len(counts)-1])
		}
		if !ok || len(counts) != len(j.nodes) {
			return nil
		}
		return counts
	}
	j.counts, j.cpus = fill(unfoldCounts(getenv("SLURM_TASKS_PER_NODE"))), fill(unfoldCounts(getenv("SLURM_JOB_CPUS_PER_NODE")))
	j.tasks, _ = strconv.Atoi(getenv("SLURM_NTASKS"))      // 0 if not requested
	j.gpus, _ = strconv.Atoi(getenv("SLURM_GPUS_ON_NODE")) // 0 if none
	j.memMiB = j.memory(getenv)
	return j, nil
}

// memory returns the job's memory on each node, from its environment.
func (j *job) memory(getenv func(string) string) []int64 {
	out := make([]int64, len(j.nodes))
	for i := range out {
		for _, per := range []struct {
			name string
			n    int
		}{{"NODE", 1}, {"CPU", append(j.cpus, make([]int, len(out))...)[i]}, {"GPU", j.gpus}} {
			if mib, err := strconv.ParseInt(getenv("SLURM_MEM_PER_"+per.name), 10, 32); err == nil && out[i] == 0 {
				out[i] = mib * int64(per.n)
			}
		}
		if out[i] <= 0 {
			return nil
		}
	}
	return out
}

// lay finds the places of a step in its job.
func lay(o *options, j *job) (*layout, error) {
	none := func(string) string { return "" }
	tasks, err := o.number("ntasks", "", none)
	nodes, nerr := o.number("nodes", "", none)
	l := &layout{}
	cpus, cerr := o.number("cpus-per-task", "", none)
	for _, err := range []error{err, nerr, cerr} {
		if err != nil {
			return nil, err
		}
	}
	l.cpus, l.exact = cpus, o.alone()
	chosen, err := chooseNodes(o, j)
	if err != nil {
		return nil, err
	}
	perNode, err := o.number(either(o, "ntasks-per-node", "tasks-per-node"), "", none)
	if err != nil {
		return nil, err
	}
	all := !o.has("ntasks") && !o.has("nodes") && !o.has("nodelist") && !o.has("exclude") && !o.has("relative") && perNode == 0
	switch {
	case nodes > len(j.nodes):
		return nil, slurmWords("Only allocated %d nodes asked for %d", len(j.nodes), nodes)
	case nodes > len(chosen):
		return nil, stepError{j.id, "Requested node configuration is not available"}
	case nodes == 0:
		nodes = len(chosen)
	}
	switch {
	case tasks > 0:
	case perNode > 0:
		tasks = perNode * nodes
	case all && j.tasks > 0:
		tasks = j.tasks
	case o.has("nodes") || o.has("nodelist") || o.has("exclude") || o.has("relative"):
		tasks = nodes
	default:
		tasks = max(1, j.tasks, len(j.nodes))
	}
	if tasks < nodes {
		l.warnings = append(l.warnings, fmt.Sprintf("Warning: can't run %d processes on %d nodes, setting nnodes to %d", tasks, nodes, tasks))
		nodes = tasks
	}
	chosen = chosen[:nodes]
	if err := l.spread(j, chosen, tasks, perNode, o.has("overcommit")); err != nil {
		return nil, err
	}
	return l, errors.Join(l.takeGPUs(o, j), l.takeMemory(o, j))
}

// takeMemory reads how much of the job's memory the step needs free. With
// --overlap it shares it, and 0 is all of it, also shared.
func (l *layout) takeMemory(o *options, j *job) error {
	for name, to := range map[string]*int64{"mem": &l.memMiB, "mem-per-cpu": &l.memPerCPU} {
		if !o.has(name) {
			continue
		}
		mib, err := sbatch.ParseMem(o.values[name])
		if err != nil {
			return fmt.Errorf("--%s: %q: %w", name, o.values[name], err)
		}
		if !o.has("overlap") {
			*to = mib
		}
	}
	for _, p := range l.places {
		if j.memMiB != nil && l.memory(&p) > j.memMiB[p.inJob] {
			return stepError{j.id, "Memory required by task is not available"}
		}
	}
	return nil
}

// memory returns what the step requested on a place, in MiB.
func (l *layout) memory(p *place) int64 {
	if l.memMiB > 0 {
		return l.memMiB
	}
	cores := int64(max(1, p.tasks) * max(1, l.cpus))
	return min(l.memPerCPU, math.MaxInt64/cores) * cores
}

func either(o *options, a, b string) string {
	if o.has(a) {
		return a
	}
	return b
}

// stepError is srun's message for an impossible step.
type stepError struct {
	job  uint64
	text string
}

func (e stepError) Error() string {
	return fmt.Sprintf("Unable to create step for job %d: %s", e.job, e.text)
}

// chooseNodes returns the positions in the job of the nodes that may be used.
func chooseNodes(o *options, j *job) ([]int, error) {
	from := 0
	if o.has("relative") {
		n, err := strconv.Atoi(o.values["relative"])
		if err != nil || n < 0 || n >= len(j.nodes) {
			return nil, stepError{j.id, "Requested node configuration is not available"}
		}
		from = n
	}
	want, werr := slurm.Unfold(o.values["nodelist"])
	not, xerr := slurm.Unfold(o.values["exclude"])
	if werr != nil || xerr != nil {
		return nil, stepError{j.id, "Requested node configuration is not available"}
	}
	for _, n := range want {
		if !slices.Contains(j.nodes, n) {
			return nil, stepError{j.id, "Requested node configuration is not available"}
		}
	}
	var first, rest []int
	for i, n := range j.nodes {
		switch {
		case i < from || slices.Contains(not, n):
		case slices.Contains(want, n):
			first = append(first, i)
		case len(want) == 0:
			rest = append(rest, i)
		}
	}
	if first = append(first, rest...); len(first) == 0 {
		return nil, stepError{j.id, "Requested node configuration is not available"}
	}
	return first, nil
}

// spread assigns the tasks to the chosen nodes: as the job has them, or
// equally many on each, the first ones one more.
func (l *layout) spread(j *job, chosen []int, tasks, perNode int, over bool) error {
	counts := make([]int, len(chosen))
	switch {
	case perNode > 0 && tasks <= perNode*len(chosen):
		left := tasks
		for i := range counts {
			counts[i] = min(perNode, left-(len(counts)-1-i)) // at least one for each of the others
			left -= counts[i]
		}
	case tasks == j.tasks && len(chosen) == len(j.nodes) && j.counts != nil && sum(j.counts) == tasks:
		for i, k := range chosen {
			counts[i] = j.counts[k]
		}
	default:
		for i := range counts {
			counts[i] = tasks / len(chosen)
			if i < tasks%len(chosen) {
				counts[i]++
			}
		}
	}
	if j.cpus != nil && !over {
		have := 0
		for _, k := range chosen {
			have += j.cpus[k]
		}
		if tasks*max(1, l.cpus) > max(have, j.tasks) {
			return stepError{j.id, "More processors requested than permitted"}
		}
	}
	for i, k := range chosen {
		l.places = append(l.places, place{node: j.nodes[k], id: i, first: l.tasks, tasks: counts[i], inJob: k})
		l.tasks += counts[i]
	}
	return nil
}

func sum(list []int) (n int) {
	for _, k := range list {
		n += k
	}
	return n
}

// takeGPUs decides how many of the job's GPUs the step has on each node, if
// it requests some of them.
func (l *layout) takeGPUs(o *options, j *job) error {
	most := 0
	for _, p := range l.places {
		most = max(most, p.tasks)
	}
	each := func(name string, list []sbatch.Gres) {
		n := 0
		for _, g := range list {
			n += int(g.Count)
		}
		switch name {
		case "gpus-per-task":
			l.eachGPUs, l.gpus = n, max(l.gpus, n*most)
		case "gpus":
			l.gpus = (n + len(l.places) - 1) / len(l.places)
		default:
			l.gpus = n
		}
	}
	for _, name := range []string{"gres", "gpus-per-node", "gpus", "gpus-per-task"} {
		text, ok := o.values[name]
		if !ok || text == "none" {
			continue
		}
		parse := sbatch.ParseGPUs
		if name == "gres" {
			parse = sbatch.ParseGres
		}
		list, err := parse(text)
		if err != nil {
			return err
		}
		each(name, list)
	}
	if l.gpus > j.gpus {
		return stepError{j.id, "Invalid generic resource (gres) specification"}
	}
	return nil
}
