package cluster

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Hold keeps a waiting job from starting until it is released.
type Hold struct {
	At Time
	By UID
	// Admin means that an administrator holds it: its owner cannot release it.
	Admin bool
}

// Reason returns who holds the job, in Slurm's words.
func (h *Hold) Reason() Reason {
	if h.Admin {
		return Reason{Code: ReasonHeldAdmin}
	}
	return Reason{Code: ReasonHeldUser}
}

// DependKind is the event of another job that a job waits for.
type DependKind string

// The kinds of dependencies, as Slurm names them.
const (
	After      DependKind = "after"      // it started, or ended without starting
	AfterAny   DependKind = "afterany"   // it ended
	AfterOK    DependKind = "afterok"    // it ended as COMPLETED
	AfterNotOK DependKind = "afternotok" // it ended otherwise
	AfterCorr  DependKind = "aftercorr"  // the task with the same number in another array ended as COMPLETED
	Singleton  DependKind = "singleton"  // earlier jobs of the same name and owner ended
)

// DependKinds returns all kinds.
func DependKinds() []DependKind {
	return []DependKind{After, AfterAny, AfterOK, AfterNotOK, AfterCorr, Singleton}
}

// Dependency is one event that must happen before a job starts. Job is 0 for a
// Singleton. An array's id means all of its tasks, or just one with OneTask.
type Dependency struct {
	Kind    DependKind
	Job     JobID
	Task    uint32
	OneTask bool
	// Delay is how long to wait after the event, in whole minutes; for After only.
	Delay time.Duration
}

// String returns the dependency as it is typed.
func (d Dependency) String() string {
	if d.Kind == Singleton {
		return string(d.Kind)
	}
	s := string(d.Kind) + ":" + d.Job.String()
	if d.OneTask {
		s += "_" + strconv.FormatUint(uint64(d.Task), 10)
	}
	if d.Delay > 0 {
		s += "+" + strconv.FormatInt(int64(d.Delay/time.Minute), 10)
	}
	return s
}

// DependState is the state of a dependency.
type DependState uint8

// A dependency is open until it is met or can no longer be; both are final.
const (
	DependOpen DependState = iota
	DependMet
	DependFailed
)

// String returns the state in Slurm's words.
func (s DependState) String() string {
	switch s {
	case DependMet:
		return "fulfilled"
	case DependFailed:
		return "failed"
	}
	return "unfulfilled"
}

// MaxDepends bounds the dependencies of one job.
const MaxDepends = 1000

// Of returns the state of the dependency given the state of the job it names and
// whether that job has started before. It must not be called for a Singleton.
func (d Dependency) Of(st JobState, started bool) DependState {
	met := func(b bool) DependState {
		if b {
			return DependMet
		}
		return DependFailed
	}
	switch {
	case d.Kind == After && (started || !st.Waiting()):
		return DependMet
	case !st.Terminal():
		return DependOpen
	case d.Kind == AfterOK, d.Kind == AfterCorr:
		return met(st == JobCompleted)
	case d.Kind == AfterNotOK:
		return met(st != JobCompleted)
	}
	return DependMet
}

// Depend returns the combined state of all of j's dependencies.
func (j *Job) Depend() DependState {
	if len(j.Depends) == 0 {
		return DependMet
	}
	has := func(s DependState) bool { return slices.Contains(j.Depends, s) }
	switch {
	case j.Spec.DependAny && has(DependMet):
		return DependMet
	case j.Spec.DependAny && has(DependOpen):
		return DependOpen
	case has(DependFailed):
		return DependFailed
	case has(DependOpen):
		return DependOpen
	}
	return DependMet
}

// Dependency returns what j still waits for from other jobs, as Slurm formats it:
// afterok:3(unfulfilled),afterany:4(unfulfilled); "" for nothing.
func (j *Job) Dependency() string {
	late := j.DependAt > 0 && j.State == JobPending && j.Reason.Code == ReasonDependency
	if j.Depend() == DependMet && !late {
		return ""
	}
	sep := ","
	if j.Spec.DependAny {
		sep = "?"
	}
	var out []string
	for i, s := range j.Depends {
		if i < len(j.Spec.Depends) && s == DependMet && late && j.Spec.Depends[i].Delay > 0 {
			s = DependOpen
		}
		if s != DependMet && i < len(j.Spec.Depends) {
			out = append(out, fmt.Sprintf("%s(%s)", j.Spec.Depends[i], s))
		}
	}
	return strings.Join(out, sep)
}

// Barred returns why a job may not be planned at now, however much is free: it is
// held, or waits for other jobs or for its begin time. The zero Reason means that
// it may.
func (j *Job) Barred(now Time) Reason {
	if j.Hold != nil {
		return j.Hold.Reason()
	}
	if j.Spec.Service != nil && len(j.Attempts) > 0 && j.DependAt > now {
		return Reason{Code: ReasonBeginTime}
	}
	switch j.Depend() {
	case DependOpen:
		return Reason{Code: ReasonDependency}
	case DependFailed:
		return Reason{Code: ReasonDependNever}
	case DependMet:
		if j.DependAt > now {
			return Reason{Code: ReasonDependency}
		}
	}
	if j.Spec.Begin > now {
		return Reason{Code: ReasonBeginTime}
	}
	return Reason{}
}

// Unrequeueable returns why the live attempt of j cannot be ended to requeue the
// job, in words, or "" if it can.
func (j *Job) Unrequeueable() string {
	a := j.Live()
	switch {
	case j.State.Terminal():
		return "it has ended as " + j.State.String() + "; submit it again"
	case a == nil:
		return "it waits already"
	case j.Cancel != nil:
		return "it is being cancelled"
	case a.Preempt != nil && a.Preempt.Requeue:
		return "it is being requeued"
	case a.State == JobCompleting:
		return "it is ending"
	}
	if _, n := j.Preempted(); n >= MaxPreemptions {
		return fmt.Sprintf("it was preempted and requeued %d times", n)
	}
	return ""
}

// ParseDepends parses dependencies as sbatch takes them: KIND:ID[:ID…], separated
// by commas if all must be met or by ? if one is enough; an id alone means
// afterany, as in old scripts. The error says what is wrong with which part.
func ParseDepends(s string) (deps []Dependency, anyOf bool, err error) {
	sep := ","
	if strings.Contains(s, "?") {
		if strings.Contains(s, ",") {
			return nil, false, Errorf(CodeInvalid, "dependency %s: holds both , and ?; use , when all must be met and ? when one is enough", QuoteShort(s))
		}
		sep, anyOf = "?", true
	}
	for part := range strings.SplitSeq(s, sep) {
		name, ids, has := strings.Cut(part, ":")
		kind := DependKind(strings.ToLower(name))
		if !has && kind != Singleton {
			kind, ids = AfterAny, part
		}
		switch {
		case !slices.Contains(DependKinds(), kind):
			return nil, false, Errorf(CodeInvalid, "dependency %s: the kinds are after, afterany, afterok, afternotok, aftercorr and singleton", QuoteShort(part))
		case kind == Singleton && has:
			return nil, false, Errorf(CodeInvalid, "dependency %s: singleton names no job", QuoteShort(part))
		case kind == Singleton:
			if d := (Dependency{Kind: kind}); !slices.Contains(deps, d) {
				deps = append(deps, d)
			}
			continue
		}
		for id := range strings.SplitSeq(ids, ":") {
			d, err := parseDepend(kind, id)
			if err != nil {
				return nil, false, Errorf(CodeInvalid, "dependency %s: %v", QuoteShort(part), err)
			}
			if !slices.Contains(deps, d) {
				deps = append(deps, d)
			}
		}
	}
	if len(deps) > MaxDepends {
		return nil, false, Errorf(CodeInvalid, "dependency: %d of them, at most %d are allowed", len(deps), MaxDepends)
	}
	return deps, anyOf, nil
}

// MaxDueTasks bounds the tasks of an array with a deadline, each of which is planned on its
// own from the start.
const MaxDueTasks = 100

// checkWaiting bounds the fields that say when a job may start.
func (s *Spec) checkWaiting() error {
	switch {
	case s.Begin < 0:
		return Errorf(CodeInvalid, "begin: is before 1970")
	case s.Begin > LastTime:
		return Errorf(CodeInvalid, "begin: is after the year 2199; to wait until it is released, use --hold")
	case len(s.Depends) > MaxDepends:
		return Errorf(CodeInvalid, "dependency: %d of them, at most %d are allowed", len(s.Depends), MaxDepends)
	case (s.Deadline != 0 || s.DeadlineIn != 0) && (s.Hold || s.Begin != 0 || len(s.Depends) > 0):
		return Errorf(CodeInvalid, "deadline: cannot be promised to a job that is held, or that waits for a time or for other jobs; drop one of them")
	case (s.Deadline != 0 || s.DeadlineIn != 0) && s.Array != nil && (s.Array.Throttle > 0 || s.Len() > MaxDueTasks):
		return Errorf(CodeInvalid, "deadline and array: each task is promised its end, so at most %d are allowed, without a limit on how many run at once; drop the limit, or submit smaller arrays", MaxDueTasks)
	}
	if s.Defer > 0 && s.Service != nil {
		return Errorf(CodeInvalid, "defer: a service has no end before which it could wait for cheaper power; leave it out")
	}
	if s.Defer > 0 && (s.Deadline != 0 || s.DeadlineIn != 0) {
		return Errorf(CodeInvalid, "defer and deadline: a deadline cannot be promised to a job that waits for cheaper power; --defer has it end within that time, as far as can be predicted; drop one of them")
	}
	for _, d := range s.Depends {
		if !slices.Contains(DependKinds(), d.Kind) || (d.Kind == Singleton) != (d.Job == 0) {
			return Errorf(CodeInvalid, "dependency %s: want after, afterany, afterok, afternotok or aftercorr with a job, or singleton", QuoteShort(d.String()))
		}
		if err := d.check(s); err != nil {
			return err
		}
	}
	return nil
}

// MaxDeferDays bounds Spec.Defer.
const MaxDeferDays = 30

// MaxDependDelay bounds Dependency.Delay.
const MaxDependDelay = 365 * 24 * time.Hour

// parseDepend parses one job of a dependency: ID, ID_TASK for one task of an array,
// and for after ID+MINUTES.
func parseDepend(kind DependKind, s string) (Dependency, error) {
	d := Dependency{Kind: kind}
	ref, minutes, late := strings.Cut(s, "+")
	id, task, one := strings.Cut(ref, "_")
	n, err := strconv.ParseUint(id, 10, 62)
	if err != nil || n == 0 {
		return d, errors.New("want KIND:ID, such as afterok:17 or afterany:17:18, or ID_TASK for one task of an array")
	}
	d.Job = JobID(n)
	if one && task != "*" {
		t, err := strconv.ParseUint(task, 10, 32)
		if err != nil || t > MaxTaskID {
			return d, fmt.Errorf("after _ stands one task of the array, 0 to %d", MaxTaskID)
		}
		d.Task, d.OneTask = uint32(t), true
	}
	if late {
		m, err := strconv.ParseUint(minutes, 10, 32)
		if err != nil || kind != After || m > uint64(MaxDependDelay/time.Minute) {
			return d, fmt.Errorf("+MINUTES goes with after alone, 0 to %d: after:17+5", int64(MaxDependDelay/time.Minute))
		}
		d.Delay = time.Duration(m) * time.Minute
	}
	return d, nil
}

// check returns what is wrong with a dependency of s.
func (d *Dependency) check(s *Spec) error {
	switch {
	case d.Delay < 0 || d.Delay > MaxDependDelay || d.Delay%time.Minute != 0 || d.Delay > 0 && d.Kind != After:
		return Errorf(CodeInvalid, "dependency %s: only after has a delay, in whole minutes, at most %d of them", QuoteShort(d.String()), int64(MaxDependDelay/time.Minute))
	case d.Task > MaxTaskID || d.OneTask && d.Kind == Singleton:
		return Errorf(CodeInvalid, "dependency %s: a task is 0 to %d", QuoteShort(d.String()), MaxTaskID)
	case d.Kind == AfterCorr && s.Array == nil:
		return Errorf(CodeInvalid, "dependency %s: aftercorr links tasks of two arrays that have equal numbers; give --array, or use afterok", QuoteShort(d.String()))
	case d.Kind == AfterCorr && d.OneTask:
		return Errorf(CodeInvalid, "dependency %s: aftercorr names a whole array; leave out the task", QuoteShort(d.String()))
	}
	return nil
}

// Since returns from when on a dependency that is met at a time counts.
func (d *Dependency) Since(at Time) Time {
	if d.Delay == 0 {
		return 0
	}
	return at.Add(d.Delay)
}
