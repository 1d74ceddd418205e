package asuser

import (
	"errors"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// ErrProc says that a path leads into or through /proc, which describes us and not the user:
// /proc/self is this process to whatever opens it, and a link below it bypasses every directory
// that the user may not enter, to files that are open here for others.
var ErrProc = errors.New("leads through /proc, or through too many links; name the file itself")

// Open opens a path chosen by a user. It never blocks, as it would for a FIFO, and follows
// links where the user may go, but no link of /proc, even if one of the user's links leads
// there. Call it inside Do, or as the user.
func Open(path string, flags int) (*os.File, error) {
	fd, err := openFD(path, flags)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), path), nil
}

func openFD(path string, flags int) (int, error) {
	fd, err := openNoMagic(path, flags|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC)
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) { // some sandboxes return EPERM instead
		fd, err = openTwice(path, flags|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC)
	}
	if errors.Is(err, unix.ELOOP) {
		err = ErrProc
	}
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: path, Err: err}
	}
	var st unix.Statfs_t
	if err = unix.Fstatfs(fd, &st); err == nil {
		err = special(&st)
	}
	if err != nil {
		return -1, errors.Join(&os.PathError{Op: "open", Path: path, Err: err}, unix.Close(fd))
	}
	return fd, nil
}

// ErrKernel says that a file is not stored anywhere, but is an interface of the kernel.
var ErrKernel = errors.New("lies on a file system that controls the kernel, such as /sys; name a file elsewhere")

// special rejects files that are interfaces of the kernel. What may be written there depends
// also on who opened the file: a process with a descriptor from us, who are root, could do more
// than its user may.
func special(st *unix.Statfs_t) error {
	switch int64(st.Type) {
	case unix.PROC_SUPER_MAGIC:
		return ErrProc
	case unix.SYSFS_MAGIC, unix.CGROUP_SUPER_MAGIC, unix.CGROUP2_SUPER_MAGIC, unix.DEBUGFS_MAGIC, unix.TRACEFS_MAGIC,
		unix.SECURITYFS_MAGIC, unix.SELINUX_MAGIC, unix.SMACK_MAGIC, unix.BPF_FS_MAGIC, unix.BINDERFS_SUPER_MAGIC,
		unix.EFIVARFS_MAGIC, unix.PSTOREFS_MAGIC, unix.NSFS_MAGIC, unix.RDTGROUP_SUPER_MAGIC, unix.XENFS_SUPER_MAGIC, configfsMagic:
		return ErrKernel
	}
	return nil
}

const configfsMagic = 0x62656570

func mode(flags int) uint32 {
	if flags&unix.O_CREAT != 0 {
		return 0o644
	}
	return 0
}

func openNoMagic(path string, flags int) (int, error) {
	return unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{
		Flags: uint64(flags), Mode: uint64(mode(flags)), Resolve: unix.RESOLVE_NO_MAGICLINKS,
	})
}

// openTwice is openNoMagic before Linux 5.6: what was opened must be found again under the
// kernel's name for it. A file that is renamed meanwhile is an error.
func openTwice(path string, flags int) (int, error) {
	fd, err := unix.Open(path, flags&^unix.O_TRUNC, mode(flags))
	if err != nil {
		return -1, err
	}
	again, err := reopen(fd, flags&^unix.O_CREAT)
	return again, errors.Join(err, unix.Close(fd))
}

func reopen(fd, flags int) (int, error) {
	name, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
	if err != nil {
		return -1, err
	}
	var was, is unix.Stat_t
	if err := unix.Fstat(fd, &was); err != nil {
		return -1, err
	}
	again, err := unix.Open(name, flags&^unix.O_TRUNC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return -1, err
	}
	err = unix.Fstat(again, &is)
	if err == nil && (was.Dev != is.Dev || was.Ino != is.Ino) {
		err = ErrProc
	}
	if err == nil && flags&unix.O_TRUNC != 0 && is.Mode&unix.S_IFMT == unix.S_IFREG {
		err = unix.Ftruncate(again, 0)
	}
	if err != nil {
		return -1, errors.Join(err, unix.Close(again))
	}
	return again, nil
}
