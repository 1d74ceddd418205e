package processrt

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/berth-scheduler/berth/agent/launch"
	"github.com/berth-scheduler/berth/agent/runtime"
	"github.com/berth-scheduler/berth/cluster"
)

// openLog opens a log of tasks, and counts what is damaged in it.
func openLog(t testing.TB, path string) (l *taskLog, tasks map[cluster.AttemptID]*task, damaged int) {
	t.Helper()
	l, tasks, err := openTaskLog(path, func(int) { damaged++ })
	if err != nil {
		t.Fatal(err)
	}
	return l, tasks, damaged
}

// record creates a task in a log.
func record(t testing.TB, l *taskLog, id cluster.AttemptID, token cluster.Token) {
	t.Helper()
	body, err := json.Marshal(request{Op: opCreate, Launch: &launch.Launch{ID: id, Token: token, Args: []string{"true"}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.create(id, body); err != nil {
		t.Fatal(err)
	}
}

func numbered(i int) cluster.AttemptID { return cluster.AttemptID{Job: cluster.JobID(i + 1), No: 1} }

func TestTaskLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tasks.log")
	l, tasks, _ := openLog(t, path)
	if len(tasks) != 0 {
		t.Fatalf("a new log has %v", tasks)
	}
	var wg sync.WaitGroup
	for i := range 50 {
		record(t, l, numbered(i), 3)
		wg.Go(func() {
			if err := l.put(runtime.Task{ID: numbered(i), Token: 3, Phase: runtime.Stopped, ExitCode: i}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if err := l.close(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	// A crash may leave any part of the last line.
	for cut := len(whole) - 120; cut <= len(whole); cut++ {
		if err := os.WriteFile(path, whole[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		l, tasks, damaged := openLog(t, path)
		ended := 0
		for id, task := range tasks {
			if task.state.Phase == runtime.Stopped {
				ended++
			}
			if task.state.Phase == runtime.Stopped && task.state.ExitCode != int(id.Job)-1 {
				t.Fatalf("cut at %d: %+v", cut, task.state)
			}
		}
		if ended < 48 || damaged > 1 {
			t.Fatalf("cut at %d of %d: read %d ends, %d damaged lines", cut, len(whole), ended, damaged)
		}
		next := cluster.AttemptID{Job: 99, No: 2}
		record(t, l, next, 4)
		if err := errors.Join(l.put(runtime.Task{ID: next, Token: 4, Phase: runtime.Stopped, ExitCode: 7}), l.close()); err != nil {
			t.Fatal(err)
		}
		l, tasks, _ = openLog(t, path)
		if got := tasks[next]; got == nil || got.state.ExitCode != 7 {
			t.Fatalf("cut at %d: what came after the torn line reads %+v", cut, got)
		}
		if err := l.close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestTaskLogCompacts keeps the tasks that are there, and not for ever all that ever were.
func TestTaskLogCompacts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tasks.log")
	l, _, _ := openLog(t, path)
	const n = 2 * compactSlack / 400
	for i := range n {
		record(t, l, numbered(i), 3)
		if _, err := l.start(numbered(i)); err != nil {
			t.Fatal(err)
		}
		var err error
		if i%100 == 0 {
			err = l.put(runtime.Task{ID: numbered(i), Token: 3, Phase: runtime.Stopped, ExitCode: i % 256})
		} else {
			err = l.forget(numbered(i))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := l.close(); err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(path); err != nil || st.Size() > 2*compactSlack || int(st.Size()) != l.size {
		t.Errorf("the log has %d bytes, and counted %d, for %d tasks: %v", st.Size(), l.size, n/100, err)
	}
	_, tasks, damaged := openLog(t, path)
	if want := (n + 99) / 100; len(tasks) != want || damaged > 0 {
		t.Errorf("%d tasks, want %d; %d damaged lines", len(tasks), want, damaged)
	}
	for id, got := range tasks {
		if want := (int(id.Job) - 1) % 256; got.state.Phase != runtime.Stopped || got.state.ExitCode != want {
			t.Errorf("%s: got %+v, want code %d", id, got.state, want)
		}
	}
}

// TestTaskLogTellsWhatMayHaveRun: what was started is lost without an end, whatever was the
// end of an earlier task of the same name, and a start that did not happen is taken back.
func TestTaskLogTellsWhatMayHaveRun(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tasks.log")
	l, _, _ := openLog(t, path)
	for i := range 3 {
		record(t, l, numbered(i), 3)
	}
	end := runtime.Task{ID: numbered(0), Token: 3, Phase: runtime.Stopped, ExitCode: 6}
	undo := func() error { return nil }
	start := func(i int) (err error) {
		undo, err = l.start(numbered(i))
		return err
	}
	if err := errors.Join(start(0), l.put(end), l.forget(end.ID), start(1), start(2), undo()); err != nil {
		t.Fatal(err)
	}
	record(t, l, end.ID, 4)
	if err := errors.Join(l.put(end), start(0)); err != nil { // an end of the earlier one
		t.Fatal(err)
	}
	for round := range 2 {
		l, tasks, _ := openLog(t, path)
		for i, want := range []runtime.Phase{runtime.Lost, runtime.Lost, runtime.Created} {
			if got := tasks[numbered(i)]; got == nil || got.state.Phase != want {
				t.Errorf("round %d: task %d is %+v, want %v", round, i, got, want)
			}
		}
		if err := errors.Join(l.compact(), l.close()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestDamagedRecord has one bad line not keep the keeper from all the others.
func TestDamagedRecord(t *testing.T) {
	rt, dir := newTest(t)
	if err := rt.Create(t.Context(), newLaunch(1, "true")); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(filepath.Join(dir, "tasks.log"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteString(`00000000 {"Launch":`)
	if err := errors.Join(err, f.Close(), syscall.Kill(listenerPID(t, dir), syscall.SIGKILL)); err != nil {
		t.Fatal(err)
	}
	until(t, "the next keeper", func() bool {
		tasks, err := rt.List(t.Context())
		return err == nil && len(tasks) == 1 && tasks[0].Phase == runtime.Created
	})
	if text, err := os.ReadFile(filepath.Join(dir, logName)); err != nil || !strings.Contains(string(text), "is damaged") {
		t.Errorf("its log: %s (%v)", text, err)
	}
}
