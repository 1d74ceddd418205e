package safefile_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/berth-scheduler/berth/cmd/internal/safefile"
)

func TestReadRefusesWhatIsNoPlainFile(t *testing.T) {
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	big := filepath.Join(dir, "big")
	write(t, big, strings.Repeat("x", 101), 0o600)
	loop := filepath.Join(dir, "loop")
	if err := os.Symlink(loop, loop); err != nil {
		t.Fatal(err)
	}

	for _, tc := range []struct {
		name, path string
		want       error
		text       string
	}{
		{"missing", filepath.Join(dir, "none"), fs.ErrNotExist, "none"},
		{"directory", dir, safefile.ErrNotRegular, "is a directory"},
		{"FIFO without a writer", fifo, safefile.ErrNotRegular, "is a FIFO"},
		{"endless device", "/dev/zero", safefile.ErrNotRegular, "is a device"},
		{"one byte over the limit", big, safefile.ErrTooLarge, "more than 100 bytes"},
		{"symlink to itself", loop, syscall.ELOOP, "loop"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, read := range []func(string, int64) ([]byte, error){safefile.Read, safefile.ReadSecret} {
				_, err := read(tc.path, 100)
				if !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.text) {
					t.Errorf("read %s: %v, want %v with %q", tc.path, err, tc.want, tc.text)
				}
			}
		})
	}
}

func TestReadSecretMode(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ca.key")
	for _, tc := range []struct {
		mode fs.FileMode
		ok   bool
	}{
		{0o600, true}, {0o400, true}, {0o644, false}, {0o640, false}, {0o604, false}, {0o620, false},
	} {
		t.Run(tc.mode.String(), func(t *testing.T) {
			write(t, path, "secret", tc.mode)
			got, err := safefile.ReadSecret(path, 100)
			if tc.ok {
				if err != nil || string(got) != "secret" {
					t.Fatalf("got %q, %v", got, err)
				}
				return
			}
			if !errors.Is(err, safefile.ErrExposed) || !strings.Contains(err.Error(), "chmod 600 "+path) {
				t.Fatalf("got %v, want ErrExposed naming the fix", err)
			}
			if _, err := safefile.Read(path, 100); err != nil {
				t.Fatalf("Read cares for the mode: %v", err)
			}
		})
	}
}

func TestReadSecretOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give a file away")
	}
	path := filepath.Join(t.TempDir(), "key")
	write(t, path, "secret", 0o600)
	if err := os.Chown(path, 4242, 4242); err != nil {
		t.Fatal(err)
	}
	if _, err := safefile.ReadSecret(path, 100); !errors.Is(err, safefile.ErrExposed) || !strings.Contains(err.Error(), "uid 4242") {
		t.Fatalf("got %v, want ErrExposed naming uid 4242", err)
	}
}

func TestReplace(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "cert")
	for _, content := range []string{"first", "second, longer", ""} {
		if err := safefile.Replace(path, []byte(content), 0o640); err != nil {
			t.Fatal(err)
		}
		got, err := safefile.Read(path, 100)
		if err != nil || string(got) != content {
			t.Fatalf("got %q, %v, want %q", got, err, content)
		}
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o640 {
		t.Fatalf("mode %v, %v, want 0640", info.Mode(), err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Fatalf("%d files left, %v, want 1", len(entries), err)
	}
	if err := safefile.Replace(filepath.Join(dir, "no", "cert"), nil, 0o600); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("missing folder: %v", err)
	}
}

func write(t *testing.T, path, content string, mode fs.FileMode) {
	t.Helper()
	os.Remove(path) // a mode applies only to a new file
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}
