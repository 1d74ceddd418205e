package dev

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// spawner starts children from one OS thread that lives as long as it does:
// their parent-death signal is tied to the thread that made them, so that
// they end when this process is killed.
type spawner struct {
	reqs chan spawnRequest
	done chan struct{}
}

type spawnRequest struct {
	cmd  *exec.Cmd
	resp chan error
}

// timerSlack is by how many nanoseconds the kernel may delay a daemon's timers, like
// TimerSlackNSec in the units: Go's runtime watches its threads every 20 µs, which is
// a large part of the cost of jobs that do nothing.
const timerSlack = 1_000_000

func newSpawner() *spawner {
	s := &spawner{reqs: make(chan spawnRequest), done: make(chan struct{})}
	go func() {
		runtime.LockOSThread() // never unlocked: its settings are for the children
		_ = unix.Prctl(unix.PR_SET_TIMERSLACK, timerSlack, 0, 0, 0)
		for {
			select {
			case r := <-s.reqs:
				r.resp <- r.cmd.Start()
			case <-s.done:
				return
			}
		}
	}()
	return s
}

func (s *spawner) start(cmd *exec.Cmd) error {
	r := spawnRequest{cmd: cmd, resp: make(chan error, 1)}
	s.reqs <- r
	return <-r.resp
}

func (s *spawner) close() { close(s.done) }

// process is one daemon of the cluster.
type process struct {
	name string
	args []string
	log  string

	mu   sync.Mutex
	cmd  *exec.Cmd
	done chan struct{} // closed when the present cmd has ended
	err  error
}

// start runs the daemon in its own process group, so that Ctrl-C reaches the
// supervisor alone, which ends things in order.
func (p *process) start(s *spawner) error {
	f, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("log of %s: %w", p.name, err)
	}
	defer f.Close()
	cmd := exec.Command(p.args[0], p.args[1:]...)
	cmd.Stdout, cmd.Stderr = f, f
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	if err := s.start(cmd); err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	done := make(chan struct{})
	p.mu.Lock()
	p.cmd, p.done = cmd, done
	p.mu.Unlock()
	go func() {
		err := cmd.Wait()
		p.mu.Lock()
		p.err = err
		p.mu.Unlock()
		close(done)
	}()
	return nil
}

// pid returns the daemon's pid, 0 when it has ended.
func (p *process) pid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.done:
		return 0
	default:
		return p.cmd.Process.Pid
	}
}

// ended returns how the daemon ended; it must have.
func (p *process) ended() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// stop asks the daemon to end, and kills it after the grace.
func (p *process) stop(grace time.Duration) error {
	p.mu.Lock()
	cmd, done := p.cmd, p.done
	p.mu.Unlock()
	if cmd == nil {
		return nil
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	select {
	case <-done:
		return nil
	case <-time.After(grace):
	}
	err := cmd.Process.Kill()
	<-done
	return errors.Join(fmt.Errorf("%s did not stop within %s and was killed; its log is %s", p.name, grace, p.log), err)
}

// stopAll stops processes side by side.
func stopAll(ps []*process, grace time.Duration) error {
	errs := make([]error, len(ps))
	var wg sync.WaitGroup
	for i, p := range ps {
		wg.Go(func() { errs[i] = p.stop(grace) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// runUser runs the user's command with the terminal, passing signals on, and
// returns its exit code.
func runUser(ctx context.Context, args, env []string, stdio [3]*os.File) (int, error) {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = env
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdio[0], stdio[1], stdio[2]
	if err := cmd.Start(); err != nil {
		if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
			return 127, fmt.Errorf("command %s: %w", filepath.Base(args[0]), err)
		}
		return 126, fmt.Errorf("command %s: %w", filepath.Base(args[0]), err)
	}
	waited := make(chan error, 1)
	go func() { waited <- cmd.Wait() }()
	select {
	case err := <-waited:
		return exitCode(err)
	case <-ctx.Done():
	}
	// On a terminal Ctrl-C has reached it already; a second one does no harm.
	_ = cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-waited:
	case <-time.After(5 * time.Second):
		_ = cmd.Process.Kill()
		<-waited
	}
	return 130, nil
}

func exitCode(err error) (int, error) {
	var ee *exec.ExitError
	switch {
	case err == nil:
		return 0, nil
	case errors.As(err, &ee):
		if ws, ok := ee.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
			return 128 + int(ws.Signal()), nil
		}
		return ee.ExitCode(), nil
	}
	return 1, err
}
