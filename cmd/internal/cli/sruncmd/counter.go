package sruncmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// counter is the file in which a job counts its steps. Bytes of it are locked
// for GPUs that steps have: a lock ends with its process.
type counter struct{ f *os.File }

// lockBase is where the bytes begin that stand for GPUs; a node has maxGPUs.
const (
	lockBase = 1 << 20
	maxGPUs  = 64
)

// openCounter opens the file that $BERTH_STEPS names; without it all steps have
// the number 0 and GPUs are not kept apart.
func openCounter(path string) *counter {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		return &counter{}
	}
	return &counter{f}
}

// next returns the number of a step.
func (c *counter) next() (int, error) {
	if c.f == nil {
		return 0, nil
	}
	if err := unix.Flock(int(c.f.Fd()), unix.LOCK_EX); err != nil {
		return 0, fmt.Errorf("count steps: %w", err)
	}
	defer unix.Flock(int(c.f.Fd()), unix.LOCK_UN) //nolint:errcheck // it ends with the file as well
	buf := make([]byte, 20)
	n, err := c.f.ReadAt(buf, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return 0, fmt.Errorf("count steps: %w", err)
	}
	was, _ := strconv.Atoi(strings.TrimSpace(string(buf[:n]))) // empty at first
	if _, err := c.f.WriteAt(fmt.Appendf(nil, "%-19d\n", was+1), 0); err != nil {
		return 0, fmt.Errorf("count steps: %w", err)
	}
	return was, nil
}

// take locks n of the GPUs that a node of the job has, and returns their
// places; false when so many are not free. Locks of one open file do not stand in
// each other's way, so each step opens it anew.
func (c *counter) take(inJob, have, n int) ([]int, bool) {
	var got []int
	for i := 0; i < have && len(got) < n; i++ {
		if c.f == nil || c.lock(inJob, i, unix.F_WRLCK) {
			got = append(got, i)
		}
	}
	if len(got) == n {
		return got, true
	}
	for _, i := range got {
		if c.f != nil {
			c.lock(inJob, i, unix.F_UNLCK)
		}
	}
	return nil, false
}

func (c *counter) lock(inJob, gpu int, how int16) bool {
	at := int64(lockBase + inJob*maxGPUs + gpu)
	return unix.FcntlFlock(c.f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: how, Start: at, Len: 1}) == nil
}

// takeAll takes the GPUs of all places of a step, as soon as they are free.
func (c *counter) takeAll(ctx context.Context, l *layout, j *job, wait func()) ([][]int, error) {
	if l.gpus == 0 {
		return make([][]int, len(l.places)), nil
	}
	for first := true; ; first = false {
		out, all := make([][]int, len(l.places)), true
		for i, p := range l.places {
			var ok bool
			if out[i], ok = c.take(p.inJob, j.gpus, l.gpus); !ok {
				all = false
				break
			}
		}
		if all {
			return out, nil
		}
		for i, list := range out {
			for _, g := range list {
				c.lock(l.places[i].inJob, g, unix.F_UNLCK)
			}
		}
		if first {
			wait()
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(100 * time.Millisecond):
		}
	}
}
