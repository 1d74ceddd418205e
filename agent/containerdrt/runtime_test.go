package containerdrt

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/berth-scheduler/berth/agent/containerdrt/daemon"
	"github.com/berth-scheduler/berth/agent/runtimetest"
)

// TestMain makes the test binary a job that tries what jobs may not.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == probeArg {
		probe()
		return
	}
	os.Exit(runtimetest.WithJobProgram(m.Run))
}

// socketEnv hands the socket of a test's containerd to a second process of it.
const socketEnv = "BERTH_TEST_CONTAINERD"

// startDaemon runs a containerd for one test.
func startDaemon(t testing.TB) *daemon.Daemon {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "cd")
	if err != nil {
		t.Fatal(err)
	}
	d, err := daemon.Start(t.Context(), daemon.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Stop(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			b, _ := os.ReadFile(filepath.Join(dir, "log"))
			t.Logf("containerd's log ends with:\n%s", b[max(0, len(b)-4000):])
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return d
}

// openTest opens a runtime with a namespace of its own.
func openTest(t testing.TB, socket, dir string) *Runtime {
	t.Helper()
	rt, err := Open(t.Context(), Config{
		Address: socket, Namespace: filepath.Base(dir), Dir: filepath.Join(dir, "rt"),
		CgroupParent: "/berth-test/" + filepath.Base(dir), Inside: runtimetest.JobProgram(),
	})
	if err != nil {
		t.Fatal(err)
	}
	return rt
}

func require(t *testing.T) {
	t.Helper()
	runtimetest.Require(t, runtimetest.Root())
	runtimetest.Require(t, daemon.Installed())
}

func TestConformance(t *testing.T) {
	require(t)
	socket := os.Getenv(socketEnv)
	if socket == "" {
		socket = startDaemon(t).Socket()
		t.Setenv(socketEnv, socket)
	}
	runtimetest.Run(t, func(sub *testing.T, dir string) runtimetest.Runtime {
		clearLater(t, dir)
		return openTest(sub, socket, dir)
	})
}

// clearLater removes what a runtime on dir leaves on the machine, at the end of
// t, when its tasks are deleted.
func clearLater(t testing.TB, dir string) {
	t.Helper()
	t.Cleanup(func() {
		removeGroups(t, "berth-test/"+filepath.Base(dir))
		// runc's own notes on a container outlive a shim that was killed.
		if err := os.RemoveAll("/run/containerd/runc/" + filepath.Base(dir)); err != nil {
			t.Error(err)
		}
	})
}

// removeGroups removes the group above those of the attempts, which runc makes
// for every controller.
func removeGroups(t testing.TB, name string) {
	t.Helper()
	for _, pattern := range []string{"/sys/fs/cgroup/" + name, "/sys/fs/cgroup/*/" + name} {
		dirs, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range dirs {
			if err := os.Remove(d); err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Error(err)
			}
		}
	}
}
