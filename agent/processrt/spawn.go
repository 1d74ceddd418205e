package processrt

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/berth-scheduler/berth/agent/asuser"
	"github.com/berth-scheduler/berth/agent/cgroup"
	"github.com/berth-scheduler/berth/agent/launch"
	"github.com/berth-scheduler/berth/cluster"
)

// spawner forks from OS threads of its own, which enter the control groups of what they
// fork. If a child needs further setup, it is born traced, so that it stops before the
// first instruction of its program; it is then set up and released. Tracing is bound to the
// thread that forked, and so is no_new_privs, which children inherit.
type spawner struct {
	reqs   chan spawnRequest
	groups *cgroup.Hierarchy // nil without control groups
	// shielded reports whether this process is shielded from the kernel's OOM killer.
	shielded bool
}

type spawnRequest struct {
	launch *launch.Launch
	group  *cgroup.Group
	prog   string
	inside string // runs l.Ranks
	files  *asuser.Files
	// terminal makes the standard files the controlling terminal.
	terminal bool
	resp     chan spawned
}

type spawned struct {
	pid int
	err error
}

const (
	spawnThreads = 2
	// timerSlack is the kernel's default in nanoseconds, for jobs: Berth's daemons are
	// started with more.
	timerSlack = 50_000
)

// hold opens the program berth-job for as long as the keeper lives, and returns a path to
// it that works in every child of the keeper, whatever the permissions on the program's own
// path and whatever an upgrade puts there. "" means the keeper's program.
func hold(program string) (string, error) {
	if program == "" {
		return "/proc/self/exe", nil
	}
	f, err := os.Open(program)
	if err != nil {
		return "", fmt.Errorf("the program that stands beside jobs: %w", err)
	}
	defer f.Close()
	// Above the descriptors that a fork moves around.
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 100)
	if err != nil {
		return "", fmt.Errorf("hold %s: %w", program, err)
	}
	return fmt.Sprintf("/proc/self/fd/%d", fd), nil
}

func newSpawner(groups *cgroup.Hierarchy) *spawner {
	score, err := os.ReadFile("/proc/self/oom_score_adj")
	s := &spawner{reqs: make(chan spawnRequest), groups: groups, shielded: err != nil || string(score) != "0\n"}
	for range spawnThreads {
		go cgroup.OnThread(s.serve)
	}
	return s
}

// serve forks for as long as the keeper lives, on a dedicated thread.
func (s *spawner) serve() {
	err := errors.Join(unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), unix.Prctl(unix.PR_SET_TIMERSLACK, timerSlack, 0, 0, 0))
	var f *cgroup.Forker
	if s.groups != nil {
		f, _ = cgroup.NewForker(*s.groups) // without one, processes are moved
	}
	for r := range s.reqs {
		if err != nil {
			r.resp <- spawned{err: fmt.Errorf("set what jobs inherit of a thread: %w", err)}
			continue
		}
		pid, stuck, err := s.spawn(f, r)
		r.resp <- spawned{pid, err}
		if stuck { // the thread ends, and so leaves the job's group
			go cgroup.OnThread(s.serve)
			return
		}
	}
}

func (s *spawner) start(r spawnRequest) (int, error) {
	r.resp = make(chan spawned, 1)
	s.reqs <- r
	out := <-r.resp
	return out.pid, out.err
}

// spawn runs on a spawner's thread. It reports stuck when that thread must end.
func (s *spawner) spawn(f *cgroup.Forker, r spawnRequest) (pid int, stuck bool, err error) {
	l, g, files := r.launch, r.group, r.files
	attr := &syscall.ProcAttr{
		Dir: l.Dir, Env: l.Env,
		Files: []uintptr{files.In.Fd(), files.Out.Fd(), files.Err.Fd()},
		Sys:   &syscall.SysProcAttr{Setsid: true, Setctty: r.terminal, Ptrace: s.shielded && g != nil},
	}
	alone := l.Network == cluster.NetNone
	if alone {
		attr.Sys.Cloneflags, attr.Sys.Ptrace = unix.CLONE_NEWNET, true
	}
	if os.Getuid() == 0 {
		attr.Sys.Credential = &syscall.Credential{Uid: l.UID, Gid: l.GID, Groups: l.Groups}
	}
	args := l.Args
	if l.Ranks != nil {
		r.prog, args = r.inside, l.RankArgs("berth-job")
	}
	pid, born, stuck, err := fork(f, g, r.prog, args, attr)
	if err != nil {
		return 0, stuck, asuser.ExecError(r.prog, err)
	}
	if !attr.Sys.Ptrace {
		return pid, stuck, nil
	}
	if born {
		g = nil
	}
	if err := release(pid, g, alone); err != nil {
		killErr := syscall.Kill(pid, syscall.SIGKILL)
		var ws syscall.WaitStatus
		_, werr := syscall.Wait4(pid, &ws, 0, nil)
		return 0, stuck, errors.Join(err, killErr, werr)
	}
	return pid, stuck, nil
}

// fork starts a program, in the group if possible: born is false when it has to be moved
// there.
func fork(f *cgroup.Forker, g *cgroup.Group, prog string, args []string, attr *syscall.ProcAttr) (pid int, born, stuck bool, err error) {
	if f != nil && g != nil {
		if leave, err := f.Enter(g, attr.Sys); err == nil {
			pid, err = syscall.ForkExec(prog, args, attr)
			stuck = leave() != nil
			if err == nil || !besideGroup(err) {
				return pid, true, stuck, err
			}
			attr.Sys.UseCgroupFD = false
		}
	}
	attr.Sys.Ptrace = attr.Sys.Ptrace || g != nil
	pid, err = syscall.ForkExec(prog, args, attr)
	return pid, false, stuck, err
}

// besideGroup reports whether a fork that failed in a group may succeed outside it: the
// group is at its process limit, and a process that enters a job must get in all the same;
// or the kernel or a filter does not know the system call.
func besideGroup(err error) bool {
	return errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.ENOSYS) || errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EINVAL)
}

// release waits for the stop at exec, moves the process into g unless that is nil, and
// resumes it.
func release(pid int, g *cgroup.Group, alone bool) error {
	var ws syscall.WaitStatus
	for {
		_, err := syscall.Wait4(pid, &ws, 0, nil)
		if err == nil {
			break
		}
		if !errors.Is(err, syscall.EINTR) {
			return fmt.Errorf("wait for the new process: %w", err)
		}
	}
	if !ws.Stopped() {
		return fmt.Errorf("the new process did not stop at exec: %v", ws)
	}
	if g != nil {
		if err := g.Add(pid); err != nil {
			return err
		}
	}
	if alone {
		if err := loopback(pid); err != nil {
			return err
		}
	}
	// The agent shields itself from the kernel's OOM killer; a job must not inherit that.
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid), []byte("0"), 0); err != nil {
		return fmt.Errorf("reset oom_score_adj: %w", err)
	}
	if err := syscall.PtraceDetach(pid); err != nil {
		return fmt.Errorf("let the new process go: %w", err)
	}
	return nil
}

// opened is what a user named of a task, as found on the node.
type opened struct {
	prog  string
	files *asuser.Files
}

func (o opened) close() { o.files.Close() }

// prepare opens the files and finds the program as the user would.
func (k *keeper) prepare(l *launch.Launch) (prog string, files *asuser.Files, err error) {
	look := *l
	look.Truncate = false
	o, err := asuser.Await(&k.waits, asuser.User(l), func() (o opened, err error) { return k.look(&look) }, opened.close)
	if errors.Is(err, asuser.ErrSilent) {
		err = fmt.Errorf("open the directory %s, the output %s and the program %s: %w", l.Dir, l.Stdout, l.Args[0], err)
	}
	if err == nil {
		err = o.files.Truncate(l)
	}
	if err != nil {
		o.close()
		return "", nil, err
	}
	return o.prog, o.files, nil
}

// lookAt does the work of prepare.
func lookAt(l *launch.Launch) (o opened, err error) {
	if err := asuser.CheckDir(l); err != nil {
		return o, err
	}
	if o.prog, err = asuser.LookPath(l); err != nil {
		return o, err
	}
	o.files, err = asuser.OpenAll(l)
	return o, err
}
