package asuser_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/berth-scheduler/berth/agent/asuser"
	"github.com/berth-scheduler/berth/agent/launch"
)

func TestTail(t *testing.T) {
	dir, err := os.MkdirTemp("", "tail")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	file := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o666); err != nil {
		t.Fatal(err)
	}
	secret := file("secret", "of root", 0o600)
	link := filepath.Join(dir, "link")
	if err := os.Symlink(secret, link); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name, path, want, err string
		root                  bool // the refusal is the kernel's, of a user other than root
	}{
		{"short", file("short", "abc", 0o644), "abc", "", false},
		{"the end of a long one", file("long", strings.Repeat("x", 100)+"0123456789", 0o644), "0123456789", "", false},
		{"empty", file("empty", "", 0o644), "", "", false},
		{"a pipe is not waited for", fifo, "", "not a plain file", false},
		{"a folder", dir, "", "not a plain file", false},
		{"missing", filepath.Join(dir, "none"), "", "no such file", false},
		{"another's file", secret, "", "permission denied", true},
		{"a link to another's file", link, "", "permission denied", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := &launch.Launch{UID: uint32(os.Getuid()), GID: uint32(os.Getgid())}
			if os.Getuid() == 0 {
				l.UID, l.GID = 65534, 65534
			} else if tc.root {
				t.Skip("needs root, to become other users")
			}
			got, err := asuser.Tail(t.Context(), l, tc.path, 10)
			switch {
			case tc.err == "" && (err != nil || string(got) != tc.want):
				t.Errorf("got %q, %v, want %q", got, err, tc.want)
			case tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)):
				t.Errorf("got %q, %v, want an error with %q", got, err, tc.err)
			}
		})
	}
}
