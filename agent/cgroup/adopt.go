package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// Adopt moves a process started elsewhere into the group, in every hierarchy in which the
// group's own processes are limited; what it starts from then on is there, too. The group
// must exist.
func (g *Group) Adopt(pid int) error {
	for _, m := range g.h.Others {
		if base := filepath.Base(m); base == "devices" || base == "freezer" {
			if d := filepath.Join(m, g.path); isDir(d) {
				if err := write(d, "cgroup.procs", int64(pid)); err != nil {
					return fmt.Errorf("move process %d: %w", pid, err)
				}
			}
		}
	}
	for _, d := range slices.Concat(g.dirs(), g.extra()) {
		if err := write(d, "cgroup.procs", int64(pid)); err != nil {
			return fmt.Errorf("move process %d: %w", pid, err)
		}
	}
	return nil
}

func isDir(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.IsDir()
}
