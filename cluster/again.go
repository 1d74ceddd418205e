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

// Checkpoint says how a job saves its state when it must make room for
// others: its first process gets the signal, and has the grace to save and to
// end before it is ended. A job that has none loses all that it did, and is
// never preempted. The zero value is none.
type Checkpoint struct {
	// Signal is one of CheckpointSignals, "" for no hook. A name and not a
	// number: numbers differ from system to system.
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

// CheckpointSignals are the signals that a hook may use, without SIG.
func CheckpointSignals() []string { return []string{"USR1", "USR2", "HUP", "INT", "TERM"} }

// Set reports whether there is a hook at all.
func (c Checkpoint) Set() bool { return c.Signal != "" }

// String returns the form that ParseCheckpoint reads, "" for none.
func (c Checkpoint) String() string {
	if !c.Set() {
		return ""
	}
	return c.Signal + "@" + c.Grace.String()
}

// ParseCheckpoint reads SIGNAL or SIGNAL@GRACE, such as USR1, SIGUSR1@90 or
// USR1@2m: a number alone is seconds. Faults are *Error of CodeInvalid.
func ParseCheckpoint(text string) (Checkpoint, error) {
	name, grace, timed := strings.Cut(text, "@")
	c := Checkpoint{Signal: strings.TrimPrefix(strings.ToUpper(name), "SIG"), Grace: DefaultCheckpointGrace}
	if c.Signal == "" {
		return Checkpoint{}, Errorf(CodeInvalid, "checkpoint %s: want SIGNAL or SIGNAL@GRACE, such as USR1@60s", QuoteShort(text))
	}
	if timed {
		d, err := time.ParseDuration(grace)
		if n, bare := strconv.ParseUint(grace, 10, 31); bare == nil {
			d, err = time.Duration(n)*time.Second, nil
		}
		if err != nil {
			return Checkpoint{}, Errorf(CodeInvalid, "checkpoint %s: the grace %s is not a time; want seconds or a span, such as USR1@60 or USR1@2m", QuoteShort(text), QuoteShort(grace))
		}
		c.Grace = d
	}
	if err := c.Check(); err != nil {
		return Checkpoint{}, err
	}
	return c, nil
}

// Check tells what is wrong with c, as an *Error of CodeInvalid.
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
	// PreemptEvery is the least time between two preemptions of one job.
	PreemptEvery = 10 * time.Minute
	// MaxPreemptions bounds how often one job is preempted, since each leaves
	// an attempt that is kept with it.
	MaxPreemptions = 200
)

// PreemptMode is whether running jobs of a partition make room for those that have
// much less left to do. For deadlines, and where a QOS says so, they do in any case.
type PreemptMode string

// The modes of a partition. PreemptDefault is as the cluster does it.
const (
	PreemptDefault PreemptMode = ""
	PreemptOff     PreemptMode = "off"
)

// ParsePreemptMode reads default or off; "" is default. The error is an *Error of
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

// PreemptRequest records that an attempt is to make room. It stays with the
// attempt, however that ended.
type PreemptRequest struct {
	At Time
	// For is the job that is to have the room, 0 when nobody in particular is.
	For JobID
	Why string
	// Requeue tells that somebody asked for the job to wait again, By whom and
	// whether as an Administrator; with Hold it is held from then on.
	Requeue, Hold bool
	By            UID
	Admin         bool
	// Copy is from where a trial is to go on, nil for from where it is.
	Copy *study.Copy
}

// Reason says it in words, for the attempt and for its job.
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

// Preempted returns when j was last asked to make room, and how often in all. What it gave
// back that it had on loan does not count: see GaveBack.
func (j *Job) Preempted() (last Time, n int) {
	for i := range j.Attempts {
		if p := j.Attempts[i].Preempt; p != nil && j.Attempts[i].Loan == "" {
			last = p.At
			n++
		}
	}
	return last, n
}

// GaveBack returns when j was last asked for what it had on loan, and how often in all.
func (j *Job) GaveBack() (last Time, n int) {
	for i := range j.Attempts {
		if p := j.Attempts[i].Preempt; p != nil && j.Attempts[i].Loan != "" {
			last = p.At
			n++
		}
	}
	return last, n
}

// OnLoan names the partition whose cards j has on loan, "" for none.
func (j *Job) OnLoan() string {
	if a := j.Live(); a != nil {
		return a.Loan
	}
	return ""
}

// Unreturnable returns why what j has on loan cannot be asked back now, in words, and ""
// when it can: at any time, whatever else is said of preemptions.
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

// Rested reports whether the preemptions of j, if any, are few and long enough
// ago for another one.
func (j *Job) Rested(now Time) bool {
	last, n := j.Preempted()
	return n == 0 || n < MaxPreemptions && now.Sub(last) >= PreemptEvery
}

// RestsFor is how much longer j cannot be preempted again since it was not long ago,
// 0 when it can; ok is false when it never will, having been so often enough.
func (j *Job) RestsFor(now Time) (d time.Duration, ok bool) {
	last, n := j.Preempted()
	if n == 0 {
		return 0, true
	}
	return max(0, PreemptEvery-now.Sub(last)), n < MaxPreemptions
}

// Unpreemptible returns why the live attempt of j cannot be preempted at a
// time, in words, and "" when it can.
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
	// MaxRetries bounds Retry.Times: each run is kept with its job, in the memory of every
	// coordinator.
	MaxRetries = 10
	// MaxRetryOn bounds Retry.On, in bytes.
	MaxRetryOn = 256
	// EarlyFailure is how soon after its start a job on several nodes fails in a way
	// that another run will not mend: most such failures are of the program or of how it
	// is called, and every one holds all the nodes (Jeon et al., Analysis of Large-Scale
	// Multi-Tenant GPU Clusters for DNN Training Workloads, USENIX ATC 2019, section 4).
	EarlyFailure = time.Minute
	// defaultRetryOn is what "" stands for in Retry.On.
	defaultRetryOn = "FAILED,NODE_FAIL"
)

// Retry is how often, and after what, a job that failed runs again. The zero value
// is never.
type Retry struct {
	// Times is how many more runs there are at most, up to MaxRetries.
	Times int
	// On names what a run is repeated for, as ParseRetryOn reads it; "" is any failure
	// of the job's own and the loss of its node.
	On string
}

// retryStates are the ends that Retry.On may name.
func retryStates() []JobState {
	return []JobState{JobFailed, JobNodeFail, JobOutOfMemory, JobTimeout}
}

// RetryOn is a parsed Retry.On.
type RetryOn struct {
	states []JobState
	codes  [4]uint64 // bit n is exit code n
}

// ParseRetryOn reads exit codes such as 75 and 64-78, and states, with commas between
// them: FAILED, NODE_FAIL, OUT_OF_MEMORY and TIMEOUT. A signal has the exit code of 128
// and its number, as in shells. Faults are *Error of CodeInvalid.
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

// Names reports whether an attempt ended in one of the ways that are named.
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

// String says how often and after what, "" for never.
func (r Retry) String() string {
	if r.Times == 0 {
		return ""
	}
	on := cmp.Or(r.On, defaultRetryOn)
	return fmt.Sprintf("up to %d times after %s", r.Times, on)
}

// Retries reports whether j runs once more for how its last attempt ended, and in
// words which of its tries that is, or why there is none; "" where it asks for nothing
// of the kind.
func (j *Job) Retries() (again bool, why string) {
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
	switch ran := a.Ended.Sub(a.Started); {
	case tries > j.Spec.Retry.Times:
		return false, fmt.Sprintf("no retry is left of %d", j.Spec.Retry.Times)
	case a.State == JobFailed && a.Gang != nil && a.Started > 0 && ran < EarlyFailure:
		return false, fmt.Sprintf("not tried again: on %d nodes a failure within a minute of the start is final", j.Spec.NodeCount())
	}
	return true, fmt.Sprintf("retry %d of %d", tries, j.Spec.Retry.Times)
}
