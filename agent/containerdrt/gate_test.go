package containerdrt

import (
	"errors"
	"os"
	"syscall"
	"testing"

	"github.com/berth-scheduler/berth/agent/containerdrt/gates"
	"github.com/berth-scheduler/berth/agent/launch"
	"github.com/berth-scheduler/berth/agent/runtime"
)

// TestGate follows tasks through a start that nothing disturbs.
func TestGate(t *testing.T) {
	t.Parallel()
	require(t)
	b := newBench(t)
	for i, image := range []string{"", b.image} {
		l := b.job(i+1, image, "/bin/sh", "-c", "exit 1")
		if err := b.rt.Create(t.Context(), l); err != nil {
			t.Fatal(err)
		}
		if got := b.rt.gate(l.ID); got != gates.Unknown {
			t.Errorf("%s: created: got gate %d", l.ID, got)
		}
		if err := b.rt.aboutToStart(l.ID); err != nil {
			t.Fatal(err)
		}
		if got := b.rt.gate(l.ID); got != gates.Shut {
			t.Errorf("%s: about to start: got gate %d", l.ID, got)
		}
		if err := b.rt.Start(t.Context(), l.ID); err != nil {
			t.Fatal(err)
		}
		if task := b.wait(l.ID); task.Phase != runtime.Stopped || task.ExitCode != 1 {
			t.Fatalf("%s ended as %+v", l.ID, task)
		}
		if got := b.rt.gate(l.ID); got != gates.Open {
			t.Errorf("%s: it ran: got gate %d", l.ID, got)
		}
		if err := b.rt.Delete(t.Context(), l.ID); err != nil {
			t.Fatal(err)
		}
		if got := b.rt.gate(l.ID); got != gates.Unknown {
			t.Errorf("%s: deleted: got gate %d", l.ID, got)
		}
	}
}

// cutStart does what a runc does that is killed within a start: it opens the
// fifo, and is gone before or after the process has written there.
func (b *bench) cutStart(l *launch.Launch, read bool) {
	b.Helper()
	if err := errors.Join(b.rt.Create(b.Context(), l), b.rt.aboutToStart(l.ID)); err != nil {
		b.Fatal(err)
	}
	fifo := b.rt.gates.Fifo(b.rt.tries.name(l.ID))
	if read {
		f, err := os.Open(fifo)
		if err != nil {
			b.Fatal(err)
		}
		defer f.Close()
		if n, err := f.Read(make([]byte, 1)); n != 1 {
			b.Fatal(n, err)
		}
		return
	}
	b.until("the end of "+l.ID.String()+", or its beginning", func() bool {
		fd, err := syscall.Open(fifo, syscall.O_RDONLY|syscall.O_NONBLOCK, 0)
		if err != nil {
			b.Fatal(err)
		}
		if err := syscall.Close(fd); err != nil {
			b.Fatal(err)
		}
		task, err := b.rt.Inspect(b.Context(), l.ID)
		if err != nil {
			b.Fatal(err)
		}
		return task.Phase != runtime.Created
	})
}

// TestStartCutOffBefore has the start of a task end before its first step: it is
// as if it had not been made, and runs once when it is made again.
func TestStartCutOffBefore(t *testing.T) {
	t.Parallel()
	require(t)
	b := newBench(t)
	for i, image := range []string{"", b.image} {
		l := b.job(i+1, image, "/bin/sh", "-c", "echo ran; exit 7")
		l.Env = []string{"PATH=/usr/bin:/bin"}
		b.cutStart(l, false)
		task, err := b.rt.Inspect(t.Context(), l.ID)
		if err != nil {
			t.Fatal(err)
		}
		if task.Phase == runtime.Absent {
			if n := b.ran(l); n != 0 {
				t.Errorf("%s: said not to have begun, ran %d times", l.ID, n)
			}
			b.start(l)
		} else { // the process was quicker than the close
			t.Logf("%s: got through as %+v", l.ID, task)
		}
		if task := b.wait(l.ID); task.Phase != runtime.Stopped || task.ExitCode != 7 || b.ran(l) != 1 {
			t.Errorf("%s: got %+v after %d runs", l.ID, task, b.ran(l))
		}
		if err := b.rt.Delete(t.Context(), l.ID); err != nil {
			t.Fatal(err)
		}
	}
}

// TestStartCutOffAfter has runc die when the process has begun, and before it
// could say so: the task runs, whatever its shim believes, and can be ended.
func TestStartCutOffAfter(t *testing.T) {
	t.Parallel()
	require(t)
	b := newBench(t)
	for i, image := range []string{"", b.image} {
		for k, end := range []syscall.Signal{0, syscall.SIGKILL} {
			script := "echo ran; exit 1"
			if end != 0 {
				script = "echo ran; sleep 100"
			}
			l := b.job(2*i+k+1, image, "/bin/sh", "-c", script)
			l.Env = []string{"PATH=/usr/bin:/bin"}
			b.cutStart(l, true)
			b.lines(l, 1)
			if end != 0 {
				task, err := b.rt.Inspect(t.Context(), l.ID)
				if err != nil || task.Phase != runtime.Running {
					t.Errorf("%s runs: got %+v, %v", l.ID, task, err)
				}
				if err := b.rt.Delete(t.Context(), l.ID); err == nil {
					t.Errorf("%s is deleted while it runs", l.ID)
				}
				if err := errors.Join(b.rt.Start(t.Context(), l.ID), b.rt.Signal(t.Context(), l.ID, end)); err != nil {
					t.Error(err)
				}
			}
			task := b.wait(l.ID)
			if task.Phase != runtime.Stopped || b.ran(l) != 1 || task.Signal != end || end == 0 && task.ExitCode != 1 {
				t.Errorf("%s: got %+v after %d runs", l.ID, task, b.ran(l))
			}
			if err := b.rt.Delete(t.Context(), l.ID); err != nil {
				t.Fatal(err)
			}
		}
	}
}
