package nvmlproc

import (
	"fmt"
	"log/slog"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Main is Serve on the descriptors of its own process. What the driver's library prints on
// standard output goes to stderr, so that it is not mistaken for an answer.
func Main(stdin, stdout, stderr *os.File, open func() (Driver, error), log *slog.Logger) error {
	if err := closeInherited(); err != nil {
		return err
	}
	fd, err := unix.FcntlInt(stdout.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return fmt.Errorf("duplicate standard output: %w", err)
	}
	answers := os.NewFile(uintptr(fd), "answers")
	defer answers.Close()
	if err := unix.Dup3(int(stderr.Fd()), int(stdout.Fd()), 0); err != nil {
		return fmt.Errorf("redirect standard output: %w", err)
	}
	return Serve(stdin, answers, open, log)
}

// closeInherited closes what our parent inherited from its starter: whatever is not
// close-on-exec came through the last exec.
func closeInherited() error {
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return fmt.Errorf("find inherited descriptors: %w", err)
	}
	for _, e := range fds {
		fd, err := strconv.Atoi(e.Name())
		if err != nil || fd < 3 {
			continue
		}
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		if err == nil && flags&unix.FD_CLOEXEC == 0 {
			if err := unix.Close(fd); err != nil {
				return fmt.Errorf("close inherited descriptor %d: %w", fd, err)
			}
		}
	}
	return nil
}
