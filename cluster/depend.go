package cluster

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// MaxDependDelay bounds how long after another job one may wait.
const MaxDependDelay = 365 * 24 * time.Hour

// parseDepend reads one job of a dependency: ID, ID_TASK for one task of an
// array, and for after ID+MINUTES.
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

// check tells what a dependency of a spec may not be.
func (d *Dependency) check(s *Spec) error {
	switch {
	case d.Delay < 0 || d.Delay > MaxDependDelay || d.Delay%time.Minute != 0 || d.Delay > 0 && d.Kind != After:
		return Errorf(CodeInvalid, "dependency %s: only after has a delay, in whole minutes, at most %d of them", QuoteShort(d.String()), int64(MaxDependDelay/time.Minute))
	case d.Task > MaxTaskID || d.OneTask && d.Kind == Singleton:
		return Errorf(CodeInvalid, "dependency %s: a task is 0 to %d", QuoteShort(d.String()), MaxTaskID)
	case d.Kind == AfterCorr && s.Array == nil:
		return Errorf(CodeInvalid, "dependency %s: aftercorr is between the tasks of two arrays with equal numbers; give --array, or use afterok", QuoteShort(d.String()))
	case d.Kind == AfterCorr && d.OneTask:
		return Errorf(CodeInvalid, "dependency %s: aftercorr names a whole array; leave out the task", QuoteShort(d.String()))
	}
	return nil
}

// Since is from when on a dependency that is met at a time counts.
func (d *Dependency) Since(at Time) Time {
	if d.Delay == 0 {
		return 0
	}
	return at.Add(d.Delay)
}
