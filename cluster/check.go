package cluster

import (
	"path"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/berth-scheduler/berth/cluster/service"
	"github.com/berth-scheduler/berth/cluster/study"
)

// Check reports whether some cluster could run s. It returns the first fault as an
// *Error of CodeInvalid that names the field.
func (s *Spec) Check() error {
	for _, f := range []func() error{s.checkCommand, s.checkEnv, s.checkPaths, s.checkService, s.checkSizes, s.checkContainer, s.checkWarning, s.checkTelling, s.checkConflicts} {
		if err := f(); err != nil {
			return err
		}
	}
	return checkData(s.Data)
}

func (s *Spec) checkCommand() error {
	if err := CheckJobName(s.Name); err != nil {
		return err
	}
	if len(s.Command) == 0 || s.Command[0] == "" {
		return Errorf(CodeInvalid, "command: is missing; give the program after --")
	}
	if len(s.Command) > MaxArgs {
		return Errorf(CodeInvalid, "command: %d arguments, at most %d are allowed; put them into a script", len(s.Command), MaxArgs)
	}
	total := 0
	for i, a := range s.Command {
		if strings.IndexByte(a, 0) >= 0 {
			return Errorf(CodeInvalid, "command: argument %d holds a NUL byte", i)
		}
		total += len(a) + 1
	}
	if total > MaxArgBytes {
		return Errorf(CodeInvalid, "command: %d bytes of arguments, at most %d are allowed; put them into a script", total, MaxArgBytes)
	}
	return nil
}

// reservedEnv is the prefix of variables that Berth itself sets.
const reservedEnv = "BERTH_"

func (s *Spec) checkEnv() error {
	if len(s.Env) > MaxEnv {
		return Errorf(CodeInvalid, "env: %d variables, at most %d are allowed", len(s.Env), MaxEnv)
	}
	for i, line := range s.Env {
		key, _, ok := strings.Cut(line, "=")
		switch {
		case !ok || key == "":
			return Errorf(CodeInvalid, "env[%d] %s: must be NAME=value", i, QuoteShort(line))
		case strings.IndexByte(line, 0) >= 0:
			return Errorf(CodeInvalid, "env[%d] %s: holds a NUL byte", i, QuoteShort(key))
		case len(line) > MaxEnvLine:
			return Errorf(CodeInvalid, "env[%d] %s: %d bytes, at most %d are allowed", i, QuoteShort(key), len(line), MaxEnvLine)
		case strings.HasPrefix(key, reservedEnv):
			return Errorf(CodeInvalid, "env[%d] %s: names beginning with %s are set by Berth itself", i, QuoteShort(key), reservedEnv)
		}
	}
	return nil
}

func (s *Spec) checkPaths() error {
	if s.Dir != "" {
		if !path.IsAbs(s.Dir) || path.Clean(s.Dir) != s.Dir {
			return Errorf(CodeInvalid, "dir %s: must be an absolute path without '..', '.' or double slashes", QuoteShort(s.Dir))
		}
		for _, bad := range []string{"/proc", "/sys", "/dev"} {
			if s.Dir == bad || strings.HasPrefix(s.Dir, bad+"/") {
				return Errorf(CodeInvalid, "dir %s: may not lie under %s", QuoteShort(s.Dir), bad)
			}
		}
	}
	for _, p := range []struct{ field, v string }{
		{"stdin", s.Stdin}, {"stdout", s.Stdout}, {"stderr", s.Stderr}, {"dir", s.Dir}, {"image", s.Image},
	} {
		if len(p.v) > MaxPathLen {
			return Errorf(CodeInvalid, "%s: %d bytes, at most %d are allowed", p.field, len(p.v), MaxPathLen)
		}
		if strings.ContainsAny(p.v, "\x00\n\r\x1b") {
			return Errorf(CodeInvalid, "%s %s: holds a control character", p.field, QuoteShort(p.v))
		}
	}
	return s.checkText()
}

// checkText bounds fields that are neither names nor paths. Unlike paths, which are
// bytes to the kernel, they must be UTF-8, since they are stored and shown as text.
func (s *Spec) checkText() error {
	for _, p := range []struct {
		field, v string
		max      int
	}{
		{"comment", s.Comment, maxComment}, {"gpu_type", s.GPUType, MaxNameLen}, {"image", s.Image, MaxPathLen}, {"signature", s.Signature, 2 * MaxNameLen}, {"program", s.Program, 2 * MaxNameLen}, {"numbers", s.Numbers, maxNumbersText},
	} {
		if len(p.v) > p.max {
			return Errorf(CodeInvalid, "%s: %d bytes, at most %d are allowed", p.field, len(p.v), p.max)
		}
		if !utf8.ValidString(p.v) {
			return Errorf(CodeInvalid, "%s %s: is not UTF-8", p.field, QuoteShort(p.v))
		}
	}
	return nil
}

const maxComment = 1024

// maxNumbersText bounds Spec.Numbers; the model writes no more.
const maxNumbersText = 320

// seconds rounds down, so that a span just below zero does not become 0.
func seconds(d time.Duration) int64 {
	n := int64(d / time.Second)
	if d < 0 && d%time.Second != 0 {
		n--
	}
	return n
}

func (s *Spec) checkSizes() error {
	for _, v := range []struct {
		field    string
		got, max int64
		unit     string
		hint     string
	}{
		{"gpus", int64(s.GPUs), MaxGPUsPerJob, "", " on each node; --nodes asks for several"},
		{"nodes", int64(s.Nodes), MaxNodes, "", ""},
		{"tasks", int64(s.Tasks), MaxTasks, "", ""},
		{"gpu_mem", s.GPUMemMiB, MaxMemMiB, " MiB", ""},
		{"gpu_util", s.GPUMilli, WholeGPU, " thousandths", ""},
		{"mem", s.MemMiB, MaxMemMiB, " MiB", ""},
		{"cpus", s.CPUMilli, 4096 * 1000, " thousandths", ""},
		{"time", seconds(s.TimeLimit), MaxTimeDays * 86400, " seconds", ""},
		{"expect", seconds(s.Duration), MaxTimeDays * 86400, " seconds", ""},
		{"defer", seconds(s.Defer), MaxDeferDays * 86400, " seconds", ""},
		{"features", int64(len(s.Features)), MaxFeatures, " bytes", ""},
		{"script", int64(len(s.Script)), MaxPackedScript, " bytes, packed,", ""},
	} {
		if v.got < 0 || v.got > v.max {
			return Errorf(CodeInvalid, "%s: %d%s is outside 0 to %d%s", v.field, v.got, v.unit, v.max, v.hint)
		}
	}
	if s.Partition != "" {
		if err := CheckPartitions(s.Partition); err != nil {
			return err
		}
	}
	if err := s.checkStanding(); err != nil {
		return err
	}
	if err := s.checkGoals(); err != nil {
		return err
	}
	if err := s.Checkpoint.Check(); err != nil {
		return err
	}
	if err := s.checkWaiting(); err != nil {
		return err
	}
	if s.TimeLimit != 0 && s.TimeLimit < time.Second {
		return Errorf(CodeInvalid, "time: %s is below the minimum of 1 s", TimeText(s.TimeLimit))
	}
	return nil
}

// checkGoals bounds the deadline and objective.
func (s *Spec) checkGoals() error {
	const most = 1_000_000_000
	names := make([]string, 0, len(Objectives()))
	for _, o := range Objectives() {
		names = append(names, string(o))
	}
	switch {
	case s.DeadlineIn != 0 && (s.DeadlineIn < time.Second || seconds(s.DeadlineIn) > MaxTimeDays*86400):
		return Errorf(CodeInvalid, "deadline: %s from now is outside 1 s to %d days", TimeText(s.DeadlineIn), MaxTimeDays)
	case s.Deadline < 0:
		return Errorf(CodeInvalid, "deadline: is before 1970")
	case s.Deadline > LastTime:
		return Errorf(CodeInvalid, "deadline: is after the year 2199")
	case s.Deadline > 0 && s.DeadlineIn > 0:
		return Errorf(CodeInvalid, "deadline: is given as a time and as a span; give only one")
	case s.Objective != "" && !slices.Contains(Objectives(), s.Objective):
		return Errorf(CodeInvalid, "objective %s: must be one of %s", QuoteShort(string(s.Objective)), strings.Join(names, ", "))
	case s.MaxPowerW < 0 || s.MaxPowerW > most:
		return Errorf(CodeInvalid, "max_power: %d W is outside 0 to %d", s.MaxPowerW, most)
	case s.MaxCostMilli < 0 || s.MaxCostMilli > most:
		return Errorf(CodeInvalid, "max_cost: %d thousandths is outside 0 to %d", s.MaxCostMilli, most)
	}
	return nil
}

func (s *Spec) checkConflicts() error {
	switch {
	case s.GPUs == 0 && s.Exclusive:
		return Errorf(CodeInvalid, "exclusive and gpus: a job without GPUs cannot have them to itself; add --gpus or drop --exclusive")
	case s.GPUs == 0 && s.GPUMemMiB > 0:
		return Errorf(CodeInvalid, "gpu_mem and gpus: a job without GPUs needs no GPU memory; add --gpus or drop --gpu-mem")
	case s.GPUs == 0 && s.GPUMilli > 0:
		return Errorf(CodeInvalid, "gpu_util and gpus: a job without GPUs does not use any; add --gpus or drop --gpu-util")
	case s.GPUs == 0 && s.GPUType != "":
		return Errorf(CodeInvalid, "gpu_type and gpus: a job without GPUs has no GPU type; add --gpus or drop --gpu-type")
	case s.AllMem && s.MemMiB > 0:
		return Errorf(CodeInvalid, "mem: asks for all memory of a node and for %d MiB; give only one", s.MemMiB)
	case s.GPUs == 0 && s.OrCPU:
		return Errorf(CodeInvalid, "or_cpu and gpus: a job without GPUs runs on cores anyway; add --gpus or drop --or-cpu")
	}
	if err := s.Retry.Check(); err != nil {
		return err
	}
	if err := s.checkPower(); err != nil {
		return err
	}
	if err := s.checkElastic(); err != nil {
		return err
	}
	if err := s.checkGang(); err != nil {
		return err
	}
	if err := s.checkStudy(); err != nil {
		return err
	}
	if err := s.Where.Check(s.NodeCount()); err != nil {
		return err
	}
	if s.Node != "" {
		return CheckName("node", string(s.Node))
	}
	return nil
}

// checkPower refuses a power limit or clock on GPUs that other jobs may share.
func (s *Spec) checkPower() error {
	if s.Power == (GPUPower{}) {
		return nil
	}
	what := "power_cap"
	if s.Power.Cap == "" {
		what = "gpu_freq"
	}
	switch {
	case s.GPUs == 0:
		return Errorf(CodeInvalid, "%s and gpus: a job without GPUs has none to set it for; add --gpus, or leave it out", what)
	case !s.Exclusive && !s.WholeNodes():
		return Errorf(CodeInvalid, "%s: applies to a whole GPU and would slow down other jobs on it; add --exclusive to have whole GPUs, or leave it out", what)
	}
	return s.Power.Check()
}

// checkElastic refuses impossible ranges, and options that make no sense for a job
// of several sizes.
func (s *Spec) checkElastic() error {
	r := s.GPURange
	if _, err := ParseBatchScaling(string(s.BatchScaling)); err != nil {
		return err
	}
	switch {
	case s.NodeRange != NodeRange{}:
		return s.checkNodeRange()
	case s.InPlace:
		return Errorf(CodeInvalid, "in_place: is only for jobs with a range of nodes, which gain and lose nodes while they run; ask for one, such as --nodes 1-4, or drop --in-place")
	case r == GPURange{} && s.BatchScaling != "":
		return Errorf(CodeInvalid, "batch_scaling: is only for jobs whose number of GPUs may change; ask for a range, such as --gpus 1-8 or --nodes 1-4")
	case r == GPURange{}:
		return nil
	case r.Min < 1 || r.Max > MaxGPUsPerJob || r.Min >= r.Max:
		return Errorf(CodeInvalid, "gpus: %d-%d is not a range; want two numbers from 1 to %d, the smaller one first", r.Min, r.Max, MaxGPUsPerJob)
	case s.GPUs < r.Min || s.GPUs > r.Max:
		return Errorf(CodeInvalid, "gpus: %d is outside %d-%d", s.GPUs, r.Min, r.Max)
	}
	for _, no := range []struct {
		bad  bool
		name string
	}{
		{s.NodeCount() > 1, "nodes"}, {s.Array != nil, "array"}, {s.OrCPU, "or_cpu"},
		{s.WholeNodes(), "whole_nodes"}, {s.MaxPowerW > 0, "max_power"}, {s.MaxCostMilli > 0, "max_cost"},
	} {
		if no.bad {
			return Errorf(CodeInvalid, "gpus and %s: a job of %d to %d GPUs runs alone on one node, and its run time depends on how many it gets; ask for a fixed number of GPUs", no.name, r.Min, r.Max)
		}
	}
	return nil
}

// checkNodeRange refuses impossible node ranges, and options that make no sense for
// a job of several sizes.
func (s *Spec) checkNodeRange() error {
	r := s.NodeRange
	switch {
	case r.Min < 1 || r.Max > MaxNodes || r.Min >= r.Max:
		return Errorf(CodeInvalid, "nodes: %d-%d is not a range; want two numbers from 1 to %d, the smaller one first", r.Min, r.Max, MaxNodes)
	case s.NodeCount() < r.Min || s.NodeCount() > r.Max:
		return Errorf(CodeInvalid, "nodes: %d is outside %d-%d", s.NodeCount(), r.Min, r.Max)
	case s.GPUs == 0:
		return Errorf(CodeInvalid, "nodes and gpus: how many nodes of a range a job gets depends on idle GPUs, and this one asks for none; add --gpus, or ask for a fixed number of nodes")
	case s.GPURange != GPURange{}:
		return Errorf(CodeInvalid, "nodes and gpus: each of %d to %d nodes has the same number of GPUs, and %d-%d is a range; give a fixed number of GPUs, or of nodes", r.Min, r.Max, s.GPURange.Min, s.GPURange.Max)
	}
	for _, no := range []struct {
		bad  bool
		name string
	}{
		{s.Array != nil, "array"}, {s.OrCPU, "or_cpu"}, {s.WholeNodes(), "whole_nodes"},
		{s.Node != "", "node"}, {s.MaxPowerW > 0, "max_power"}, {s.MaxCostMilli > 0, "max_cost"},
	} {
		if no.bad {
			return Errorf(CodeInvalid, "nodes and %s: the run time and cost of a job of %d to %d nodes depend on how many it gets; ask for a fixed number of nodes", no.name, r.Min, r.Max)
		}
	}
	return checkInPlace(s)
}

// checkInPlace refuses options that cannot work while nodes join and leave.
func checkInPlace(s *Spec) error {
	switch {
	case !s.InPlace:
		return nil
	case s.TaskCount() > 1:
		return Errorf(CodeInvalid, "in_place and tasks: the numbers of the %d processes on each node would change when nodes come and go; start the workers with torchrun, and drop --tasks", s.Tasks)
	case s.Scripted():
		return Errorf(CodeInvalid, "in_place and script: a batch script runs only on the first node, but the program has to start on each new one; give it as a command: -- sh train.sh")
	case !s.Checkpoint.Set():
		return Errorf(CodeInvalid, "in_place and checkpoint: a node is given up by asking its processes to save and end; say how, such as --checkpoint TERM@60s")
	case s.Container.Network == NetNone || s.Image != "" && s.Container.Network == "":
		return Errorf(CodeInvalid, "in_place and net: processes on other nodes cannot reach a network of its own; use --net host")
	}
	return nil
}

// checkStudy refuses impossible studies.
func (s *Spec) checkStudy() error {
	if s.Study == nil {
		return nil
	}
	if err := s.Study.Check(); err != nil {
		return Errorf(CodeInvalid, "study: %v", err)
	}
	switch {
	case !s.Study.Searches():
		return nil
	case s.Array == nil || s.Array.Tasks.Len() == 0:
		return Errorf(CodeInvalid, "study: has no trials")
	case s.Array.Tasks.Max() >= study.MaxTrials:
		return Errorf(CodeInvalid, "study: trial %d is outside 0 to %d", s.Array.Tasks.Max(), study.MaxTrials-1)
	case s.Study.Grid && int(s.Array.Tasks.Max()) >= s.Study.Combinations():
		return Errorf(CodeInvalid, "study: trials are numbered up to %d, but a grid of these parameters has %d, from 0 to %d", s.Array.Tasks.Max(), s.Study.Combinations(), s.Study.Combinations()-1)
	case s.Study.Rule == study.RulePBT && s.Array.Tasks.Len() > study.MaxPopulation:
		return Errorf(CodeInvalid, "study: pbt with %d trials, at most %d are allowed", s.Array.Tasks.Len(), study.MaxPopulation)
	case s.Study.Rule == study.RulePBT && s.Array.Throttle > 0 && s.Array.Throttle < s.Array.Tasks.Len():
		return Errorf(CodeInvalid, "study: pbt with %d of %d trials at once: its trials continue from each other's state, so all must run at once; leave out at_once", s.Array.Throttle, s.Array.Tasks.Len())
	case s.Study.Budget > 0 && s.GPUs == 0:
		return Errorf(CodeInvalid, "study: budget: is of GPU-hours, and trials without GPUs use none; add gpus, or leave it out")
	case s.Study.Places(s.Command) > study.MaxPlaces:
		return Errorf(CodeInvalid, "study: the command names parameters %d times, at most %d are allowed", s.Study.Places(s.Command), study.MaxPlaces)
	}
	return nil
}

// checkService refuses impossible services, and options that make no sense for a
// job that serves requests indefinitely.
func (s *Spec) checkService() error {
	v := s.Service
	if v == nil {
		return nil
	}
	if err := v.Check(); err != nil {
		return Errorf(CodeInvalid, "service: %v", err)
	}
	if a := s.Array; a == nil || a.Tasks.Len() != v.Max || int(a.Tasks.Max()) != v.Max-1 || a.Throttle < min(v.Min, 1) || a.Throttle > v.Max {
		return Errorf(CodeInvalid, "service and array: a service of up to %d replicas has the array 0-%d, and of these at most %d run", v.Max, v.Max-1, v.Max)
	}
	if on := v.Metric(); on != "" && (s.Study == nil || s.Study.Metric != on) {
		return Errorf(CodeInvalid, "service and metric: a service that is scaled on %s needs that as its metric", QuoteShort(on))
	}
	for _, no := range []struct {
		bad       bool
		name, why string
	}{
		{s.Study.Searches(), "study", "its tasks are replicas, and no trials"}, {s.Ranked(), "nodes", "a replica is one process on one node; ask for more replicas"},
		{s.GPURange != GPURange{}, "gpus", "a replica always has as many; give one number"}, {s.Retry != Retry{}, "retry", "replicas are always started again"},
		{s.Deadline > 0 || s.DeadlineIn > 0, "deadline", "it runs until somebody ends it"}, {v.Scale.On == service.GPU && s.GPUs == 0, "gpus", "it is scaled on its use of GPUs and has none; add --gpus"},
		{s.Container.Network == NetNone || s.Image != "" && s.Container.Network == "", "net", "nobody reaches a replica in a network of its own; use --net host"},
	} {
		if no.bad {
			return Errorf(CodeInvalid, "service and %s: %s", no.name, no.why)
		}
	}
	return nil
}

// checkGang refuses options that make no sense on several nodes or with several
// processes.
func (s *Spec) checkGang() error {
	several := s.NodeCount() > 1
	switch {
	case several && s.Node != "":
		return Errorf(CodeInvalid, "nodes and node: %d nodes cannot all be node %s; drop --node or --nodes", s.Nodes, s.Node)
	case several && s.OrCPU:
		return Errorf(CodeInvalid, "nodes and or_cpu: only a job on one node can run on cores instead of GPUs; drop --or-cpu or --nodes")
	case s.Where != nil && s.Where.Switches.Most > 0 && (s.Deadline > 0 || s.DeadlineIn > 0):
		return Errorf(CodeInvalid, "switches and deadline: a deadline is promised on the nodes that are free first, on whatever switches they are; drop --deadline or --switches")
	case s.TaskCount() > 1 && s.Image != "" && (hasTaskPattern(s.Stdout) || hasTaskPattern(s.Stderr)):
		return Errorf(CodeInvalid, "stdout and image: processes inside an image write into one file for each node; use %%n in place of %%t")
	}
	return nil
}

// hasTaskPattern reports whether an output path differs from task to task.
func hasTaskPattern(path string) bool {
	if strings.Contains(path, `\`) {
		return false
	}
	for i := 0; i < len(path); i++ {
		if path[i] != '%' {
			continue
		}
		for i++; i < len(path) && path[i] >= '0' && path[i] <= '9'; i++ {
		}
		if i < len(path) && path[i] == 't' {
			return true
		}
	}
	return false
}
