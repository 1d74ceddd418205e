package processrt

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/berth-scheduler/berth/agent"
	"github.com/berth-scheduler/berth/agent/asuser"
	"github.com/berth-scheduler/berth/agent/cgroup"
)

// spawner forks from OS threads of its own. Their children are born traced,
// so that each stops before the first instruction of its program; then it is
// moved into its control group and let go. Tracing is bound to the thread
// that forked, and so is no_new_privs, which children inherit.
type spawner struct{ reqs chan spawnRequest }

type spawnRequest struct {
	launch *agent.Launch
	group  *cgroup.Group
	resp   chan spawned
}

type spawned struct {
	pid int
	err error
}

const spawnThreads = 2

func newSpawner() *spawner {
	s := &spawner{reqs: make(chan spawnRequest)}
	for range spawnThreads {
		go func() {
			runtime.LockOSThread() // never unlocked: the thread is not as others
			err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
			for r := range s.reqs {
				if err != nil {
					r.resp <- spawned{err: fmt.Errorf("set no_new_privs: %w", err)}
					continue
				}
				pid, err := spawn(r.launch, r.group)
				r.resp <- spawned{pid, err}
			}
		}()
	}
	return s
}

func (s *spawner) start(l *agent.Launch, g *cgroup.Group) (int, error) {
	r := spawnRequest{launch: l, group: g, resp: make(chan spawned, 1)}
	s.reqs <- r
	out := <-r.resp
	return out.pid, out.err
}

// spawn runs on a spawner's thread.
func spawn(l *agent.Launch, g *cgroup.Group) (int, error) {
	prog, files, err := prepare(l)
	if err != nil {
		return 0, err
	}
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	attr := &syscall.ProcAttr{
		Dir: l.Dir, Env: l.Env,
		Files: []uintptr{files[0].Fd(), files[1].Fd(), files[2].Fd()},
		Sys:   &syscall.SysProcAttr{Setsid: true, Ptrace: g != nil},
	}
	if os.Getuid() == 0 {
		attr.Sys.Credential = &syscall.Credential{Uid: l.UID, Gid: l.GID, Groups: l.Groups}
	}
	pid, err := syscall.ForkExec(prog, l.Args, attr)
	if err != nil {
		return 0, execError(prog, err)
	}
	if g == nil {
		return pid, nil
	}
	if err := release(pid, g); err != nil {
		killErr := syscall.Kill(pid, syscall.SIGKILL)
		var ws syscall.WaitStatus
		_, werr := syscall.Wait4(pid, &ws, 0, nil)
		return 0, errors.Join(err, killErr, werr)
	}
	return pid, nil
}

// release waits for the stop at exec, moves the process and lets it go.
func release(pid int, g *cgroup.Group) error {
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
	if err := g.Add(pid); err != nil {
		return err
	}
	if err := syscall.PtraceDetach(pid); err != nil {
		return fmt.Errorf("let the new process go: %w", err)
	}
	return nil
}

// prepare opens the files and finds the program as the user would.
func prepare(l *agent.Launch) (prog string, files [3]*os.File, err error) {
	err = asuser.Do(asuser.ID{UID: l.UID, GID: l.GID, Groups: l.Groups}, func() error {
		if st, err := os.Stat(l.Dir); err != nil || !st.IsDir() {
			if err == nil {
				err = fmt.Errorf("%s is not a directory", l.Dir)
			}
			return &agent.LaunchError{Code: 125, Reason: "WORKDIR", Err: err}
		}
		stdin := l.Stdin
		if stdin == "" {
			stdin = os.DevNull
		}
		var err error
		if files[0], err = os.OpenFile(stdin, os.O_RDONLY|syscall.O_NONBLOCK, 0); err != nil {
			return &agent.LaunchError{Code: 125, Reason: "INPUT", Err: err}
		}
		if files[1], err = openOutput(l.Stdout); err != nil {
			return err
		}
		if l.Stderr == l.Stdout {
			files[2], err = dup(files[1])
		} else {
			files[2], err = openOutput(l.Stderr)
		}
		if err != nil {
			return err
		}
		prog, err = lookPath(l)
		return err
	})
	if err != nil {
		for _, f := range files {
			if f != nil {
				f.Close()
			}
		}
	}
	return prog, files, err
}

func dup(f *os.File) (*os.File, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

// openOutput opens an output file for appending. A FIFO that nobody reads is
// an error and not a wait for ever.
func openOutput(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND|syscall.O_NONBLOCK, 0o666&^0o022)
	if err != nil {
		return nil, &agent.LaunchError{Code: 125, Reason: "OUTPUT", Err: err}
	}
	if err := syscall.SetNonblock(int(f.Fd()), false); err != nil {
		f.Close()
		return nil, &agent.LaunchError{Code: 125, Reason: "OUTPUT", Err: err}
	}
	return f, nil
}

// lookPath finds the program in the job's own PATH, as its user.
func lookPath(l *agent.Launch) (string, error) {
	name := l.Args[0]
	if strings.Contains(name, "/") {
		if !filepath.IsAbs(name) {
			name = filepath.Join(l.Dir, name)
		}
		return name, nil // exec says what is wrong with it
	}
	path := ""
	for _, e := range l.Env {
		if v, ok := strings.CutPrefix(e, "PATH="); ok {
			path = v
		}
	}
	denied := false
	for _, dir := range filepath.SplitList(path) {
		if !filepath.IsAbs(dir) {
			dir = filepath.Join(l.Dir, dir)
		}
		p := filepath.Join(dir, name)
		st, err := os.Stat(p)
		if err != nil || st.IsDir() {
			continue
		}
		if unix.Faccessat(unix.AT_FDCWD, p, unix.X_OK, unix.AT_EACCESS) == nil || st.Mode()&0o111 != 0 {
			return p, nil
		}
		denied = true
	}
	if denied {
		return "", &agent.LaunchError{Code: 126, Reason: "COMMAND", Err: fmt.Errorf("%s: permission denied", name)}
	}
	return "", &agent.LaunchError{Code: 127, Reason: "COMMAND", Err: fmt.Errorf("%s: command not found", name)}
}

// execError speaks as a shell does.
func execError(prog string, err error) error {
	code := 125
	switch {
	case errors.Is(err, syscall.ENOENT), errors.Is(err, syscall.ENOTDIR):
		code = 127
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.ENOEXEC), errors.Is(err, syscall.EISDIR), errors.Is(err, syscall.EPERM),
		errors.Is(err, syscall.E2BIG), errors.Is(err, syscall.ELOOP):
		code = 126
	default:
		return fmt.Errorf("run %s: %w", prog, err)
	}
	return &agent.LaunchError{Code: code, Reason: "COMMAND", Err: fmt.Errorf("%s: %w", prog, err)}
}
