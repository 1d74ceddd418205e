package containerdrt

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/berth-scheduler/berth/agent/jobside"
	"github.com/berth-scheduler/berth/agent/launch"
)

// imageArgs returns the argument vector of an image job, and what must be mounted for it:
// several processes are run by berth-job, and our commands are berth. Programs that need
// libraries are called through their own loader, since an image may have none or another;
// the loader is placed next to the libraries, and the image keeps its own.
func (b *builder) imageArgs(l *launch.Launch) (args []string, mounts []specs.Mount, err error) {
	if l.Ranks == nil && len(l.Commands) == 0 {
		return l.Args, nil, nil
	}
	libs, err := libraries(b.cfg.Inside)
	if err != nil {
		return nil, nil, fmt.Errorf("find the libraries of %s: %w", b.cfg.Inside, err)
	}
	mount := func(at, from string) {
		mounts = append(mounts, specs.Mount{Destination: at, Type: "bind", Source: from, Options: []string{"bind", "ro", "nosuid", "nodev"}})
	}
	for at, from := range libs {
		if !strings.HasPrefix(at, jobside.Libraries+"/") {
			at = jobside.Loader
		}
		mount(at, from)
	}
	mount(jobside.Binary, b.cfg.Inside)
	if len(l.Commands) > 0 {
		mount(jobside.Program, b.cfg.Program)
		dir, err := b.placeCommands(l.Commands)
		if err != nil {
			return nil, nil, fmt.Errorf("commands for image jobs: %w", err)
		}
		mount(jobside.Commands, dir)
	}
	if l.Ranks == nil {
		return l.Args, mounts, nil
	}
	return append(ownCommand(mounts), l.RankArgs("")[1:]...), mounts, nil
}

// ownCommand returns how to call our own binary in a container with these mounts; nil if it
// is not there.
func ownCommand(mounts []specs.Mount) []string {
	has := func(at string) bool {
		return slices.ContainsFunc(mounts, func(m specs.Mount) bool { return m.Destination == at })
	}
	switch {
	case !has(jobside.Binary):
		return nil
	case has(jobside.Loader):
		return []string{jobside.Loader, "--library-path", jobside.Libraries, jobside.Binary}
	}
	return []string{jobside.Binary}
}

// commandScript runs a command of ours in an image. A link would not do: the kernel would
// look for the loader in the image. Jobs started by an agent from when there was only one
// program continue to use that.
const commandScript = `#!/bin/sh
berth=` + jobside.Program + `
[ -e $berth ] || berth=` + jobside.Binary + `
[ -e ` + jobside.Loader + ` ] && exec ` + jobside.Loader + ` --library-path ` + jobside.Libraries + ` $berth %[1]s"$@"
exec $berth %[1]s"$@"
`

// placeCommands creates the directory of commands that image jobs find, and returns its
// path. Running jobs may use it: files are replaced atomically.
func (b *builder) placeCommands(names []string) (string, error) {
	dir := filepath.Join(b.cfg.Dir, "commands")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	if err := os.Chmod(dir, 0o755); err != nil { // whatever the umask
		return "", err
	}
	for _, name := range names {
		verb := name + " "
		if name == "berth" {
			verb = ""
		}
		text, at := fmt.Sprintf(commandScript, verb), filepath.Join(dir, name)
		have, err := os.ReadFile(at)
		if err == nil && string(have) == text {
			continue
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		f, err := os.CreateTemp(dir, ".new-*")
		if err != nil {
			return "", err
		}
		_, err = f.WriteString(text)
		if err = errors.Join(err, f.Chmod(0o755), f.Close()); err == nil {
			err = os.Rename(f.Name(), at)
		}
		if err != nil {
			return "", errors.Join(err, os.Remove(f.Name()))
		}
	}
	return dir, nil
}

// commandsFirst puts our commands first in PATH.
func commandsFirst(l *launch.Launch, env []string) []string {
	if len(l.Commands) == 0 || l.Image == "" {
		return env
	}
	for i, line := range env {
		if rest, ok := strings.CutPrefix(line, "PATH="); ok {
			env[i] = "PATH=" + jobside.Commands + ":" + rest
		}
	}
	return env
}
