package launcher

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// RoomMiB is how much the files of one attempt can take where they have a room of their own,
// in MiB: a script, a credential, and what the job says of its progress until that is read.
const RoomMiB = 64

// room gives the directory of an attempt a file system of its own, unless it has one. The
// files in it are of the job's user, who can let them grow: in the node's own, as /run, the
// first to fill it would be in everybody's way.
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

// isRoom reports whether another file system begins at dir.
func isRoom(dir string) (bool, error) {
	var here, above unix.Stat_t
	if err := errors.Join(unix.Lstat(dir, &here), unix.Lstat(filepath.Dir(dir), &above)); err != nil {
		return false, fmt.Errorf("look at %s: %w", dir, err)
	}
	return here.Dev != above.Dev, nil
}

// leaveRoom takes away what room mounted. A process that has a file of it open keeps that
// alone.
func leaveRoom(dir string) error {
	for {
		switch err := unix.Unmount(dir, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); {
		case err == nil: // there may be another one below, of an agent that was ended in between
		case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOENT), errors.Is(err, unix.EPERM):
			return nil // nothing is mounted there, or nothing may be
		default:
			return &os.PathError{Op: "unmount", Path: dir, Err: err}
		}
	}
}

// CanRoom reports why attempts cannot have rooms of their own below a directory, which it
// makes: an agent that is root in a container may not mount.
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

// floor gives the directories of attempts a file system in memory, too, where they would be on
// a disk, which looks for a place for each, and nothing is there yet.
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

// removeDir removes a directory of an attempt with its room.
func removeDir(dir string) error {
	if err := leaveRoom(dir); err != nil {
		return err
	}
	return os.RemoveAll(dir)
}

// LeaveRooms takes away what was mounted at and below a directory, whose jobs have ended:
// for clusters that go with their directory.
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
