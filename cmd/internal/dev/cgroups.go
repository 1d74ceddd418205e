package dev

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/berth-scheduler/berth/agent/launcher"
)

// removeGroups removes the cluster's control groups from every hierarchy of
// this machine. They are empty by now: only their directories are left.
func (o *Options) removeGroups() error {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	var errs []error
	for line := range strings.Lines(string(data)) {
		pre, post, ok := strings.Cut(line, " - ")
		fields, super := strings.Fields(pre), strings.Fields(post)
		if !ok || len(fields) < 5 || len(super) < 1 || super[0] != "cgroup" && super[0] != "cgroup2" {
			continue
		}
		top := filepath.Join(fields[4], filepath.Dir(o.cgroupParent("n")))
		errs = append(errs, removeEmpty(top))
		// The directory of all development clusters stays while there are others.
		_ = os.Remove(filepath.Dir(top))
	}
	return errors.Join(errs...)
}

// removeEmpty removes a tree of directories, deepest first. A control group's
// files go with its directory.
func removeEmpty(top string) error {
	var dirs []string
	err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			dirs = append(dirs, path)
		}
		return nil
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, d := range slices.Backward(dirs) {
		if rmErr := os.Remove(d); rmErr != nil && !errors.Is(rmErr, fs.ErrNotExist) {
			err = errors.Join(err, rmErr)
		}
	}
	return err
}

// leaveRooms unmounts what agents mounted for the files of jobs whose end they did not see.
func (c *Cluster) leaveRooms() error {
	var errs []error
	if c.files != nil {
		for _, d := range c.files.agents {
			errs = append(errs, launcher.LeaveRooms(filepath.Join(c.files.dir, d.name+"-scripts")))
		}
	}
	return errors.Join(errs...)
}
