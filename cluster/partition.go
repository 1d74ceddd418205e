package cluster

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Partition is a named part of the cluster. Values are immutable.
type Partition struct {
	Name string
	// Revision is the Raft index of the last change.
	Revision uint64
	// Nodes lists the nodes that belong to it, registered or not.
	Nodes HostList
	// GPUTypes restricts which of their GPUs do, sorted; empty is all.
	GPUTypes []string
	// Default marks the partition for jobs that name none. At most one is the
	// default.
	Default bool
	// MaxTime bounds the time limits of its jobs, 0 for no bound. DefaultTime is
	// the limit of a job that asks for none, 0 for MaxTime.
	MaxTime, DefaultTime time.Duration
	// MaxGPUs bounds the GPUs of each of its jobs, over all nodes, 0 for no bound.
	MaxGPUs int64
	// Down keeps jobs from starting; running ones go on.
	Down bool
	// Networks are the networks that its jobs may choose, the first being the
	// default; empty leaves it to the nodes.
	Networks []Network
	// Idle is what happens to its jobs whose GPUs are idle.
	Idle IdlePolicy
	// Access says who may use it, nil for everyone.
	Access Access
	// SessionIdle is how long its sessions may be idle, 0 for no limit. A shorter
	// limit of the node or of the session itself takes precedence.
	SessionIdle time.Duration
	// Host is the default of host resources for jobs that ask for none.
	Host HostTerms
	// Resize says whether the GPU shares of its running jobs are cut to what they
	// use; see ResizeOf.
	Resize ResizeMode
	// Preempt says whether its running jobs with a checkpoint hook are preempted
	// for its waiting jobs with much less work left.
	Preempt PreemptMode
	// Power holds the default power settings of its jobs on whole GPUs.
	Power GPUPower
	// Lend says to whom its idle GPUs are lent.
	Lend Lending
}

// Lending says to which partitions a partition lends the GPUs that its own jobs
// leave idle, until one of those waits for them: the capacity loaning of Aryl (Li
// et al., EuroSys 2023). The zero value lends nothing.
type Lending struct {
	// To are the partitions whose jobs may borrow, in the order in which they are
	// served.
	To []string
	// Short is how soon a borrowing job without a checkpoint hook must end, by the
	// ninth decile of its prediction or by its time limit; with 0 no
	// such job may borrow.
	Short time.Duration
}

// Bounds of Lending.
const (
	// DefaultLendShort is the value for a partition that begins to lend without
	// giving one.
	DefaultLendShort = time.Minute
	// MaxLendShort bounds Lending.Short: a job of the lender may have to wait that
	// long for a borrower that cannot save its state.
	MaxLendShort = time.Hour
)

// On reports whether anything is lent.
func (l *Lending) On() bool { return len(l.To) > 0 }

// check returns an *Error of CodeInvalid if partition own may not lend like this.
func (l *Lending) check(own string) error {
	if len(l.To) > MaxPartitionsNamed {
		return Errorf(CodeInvalid, "lend_to: names %d partitions, at most %d are allowed", len(l.To), MaxPartitionsNamed)
	}
	for i, name := range l.To {
		if err := CheckPartitionName(name); err != nil {
			return Errorf(CodeInvalid, "lend_to: %v", err)
		}
		if name == own || slices.Contains(l.To[:i], name) {
			return Errorf(CodeInvalid, "lend_to: %s is the partition itself, or named twice", name)
		}
	}
	if l.Short != 0 && (l.Short < time.Second || l.Short > MaxLendShort) {
		return Errorf(CodeInvalid, "lend_short: %s is outside 1 s to %s; 0 lets only jobs with a checkpoint hook borrow", TimeText(l.Short), TimeText(MaxLendShort))
	}
	return nil
}

// Bounds of Partition.SessionIdle.
const (
	MinSessionIdle = time.Second
	MaxSessionIdle = 14 * 24 * time.Hour
)

// maxPartitionGPUs bounds Partition.MaxGPUs.
const maxPartitionGPUs = 1_000_000

// CheckPartitionName reports whether s may name a partition: 1–63 characters of
// a–z, A–Z, 0–9, '.', '_' and '-', the first a letter or digit, as sites name them
// for Slurm.
func CheckPartitionName(s string) error {
	if s == "" || len(s) > MaxNameLen {
		return Errorf(CodeInvalid, "partition %s: must have 1 to %d characters", QuoteShort(s), MaxNameLen)
	}
	for i, c := range []byte(s) {
		alnum := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !alnum && (i == 0 || c != '.' && c != '_' && c != '-') {
			return Errorf(CodeInvalid, "partition %q: may hold letters, digits, '.', '_' and '-' and must begin with a letter or digit", s)
		}
	}
	return nil
}

// MaxPartitionsNamed bounds the partitions that one job may name.
const MaxPartitionsNamed = 16

// PartitionNames returns the comma-separated partitions that a request names, each
// once and in its order; nil for "".
func PartitionNames(s string) []string {
	var names []string
	for name := range strings.SplitSeq(s, ",") {
		if name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// CheckPartitions reports whether s may be what a request names: one partition, or
// up to MaxPartitionsNamed separated by commas.
func CheckPartitions(s string) error {
	names := PartitionNames(s)
	if len(names) == 0 || len(names) > MaxPartitionsNamed {
		return Errorf(CodeInvalid, "partition %s: names %d partitions, 1 to %d are allowed", QuoteShort(s), len(names), MaxPartitionsNamed)
	}
	for _, name := range names {
		if err := CheckPartitionName(name); err != nil {
			return err
		}
	}
	return nil
}

// MaxGPUTypes bounds Partition.GPUTypes.
const MaxGPUTypes = 64

// Check reports whether p is valid. The error is an *Error of CodeInvalid that
// names the field.
func (p *Partition) Check() error {
	if err := CheckPartitionName(p.Name); err != nil {
		return err
	}
	const most = MaxTimeDays * 24 * time.Hour
	switch {
	case p.Nodes.String() == "":
		return Errorf(CodeInvalid, "nodes: are missing; give a host list such as gpu[01-04],n7, or %s", AllNodes)
	case len(p.GPUTypes) > MaxGPUTypes:
		return Errorf(CodeInvalid, "gpu_types: %d of them, at most %d are allowed", len(p.GPUTypes), MaxGPUTypes)
	case p.MaxTime != 0 && (p.MaxTime < time.Second || p.MaxTime > most):
		return Errorf(CodeInvalid, "max_time: %s is outside 1 s to %d days; 0 is no limit", TimeText(p.MaxTime), MaxTimeDays)
	case p.DefaultTime != 0 && (p.DefaultTime < time.Second || p.DefaultTime > most):
		return Errorf(CodeInvalid, "default_time: %s is outside 1 s to %d days; 0 is max_time", TimeText(p.DefaultTime), MaxTimeDays)
	case p.MaxGPUs < 0 || p.MaxGPUs > maxPartitionGPUs:
		return Errorf(CodeInvalid, "max_gpus: %d is outside 1 to %d; 0 is no limit", p.MaxGPUs, maxPartitionGPUs)
	case p.SessionIdle != 0 && (p.SessionIdle < MinSessionIdle || p.SessionIdle > MaxSessionIdle):
		return Errorf(CodeInvalid, "session_idle: %s is outside 1 s to 14 days; 0 is no limit", p.SessionIdle)
	case p.Idle.Check() != nil:
		return p.Idle.Check()
	case p.Resize != ResizeDefault && p.Resize != ResizeOff && p.Resize != ResizeConservative && p.Resize != ResizeEager:
		return Errorf(CodeInvalid, "resize: %s is not default, off, conservative or eager", QuoteShort(string(p.Resize)))
	case p.Preempt != PreemptDefault && p.Preempt != PreemptOff:
		return Errorf(CodeInvalid, "preempt: %s is neither default nor off", QuoteShort(string(p.Preempt)))
	case p.Power.Check() != nil:
		return p.Power.Check()
	case p.Lend.check(p.Name) != nil:
		return p.Lend.check(p.Name)
	case p.Access.Check() != nil:
		return p.Access.Check()
	case p.Host.Check() != nil:
		return p.Host.Check()
	case p.MaxTime > 0 && p.DefaultTime > p.MaxTime:
		return Errorf(CodeInvalid, "default_time: %s is above max_time, %s", TimeText(p.DefaultTime), TimeText(p.MaxTime))
	}
	for i, n := range p.Networks {
		if !slices.Contains(Networks(), n) || slices.Contains(p.Networks[:i], n) {
			return Errorf(CodeInvalid, "networks: %s is neither host nor none, or named twice", QuoteShort(string(n)))
		}
	}
	for i, t := range p.GPUTypes {
		if t == "" || len(t) > MaxNameLen {
			return Errorf(CodeInvalid, "gpu_types: %s must have 1 to %d characters", QuoteShort(t), MaxNameLen)
		}
		if i > 0 && p.GPUTypes[i-1] >= t {
			return Errorf(CodeInvalid, "gpu_types: %s is out of order, or named twice", QuoteShort(t))
		}
	}
	return nil
}

// HasType reports whether GPUs of a type belong to p.
func (p *Partition) HasType(gpuType string) bool {
	return len(p.GPUTypes) == 0 || slices.Contains(p.GPUTypes, gpuType)
}

// Net returns the network of a job that asks for asked, "" to leave it to its node.
// A disallowed one is an *Error of CodeInvalid.
func (p *Partition) Net(asked Network) (Network, error) {
	switch {
	case len(p.Networks) == 0 || slices.Contains(p.Networks, asked):
		return asked, nil
	case asked == "":
		return p.Networks[0], nil
	}
	return "", Errorf(CodeInvalid, "net %s: partition %s allows its jobs only %s, as its administrators set it (berth partition show %s); ask for that, or name another partition",
		asked, p.Name, p.Networks[0], p.Name)
}

// Part returns what of a node belongs to p: the node itself, the node with some of
// its GPUs, or nil.
func (p *Partition) Part(n *Node) *Node {
	if !p.Nodes.Holds(n.ID) {
		return nil
	}
	if !slices.ContainsFunc(n.GPUs, func(g GPU) bool { return !p.HasType(g.Type) }) {
		return n
	}
	part := *n
	part.GPUs = slices.DeleteFunc(slices.Clone(n.GPUs), func(g GPU) bool { return !p.HasType(g.Type) })
	return &part
}

// Limit returns the time limit of a job that asks for asked, 0 for none. A limit
// above MaxTime is an *Error of CodeInvalid.
func (p *Partition) Limit(asked time.Duration) (time.Duration, error) {
	switch {
	case asked == 0 && p.DefaultTime > 0:
		return p.DefaultTime, nil
	case asked == 0:
		return p.MaxTime, nil
	case p.MaxTime > 0 && asked > p.MaxTime:
		return 0, Errorf(CodeInvalid, "time: %s is above the limit of partition %s, %s; ask for less, or name another partition", TimeText(asked), p.Name, TimeText(p.MaxTime))
	}
	return asked, nil
}

// CheckSize returns an *Error of CodeInvalid if a job with s is too large for p,
// else nil.
func (p *Partition) CheckSize(s *Spec) error {
	if n := int64(s.GPUs) * int64(s.NodeCount()); p.MaxGPUs > 0 && n > p.MaxGPUs {
		return Errorf(CodeInvalid, "gpus: a job in partition %s may have at most %d, but asks for %d; ask for fewer, or name another partition", p.Name, p.MaxGPUs, n)
	}
	return nil
}

// HostTerms is what a partition gives jobs with GPUs that ask for no host memory or
// no cores, on each of their nodes. 0 leaves a number to the scheduler.
type HostTerms struct {
	// MemPerGPUMiB and CPUPerGPUMilli are given per GPU if there is no prediction.
	MemPerGPUMiB, CPUPerGPUMilli int64
	// LeastMemMiB and LeastCPUMilli are the minimum if there is one.
	LeastMemMiB, LeastCPUMilli int64
}

// maxCPUMilli bounds cores, far above what nodes have.
const maxCPUMilli = 1 << 20

// Check reports whether the numbers are valid. The error is an *Error of
// CodeInvalid that names one.
func (t *HostTerms) Check() error {
	for _, n := range []struct {
		name    string
		v, most int64
	}{
		{"mem_per_gpu_mib", t.MemPerGPUMiB, MaxMemMiB}, {"cpu_per_gpu_milli", t.CPUPerGPUMilli, maxCPUMilli},
		{"least_mem_mib", t.LeastMemMiB, MaxMemMiB}, {"least_cpu_milli", t.LeastCPUMilli, maxCPUMilli},
	} {
		if n.v < 0 || n.v > n.most {
			return Errorf(CodeInvalid, "%s: %d is outside 0 to %d", n.name, n.v, n.most)
		}
	}
	return nil
}

// IdlePolicy says what happens to jobs whose GPUs are idle. The zero value is none.
// Each stage begins after so much continuous idleness; 0 omits it.
type IdlePolicy struct {
	// BelowMilli is the mean utilization, in thousandths, below which GPUs count as
	// idle over a Window.
	BelowMilli int64
	Window     time.Duration
	// Grace is the time after its start in which a job is not checked.
	Grace time.Duration
	// Warn is when the owner is told, Shrink when the share is cut to what the job
	// uses of it, End when the job is ended. Idleness is reported from Window on.
	Warn, Shrink, End time.Duration
	// MaxOK bounds the extra time that a job may ask for; see Spec.IdleOK.
	MaxOK time.Duration
}

// IdleStage is how far the policy has gone with an attempt.
type IdleStage uint8

// The stages, in order.
const (
	IdleNone IdleStage = iota
	IdleReported
	IdleWarned
	IdleShrunk
	IdleEnded
)

// String returns the name of a stage.
func (s IdleStage) String() string {
	return [...]string{"", "reported", "warned", "shrunk", "ended"}[min(s, IdleEnded)]
}

// On reports whether there is a policy.
func (p IdlePolicy) On() bool { return p.Window > 0 }

// Stage returns the stage of a job whose GPUs have been idle for idle, and that
// asked for ok.
func (p IdlePolicy) Stage(idle, ok time.Duration) IdleStage {
	idle -= min(max(0, ok), p.MaxOK)
	at := func(d time.Duration) bool { return d > 0 && idle >= d }
	switch {
	case !p.On() || idle < p.Window:
		return IdleNone
	case at(p.End):
		return IdleEnded
	case at(p.Shrink):
		return IdleShrunk
	case at(p.Warn):
		return IdleWarned
	}
	return IdleReported
}

// String returns the form that ParseIdlePolicy parses, "" for none.
func (p IdlePolicy) String() string {
	if !p.On() {
		return ""
	}
	out := fmt.Sprintf("below=%g%%,window=%s", float64(p.BelowMilli)/10, short(p.Window))
	for _, f := range []struct {
		key string
		d   time.Duration
	}{{"grace", p.Grace}, {"warn", p.Warn}, {"shrink", p.Shrink}, {"end", p.End}, {"ok", p.MaxOK}} {
		if f.d > 0 {
			out += "," + f.key + "=" + short(f.d)
		}
	}
	return out
}

// ParseIdlePolicy parses comma-separated KEY=VALUE pairs, such as
// below=5%,window=30m,grace=10m,warn=1h,shrink=2h,end=4h,ok=8h; "" and none are no
// policy. Errors are *Error of CodeInvalid.
func ParseIdlePolicy(text string) (IdlePolicy, error) {
	var p IdlePolicy
	if text == "" || text == "none" {
		return p, nil
	}
	spans := map[string]*time.Duration{"window": &p.Window, "grace": &p.Grace, "warn": &p.Warn, "shrink": &p.Shrink, "end": &p.End, "ok": &p.MaxOK}
	seen := map[string]bool{}
	for item := range strings.SplitSeq(text, ",") {
		key, value, _ := strings.Cut(item, "=")
		if seen[key] {
			return IdlePolicy{}, Errorf(CodeInvalid, "idle: %s is given twice", QuoteShort(key))
		}
		seen[key] = true
		if key == "below" {
			f, err := strconv.ParseFloat(strings.TrimSuffix(value, "%"), 64)
			if err != nil || !(f > 0 && f <= 50) {
				return IdlePolicy{}, Errorf(CodeInvalid, "idle: below %s is not a percentage above 0 and up to 50, such as 5%%", QuoteShort(value))
			}
			p.BelowMilli = max(1, int64(f*10))
			continue
		}
		to := spans[key]
		d, err := time.ParseDuration(value)
		if to == nil || err != nil {
			return IdlePolicy{}, Errorf(CodeInvalid, "idle: %s is not one of below=PERCENT, window, grace, warn, shrink, end and ok=TIME, such as warn=1h", QuoteShort(item))
		}
		*to = d
	}
	return p, p.Check()
}

// Check returns what is wrong with p, as an *Error of CodeInvalid.
func (p IdlePolicy) Check() error {
	const most = MaxTimeDays * 24 * time.Hour
	if p == (IdlePolicy{}) {
		return nil
	}
	for _, d := range []time.Duration{p.Window, p.Grace, p.Warn, p.Shrink, p.End, p.MaxOK} {
		if d < 0 || d > most || d%time.Second != 0 {
			return Errorf(CodeInvalid, "idle: %s is outside 0 to %d days, or not a whole number of seconds", TimeText(d), MaxTimeDays)
		}
	}
	switch {
	case p.BelowMilli < 1 || p.BelowMilli > 500:
		return Errorf(CodeInvalid, "idle: below is missing or outside 0.1 to 50 %%; give the utilization below which a GPU is idle, such as below=5%%")
	case p.Window < 10*time.Second:
		return Errorf(CodeInvalid, "idle: a window of %s is below the minimum of 10 s", p.Window)
	}
	last := p.Window
	for _, d := range []time.Duration{p.Warn, p.Shrink, p.End} {
		if d > 0 && d < last {
			return Errorf(CodeInvalid, "idle: %s comes before %s; want window, warn, shrink and end in this order", d, last)
		}
		last = max(last, d)
	}
	return nil
}

// IdleMark is how far the idle policy has gone with an attempt.
type IdleMark struct {
	Stage IdleStage
	// Since is when its GPUs became idle, At when the mark was made. BusyMs and
	// KnownMs are its accumulated use at that time: thousandths of a GPU times
	// milliseconds, and the milliseconds in which it was known.
	Since, At       Time
	BusyMs, KnownMs int64
	// Was holds its shares before they were cut, empty if they are not.
	Was []GPUShare
}
