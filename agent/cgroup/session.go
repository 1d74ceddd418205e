package cgroup

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	killTries = 100
	killPause = 10 * time.Millisecond
)

// Has reports whether a process is in the group.
func (g *Group) Has(pid int) bool {
	pids, err := g.procs()
	if err != nil {
		return false
	}
	return slices.Contains(pids, pid)
}

// KillSession kills the processes of a session that are in the group, and waits until they
// are gone. The kernel does not reuse a session id while one of its processes lives, and
// processes outside the group are never killed.
func (g *Group) KillSession(session int) error {
	for range killTries {
		pids, err := g.procs()
		if err != nil {
			return err
		}
		found := false
		for _, pid := range pids {
			data, err := readFile(fmt.Sprintf("/proc/%d/stat", pid))
			if err != nil {
				continue // it has ended
			}
			if s, alive := readSession(string(data)); !alive || s != session {
				continue
			}
			found = true
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				return fmt.Errorf("end a process of session %d: %w", session, err)
			}
		}
		if !found {
			return nil
		}
		time.Sleep(killPause)
	}
	return fmt.Errorf("processes of session %d in %s do not end", session, g.path)
}

// readSession parses the state and the session in proc_pid_stat(5): the third and the sixth
// field, after a name that may contain anything. A zombie is not alive.
func readSession(stat string) (session int, alive bool) {
	i := strings.LastIndexByte(stat, ')')
	if i < 0 {
		return 0, false
	}
	f := strings.Fields(stat[i+1:])
	if len(f) < 4 || f[0] == "Z" || f[0] == "X" {
		return 0, false
	}
	session, err := strconv.Atoi(f[3])
	return session, err == nil
}
