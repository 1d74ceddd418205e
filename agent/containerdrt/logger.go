package containerdrt

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"

	"github.com/berth-scheduler/berth/agent"
	"github.com/berth-scheduler/berth/agent/asuser"
)

// outputSpec tells the logger of a container where its output goes.
type outputSpec struct {
	UID, GID       uint32
	Groups         []uint32
	Stdout, Stderr string
}

// File descriptors that containerd's shim hands to a logging binary.
const (
	fdStdout = 3
	fdStderr = 4
	fdReady  = 5
)

// LoggerMain copies a container's output to its user's files. The shim starts
// it, one a container, so that it lives as long as the container does,
// whatever becomes of the agent and of containerd. The files are opened with
// the user's rights: no path of a user's is ever followed as root.
func LoggerMain(specFile string) error {
	data, err := os.ReadFile(specFile)
	if err != nil {
		return err
	}
	var o outputSpec
	if err := json.Unmarshal(data, &o); err != nil {
		return fmt.Errorf("output spec %s: %w", specFile, err)
	}
	out, errOut, err := openOutputs(o)
	if err != nil {
		return err
	}
	// Closing this tells the shim that the container may start.
	if err := os.NewFile(fdReady, "ready").Close(); err != nil {
		return err
	}
	var wg sync.WaitGroup
	for _, c := range []struct {
		from *os.File
		to   *os.File
	}{{os.NewFile(fdStdout, "stdout"), out}, {os.NewFile(fdStderr, "stderr"), errOut}} {
		wg.Go(func() {
			if _, err := io.Copy(c.to, c.from); err != nil {
				// A full disk must not stop the job: read on and throw away.
				_, _ = io.Copy(io.Discard, c.from)
			}
		})
	}
	wg.Wait()
	return nil
}

// openOutputs opens both files as the user, appending.
func openOutputs(o outputSpec) (out, errOut *os.File, err error) {
	err = asuser.Do(asuser.ID{UID: o.UID, GID: o.GID, Groups: o.Groups}, func() error {
		if out, err = openOutput(o.Stdout); err != nil {
			return err
		}
		errOut = out
		if o.Stderr != o.Stdout {
			errOut, err = openOutput(o.Stderr)
		}
		return err
	})
	return out, errOut, err
}

func openOutput(path string) (*os.File, error) {
	// O_NONBLOCK keeps a FIFO that nobody reads from holding us for ever.
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND|syscall.O_NONBLOCK, 0o644)
	if err != nil {
		return nil, &agent.LaunchError{Code: 125, Reason: "OUTPUT", Err: err}
	}
	return f, nil
}
