package cluster

import (
	"fmt"
	"time"
)

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

// Preempted returns when j was last asked to make room, and how often in all.
func (j *Job) Preempted() (last Time, n int) {
	for i := range j.Attempts {
		if p := j.Attempts[i].Preempt; p != nil {
			last = p.At
			n++
		}
	}
	return last, n
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
