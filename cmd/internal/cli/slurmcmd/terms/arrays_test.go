package terms

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/slurm"
)

// recordedArrays are four arrays as a coordinator lists them, of which Slurm's
// output was recorded: tasks that wait are one job with the id of the last.
func recordedArrays() []slurm.Job {
	at := func(s int) time.Time { return time.Date(2026, 11, 22, 14, 28, s, 0, time.UTC) }
	j := func(array uint64, tasks string, throttle uint32, reason, name string) slurm.Job {
		j := slurm.Job{ID: 1000 * array, Name: name, User: "root", Group: "root", Partition: "main", State: "PENDING", Code: "PD", Reason: reason, Nodes: 1, CPUs: 1,
			MinMemMiB: 100, MemUsedMiB: 100, Limit: 10 * time.Minute, Submitted: at(9), LastEval: at(10), Requeue: true,
			Priority: slurm.FirstPriority - int64(array), Command: "/home/alice/runs/sleep.sh", Dir: "/home/alice/runs",
			Stdout: "/home/alice/runs/slurm-" + strconv.FormatUint(array, 10) + "_" + tasks + ".out"}
		j.InArray(array, tasks, throttle)
		j.Stderr = j.Stdout
		return j
	}
	run := func(id uint64, task string) slurm.Job {
		j := j(1, task, 2, "None", "arr")
		j.ID, j.State, j.Code, j.NodeList, j.Begun, j.Started, j.Eligible, j.Ran, j.MemUsedMiB = id, "RUNNING", "R", "n1", true, at(10), at(10), 3*time.Second, 0
		return j
	}
	later := func(j slurm.Job) slurm.Job { // a held job takes no priority
		j.Priority++
		return j
	}
	held := j(2, "0-5", 1, "JobHeldUser", "thr")
	held.Priority = 0
	return []slurm.Job{run(5, "1"), run(6, "5"), j(1, "9,13,17", 2, "JobArrayTaskLimit", "arr"), held, later(j(3, "1-3", 0, "Resources", "big")), later(j(4, "1-3", 0, "BeginTime", "two"))}
}

// TestArraysAsRecorded holds the ids and names of tasks against Slurm's.
func TestArraysAsRecorded(t *testing.T) {
	for file, c := range map[string]struct {
		q    slurm.Squeue
		jobs string
		each bool
	}{
		"squeue_array_o":  {},
		"squeue_array_r":  {each: true},
		"squeue_array_S":  {q: slurm.Squeue{Sort: "-i", NoHead: true}},
		"squeue_array_j":  {q: slurm.Squeue{NoHead: true}, jobs: "1_9,1_13"},
		"squeue_array_j1": {q: slurm.Squeue{NoHead: true}, jobs: "1_9"},
	} {
		t.Run(file, func(t *testing.T) {
			ids, tasks, err := ParseJobs(c.jobs)
			if err != nil {
				t.Fatal(err)
			}
			jobs := recordedArrays()
			if len(tasks) > 0 {
				jobs = slices.DeleteFunc(jobs, func(j slurm.Job) bool { return !slices.Contains(IDs(ids, tasks), j.ArrayID) })
			}
			if jobs, err = OnlyTasks(jobs, ids, tasks); err != nil {
				t.Fatal(err)
			}
			if c.each {
				if jobs, err = Unfolded(jobs); err != nil {
					t.Fatal(err)
				}
			}
			slurm.Masters(jobs)
			c.q.Format = "%i|%A|%F|%K|%t|%r|%j|%Q"
			var got strings.Builder
			if err := c.q.Print(&got, jobs, time.Time{}); err != nil {
				t.Fatal(err)
			}
			recorded(t, file, got.String())
		})
	}
}

// recorded compares with what Slurm printed.
func recorded(t *testing.T, file, got string) {
	t.Helper()
	want, err := os.ReadFile(filepath.Join("..", "..", "..", "slurm", "testdata", "recorded", file+".txt"))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); d != "" {
		t.Errorf("%s differs from Slurm (-) (+ours):\n%s", file, d)
	}
}

// TestTaskRecordsAsRecorded holds scontrol show job of an array and of a task.
func TestTaskRecordsAsRecorded(t *testing.T) {
	for file, arg := range map[string]string{"scj_array": "1", "scj_task": "1_9"} {
		const waits = "9,13,17"
		task := map[string]string{"scj_array": "4294967294", "scj_task": "9"}[file]
		ids, tasks, err := ParseJobs(arg)
		if err != nil {
			t.Fatal(err)
		}
		jobs, err := OnlyTasks(recordedArrays()[:3], ids, tasks)
		if err != nil {
			t.Fatal(err)
		}
		var got strings.Builder
		if err := PrintRecords(&got, &slurm.Record{}, jobs, true); err != nil {
			t.Fatal(err)
		}
		// Berth has no time of accrual, and the names of files are the caller's.
		recorded(t, file, strings.NewReplacer("AccrueTime=Unknown", "AccrueTime=2026-11-22T14:28:10", "slurm-1_"+waits, "slurm-1_"+task).Replace(got.String()))
	}
}

// TestLoneTasks: of tasks that wait apart from each other none has the id of the
// array, one alone has it, and one that began keeps its own.
func TestLoneTasks(t *testing.T) {
	lone := func(id uint64, task string, begun bool) slurm.Job {
		j := slurm.Job{ID: id, Code: "PD", Begun: begun}
		j.InArray(7, task, 0)
		return j
	}
	ids := func(jobs ...slurm.Job) (out []uint64) {
		slurm.Masters(jobs)
		for _, j := range jobs {
			out = append(out, j.ID)
		}
		return out
	}
	for name, c := range map[string]struct{ got, want []uint64 }{
		"one":         {ids(lone(9, "3", false)), []uint64{7}},
		"two":         {ids(lone(9, "3", false), lone(11, "5", false)), []uint64{9, 11}},
		"beside many": {ids(lone(9, "3", false), lone(12, "5-6", false)), []uint64{9, 7}},
		"requeued":    {ids(lone(9, "3", true)), []uint64{9}},
	} {
		if d := cmp.Diff(c.want, c.got); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}

func TestJobsAndTasksOf(t *testing.T) {
	ids, tasks, err := ParseJobs("3,12_7 14_[1-3,5],9.batch 8.0")
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]uint64{3, 9, 8}, ids); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]console.TaskRef{{Array: 12, Tasks: "7"}, {Array: 14, Tasks: "1-3,5"}}, tasks); d != "" {
		t.Error(d)
	}
	if _, _, err := ParseJobs("12_x"); err == nil || err.Error() != "Invalid job id: 12_x" {
		t.Errorf("12_x: %v", err)
	}
}

func first(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// TestFolded: tasks in the queues of GPUs are one line, as those are that wait for any.
func TestFolded(t *testing.T) {
	task := func(n int, reason string) slurm.Job {
		j := slurm.Job{ID: uint64(7 + n), Code: "PD", State: "PENDING", Reason: reason, Name: "sweep"}
		j.InArray(7, strconv.Itoa(n), 0)
		return j
	}
	begun := task(5, "GPUSlots")
	begun.Begun = true // it was requeued, and has an id of its own
	rest := task(0, "Planning")
	rest.InArray(7, "8-99", 0)
	var have []string
	for _, j := range Folded([]slurm.Job{rest, task(1, "GPUSlots"), task(2, "GPUSlots"), task(3, "GPUMemory"), task(4, "GPUSlots"), begun, {ID: 3, Code: "PD"}}) {
		have = append(have, first(j.Array, strconv.FormatUint(j.ID, 10))+" "+j.Reason)
	}
	want := []string{"7_[8-99] Planning", "7_[1-2,4] GPUSlots", "7_3 GPUMemory", "7_5 GPUSlots", "3 "}
	if !slices.Equal(have, want) {
		t.Errorf("lines %q, want %q", have, want)
	}
}
