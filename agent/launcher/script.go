package launcher

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/berth-scheduler/berth/agent/hold"
	"github.com/berth-scheduler/berth/agent/launch"
	"github.com/berth-scheduler/berth/cluster"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
	"github.com/berth-scheduler/berth/proto/conv"
	"github.com/berth-scheduler/berth/proto/conv/plainconv"
)

// scriptName is the name of batch scripts, as in Slurm.
const scriptName = "slurm_script"

// scriptDir returns the directory of what belongs to one attempt: its script, its count of
// steps and its credential. Only root may write to it or list it.
func (la *Launcher) scriptDir(id cluster.AttemptID) string {
	return filepath.Join(la.cfg.Scripts, id.String())
}

// placeScript writes the batch script of an attempt where its user can read it, and makes l
// run it by its first line. We start the interpreter rather than the kernel, since the
// directory may be on a file system mounted noexec.
func (la *Launcher) placeScript(l *launch.Launch, as *nodev1.Assignment) error {
	refuse := func(code int, err error) error { return &launch.Error{Code: code, Reason: "SCRIPT", Err: err} }
	if la.cfg.Scripts == "" {
		return refuse(125, errors.New("this node keeps no batch scripts"))
	}
	script, err := plainconv.UnpackScript(as.Script)
	if err != nil {
		return refuse(125, err)
	}
	if s, ok := hold.Parse(script); ok {
		la.placeHold(l, s.Kept)
		return nil
	}
	args, err := interpreter(script)
	if err != nil {
		return refuse(126, err)
	}
	path, err := la.writeScript(conv.AttemptOf(as), script, as)
	if err != nil {
		return fmt.Errorf("write batch script: %w", err)
	}
	l.Args = append(append(args, path), l.Args[min(1, len(l.Args)):]...)
	if as.Image != "" {
		dir := filepath.Dir(path)
		l.Mounts = append(l.Mounts, launch.Mount{Source: dir, Target: dir, ReadOnly: true, Own: true})
	}
	return la.placeSteps(l) // in an image it is inside what was just mounted
}

// writeScript replaces what a crash may have left of the same attempt.
func (la *Launcher) writeScript(id cluster.AttemptID, script []byte, as *nodev1.Assignment) (string, error) {
	dir := la.scriptDir(id)
	if err := removeDir(dir); err != nil {
		return "", err
	}
	if err := la.makeScriptDir(dir); err != nil {
		return "", err
	}
	path := filepath.Join(dir, scriptName)
	return path, writeFor(path, script, 0o500, as)
}

// makeScriptDir creates the directory of one attempt, if it does not exist.
func (la *Launcher) makeScriptDir(dir string) error {
	if !la.ready.Load() {
		if err := la.makeScripts(); err != nil {
			return err
		}
	}
	err := os.Mkdir(dir, 0o711)
	if errors.Is(err, fs.ErrNotExist) { // somebody cleaned up
		if err := la.makeScripts(); err != nil {
			return err
		}
		err = os.Mkdir(dir, 0o711)
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := os.Chmod(dir, 0o711); err != nil { // whatever the umask
		return err
	}
	return la.room(dir)
}

// makeScripts creates the parent directory of all attempts' directories.
func (la *Launcher) makeScripts() error {
	if err := os.MkdirAll(la.cfg.Scripts, 0o711); err != nil {
		return err
	}
	if err := os.Chmod(la.cfg.Scripts, 0o711); err != nil {
		return err
	}
	la.ready.Store(true)
	return nil
}

// Remove removes what placeScript and placeCredential left, if anything.
func (la *Launcher) Remove(id cluster.AttemptID) error {
	if la.cfg.Scripts == "" {
		return nil
	}
	if err := removeDir(la.scriptDir(id)); err != nil {
		return fmt.Errorf("remove batch script: %w", err)
	}
	return nil
}

// interpreter parses the first line of a script as the kernel does: a program and at most
// one argument, which may contain spaces.
func interpreter(script []byte) ([]string, error) {
	line, _, _ := bytes.Cut(script, []byte("\n"))
	rest, ok := bytes.CutPrefix(line, []byte("#!"))
	rest = bytes.Trim(rest, " \t")
	if !ok || len(rest) == 0 || bytes.IndexByte(rest, 0) >= 0 {
		return nil, errors.New("the first line must name the script's interpreter, such as #!/bin/bash")
	}
	i := bytes.IndexAny(rest, " \t")
	if i < 0 {
		return []string{string(rest)}, nil
	}
	return []string{string(rest[:i]), string(bytes.TrimLeft(rest[i:], " \t"))}, nil
}
