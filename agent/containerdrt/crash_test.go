package containerdrt

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/agent/containerdrt/daemon"
	"github.com/berth-scheduler/berth/agent/launch"
	"github.com/berth-scheduler/berth/agent/runtime"
	"github.com/berth-scheduler/berth/cluster"
)

// TestContainerdDiesWhileCreating kills containerd at each of many moments of a
// launch. However often the launch is tried again, the job runs once, and its
// exit code is its own.
func TestContainerdDiesWhileCreating(t *testing.T) {
	t.Parallel()
	require(t)
	b := newBench(t)
	for i, made := range []func(cluster.AttemptID) string{ // what tells that a launch has come so far
		func(cluster.AttemptID) string { return b.dir }, // not at all
		func(id cluster.AttemptID) string { return b.rt.records.file(id, kindHelper) },
		func(id cluster.AttemptID) string { return filepath.Join(b.bundle(id), "config.json") },
		func(id cluster.AttemptID) string { return filepath.Join(b.bundle(id), "address") }, // of its shim
		func(id cluster.AttemptID) string {
			return filepath.Join("/run/containerd/runc", filepath.Base(b.dir), id.String())
		},
		func(id cluster.AttemptID) string { return filepath.Join(b.bundle(id), "init.pid") },
		func(id cluster.AttemptID) string { return b.rt.records.file(id, kindStarted) },
	} {
		image := ""
		if i%2 == 1 {
			image = b.image
		}
		l := b.job(i+1, image, "/bin/sh", "-c", "echo ran; exit 7")
		l.Env = []string{"PATH=/usr/bin:/bin"}
		killed := make(chan error, 1)
		go func() {
			for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); {
				if _, err := os.Stat(made(l.ID)); err == nil {
					break
				}
			}
			killed <- errors.Join(b.d.Kill(), b.d.Restart(t.Context()))
		}()
		first := errors.Join(b.rt.Create(t.Context(), l), b.rt.Start(t.Context(), l.ID))
		if err := <-killed; err != nil {
			t.Fatal(err)
		}
		if le, ok := errors.AsType[*launch.Error](first); ok {
			t.Errorf("round %d: the job is blamed: %v", i, le)
		}
		var last error
		b.until("a launch that goes through", func() bool {
			task, err := b.rt.Inspect(t.Context(), l.ID)
			if err == nil && task.Phase == runtime.Absent {
				err = b.rt.Create(t.Context(), l)
			}
			if err == nil {
				err = b.rt.Start(t.Context(), l.ID)
			}
			if err != nil && task.Phase == runtime.Stopped {
				err = nil // it ran
			}
			if err != nil {
				last = err
			}
			return err == nil
		})
		task := b.wait(l.ID)
		ran := b.ran(l)
		if task.Phase != runtime.Stopped || task.ExitCode != 7 || ran != 1 {
			t.Errorf("round %d: got %+v after %d runs; the first try said: %v, the last that failed: %v", i, task, ran, first, last)
		}
		b.until("a clean end", func() bool { return b.rt.Delete(t.Context(), l.ID) == nil })
	}
	left, err := filepath.Glob(filepath.Join(b.dir, "rt", "*", "*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %q (%v)", left, err)
	}
}

// bundle is where containerd keeps what a shim needs.
func (b *bench) bundle(id cluster.AttemptID) string {
	return filepath.Join(filepath.Dir(b.d.Socket()), "state/io.containerd.runtime.v2.task", filepath.Base(b.dir), id.String())
}

func (b *bench) ran(l *launch.Launch) int {
	text, err := os.ReadFile(l.Stdout)
	if err != nil {
		return 0
	}
	return strings.Count(string(text), "ran\n")
}

// TestRuncMissing has the node, and not the job, be at fault.
func TestRuncMissing(t *testing.T) {
	require(t)
	bin := t.TempDir()
	for _, name := range []string{"containerd", "containerd-shim-runc-v2", "runc"} {
		path, err := exec.LookPath(name)
		if err == nil {
			err = os.Symlink(path, filepath.Join(bin, name))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	path := os.Getenv("PATH")
	t.Setenv("PATH", bin)
	b := newBench(t)
	t.Setenv("PATH", path)
	if err := os.Rename(filepath.Join(bin, "runc"), filepath.Join(bin, "hidden")); err != nil {
		t.Fatal(err)
	}
	l := b.job(1, b.image, "/bin/sh", "-c", "exit 4")
	err := b.rt.Create(t.Context(), l)
	if _, ok := errors.AsType[*launch.Error](err); ok || err == nil || !strings.Contains(err.Error(), "runc is not installed on this node") {
		t.Errorf("got %v, want an error of the node that names runc", err)
	}
	if err := os.Rename(filepath.Join(bin, "hidden"), filepath.Join(bin, "runc")); err != nil {
		t.Fatal(err)
	}
	b.start(l)
	if task := b.wait(l.ID); task.ExitCode != 4 {
		t.Errorf("after it is back: got %+v", task)
	}
}

// TestSnapshotDiskFull fills the disk that holds the roots of containers: a
// launch says so and can be tried again, and jobs that run go on.
func TestSnapshotDiskFull(t *testing.T) {
	require(t)
	dir := smallDisk(t, "48m")
	d, err := daemon.Start(t.Context(), daemon.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Stop(); err != nil {
			t.Error(err)
		}
	})
	b := newBenchOn(t, d)
	running := b.job(1, b.image, "/bin/sh", "-c", "echo began; while [ ! -e /tmp/never ]; do sleep 0.02; done")
	b.start(running)
	b.lines(running, 1)
	hog := b.job(2, b.image, "/bin/dd", "if=/dev/zero", "of=/plain/x", "bs=1M", "count=4000")
	hog.UID, hog.GID = 0, 0
	b.start(hog)
	if task := b.wait(hog.ID); task.Phase != runtime.Stopped || task.ExitCode != 1 {
		t.Errorf("the job that fills its root: got %+v, want it to fail by itself", task)
	}
	if got := b.lines(hog, 1); !slices.ContainsFunc(got, func(s string) bool { return strings.Contains(s, "No space left") }) {
		t.Errorf("it printed %q", got)
	}
	next := b.job(3, b.image, "/bin/true")
	err = b.rt.Create(t.Context(), next)
	if _, ok := errors.AsType[*launch.Error](err); ok {
		t.Errorf("the next launch: its job is blamed: %v", err)
	}
	if err != nil && !noSpace(err) {
		t.Errorf("the next launch: got %v, want word of the disk", err)
	}
	if task, err := b.rt.Inspect(t.Context(), running.ID); err != nil || task.Phase != runtime.Running {
		t.Errorf("the running job: got %+v, %v", task, err)
	}
	if err := b.rt.Delete(t.Context(), hog.ID); err != nil { // gives its room back
		t.Fatal(err)
	}
	b.until("room for the next", func() bool { return b.rt.Create(t.Context(), next) == nil })
	if err := b.rt.Start(t.Context(), next.ID); err != nil {
		t.Fatal(err)
	}
	if task := b.wait(next.ID); task.ExitCode != 0 {
		t.Errorf("the next job: got %+v", task)
	}
}
