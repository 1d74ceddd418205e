package processrt

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-scheduler/berth/agent/cgroup"
	"github.com/berth-scheduler/berth/agent/launch"
	"github.com/berth-scheduler/berth/agent/proc"
	"github.com/berth-scheduler/berth/agent/runtime"
	"github.com/berth-scheduler/berth/cluster"
)

// process is the first process of a running task.
type process struct {
	pid   int
	began time.Time
	group *cgroup.Group // nil without control groups
	// disarm ends the watch that kills the rest of the task when the kernel kills part of
	// it. It does nothing unless the task is watched.
	disarm  func() error
	watched bool
}

// inherit sets what jobs inherit from the keeper: the umask of a login, and no core dumps,
// which would be as large as the job and land in its directory. A job may enable them
// (ulimit -c).
func inherit() error {
	// Jobs must not ignore the signals that the agent's starter ignored, as nohup does. A
	// signal with a handler is reset to its default by exec.
	for _, sig := range []os.Signal{syscall.SIGHUP, syscall.SIGINT} {
		if signal.Ignored(sig) {
			signal.Notify(make(chan os.Signal, 1), sig) // and the keeper survives them
		}
	}
	syscall.Umask(0o022)
	if err := closeOnExec(); err != nil {
		return err
	}
	var core unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_CORE, &core); err != nil {
		return fmt.Errorf("read limit of core dumps: %w", err)
	}
	core.Cur = 0
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &core); err != nil {
		return fmt.Errorf("limit core dumps: %w", err)
	}
	return nil
}

// closeOnExec keeps files that the agent inherited from its starter away from jobs.
func closeOnExec() error {
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return fmt.Errorf("list open files: %w", err)
	}
	for _, e := range fds {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd > 2 {
			unix.CloseOnExec(fd) // the listing's own descriptor has been closed
		}
	}
	return nil
}

const (
	probeBytes = 16 << 20
	// pidsLimit is how many processes and threads a job may have.
	pidsLimit = 4096
)

// probe finds out whether control groups can be created and capped here, by doing so: they
// may be mounted, but read-only as in most containers.
func (k *keeper) probe() (cgroup.Hierarchy, error) {
	if os.Getuid() != 0 {
		return cgroup.Hierarchy{}, errors.New("not root")
	}
	h, err := cgroup.Detect()
	if err != nil {
		return h, err
	}
	h = h.Plain()
	g := h.Open(path.Join("/", k.parent, "probe-"+strconv.Itoa(os.Getpid())))
	err = g.Create(cgroup.Limits{MemBytes: probeBytes})
	return h, errors.Join(err, g.Remove())
}

// uncapped decides about a task whose cap cannot be enforced. Without root, all jobs are
// the caller's own; with root, they belong to several users, and one user's job would be
// killed for the memory of another's.
func (k *keeper) uncapped(req request) error {
	l := req.Launch
	if l.MemBytes <= 0 {
		return nil
	}
	if os.Getuid() == 0 && !req.AllowUncapped {
		return &launch.Error{Code: 125, Reason: "MEMORY", Err: fmt.Errorf(
			"this node cannot keep the job below %d MiB: %w; make control groups writable, or allow jobs without caps", l.MemBytes>>20, k.noCaps)}
	}
	k.log.Warn("the memory cap is not enforced", "task", l.ID.String(), "err", k.noCaps)
	return nil
}

// launch starts the first process of a task.
func (k *keeper) launch(l *launch.Launch) (p *process, err error) {
	// A file server that does not answer delays no other start.
	prog, files, err := k.prepare(l)
	if err != nil {
		return nil, err
	}
	defer files.Close()
	p = &process{disarm: func() error { return nil }}
	if k.noCaps == nil {
		p.group = k.group(l.ID)
	}
	if p.group != nil && l.MemBytes > 0 {
		if p.disarm, err = p.group.KillOnOOM(); err != nil {
			return nil, err
		}
		p.watched = true
	}
	// If the keeper dies from here on, the task may have run.
	undo, err := k.record.start(l.ID)
	if err != nil {
		return nil, errors.Join(err, p.disarm())
	}
	p.began = time.Now()
	p.pid, err = k.spawn.start(spawnRequest{launch: l, group: p.group, prog: prog, inside: k.inside, files: files})
	if err != nil {
		return nil, errors.Join(err, undo(), p.disarm())
	}
	return p, nil
}

// await waits for the end of the first process of a task, and reaps it.
func (k *keeper) await(t *task, pid int) (ws syscall.WaitStatus, io proc.IO, err error) {
	// It stays a zombie that keeps its pid until nothing can send it a signal any more.
	err = ended(pid)
	k.mu.Lock()
	t.exited = true
	k.mu.Unlock()
	if err != nil {
		return ws, io, err
	}
	// The counters of a process, and of the children that it waited for, are complete now
	// and gone once it is reaped.
	if io, err = proc.ReadIO(pid); err != nil {
		k.log.Debug("what a task read and wrote is not known", "task", t.launch.ID.String(), "err", err)
	}
	if k.noCaps != nil {
		// What it left behind can be found by its process group at best.
		if err := syscall.Kill(-pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			k.log.Error("cannot kill what is left of a task", "task", t.launch.ID.String(), "err", err)
		}
	}
	err = uninterrupted(func() error {
		_, err := syscall.Wait4(pid, &ws, 0, nil)
		return err
	})
	return ws, io, err
}

// ended returns when a child has ended, without reaping it. Go's poller waits for it: a
// thread blocked in the kernel would have the Go runtime watch it, every 20 µs at first.
func ended(pid int) error {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err != nil { // before Linux 5.10
		return uninterrupted(func() error { return unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil) })
	}
	f := os.NewFile(uintptr(fd), "pidfd")
	defer f.Close()
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var waited error
	err = conn.Read(func(uintptr) bool {
		var info unix.Siginfo
		waited = uninterrupted(func() error {
			return unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOWAIT|unix.WNOHANG, nil)
		})
		return waited != nil || info.Signo != 0
	})
	return errors.Join(err, waited)
}

func uninterrupted(call func() error) error {
	for {
		if err := call(); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

// reap records how the first process of a task ended.
func (k *keeper) reap(t *task, p *process) {
	ws, io, err := k.await(t, p.pid)
	if err != nil {
		k.log.Error("cannot wait for a process", "pid", p.pid, "err", err)
		k.killGroup(t.launch.ID)
		k.mu.Lock()
		t.state.Phase = runtime.Lost
		k.mu.Unlock()
		return
	}
	k.mu.Lock()
	end := t.state
	k.mu.Unlock()
	end.Phase, end.Ended, end.IO = runtime.Stopped, time.Now(), io
	if ws.Signaled() {
		end.Signal, end.ExitCode = ws.Signal(), 128+int(ws.Signal())
	} else {
		end.ExitCode = ws.ExitStatus()
	}
	if err := p.disarm(); err != nil {
		k.log.Error("cannot kill the rest of a task that is out of memory", "task", end.ID.String(), "err", err)
	}
	if p.group != nil {
		if n, err := p.group.OOMKills(); err == nil {
			// A script whose program was killed exits with that program's code. One whose
			// watch had no time to end it, such as a pipeline, may exit with 0.
			end.OOMKilled = n > 0 && (p.watched || end.ExitCode == 128+int(syscall.SIGKILL))
		}
		end.MemPeakBytes, end.CPUTime = p.group.MemPeak(), p.group.CPUTime()
	}
	k.dismiss(t)
	if p.group != nil {
		// The job is its first process; what that left behind must not continue to use its
		// share.
		k.killGroup(end.ID)
	}
	// On a full disk, the exit is known for as long as we live; a task that never ends
	// would be worse.
	if err := k.record.put(end); err != nil {
		k.log.Error("cannot record an exit", "task", end.ID.String(), "err", err)
	}
	k.announce(t, end)
}

// announce publishes an end.
func (k *keeper) announce(t *task, end runtime.Task) {
	k.mu.Lock()
	defer k.mu.Unlock()
	t.state = end
	for w := range k.watchers {
		select {
		case w <- end:
		default: // the agent checks from time to time by itself
		}
	}
}

// broadcast signals the processes of a task. Without control groups, it cannot reach those
// that left its session.
func (k *keeper) broadcast(id cluster.AttemptID, sig syscall.Signal, to runtime.Audience) error {
	k.mu.Lock()
	t := k.tasks[id]
	if t == nil || t.state.Phase != runtime.Running || t.exited {
		k.mu.Unlock()
		return nil
	}
	first := t.state.PID
	k.mu.Unlock()
	var err error
	if k.noCaps == nil {
		err = k.group(id).Signal(sig, first)
	} else {
		err = signalSession(first, sig)
	}
	if err != nil || to == runtime.ToOthers {
		return err
	}
	return k.signal(id, sig)
}

// signalSession signals the processes of a session except its leader.
func signalSession(leader int, sig syscall.Signal) error {
	dirs, err := os.ReadDir("/proc")
	if err != nil {
		return err
	}
	var errs []error
	for _, d := range dirs {
		pid, err := strconv.Atoi(d.Name())
		if err != nil || pid == leader {
			continue
		}
		if sid, err := unix.Getsid(pid); err != nil || sid != leader {
			continue
		}
		if err := syscall.Kill(pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (k *keeper) signal(id cluster.AttemptID, sig syscall.Signal) error {
	k.mu.Lock()
	t := k.tasks[id]
	if t == nil || t.state.Phase != runtime.Running || t.exited {
		k.mu.Unlock()
		return nil
	}
	if sig == syscall.SIGKILL && k.noCaps == nil {
		k.mu.Unlock() // it may take a while
		return k.group(id).Kill()
	}
	// It has not exited, or is a zombie: no other process can have its pid.
	defer k.mu.Unlock()
	pid := t.state.PID
	if sig == syscall.SIGKILL {
		pid = -pid
	}
	if err := syscall.Kill(pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return err
	}
	return nil
}
