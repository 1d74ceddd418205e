package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// How long to look for the kill after an OOM event: version 1 reports it before it chooses
// a process, and sometimes chooses none.
const (
	oomPatience = time.Second
	oomPoll     = 2 * time.Millisecond
)

// KillOnOOM makes an OOM kill of one process of the group end them all: half a job computes
// nothing, or waits for ever for the dead half. Version 2 does so by itself
// (memory.oom.group); under version 1 a goroutine listens until stop is called, which waits
// for it and returns its error. A kill before the call counts, too.
func (g *Group) KillOnOOM() (stop func() error, err error) {
	if g.h.Unified != "" {
		err := write(filepath.Join(g.h.Unified, g.path), "memory.oom.group", 1)
		if errors.Is(err, fs.ErrNotExist) { // before Linux 4.19
			err = nil
		}
		return func() error { return nil }, err
	}
	events, err := g.oomEvents()
	if err != nil {
		return nil, fmt.Errorf("listen for memory running out: %w", err)
	}
	quit, result := make(chan struct{}), make(chan error, 1)
	go func() { result <- g.killOnEvents(events, quit) }()
	return func() error {
		close(quit)
		// Closing wakes the reader.
		if err := events.Close(); err != nil && !errors.Is(err, fs.ErrClosed) {
			return err
		}
		return <-result
	}, nil
}

// oomEvents returns a file that becomes readable each time the group is out of memory, and
// when the group is removed.
func (g *Group) oomEvents() (*os.File, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, err
	}
	events := os.NewFile(uintptr(fd), "oom events")
	dir := filepath.Join(g.h.Memory, g.path)
	control, err := open(filepath.Join(dir, "memory.oom_control"), unix.O_RDONLY)
	if err != nil {
		return nil, errors.Join(err, events.Close())
	}
	// The kernel needs the second file only to know which events are meant.
	err = writeFile(filepath.Join(dir, "cgroup.event_control"), fmt.Appendf(nil, "%d %d", fd, control))
	if err = errors.Join(err, unix.Close(control)); err != nil {
		return nil, errors.Join(err, events.Close())
	}
	return events, nil
}

func (g *Group) killOnEvents(events *os.File, quit <-chan struct{}) error {
	var count [8]byte
	for patience := time.Duration(0); ; patience = oomPatience {
		killed, gone := g.oomKilled(patience, quit)
		if killed {
			return g.Kill()
		}
		if gone {
			return nil
		}
		if _, err := events.Read(count[:]); err != nil {
			return nil // closed by stop
		}
	}
}

// oomKilled looks for a kill for up to patience, once if it is 0.
func (g *Group) oomKilled(patience time.Duration, quit <-chan struct{}) (killed, gone bool) {
	tick := time.NewTicker(oomPoll)
	defer tick.Stop()
	for end := time.Now().Add(patience); ; {
		switch n, err := g.OOMKills(); {
		case err != nil:
			return false, true
		case n > 0:
			return true, false
		case time.Now().After(end):
			return false, false
		}
		select {
		case <-quit:
			return false, true
		case <-tick.C:
		}
	}
}
