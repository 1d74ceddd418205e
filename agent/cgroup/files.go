package cgroup

import (
	"errors"
	"io/fs"

	"golang.org/x/sys/unix"
)

// The kernel's control group files are read and written with bare system calls: package os
// would register each with the runtime's poller, which costs four more system calls per
// file, and a job's life involves thirty of them.

// mostRead bounds what is read of one file: the lists of a group's processes are the
// longest.
const mostRead = 16 << 20

// readFile is os.ReadFile for kernel files.
func readFile(path string) ([]byte, error) {
	fd, err := open(path, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	out := make([]byte, 0, 512)
	for {
		n, err := uninterrupted(func() (int, error) { return unix.Read(fd, out[len(out):cap(out)]) })
		if err != nil {
			return out, &fs.PathError{Op: "read", Path: path, Err: err}
		}
		if out = out[:len(out)+n]; n == 0 || len(out) >= mostRead {
			return out, nil
		}
		if len(out) == cap(out) {
			out = append(out, 0)[:len(out)]
		}
	}
}

// writeFile writes a file in one call, as kernel files require.
func writeFile(path string, data []byte) error {
	fd, err := open(path, unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC)
	if err != nil {
		return err
	}
	_, err = uninterrupted(func() (int, error) { return unix.Write(fd, data) })
	if err = errors.Join(err, unix.Close(fd)); err != nil {
		return &fs.PathError{Op: "write", Path: path, Err: err}
	}
	return nil
}

// rmdir removes a directory: a group, with all files that the kernel shows in it.
func rmdir(path string) error {
	if _, err := uninterrupted(func() (int, error) { return 0, unix.Rmdir(path) }); err != nil {
		return &fs.PathError{Op: "rmdir", Path: path, Err: err}
	}
	return nil
}

func open(path string, flags int) (int, error) {
	fd, err := uninterrupted(func() (int, error) { return unix.Open(path, flags|unix.O_CLOEXEC, ownFile) })
	if err != nil {
		return 0, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return fd, nil
}

func uninterrupted(call func() (int, error)) (int, error) {
	for {
		if n, err := call(); !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}
