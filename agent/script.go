package agent

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/berth-scheduler/berth/agent/hold"
	"github.com/berth-scheduler/berth/cluster"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

// scriptName is what batch scripts are called, as under Slurm.
const scriptName = "slurm_script"

// scriptDir holds what belongs to one attempt. Nobody but root may write to
// it or list it.
func (a *Agent) scriptDir(id cluster.AttemptID) string {
	return filepath.Join(a.cfg.Scripts, id.String())
}

// placeScript writes the batch script of an attempt where its user can read
// it, and makes l run it by its first line. The interpreter is started by us
// and not by the kernel, since the directory may be on a file system from
// which nothing is executed.
func (a *Agent) placeScript(l *Launch, as *nodev1.Assignment) error {
	refuse := func(code int, err error) error { return &LaunchError{Code: code, Reason: "SCRIPT", Err: err} }
	if a.cfg.Scripts == "" {
		return refuse(125, errors.New("this node keeps no batch scripts"))
	}
	script, err := conv.UnpackScript(as.Script)
	if err != nil {
		return refuse(125, err)
	}
	if s, ok := hold.Parse(script); ok {
		a.placeHold(l, s.Kept)
		return nil
	}
	args, err := interpreter(script)
	if err != nil {
		return refuse(126, err)
	}
	path, err := a.writeScript(conv.AttemptOf(as), script, as)
	if err != nil {
		return fmt.Errorf("write batch script: %w", err)
	}
	l.Args = append(append(args, path), l.Args[min(1, len(l.Args)):]...)
	if as.Image != "" {
		dir := filepath.Dir(path)
		l.Mounts = append(l.Mounts, Mount{Source: dir, Target: dir, ReadOnly: true, Own: true})
	}
	return a.placeSteps(l) // in an image it lies in what is mounted just now
}

// writeScript replaces what a crash may have left of the same attempt.
func (a *Agent) writeScript(id cluster.AttemptID, script []byte, as *nodev1.Assignment) (string, error) {
	dir := a.scriptDir(id)
	if err := os.RemoveAll(dir); err != nil {
		return "", err
	}
	for _, d := range []string{a.cfg.Scripts, dir} {
		if err := os.MkdirAll(d, 0o711); err != nil {
			return "", err
		}
		if err := os.Chmod(d, 0o711); err != nil { // whatever the umask
			return "", err
		}
	}
	path := filepath.Join(dir, scriptName)
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", err
	}
	_, err = f.Write(script)
	if err == nil {
		err = f.Chmod(0o500)
	}
	if err == nil && (as.Uid != uint32(os.Getuid()) || as.Gid != uint32(os.Getgid())) {
		err = f.Chown(int(as.Uid), int(as.Gid))
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return path, err
}

// removeScript removes what placeScript left; without that it does nothing.
func (a *Agent) removeScript(id cluster.AttemptID) error {
	if a.cfg.Scripts == "" {
		return nil
	}
	if err := os.RemoveAll(a.scriptDir(id)); err != nil {
		return fmt.Errorf("remove batch script: %w", err)
	}
	return nil
}

// interpreter reads the first line of a script as the kernel does: a program
// and at most one argument, which may hold spaces.
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
