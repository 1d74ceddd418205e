package sbatch

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/slurm"
)

// rule is what becomes of an option. read, if set, checks the value as
// sbatch would, and may return another verdict than the row's.
type rule struct {
	fate      Fate
	note, fix string
	read      func(r *resolver, v string) (*verdict, error)
}

type verdict struct {
	fate      Fate
	note, fix string
}

func honour() (*verdict, error) { return &verdict{fate: Honoured}, nil }

func into(p func(*Request) *string) func(*resolver, string) (*verdict, error) {
	return func(r *resolver, v string) (*verdict, error) {
		*p(r.req) = v
		return nil, nil
	}
}

func truth(p func(*Request) *bool, v bool) func(*resolver, string) (*verdict, error) {
	return func(r *resolver, _ string) (*verdict, error) {
		*p(r.req) = v
		return nil, nil
	}
}

// number reads a count; the error is in sbatch's words.
func number(name string, p func(*resolver) *int64) func(*resolver, string) (*verdict, error) {
	return func(r *resolver, v string) (*verdict, error) {
		n, err := count(v)
		if err != nil {
			return nil, Message(fmt.Sprintf("Invalid numeric value \"%s\" for --%s.", v, name))
		}
		*p(r) = n
		return nil, nil
	}
}

func (r *resolver) keep(option, v string) {
	if r.gpuText == nil {
		r.gpuText = map[string]string{}
	}
	r.gpuText[option] = v
}

func ignored(note string) rule { return rule{fate: Ignored, note: note} }

func refused(note, fix string) rule { return rule{fate: Refused, note: note, fix: fix} }

const (
	layout  = "tasks and cores are not placed by hand"
	network = "not supported here"
)

// rules says what becomes of each of slurmOptions.
var rules = sync.OnceValue(func() map[string]rule {
	return map[string]rule{
		// What runs, as whom, where.
		"job-name":     {fate: Honoured, read: readName},
		"chdir":        {fate: Honoured, read: into(func(r *Request) *string { return &r.Dir })},
		"output":       {fate: Honoured, read: readFile("output", func(r *Request) *string { return &r.Stdout })},
		"error":        {fate: Honoured, read: readFile("error", func(r *Request) *string { return &r.Stderr })},
		"input":        {fate: Honoured, read: readFile("input", func(r *Request) *string { return &r.Stdin })},
		"export":       {fate: Honoured, read: readExport},
		"comment":      {fate: Honoured, read: into(func(r *Request) *string { return &r.Comment })},
		"wrap":         {fate: Honoured, read: readWrap},
		"open-mode":    {read: readOpenMode},
		"export-file":  refused("variables are not read from a file", "use --export=ALL,NAME=value, or source the file in the script"),
		"get-user-env": ignored("the environment is that of the submission; put login setup into the script"),
		"uid":          refused("a job runs as the user who submits it", "submit it as that user"),
		"gid":          refused("a job runs with the group of the user who submits it", "use newgrp before submitting"),
		"container":    refused("OCI bundles are not supported", "name an image: #BERTH --image=REFERENCE"),
		"propagate":    ignored("limits are the node's"),

		// What it needs.
		"gres":            {fate: Honoured, read: readGres},
		"gpus":            {fate: Honoured, read: readGPUs("gpus", Honoured)},
		"gpus-per-node":   {fate: Mapped, note: "on one node the same as --gpus", read: readGPUs("gpus-per-node", Mapped)},
		"gpus-per-task":   {fate: Mapped, read: readGPUs("gpus-per-task", Mapped)},
		"gpus-per-socket": refused("GPUs are not selected by socket", "use --gpus"),
		"cpus-per-gpu":    {fate: Mapped, read: number("cpus-per-gpu", func(r *resolver) *int64 { return &r.cpusPerGPU })},
		"cpus-per-task":   {fate: Honoured, read: number("cpus-per-task", func(r *resolver) *int64 { return &r.cpusPerTask })},
		"mincpus":         {fate: Mapped, note: "at least this many cores", read: number("mincpus", func(r *resolver) *int64 { return &r.minCPUs })},
		"mem":             {fate: Honoured, read: readMem("mem", func(r *resolver) *int64 { return &r.mem })},
		"mem-per-cpu":     {fate: Mapped, read: readMem("mem-per-cpu", func(r *resolver) *int64 { return &r.memPerCPU })},
		"mem-per-gpu":     {fate: Mapped, read: readMem("mem-per-gpu", func(r *resolver) *int64 { return &r.memPerGPU })},
		"ntasks":          {fate: Mapped, read: readTasks},
		"ntasks-per-node": {fate: Mapped, read: number("ntasks-per-node", func(r *resolver) *int64 { return &r.perNode })},
		"tasks-per-node":  {fate: Mapped, read: number("ntasks-per-node", func(r *resolver) *int64 { return &r.perNode })},
		"ntasks-per-gpu":  {fate: Mapped, read: number("ntasks-per-gpu", func(r *resolver) *int64 { return &r.perGPU })},
		"ntasks-per-tres": {fate: Mapped, read: number("ntasks-per-tres", func(r *resolver) *int64 { return &r.perGPU })},
		"nodes":           {fate: Honoured, read: readNodes},
		"time":            {fate: Honoured, read: readTime},
		"tmp":             ignored("disk space is not managed"),
		"licenses":        ignored("licenses are not managed"),
		"exclusive":       {fate: Honoured, read: readExclusive},
		"oversubscribe":   {fate: Mapped, note: "jobs share GPUs wherever they fit, without asking"},
		"overcommit":      ignored("cores are weights here: ask for what is needed"),

		// Where.
		"nodelist":           {read: readNodeList},
		"nodefile":           refused("nodes are not read from a file", "name them with --nodelist"),
		"exclude":            {read: readExclude},
		"constraint":         {read: readConstraint},
		"cluster-constraint": ignored("there is only one cluster"),
		"prefer":             ignored("features can be required with --constraint, not preferred"),
		"batch":              ignored("the script runs on the first of the job's nodes"),
		"partition":          {read: readPartition},
		"reservation":        {read: readReservation},
		"cluster":            {read: readClusters},
		"clusters":           {read: readClusters},
		"contiguous":         ignored("nodes on one switch are used if available, without waiting for them"),
		"spread-job":         ignored("jobs use nodes on one switch if available, and are not spread"),
		"use-min-nodes":      ignored("with a range of nodes, a job starts on as many as are worth it"),
		"switches":           {read: readSwitches},
		"wait-all-nodes":     ignored("a job starts once all its nodes are ready"),
		"no-kill":            ignored("a job on several nodes ends when one of them fails"),

		// When, and how it ends.
		"hold":                {fate: Honoured, read: truth(func(r *Request) *bool { return &r.Hold }, true)},
		"begin":               {read: readBegin},
		"deadline":            {read: readDeadline},
		"dependency":          {read: readDependency},
		"kill-on-invalid-dep": {read: readKillInvalid},
		"array":               {fate: Honoured, read: readArray},
		"signal":              {read: readSignal},
		"time-min":            ignored("a time limit is not shortened to start sooner"),
		"requeue":             {fate: Mapped, note: "requeued when its node is lost", read: truth(func(r *Request) *bool { return &r.Requeue }, true)},
		"no-requeue":          {fate: Honoured, read: truth(func(r *Request) *bool { return &r.Requeue }, false)},
		"nice":                {read: readNice},
		"priority":            ignored("there are no numeric priorities"),
		"account":             {read: readAccount},
		"qos":                 {read: readQOS},
		"wckey":               ignored("jobs are charged only by account"),
		"mcs-label":           ignored("there are no labels"),
		"context":             ignored("there are no security contexts"),
		"delay-boot":          ignored("nodes are not rebooted for jobs"),
		"reboot":              refused("nodes are not rebooted for jobs", "ask an administrator"),
		"mail-type":           {fate: Honoured, read: readMailType},
		"mail-user":           {fate: Honoured, read: readMailUser},

		// How the submit itself behaves.
		"wait":       {fate: Honoured, read: truth(func(r *Request) *bool { return &r.Wait }, true)},
		"parsable":   {fate: Honoured, read: truth(func(r *Request) *bool { return &r.Parsable }, true)},
		"test-only":  {fate: Mapped, note: "nothing is submitted; the job's needs are predicted", read: truth(func(r *Request) *bool { return &r.Test }, true)},
		"quiet":      {fate: Honoured, read: truth(func(r *Request) *bool { return &r.Quiet }, true)},
		"verbose":    {fate: Honoured, read: truth(func(r *Request) *bool { return &r.Verbose }, true)},
		"help":       {fate: Honoured, read: truth(func(r *Request) *bool { return &r.Help }, true)},
		"usage":      {fate: Honoured, read: truth(func(r *Request) *bool { return &r.Help }, true)},
		"version":    {fate: Honoured, read: truth(func(r *Request) *bool { return &r.Version }, true)},
		"ignore-pbs": {fate: Honoured, note: "#PBS and #BSUB lines are comments"},

		// What binds and measures tasks.
		"acctg-freq": ignored("jobs are always measured"), "profile": ignored("jobs are always measured"),
		"bb": refused("burst buffers are not managed", "copy the files in the script"), "bbf": refused("burst buffers are not managed", "copy the files in the script"),
		"core-spec": ignored(layout), "thread-spec": ignored(layout), "cores-per-socket": ignored(layout), "sockets-per-node": ignored(layout),
		"threads-per-core": ignored(layout), "extra-node-info": ignored(layout), "ntasks-per-core": ignored(layout), "ntasks-per-socket": ignored(layout),
		"distribution": ignored(layout), "hint": ignored(layout), "mem-bind": ignored(layout), "gpu-bind": ignored(layout), "gres-flags": ignored(layout),
		"cpu-freq": ignored("clocks are not set for jobs"), "gpu-freq": {fate: Mapped, note: "the job gets whole GPUs, since a clock applies to a whole card; berth show shows what was set", read: readGPUFreq}, "power": ignored("power is not set for jobs"),
		"network": ignored(network),
	}
})

func readName(r *resolver, v string) (*verdict, error) {
	name := CleanName(v)
	r.req.Name = name
	if name != v {
		return &verdict{fate: Mapped, note: fmt.Sprintf("the job is named %q: names have at most 63 bytes and no slash", name)}, nil
	}
	return honour()
}

func readFile(option string, p func(*Request) *string) func(*resolver, string) (*verdict, error) {
	return func(r *resolver, v string) (*verdict, error) {
		if v == "none" && option != "input" {
			v = "/dev/null"
		}
		*p(r.req) = v
		if _, unknown := Patterns(v); unknown != "" {
			return &verdict{fate: Honoured, note: "%" + unknown[:1] + " is not a pattern and stays as it is"}, nil
		}
		return honour()
	}
}

func readExport(r *resolver, v string) (*verdict, error) {
	if v == "NIL" {
		v = "NONE"
	}
	r.req.Export = v
	return honour()
}

func readWrap(r *resolver, v string) (*verdict, error) {
	r.req.Wrap, r.req.Wrapped = v, true
	return honour()
}

// ClusterName is the cluster's name as given to jobs and Slurm's commands.
const ClusterName = "berth"

func readClusters(r *resolver, v string) (*verdict, error) {
	for name := range strings.SplitSeq(v, ",") {
		if name == ClusterName {
			r.req.Cluster = name
			return honour()
		}
	}
	return &verdict{fate: Ignored, note: "there is only one cluster"}, nil
}

// ParseOpenMode reads how files are opened, and reports whether they are
// truncated. As with Slurm only the first letter counts.
func ParseOpenMode(s string) (truncate bool, err error) {
	switch s = strings.ToLower(s); {
	case strings.HasPrefix(s, "a"):
		return false, nil
	case strings.HasPrefix(s, "t"):
		return true, nil
	}
	return false, Message("Invalid --open-mode specification")
}

// openModeLetter returns the letter that tells a job's steps how to open their files.
func openModeLetter(truncate bool) string {
	if truncate {
		return "t"
	}
	return "a"
}

func readOpenMode(r *resolver, v string) (*verdict, error) {
	truncate, err := ParseOpenMode(v)
	if err != nil {
		return nil, err
	}
	r.req.Truncate = truncate
	r.keep("open-mode", openModeLetter(truncate))
	return honour()
}

func readGres(r *resolver, v string) (*verdict, error) {
	list, err := ParseGres(v)
	if err != nil {
		return nil, err
	}
	var gpus []Gres
	for _, g := range list {
		switch g.Name {
		case "gpu":
			gpus = append(gpus, g)
		case "shard", "mps":
			return &verdict{Refused, "what part of a GPU " + g.Name + " means is up to the site", "ask for the memory: #BERTH --gpus=1 --gpu-mem=SIZE"}, nil
		default:
			return &verdict{Refused, "only GPUs are allocated; " + g.Name + " is not known", "leave it out"}, nil
		}
	}
	return r.askGPUs("gres", gpus, v, Honoured)
}

func readGPUs(option string, fate Fate) func(*resolver, string) (*verdict, error) {
	return func(r *resolver, v string) (*verdict, error) {
		list, err := ParseGPUs(v)
		if err != nil {
			return nil, err
		}
		return r.askGPUs(option, list, v, fate)
	}
}

func (r *resolver) askGPUs(option string, list []Gres, text string, fate Fate) (*verdict, error) {
	if r.gpus == nil {
		r.gpus = map[string][]Gres{}
	}
	r.gpus[option] = list
	if option != "gres" {
		r.keep(option, text)
	}
	for _, g := range list {
		if g.Type != "" {
			return &verdict{fate: Mapped, note: fmt.Sprintf("type %s is the cluster's only type of that name", g.Type)}, nil
		}
	}
	if fate == Mapped {
		return nil, nil
	}
	return honour()
}

func readGPUFreq(r *resolver, v string) (*verdict, error) {
	freq, err := cluster.ParseGPUFreq(strings.TrimSuffix(v, ",verbose"))
	if err != nil {
		_, why, _ := strings.Cut(err.Error(), ": ")
		return &verdict{Refused, why, "use --gpu-freq=medium, for one"}, nil
	}
	r.req.GPUFreq = freq
	r.keep("gpu-freq", v)
	return nil, nil
}

const allMem = "all memory: with --exclusive that of its nodes, otherwise that of the smallest node that could run the job"

func readMem(option string, p func(*resolver) *int64) func(*resolver, string) (*verdict, error) {
	return func(r *resolver, v string) (*verdict, error) {
		n, err := ParseMem(v)
		if err != nil {
			return nil, Message(fmt.Sprintf("Invalid --%s specification: %v", option, err))
		}
		*p(r) = n
		if r.memFrom == nil {
			r.memFrom = map[string]int{}
		}
		r.memFrom[option] = len(r.out)
		if n == 0 {
			return &verdict{fate: Honoured, note: allMem}, nil
		}
		return nil, nil
	}
}

func readTasks(r *resolver, v string) (*verdict, error) {
	n, err := count(v)
	if err != nil {
		return nil, Message(fmt.Sprintf("Invalid numeric value \"%s\" for --ntasks.", v))
	}
	r.tasks, r.tasksSaid = n, true
	return nil, nil
}

func readNodes(r *resolver, v string) (*verdict, error) {
	least, most, err := ParseNodes(v)
	r.req.Nodes, r.req.MostNodes, r.nodesSaid = 0, 0, err == nil
	switch {
	case err != nil:
		return nil, err
	case least > cluster.MaxNodes:
		return &verdict{Refused, fmt.Sprintf("a job runs on at most %d nodes, not %d", cluster.MaxNodes, least), "ask for fewer"}, nil
	case least < 1 && most < 1: // the same as none
	case most > least: // see finishRange
		r.req.Nodes, r.req.MostNodes = max(1, least), most
	case least > 1:
		r.req.Nodes = least
	}
	return honour()
}

func readTime(r *resolver, v string) (*verdict, error) {
	limit, limited, err := ParseTime(v)
	if err != nil {
		return nil, err
	}
	r.req.TimeLimit = (limit + time.Minute - 1).Truncate(time.Minute) // as in Slurm: a job never ends early
	switch {
	case !limited:
		return &verdict{fate: Honoured, note: "no limit"}, nil
	case limit > maxLimit:
		return &verdict{Refused, "more than 30 days", "--time=30-0, and continue from a checkpoint"}, nil
	}
	return honour()
}

const maxLimit = 30 * 24 * time.Hour

func readPartition(r *resolver, v string) (*verdict, error) {
	r.req.Partition = v
	r.keep("partition", v)
	if strings.Contains(v, ",") {
		return &verdict{fate: Mapped, note: "the first of them that accepts the job and is up"}, nil
	}
	return honour()
}

func readBegin(r *resolver, v string) (*verdict, error) {
	if _, ok := slurm.ParseNext(v, time.Unix(0, 0)); !ok {
		return nil, Message("Invalid --begin specification")
	}
	r.req.Begin = v
	return honour()
}

func readKillInvalid(r *resolver, v string) (*verdict, error) {
	switch strings.ToLower(v) {
	case "yes", "y", "no", "n":
		r.req.KillInvalidDepend = strings.ToLower(v)[0] == 'y'
		return honour()
	}
	return nil, Message("Invalid --kill-on-invalid-dep specification")
}

var dependencyTypes = []string{"after", "afterany", "afterok", "afternotok", "aftercorr", "afterburstbuffer", "expand", "singleton"}

func readDependency(r *resolver, v string) (*verdict, error) {
	for item := range strings.FieldsFuncSeq(v, func(r rune) bool { return r == ',' || r == '?' }) {
		kind, _, _ := strings.Cut(item, ":")
		if !slices.Contains(dependencyTypes, strings.ToLower(kind)) && !digits(kind) {
			return nil, Message("Job dependency problem: " + item)
		}
	}
	deps, anyOf, err := cluster.ParseDepends(v)
	if err != nil {
		return &verdict{Refused, strings.TrimPrefix(err.Error(), "dependency "), "jobs wait for the start or the end of others (after, afterany, afterok, afternotok, singleton)"}, nil
	}
	r.req.Depends, r.req.DependAny = deps, anyOf
	r.keep("dependency", v)
	return honour()
}

func readArray(r *resolver, v string) (*verdict, error) {
	if _, err := ParseArray(v); err != nil {
		return nil, err
	}
	a, err := cluster.ParseArray(v)
	if err != nil {
		return nil, Message(err.Error())
	}
	r.req.Array = a
	r.keep("array", v)
	return honour()
}

func readSignal(r *resolver, v string) (*verdict, error) {
	s, err := ParseSignal(v)
	if err != nil {
		return nil, err
	}
	r.req.Warning = cluster.Warning{}
	if !slices.Contains(cluster.WarningSignals(), s.Name) {
		return &verdict{Ignored, fmt.Sprintf("%s gives no warning; the time limit sends SIGTERM, then SIGKILL some seconds later", s.Name), "use USR1"}, nil
	}
	r.req.Warning = cluster.Warning{Signal: s.Name, Before: max(s.Before, cluster.MinWarning), First: s.Batch}
	if s.Batch {
		return honour()
	}
	return &verdict{fate: Mapped, note: "to every process of the job except the script's shell"}, nil
}

func readDeadline(r *resolver, v string) (*verdict, error) {
	if _, ok := slurm.ParseNext(v, time.Unix(0, 0)); !ok {
		return nil, Message("Invalid --deadline specification")
	}
	r.req.Deadline = v
	return honour()
}

// CleanName turns what Slurm accepts as a job name into one of Berth's.
func CleanName(s string) string {
	out := []rune{}
	for _, c := range strings.ToValidUTF8(s, "_") {
		if c == '/' || !unicode.IsGraphic(c) {
			c = '_'
		}
		out = append(out, c)
	}
	for i := 0; i < len(out) && (out[i] == '-' || out[i] == '.'); i++ {
		out[i] = '_'
	}
	for len(string(out)) > 63 {
		out = out[:len(out)-1]
	}
	return string(out)
}
