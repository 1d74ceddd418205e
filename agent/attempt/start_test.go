package attempt_test

import (
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/agent/attempt"
	"github.com/berth-scheduler/berth/agent/launch"
	"github.com/berth-scheduler/berth/agent/runtime"
)

// TestSettle: a job is made again only where it is sure that it never began.
func TestSettle(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		task  runtime.Task
		cuts  int
		tired bool
		want  attempt.Start
	}{
		"still held back":                      {task: runtime.Task{Phase: runtime.Created}, want: attempt.StartAgain},
		"still held back, for too long":        {task: runtime.Task{Phase: runtime.Created}, tired: true, want: attempt.GiveUp},
		"never began":                          {task: runtime.Task{Phase: runtime.Absent}, want: attempt.MakeAgain},
		"never began, and patience is no part": {task: runtime.Task{Phase: runtime.Absent}, tired: true, want: attempt.MakeAgain},
		"never began, for the last time":       {task: runtime.Task{Phase: runtime.Absent}, cuts: attempt.MostCuts - 2, want: attempt.MakeAgain},
		"never began, too often":               {task: runtime.Task{Phase: runtime.Absent}, cuts: attempt.MostCuts - 1, want: attempt.NodeBroken},
		"runs":                                 {task: runtime.Task{Phase: runtime.Running}, want: attempt.Ran},
		"its end is lost":                      {task: runtime.Task{Phase: runtime.Lost}, want: attempt.Ran},
		"ended well":                           {task: runtime.Task{Phase: runtime.Stopped}, want: attempt.Ran},
		"ended well, in doubt":                 {task: runtime.Task{Phase: runtime.Stopped, Doubtful: true}, want: attempt.Ran},
		"failed":                               {task: runtime.Task{Phase: runtime.Stopped, ExitCode: 1}, want: attempt.Ran},
		"failed as what is cut off does":       {task: runtime.Task{Phase: runtime.Stopped, ExitCode: 1, Doubtful: true}, want: attempt.Unknowable},
		"failed with another code, in doubt":   {task: runtime.Task{Phase: runtime.Stopped, ExitCode: 2, Doubtful: true}, want: attempt.Ran},
		"ended by a signal, in doubt":          {task: runtime.Task{Phase: runtime.Stopped, ExitCode: 1, Signal: syscall.SIGHUP, Doubtful: true}, want: attempt.Ran},
	} {
		if got := attempt.Settle(c.task, c.cuts, !c.tired); got != c.want {
			t.Errorf("%s: got %d, want %d", name, got, c.want)
		}
	}
}

// TestFailed: a missing directory of the output is waited for, and not for ever; what
// cannot pass by itself is not; a runtime that may recover has longer.
func TestFailed(t *testing.T) {
	t.Parallel()
	missing := fmt.Errorf("create: %w", &launch.Error{Code: 125, Reason: "OUTPUT", Missing: true, Err: errors.New("no such directory")})
	denied := &launch.Error{Code: 125, Reason: "OUTPUT", Err: errors.New("permission denied")}
	busy := errors.New("busy")
	for name, c := range map[string]struct {
		err   error
		since time.Duration
		want  attempt.Launch
	}{
		"missing": {missing, 0, attempt.TryAgain}, "missing, still": {missing, 9999 * time.Millisecond, attempt.TryAgain}, "missing, for too long": {missing, 10 * time.Second, attempt.Final},
		"denied": {denied, 0, attempt.Final}, "denied, later": {denied, time.Hour, attempt.Final},
		"busy": {busy, 0, attempt.TryAgain}, "busy, still": {busy, 119 * time.Second, attempt.TryAgain}, "busy, for too long": {busy, 120 * time.Second, attempt.Exhausted},
	} {
		if got := attempt.Failed(c.err, c.since); got != c.want {
			t.Errorf("%s: got %d, want %d", name, got, c.want)
		}
	}
}
