package cli

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/slurm"
	"github.com/berth-scheduler/berth/cmd/internal/units"
	"github.com/berth-scheduler/berth/model"
	"github.com/berth-scheduler/berth/model/graph"
)

// request is what a user asked for on the command line, in a spec file, or
// both, before it becomes a cluster.Spec.
type request struct {
	spec cluster.Spec
	gpus bool // gpus was given
	// nodes and tasks are how many there are, 0 for one.
	nodes, tasks int64
	export       string
	env          []string // NAME=value of the file, over what export takes
	run          runFlags
	flags        []flagText
	slurm        slurmArgs
	begin        string // what was said of when to begin
	// deadline is what was said of it in Slurm's way.
	deadline string
}

// runFlags describe the model, for the predictor.
type runFlags struct {
	onnx, config, model      string
	features                 string
	batch, seqLen, steps     int64
	optimizer, precision     string
	framework                string
	loraRank, weightBits     int64
	inference, checkpointing bool
}

// flagText is one flag as it was typed; flags are applied after the file.
type flagText struct {
	f    *field
	text string
}

// kind says what a field takes: in a spec file it decides which YAML scalars
// are accepted.
type kind int

const (
	kindText   kind = iota // a string
	kindAmount             // a number, or a string with a unit
	kindTruth              // true or false
	kindList               // several strings; a flag is given again
)

// field is one thing that can be asked for: a flag, and a key of the spec file
// with _ for -.
type field struct {
	name, short string
	kind        kind
	usage       string // the value's name in backquotes
	set         func(r *request, v string) error
}

func (f *field) key() string {
	key := strings.ReplaceAll(f.name, "-", "_")
	if f.kind == kindList {
		key += "s"
	}
	return key
}

// fields lists them in the order of --help.
func fields() []field {
	return slices.Concat(jobFields(), gpuFields(), containerFields(), fileFields(), modelFields())
}

func text(p func(*request) *string) func(*request, string) error {
	return func(r *request, v string) error {
		*p(r) = v
		return nil
	}
}

func truth(p func(*request) *bool) func(*request, string) error {
	return func(r *request, v string) error {
		if v != "true" && v != "false" {
			return fmt.Errorf("%s: want true or false", shortQuote(v))
		}
		*p(r) = v == "true"
		return nil
	}
}

func size(p func(*request) *int64) func(*request, string) error {
	return func(r *request, v string) (err error) {
		*p(r), err = units.ParseMiB(v)
		return err
	}
}

// whole reads a whole number from 1 to most.
func whole(what string, most int64, p func(*request) *int64) func(*request, string) error {
	return func(r *request, v string) error {
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil || n < 1 || n > most || strconv.FormatInt(n, 10) != v {
			return fmt.Errorf("%s %s: want a whole number from 1 to %d", what, shortQuote(v), most)
		}
		*p(r) = n
		return nil
	}
}

func jobFields() []field {
	return []field{
		{"name", "J", kindText, "job `NAME`; by default the program's", func(r *request, v string) error {
			r.spec.Name = v
			return cluster.CheckJobName(v)
		}},
		{"mem", "", kindAmount, "host memory, a `SIZE` such as 16G", size(func(r *request) *int64 { return &r.spec.MemMiB })},
		{"cpus", "c", kindAmount, "`CORES`, whole or with one to three decimals", setCPUs},
		{"time", "t", kindAmount, "end the job after `TIME`, such as 90 (minutes), 1:30:00 or 2h", func(r *request, v string) (err error) {
			r.spec.TimeLimit, err = units.ParseDuration(v)
			return err
		}},
		{"signal", "", kindText, "send it a signal before its time limit ends it, `WHAT` such as USR1@60 (seconds); B:USR1@60 sends it to the first process alone", setWarning},
		{"expect", "", kindAmount, "how much `TIME` you expect it to take", func(r *request, v string) (err error) {
			r.spec.Duration, err = units.ParseDuration(v)
			return err
		}},
		{"deadline", "", kindAmount, "refuse the job unless it can end within `TIME` from now, such as 6h, or by a time such as 2026-03-14T18:00; end it if it waits longer", setDeadline},
		{"objective", "", kindText, "choose the GPU type for `GOAL`: latency, throughput, energy, cost or balanced", text(func(r *request) *string { return (*string)(&r.spec.Objective) })},
		{"max-power", "", kindAmount, "no GPU type on which it is predicted to draw more than these `WATTS` in all", whole("watts", 1_000_000, func(r *request) *int64 { return &r.spec.MaxPowerW })},
		{"max-cost", "", kindAmount, "no GPU type on which it is predicted to cost more than this `PRICE`, in the cluster's currency", setMaxCost},
		{"partition", "p", kindText, "`NAME` of the partition to run in, as berth partition list shows it", func(r *request, v string) error {
			r.spec.Partition = v
			return cluster.CheckPartitionName(v)
		}},
		{"node", "", kindText, "run on this `NODE` only", func(r *request, v string) error {
			r.spec.Node = cluster.NodeID(v)
			return cluster.CheckName("node", v)
		}},
		{"nodes", "N", kindAmount, "run on `NUMBER` nodes at once, all or none; what it asks for it gets on each", whole("nodes", cluster.MaxNodes, func(r *request) *int64 { return &r.nodes })},
		{"tasks-per-node", "", kindAmount, "`NUMBER` of processes on each node, each told its rank", whole("tasks", cluster.MaxTasks, func(r *request) *int64 { return &r.tasks })},
		{"requeue-on-loss", "", kindTruth, "run again when the node is lost, even if the first run may still go on there", truth(func(r *request) *bool { return &r.spec.RequeueOnLoss })},
		{"checkpoint", "", kindText, "how it saves its state when it must make room for others: a `HOOK` such as USR1@60s, the signal and the time that it may take; without one it is never preempted", func(r *request, v string) (err error) {
			r.spec.Checkpoint, err = cluster.ParseCheckpoint(v)
			return err
		}},
		{"hold", "H", kindTruth, "submit it held: it does not start until berth release", truth(func(r *request) *bool { return &r.spec.Hold })},
		{"begin", "b", kindText, "do not start it before `TIME`, such as now+2hours, 16:00 or 2026-03-14T18:00", setBegin},
		{"dependency", "d", kindText, "start it after other jobs, a `LIST` such as afterok:17 or afterany:17:18,singleton; , is and, ? is or; after, afterany, afterok, afternotok", func(r *request, v string) (err error) {
			r.spec.Depends, r.spec.DependAny, err = cluster.ParseDepends(v)
			return err
		}},
		{"kill-on-invalid-dep", "", kindText, "`YES` cancels it once --dependency can never be, no lets it wait for good (default \"no\")", func(r *request, v string) error {
			if v != "yes" && v != "no" {
				return fmt.Errorf("%s: want yes or no", shortQuote(v))
			}
			r.spec.KillInvalidDepend = v == "yes"
			return nil
		}},
		{"comment", "", kindText, "`TEXT` kept with the job", text(func(r *request) *string { return &r.spec.Comment })},
	}
}

// setDeadline reads a span from now, or a time on this machine's clock.
func setDeadline(r *request, v string) error {
	r.spec.Deadline, r.spec.DeadlineIn, r.deadline = 0, 0, ""
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02T15:04"} {
		if at, err := time.ParseInLocation(layout, v, time.Local); err == nil {
			if r.spec.Deadline = cluster.TimeOf(at); r.spec.Deadline <= 0 {
				return fmt.Errorf("deadline %s: lies before 1970", shortQuote(v))
			}
			return nil
		}
	}
	d, err := units.ParseDuration(v)
	if err != nil {
		return fmt.Errorf("deadline %s: want a span such as 90 (minutes) or 6h, or a time such as 2026-03-14T18:00", shortQuote(v))
	}
	r.spec.DeadlineIn = d
	return nil
}

// setBegin reads a time as Slurm takes it, on this machine's clock. One that has
// passed is now.
func setBegin(r *request, v string) error {
	if _, ok := slurm.ParseTime(v, time.Now()); !ok {
		return fmt.Errorf("begin %s: want a time such as now+2hours, 16:00, tomorrow or 2026-03-14T18:00", shortQuote(v))
	}
	r.begin = v // the command's clock says when that is
	return nil
}

// setMaxCost reads a price in thousandths.
func setMaxCost(r *request, v string) error {
	a, b, dotted := strings.Cut(v, ".")
	digits := func(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }
	bad := fmt.Errorf("price %s: want a number from 0.001 to 999999 such as 4 or 0.25", shortQuote(v))
	if !digits(a) || len(a) > 6 || dotted && (!digits(b) || len(b) > 3) {
		return bad
	}
	n, err := strconv.ParseInt(a+(b + "000")[:3], 10, 64)
	if err != nil || n < 1 {
		return bad
	}
	r.spec.MaxCostMilli = n
	return nil
}

func setCPUs(r *request, v string) error {
	const most = 4096
	bad := fmt.Errorf("cores %s: want a number from 0.001 to %d such as 4 or 0.5", shortQuote(v), most)
	a, b, dotted := strings.Cut(v, ".")
	digits := func(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }
	if !digits(a) || len(a) > 4 || len(a) > 1 && a[0] == '0' || dotted && (!digits(b) || len(b) > 3) {
		return bad
	}
	n, err := strconv.ParseInt(a+(b + "000")[:3], 10, 64)
	if err != nil || n < 1 || n > most*1000 {
		return bad
	}
	r.spec.CPUMilli = n
	return nil
}

func gpuFields() []field {
	return []field{
		{"gpus", "G", kindAmount, "`NUMBER` of GPUs on each of its nodes, 1 to 16", func(r *request, v string) (err error) {
			r.gpus = true
			if r.spec.GPUs, err = units.ParseGPUs(v); err != nil {
				return fmt.Errorf("%w; leave it out for a job without GPUs", err)
			}
			return nil
		}},
		{"gpu-type", "", kindText, "only GPUs of this `TYPE`, as berth node list shows it", func(r *request, v string) error {
			if v == "" || len(v) > 64 || escape(v) != v {
				return fmt.Errorf("GPU type %s: want a name as berth node list shows it", shortQuote(v))
			}
			r.spec.GPUType = v
			return nil
		}},
		{"gpu-mem", "", kindAmount, "memory it needs on each GPU, a `SIZE` such as 12G; also the cap", size(func(r *request) *int64 { return &r.spec.GPUMemMiB })},
		{"gpu-util", "", kindAmount, "`PERCENT` of each GPU it keeps busy, 1 to 100", func(r *request, v string) error {
			p, err := units.ParsePercent(v)
			if err != nil || p == 0 {
				return fmt.Errorf("percentage %s: want a whole number from 1 to 100, with or without %%", shortQuote(v))
			}
			r.spec.GPUMilli = int64(p) * 10
			return nil
		}},
		{"or-cpu", "", kindTruth, "it can also run without GPUs, on its cores: where that serves its --objective better, or no GPU could ever run it", truth(func(r *request) *bool { return &r.spec.OrCPU })},
		{"exclusive", "", kindTruth, "whole GPUs, not shared with other jobs", truth(func(r *request) *bool { return &r.spec.Exclusive })},
	}
}

func fileFields() []field {
	return []field{
		{"chdir", "D", kindText, "working `DIR` of the job; by default this one", text(func(r *request) *string { return &r.spec.Dir })},
		{"output", "o", kindText, "`FILE` for standard output; %j, %x, %u, %N stand for job id, name, user, node (default \"" + defaultOutput + "\")", text(func(r *request) *string { return &r.spec.Stdout })},
		{"error", "e", kindText, "`FILE` for standard error; by default that of standard output", text(func(r *request) *string { return &r.spec.Stderr })},
		{"input", "i", kindText, "`FILE` for standard input; by default /dev/null", text(func(r *request) *string { return &r.spec.Stdin })},
		{"open-mode", "", kindText, "`MODE` of opening the output files: append, or truncate to empty them at each start (default \"append\")", setOpenMode},
		{"export", "", kindText, "environment to pass on: ALL, NONE or a `LIST` such as PATH,HOME or ALL,DEBUG=1 (default \"ALL\")", text(func(r *request) *string { return &r.export })},
	}
}

func modelFields() []field {
	return []field{
		{"onnx", "", kindText, "ONNX `FILE` of the model, read here to predict what it needs", text(func(r *request) *string { return &r.run.onnx })},
		{"config", "", kindText, "config.json, .safetensors `FILE` or checkpoint's directory of a transformer, read here as well", text(func(r *request) *string { return &r.run.config })},
		{"model", "", kindText, "model of the catalogue, by `NAME`, to predict what it needs", text(func(r *request) *string { return &r.run.model })},
		{"features", "", kindText, "what berth features -o json printed of the model, a `FILE`; - is standard input", text(func(r *request) *string { return &r.run.features })},
		{"batch", "", kindAmount, "samples in a step on one GPU, a `NUMBER`", whole("batch", graph.MaxBatch, func(r *request) *int64 { return &r.run.batch })},
		{"seq-len", "", kindAmount, "tokens in a sample, a `NUMBER`", whole("sequence length", graph.MaxBatch, func(r *request) *int64 { return &r.run.seqLen })},
		{"steps", "", kindAmount, "`NUMBER` of steps in all", whole("steps", 1<<40, func(r *request) *int64 { return &r.run.steps })},
		{"optimizer", "", kindText, "optimizer `NAME`: " + joined(graph.Optimizers()), oneOf("optimizer", graph.Optimizers(), func(r *request) *string { return &r.run.optimizer })},
		{"precision", "", kindText, "precision `NAME`: " + joined(graph.Precisions()), oneOf("precision", graph.Precisions(), func(r *request) *string { return &r.run.precision })},
		{"inference", "", kindTruth, "the model infers; by default it trains", truth(func(r *request) *bool { return &r.run.inference })},
		{"lora-rank", "", kindAmount, "train only low-rank adapters, of this `RANK`", whole("rank", model.MaxLoRARank, func(r *request) *int64 { return &r.run.loraRank })},
		{"weight-bits", "", kindAmount, "`WIDTH` of stored weights, when it is not the precision's: 4, 8, 16, 32", setWeightBits},
		{"checkpointing", "", kindTruth, "activations are computed again instead of kept", truth(func(r *request) *bool { return &r.run.checkpointing })},
		{"framework", "", kindText, "framework `NAME`: " + joined(frameworks()), oneOf("framework", frameworks(), func(r *request) *string { return &r.run.framework })},
	}
}

// frameworks lists the names that users may give.
func frameworks() []string { return []string{"pytorch", "tensorflow", "jax"} }

func setWeightBits(r *request, v string) error {
	switch v {
	case "4", "8", "16", "32":
		n, err := strconv.ParseInt(v, 10, 64)
		r.run.weightBits = n
		return err
	}
	return fmt.Errorf("width %s: want 4, 8, 16 or 32", shortQuote(v))
}

func oneOf[T ~string](what string, known []T, p func(*request) *string) func(*request, string) error {
	return func(r *request, v string) error {
		if !slices.Contains(known, T(v)) {
			return fmt.Errorf("%s %s: want one of %s", what, shortQuote(v), joined(known))
		}
		*p(r) = v
		return nil
	}
}

// flagValue collects a field's text; it is read once the file has been.
type flagValue struct {
	f *field
	r *request
}

// Set implements pflag.Value.
func (v *flagValue) Set(s string) error {
	v.r.flags = append(v.r.flags, flagText{v.f, s})
	return nil
}

// String implements pflag.Value.
func (v *flagValue) String() string { return "" }

// Type implements pflag.Value.
func (v *flagValue) Type() string {
	if v.f.kind == kindTruth {
		return "bool"
	}
	return "text"
}

// addFields registers a flag for each field.
func addFields(fs *pflag.FlagSet, r *request) {
	all := fields()
	for i := range all {
		f := &all[i]
		flag := fs.VarPF(&flagValue{f, r}, f.name, f.short, f.usage)
		if f.kind == kindTruth {
			flag.NoOptDefVal = "true"
		}
	}
}

// applyFlags reads the flags, over what a file said.
func (r *request) applyFlags() error {
	for _, t := range r.flags {
		if err := t.f.set(r, t.text); err != nil {
			return Usagef("--%s: %w", t.f.name, err)
		}
	}
	return nil
}
