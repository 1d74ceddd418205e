package containerdrt

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode/utf8"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/berth-scheduler/berth/agent/containerdrt/gates"
	"github.com/berth-scheduler/berth/agent/jobside"
	"github.com/berth-scheduler/berth/agent/launch"
	"github.com/berth-scheduler/berth/agent/runtime"
	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/wait"
)

const (
	// kindExec names the record of a process started by Exec, so that the next agent can
	// end it: its shim would keep it for ever.
	kindExec = "exec"
)

// imageShell runs the user's shell in an image, or the best one that it has.
var imageShell = []string{"/bin/sh", "-c", `[ -x "$SHELL" ] && exec "$SHELL"; [ -x /bin/bash ] && exec /bin/bash; exec /bin/sh`}

// Exec implements runtime.Executor. The process gets what the container's first process was
// created with. No path of the user's is followed with other rights than the user's: a
// working directory is entered from inside.
func (r *Runtime) Exec(ctx context.Context, id cluster.AttemptID, x *runtime.Exec) (*runtime.Process, error) {
	for _, arg := range x.Args {
		if !utf8.ValidString(arg) {
			return nil, &launch.Error{Code: 125, Reason: "COMMAND", Err: errors.New("an argument must be UTF-8 to reach a container; put other bytes into a file")}
		}
	}
	ctx, cancel := context.WithTimeout(r.with(ctx), callDeadline)
	defer cancel()
	c, err := r.client.LoadContainer(ctx, r.tries.name(id))
	if errdefs.IsNotFound(err) {
		return nil, runtime.ErrNotRunning
	}
	if err != nil {
		return nil, fmt.Errorf("exec: %w", err)
	}
	task, err := taskOf(ctx, c)
	if errdefs.IsNotFound(err) {
		return nil, runtime.ErrNotRunning
	}
	if err != nil {
		return nil, fmt.Errorf("exec: %w", err)
	}
	if st, err := statusOf(ctx, task); err != nil || st.Status != containerd.Running && (st.Status != containerd.Created || r.gate(id) != gates.Open) {
		return nil, errors.Join(runtime.ErrNotRunning, err)
	}
	spec, err := c.Spec(ctx)
	if err != nil {
		return nil, fmt.Errorf("exec: %w", err)
	}
	p := &execed{rt: r, id: id, name: "x" + strings.ToLower(rand.Text())}
	proc, err := enterSpec(spec, x)
	if err != nil {
		return nil, err
	}
	near, err := p.begin(ctx, task, proc)
	if err != nil {
		return nil, err
	}
	if x.Terminal && x.Window.Rows > 0 {
		err = p.Resize(ctx, x.Window)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("exec: %w", err), p.Close())
	}
	return near, nil
}

// enterSpec returns the container's own process with another command.
func enterSpec(spec *specs.Spec, x *runtime.Exec) (*specs.Process, error) {
	own := *spec.Process
	proc := &own
	proc.Env = launch.Environ(own.Env, x.Env)
	proc.Terminal = x.Terminal
	if x.Terminal && x.Window.Rows > 0 {
		proc.ConsoleSize = &specs.Box{Height: uint(x.Window.Rows), Width: uint(x.Window.Columns)}
	}
	proc.Cwd = "/"
	if len(own.Args) > 2 && own.Args[0] == jobside.Binary && own.Args[1] == jobside.LoggerArg {
		// A host job: the helper, which execs it, knows the directory and what is not text.
		proc.Args = []string{jobside.Binary, jobside.EnterArg, jobside.File}
		if x.Own {
			proc.Args = append(proc.Args, jobside.Binary)
		}
		proc.Args = append(proc.Args, x.Args...)
		return proc, nil
	}
	proc.Args = x.Args
	if x.Own {
		ours := ownCommand(spec.Mounts)
		if ours == nil {
			return nil, cluster.Errorf(cluster.CodeConflict, "steps, sessions and tunnels are for jobs in an image that run a script, and this one runs a command")
		}
		proc.Args = append(ours, x.Args...)
	}
	if len(proc.Args) == 0 {
		proc.Args = imageShell
	}
	if own.Cwd != "/" {
		// Not by runc, which would enter it before the process drops its rights
		// (CVE-2024-21626).
		proc.Args = append([]string{"/bin/sh", "-c", `cd -- "$0" && exec "$@"`, own.Cwd}, proc.Args...)
	}
	return proc, nil
}

// execed is an additional process in a container.
type execed struct {
	rt   *Runtime
	id   cluster.AttemptID
	name string
	proc containerd.Process
	far  []*os.File

	done   chan struct{} // closed once end or err is known
	end    runtime.ProcessEnd
	err    error
	ending sync.Once
	closed error
}

func (p *execed) record() string { return p.rt.records.file(p.id, p.name+"."+kindExec) }

// begin creates and starts the process.
func (p *execed) begin(ctx context.Context, task containerd.Task, spec *specs.Process) (near *runtime.Process, err error) {
	near, stdin, stdout, stderr, err := p.files(spec.Terminal)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			closeFiles(append(p.far, near.Stdin, near.Stdout, near.Stderr))
			err = errors.Join(err, os.Remove(p.record()))
		}
	}()
	if err := os.WriteFile(p.record(), nil, 0o600); err != nil {
		return near, fmt.Errorf("exec: %w", err)
	}
	opts := []cio.Opt{cio.WithStreams(stdin, stdout, stderr), cio.WithFIFODir(filepath.Join(p.rt.cfg.Dir, "fifo"))}
	if spec.Terminal {
		opts = append(opts, cio.WithTerminal)
	}
	if p.proc, err = task.Exec(ctx, p.name, spec, cio.NewCreator(opts...)); err != nil {
		return near, fmt.Errorf("exec: %w", err)
	}
	lctx := p.rt.ctx // the process's lifetime, not the call's
	exits, err := p.proc.Wait(lctx)
	if err == nil {
		err = p.proc.Start(ctx)
	}
	if err != nil {
		_, derr := p.proc.Delete(ctx)
		if errdefs.IsFailedPrecondition(derr) || errdefs.IsNotFound(derr) {
			derr = nil
		}
		return near, errors.Join(launchError(err), derr)
	}
	// Best effort: without it the next agent ends only the first process.
	if err := os.WriteFile(p.record(), []byte(strconv.Itoa(int(p.proc.Pid()))), 0o600); err != nil {
		p.rt.cfg.Log.Warn("cannot record a process", "task", p.id.String(), "err", err)
	}
	p.done = make(chan struct{})
	p.rt.wg.Go(func() { p.await(lctx, exits) })
	p.rt.wg.Go(func() {
		defer context.AfterFunc(lctx, p.proc.IO().Cancel)()
		p.proc.IO().Wait()
		closeFiles(p.far) // the end of its output
	})
	near.ProcessControl = p
	return near, nil
}

// files creates the near ends of the process's files, and what is copied to and from the
// shim.
func (p *execed) files(terminal bool) (near *runtime.Process, stdin io.Reader, stdout, stderr io.Writer, err error) {
	pairs := 3
	if terminal {
		pairs = 2
	}
	var made []*os.File
	for range pairs {
		r, w, err := os.Pipe()
		if err != nil {
			closeFiles(made)
			return nil, nil, nil, nil, fmt.Errorf("exec: make a pipe: %w", err)
		}
		made = append(made, r, w)
	}
	near = &runtime.Process{Stdin: made[1], Stdout: made[2]}
	p.far = []*os.File{made[0], made[3]}
	if terminal {
		return near, made[0], made[3], nil, nil
	}
	near.Stderr, p.far = made[4], append(p.far, made[5])
	return near, &stdinReader{from: made[0], p: p}, made[3], made[5], nil
}

// stdinReader has the shim close its own end of the input at end of file: otherwise the
// process would wait for more.
type stdinReader struct {
	from *os.File
	p    *execed
}

// Read implements io.Reader.
func (s *stdinReader) Read(b []byte) (int, error) {
	n, err := s.from.Read(b)
	if err != nil && s.p.proc != nil {
		ctx, cancel := context.WithTimeout(s.p.rt.ctx, callDeadline)
		defer cancel()
		if cerr := s.p.proc.CloseIO(ctx, containerd.WithStdinCloser); cerr != nil && !errdefs.IsNotFound(cerr) {
			s.p.rt.cfg.Log.Debug("cannot close the input of a process", "task", s.p.id.String(), "err", cerr)
		}
	}
	return n, err
}

func closeFiles(files []*os.File) {
	for _, f := range files {
		if f != nil {
			_ = f.Close() // nothing is buffered; near ends may be closed already
		}
	}
}

// await waits for the end of the process, across restarts of containerd.
func (p *execed) await(ctx context.Context, exits <-chan containerd.ExitStatus) {
	defer close(p.done)
	for {
		st := <-exits
		if st.Error() == nil {
			p.end.Code = int(st.ExitCode())
			if p.end.Code > 128 && p.end.Code <= 128+64 {
				p.end.Signal = syscall.Signal(p.end.Code - 128)
			}
			return
		}
		if errdefs.IsNotFound(st.Error()) || ctx.Err() != nil {
			p.err = fmt.Errorf("exec: %w", st.Error())
			return
		}
		wait.Sleep(ctx, rewaitPause)
		var err error
		if exits, err = p.proc.Wait(ctx); err != nil {
			p.err = fmt.Errorf("exec: %w", err)
			return
		}
	}
}

// Wait implements runtime.ProcessControl.
func (p *execed) Wait(ctx context.Context) (runtime.ProcessEnd, error) {
	select {
	case <-ctx.Done():
		return runtime.ProcessEnd{}, ctx.Err()
	case <-p.done:
		return p.end, p.err
	}
}

// Resize implements runtime.ProcessControl.
func (p *execed) Resize(ctx context.Context, w runtime.Window) error {
	ctx, cancel := context.WithTimeout(p.rt.with(ctx), callDeadline)
	defer cancel()
	err := p.proc.Resize(ctx, uint32(w.Columns), uint32(w.Rows))
	if errdefs.IsNotFound(err) {
		return nil
	}
	return err
}

// Signal implements runtime.ProcessControl. runc makes each process the leader
// of a session and a group.
func (p *execed) Signal(_ context.Context, sig syscall.Signal) error {
	select {
	case <-p.done:
		return nil
	default:
	}
	pid := int(p.proc.Pid())
	if pid <= 1 || !p.rt.group(p.id).Has(pid) {
		return nil
	}
	if err := syscall.Kill(-pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("signal: %w", err)
	}
	return nil
}

// Close implements runtime.ProcessControl.
func (p *execed) Close() error {
	p.ending.Do(func() { p.closed = p.finish() })
	return p.closed
}

func (p *execed) finish() error {
	ctx, cancel := context.WithTimeout(p.rt.with(context.Background()), callDeadline)
	defer cancel()
	var errs []error
	if p.rt.ctx.Err() != nil {
		return nil // the next to open the runtime ends it
	}
	select {
	case <-p.done: // it ended by itself: what it left in the background ends with the job
	default:
		errs = append(errs, p.Signal(ctx, syscall.SIGHUP), p.Signal(ctx, syscall.SIGCONT))
		select {
		case <-p.done:
		case <-time.After(runtime.HangUpGrace):
		}
		errs = append(errs, p.rt.group(p.id).KillSession(int(p.proc.Pid())))
	}
	select {
	case <-p.done:
	case <-ctx.Done():
		return errors.Join(append(errs, fmt.Errorf("exec: the process does not end: %w", ctx.Err()))...)
	}
	closeFiles(p.far) // so that nothing waits to write to a reader that has gone
	if _, err := p.proc.Delete(ctx); err != nil && !errdefs.IsNotFound(err) {
		errs = append(errs, fmt.Errorf("exec: %w", err))
	}
	return errors.Join(append(errs, os.Remove(p.record()))...)
}

// sweepExecs ends what users started through an earlier agent.
func (r *Runtime) sweepExecs(ctx context.Context) {
	names, err := filepath.Glob(filepath.Join(r.cfg.Dir, "*."+kindExec))
	if err != nil {
		return
	}
	for _, name := range names {
		first, exec, _ := strings.Cut(strings.TrimSuffix(filepath.Base(name), "."+kindExec), ".")
		id, err := cluster.ParseAttemptID(first)
		var pid []byte
		if err == nil {
			pid, err = os.ReadFile(name)
		}
		if err == nil {
			n, _ := strconv.Atoi(string(pid)) // 0 if it never got that far
			err = r.endExec(ctx, id, exec, n)
		}
		if err != nil {
			r.cfg.Log.Warn("cannot end a process that a user had started", "task", first, "err", err)
			continue
		}
		if err := os.Remove(name); err != nil {
			r.cfg.Log.Warn("cannot forget a process that a user had started", "task", first, "err", err)
		}
	}
}

func (r *Runtime) endExec(ctx context.Context, id cluster.AttemptID, exec string, pid int) error {
	ctx, cancel := context.WithTimeout(r.with(ctx), callDeadline)
	defer cancel()
	task, err := r.task(ctx, id)
	if errdefs.IsNotFound(err) {
		return nil // and so is everything in it
	}
	if err != nil {
		return err
	}
	p, err := task.LoadProcess(ctx, exec, nil)
	if errdefs.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	exits, err := p.Wait(ctx)
	if err != nil {
		return err
	}
	if err := p.Kill(ctx, syscall.SIGKILL); err != nil && !errdefs.IsNotFound(err) && !errdefs.IsFailedPrecondition(err) {
		return err
	}
	if pid > 1 {
		if err := r.group(id).KillSession(pid); err != nil {
			return err
		}
	}
	select {
	case <-exits:
	case <-ctx.Done():
		return ctx.Err()
	}
	if _, err := p.Delete(ctx); err != nil && !errdefs.IsNotFound(err) {
		return err
	}
	return nil
}
