package containerdrt

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/agent/launch"
	"github.com/berth-scheduler/berth/agent/runtime"
)

// BenchmarkTasks runs true as a host job from Create to Delete, some at once.
// An operation is one job; compare it with "ctr run --rm" of the same.
func BenchmarkTasks(b *testing.B) {
	for _, width := range []int{1, 8} {
		b.Run(strconv.Itoa(width), func(b *testing.B) { benchTasks(b, width) })
	}
}

func benchTasks(b *testing.B, width int) {
	bn := newBench(b)
	ended := sync.Map{} // AttemptID → chan struct{}
	stop := make(chan struct{})
	var watcher, workers sync.WaitGroup
	watcher.Go(func() {
		for {
			select {
			case id := <-bn.rt.Exits():
				if ch, ok := ended.LoadAndDelete(id); ok {
					close(ch.(chan struct{}))
				}
			case <-stop:
				return
			}
		}
	})
	jobs := make(chan *launch.Launch, width)
	var failed atomic.Pointer[string]
	for range width {
		workers.Go(func() {
			for l := range jobs {
				if err := benchTask(b, bn.rt, l, &ended); err != nil {
					msg := err.Error()
					failed.Store(&msg)
				}
			}
		})
	}
	n, began := 0, time.Now()
	for b.Loop() {
		n++
		l := bn.job(n, "", "/bin/true")
		ended.Store(l.ID, make(chan struct{}))
		jobs <- l
	}
	close(jobs)
	workers.Wait()
	b.ReportMetric(float64(n)/time.Since(began).Seconds(), "tasks/s")
	close(stop)
	watcher.Wait()
	if msg := failed.Load(); msg != nil {
		b.Fatal(*msg)
	}
}

func benchTask(b *testing.B, rt *Runtime, l *launch.Launch, ended *sync.Map) error {
	done, _ := ended.Load(l.ID)
	if err := errors.Join(rt.Create(b.Context(), l), rt.Start(b.Context(), l.ID)); err != nil {
		return err
	}
	select {
	case <-done.(chan struct{}):
	case <-time.After(10 * time.Minute):
		return fmt.Errorf("the exit of %s is not announced", l.ID)
	}
	task, err := rt.Inspect(b.Context(), l.ID)
	if err != nil {
		return err
	}
	if task.Phase != runtime.Stopped || task.ExitCode != 0 {
		return fmt.Errorf("true ended as %+v", task)
	}
	return rt.Delete(b.Context(), l.ID)
}
