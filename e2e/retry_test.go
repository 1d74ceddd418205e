package e2e

import (
	"fmt"
	"strings"
	"testing"
)

// TestRetry: a job that fails runs again under its id as often as it asked for and after
// what it named, and what depends on it waits for the run that counts; each task of an
// array has its own tries. One that fails early on two nodes is tried on one.
func TestRetry(t *testing.T) {
	t.Parallel()
	c := startCluster(t, "--nodes", "2x1xT4")
	dir := openDir(t)
	id := c.submit("-D", dir, "--gpus", "1", "--retry", "3", "--retry-on", "75", "--", "sh", "-c", "[ $BERTH_RESTART_COUNT = 2 ] || exit 75")
	after := c.submit("-D", dir, "--dependency", fmt.Sprintf("afterok:%d", id), "--", "true")
	c.await(after, "COMPLETED")
	shown := c.run("show", fmt.Sprint(id))
	for _, want := range []string{"COMPLETED", "up to 3 times after 75", "exit code 75; retry 1 of 3", "exit code 75; retry 2 of 3"} {
		if !strings.Contains(shown, want) {
			t.Errorf("berth show has no %q:\n%s", want, shown)
		}
	}
	over := c.submit("-D", dir, "--retry", "1", "--", "sh", "-c", "exit 3")
	c.await(over, "FAILED")
	if shown := c.run("show", fmt.Sprint(over)); !strings.Contains(shown, "exit code 3; no retry is left of 1") {
		t.Errorf("berth show of a job that failed twice:\n%s", shown)
	}
	odd := c.submit("-D", dir, "--array", "0-3", "--retry", "1", "--", "sh", "-c", "[ $((SLURM_ARRAY_TASK_ID % 2)) = $BERTH_RESTART_COUNT ]")
	c.run("wait", fmt.Sprint(odd)) // fails where a task did
	probe := c.submit("-D", dir, "--nodes", "1-2", "--gpus", "1", "--retry", "1", "--", "sh", "-c", "[ $BERTH_NODES = 1 ]")
	c.await(probe, "COMPLETED")
	if shown := c.run("show", fmt.Sprint(probe)); !strings.Contains(shown, "retry 1 of 1, with the fewest nodes, 1: on 2 it failed within a minute of its start") {
		t.Errorf("berth show of a job that failed early on two nodes:\n%s", shown)
	}
}
