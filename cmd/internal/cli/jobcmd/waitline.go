package jobcmd

import (
	"context"
	"errors"
	"fmt"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// show displays the status of the awaited jobs on a terminal: one job in
// full, otherwise how many have ended.
func (w *waiter) show(ctx context.Context) {
	if w.line == nil || !w.line.Shown() {
		return
	}
	if len(w.jobs) == 1 && !w.all(w.jobs[0]) {
		if j := w.entry(w.jobs[0]); j != nil {
			w.line.Say("job " + w.jobs[0].String() + ": " + w.standing(ctx, j))
		}
		return
	}
	var ended, run, wait int
	for _, j := range w.entries {
		n := int(max(1, j.GetArrayCount()))
		switch st := j.GetState(); {
		case console.Terminal(st):
			ended += n
		case console.Waiting(st):
			wait += n
		default:
			run += n
		}
	}
	w.line.Say(fmt.Sprintf("%d of %s ended; %d run, %d wait", ended, console.Plural(ended+run+wait, "job", "jobs"), run, wait))
}

// standing returns a job's state with where it runs, or why it does not
// and when it may.
func (w *waiter) standing(ctx context.Context, j *apiv1.Job) string {
	st := j.GetState()
	if !console.Waiting(st) {
		text := st
		if n := console.NodesOf(j); n != "" {
			text += " on " + n
		}
		if at := j.GetStarted(); at != nil && st == cluster.JobRunning.String() {
			text += " since " + at.AsTime().In(w.env.Now().Location()).Format("15:04")
		}
		if why := console.ReasonText(j.GetReason(), j.GetReasonDetail()); console.Pulling(j) {
			text += "; " + why
		}
		return text
	}
	return client.Waits(ctx, w.env, w.c, j)
}

// left tells a user who ends the wait on a terminal what continues without it.
func (w *waiter) left(err error) {
	var intr *console.Interruption
	if !w.env.StderrTerminal || !errors.As(err, &intr) {
		return
	}
	var open client.JobRefs
	for _, r := range w.jobs {
		if !w.seemsOver(r) {
			open = append(open, r)
		}
	}
	if len(open) > 0 {
		w.env.Warnf("still going; wait again with: berth wait %s; cancel with: berth cancel %[1]s", open)
	}
}
