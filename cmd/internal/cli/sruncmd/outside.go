package sruncmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/sbatch"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// word prints a message of the program on standard error unless told to be quiet.
func word(e *console.Env, o *options, format string, args ...any) {
	if !o.has("quiet") {
		fmt.Fprintf(e.Stderr, e.Name()+": "+format+"\n", args...)
	}
}

// runOutside runs a command in a job of its own, and ends as that does.
func runOutside(ctx context.Context, e *console.Env, c *client.Client, o *options) error {
	a, err := submit(ctx, e, c, o, filepath.Base(o.command[0]), true)
	if err != nil {
		return refusedAs("Unable to allocate resources", err)
	}
	return a.runStep(ctx, e, o)
}

// runStep waits for the allocation, runs the command in it and ends it.
func (a *allocation) runStep(ctx context.Context, e *console.Env, o *options) error {
	waited := false
	err := a.await(ctx, func() {
		waited = true
		word(e, o, "job %d queued and waiting for resources", a.id)
	})
	switch {
	case errors.Is(err, errRevoked):
		word(e, o, "Job allocation %d has been revoked", a.id)
		return a.ended(e)
	case err != nil && ctx.Err() != nil:
		word(e, o, "Job allocation %d has been revoked", a.id)
		word(e, o, "Force Terminated JobId=%d", a.id)
		return err
	case err != nil:
		return err
	}
	if waited {
		word(e, o, "job %d has been allocated resources", a.id)
	}
	code, err := a.step(ctx, o)
	a.end(code)
	return err
}

// ended reports why a job ended that this program did not end.
func (a *allocation) ended(e *console.Env) error {
	if j, err := a.c.GetJob(context.WithoutCancel(context.Background()), a.id); err == nil {
		e.Warnf("error: job %d: %s %s", a.id, j.GetState(), console.Escape(j.GetReasonDetail()))
	}
	return &console.ExitError{Code: console.ExitFailed}
}

// step runs srun's own command in the allocation.
func (a *allocation) step(ctx context.Context, o *options) (code int, err error) {
	defer func() {
		var exit *console.ExitError
		if code = 0; errors.As(err, &exit) {
			code = exit.Code
		} else if err != nil {
			code = console.ExitFailed
		}
	}()
	if err := a.keep(ctx); err != nil {
		return 0, err
	}
	vars := map[string]string{}
	for _, line := range a.jobEnv() {
		name, value, _ := strings.Cut(line, "=")
		vars[name] = value
	}
	get := a.e.Getenv
	inner := *a.e
	inner.Getenv = func(name string) string {
		if v, ok := vars[name]; ok {
			return v
		}
		return get(name)
	}
	j, err := jobFrom(inner.Getenv)
	if err != nil {
		return 0, err
	}
	return 0, runInside(ctx, &inner, a.c, o.inAllocation(), j)
}

// inAllocation returns the options of a step that has all of a job made for it.
func (o *options) inAllocation() *options {
	in := &options{values: map[string]string{}, command: o.command}
	for name, v := range o.values {
		switch name {
		case "gres", "gpus", "gpus-per-node", "nodes", "nodelist", "exclude", "ntasks", "ntasks-per-node", "tasks-per-node": // they shaped the job
		default:
			in.values[name] = v
		}
	}
	return in
}

// refusedAs says why a job was not made, in the form of Slurm's programs.
func refusedAs(what string, err error) error {
	var ce *cluster.Error
	var alloc *allocError
	if errors.As(err, &alloc) && errors.As(err, &ce) && (ce.Code == cluster.CodeUnavailable || ce.Code == cluster.CodeUnknown) {
		return err
	}
	if alloc != nil {
		return errors.New(what + ": " + sbatch.InSlurmWords(alloc.err))
	}
	return err
}

const sallocExamples = "  berth salloc -G 1 -t 1:00:00\n" +
	"  ln -s /usr/bin/berth /usr/local/bin/salloc && salloc -N 2 -G 8 srun python train.py"

const sallocHelp = `Usage: salloc [OPTIONS...] [COMMAND [ARGS...]]

Holds an allocation while COMMAND, or a shell, runs on this machine. The options are those of
Slurm's salloc 22.05; docs/slurm.md says how each is handled.
`

// NewSallocCmd returns salloc.
func NewSallocCmd(e *console.Env, c *client.Client) *cobra.Command {
	return &cobra.Command{
		Use: "salloc [OPTIONS…] [COMMAND [ARG…]]", Short: "Hold an allocation while a command runs here, like salloc", Example: sallocExamples,
		Hidden: true, DisableFlagParsing: true, Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			e.Prog = "salloc"
			return asSlurm(e, runSalloc(cmd.Context(), e, c, args))
		},
	}
}

func runSalloc(ctx context.Context, e *console.Env, c *client.Client, args []string) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	if o.told(e, sallocHelp, sallocExamples) {
		return nil
	}
	a, err := submit(ctx, e, c, o, "interactive", !o.has("no-shell"))
	if err != nil {
		return refusedAs("Job submit/allocate failed", err)
	}
	waited := false
	err = a.await(ctx, func() {
		waited = true
		word(e, o, "Pending job allocation %d", a.id)
		word(e, o, "job %d queued and waiting for resources", a.id)
	})
	switch {
	case errors.Is(err, errRevoked):
		word(e, o, "Job allocation %d has been revoked.", a.id)
		return a.ended(e)
	case err != nil:
		if ctx.Err() != nil {
			word(e, o, "Job allocation %d has been revoked.", a.id)
		}
		return err
	}
	if waited {
		word(e, o, "job %d has been allocated resources", a.id)
	}
	word(e, o, "Granted job allocation %d", a.id)
	if o.has("no-shell") {
		return nil
	}
	if err := a.keep(ctx); err != nil {
		a.cancel()
		return err
	}
	return a.command(e, o)
}

// command runs the user's command, or shell, on this machine.
func (a *allocation) command(e *console.Env, o *options) error {
	args := o.command
	if len(args) == 0 {
		shell := cmp.Or(e.Getenv("SHELL"), "/bin/sh")
		args = []string{shell}
	}
	steps, remove, err := a.steps()
	if err != nil {
		a.end(console.ExitFailed)
		return err
	}
	defer remove()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(append(e.Environ(), a.jobEnv()...), "BERTH_STEPS="+steps)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	signals := make(chan os.Signal, 4) // keys go to the command; we forward TERM and HUP
	signal.Notify(signals, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)
	if err := cmd.Start(); err != nil {
		fmt.Fprintf(e.Stderr, "salloc: error: _fork_command: Unable to find command \"%s\"\n", args[0])
		word(e, o, "Relinquishing job allocation %d", a.id)
		a.end(0)
		return &console.ExitError{Code: console.ExitFailed}
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	revoked, over := false, a.over
	for {
		select {
		case <-over:
			over, revoked = nil, true
			a.revoked(e, o)
			_ = cmd.Process.Signal(syscall.SIGHUP) // it may have ended
		case s := <-signals:
			if s == syscall.SIGTERM || s == syscall.SIGHUP {
				_ = cmd.Process.Signal(s) // as above
			}
		case <-done:
			if !revoked {
				word(e, o, "Relinquishing job allocation %d", a.id)
			}
			code := cmd.ProcessState.ExitCode()
			if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
				code = 128 + int(ws.Signal())
			}
			a.end(0)
			if code != 0 {
				return &console.ExitError{Code: code}
			}
			return nil
		}
	}
}

// watchEnd waits until the job has ended, and returns what was last heard of it.
func (a *allocation) watchEnd(ctx context.Context) (j *apiv1.Job, err error) {
	err = a.c.WatchJobs(ctx, []uint64{a.id}, func(news []*apiv1.Job) bool {
		for _, n := range news {
			if n.GetId() == a.id {
				j = n
			}
		}
		return j != nil && console.Terminal(j.GetState())
	})
	return j, err
}

// revoked reports that the job ended, and why.
func (a *allocation) revoked(e *console.Env, o *options) {
	word(e, o, "Job allocation %d has been revoked.", a.id)
	ctx, done := context.WithTimeout(context.Background(), a.c.Timeout)
	defer done()
	j, err := a.watchEnd(ctx)
	if err == nil && j.GetReasonDetail() != "" {
		word(e, o, "job %d: %s: %s", a.id, j.GetState(), console.Escape(j.GetReasonDetail()))
	}
}
