package asuser

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestOpenPath(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	err = errors.Join(
		os.MkdirAll(filepath.Join(dir, "a/b"), 0o755), os.WriteFile(filepath.Join(dir, "a/file"), nil, 0o644),
		os.Symlink("a", filepath.Join(dir, "link")), os.Symlink("file", filepath.Join(dir, "a/last")), os.Symlink("/nowhere", filepath.Join(dir, "dead")),
	)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, path string
		want       error
	}{
		{"directory", dir + "/a/b", nil},
		{"file", dir + "/a/file", nil},
		{"unclean", dir + "//a/./b/", nil},
		{"the root", "/", nil},
		{"over a link", dir + "/link/b", ErrLink},
		{"a link at the end", dir + "/a/last", ErrLink},
		{"a dead link", dir + "/dead", ErrLink},
		{"a magic link", "/proc/self/root", ErrLink},
		{"missing", dir + "/a/none/b", fs.ErrNotExist},
		{"below a file", dir + "/a/file/b", unix.ENOTDIR},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, err := OpenPath(c.path)
			if !errors.Is(err, c.want) {
				t.Fatalf("got %v, want %v", err, c.want)
			}
			if err != nil {
				return
			}
			defer f.Close()
			got, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
			if want := filepath.Clean(c.path); err != nil || got != want {
				t.Errorf("opened %s (%v), want %s", got, err, want)
			}
		})
	}
	if _, err := OpenPath("a/b"); err == nil || !strings.Contains(err.Error(), "absolute") {
		t.Errorf("relative path: got %v", err)
	}
}

// TestOpenPathAsUser has the user's rights decide, not root's.
func TestOpenPathAsUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to become other users")
	}
	dir, err := os.MkdirTemp("/tmp", "op")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	inner := filepath.Join(dir, "home/alice")
	if err := errors.Join(os.MkdirAll(inner, 0o755), os.Chown(filepath.Dir(inner), 65534, 65534), os.Chmod(filepath.Dir(inner), 0o700), os.Chmod(dir, 0o755)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		uid  uint32
		want error
	}{{65534, nil}, {65533, fs.ErrPermission}} {
		err := Do(ID{UID: c.uid, GID: c.uid}, func() error {
			f, err := OpenPath(inner)
			if err == nil {
				err = f.Close()
			}
			return err
		})
		if !errors.Is(err, c.want) {
			t.Errorf("uid %d: got %v, want %v", c.uid, err, c.want)
		}
	}
}
