package asuser

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/berth-scheduler/berth/agent/launch"
)

// Files are the standard files of a job's first process. Out and Err are one *os.File when
// their paths are equal.
type Files struct{ In, Out, Err *os.File }

// Close closes what is open; f may be nil.
func (f *Files) Close() {
	if f == nil {
		return
	}
	for _, file := range []*os.File{f.In, f.Out, f.Err} {
		if file != nil {
			_ = file.Close() // nothing was written through it; Err may be Out
		}
	}
}

// User returns the identity of a launch.
func User(l *launch.Launch) ID { return ID{UID: l.UID, GID: l.GID, Groups: l.Groups} }

// Truncate empties the output files of l if it says so, once they are the job's: an opening that
// came too late must not.
func (f *Files) Truncate(l *launch.Launch) error {
	for _, out := range []*os.File{f.Out, f.Err} {
		if st, err := out.Stat(); !l.Truncate || err != nil || !st.Mode().IsRegular() {
			continue
		}
		if err := out.Truncate(0); err != nil {
			return &launch.Error{Code: 125, Reason: "OUTPUT", Err: err}
		}
	}
	return nil
}

// OpenOutputs opens the output files of l for appending, truncated if it says so, and creates
// missing ones. Call it inside Do, or as the user. Errors that no retry fixes are
// *launch.Error, here and below.
func OpenOutputs(l *launch.Launch) (*Files, error) {
	out, err := openOutput(l, l.Stdout)
	if err != nil {
		return nil, err
	}
	f := &Files{Out: out, Err: out}
	if l.Stderr != l.Stdout {
		if f.Err, err = openOutput(l, l.Stderr); err != nil {
			f.Close()
			return nil, err
		}
	}
	return f, nil
}

// OpenAll opens the output files of l and its input, /dev/null by default.
func OpenAll(l *launch.Launch) (*Files, error) {
	path := cmp.Or(l.Stdin, os.DevNull)
	in, err := openPlain(path, os.O_RDONLY)
	if err != nil {
		return nil, &launch.Error{Code: 125, Reason: "INPUT", Err: err}
	}
	f, err := OpenOutputs(l)
	if err != nil {
		return nil, errors.Join(err, in.Close())
	}
	f.In = in
	return f, nil
}

func openOutput(l *launch.Launch, path string) (*os.File, error) {
	flags := os.O_CREATE | os.O_WRONLY | os.O_APPEND
	if l.Truncate {
		flags |= os.O_TRUNC
	}
	f, err := openPlain(path, flags)
	if err != nil {
		return nil, &launch.Error{Code: 125, Reason: "OUTPUT", Missing: errors.Is(err, syscall.ENOENT), Err: err}
	}
	return f, nil
}

// openPlain opens without blocking, so that a FIFO without a reader is an error and not an
// endless wait, and then makes reads and writes blocking.
func openPlain(path string, flags int) (*os.File, error) {
	fd, err := openFD(path, flags)
	if err != nil {
		return nil, err
	}
	if err := unix.SetNonblock(fd, false); err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), path), nil
}

// barred are directories below which a path means something else to the job than to us, such as
// /proc/self/fd.
var barred = []string{"/proc", "/sys", "/dev"}

// CheckDir reports whether the user may work in the directory of l, which is a path on the
// node. Call it inside Do.
func CheckDir(l *launch.Launch) error {
	fail := func(err error) error { return &launch.Error{Code: 125, Reason: "WORKDIR", Err: err} }
	real, err := realPath(l.Dir)
	if err != nil {
		return fail(err)
	}
	for _, dir := range []string{path.Clean(l.Dir), real} {
		for _, bad := range barred {
			if dir == bad || strings.HasPrefix(dir, bad+"/") {
				return fail(fmt.Errorf("%s may not lie under %s", l.Dir, bad))
			}
		}
	}
	st, err := os.Stat(real)
	if err != nil {
		return fail(err)
	}
	if !st.IsDir() {
		return fail(fmt.Errorf("%s is not a directory", l.Dir))
	}
	if !mayExecute(real) {
		return fail(fmt.Errorf("%s: permission denied", l.Dir))
	}
	return nil
}

// realPath returns the kernel's name for a directory, free of links.
func realPath(dir string) (string, error) {
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", &os.PathError{Op: "open", Path: dir, Err: err}
	}
	name, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
	return name, errors.Join(err, unix.Close(fd))
}

// mayExecute checks with the thread's file system identity. Since 5.8, AT_EACCESS of the
// kernel's faccessat2 refers to that identity; before that, only execve and chdir tell.
func mayExecute(path string) bool {
	err := unix.Faccessat2(unix.AT_FDCWD, path, unix.X_OK, unix.AT_EACCESS)
	return err == nil || errors.Is(err, syscall.ENOSYS)
}

// LookPath finds the program of l on the node in the job's own PATH. Call it inside Do.
func LookPath(l *launch.Launch) (string, error) {
	name := l.Args[0]
	if strings.Contains(name, "/") {
		if !path.IsAbs(name) {
			name = path.Join(l.Dir, name)
		}
		st, err := os.Stat(name)
		switch {
		case err != nil:
			return "", ExecError(name, errors.Unwrap(err))
		case st.IsDir():
			return "", ExecError(name, syscall.EISDIR)
		case !mayExecute(name):
			return "", ExecError(name, syscall.EACCES)
		}
		return name, nil
	}
	paths := ""
	for _, e := range l.Env {
		if v, ok := strings.CutPrefix(e, "PATH="); ok {
			paths = v
		}
	}
	denied := false
	for dir := range strings.SplitSeq(paths, ":") {
		if paths == "" {
			break
		}
		if !path.IsAbs(dir) {
			dir = path.Join(l.Dir, dir)
		}
		p := path.Join(dir, name)
		st, err := os.Stat(p)
		if err != nil || st.IsDir() {
			continue
		}
		if mayExecute(p) {
			return p, nil
		}
		denied = true
	}
	if denied {
		return "", ExecError(name, syscall.EACCES)
	}
	return "", &launch.Error{Code: 127, Reason: "COMMAND", Err: fmt.Errorf("%s: command not found", name)}
}

// ExecError converts an error of execve as a shell does: 127 for a program that does not exist,
// 126 for one that cannot run. It returns others wrapped, since they may be transient.
func ExecError(prog string, err error) error {
	code := 126
	switch {
	case errors.Is(err, syscall.ENOENT), errors.Is(err, syscall.ENOTDIR):
		code = 127
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.ENOEXEC), errors.Is(err, syscall.EISDIR),
		errors.Is(err, syscall.EPERM), errors.Is(err, syscall.E2BIG), errors.Is(err, syscall.ELOOP):
	default:
		return fmt.Errorf("run %s: %w", prog, err)
	}
	return &launch.Error{Code: code, Reason: "COMMAND", Err: fmt.Errorf("%s: %w", prog, err)}
}
