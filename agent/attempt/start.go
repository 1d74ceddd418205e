// Package attempt decides what happens to an attempt from what is known of it. It asks
// nothing and does nothing: the caller, which carries the attempt out, asks the runtime,
// has this package decide, and acts.
package attempt

import (
	"errors"
	"time"

	"github.com/berth-scheduler/berth/agent/launch"
	"github.com/berth-scheduler/berth/agent/runtime"
)

// LaunchPatience is how long a launch is retried when the runtime answers but cannot launch
// the attempt for a transient reason. A runtime that does not answer is asked for as long
// as it takes: nothing else can know what it knows.
const LaunchPatience = 2 * time.Minute

// OutputPatience is how long an attempt waits for the directory of its output, which is
// often created just after submission, under a name that contains the job's id.
const OutputPatience = 10 * time.Second

// Launch is what to do about a failed launch.
type Launch uint8

// The values of Launch.
const (
	TryAgain  Launch = iota
	Final            // it has failed for good
	Exhausted        // it has failed for too long, unless the runtime is silent
)

// Failed decides about a launch that has been failing for the given time. A launch.Error
// is final, except for a missing directory that may still appear.
func Failed(err error, since time.Duration) Launch {
	le, ok := errors.AsType[*launch.Error](err)
	switch {
	case ok && le.Missing && since < OutputPatience:
		return TryAgain
	case ok:
		return Final
	case since < LaunchPatience:
		return TryAgain
	}
	return Exhausted
}

// MostCuts is how many starts of an attempt may be cut off before its first step until the
// node counts as broken.
const MostCuts = 20

// Start is what to do about a start of which it is not known whether it happened.
type Start uint8

// The values of Start; none of them runs a job twice.
const (
	StartAgain Start = iota // it did not happen: start what was created once more
	GiveUp                  // it did not happen, and has failed for too long
	MakeAgain               // the job's first step never began, and nothing is left: create it once more
	NodeBroken              // that happened too often
	Unknowable              // nothing can tell whether the job ran: it must not run again
	Ran                     // it happened
)

// Settle decides about a failed start by what the runtime has since reported of the task.
// cuts is how often one was cut off before, and patient whether a failing launch is still
// to be retried.
func Settle(s runtime.Task, cuts int, patient bool) Start {
	switch s.Phase {
	case runtime.Created:
		if !patient {
			return GiveUp
		}
		return StartAgain
	case runtime.Absent: // it never ran, or it would be lost
		if cuts+1 >= MostCuts {
			return NodeBroken
		}
		return MakeAgain
	case runtime.Stopped:
		// A runtime that dies during a start takes along the process that releases the
		// job's, which then exits with 1 before the job's first step. Where the runtime can
		// tell, the task is absent; otherwise the job, which may also exit with 1, is
		// blamed only if it is certain to have begun.
		if s.ExitCode == 1 && s.Signal == 0 && s.Doubtful {
			return Unknowable
		}
	}
	return Ran
}
