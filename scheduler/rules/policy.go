// Package rules holds what a site chooses, and what a job takes by that: of which
// GPUs and how much, of its node's cores and host memory, for how long, at which
// price. Passes, the fast path, forecasts and explanations all use it.
package rules

import "time"

// Mode is how GPUs are allocated.
type Mode string

// The modes. Any other value means ModeFFD.
const (
	// ModeFFD places several jobs on a GPU by first fit, decreasing.
	ModeFFD Mode = "ffd"
	// ModeSlot gives every GPU to one job alone, as Slurm's gres does: the baseline
	// of Yeung et al. (HotCloud 2020).
	ModeSlot Mode = "slot"
)

// Policy is what a site may choose. Values outside the sensible range count as the
// nearest inside; zero durations and counts switch a rule off where the field says
// so.
type Policy struct {
	Mode Mode
	// MaxShares bounds how many jobs share one GPU; a GPU's own limit may be lower.
	// Three is what Yeung et al. (HotCloud 2020, section 6) allow.
	MaxShares int
	// MaxSlowdownMilli is how many times longer, in thousandths, any job on a GPU
	// may be predicted to take than alone: a job that would exceed it, for itself
	// or for another, is not placed there. It counts only where something was
	// learned of sharing; 0 switches the rule off.
	MaxSlowdownMilli int64
	// OvercommitMilli is up to what, in thousandths of a GPU, the predicted compute
	// of jobs that share it may add up: a job whose compute is confidently predicted
	// and not declared reserves that much less of it. While there are empty GPUs for
	// all waiting jobs, those are taken first. Memory and declared compute are never
	// overcommitted. 1000 and less switch it off.
	OvercommitMilli int64
	// LookAhead is with how many waiting jobs at most a pass overcommits only so
	// far as everything is predicted to be done sooner by that; with more it does so
	// wherever it can. 0 switches it off. See package rollout.
	LookAhead int
	// MinConfidenceMilli is how sure a prediction must be, 0–1000, for a job
	// without a declared memory cap to share a GPU.
	MinConfidenceMilli int64
	// FastGainMilli is how much longer, in thousandths, a run on another free type
	// may take before the faster type is preferred: 1150 leaves the fast GPUs alone
	// for a gain below 15 %.
	FastGainMilli int64
	// PatienceMilli makes a job decline a free GPU if another type, its queue
	// included, promises to end it in less than 1000/PatienceMilli of the time. 0
	// means that no job waits while a GPU is free.
	PatienceMilli int64
	// MaxMoves bounds the queue moves of jobs without a queue in one pass.
	MaxMoves int
	// MaxRebalance bounds the moves from one queue to another in one pass. A move
	// must advance the estimated completion by MinGainMilli thousandths and by
	// MinGain.
	MaxRebalance int
	MinGainMilli int64
	MinGain      time.Duration
	// ShortPart and LongPart define short and long relative to all the work: a job
	// is short if it is predicted to take at most one ShortPart-th of the time that
	// everything running and waiting on the GPUs that could run it takes, and long
	// from one LongPart-th on. The short go first, then the long; see DESIGN.md. 0
	// means that none is.
	ShortPart, LongPart int64
	// ReserveAge is the wait from which on the first jobs of a pass that do not
	// fit, one for every 64 GPUs, have GPUs reserved for them: later jobs overtake
	// them only if predicted to end before they could start.
	ReserveAge time.Duration
	// FIFOAge is the least wait from which on a job is old: it goes first, the
	// oldest first, whatever its size and length, and has GPUs reserved for it.
	// Under a long backlog that wait is OldDrains times as long as everything
	// running and waiting takes, but never more than MaxAge. 0 switches age off.
	FIFOAge, MaxAge time.Duration
	OldDrains       int64
	// HoldAge is how much longer a job is old before no job overtakes it any more,
	// whatever is predicted.
	HoldAge time.Duration
	// AssumedDuration stands in for an unknown duration.
	AssumedDuration time.Duration
	// DefaultCPUMilli and DefaultMemMiB are the least that a job takes if it asks
	// for no cores or no host memory; see HostOf.
	DefaultCPUMilli, DefaultMemMiB int64
	// KeepCPUMilli and KeepMemMiB are what each idle GPU keeps of its node's cores
	// and host memory, at most its part of the node: a job that asks for more than
	// the part of its GPUs gets only what leaves that. 0 for both switches the rule
	// off, also for jobs without GPUs.
	KeepCPUMilli, KeepMemMiB int64
	// FragNodes is on how many nodes a job that fits on many compares the growth of
	// fragmentation rather than take the first; 0 takes the first. It applies only
	// where cores or host memory are short, and where no more than FragJobs wait:
	// many are packed better by size.
	FragNodes, FragJobs int
	// YieldAfter is the wait from which on a job may take the place of running ones
	// with a checkpoint hook that have much more left to do; 0 switches that off.
	// It must gain YieldMilli thousandths of what they lose, and no job is
	// preempted this way more than YieldMost times.
	YieldAfter time.Duration
	YieldMilli int64
	YieldMost  int
	// NearAge bounds how long a gang waits for GPUs of one NUMA group while others
	// are free; it never waits for more than a tenth of its run.
	NearAge time.Duration
	// Linkless leaves out whose links a job on several nodes would share, for
	// comparisons; see Links.
	Linkless bool
	// Prices are what GPU-hours and core-hours cost, nil if free.
	Prices *Prices
	// FairMilli is the weight of fair shares against length in the order of a pass,
	// in thousandths: 0 none, 1000 shares alone. It counts only if the snapshot
	// says how much each user was served.
	FairMilli int64
	// Trading lets accounts trade GPU types, see fair.Market. It counts only with fair
	// shares.
	Trading bool
	// DeadlineShareMilli is the part of each type's GPUs, in thousandths, that
	// jobs with deadlines may claim.
	DeadlineShareMilli int64
	// ReleaseDepth bounds how many waiting jobs of a queue OnRelease considers.
	ReleaseDepth int
	// MaxReasons bounds for how many shapes of job one pass writes the reason to
	// wait in words; the others get the code alone. Explain has the words. Below 0
	// the plan gives no reasons.
	MaxReasons int
}

// Prices is what an hour of a whole GPU of a type costs, and of a core for
// cluster.CPUType, in thousandths of the currency; a missing type has no price. It
// is not modified.
type Prices struct{ PerHourMilli map[string]int64 }

// of returns the price of a type, 0 for none.
func (x *Prices) of(gpuType string) int64 {
	if x == nil {
		return 0
	}
	return x.PerHourMilli[gpuType]
}

// Default returns the policy of a site that chose nothing.
func Default() Policy {
	return Policy{
		Mode: ModeFFD, MaxShares: 3, MaxSlowdownMilli: 1500, MinConfidenceMilli: 300,
		FastGainMilli: 1150,
		MaxMoves:      20000, MaxRebalance: 1000, MinGainMilli: 200, MinGain: 5 * time.Second,
		ShortPart: 64, LongPart: 8, ReserveAge: 30 * time.Second, HoldAge: 20 * time.Minute,
		FIFOAge: 4 * time.Hour, MaxAge: 7 * 24 * time.Hour, OldDrains: 2, AssumedDuration: time.Hour,
		DefaultCPUMilli: 1000, DefaultMemMiB: 2048,
		YieldAfter: 2 * time.Minute, YieldMilli: 2000, YieldMost: 20,
		NearAge: 10 * time.Minute, DeadlineShareMilli: 500, KeepCPUMilli: 2000, KeepMemMiB: 2048,
		FragNodes: 128, FragJobs: 256, LookAhead: 16,
		ReleaseDepth: 8, MaxReasons: 256,
	}
}
