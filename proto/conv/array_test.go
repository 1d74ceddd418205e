package conv

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

// genArray has three tasks at least.
func genArray(t *rapid.T) cluster.Array {
	runs := []cluster.TaskRun{{First: 1, Last: 3, Step: 1}}
	for range rapid.IntRange(0, 3).Draw(t, "runs") {
		first := rapid.Uint32Range(0, 100).Draw(t, "first")
		runs = append(runs, cluster.TaskRun{
			First: first, Last: first + rapid.Uint32Range(0, 50).Draw(t, "more"), Step: rapid.Uint32Range(1, 9).Draw(t, "step"),
		})
	}
	tasks, err := cluster.NewTasks(runs)
	if err != nil {
		t.Fatal(err)
	}
	return cluster.Array{Tasks: tasks, Throttle: rapid.IntRange(1, 99).Draw(t, "throttle")}
}

// validTask makes j one task of the array of its spec, or several folded, and
// without an array a job by itself.
func validTask(t *rapid.T, j *cluster.Job) {
	fold := len(j.Fold) > 0
	j.ArrayJobID, j.ArrayTaskID, j.Fold = 0, 0, nil
	if j.Spec.Array == nil {
		j.OwnLimit = nil // is a task's
		return
	}
	if j.OwnLimit != nil {
		j.Spec.TimeLimit = *j.OwnLimit
	}
	n := j.Spec.Array.Tasks.Len()
	rank := rapid.IntRange(2, n-1).Draw(t, "rank")
	j.ID = min(j.ID, 1<<50)
	j.ArrayJobID = j.ID
	j.ID += cluster.JobID(rank)
	j.ArrayTaskID = j.Spec.Array.Tasks.At(rank)
	if fold {
		j.Fold = []cluster.Span{{From: 0, To: 0}, {From: 2, To: rank}}
	}
	if j.ArrayTaskID == 0 {
		t.Fatal("the least task is not the third")
	}
}

func TestTaskFromLogRefuses(t *testing.T) {
	t.Parallel()
	array, err := cluster.ParseArray("10-18:2")
	if err != nil {
		t.Fatal(err)
	}
	spec := &cluster.Spec{Array: array}
	ok := func() *logv1.Job { return &logv1.Job{Id: 103, State: 1, ArrayJob: 100, ArrayTask: 16} }
	if j, err := TaskFromLog(ok(), spec, nil); err != nil || j.Label() != "100_16" {
		t.Fatalf("%v: %v", j, err)
	}
	for name, spoil := range map[string]func(*logv1.Job){
		"no task":                    func(m *logv1.Job) { m.ArrayJob = 0 },
		"another task":               func(m *logv1.Job) { m.ArrayTask = 14 },
		"before the array":           func(m *logv1.Job) { m.ArrayJob = 104 },
		"beyond the array":           func(m *logv1.Job) { m.Id = 105 },
		"half a span":                func(m *logv1.Job) { m.Fold = []uint32{3} },
		"a span backwards":           func(m *logv1.Job) { m.Fold = []uint32{3, 2} },
		"spans that overlap":         func(m *logv1.Job) { m.Fold = []uint32{0, 2, 2, 3} },
		"ranks beyond":               func(m *logv1.Job) { m.Fold = []uint32{2, 5} },
		"an id that is not the last": func(m *logv1.Job) { m.Fold = []uint32{0, 2} },
		"one task folded":            func(m *logv1.Job) { m.Fold = []uint32{3, 3} },
	} {
		m := ok()
		spoil(m)
		if j, err := TaskFromLog(m, spec, nil); err == nil {
			t.Errorf("%s: read as %s", name, j.Label())
		}
	}
	for _, runs := range [][]uint32{{1}, {3, 2, 1}, {0, 1 << 23, 1}} {
		if a, err := arrayFromLog(&logv1.Array{Runs: runs}); err == nil {
			t.Errorf("%v: read as %s", runs, a)
		}
	}
	if a, err := arrayFromLog(&logv1.Array{}); err == nil {
		t.Errorf("no tasks: read as %s", a)
	}
}
