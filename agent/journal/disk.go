package journal

import (
	"errors"
	"io"
	"os"
	"syscall"
)

// disk is what a journal does to the file system, in order: tests check the order, and end the
// process between any two steps.
type disk interface {
	// create creates an empty file for appending.
	create(path string) (file, error)
	rename(from, to string) error
	remove(path string) error
	// syncDir returns when the names in a directory are on disk.
	syncDir(dir string) error
}

// file is a file being written. What was written is on disk when Sync returns.
type file interface {
	io.Writer
	Sync() error
	Close() error
}

// realDisk is the machine's file system.
type realDisk struct{}

func (realDisk) create(path string) (file, error) {
	return os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY|os.O_APPEND, 0o600)
}

func (realDisk) rename(from, to string) error { return os.Rename(from, to) }

func (realDisk) remove(path string) error { return os.Remove(path) }

func (realDisk) syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// noRoom reports whether an error says that the disk or a quota is full.
func noRoom(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }
