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

	"github.com/berth-scheduler/berth/cluster/wait"

	"golang.org/x/sys/unix"
)

// counter is the file in which a job counts its steps. Its bytes are locked
// for the GPUs and cores that steps hold: a lock ends with its process.
type counter struct{ f *os.File }

// lockBase is the first byte that stands for a GPU, coreBase for a core,
// memBase for a MiB of memory; a node has maxGPUs, maxCores and maxMiB.
const (
	lockBase = 1 << 20
	maxGPUs  = 64
	coreBase = 1 << 30
	maxCores = 1 << 12
	memBase  = 1 << 40
	maxMiB   = 1 << 32
)

// openCounter opens the file named by $BERTH_STEPS; without it all steps have
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

// claim is n of the have items of a node of the job, one byte each from at on.
type claim struct {
	at      int64
	have, n int
	row     bool // n adjacent ones
}

// claims returns what a step must have for itself on a place: its GPUs, and
// its cores if it asked for exclusive ones.
func (l *layout) claims(p place, j *job) []claim {
	out := []claim{{at: lockBase + int64(p.inJob*maxGPUs), have: j.gpus, n: l.gpus}}
	if l.exact && j.cpus != nil {
		have := min(j.cpus[p.inJob], maxCores)
		out = append(out, claim{at: coreBase + int64(p.inJob*maxCores), have: have, n: min(have, p.tasks*max(1, l.cpus))})
	}
	if n := l.memory(&p); n > 0 && j.memMiB != nil {
		out = append(out, claim{at: memBase + int64(p.inJob)*maxMiB, have: int(min(j.memMiB[p.inJob], maxMiB)), n: int(n), row: true})
	}
	return out
}

// take locks what is claimed and returns its positions; false if not enough
// are free. Locks through one open file do not conflict, so each step opens
// it anew.
func (c *counter) take(x claim) ([]int, bool) {
	if x.row {
		return c.takeRow(x)
	}
	var got []int
	for i := 0; i < x.have && len(got) < x.n; i++ {
		if c.f == nil || c.lock(x, i, unix.F_WRLCK) {
			got = append(got, i)
		}
	}
	if len(got) == x.n {
		return got, true
	}
	c.free(x, got)
	return nil, false
}

// takeRow locks the first n adjacent free bytes, asking the kernel which lock
// conflicts; it returns where they begin.
func (c *counter) takeRow(x claim) ([]int, bool) {
	for at := x.at; at+int64(x.n) <= x.at+int64(x.have); {
		row := unix.Flock_t{Type: unix.F_WRLCK, Start: at, Len: int64(x.n)}
		if c.f == nil || unix.FcntlFlock(c.f.Fd(), unix.F_OFD_SETLK, &row) == nil {
			return []int{int(at - x.at)}, true
		}
		if unix.FcntlFlock(c.f.Fd(), unix.F_OFD_GETLK, &row) != nil || row.Type == unix.F_UNLCK || row.Len <= 0 {
			return nil, false // the conflicting lock is gone: the next try gets it
		}
		at = row.Start + row.Len
	}
	return nil, false
}

func (c *counter) free(x claim, got []int) {
	for _, i := range got {
		if c.f != nil {
			c.lock(x, i, unix.F_UNLCK)
		}
	}
}

func (c *counter) lock(x claim, i int, how int16) bool {
	n := int64(1)
	if x.row {
		n = int64(x.n)
	}
	return unix.FcntlFlock(c.f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: how, Start: x.at + int64(i), Len: n}) == nil
}

// tryAll takes what all places of a step claim, or nothing; it returns their GPUs.
func (c *counter) tryAll(l *layout, j *job) (gpus [][]int, ok bool) {
	type held struct {
		claim
		got []int
	}
	var all []held
	for _, p := range l.places {
		for i, x := range l.claims(p, j) {
			got, ok := c.take(x)
			if !ok {
				for _, h := range all {
					c.free(h.claim, h.got)
				}
				return nil, false
			}
			all = append(all, held{x, got})
			if i == 0 {
				gpus = append(gpus, got)
			}
		}
	}
	return gpus, true
}

// takeAll is tryAll as soon as everything is free.
func (c *counter) takeAll(ctx context.Context, l *layout, j *job, pause func()) ([][]int, error) {
	for first := true; ; first = false {
		if gpus, ok := c.tryAll(l, j); ok {
			return gpus, nil
		}
		if first {
			pause()
		}
		if !wait.Sleep(ctx, 100*time.Millisecond) {
			return nil, context.Cause(ctx)
		}
	}
}
