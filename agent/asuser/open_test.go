package asuser

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/berth-scheduler/berth/agent/launch"
)

// TestNoWayThroughOurOwnFiles: an output of one user is open here; it may be
// read by all, and lies where only its user may go. Another's output that is a
// link to our /proc/self/fd must not lead there.
func TestNoWayThroughOurOwnFiles(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to become other users")
	}
	dir, err := os.MkdirTemp("", "open")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	home, public := filepath.Join(dir, "home"), filepath.Join(dir, "public")
	if err := errors.Join(os.Chmod(dir, 0o755), os.Mkdir(home, 0o700), os.Mkdir(public, 0o755)); err != nil {
		t.Fatal(err)
	}
	plain := filepath.Join(public, "plain")
	if err := errors.Join(os.WriteFile(filepath.Join(home, "out"), []byte("another's"), 0o644), os.WriteFile(plain, []byte("all's"), 0o644)); err != nil {
		t.Fatal(err)
	}
	held, err := os.Open(filepath.Join(home, "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	link := func(name, to string) string {
		path := filepath.Join(public, name)
		if err := os.Symlink(to, path); err != nil {
			t.Fatal(err)
		}
		return path
	}
	l := &launch.Launch{UID: 65534, GID: 65534}
	fd := int(held.Fd())
	for _, tc := range []struct {
		name, path string
		ok         bool
	}{
		{"a plain file", plain, true},
		{"a link to one", link("to-plain", plain), true},
		{"a file that is open here", fmt.Sprintf("/proc/self/fd/%d", fd), false},
		{"a link to that", link("to-fd", fmt.Sprintf("/proc/self/fd/%d", fd)), false},
		{"by the thread", link("to-thread-fd", fmt.Sprintf("/proc/thread-self/fd/%d", fd)), false},
		{"by /dev", fmt.Sprintf("/dev/fd/%d", fd), false},
		{"where our memory lies", link("to-maps", "/proc/self/maps"), false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := Tail(t.Context(), l, tc.path, 100)
			if (err == nil) != tc.ok {
				t.Errorf("read: got %q, %v", got, err)
			}
			for name, open := range map[string]func(string, int) (int, error){"openat2": openNoMagic, "before openat2": openTwice} {
				err := Do(User(l), func() error {
					fd, err := open(tc.path, unix.O_RDONLY)
					if err != nil {
						return err
					}
					return unix.Close(fd)
				})
				// The table of our memory is refused by where it lies.
				if (err == nil) != tc.ok && tc.name != "where our memory lies" {
					t.Errorf("%s: got %v", name, err)
				}
			}
		})
	}
}

// TestOpenTwiceEmpties: before openat2, too, a file is made, emptied and
// appended to.
func TestOpenTwiceEmpties(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "out")
	for _, tc := range []struct {
		flags int
		want  string
	}{{os.O_APPEND, "x"}, {os.O_APPEND, "xx"}, {os.O_TRUNC, "x"}} {
		fd, err := openTwice(path, os.O_CREATE|os.O_WRONLY|tc.flags)
		if err != nil {
			t.Fatal(err)
		}
		f := os.NewFile(uintptr(fd), path)
		if _, err := f.WriteString("x"); err != nil {
			t.Fatal(err)
		}
		f.Close()
		if got, err := os.ReadFile(path); err != nil || string(got) != tc.want {
			t.Errorf("got %q, %v, want %q", got, err, tc.want)
		}
	}
}

// TestNoFilesOfTheKernel: what is opened for a job is no file by which the kernel
// is told something, as one of a control group that its user may write; the check
// is by file system, and holds before anything is read, written or emptied.
func TestNoFilesOfTheKernel(t *testing.T) {
	tried := 0
	for _, path := range []string{"/sys/kernel/mm/transparent_hugepage/enabled", "/sys/kernel/uevent_seqnum", "/sys/fs/cgroup/cgroup.procs", "/sys/fs/cgroup/memory/tasks", "/sys/fs/cgroup/cgroup.controllers"} {
		var st unix.Statfs_t
		if unix.Statfs(path, &st) != nil {
			continue // not on this kernel
		}
		tried++
		if f, err := Open(path, unix.O_RDONLY); !errors.Is(err, ErrKernel) {
			t.Errorf("%s: %v, want it refused", path, err)
			if err == nil {
				_ = f.Close()
			}
		}
	}
	if tried == 0 {
		t.Skip("/sys is not mounted")
	}
	f, err := Open(filepath.Join(t.TempDir(), "out"), unix.O_CREAT|unix.O_WRONLY)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}
