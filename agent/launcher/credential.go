package launcher

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/berth-scheduler/berth/agent/launch"
	"github.com/berth-scheduler/berth/cluster"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

// credentialName is the file of a job's credential, next to its script.
const credentialName = "credential"

// placeCredential writes the credential of an attempt where its user alone can read it and
// nobody can change it, and tells the job where. It is removed with the script. Jobs in
// images without access to the cluster get none.
func (la *Launcher) placeCredential(l *launch.Launch, as *nodev1.Assignment) error {
	reach := as.Image == "" || len(as.Script) > 0 && la.cfg.Tools.ImagesToo && la.cfg.Tools.Socket != ""
	if as.Credential == "" || la.cfg.Scripts == "" || !reach {
		return nil
	}
	dir := la.scriptDir(conv.AttemptOf(as))
	if err := la.makeScriptDir(dir); err != nil {
		return err
	}
	path := filepath.Join(dir, credentialName)
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) { // a crash may have left it
		return err
	}
	if err := writeFor(path, []byte(as.Credential+"\n"), 0o400, as); err != nil {
		return err
	}
	l.Env = launch.Environ(l.Env, []string{cluster.CredentialVar + "=" + path})
	if as.Image != "" {
		l.Mounts = append(l.Mounts, launch.Mount{Source: path, Target: path, ReadOnly: true, Own: true})
	}
	return nil
}

// writeFor creates a file owned by the attempt's user that has its final mode before its
// content.
func writeFor(path string, data []byte, mode fs.FileMode, as *nodev1.Assignment) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Chmod(mode)
	}
	if err == nil && (as.Uid != uint32(os.Getuid()) || as.Gid != uint32(os.Getgid())) {
		err = f.Chown(int(as.Uid), int(as.Gid))
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}
