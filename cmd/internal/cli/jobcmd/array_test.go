package jobcmd_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/berth-scheduler/berth/cluster/wait"
	"github.com/berth-scheduler/berth/cmd/internal/cli/clitest"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/golden"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// task is one task of array 30, which has the tasks 0 to 9.
func task(n uint32, state string, code int32) *apiv1.Job {
	j := &apiv1.Job{Id: 30 + uint64(n), ArrayJobId: 30, ArrayTaskId: &n, Name: "sweep", User: "ann", State: state, GpusWanted: 1}
	if console.Terminal(state) {
		j.ExitCode = &code
	} else if state == "RUNNING" {
		j.Node = "n1"
	}
	return j
}

// tasks are some of its tasks that are listed as one, the last of which is given.
func tasks(list string, count uint32, last uint64, state string) *apiv1.Job {
	return &apiv1.Job{Id: 30 + last, ArrayJobId: 30, ArrayTasks: list, ArrayCount: count, ArrayThrottle: 4, Name: "sweep", User: "ann", State: state, Reason: "Planning", GpusWanted: 1}
}

func sweep(f *clitest.Fake, ended uint32, jobs ...*apiv1.Job) {
	f.Arrays = map[uint64]*apiv1.ArrayInfo{30: {Tasks: "0-9", Size: 10, Ended: ended, Completed: ended}}
	for _, j := range jobs {
		st := &apiv1.ArrayCount{State: j.GetState(), Count: max(1, j.GetArrayCount())}
		f.Arrays[30].States = append(f.Arrays[30].States, st)
	}
	f.Jobs = append(clitest.SampleJobs(), jobs...)
}

// TestWaitForAnArray: not for its first task alone; the exit code is the highest of
// all tasks. One task may be waited for by itself, also the one that has the id of
// the array, and one that was cancelled with others before it began.
func TestWaitForAnArray(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := clitest.NewWorld(t)
		f := clitest.NewFake()
		w.Serve("/a", f)
		sweep(f, 1, task(0, "COMPLETED", 0), task(1, "RUNNING", 0), tasks("2-9", 8, 9, "PENDING"))
		var wg sync.WaitGroup
		wg.Go(func() {
			wait.Sleep(t.Context(), time.Minute)
			f.Change(func() {
				sweep(f, 3, task(0, "COMPLETED", 0), task(1, "FAILED", 7), task(2, "FAILED", 9), task(3, "RUNNING", 0), tasks("4-9", 6, 9, "PENDING"))
			})
			wait.Sleep(t.Context(), time.Minute)
			f.Change(func() {
				sweep(f, 10, task(0, "COMPLETED", 0), task(1, "FAILED", 7), task(2, "FAILED", 9), task(3, "COMPLETED", 0), tasks("4-9", 6, 9, "CANCELLED"))
			})
		})
		for args, want := range map[string]int{"30": 9, "30_0": 0, "31": 7, "30_[2,1]": 7, "30_5": 1, "35": 1, "30_3 30_1": 7} {
			began := time.Now()
			if code := w.Run(append([]string{"wait"}, strings.Fields(args)...)...); code != want {
				t.Errorf("wait %s: exit code %d, want %d: %s", args, code, want, w.Errs.String())
			}
			if args == "30_0" && time.Since(began) > 30*time.Second {
				t.Errorf("the first task had ended, and was waited for %s", time.Since(began))
			}
		}
		wg.Wait()
		for args, want := range map[string]string{"30": "job 30_2: FAILED", "30_5": "job 30_5: CANCELLED"} {
			if w.Run("wait", args); !strings.Contains(w.Errs.String(), want) {
				t.Errorf("wait %s says %q, want %q in it", args, w.Errs.String(), want)
			}
		}
		if code := w.Run("wait", "30_17"); code != console.ExitNotFound || !strings.Contains(w.Errs.String(), "0-9") {
			t.Errorf("no such task: exit code %d: %s", code, w.Errs.String())
		}
		if code := w.Run("wait", "12_1"); code != console.ExitNotFound || !strings.Contains(w.Errs.String(), "not an array") {
			t.Errorf("no array: exit code %d: %s", code, w.Errs.String())
		}
	})
}

// TestWaitForForgottenTasks: tasks that the coordinators forgot while the array went
// on are in the history, and count.
func TestWaitForForgottenTasks(t *testing.T) {
	t.Parallel()
	w := clitest.NewWorld(t)
	f := clitest.NewFake()
	w.Serve("/a", f)
	sweep(f, 10, tasks("1-9", 9, 9, "COMPLETED"))
	hist := task(0, "FAILED", 4)
	f.Hidden = []*apiv1.Job{hist}
	if code := w.Run("wait", "30"); code != 4 {
		t.Errorf("exit code %d, want 4: %s", code, w.Errs.String())
	}
}

// TestSubmitAndWaitForAnArray as sbatch -W does.
func TestSubmitAndWaitForAnArray(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := clitest.NewWorld(t)
		f := clitest.NewFake()
		w.Serve("/a", f)
		array := func(ended uint32, second string) {
			var of [2]*apiv1.Job
			for i, state := range []string{"COMPLETED", second} {
				n, code := uint32(i), int32(3*i)
				of[i] = &apiv1.Job{Id: 101 + uint64(i), ArrayJobId: 101, ArrayTaskId: &n, State: state, ExitCode: &code}
			}
			f.Arrays = map[uint64]*apiv1.ArrayInfo{101: {Tasks: "0,1", Size: 2, Ended: ended}}
			f.Jobs = of[:]
		}
		array(1, "RUNNING")
		var wg sync.WaitGroup
		wg.Go(func() {
			wait.Sleep(t.Context(), time.Minute)
			f.Change(func() { array(2, "FAILED") })
		})
		began := time.Now()
		if code := w.Run("submit", "--wait", "--parsable", "--array", "0-1", "--", "true"); code != 3 || time.Since(began) < time.Minute {
			t.Errorf("exit code %d after %s, want 3 after a minute: %s", code, time.Since(began), w.Errs.String())
		}
		wg.Wait()
	})
}

// TestArraysEverywhere: the id of an array is all of it where several may be told
// of, and is refused, saying which tasks there are, where it has to be one.
func TestArraysEverywhere(t *testing.T) {
	t.Parallel()
	w := clitest.NewWorld(t)
	f := clitest.NewFake()
	w.Serve("/a", f)
	sweep(f, 1, task(0, "COMPLETED", 0), task(1, "RUNNING", 0), tasks("2-9", 8, 9, "PENDING"))
	for args, wants := range map[string][]string{
		"show 30":            {"10 tasks: 0-9", "1 COMPLETED, 1 RUNNING, 8 PENDING"},
		"show 30_0":          {"30_0 (job 30)"},
		"show -o json 30":    {`"array_job_id": 30`, `"states": {`, `"PENDING": 8`},
		"queue 30":           {"30_0", "30_1", "30_[2-9%4]"},
		"queue 30_1":         {"30_1"},
		"queue 30_0":         {"30_0"},
		"queue -o name 30_3": {"30_[2-9]"},
		"queue -o json 30_1": {`"array_task_id": 1`, `"array_tasks": "1"`},
		"queue -o yaml 30_2": {"array_tasks: 2-9", "array_count: 8", "array_throttle: 4", "array_task_id: null"},
		"history -o json 30": {`"array_task_id": 0`},
		"why 30_1":           {"RUNNING"},
		"eff 30_0":           {"30_0"},
	} {
		if code := w.Run(strings.Fields(args)...); code != 0 {
			t.Errorf("%s: exit code %d: %s", args, code, w.Errs.String())
		}
		for _, want := range wants {
			if !strings.Contains(w.Out.String(), want) {
				t.Errorf("%s: %q is not in\n%s", args, want, w.Out.String())
			}
		}
		if args == "queue 30_0" && strings.Contains(w.Out.String(), "30_1") {
			t.Errorf("%s lists others, too:\n%s", args, w.Out.String())
		}
	}
	for _, verb := range []string{"logs 30", "exec 30 true", "shell 30"} {
		if code := w.Run(strings.Fields(verb)...); code != console.ExitFailed || !strings.Contains(w.Errs.String(), "tasks 0-9 (1 COMPLETED, 1 RUNNING, 8 PENDING)") {
			t.Errorf("%s: exit code %d: %s", verb, code, w.Errs.String())
		}
	}
	if code := w.Run("logs", "30_5"); code == 0 || strings.Contains(w.Errs.String(), "array") {
		t.Errorf("logs of a task that waits: exit code %d: %s", code, w.Errs.String())
	}
	for i := range f.Jobs {
		f.Jobs[i] = nil
	}
	f.Jobs = []*apiv1.Job{task(0, "PENDING", 0)}
	f.Arrays = map[uint64]*apiv1.ArrayInfo{30: {Tasks: "0", Size: 1}}
	if w.Run("logs", "30"); strings.Contains(fmt.Sprint(w.Errs.String()), "is an array") {
		t.Errorf("an array of one task: %s", w.Errs.String())
	}
}

// TestUpdateTimeLimits: of a job, a task, an array, and by more or less than they
// have, in both tongues.
func TestUpdateTimeLimits(t *testing.T) {
	t.Parallel()
	limited := func(j *apiv1.Job, d time.Duration) *apiv1.Job {
		j.Spec = &apiv1.JobSpec{TimeLimit: durationpb.New(d)}
		return j
	}
	for args, want := range map[string][]string{
		"berth update 30 --time 2:00:00":                   {"30: 2h0m0s"},
		"berth update 30_1 --time 90":                      {"30_1: 1h30m0s"},
		"berth update 30_[5-7] --time none":                {"30_[5-7]: 0s"},
		"berth update 30 --time +30":                       {"30_1: 1h30m0s", "30_[2-9]: 2h30m0s"},
		"berth update 30_[1,3-4] --time -10m":              {"30_1: 50m0s", "30_[3-4]: 1h50m0s"},
		"berth update 40 --time -20":                       {"40: 40m0s"},
		"scontrol update JobId=30_1 TimeLimit=+30":         {"30_1: 1h30m0s"},
		"scontrol update job 30_1 TimeLimit +30":           {"30_1: 1h30m0s"},
		"scontrol update JobId=30_[1,3] TimeLimit=1-00:00": {"30_[1,3]: 24h0m0s"},
		"scontrol update JobId=40 TimeLimit=-10":           {"40: 50m0s"},
	} {
		w := clitest.NewWorld(t)
		f := clitest.NewFake()
		w.Serve("/a", f)
		sweep(f, 1, task(0, "COMPLETED", 0), limited(task(1, "RUNNING", 0), time.Hour), limited(tasks("2-9", 8, 9, "PENDING"), 2*time.Hour))
		f.Jobs = append(f.Jobs, limited(&apiv1.Job{Id: 40, User: "ann", State: "RUNNING"}, time.Hour))
		line := strings.Fields(args)
		if line[0] == "berth" {
			line = line[1:]
		}
		code := w.Run(line...)
		var got []string
		for _, r := range f.Updates {
			got = append(got, console.JobOrTasks(r.GetId(), r.GetTasks())+": "+r.GetTimeLimit().AsDuration().String())
		}
		if d := cmp.Diff(want, got); code != 0 || d != "" {
			t.Errorf("%s: exit code %d: %s%s", args, code, w.Errs.String(), d)
		}
	}
	w := clitest.NewWorld(t)
	f := clitest.NewFake()
	w.Serve("/a", f)
	f.Jobs = append(f.Jobs, limited(&apiv1.Job{Id: 40, User: "ann", State: "RUNNING"}, time.Hour), &apiv1.Job{Id: 41, User: "ann", State: "RUNNING"})
	for args, want := range map[string]string{"40 --time=-60": "cannot change by", "41 --time +5": "no time limit", "40,41 --time 5": "want one job"} {
		if code := w.Run(append([]string{"update"}, strings.Fields(args)...)...); code == 0 || !strings.Contains(w.Errs.String(), want) {
			t.Errorf("%s: exit code %d: %s", args, code, w.Errs.String())
		}
	}
}

// TestUpdateTells: of doubts with the word warning, of promises without it.
func TestUpdateTells(t *testing.T) {
	t.Parallel()
	w, f := clitest.NewWorld(t), clitest.NewFake()
	f.Jobs = []*apiv1.Job{{Id: 40, User: "ann", State: "PENDING"}}
	f.Warnings, f.Promises = []string{"signal: is never sent"}, []string{"deadline: it starts by 12:00"}
	w.Serve("/a", f)
	if code := w.Run("update", "40", "--gpus", "2"); code != 0 || w.Errs.String() != "berth: warning: signal: is never sent\nberth: deadline: it starts by 12:00\n" {
		t.Errorf("exit code %d: %s", code, w.Errs.String())
	}
}

// TestQueuedTasksAreOneLine: tasks in the queues of GPUs are listed as one, also in the
// wide table and with their starts, and what is known of none is not said of them.
func TestQueuedTasksAreOneLine(t *testing.T) {
	w := clitest.NewWorld(t)
	queued := func(n uint32) *apiv1.Job {
		j := task(n, "QUEUED", 0)
		j.Reason, j.ArrayThrottle, j.Predicted = "GPUSlots", 4, &apiv1.Prediction{GpuType: "A100-SXM4-80GB", GpuMemMib: 81920, GpuUtilMilli: 1000, Source: "none"}
		return j
	}
	f := clitest.NewFake()
	w.Serve("/a", f)
	sweep(f, 0, task(0, "RUNNING", 0), queued(2), queued(3), queued(4), queued(6), tasks("7-9", 3, 9, "PENDING"))
	golden.Check(t, "queue-queued", w.Transcript("queue", "30")+w.Transcript("queue", "-o", "wide", "30")+w.Transcript("queue", "--start", "30")+w.Transcript("queue", "-o", "name", "30"))
}
