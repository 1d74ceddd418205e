// Package asuser performs file operations with a user's own rights, so that links cannot
// mislead a root daemon and a home on NFS with root_squash works.
package asuser

import (
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ID is the user to act as.
type ID struct {
	UID, GID uint32
	Groups   []uint32
}

// Do calls f on an OS thread whose file system identity is id: what f opens, it opens with the
// user's rights. This applies only to f itself, not to the goroutines that it starts. Without
// root, Do just calls f. If the thread cannot be made root again, it is discarded.
func Do(id ID, f func() error) error {
	if os.Getuid() != 0 {
		return f()
	}
	done := make(chan error, 1)
	go func() {
		// The thread ends with this goroutine, and its identity with it.
		runtime.LockOSThread()
		if err := become(id); err != nil {
			done <- err
			return
		}
		done <- f()
	}()
	return <-done
}

// become changes only this thread: the calls of the C library and of Go would change the whole
// process.
func become(id ID) error {
	groups := id.Groups
	if len(groups) == 0 {
		groups = []uint32{id.GID}
	}
	// #nosec G103 -- unix.Setgroups takes ints and changes every thread
	if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(groups)), uintptr(unsafe.Pointer(&groups[0])), 0); errno != 0 {
		return fmt.Errorf("set groups: %w", errno)
	}
	if err := unix.Setfsgid(int(id.GID)); err != nil {
		return fmt.Errorf("set file system gid: %w", err)
	}
	if err := unix.Setfsuid(int(id.UID)); err != nil {
		return fmt.Errorf("set file system uid: %w", err)
	}
	// Neither reports a failure; another call returns the actual value. An id of all ones means
	// "no change" and would keep root's.
	if got, err := unix.SetfsgidRetGid(-1); err != nil || got != int(id.GID) {
		return fmt.Errorf("file system gid is %d, want %d (%v)", got, id.GID, err)
	}
	if got, err := unix.SetfsuidRetUid(-1); err != nil || got != int(id.UID) {
		return fmt.Errorf("file system uid is %d, want %d (%v)", got, id.UID, err)
	}
	return nil
}
