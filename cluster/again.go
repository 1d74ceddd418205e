package cluster

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/berth-scheduler/berth/cluster/study"
)

// Checkpoint says how a job saves its state when it is preempted: its first process
// gets Signal and then has Grace to save and exit before it is killed. A job
// without one would lose all its work and is never preempted. The zero value is
// none.
type Checkpoint struct {
	// Signal is one of CheckpointSignals, "" for no hook. It is a name because
	// numbers differ between systems.
	Signal string
	// Grace is from MinCheckpointGrace to MaxCheckpointGrace.
	Grace time.Duration
}

// Bounds of Checkpoint.Grace.
const (
	DefaultCheckpointGrace = time.Minute
	MinCheckpointGrace     = time.Second
	MaxCheckpointGrace     = 10 * time.Minute
)

// CheckpointSignals returns the signals that a hook may use, without the SIG
// prefix.
func CheckpointSignals() []string { return []string{"USR1", "USR2", "HUP", "INT", "TERM"} }

// Set reports whether there is a hook.
func (c Checkpoint) Set() bool { return c.Signal != "" }

// String returns the form that ParseCheckpoint reads, "" for none.
func (c Checkpoint) String() string {
	if !c.Set() {
		return ""
	}
	return c.Signal + "@" + c.Grace.String()
}

// ParseCheckpoint parses SIGNAL or SIGNAL@GRACE, such as USR1, SIGUSR1@90 or
// USR1@2m; a plain number is in seconds. Errors are *Error of CodeInvalid.
func ParseCheckpoint(text string) (Checkpoint, error) {
	signal, grace, bad := signalAt(text, DefaultCheckpointGrace)
	c := Checkpoint{Signal: signal, Grace: grace}
	if c.Signal == "" {
		return Checkpoint{}, Errorf(CodeInvalid, "checkpoint %s: want SIGNAL or SIGNAL@GRACE, such as USR1@60s", QuoteShort(text))
	}
	if bad != nil {
		return Checkpoint{}, Errorf(CodeInvalid, "checkpoint %s: the grace %s is not a time; want seconds or a span, such as USR1@60 or USR1@2m", QuoteShort(text), QuoteShort(*bad))
	}
	if err := c.Check(); err != nil {
		return Checkpoint{}, err
	}
	return c, nil
}

// signalAt splits SIGNAL or SIGNAL@TIME; a plain number is in seconds. bad is the
// time if it is none.
func signalAt(text string, usual time.Duration) (signal string, at time.Duration, bad *string) {
	name, when, timed := strings.Cut(text, "@")
	signal = strings.TrimPrefix(strings.ToUpper(name), "SIG")
	if !timed {
		return signal, usual, nil
	}
	if n, err := strconv.ParseUint(when, 10, 31); err == nil {
		return signal, time.Duration(n) * time.Second, nil
	}
	at, err := time.ParseDuration(when)
	if err != nil {
		return signal, 0, &when
	}
	return signal, at, nil
}

// Check returns what is wrong with c, as an *Error of CodeInvalid.
func (c Checkpoint) Check() error {
	switch {
	case c == Checkpoint{}:
		return nil
	case !slices.Contains(CheckpointSignals(), c.Signal):
		return Errorf(CodeInvalid, "checkpoint: signal %s is not one of %s", QuoteShort(c.Signal), strings.Join(CheckpointSignals(), ", "))
	case c.Grace < MinCheckpointGrace || c.Grace > MaxCheckpointGrace:
		return Errorf(CodeInvalid, "checkpoint: a grace of %s is outside %s to %s", TimeText(c.Grace), TimeText(MinCheckpointGrace), TimeText(MaxCheckpointGrace))
	}
	return nil
}

const (
	// PreemptEvery is the minimum time between two preemptions of one job.
	PreemptEvery = 10 * time.Minute
	// MaxPreemptions bounds how often one job is preempted, since each preemption
	// leaves an attempt in the job's record.
	MaxPreemptions = 200
)

// PreemptMode says whether running jobs of a partition are preempted for jobs with
// much less work left. Preemption for deadlines, or where a QOS calls for it,
// happens in any mode.
type PreemptMode string

// The preemption modes of a partition. PreemptDefault follows the cluster's
// setting.
const (
	PreemptDefault PreemptMode = ""
	PreemptOff     PreemptMode = "off"
)

// ParsePreemptMode parses default or off; "" is default. The error is an *Error of
// CodeInvalid.
func ParsePreemptMode(s string) (PreemptMode, error) {
	switch s {
	case "", "default":
		return PreemptDefault, nil
	case string(PreemptOff):
		return PreemptOff, nil
	}
	return PreemptDefault, Errorf(CodeInvalid, "preempt: %s is not known; want default or off", QuoteShort(s))
}

// String implements fmt.Stringer.
func (m PreemptMode) String() string {
	if m == PreemptDefault {
		return "default"
	}
	return string(m)
}

// PreemptRequest records that an attempt was asked to make room. It stays with the
// attempt however that ends.
type PreemptRequest struct {
	At Time
	// For is the job that is to get the room, 0 if there is none in particular.
	For JobID
	Why string
	// Requeue means that By, as an administrator if Admin is set, asked for the job
	// to be requeued; with Hold it is held from then on.
	Requeue, Hold bool
	By            UID
	Admin         bool
	// Copy says from which trial a trial is to continue, nil for itself.
	Copy *study.Copy
}

// Reason returns the request in words, for the attempt and for its job.
func (r *PreemptRequest) Reason() Reason {
	if r.Requeue {
		return Reason{Code: ReasonRequeued, Detail: r.Why}
	}
	if r.For == 0 {
		return Reason{Code: ReasonPreempted, Detail: r.Why}
	}
	return Reason{Code: ReasonPreempted, Detail: fmt.Sprintf("for job %d: %s", r.For, r.Why)}
}

// Preempting reports whether the live attempt of j was asked to make room.
func (j *Job) Preempting() bool {
	a := j.Live()
	return a != nil && a.Preempt != nil
}

// Preempted returns when j was last asked to make room, and how often in all.
// Requests to return borrowed GPUs do not count; see GaveBack.
func (j *Job) Preempted() (last Time, n int) { return j.askedOut(false) }

// GaveBack returns when j was last asked to return borrowed GPUs, and how often in
// all.
func (j *Job) GaveBack() (last Time, n int) { return j.askedOut(true) }

func (j *Job) askedOut(onLoan bool) (last Time, n int) {
	for i := range j.Attempts {
		if p := j.Attempts[i].Preempt; p != nil && (j.Attempts[i].Loan != "") == onLoan {
			last = p.At
			n++
		}
	}
	return last, n
}

// OnLoan returns the partition whose GPUs j has borrowed, "" for none.
func (j *Job) OnLoan() string {
	if a := j.Live(); a != nil {
		return a.Loan
	}
	return ""
}

// Unreturnable returns why the GPUs that j has borrowed cannot be reclaimed now, in
// words, or "" if they can: at any time, regardless of other preemption rules.
func (j *Job) Unreturnable() string {
	switch {
	case j.OnLoan() == "":
		return "it has nothing on loan"
	case j.State != JobRunning && j.State != JobStarting:
		return "it is " + j.State.String()
	case j.Cancel != nil:
		return "it is being cancelled"
	case j.Live().Preempt != nil:
		return "it is being preempted"
	}
	return ""
}

// Rested reports whether j was preempted rarely enough, and long enough ago, to be
// preempted again.
func (j *Job) Rested(now Time) bool {
	last, n := j.Preempted()
	return n == 0 || n < MaxPreemptions && now.Sub(last) >= PreemptEvery
}

// RestsFor returns for how much longer j is exempt from preemption because of its
// last one, 0 if it is not; ok is false if j has reached its maximum and is exempt
// for good.
func (j *Job) RestsFor(now Time) (d time.Duration, ok bool) {
	last, n := j.Preempted()
	if n == 0 {
		return 0, true
	}
	return max(0, PreemptEvery-now.Sub(last)), n < MaxPreemptions
}

// Unpreemptible returns why the live attempt of j cannot be preempted at now, in
// words, or "" if it can.
func (j *Job) Unpreemptible(now Time) string {
	switch {
	case j.State != JobRunning || j.Live() == nil:
		return "it is " + j.State.String()
	case !j.Spec.Checkpoint.Set():
		return "it has no checkpoint hook and would lose all that it did"
	case j.Cancel != nil:
		return "it is being cancelled"
	case j.Live().Preempt != nil:
		return "it is being preempted"
	}
	last, n := j.Preempted()
	switch {
	case j.Rested(now):
		return ""
	case n >= MaxPreemptions:
		return fmt.Sprintf("it was preempted %d times", n)
	}
	return fmt.Sprintf("it was preempted %s ago, less than %s", now.Sub(last).Round(time.Second), PreemptEvery)
}

const (
	// MaxRetries bounds Retry.Times: each run is kept in the job's record, in the
	// memory of every coordinator.
	MaxRetries = 10
	// MaxRetryOn bounds Retry.On, in bytes.
	MaxRetryOn = 256
	// EarlyFailure is how soon after its start the failure of a multi-node job
	// counts as one that a rerun will not fix: most such failures are in the
	// program or its invocation, and every one holds all the nodes (Jeon et al.,
	// Analysis of Large-Scale Multi-Tenant GPU Clusters for DNN Training Workloads,
	// USENIX ATC 2019, section 4).
	EarlyFailure = time.Minute
	// defaultRetryOn is what an empty Retry.On means.
	defaultRetryOn = "FAILED,NODE_FAIL"
)

// Retry says how often, and after which failures, a job is rerun. The zero value is
// never.
type Retry struct {
	// Times is the maximum number of reruns, up to MaxRetries.
	Times int
	// On lists the failures after which the job is rerun, as ParseRetryOn parses
	// them; "" means any failure of the job itself and the loss of its node.
	On string
}

// retryStates returns the end states that Retry.On may name.
func retryStates() []JobState {
	return []JobState{JobFailed, JobNodeFail, JobOutOfMemory, JobTimeout}
}

// RetryOn is a parsed Retry.On.
type RetryOn struct {
	states []JobState
	codes  [4]uint64 // bit n is exit code n
}

// ParseRetryOn parses a comma-separated list of exit codes such as 75 and 64-78,
// and of the states FAILED, NODE_FAIL, OUT_OF_MEMORY and TIMEOUT. A signal has exit
// code 128 plus its number, as in shells. Errors are *Error of CodeInvalid.
func ParseRetryOn(text string) (RetryOn, error) {
	var on RetryOn
	if len(text) > MaxRetryOn {
		return RetryOn{}, Errorf(CodeInvalid, "retry_on: %d bytes, at most %d", len(text), MaxRetryOn)
	}
	text = cmp.Or(text, defaultRetryOn)
	for word := range strings.SplitSeq(text, ",") {
		if i := slices.IndexFunc(retryStates(), func(s JobState) bool { return strings.EqualFold(s.String(), word) }); i >= 0 {
			on.states = append(on.states, retryStates()[i])
			continue
		}
		from, to, ranged := strings.Cut(word, "-")
		first, err := strconv.ParseUint(from, 10, 8)
		last, err2 := first, error(nil)
		if ranged {
			last, err2 = strconv.ParseUint(to, 10, 8)
		}
		if err != nil || err2 != nil || first == 0 || last < first {
			return RetryOn{}, Errorf(CodeInvalid, "retry_on: %s is neither an exit code from 1 to 255, such as 75 or 64-78, nor one of %s, %s, %s and %s",
				QuoteShort(word), JobFailed, JobNodeFail, JobOutOfMemory, JobTimeout)
		}
		for n := first; n <= last; n++ {
			on.codes[n/64] |= 1 << (n % 64)
		}
	}
	return on, nil
}

// Names reports whether an attempt ended in one of the listed ways.
func (on RetryOn) Names(a *Attempt) bool {
	if slices.Contains(on.states, a.State) {
		return true
	}
	return a.State == JobFailed && a.Exit != nil && on.codes[uint8(a.Exit.Code)/64]&(1<<(uint8(a.Exit.Code)%64)) != 0
}

// Check returns what is wrong with r, as an *Error of CodeInvalid.
func (r Retry) Check() error {
	switch {
	case r.Times < 0 || r.Times > MaxRetries:
		return Errorf(CodeInvalid, "retry: %d is outside 0 to %d", r.Times, MaxRetries)
	case r.Times == 0 && r.On != "":
		return Errorf(CodeInvalid, "retry_on needs retry: say how often, such as --retry 3")
	}
	_, err := ParseRetryOn(r.On)
	return err
}

// String describes how often and after which failures the job is rerun, "" for
// never.
func (r Retry) String() string {
	if r.Times == 0 {
		return ""
	}
	on := cmp.Or(r.On, defaultRetryOn)
	return fmt.Sprintf("up to %d times after %s", r.Times, on)
}

// Retries reports whether j is rerun after the way its last attempt ended. why says
// which try that is, or why there is none; it is "" if j asks for no rerun after such
// an end.
func (j *Job) Retries() (again bool, why string) { return retries(j, true) }

// RetriesUnprobed is Retries as it was before Probes: early failures on several
// nodes are final.
func RetriesUnprobed(j *Job) (again bool, why string) { return retries(j, false) }

func retries(j *Job, probes bool) (again bool, why string) {
	on, err := ParseRetryOn(j.Spec.Retry.On)
	a := j.Last()
	if j.Spec.Retry.Times == 0 || err != nil || a == nil || !on.Names(a) {
		return false, ""
	}
	tries := 0
	for i := range j.Attempts {
		if on.Names(&j.Attempts[i]) {
			tries++
		}
	}
	least, _, _ := j.Spec.Sizes()
	smaller := probes && j.Probes() && a.Size(j.Spec) > least
	switch {
	case tries > j.Spec.Retry.Times:
		return false, fmt.Sprintf("no retry is left of %d", j.Spec.Retry.Times)
	case smaller && j.Spec.NodeRange.elastic():
		why = fmt.Sprintf(", with the fewest nodes, %d: on %d it failed within a minute of its start", least, a.Size(j.Spec))
	case smaller:
		why = fmt.Sprintf(", with the fewest GPUs, %d: with %d it failed within a minute of its start", least, a.Size(j.Spec))
	case a.Gang != nil && a.failedEarly():
		return false, fmt.Sprintf("not tried again: on %d nodes a failure within a minute of the start is final", j.Spec.NodeCount())
	}
	return true, fmt.Sprintf("retry %d of %d%s", tries, j.Spec.Retry.Times, why)
}

// Probes reports whether the next run of j is a probe with its fewest nodes or GPUs
// (Jeon et al., see EarlyFailure): it failed early, and no run since then outlived
// that time. A range of GPUs is on one node, where a rerun with all of them costs
// others little; so of those only a job that can restart with more begins with fewer.
func (j *Job) Probes() bool {
	s := j.Spec
	if !s.Elastic() || s.Retry.Times == 0 || s.Deadline > 0 || !s.NodeRange.elastic() && !s.Checkpoint.Set() {
		return false
	}
	for _, a := range slices.Backward(j.Attempts) {
		if a.failedEarly() {
			return true
		}
		if a.Started > 0 && a.Ended.Sub(a.Started) >= EarlyFailure {
			break
		}
	}
	return false
}

// failedEarly reports whether the job itself failed soon after it started.
func (a *Attempt) failedEarly() bool {
	return a.State == JobFailed && a.Started > 0 && a.Ended.Sub(a.Started) < EarlyFailure
}
