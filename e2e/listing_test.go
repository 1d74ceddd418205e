package e2e

import (
	"encoding/json"
	"fmt"
	"reflect"
	"testing"
)

// TestListingsOfManyAlike lists thousands of jobs, most of which were submitted alike, over
// several pages: each is there once, in order, with what is its own, also where that was
// changed since, and after the leader was killed and the jobs were read back.
func TestListingsOfManyAlike(t *testing.T) {
	t.Parallel()
	c := startCluster(t, "--coordinators", "3", "--nodes", "1x2xT4")
	dir := openDir(t)
	held := func(more ...string) uint64 {
		return c.submit(append([]string{"-D", dir, "-o", "/dev/null", "--gpus", "1", "--hold"}, more...)...)
	}
	var first uint64
	for i := range 3 {
		if id := held("--", "echo", fmt.Sprint("own ", i)); first == 0 {
			first = id
		}
		c.run("submit", "-D", dir, "-o", "/dev/null", "--gpus", "1", "--hold", "--count", "900", "--time", "60", "--", "echo", "alike")
		held("--array", "0-5", "--", "echo", "array")
	}
	changed := first + 1
	c.run("update", fmt.Sprint(changed), "--time", "7m")
	type job struct {
		ID   uint64
		Spec map[string]any
	}
	read := func(into any, args ...string) {
		if err := json.Unmarshal([]byte(c.run(args...)), into); err != nil {
			t.Fatal(err)
		}
	}
	look := func() {
		var jobs []job
		read(&jobs, "queue", "-o", "json")
		if want := 3 * (900 + 2); len(jobs) != want {
			t.Fatalf("%d jobs are listed, want %d", len(jobs), want)
		}
		for i, j := range jobs {
			if i > 0 && j.ID <= jobs[i-1].ID {
				t.Fatalf("job %d follows job %d", j.ID, jobs[i-1].ID)
			}
			if i%400 > 2 {
				continue
			}
			var shown job
			if read(&shown, "show", "-o", "json", fmt.Sprint(j.ID)); !reflect.DeepEqual(shown.Spec, j.Spec) {
				t.Errorf("job %d is listed with %v, and shown with %v", j.ID, j.Spec, shown.Spec)
			}
		}
		if of := jobs[1].Spec; jobs[1].ID != changed || of["time_seconds"] != 420.0 || !reflect.DeepEqual(of["command"], []any{"echo", "alike"}) {
			t.Errorf("the job that was changed is %d: %v", jobs[1].ID, of)
		}
		var slurm struct {
			Jobs []struct {
				ID    uint64 `json:"job_id"`
				Limit *int64 `json:"time_limit"`
			}
		}
		if read(&slurm, "squeue", "--json"); len(slurm.Jobs) != len(jobs) {
			t.Fatalf("squeue lists %d jobs", len(slurm.Jobs))
		}
		for i, j := range slurm.Jobs {
			if limit := jobs[i].Spec["time_seconds"].(float64) / 60; j.Limit == nil && limit != 0 || j.Limit != nil && float64(*j.Limit) != limit {
				t.Errorf("job %d has a limit of %v minutes in squeue's list, and %v in Berth's", j.ID, j.Limit, limit)
			}
		}
	}
	look()
	c.kill(c.leader().PID)
	look()
}
