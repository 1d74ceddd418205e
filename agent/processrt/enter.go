package processrt

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-scheduler/berth/agent/asuser"
	"github.com/berth-scheduler/berth/agent/cgroup"
	"github.com/berth-scheduler/berth/agent/launch"
	"github.com/berth-scheduler/berth/agent/runtime"
)

// The keeper's part of Exec: one connection, one process. The process is in the task's
// control group and the leader of its own session.

// execRequest is a runtime.Exec on the wire, with every byte preserved.
type execRequest struct {
	Args, Env     [][]byte
	Terminal, Own bool
}

func newExecRequest(x *runtime.Exec) *execRequest {
	req := &execRequest{Terminal: x.Terminal, Own: x.Own}
	for _, a := range x.Args {
		req.Args = append(req.Args, []byte(a))
	}
	for _, e := range x.Env {
		req.Env = append(req.Env, []byte(e))
	}
	return req
}

// entry is a process that was started inside a task.
type entry struct {
	pid int
	// exited is set, under the keeper's lock, before the process is reaped.
	exited bool
	// done is closed once it is reaped; end is how it ended, nil when unknown.
	done chan struct{}
	end  *runtime.ProcessEnd
}

// errNotRunning is the keeper's runtime.ErrNotRunning.
var errNotRunning = errors.New("exec: the task does not run")

// enter serves one Exec until its process has ended or the agent is gone.
func (k *keeper) enter(c net.Conn, req request) {
	e, t, err := k.startEntry(c, req)
	if err != nil {
		resp := &response{NotRunning: errors.Is(err, errNotRunning)}
		resp.fail(err)
		_ = writeFrame(c, resp) // an agent that has gone needs none
		return
	}
	gone := make(chan struct{})
	go func() { // ends with the connection
		defer close(gone)
		for {
			var more request
			if readFrame(c, &more) != nil {
				return
			}
			if more.Op == opSignal {
				k.signalEntry(e, more.Signal)
			}
		}
	}()
	if writeFrame(c, response{}) != nil {
		c.Close()
	}
	select {
	case <-e.done:
		_ = writeFrame(c, response{ExecEnd: e.end}) // as above
	case <-gone:
		k.hangUp(t, e)
		<-e.done
		_ = writeFrame(c, response{ExecEnd: e.end}) // the agent may be waiting for that
	}
}

// startEntry receives the files and forks the process.
func (k *keeper) startEntry(c net.Conn, req request) (*entry, *task, error) {
	fds, err := receiveFiles(c)
	if err != nil {
		return nil, nil, err
	}
	defer closeAll(fds)
	files := &asuser.Files{}
	switch {
	case req.Exec == nil:
		return nil, nil, errors.New("exec: no command")
	case req.Exec.Terminal && len(fds) == 1:
		files.In, files.Out, files.Err = fds[0], fds[0], fds[0]
	case !req.Exec.Terminal && len(fds) == 3:
		files.In, files.Out, files.Err = fds[0], fds[1], fds[2]
	default:
		return nil, nil, fmt.Errorf("exec: %d files", len(fds))
	}
	t, err := k.claimEntry(req)
	if err != nil {
		return nil, nil, err
	}
	defer k.starts.Done()
	pid, err := k.forkEntry(t, req.Exec, files)
	k.mu.Lock()
	defer k.mu.Unlock()
	t.entering--
	if err != nil {
		return nil, nil, err
	}
	e := &entry{pid: pid, done: make(chan struct{})}
	t.entries = append(t.entries, e)
	k.reapers.Go(func() { k.reapEntry(t, e) })
	if t.exited { // and everything then in the group was killed
		_ = syscall.Kill(pid, syscall.SIGKILL) // our child, not reaped yet
	}
	return e, t, nil
}

// claimEntry finds a running task, and keeps it from being deleted.
func (k *keeper) claimEntry(req request) (*task, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	t := k.tasks[req.ID]
	if k.closing || t == nil || t.state.Phase != runtime.Running || t.exited {
		return nil, errNotRunning
	}
	t.entering++
	k.starts.Add(1)
	return t, nil
}

// forkEntry starts the process as the task's own user.
func (k *keeper) forkEntry(t *task, x *execRequest, files *asuser.Files) (int, error) {
	l := *t.launch
	l.Args, l.Ranks = nil, nil // it is one process
	var more []string
	for _, a := range x.Args {
		l.Args = append(l.Args, string(a))
	}
	for _, e := range x.Env {
		more = append(more, string(e))
	}
	l.Env = launch.Environ(l.Env, more)
	switch {
	case x.Own:
		l.Args = append([]string{k.inside}, l.Args...)
	case len(l.Args) == 0:
		l.Args = launch.ShellOf(l.Env)
	}
	if x.Terminal && os.Getuid() == 0 {
		if err := unix.Fchown(int(files.In.Fd()), int(l.UID), -1); err != nil {
			return 0, fmt.Errorf("give the terminal to the user: %w", err)
		}
	}
	prog, err := asuser.Await(&k.waits, asuser.User(&l), func() (string, error) {
		if err := asuser.CheckDir(&l); err != nil {
			return "", err
		}
		return asuser.LookPath(&l)
	}, func(string) {})
	if err != nil {
		return 0, err
	}
	if x.Own {
		l.Args[0] = "berth-job"
	}
	var g *cgroup.Group
	if k.noCaps == nil {
		g = k.group(l.ID)
	}
	return k.spawn.start(spawnRequest{launch: &l, group: g, prog: prog, files: files, terminal: x.Terminal})
}

// receiveFiles reads a count and that many files.
func receiveFiles(c net.Conn) ([]*os.File, error) {
	uc, ok := c.(*net.UnixConn)
	if !ok {
		return nil, errors.New("exec: not over a unix socket")
	}
	var count [1]byte
	oob := make([]byte, unix.CmsgSpace(3*4))
	// The standard library requests close-on-exec descriptors.
	_, n, _, _, err := uc.ReadMsgUnix(count[:], oob)
	if err != nil {
		return nil, fmt.Errorf("exec: receive files: %w", err)
	}
	msgs, err := unix.ParseSocketControlMessage(oob[:n])
	if err != nil {
		return nil, fmt.Errorf("exec: receive files: %w", err)
	}
	var files []*os.File
	for _, m := range msgs {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			closeAll(files)
			return nil, fmt.Errorf("exec: receive files: %w", err)
		}
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), "exec"))
		}
	}
	if len(files) != int(count[0]) {
		closeAll(files)
		return nil, fmt.Errorf("exec: %d files came, %d were announced", len(files), count[0])
	}
	return files, nil
}

// reapEntry waits for the end of a process.
func (k *keeper) reapEntry(t *task, e *entry) {
	defer close(e.done)
	// It is not reaped until nothing can signal its pid any more.
	err := ended(e.pid)
	k.mu.Lock()
	e.exited = true
	t.entries = slices.DeleteFunc(t.entries, func(other *entry) bool { return other == e })
	k.mu.Unlock()
	var ws syscall.WaitStatus
	if err == nil {
		err = uninterrupted(func() error {
			_, err := syscall.Wait4(e.pid, &ws, 0, nil)
			return err
		})
	}
	switch {
	case err != nil:
		k.log.Error("cannot wait for a process", "pid", e.pid, "err", err)
	case ws.Signaled():
		e.end = &runtime.ProcessEnd{Code: 128 + int(ws.Signal()), Signal: ws.Signal()}
	default:
		e.end = &runtime.ProcessEnd{Code: ws.ExitStatus()}
	}
}

// signalEntry sends sig to a process that has not ended, and to its process group.
func (k *keeper) signalEntry(e *entry, sig syscall.Signal) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if e.exited {
		return
	}
	if err := syscall.Kill(-e.pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		k.log.Warn("cannot signal a process", "pid", e.pid, "signal", int(sig), "err", err)
	}
}

// hangUp ends a process whose user has gone, with its whole session.
func (k *keeper) hangUp(t *task, e *entry) {
	k.signalEntry(e, syscall.SIGHUP)
	k.signalEntry(e, syscall.SIGCONT) // a stopped process would not notice
	timer := time.NewTimer(runtime.HangUpGrace)
	defer timer.Stop()
	select {
	case <-e.done:
	case <-timer.C:
	}
	k.signalEntry(e, syscall.SIGKILL)
	if k.noCaps != nil {
		return // only its process group is known
	}
	if err := k.group(t.launch.ID).KillSession(e.pid); err != nil {
		k.log.Error("cannot end what a user left in a task", "task", t.launch.ID.String(), "err", err)
	}
}

// dismiss hangs up on everything started inside a task whose first process has ended, and
// waits a moment for it: a shell saves its history.
func (k *keeper) dismiss(t *task) {
	k.mu.Lock()
	entries := slices.Clone(t.entries)
	k.mu.Unlock()
	for _, e := range entries {
		k.signalEntry(e, syscall.SIGHUP)
		k.signalEntry(e, syscall.SIGCONT)
	}
	timer := time.NewTimer(runtime.HangUpGrace)
	defer timer.Stop()
	for _, e := range entries {
		select {
		case <-e.done:
		case <-timer.C:
			for _, e := range entries { // without control groups, nothing else kills them
				k.signalEntry(e, syscall.SIGKILL)
			}
			return
		}
	}
}
