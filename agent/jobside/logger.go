package jobside

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/berth-scheduler/berth/agent/asuser"
	"github.com/berth-scheduler/berth/agent/launch"
)

// File descriptors that containerd's shim passes to a logging binary.
const (
	fdStdout = 3
	fdStderr = 4
	fdReady  = 5
)

// logger connects a job with its user's files, in one of two ways. Either lives as long as the
// container, whatever happens to the agent and containerd, and opens the files with the user's
// rights: no path of a user's is ever followed as root. DESIGN.md of agent/containerdrt says
// why there are two.
func logger(specFile string) error {
	s, err := read(specFile)
	if err != nil {
		return err
	}
	if s.Exec {
		if s.DropHome {
			if err := os.Unsetenv("HOME"); err != nil {
				return err
			}
		}
		return becomeJob(s.Launch)
	}
	return copyOutput(s.Launch, s.MaxBytes)
}

// becomeJob opens the job's files and runs its command in this process. It returns only if it
// cannot; the process then exits as a shell would.
func becomeJob(l *launch.Launch) error {
	// What runc set is the job's, plus what CDI devices add.
	l.Env = append(syscall.Environ(), l.Env...)
	return exit(execJob(l))
}

// exit says why the user's program could not be run and ends this process, which is
// the user's, not berth, as a shell would.
func exit(err error) error {
	code := 125
	if le, ok := errors.AsType[*launch.Error](err); ok {
		code = le.Code
	}
	fmt.Fprintf(os.NewFile(2, "stderr"), "berth: %v\n", err)
	syscall.Exit(code)
	return err
}

// execJob runs inside the container, with only the user's rights.
func execJob(l *launch.Launch) error {
	files, err := asuser.OpenAll(l)
	if err != nil {
		return err
	}
	for fd, f := range []*os.File{files.In, files.Out, files.Err} {
		if err := unix.Dup3(int(f.Fd()), fd, 0); err != nil {
			return fmt.Errorf("connect standard files: %w", err)
		}
	}
	if err := os.Chdir(l.Dir); err != nil {
		return &launch.Error{Code: 125, Reason: "WORKDIR", Err: err}
	}
	prog, err := asuser.LookPath(l)
	if err != nil {
		return err
	}
	args := l.Args
	if l.Ranks != nil {
		prog, args = Binary, l.RankArgs("berth-job")
	}
	return asuser.ExecError(prog, syscall.Exec(prog, args, l.Env))
}

// copyOutput copies a container's output, as read by the shim, to its user's files.
func copyOutput(l *launch.Launch, most int64) error {
	var files *asuser.Files
	err := asuser.Do(asuser.User(l), func() (err error) {
		files, err = asuser.OpenOutputs(l)
		return err
	})
	if err != nil {
		return err
	}
	defer files.Close()
	// Closing this tells the shim that the container may start.
	if err := os.NewFile(fdReady, "ready").Close(); err != nil {
		return err
	}
	var wg sync.WaitGroup
	for _, c := range []struct{ from, to *os.File }{
		{os.NewFile(fdStdout, "stdout"), files.Out},
		{os.NewFile(fdStderr, "stderr"), files.Err},
	} {
		wg.Go(func() {
			copyAtMost(c.to, c.from, most)
		})
	}
	wg.Wait()
	return nil
}

// copyAtMost copies to the end, or up to the limit and then says so. Neither that nor a full
// disk may stop the job: the rest is read and discarded.
func copyAtMost(to io.Writer, from io.Reader, most int64) {
	var err error
	if most > 0 {
		var n int64
		if n, err = io.CopyN(to, from, most); err == nil && n == most {
			var more [1]byte
			if _, err := io.ReadFull(from, more[:]); err != nil {
				return // that was all
			}
			_, _ = fmt.Fprintf(to, "\nberth: the output of one run is cut at %d MiB on this node; what follows is lost\n", most>>20)
		}
	} else {
		_, err = io.Copy(to, from)
	}
	if err != io.EOF {
		_, _ = io.Copy(io.Discard, from)
	}
}
