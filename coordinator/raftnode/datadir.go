package raftnode

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	lockFile     = "lock"
	identityFile = "cluster-id"
)

// dataDir is a node's directory, locked against other processes.
type dataDir struct {
	path string
	lock *os.File
	// fresh means that the directory was never a node's: it has no identity.
	fresh bool
}

// openDir creates or checks the directory, locks it and compares its identity.
func openDir(path, clusterID, nodeID string) (*dataDir, error) {
	if err := prepareDir(path); err != nil {
		return nil, err
	}
	if err := checkFilesystem(path, unix.Statfs); err != nil {
		return nil, err
	}
	lock, err := lockDir(path)
	if err != nil {
		return nil, err
	}
	d := &dataDir{path: path, lock: lock}
	if err := d.identify(clusterID, nodeID); err != nil {
		return nil, errors.Join(err, d.close())
	}
	return d, nil
}

// prepareDir creates path with mode 0700, or removes others' permissions on it.
func prepareDir(path string) error {
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make data directory: %w", err)
	}
	info, err := os.Lstat(path)
	if err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		return fmt.Errorf("data directory %s is a symbolic link; name the directory it leads to", path)
	case !info.IsDir():
		return fmt.Errorf("data directory %s is not a directory", path)
	case info.Mode().Perm()&0o077 != 0:
		if err := os.Chmod(path, 0o700); err != nil {
			return fmt.Errorf("data directory %s is open to other users and that cannot be changed: %w", path, err)
		}
	}
	if err := unix.Access(path, unix.W_OK|unix.X_OK); err != nil {
		return fmt.Errorf("data directory %s is not writable by uid %d: %w", path, os.Geteuid(), err)
	}
	return nil
}

// checkFilesystem refuses network file systems: their locks and fsyncs do not give
// the guarantees that the log needs.
func checkFilesystem(path string, statfs func(string, *unix.Statfs_t) error) error {
	var st unix.Statfs_t
	if err := statfs(path, &st); err != nil {
		return fmt.Errorf("data directory %s: statfs: %w", path, err)
	}
	const cifs, smb2, lustre, ceph = 0xFF534D42, 0xFE534D42, 0x0BD00BD0, 0x00C36400
	names := map[uint32]string{
		unix.NFS_SUPER_MAGIC: "NFS", unix.SMB_SUPER_MAGIC: "SMB", cifs: "CIFS", smb2: "SMB",
		unix.AFS_SUPER_MAGIC: "AFS", lustre: "Lustre", ceph: "CephFS",
	}
	if name, bad := names[uint32(st.Type)]; bad {
		return fmt.Errorf("data directory %s is on %s; the Raft log needs a local disk: move it and change the configuration", path, name)
	}
	return nil
}

// lockDir takes the lock, which the process holds until it ends.
func lockDir(path string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(path, lockFile), os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock data directory: %w", err)
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = fmt.Errorf("data directory %s is in use by another process; stop it first", path)
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("lock data directory: %w", err)
	}
	return f, nil
}

// identify compares the identity file, if there is one.
func (d *dataDir) identify(clusterID, nodeID string) error {
	name := filepath.Join(d.path, identityFile)
	got, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		d.fresh = true
		return nil
	}
	if err != nil {
		return fmt.Errorf("read identity: %w", err)
	}
	cluster, node, err := parseIdentity(string(got))
	switch {
	case err != nil:
		return &CorruptError{File: name, What: err.Error(), Remedy: fmt.Sprintf(remedyRejoin, d.path)}
	case cluster != clusterID:
		return fmt.Errorf("%s: the directory belongs to cluster %q, this is %q; give each cluster its own directory", name, cluster, clusterID)
	case node != nodeID:
		return fmt.Errorf("%s: the directory belongs to coordinator %q, this is %q; a directory must not move between coordinators", name, node, nodeID)
	}
	return nil
}

// parseIdentity reads what writeIdentity wrote.
func parseIdentity(s string) (cluster, node string, err error) {
	lines := strings.Split(s, "\n")
	if len(lines) != 3 || lines[2] != "" {
		return "", "", errors.New("should be two lines")
	}
	cluster, ok1 := strings.CutPrefix(lines[0], "cluster ")
	node, ok2 := strings.CutPrefix(lines[1], "node ")
	if !ok1 || !ok2 || cluster == "" || node == "" {
		return "", "", errors.New("should be «cluster ID» and «node ID»")
	}
	return cluster, node, nil
}

// writeIdentity marks the directory as a node's. It is the last step of its
// creation: a directory without identity was never in use.
func (d *dataDir) writeIdentity(clusterID, nodeID string) error {
	if strings.ContainsAny(clusterID+nodeID, "\n") {
		return errors.New("cluster_id and id must be one line each")
	}
	name := filepath.Join(d.path, identityFile)
	if err := writeSynced(name+".tmp", []byte("cluster "+clusterID+"\nnode "+nodeID+"\n")); err != nil {
		return fmt.Errorf("write identity: %w", err)
	}
	if err := os.Rename(name+".tmp", name); err != nil {
		return fmt.Errorf("write identity: %w", err)
	}
	// This makes the log file's name durable too.
	if err := syncDir(d.path); err != nil {
		return fmt.Errorf("write identity: %w", err)
	}
	return syncDir(filepath.Dir(d.path))
}

func writeSynced(name string, data []byte) error {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Sync(), f.Close())
}

func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// close releases the lock.
func (d *dataDir) close() error { return d.lock.Close() }
