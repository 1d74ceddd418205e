package sruncmd

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
	"time"

	"github.com/berth-scheduler/berth/agent/step"
)

// signal handles a signal to srun itself as Slurm's does.
func (r *running) signal(s os.Signal) {
	sig, ok := s.(syscall.Signal)
	switch {
	case !ok:
	case sig == syscall.SIGINT && !r.set.quit && time.Since(r.interrupted) > twice:
		r.interrupted = time.Now()
		r.word("interrupt (one more within 1 sec to abort)")
		r.states()
	case sig == syscall.SIGINT:
		r.word("sending Ctrl-C to StepId=%s", r.id)
		r.all(syscall.SIGINT)
		r.abort()
	case sig == syscall.SIGTERM, sig == syscall.SIGQUIT, sig == syscall.SIGHUP:
		r.all(sig)
		r.abort()
	case sig == syscall.SIGCONT:
		r.word("got SIGCONT")
	default:
		r.all(sig)
	}
}

func (r *running) all(sig syscall.Signal) {
	for _, n := range r.nodes {
		n.Signal(sig)
	}
}

// abort gives the tasks a moment to end by themselves.
func (r *running) abort() {
	if r.aborting {
		r.kill() // a second request means now
		return
	}
	r.aborting = true
	r.word("forcing job termination")
	r.word("Job step aborted: Waiting up to %d seconds for job step to finish.", int((2*killWait)/time.Second))
	r.killAt = time.After(killWait)
}

// terminate ends the step because a task failed.
func (r *running) terminate(sig syscall.Signal) {
	r.aborting = true
	r.word("launch/slurm: _step_signal: Terminating StepId=%s", r.id)
	r.all(sig)
	r.killAt = time.After(killWait)
}

func (r *running) kill() {
	r.killAt = nil
	for _, n := range r.nodes {
		_ = n.Send(step.Frame{Kind: step.Signal, Data: []byte{byte(syscall.SIGKILL)}}) // a broken one is reported elsewhere
	}
}

// states reports which tasks run.
func (r *running) states() {
	var runs, bad, good []int
	for rank := range r.l.tasks {
		how, over := r.ends[rank]
		switch {
		case !over:
			runs = append(runs, rank)
		case how.code != 0:
			bad = append(bad, rank)
		default:
			good = append(good, rank)
		}
	}
	for _, s := range []struct {
		ranks []int
		text  string
	}{{runs, "running"}, {good, "exited"}, {bad, "exited abnormally"}} {
		if len(s.ranks) > 0 {
			r.word("StepId=%s %s: %s", r.id, tasksText(s.ranks), s.text)
		}
	}
}

// tooLong ends tasks that run for too long after the first has ended.
func (r *running) tooLong() {
	r.say()
	r.word("First task exited %ds ago", int(time.Since(r.firstEnd).Round(time.Second)/time.Second))
	r.states()
	r.terminate(syscall.SIGTERM)
	r.word("Job step aborted: Waiting up to %d seconds for job step to finish.", int((2*killWait)/time.Second))
}

// unwrap removes the call and path from an error.
func unwrap(err error) error {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return pe.Err
	}
	return err
}
