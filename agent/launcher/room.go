package launcher

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// RoomMiB is the size in MiB of an attempt's own file system, if it has one. Its files are
// a script, a credential, and what the job reports of its progress until that is read.
const RoomMiB = 64

// room gives the directory of an attempt a file system of its own, unless it has one. The
// files in it belong to the job's user, who can let them grow: on the node's own, such as
// /run, the first job to fill it would block all others.
func (la *Launcher) room(dir string) error {
	if !la.cfg.Rooms {
		return nil
	}
	if there, err := isRoom(dir); err != nil || there {
		return err
	}
	return makeRoom(dir)
}

func makeRoom(dir string) error {
	return mountTmpfs(dir, fmt.Sprintf("size=%dm,nr_inodes=64,mode=0711", RoomMiB))
}

func mountTmpfs(dir, options string) error {
	if err := unix.Mount("berth", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		return &os.PathError{Op: "mount a file system of its own at", Path: dir, Err: err}
	}
	return nil
}

// isRoom reports whether dir is the root of another file system.
func isRoom(dir string) (bool, error) {
	var here, above unix.Stat_t
	if err := errors.Join(unix.Lstat(dir, &here), unix.Lstat(filepath.Dir(dir), &above)); err != nil {
		return false, fmt.Errorf("look at %s: %w", dir, err)
	}
	return here.Dev != above.Dev, nil
}

// leaveRoom unmounts what room mounted. A process that has one of its files open keeps only
// that.
func leaveRoom(dir string) error {
	for {
		switch err := unix.Unmount(dir, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); {
		case err == nil: // there may be another one below, from an agent that was ended in between
		case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOENT), errors.Is(err, unix.EPERM):
			return nil // nothing is mounted there, or mounting is not allowed
		default:
			return &os.PathError{Op: "unmount", Path: dir, Err: err}
		}
	}
}

// CanRoom reports why attempts cannot have file systems of their own below a directory,
// which it creates: an agent that is root in a container may not mount.
func CanRoom(scripts string) error {
	if err := os.MkdirAll(scripts, 0o711); err != nil {
		return err
	}
	if err := floor(scripts); err != nil {
		return err
	}
	dir := filepath.Join(scripts, ".room")
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return err
	}
	err := makeRoom(dir)
	return errors.Join(err, leaveRoom(dir), os.Remove(dir))
}

// floor also gives the parent of the attempts' directories a file system in memory, if it
// is still empty and would be on a disk, which would have to allocate each of them.
func floor(scripts string) error {
	var fs unix.Statfs_t
	if err := unix.Statfs(scripts, &fs); err != nil || fs.Type == unix.TMPFS_MAGIC {
		return err
	}
	entries, err := os.ReadDir(scripts)
	if err != nil || len(entries) > 0 {
		return err
	}
	return mountTmpfs(scripts, fmt.Sprintf("size=%dm,mode=0711", RoomMiB))
}

// removeDir removes a directory of an attempt and its own file system.
func removeDir(dir string) error {
	if err := leaveRoom(dir); err != nil {
		return err
	}
	return os.RemoveAll(dir)
}

// LeaveRooms unmounts everything at and below a directory whose jobs have ended: for
// clusters that are removed with their directory.
func LeaveRooms(scripts string) error {
	entries, err := os.ReadDir(scripts)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		err = errors.Join(err, leaveRoom(filepath.Join(scripts, e.Name())))
	}
	return errors.Join(err, leaveRoom(scripts))
}
