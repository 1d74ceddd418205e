package client_test

import (
	"fmt"
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/draws"
	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

var _ = draws.Fixed()

// TestFolded holds the rows of a listing against what has to be true of them: each task
// is in just one row, as it was, and no two rows of tasks that wait are alike.
func TestFolded(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var jobs []*apiv1.Job
		want := map[string]string{} // by array and task, its state and reason
		for task := range rapid.Uint32Range(0, 40).Draw(rt, "tasks") {
			array := rapid.SampledFrom([]uint64{0, 5, 500}).Draw(rt, "array")
			state := rapid.SampledFrom([]string{"QUEUED", "PENDING", "RUNNING"}).Draw(rt, "state")
			reason := rapid.SampledFrom([]string{"GPUSlots", "GPUMemory"}).Draw(rt, "reason")
			j := &apiv1.Job{Id: array + uint64(task) + 1, ArrayJobId: array, State: state, Reason: reason}
			if array != 0 {
				j.ArrayTaskId = &task
			}
			jobs = append(jobs, j)
			want[client.JobLabel(j)] = state + reason
		}
		have, waiting := map[string]string{}, map[string]int{}
		for _, j := range client.Folded(jobs) {
			what := j.GetState() + j.GetReason()
			if j.GetArrayJobId() == 0 {
				have[client.JobLabel(j)] = what
				continue
			}
			if !console.Waiting(j.GetState()) && j.GetArrayCount() > 1 {
				rt.Fatalf("row %v of tasks that run", j)
			}
			if console.Waiting(j.GetState()) {
				waiting[fmt.Sprint(j.GetArrayJobId(), what)]++
			}
			tasks, err := cluster.ParseTasks(client.TasksOf(j))
			if err != nil || j.GetArrayCount() > 1 && int(j.GetArrayCount()) != tasks.Len() {
				rt.Fatalf("row %v: %v", j, err)
			}
			for k := range tasks.Len() {
				have[strconv.FormatUint(j.GetArrayJobId(), 10)+"_"+strconv.FormatUint(uint64(tasks.At(k)), 10)] += what
			}
		}
		if fmt.Sprint(have) != fmt.Sprint(want) {
			rt.Fatalf("rows have %v, the jobs were %v", have, want)
		}
		for k, n := range waiting {
			if n > 1 {
				rt.Fatalf("%s is in %d rows", k, n)
			}
		}
	})
}

// TestFoldedInPlace: a row stands where the first of its tasks did.
func TestFoldedInPlace(t *testing.T) {
	task := func(id uint64, n uint32, state string) *apiv1.Job {
		return &apiv1.Job{Id: id, ArrayJobId: 5, ArrayTaskId: &n, State: state}
	}
	var have []string
	for _, j := range client.Folded([]*apiv1.Job{task(5, 0, "RUNNING"), task(6, 1, "QUEUED"), {Id: 80, State: "QUEUED"}, task(7, 2, "QUEUED"), task(9, 4, "QUEUED"),
		{Id: 20, ArrayJobId: 5, ArrayTasks: "7-15", ArrayCount: 9, State: "PENDING"}}) {
		have = append(have, client.JobLabel(j))
	}
	if want := []string{"5_0", "5_[1-2,4]", "80", "5_[7-15]"}; !slices.Equal(have, want) {
		t.Errorf("rows %q, want %q", have, want)
	}
}
