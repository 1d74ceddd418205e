// Package attempt decides what becomes of an attempt by what is known of it. It asks
// nobody and does nothing: whoever carries an attempt out asks the runtime, has this
// package decide, and acts.
package attempt

import (
	"errors"
	"time"

	"github.com/berth-scheduler/berth/agent/launch"
	"github.com/berth-scheduler/berth/agent/runtime"
)

// LaunchPatience is how long a runtime that answers, and cannot launch an
// attempt for a reason that may pass, is asked again. One that does not answer
// is asked for as long as it takes: what it does not say nobody can know.
const LaunchPatience = 2 * time.Minute

// OutputPatience is how long an attempt waits for the directory of its output, which
// is often made just after the submit, under a name that has the job's id.
const OutputPatience = 10 * time.Second

// Launch is what is to be done about a launch that failed.
type Launch uint8

// What may be done.
const (
	TryAgain  Launch = iota
	Final            // it fails for good
	Exhausted        // it fails for too long, unless the runtime is silent
)

// Failed decides about a launch that fails since so long. A launch.Error is final,
// unless it may pass.
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

// MostCuts is how many starts of an attempt may be cut off before its first
// step until the node is taken to be broken.
const MostCuts = 20

// Start is what is to be done about a start of which nobody knows whether it happened.
type Start uint8

// What may be done, of which nothing runs a job twice.
const (
	StartAgain Start = iota // it did not happen: start what was made once more
	GiveUp                  // it did not happen, and fails for too long
	MakeAgain               // the job's first step never began, and nothing is left: make it once more
	NodeBroken              // so it was too often
	Unknowable              // nobody can tell whether the job ran: it must not run again
	Ran                     // it happened
)

// Settle says what became of a start that failed, by what the runtime tells of the
// task since. cuts is how often one was cut off before, and patient whether a launch
// that fails is still to be tried again.
func Settle(s runtime.Task, cuts int, patient bool) Start {
	switch s.Phase {
	case runtime.Created:
		if !patient {
			return GiveUp
		}
		return StartAgain
	case runtime.Absent: // and it never ran, or it would be lost
		if cuts+1 >= MostCuts {
			return NodeBroken
		}
		return MakeAgain
	case runtime.Stopped:
		// A runtime that dies within a start takes the one with it that lets the
		// process go, which then ends with 1 before the job's first step. Where
		// the runtime can tell, the task is absent; else the job, which may end with
		// 1 as well, is blamed only if it is sure to have begun.
		if s.ExitCode == 1 && s.Signal == 0 && s.Doubtful {
			return Unknowable
		}
	}
	return Ran
}
