package jobspec

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/batch"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/slurm"
	"github.com/berth-scheduler/berth/cmd/internal/units"
	"github.com/berth-scheduler/berth/model"
	"github.com/berth-scheduler/berth/model/graph"
)

// Request is what a user asked for on the command line, in a spec file, or
// both, before it becomes a cluster.Spec.
type Request struct {
	batch.Job
	retries int64 // how often it is retried
	// needs are the data sets that its nodes must have.
	needs []string
	Run   runFlags
	Flags []FlagText
	Slurm slurmArgs
	// slowdown is what a searched power cap may cost, in percent; nil if not given.
	slowdown *int
}

// runFlags describe the model, for the predictor.
type runFlags struct {
	onnx, config, Model      string
	features                 string
	batch, seqLen, steps     int64
	optimizer, precision     string
	framework                string
	loraRank, weightBits     int64
	inference, checkpointing bool
}

// FlagText is one flag as typed; flags are applied after the file.
type FlagText struct {
	F    *Field
	Text string
}

// kind says what a field takes: in a spec file it decides which YAML scalars
// are accepted.
type kind int

const (
	kindText   kind = iota // a string
	kindAmount             // a number, or a string with a unit
	KindTruth              // true or false
	kindList               // several strings; the flag may be repeated
)

// Field is one thing that can be requested: a flag, and a key of the spec
// file with _ for -.
type Field struct {
	Name, Short string
	Kind        kind
	Usage       string // the value's name in backquotes
	Set         func(r *Request, v string) error
}

func (f *Field) key() string {
	key := strings.ReplaceAll(f.Name, "-", "_")
	if f.Kind == kindList && f.Name != "data" { // which is a plural
		key += "s"
	}
	return key
}

// Fields lists the fields in the order of --help.
func Fields() []Field {
	return slices.Concat(jobFields(), standingFields(), whereFields(), tellingFields(), gpuFields(), powerFields(), containerFields(), fileFields(), ModelFields())
}

func text(p func(*Request) *string) func(*Request, string) error {
	return func(r *Request, v string) error {
		*p(r) = v
		return nil
	}
}

func truth(p func(*Request) *bool) func(*Request, string) error {
	return func(r *Request, v string) error {
		if v != "true" && v != "false" {
			return fmt.Errorf("%s: want true or false", console.ShortQuote(v))
		}
		*p(r) = v == "true"
		return nil
	}
}

func size(p func(*Request) *int64) func(*Request, string) error {
	return func(r *Request, v string) (err error) {
		*p(r), err = units.ParseMiB(v)
		return err
	}
}

// Whole returns a reader of a whole number from 1 to most.
func Whole(what string, most int64, p func(*Request) *int64) func(*Request, string) error {
	return func(r *Request, v string) error {
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil || n < 1 || n > most || strconv.FormatInt(n, 10) != v {
			return fmt.Errorf("%s %s: want a whole number from 1 to %d", what, console.ShortQuote(v), most)
		}
		*p(r) = n
		return nil
	}
}

func setMem(r *Request, v string) (err error) {
	r.Spec.MemMiB, r.Spec.AllMem = 0, v == "all"
	if !r.Spec.AllMem {
		r.Spec.MemMiB, err = units.ParseMiB(v)
	}
	return err
}

// setNodes reads a number of nodes, or a range.
func setNodes(r *Request, v string) error {
	whole := Whole("nodes", cluster.MaxNodes, func(r *Request) *int64 { return &r.Nodes })
	r.Spec.NodeRange = cluster.NodeRange{}
	a, b, ranged := strings.Cut(v, "-")
	if !ranged || a == "" {
		return whole(r, v)
	}
	if whole(r, b) != nil {
		return fmt.Errorf("range of nodes %s: want two numbers from 1 to %d, the smaller one first, such as 1-4", console.ShortQuote(v), cluster.MaxNodes)
	}
	most := int(r.Nodes)
	if whole(r, a) != nil || int(r.Nodes) > most {
		return fmt.Errorf("range of nodes %s: want two numbers from 1 to %d, the smaller one first, such as 1-4", console.ShortQuote(v), cluster.MaxNodes)
	}
	if least := int(r.Nodes); least < most {
		r.Spec.NodeRange = cluster.NodeRange{Min: least, Max: most}
	}
	return nil
}

func jobFields() []Field {
	return []Field{
		{"name", "J", kindText, "job `NAME`; by default the program's name", func(r *Request, v string) error {
			r.Spec.Name = v
			return cluster.CheckJobName(v)
		}},
		{"mem", "", kindAmount, "host memory per node, a `SIZE` such as 16G; all for the node's whole memory", setMem},
		{"cpus", "c", kindAmount, "CPU `CORES` per node, with up to three decimals", setCPUs},
		{"time", "t", kindAmount, "time limit, a `TIME` such as 90 (minutes), 1:30:00 or 2h", func(r *Request, v string) (err error) {
			r.Spec.TimeLimit, err = units.ParseDuration(v)
			return err
		}},
		{"signal", "", kindText, "signal to send before the time limit, `WHAT` such as USR1@60 (seconds); B:USR1@60 signals the first process only", setWarning},
		{"expect", "", kindAmount, "expected run time, a `TIME`", func(r *Request, v string) (err error) {
			r.Spec.Duration, err = units.ParseDuration(v)
			return err
		}},
		{"deadline", "", kindAmount, "refuse the job unless it can end within `TIME` from now, such as 6h, or by a time such as 18:00 or 2026-03-14T18:00; end it if it waits too long", setDeadline},
		{"objective", "", kindText, "choose the GPU type for `GOAL`: latency, throughput, energy, cost or balanced", text(func(r *Request) *string { return (*string)(&r.Spec.Objective) })},
		{"max-power", "", kindAmount, "only GPU types on which the job is predicted to draw at most `WATTS` in total", Whole("watts", 1_000_000, func(r *Request) *int64 { return &r.Spec.MaxPowerW })},
		{"max-cost", "", kindAmount, "only GPU types on which the job is predicted to cost at most `PRICE`, in the cluster's currency", setMaxCost},
		{"partition", "p", kindText, "partition `NAME` (see berth partition list); with a,b the first that accepts the job", func(r *Request, v string) error {
			r.Spec.Partition = v
			return cluster.CheckPartitions(v)
		}},
		{"node", "", kindText, "run on this `NODE` only", func(r *Request, v string) error {
			r.Spec.Node = cluster.NodeID(v)
			return cluster.CheckName("node", v)
		}},
		{"nodes", "N", kindAmount, "`NUMBER` of nodes, allocated all or none; the request applies to each; with a range such as 1-4, as many as are free", setNodes},
		{"tasks-per-node", "", kindAmount, "`NUMBER` of processes per node, each told its rank", Whole("tasks", cluster.MaxTasks, func(r *Request) *int64 { return &r.Tasks })},
		{"requeue-on-loss", "", KindTruth, "requeue the job if its node is lost, even if the first run may still be running there", truth(func(r *Request) *bool { return &r.Spec.RequeueOnLoss })},
		{"checkpoint", "", kindText, "how the job saves its state to make room for others: a `HOOK` such as USR1@60s, the signal and the time to save; without one it is never preempted; with one, its GPU shares shrink to what it uses, unless the partition says otherwise", func(r *Request, v string) (err error) {
			r.Spec.Checkpoint, err = cluster.ParseCheckpoint(v)
			return err
		}},
		{"array", "", kindText, "submit a job array of these `TASKS`, such as 0-99, 1,5,9 or 0-99:2; %N runs at most N at once; SLURM_ARRAY_TASK_ID has the task's number", func(r *Request, v string) (err error) {
			r.Spec.Array, err = cluster.ParseArray(v)
			return err
		}},
		{"hold", "H", KindTruth, "submit the job held: it does not start until berth release", truth(func(r *Request) *bool { return &r.Spec.Hold })},
		{"begin", "b", kindText, "do not start before `TIME`, such as now+2hours, 16:00 or 2026-03-14T18:00", setBegin},
		{"dependency", "d", kindText, "start after other jobs, a `LIST` such as afterok:17 or afterany:17:18,singleton (after, afterany, afterok, afternotok); \",\" means and, \"?\" means or", func(r *Request, v string) (err error) {
			r.Spec.Depends, r.Spec.DependAny, err = cluster.ParseDepends(v)
			return err
		}},
		{"kill-on-invalid-dep", "", kindText, "`YES` cancels the job once --dependency can never be met; no lets it wait forever (default \"no\")", func(r *Request, v string) error {
			if v != "yes" && v != "no" {
				return fmt.Errorf("%s: want yes or no", console.ShortQuote(v))
			}
			r.Spec.KillInvalidDepend = v == "yes"
			return nil
		}},
		{"comment", "", kindText, "`TEXT` to keep with the job", text(func(r *Request) *string { return &r.Spec.Comment })},
	}
}

// setDeadline reads a duration from now, or a time on this machine's clock.
func setDeadline(r *Request, v string) error {
	r.Spec.Deadline, r.Spec.DeadlineIn, r.Deadline = 0, 0, ""
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02T15:04"} {
		if at, err := time.ParseInLocation(layout, v, time.Local); err == nil {
			if r.Spec.Deadline = cluster.TimeOf(at); r.Spec.Deadline <= 0 {
				return fmt.Errorf("deadline %s: before 1970", console.ShortQuote(v))
			}
			return nil
		}
	}
	// 16:00 is a time of day, as for Slurm, 1-06:00 a duration.
	if d, err := units.ParseDuration(v); err == nil && (!strings.Contains(v, ":") || strings.Contains(v, "-")) {
		r.Spec.DeadlineIn = d
		return nil
	}
	if _, ok := slurm.ParseNext(v, time.Now()); !ok {
		return fmt.Errorf("deadline %s: want a duration such as 90 (minutes) or 6h, or a time such as %s", console.ShortQuote(v), slurm.TimeForms)
	}
	r.Deadline = v // resolved by the command's clock
	return nil
}

// setBegin reads a time in Slurm's form, on this machine's clock. A time in
// the past means now.
func setBegin(r *Request, v string) error {
	if _, ok := slurm.ParseNext(v, time.Now()); !ok {
		return fmt.Errorf("begin %s: want a time such as %s", console.ShortQuote(v), slurm.TimeForms)
	}
	r.Begin = v // resolved by the command's clock
	return nil
}

// setMaxCost reads a price in thousandths.
func setMaxCost(r *Request, v string) error {
	n, ok := thousandths(v, 6)
	if !ok {
		return fmt.Errorf("price %s: want a number from 0.001 to 999999 such as 4 or 0.25", console.ShortQuote(v))
	}
	r.Spec.MaxCostMilli = n
	return nil
}

func setCPUs(r *Request, v string) error {
	const most = 4096
	n, ok := thousandths(v, 4)
	if !ok || n > most*1000 || len(v) > 1 && v[0] == '0' && v[1] != '.' {
		return fmt.Errorf("cores %s: want a number from 0.001 to %d such as 4 or 0.5", console.ShortQuote(v), most)
	}
	r.Spec.CPUMilli = n
	return nil
}

// thousandths reads a number above 0 with so many digits at most, and up to three
// behind the point.
func thousandths(v string, most int) (n int64, ok bool) {
	a, b, dotted := strings.Cut(v, ".")
	digits := func(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }
	if !digits(a) || len(a) > most || dotted && (!digits(b) || len(b) > 3) {
		return 0, false
	}
	n, err := strconv.ParseInt(a+(b + "000")[:3], 10, 64)
	return n, err == nil && n > 0
}

func gpuFields() []Field {
	return []Field{
		{"gpus", "G", kindAmount, "GPUs per node: a `NUMBER` from 1 to 16, a range such as 1-8 for as many as are free, or a fraction such as 0.25", func(r *Request, v string) (err error) {
			r.GPUsSaid, r.Spec.GPURange = true, cluster.GPURange{}
			if least, most, ranged := strings.Cut(v, "-"); ranged && least != "" {
				r.Spec.GPURange.Min, err = units.ParseGPUs(least)
				if err == nil {
					r.Spec.GPURange.Max, err = units.ParseGPUs(most)
				}
				if r.Spec.GPUs = r.Spec.GPURange.Min; err == nil && r.Spec.GPURange.Max == r.Spec.GPUs {
					r.Spec.GPURange = cluster.GPURange{}
					return nil
				}
				if err != nil || r.Spec.GPURange.Max < r.Spec.GPUs {
					return fmt.Errorf("range of GPUs %s: want two numbers from %d to %d, the smaller one first, such as 1-8", console.ShortQuote(v), units.MinGPUs, units.MaxGPUs)
				}
				return nil
			}
			if part, ok := units.ParsePart(v); ok {
				if r.Spec.GPUs = 1; r.Spec.GPUMilli == 0 {
					r.Spec.GPUMilli = part
				}
				return nil
			}
			if r.Spec.GPUs, err = units.ParseGPUs(v); err != nil {
				return fmt.Errorf("%w; leave it out for a job without GPUs", err)
			}
			return nil
		}},
		{"batch-scaling", "", kindText, "how the batch grows with the GPUs of a range, and so what a step is worth: `SIZE` fixed, linear or sqrt (default \"fixed\")", func(r *Request, v string) (err error) {
			r.Spec.BatchScaling, err = cluster.ParseBatchScaling(v)
			return err
		}},
		{"in-place", "", KindTruth, "with a range of nodes, let nodes join and leave without a restart, as with torchrun's elastic agent; needs --checkpoint, for nodes that leave", truth(func(r *Request) *bool { return &r.Spec.InPlace })},
		{"gpu-type", "", kindText, "only GPUs of this `TYPE` (see berth node list), or part of its name such as a100", func(r *Request, v string) error {
			if v == "" || len(v) > 64 || console.Escape(v) != v {
				return fmt.Errorf("GPU type %s: want a name shown by berth node list", console.ShortQuote(v))
			}
			r.Spec.GPUType = v
			return nil
		}},
		{"gpu-mem", "", kindAmount, "GPU memory per GPU, a `SIZE` such as 12G; also the memory cap", size(func(r *Request) *int64 { return &r.Spec.GPUMemMiB })},
		{"gpu-util", "", kindAmount, "`PERCENT` of each GPU that the job keeps busy, 1 to 100", func(r *Request, v string) error {
			p, err := units.ParsePercent(v)
			if err != nil || p == 0 {
				return fmt.Errorf("percentage %s: want a whole number from 1 to 100, with or without %%", console.ShortQuote(v))
			}
			r.Spec.GPUMilli = int64(p) * 10
			return nil
		}},
		{"or-cpu", "", KindTruth, "allow running without GPUs, on its cores, if that serves --objective better or no GPU could ever run it", truth(func(r *Request) *bool { return &r.Spec.OrCPU })},
		{"exclusive", "", KindTruth, "whole GPUs, not shared with other jobs", truth(func(r *Request) *bool { return &r.Spec.Exclusive })},
	}
}

func powerFields() []Field {
	return []Field{
		{"defer", "", kindAmount, "let the job wait for cheaper power, if the site has a price signal, while it is predicted to end within `TIME` from now, such as 12h", func(r *Request, v string) (err error) {
			if r.Spec.Defer, err = units.ParseDuration(v); err != nil {
				return fmt.Errorf("defer %s: want a duration such as 90 (minutes) or 12h", console.ShortQuote(v))
			}
			return nil
		}},
		{"power-cap", "", kindAmount, "power limit per GPU (whole GPUs only), a `POWER`: watts such as 250W, a percentage of the GPU's default limit such as 70%, or auto, which finds the limit of least energy per step while the job runs", func(r *Request, v string) (err error) {
			r.Spec.Power.Cap, err = cluster.ParsePowerCap(v)
			return err
		}},
		{"slowdown", "", kindAmount, "with --power-cap auto, how much slower steps may become, a `PERCENT` from 0 to 50 (default 5)", func(r *Request, v string) error {
			p, err := cluster.ParseSlowdown(v)
			r.slowdown = &p
			return err
		}},
		{"gpu-freq", "", kindAmount, "GPU `CLOCK` (whole GPUs only): MHz, low, medium, high or highm1", func(r *Request, v string) (err error) {
			r.Spec.Power.Freq, err = cluster.ParseGPUFreq(v)
			return err
		}},
	}
}

func fileFields() []Field {
	return []Field{
		{"chdir", "D", kindText, "working directory `DIR`; by default this one", text(func(r *Request) *string { return &r.Spec.Dir })},
		{"output", "o", kindText, "`FILE` for standard output; %j, %x, %u, %N are the job's id, name, user and node, %A and %a array and task (default \"" + defaultOutput + "\", for an array \"" + defaultTaskOutput + "\")", text(func(r *Request) *string { return &r.Spec.Stdout })},
		{"error", "e", kindText, "`FILE` for standard error; by default the same as standard output", text(func(r *Request) *string { return &r.Spec.Stderr })},
		{"input", "i", kindText, "`FILE` for standard input; by default /dev/null", text(func(r *Request) *string { return &r.Spec.Stdin })},
		{"open-mode", "", kindText, "how to open output files, `MODE` append, or truncate to empty them at each start (default \"append\")", setOpenMode},
		{"export", "", kindText, "environment to pass on: ALL, NONE or a `LIST` such as PATH,HOME or ALL,DEBUG=1 (default \"ALL\")", text(func(r *Request) *string { return &r.Export })},
	}
}

// ModelFields lists the fields that describe a model.
func ModelFields() []Field {
	return []Field{
		{"onnx", "", kindText, "ONNX `FILE` of the model, read here to predict the job's needs", text(func(r *Request) *string { return &r.Run.onnx })},
		{"config", "", kindText, "a transformer's config.json, .safetensors `FILE` or checkpoint directory, read here likewise", text(func(r *Request) *string { return &r.Run.config })},
		{"model", "", kindText, "`NAME` of a catalogue model, to predict the job's needs", text(func(r *Request) *string { return &r.Run.Model })},
		{"features", "", kindText, "`FILE` with the output of berth features -o json; - is standard input", text(func(r *Request) *string { return &r.Run.features })},
		{"batch", "", kindAmount, "`NUMBER` of samples per step and GPU", Whole("batch", graph.MaxBatch, func(r *Request) *int64 { return &r.Run.batch })},
		{"seq-len", "", kindAmount, "`NUMBER` of tokens per sample", Whole("sequence length", graph.MaxBatch, func(r *Request) *int64 { return &r.Run.seqLen })},
		{"steps", "", kindAmount, "total `NUMBER` of steps", Whole("steps", 1<<40, func(r *Request) *int64 { return &r.Run.steps })},
		{"optimizer", "", kindText, "optimizer `NAME`: " + console.Joined(graph.Optimizers()), oneOf("optimizer", graph.Optimizers(), func(r *Request) *string { return &r.Run.optimizer })},
		{"precision", "", kindText, "precision `NAME`: " + console.Joined(graph.Precisions()), oneOf("precision", graph.Precisions(), func(r *Request) *string { return &r.Run.precision })},
		{"inference", "", KindTruth, "inference; the default is training", truth(func(r *Request) *bool { return &r.Run.inference })},
		{"lora-rank", "", kindAmount, "train only low-rank adapters (LoRA) of this `RANK`", Whole("rank", model.MaxLoRARank, func(r *Request) *int64 { return &r.Run.loraRank })},
		{"weight-bits", "", kindAmount, "bit `WIDTH` of stored weights, if not the precision's: 4, 8, 16, 32", setWeightBits},
		{"checkpointing", "", KindTruth, "activation checkpointing: recompute activations instead of keeping them", truth(func(r *Request) *bool { return &r.Run.checkpointing })},
		{"framework", "", kindText, "framework `NAME`: " + console.Joined(frameworks()), oneOf("framework", frameworks(), func(r *Request) *string { return &r.Run.framework })},
	}
}

// frameworks lists the accepted names.
func frameworks() []string { return []string{"pytorch", "tensorflow", "jax"} }

func setWeightBits(r *Request, v string) error {
	switch v {
	case "4", "8", "16", "32":
		n, err := strconv.ParseInt(v, 10, 64)
		r.Run.weightBits = n
		return err
	}
	return fmt.Errorf("width %s: want 4, 8, 16 or 32", console.ShortQuote(v))
}

func oneOf[T ~string](what string, known []T, p func(*Request) *string) func(*Request, string) error {
	return func(r *Request, v string) error {
		if !slices.Contains(known, T(v)) {
			var names []string
			for _, k := range known {
				names = append(names, string(k))
			}
			return fmt.Errorf("%s %s: want one of %s%s", what, console.ShortQuote(v), console.Joined(known), console.DidYouMean(v, names))
		}
		*p(r) = v
		return nil
	}
}

// FlagValue collects a field's text, which is parsed after the file.
type FlagValue struct {
	f *Field
	r *Request
}

// NewFlagValue returns the flag of f, collected by r.
func NewFlagValue(f *Field, r *Request) *FlagValue { return &FlagValue{f, r} }

// Set implements pflag.Value.
func (v *FlagValue) Set(s string) error {
	v.r.Flags = append(v.r.Flags, FlagText{v.f, s})
	return nil
}

// String implements pflag.Value.
func (v *FlagValue) String() string { return "" }

// Type implements pflag.Value.
func (v *FlagValue) Type() string {
	if v.f.Kind == KindTruth {
		return "bool"
	}
	return "text"
}

// addFields registers a flag for each field.
func addFields(fs *pflag.FlagSet, r *Request) {
	all := Fields()
	for i := range all {
		f := &all[i]
		flag := fs.VarPF(&FlagValue{f, r}, f.Name, f.Short, f.Usage)
		if f.Kind == KindTruth {
			flag.NoOptDefVal = "true"
		}
	}
}

// ApplyFlags applies the flags on top of the file.
func (r *Request) ApplyFlags() error {
	for _, t := range r.Flags {
		if err := t.F.Set(r, t.Text); err != nil {
			return console.Usagef("--%s: %w", t.F.Name, err)
		}
	}
	return nil
}
