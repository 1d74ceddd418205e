package launcher

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/berth-scheduler/berth/agent/launch"
	"github.com/berth-scheduler/berth/cluster"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// progressName is the file in which a job reports its progress, next to its script.
const progressName = "progress"

// ProgressFile returns the path of the file in which an attempt reports its progress.
func (la *Launcher) ProgressFile(id cluster.AttemptID) string {
	return filepath.Join(la.scriptDir(id), progressName)
}

// placeProgress creates the file in which a job reports its progress. It belongs to the
// job's user, who can write to it but not replace it.
func (la *Launcher) placeProgress(l *launch.Launch, as *nodev1.Assignment) error {
	if la.cfg.Scripts == "" {
		return nil
	}
	path := la.ProgressFile(l.ID)
	if err := la.makeScriptDir(filepath.Dir(path)); err != nil {
		return err
	}
	if err := os.RemoveAll(path); err != nil { // a crash may have left it
		return err
	}
	if err := writeFor(path, nil, 0o600, as); err != nil {
		return fmt.Errorf("file for progress: %w", err)
	}
	l.Env = launch.Environ(l.Env, []string{cluster.ProgressVar + "=" + path})
	if as.Image != "" {
		l.Mounts = append(l.Mounts, launch.Mount{Source: path, Target: path, Own: true})
	}
	return nil
}
