package processrt

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-scheduler/berth/agent/launch"
	"github.com/berth-scheduler/berth/agent/runtime"
	"github.com/berth-scheduler/berth/cluster"
)

// BenchmarkTasks runs true from Create to Delete, some at once, as a user and
// in a control group of its own with a cap. An operation is one job.
// "cpu-ms/job" is what the agent's part and the keeper take of the processor;
// the job's own process is not in it. "ms-to-exit" is the mean time from
// Create to the known exit.
func BenchmarkTasks(b *testing.B) {
	if os.Getuid() != 0 {
		b.Skip("needs root: jobs run as their users, in control groups")
	}
	for _, width := range []int{1, 16, 64} {
		b.Run(strconv.Itoa(width), func(b *testing.B) { benchTasks(b, width) })
	}
}

func benchTasks(b *testing.B, width int) {
	rt, out := benchRuntime(b)
	keeper := listenerPID(b, rt.cfg.Dir)
	var ids atomic.Uint64
	slots := make(chan cluster.AttemptID, width)
	done := sync.Map{} // AttemptID → chan struct{}
	stop := make(chan struct{})
	var workers, watcher sync.WaitGroup
	watcher.Go(func() {
		for {
			select {
			case id := <-rt.Exits():
				if ch, ok := done.LoadAndDelete(id); ok {
					close(ch.(chan struct{}))
				}
			case <-stop:
				return
			}
		}
	})
	var failed atomic.Pointer[string]
	var toExit atomic.Int64
	before, began := cpuOf(b, keeper), time.Now()
	for range width {
		workers.Go(func() {
			for id := range slots {
				took, err := benchJob(b, rt, id, out, &done)
				if err != nil {
					msg := err.Error()
					failed.Store(&msg)
				}
				toExit.Add(int64(took))
			}
		})
	}
	for b.Loop() {
		slots <- cluster.AttemptID{Job: cluster.JobID(ids.Add(1)), No: 1}
	}
	close(slots)
	workers.Wait()
	n, took := float64(ids.Load()), time.Since(began)
	close(stop)
	watcher.Wait()
	if msg := failed.Load(); msg != nil {
		b.Fatal(*msg)
	}
	b.ReportMetric(n/took.Seconds(), "tasks/s")
	b.ReportMetric(time.Duration(toExit.Load()).Seconds()*1000/n, "ms-to-exit")
	b.ReportMetric((cpuOf(b, keeper)-before).Seconds()*1000/n, "cpu-ms/job")
}

func benchRuntime(b *testing.B) (rt *Runtime, out string) {
	b.Helper()
	dir, err := os.MkdirTemp("/tmp", "pb")
	if err != nil {
		b.Fatal(err)
	}
	out = filepath.Join(dir, "out")
	if err := os.Mkdir(out, 0o777); err != nil {
		b.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		b.Fatal(err)
	}
	if err := os.Chown(out, 65534, 65534); err != nil {
		b.Fatal(err)
	}
	state := filepath.Join(dir, "s")
	rt = openTest(b, state)
	b.Cleanup(func() {
		if err := rt.Close(); err != nil {
			b.Error(err)
		}
		if err := StopKeeper(state); err != nil {
			b.Error(err)
		}
		if err := os.RemoveAll(dir); err != nil {
			b.Error(err)
		}
	})
	return rt, out
}

func benchJob(b *testing.B, rt *Runtime, id cluster.AttemptID, out string, done *sync.Map) (toExit time.Duration, err error) {
	ctx := b.Context()
	file := filepath.Join(out, strconv.FormatUint(uint64(id.Job)%64, 10))
	l := &launch.Launch{
		ID: id, Token: 1, UID: 65534, GID: 65534, Groups: []uint32{65534},
		Args: []string{"/bin/true"}, Env: []string{"PATH=/usr/bin:/bin"}, Dir: out,
		Stdout: file, Stderr: file, MemBytes: 64 << 20, CPUMilli: 1000,
	}
	ended := make(chan struct{})
	done.Store(id, ended)
	began := time.Now()
	if err := errors.Join(rt.Create(ctx, l), rt.Start(ctx, id)); err != nil {
		return 0, err
	}
	select {
	case <-ended:
	case <-time.After(10 * time.Second): // announcements may be missed
	}
	toExit = time.Since(began)
	task, err := rt.Inspect(ctx, id)
	if err != nil {
		return toExit, err
	}
	if task.Phase != runtime.Stopped || task.ExitCode != 0 {
		return toExit, fmt.Errorf("true ended as %+v", task)
	}
	return toExit, rt.Delete(ctx, id)
}

// cpuOf is the user and system time of this process and of another.
func cpuOf(b *testing.B, pid int) time.Duration {
	b.Helper()
	var ru unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &ru); err != nil {
		b.Fatal(err)
	}
	// Fields 14 and 15 of proc(5) are ticks; 100 a second everywhere.
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		b.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(data), ") ")
	f := strings.Fields(rest)
	var ticks int64
	for _, s := range f[11:13] {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			b.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ru.Utime.Nano()+ru.Stime.Nano()) + time.Duration(ticks)*10*time.Millisecond
}
