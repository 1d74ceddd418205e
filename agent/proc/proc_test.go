package proc

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const sampleIO = "rchar: 323934931\nwchar: 323929600\nsyscr: 632687\nsyscw: 632675\n" +
	"read_bytes: 4096\nwrite_bytes: 323932160\ncancelled_write_bytes: 932160\n"

func TestParseIO(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, text string
		want       IO
		fails      bool
	}{
		{name: "all of it", text: sampleIO, want: IO{4096, 323000000}},
		{name: "more cancelled than written", text: "read_bytes: 1\nwrite_bytes: 5\ncancelled_write_bytes: 9\n", want: IO{1, 0}},
		{name: "an older kernel", text: "read_bytes: 7\nwrite_bytes: 8\n", want: IO{7, 8}},
		{name: "not counted", text: "rchar: 1\nwchar: 2\n", fails: true},
		{name: "negative", text: "read_bytes: -1\nwrite_bytes: 8\n", fails: true},
		{name: "no number", text: "read_bytes: x\nwrite_bytes: 8\n", fails: true},
		{name: "empty", fails: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if got, err := parseIO([]byte(c.text)); got != c.want || (err != nil) != c.fails {
				t.Errorf("got %+v, %v, want %+v, an error: %v", got, err, c.want, c.fails)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(sampleIO))
	f.Add([]byte("RssAnon:\t    1234 kB\nRssShmem:\t 8 kB\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if c, err := parseIO(data); err == nil && (c.Read < 0 || c.Written < 0) {
			t.Errorf("%q: %+v", data, c)
		}
		if n, err := parseResident(data); err == nil && n < 0 {
			t.Errorf("%q: %d bytes", data, n)
		}
	})
}

func TestParseResident(t *testing.T) {
	t.Parallel()
	got, err := parseResident([]byte("Name:\tx\nVmRSS:\t 9000 kB\nRssAnon:\t    1000 kB\nRssFile:\t 7000 kB\nRssShmem:\t     24 kB\n"))
	if err != nil || got != 1024<<10 {
		t.Errorf("got %d, %v", got, err)
	}
	if _, err := parseResident([]byte("RssAnon:\t 12 MB\n")); err == nil {
		t.Error("a size in another unit was read")
	}
	if got, err := parseResident([]byte("Name:\tzombie\n")); got != 0 || err != nil {
		t.Errorf("a zombie: got %d, %v", got, err)
	}
}

// TestDeadProcess reads the counts of a process that has ended, with those of
// its child, before it is waited for: so the last word is read.
func TestDeadProcess(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "out")
	cmd := exec.Command("/bin/sh", "-c", "dd if=/dev/zero of="+file+" bs=1M count=8 conv=fsync 2>/dev/null; exit 0")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	if got, err := Parent(pid); err != nil || got != os.Getpid() {
		t.Errorf("parent: got %d, %v, want %d", got, err, os.Getpid())
	}
	for err := error(syscall.EINTR); errors.Is(err, syscall.EINTR); {
		err = unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
	}
	got, err := ReadIO(pid)
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	switch {
	case errors.Is(err, fs.ErrPermission):
		t.Skip("not counted for us here: ", err)
	case err != nil:
		t.Fatal(err)
	case onMemory(t, file):
		t.Skip("the temporary directory is in memory")
	case got.Written < 8<<20 || got.Written > 9<<20:
		t.Errorf("wrote %d bytes, want 8 MiB and a little", got.Written)
	}
	if _, err := ReadIO(pid); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a process that is gone: %v", err)
	}
	if _, err := Parent(pid); err == nil {
		t.Error("a process that is gone has a parent")
	}
	if _, err := Resident(pid); err == nil {
		t.Error("a process that is gone has memory")
	}
}

func onMemory(t *testing.T, path string) bool {
	t.Helper()
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		t.Fatal(err)
	}
	return st.Type == unix.TMPFS_MAGIC || st.Type == unix.RAMFS_MAGIC
}

func TestTree(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("/bin/sh", "-c", "sh -c 'sleep 1000 & wait' & wait")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait() // says "killed"
	}()
	var tree []int
	for deadline := time.Now().Add(2 * time.Minute); len(tree) < 3 && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		tree = Tree(cmd.Process.Pid)
	}
	if len(tree) < 3 || tree[0] != cmd.Process.Pid {
		t.Skipf("the kernel names no children here: %v", tree)
	}
	if p, err := Parent(tree[len(tree)-1]); err != nil || !slices.Contains(tree, p) {
		t.Errorf("parent of the last of %v: %d, %v", tree, p, err)
	}
	if n, err := Resident(tree[0]); err != nil || n <= 0 || n > 64<<20 {
		t.Errorf("memory of %s: %d, %v", strconv.Itoa(tree[0]), n, err)
	}
}
