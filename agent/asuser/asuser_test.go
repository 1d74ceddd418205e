package asuser

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/berth-scheduler/berth/agent/launch"
)

func needRoot(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		if os.Getenv("CI") != "" {
			t.Fatal("needs root, to become other users")
		}
		t.Skip("needs root, to become other users")
	}
}

// open is a directory that every user may enter, which t.TempDir is not.
func open(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "asuser")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o1777); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestDoHasTheUsersRights(t *testing.T) {
	needRoot(t)
	dir := open(t)
	secret := filepath.Join(dir, "secret")
	if err := os.WriteFile(secret, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	shared := filepath.Join(dir, "shared")
	if err := errors.Join(os.WriteFile(shared, nil, 0o640), os.Chown(shared, 0, 4711)); err != nil {
		t.Fatal(err)
	}
	read := func(id ID, path string) error {
		return Do(id, func() error { _, err := os.ReadFile(path); return err })
	}
	for _, c := range []struct {
		name, path string
		id         ID
		denied     bool
	}{
		{"another's file", secret, ID{UID: 65534, GID: 65534}, true},
		{"root's own group does not stay", shared, ID{UID: 65534, GID: 65534}, true},
		{"by a group", shared, ID{UID: 65534, GID: 65534, Groups: []uint32{65534, 4711}}, false},
		{"by the first group", shared, ID{UID: 65534, GID: 4711}, false},
		{"root", secret, ID{}, false},
	} {
		if err := read(c.id, c.path); errors.Is(err, os.ErrPermission) != c.denied || (err != nil) != c.denied {
			t.Errorf("%s: got %v, want denied: %v", c.name, err, c.denied)
		}
	}
}

// TestDoLeavesNothing runs many at once and checks that the process stays
// root in all threads.
func TestDoLeavesNothing(t *testing.T) {
	needRoot(t)
	dir := open(t)
	secret := filepath.Join(dir, "secret")
	if err := os.WriteFile(secret, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 100 {
		uid := uint32(20000 + i)
		wg.Go(func() {
			path := filepath.Join(dir, "f"+string(rune('a'+i%26))+string(rune('a'+i/26)))
			err := Do(ID{UID: uid, GID: uid}, func() error {
				if _, err := os.ReadFile(secret); !errors.Is(err, os.ErrPermission) {
					t.Errorf("uid %d reads root's file: %v", uid, err)
				}
				return os.WriteFile(path, nil, 0o600)
			})
			if err != nil {
				t.Error(err)
				return
			}
			if _, err := os.ReadFile(secret); err != nil {
				t.Errorf("root lost its rights: %v", err)
			}
			st, err := os.Stat(path)
			if err != nil {
				t.Error(err)
				return
			}
			if got := st.Sys().(*syscall.Stat_t).Uid; got != uid {
				t.Errorf("file of uid %d belongs to %d", uid, got)
			}
		})
	}
	wg.Wait()
}

func TestOpenAllDoesNotWait(t *testing.T) {
	dir := open(t)
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o666); err != nil {
		t.Fatal(err)
	}
	_, err := OpenAll(&launch.Launch{Stdout: fifo, Stderr: fifo})
	if le, ok := errors.AsType[*launch.Error](err); !ok || le.Reason != "OUTPUT" || !errors.Is(err, syscall.ENXIO) {
		t.Errorf("FIFO that nobody reads: got %v", err)
	}
	out := filepath.Join(dir, "out")
	f, err := OpenAll(&launch.Launch{Stdout: out, Stderr: out})
	if err != nil {
		t.Fatal(err)
	}
	if f.Out != f.Err {
		t.Error("equal paths were opened twice")
	}
	f.Close()
}

func TestLookPath(t *testing.T) {
	needRoot(t)
	dir := open(t)
	for _, f := range []struct {
		name string
		mode os.FileMode
	}{{"run", 0o755}, {"plain", 0o644}, {"rootonly", 0o700}} {
		p := filepath.Join(dir, f.name)
		if err := errors.Join(os.WriteFile(p, nil, f.mode), os.Chmod(p, f.mode)); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name, arg, path, want string
		code                  int
	}{
		{"in the path", "run", "/no/such:" + dir, dir + "/run", 0},
		{"relative entry", "run", ".", dir + "/run", 0},
		{"relative name", "./run", "", dir + "/run", 0},
		{"absolute", dir + "/run", "", dir + "/run", 0},
		{"not executable", "plain", dir, "", 126},
		{"executable for root alone", "rootonly", dir, "", 126},
		{"not executable, by path", dir + "/plain", "", "", 126},
		{"directory, by path", dir, "", "", 126},
		{"missing", "none", dir, "", 127},
		{"missing, by path", dir + "/none", "", "", 127},
		{"below a file", dir + "/run/x", "", "", 127},
		{"no path at all", "run", "", "", 127},
	} {
		var got string
		err := Do(ID{UID: 65534, GID: 65534}, func() (err error) {
			got, err = LookPath(&launch.Launch{Args: []string{c.arg}, Env: []string{"PATH=" + c.path}, Dir: dir})
			return err
		})
		code := 0
		if le, ok := errors.AsType[*launch.Error](err); ok {
			code = le.Code
		} else if err != nil {
			t.Errorf("%s: got %v", c.name, err)
		}
		if got != c.want || code != c.code {
			t.Errorf("%s: got %q and code %d, want %q and %d", c.name, got, code, c.want, c.code)
		}
	}
}

// TestDoRefusesNoChange has ids that the kernel takes for "leave it as it is"
// not leave root's.
func TestDoRefusesNoChange(t *testing.T) {
	needRoot(t)
	const none = 1<<32 - 1
	for name, id := range map[string]ID{
		"uid":   {UID: none, GID: 65534},
		"gid":   {UID: 65534, GID: none, Groups: []uint32{65534}},
		"group": {UID: 65534, GID: 65534, Groups: []uint32{none}},
	} {
		called := false
		err := Do(id, func() error {
			called = true
			return nil
		})
		if err == nil || called {
			t.Errorf("%s of all ones: got error %v, called %v", name, err, called)
		}
	}
}
