package shimproc

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

const nobody = 65534

// says starts a process with a shim's arguments, which waits in dir.
func says(t *testing.T, program, dir string, uid uint32, unshare ...uintptr) int {
	t.Helper()
	cmd := exec.Command(program)
	cmd.Args = []string{"/usr/bin/containerd-shim-runc-v2", "-c", "echo up; read line; :", "sh", "-namespace", "ns", "-id", "c1", "-address", address(t)}
	cmd.Dir = dir
	if uid != 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	}
	for _, flag := range unshare {
		cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: flag}
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait() // a test may have ended it
	})
	if _, err := io.ReadFull(out, make([]byte, 3)); err != nil {
		t.Fatal(err)
	}
	return cmd.Process.Pid
}

func address(t *testing.T) string { return "/no/such/" + t.Name() + "/containerd.sock" }

// place makes a directory below which only root changes anything.
func place(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root's processes can be shims")
	}
	dir, err := os.MkdirTemp("", "shim")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// program copies the shell to where a shim's program could lie.
func program(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile("/bin/sh")
	if err := errors.Join(err, os.WriteFile(path, data, 0o755)); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestForged: whoever is not root, and what runs another program or one that
// others could have put there, is no shim, whatever its arguments say.
func TestForged(t *testing.T) {
	dir := place(t)
	loose := filepath.Join(dir, "loose")
	if err := errors.Join(os.Mkdir(loose, 0o755), os.Chown(loose, nobody, nobody)); err != nil {
		t.Fatal(err)
	}
	genuine := program(t, filepath.Join(dir, "containerd-shim-runc-v2"))
	says(t, genuine, "/", nobody)
	says(t, "/bin/sh", "/", 0)
	says(t, program(t, filepath.Join(loose, "containerd-shim-runc-v2")), "/", 0)
	if got, err := All(address(t)); err != nil || len(got) > 0 {
		t.Errorf("shims %+v (%v), want none", got, err)
	}
	want := Shim{PID: says(t, genuine, dir, 0), Namespace: "ns", ID: "c1", Address: address(t), Dir: dir}
	got, err := All(address(t))
	if err != nil || len(got) != 1 || got[0] != want {
		t.Fatalf("shims %+v (%v), want %+v", got, err, want)
	}
	other := got[0]
	other.ID = "c2"
	if err := other.Kill(); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("a process with a shim's number that is another: %v", err)
	}
	if err := got[0].Kill(); err != nil {
		t.Error(err)
	}
}

// TestOtherMounts: a process that sees other files than we do says where it
// works by names that mean something else to us.
func TestOtherMounts(t *testing.T) {
	genuine := program(t, filepath.Join(place(t), "containerd-shim-runc-v2"))
	pid := says(t, genuine, "/", 0, unix.CLONE_NEWNS)
	if s, ok := Of(pid); ok {
		t.Errorf("%+v is taken for a shim", s)
	}
}

// bundle makes what lies in the directory of a task.
func bundle(t *testing.T, dir string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(dir, "rootfs"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"config.json", "log", "init.pid"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func there(path string) bool { _, err := os.Lstat(path); return err == nil }

func TestRemoveBundle(t *testing.T) {
	state := filepath.Join(place(t), tasks)
	dir := filepath.Join(state, "ns", "c1")
	bundle(t, dir)
	if err := unix.Mount("tmpfs", filepath.Join(dir, "rootfs"), "tmpfs", 0, "size=64k"); err != nil {
		t.Logf("without a mount, which is refused here: %v", err)
	}
	if err := RemoveBundle(dir, "ns", "c1"); err != nil || there(dir) {
		t.Errorf("%v; it is there: %t", err, there(dir))
	}
	odd := filepath.Join(state, "ns", "c2")
	bundle(t, odd)
	if err := os.WriteFile(filepath.Join(odd, "strange"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := RemoveBundle(odd, "ns", "c2"); err == nil || !there(filepath.Join(odd, "strange")) {
		t.Errorf("a directory with something strange in it: %v", err)
	}
}

// TestOthersDirectories: nothing is removed or unmounted in a directory of a
// user's choice, however it is reached.
func TestOthersDirectories(t *testing.T) {
	top := place(t)
	users := filepath.Join(top, "user", tasks, "ns", "c1") // as the user made it
	bundle(t, users)
	if err := os.Chown(filepath.Join(top, "user"), nobody, nobody); err != nil {
		t.Fatal(err)
	}
	target := filepath.Join(top, "precious") // somebody's, which links lead to
	bundle(t, filepath.Join(target, "c1"))
	state := filepath.Join(top, "state", tasks)
	if err := errors.Join(
		os.MkdirAll(filepath.Join(state, "ns"), 0o755),
		os.Symlink(filepath.Join(target, "c1"), filepath.Join(state, "ns", "c1")),
		os.Symlink(target, filepath.Join(state, "linked")),
		os.MkdirAll(filepath.Join(top, "way"), 0o755),
		os.Symlink(state, filepath.Join(top, "way", tasks)),
	); err != nil {
		t.Fatal(err)
	}
	bundle(t, filepath.Join(state, "ns", "c3"))
	for _, tc := range []struct{ what, dir, ns, id string }{
		{"below a user's directory", users, "ns", "c1"},
		{"not below tasks", filepath.Join(target, "c1"), "precious", "c1"},
		{"a link for the bundle", filepath.Join(state, "ns", "c1"), "ns", "c1"},
		{"a link for the namespace", filepath.Join(state, "linked", "c1"), "linked", "c1"},
		{"a link on the way", filepath.Join(top, "way", tasks, "ns", "c3"), "ns", "c3"},
		{"another container's", filepath.Join(state, "ns", "c3"), "ns", "c4"},
		{"another namespace's", filepath.Join(state, "ns", "c3"), "other", "c3"},
		{"dots", filepath.Join(state, "ns") + "/../ns/c3", "ns", "c3"},
		{"a name of dots", filepath.Join(state, "ns"), "ns", ".."},
		{"relative", tasks + "/ns/c3", "ns", "c3"},
	} {
		if err := RemoveBundle(tc.dir, tc.ns, tc.id); err == nil {
			t.Errorf("%s: no error", tc.what)
		}
	}
	for _, dir := range []string{users, filepath.Join(target, "c1"), filepath.Join(state, "ns", "c3")} {
		for _, name := range []string{"config.json", "log", "init.pid", "rootfs"} {
			if !there(filepath.Join(dir, name)) {
				t.Errorf("%s is gone from %s", name, dir)
			}
		}
	}
}
