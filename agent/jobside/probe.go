package jobside

import (
	"errors"
	"fmt"
	"io"
	"syscall"
)

// ProbeArg is the first argument of a process that runs Probe.
const ProbeArg = "device-probe"

// Probe opens each path as a job would and writes a line for each: the error number, 0 for
// none, and the path.
func Probe(paths []string, w io.Writer) error {
	for _, p := range paths {
		fd, err := syscall.Open(p, syscall.O_RDWR|syscall.O_NONBLOCK|syscall.O_NOCTTY|syscall.O_CLOEXEC, 0)
		var errno syscall.Errno
		if err == nil {
			err = syscall.Close(fd)
		}
		if err != nil && !errors.As(err, &errno) {
			return err
		}
		if _, err := fmt.Fprintf(w, "%d %s\n", int(errno), p); err != nil {
			return err
		}
	}
	return nil
}
