package daemon

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/containerd/v2/pkg/oci"
)

func require(t *testing.T) {
	t.Helper()
	err := Installed()
	if os.Getuid() != 0 {
		err = errors.New("needs root: containerd mounts and makes control groups")
	}
	if err != nil && os.Getenv("CI") != "" {
		t.Fatal(err)
	}
	if err != nil {
		t.Skip("containerd cannot be started here: ", err)
	}
}

// TestStopLeavesNothing runs a container through a crash of containerd, and
// then stops everything at once, with containerd there and without.
func TestStopLeavesNothing(t *testing.T) {
	require(t)
	t.Run("in order", func(t *testing.T) { testStop(t, func(*Daemon) error { return nil }) })
	t.Run("after a crash", func(t *testing.T) { testStop(t, (*Daemon).Kill) })
}

func testStop(t *testing.T, before func(*Daemon) error) {
	dir, err := os.MkdirTemp("/tmp", "cd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(os.RemoveAll(dir), os.RemoveAll(filepath.Join(runcRoot, "test"))); err != nil {
			t.Error(err)
		}
	})
	d, err := Start(t.Context(), Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	ref, err := d.ImportBusybox(t.Context(), "test")
	if err != nil {
		t.Fatal(errors.Join(err, d.Stop()))
	}
	if err := runSleep(t, d, ref); err != nil {
		t.Fatal(errors.Join(err, d.Stop()))
	}
	shims, err := d.shims()
	if err != nil || len(shims) != 1 {
		t.Errorf("shims: %v, %v, want one", shims, err)
	}
	var jobs []int
	for _, s := range shims {
		jobs = append(jobs, children(s.PID)...)
	}
	if len(jobs) != 1 {
		t.Errorf("the shim has children %v, want one", jobs)
	}
	if err := errors.Join(d.Kill(), d.Restart(t.Context())); err != nil {
		t.Fatal(errors.Join(err, d.Stop()))
	}
	if now, err := d.shims(); err != nil || len(now) != 1 || now[0] != shims[0] {
		t.Errorf("shims after a crash of containerd: %v, %v, want %v", now, err, shims)
	}
	if err := errors.Join(before(d), d.Stop()); err != nil {
		t.Fatal(err)
	}
	if left, err := d.shims(); err != nil || len(left) > 0 {
		t.Errorf("shims after stop: %v, %v", left, err)
	}
	for _, pid := range jobs {
		if alive(pid) {
			t.Errorf("process %d of the container is left", pid)
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil || strings.Contains(string(mounts), dir) {
		t.Errorf("mounts are left below %s (%v)", dir, err)
	}
	groups, err := filepath.Glob("/sys/fs/cgroup/*/" + testGroup)
	if err != nil || len(groups) > 0 {
		t.Errorf("control groups are left: %v (%v)", groups, err)
	}
	if err := d.Stop(); err != nil {
		t.Errorf("second stop: %v", err)
	}
}

const testGroup = "berth-test-daemon"

// alive reports whether a process runs; a zombie does not.
func alive(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	return rest != "" && rest[0] != 'Z' && rest[0] != 'X'
}

func TestMemoryGroup(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"v1", "9:name=systemd:/\n4:memory:/berth/j1-a1\n0::/x\n", "/berth/j1-a1"},
		{"v1, together", "4:cpu,memory:/berth/a:b\n", "/berth/a:b"},
		{"v2", "0::/berth/j1-a1\n", "/berth/j1-a1"},
		{"zombie", "4:memory:/\n0::/\n", "/"},
		{"empty", "", ""},
	} {
		if got := memoryGroup(c.text); got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

func runSleep(t *testing.T, d *Daemon, ref string) error {
	c, err := containerd.New(d.Socket(), containerd.WithDefaultNamespace("test"))
	if err != nil {
		return err
	}
	defer c.Close()
	ctx := namespaces.WithNamespace(t.Context(), "test")
	img, err := c.GetImage(ctx, ref)
	if err != nil {
		return err
	}
	if err := img.Unpack(ctx, ""); err != nil {
		return err
	}
	ctr, err := c.NewContainer(ctx, "s", containerd.WithNewSnapshot("s", img),
		containerd.WithNewSpec(oci.WithProcessArgs("sleep", "1000"), oci.WithEnv([]string{"PATH=/bin"}), oci.WithCgroup("/"+testGroup)))
	if err != nil {
		return err
	}
	task, err := ctr.NewTask(ctx, cio.NullIO)
	if err != nil {
		return err
	}
	return task.Start(ctx)
}

func TestStartSaysWhatIsWrong(t *testing.T) {
	require(t)
	long := filepath.Join(t.TempDir(), strings.Repeat("x", 120))
	if d, err := Start(t.Context(), Config{Dir: long}); err == nil {
		t.Error(errors.Join(errors.New("a directory too long for sockets passed"), d.Stop()))
	} else if !strings.Contains(err.Error(), "too long") {
		t.Errorf("got %v", err)
	}
	t.Setenv("PATH", "/no/such/dir")
	if _, err := Start(t.Context(), Config{Dir: t.TempDir()}); err == nil || !strings.Contains(err.Error(), "apt-get install") {
		t.Errorf("without containerd: got %v, want the names of the packages", err)
	}
}

func TestBusyboxArchive(t *testing.T) {
	r, err := busyboxArchive([]byte("binary"), nil)
	if err != nil {
		t.Fatal(err)
	}
	all, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]int64{}
	tr := tar.NewReader(bytes.NewReader(all))
	for {
		h, err := tr.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		files[h.Name] = h.Size
	}
	blobs := 0
	for name := range files {
		if strings.HasPrefix(name, "blobs/sha256/") {
			blobs++
		}
	}
	if blobs != 3 || files["index.json"] == 0 || files["oci-layout"] == 0 {
		t.Errorf("archive holds %v, want 3 blobs, an index and the mark of a layout", files)
	}
}
