package containerdrt

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/berth-scheduler/berth/agent/jobside"
	"github.com/berth-scheduler/berth/cluster"
)

// A host job sees the node's own file system. Its root is a directory of our own into which
// each top-level directory of the node is bound, in the container's mount namespace:
// nothing is mounted outside it, so nothing is left to unmount when a shim dies, and
// removing the directory can never reach the node's files.

// ownMounts are top-level directories for which a container has its own.
var ownMounts = map[string]struct{}{"proc": {}, "sys": {}, "dev": {}, "lost+found": {}}

// hostRoots creates the roots of host jobs.
type hostRoots struct {
	cfg     *Config
	records records
}

func (h hostRoots) dir(id cluster.AttemptID) string {
	return filepath.Join(h.cfg.Dir, "roots", id.String())
}

// make creates the root of an attempt and returns it and its mounts.
func (h hostRoots) make(id cluster.AttemptID) (dir string, mounts []specs.Mount, err error) {
	dir = h.dir(id)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", nil, err
	}
	entries, err := os.ReadDir("/")
	if err != nil {
		return "", nil, err
	}
	for _, e := range entries {
		if _, own := ownMounts[e.Name()]; own {
			continue
		}
		path := filepath.Join("/", e.Name())
		switch {
		case e.Type()&fs.ModeSymlink != 0: // /bin → usr/bin
			target, err := os.Readlink(path)
			if err != nil {
				return "", nil, err
			}
			if err := os.Symlink(target, filepath.Join(dir, e.Name())); err != nil && !errors.Is(err, fs.ErrExist) {
				return "", nil, err
			}
		case e.IsDir():
			mounts = append(mounts, specs.Mount{Destination: path, Type: "bind", Source: path, Options: []string{"rbind", "rslave"}})
		}
	}
	helper, err := h.helperMounts(id)
	return dir, append(mounts, helper...), err
}

// helperMounts mounts into a host job our own binary, wherever it is and whatever its
// permissions, and the helper's instructions.
func (h hostRoots) helperMounts(id cluster.AttemptID) ([]specs.Mount, error) {
	if err := os.MkdirAll(filepath.Join(h.dir(id), jobside.Dir), 0o755); err != nil {
		return nil, err
	}
	var mounts []specs.Mount
	for _, m := range []struct{ name, source string }{{jobside.Binary, h.cfg.Inside}, {jobside.File, h.records.file(id, kindHelper)}} {
		point := filepath.Join(h.dir(id), m.name)
		if err := os.WriteFile(point, nil, 0o600); err != nil {
			return nil, err
		}
		mounts = append(mounts, specs.Mount{Destination: m.name, Type: "bind", Source: m.source, Options: []string{"bind", "ro", "nosuid", "nodev"}})
	}
	return mounts, nil
}

// remove removes the root of an attempt: only links and empty directories.
func (h hostRoots) remove(id cluster.AttemptID) error {
	dir := h.dir(id)
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	points := []string{filepath.Join(dir, jobside.Binary), filepath.Join(dir, jobside.File)}
	others, _ := filepath.Glob(filepath.Join(dir, probeOther) + "*") // left by a probe
	for _, point := range append(points, others...) {
		if err := os.Remove(point); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove root of %s: %w", id, err)
		}
	}
	for _, e := range entries {
		if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
			return fmt.Errorf("remove root of %s: %w", id, err)
		}
	}
	return os.Remove(dir)
}
