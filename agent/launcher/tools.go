package launcher

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/berth-scheduler/berth/agent/launch"
)

// Tools are the commands that jobs find on this node.
type Tools struct {
	// Exe is Berth's own program, Names those under which jobs written for Slurm find it,
	// ahead of the node's own programs of the same names.
	Exe   string
	Names []string
	// Socket is where jobs reach the cluster from this node, "" if they cannot. It is alone
	// in its directory.
	Socket string
	// ImagesToo lets jobs in images reach the cluster, too, not only host jobs.
	ImagesToo bool
}

const (
	toolsName = "bin"
	stepsName = "steps"
)

// toolsDir is the directory of the links to Tools.Exe, next to the batch scripts: every
// user can reach it.
func (c *Config) toolsDir() string { return filepath.Join(c.Scripts, toolsName) }

// placeTools creates the links, and removes those whose names are no longer configured.
func (c *Config) placeTools() error {
	if c.Scripts == "" || c.Tools.Exe == "" {
		return nil
	}
	dir := c.toolsDir()
	for _, d := range []string{c.Scripts, dir} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return fmt.Errorf("commands for jobs: %w", err)
		}
	}
	if err := errors.Join(os.Chmod(c.Scripts, 0o711), os.Chmod(dir, 0o755)); err != nil { // whatever the umask
		return fmt.Errorf("commands for jobs: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("commands for jobs: %w", err)
	}
	have := map[string]bool{}
	for _, e := range entries {
		to, err := os.Readlink(filepath.Join(dir, e.Name()))
		if err == nil && to == c.Tools.Exe {
			have[e.Name()] = true
		}
	}
	for _, name := range c.Tools.Names {
		if have[name] {
			continue
		}
		// A job may run it at any time, so it is replaced atomically.
		link := filepath.Join(dir, "."+name)
		if err := os.Remove(link); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("commands for jobs: %w", err)
		}
		if err := errors.Join(os.Symlink(c.Tools.Exe, link), os.Rename(link, filepath.Join(dir, name))); err != nil {
			return fmt.Errorf("commands for jobs: %w", err)
		}
	}
	return nil
}

// imageTools gives a job in an image the commands, and access to the cluster where it is
// allowed.
func (la *Launcher) imageTools(l *launch.Launch) {
	t := la.cfg.Tools
	if la.cfg.Scripts == "" || t.Exe == "" || l.Image == "" {
		return
	}
	l.Commands = t.Names
	if t.Socket != "" && t.ImagesToo {
		dir := filepath.Dir(t.Socket)
		l.Mounts = append(l.Mounts, launch.Mount{Source: dir, Target: dir, ReadOnly: true, Own: true})
		l.Env = launch.Environ(l.Env, []string{"BERTH_SOCKET=" + t.Socket})
	}
}

// toolsEnv puts the links first in PATH, and sets the variables that they need. Jobs in
// images have their own root without them, see imageTools.
func (la *Launcher) toolsEnv(env []string, image string) []string {
	if la.cfg.Scripts == "" || la.cfg.Tools.Exe == "" || image != "" {
		return env
	}
	path := ""
	for _, line := range env {
		if len(line) > 5 && line[:5] == "PATH=" {
			path = ":" + line[5:]
		}
	}
	more := []string{"PATH=" + la.cfg.toolsDir() + path}
	if la.cfg.Tools.Socket != "" {
		more = append(more, "BERTH_SOCKET="+la.cfg.Tools.Socket)
	}
	return launch.Environ(env, more)
}

// placeSteps creates the file in which a job counts its steps, owned by its user.
func (la *Launcher) placeSteps(l *launch.Launch) error {
	path := filepath.Join(la.scriptDir(l.ID), stepsName)
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil && (l.UID != uint32(os.Getuid()) || l.GID != uint32(os.Getgid())) {
		err = f.Chown(int(l.UID), int(l.GID))
	}
	if err != nil {
		return fmt.Errorf("count of steps: %w", err)
	}
	l.Env = append(l.Env, "BERTH_STEPS="+path)
	if l.Image != "" {
		l.Mounts = append(l.Mounts, launch.Mount{Source: path, Target: path, Own: true})
	}
	return f.Close()
}
