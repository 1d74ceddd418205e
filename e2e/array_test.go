package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestArrayOutlivesTheLeader kills the leader in the middle of an array of
// which four tasks run at once: each task but the cancelled runs once, never
// more than four at a time, and the array's dependent runs after them.
func TestArrayOutlivesTheLeader(t *testing.T) {
	t.Parallel()
	c := startCluster(t, "--coordinators", "3", "--nodes", "2x1xT4")
	dir := openDir(t)
	// Each task says when it begins and ends, in one write each.
	const body = `echo "+ $SLURM_ARRAY_TASK_ID" >> marks; sleep 0.7; echo "- $SLURM_ARRAY_TASK_ID" >> marks`
	id := c.submit("-D", dir, "-o", "/dev/null", "--array", "0-23%4", "--", "sh", "-c", body)
	after := c.submit("-D", dir, "-o", "/dev/null", "--dependency", fmt.Sprintf("afterany:%d", id), "--", "sh", "-c", "cp marks all")
	c.run("cancel", fmt.Sprintf("%d_[20-23]", id))
	marks := func(name string) []string {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return nil
		}
		return strings.Split(strings.TrimSpace(string(data)), "\n")
	}
	c.eventually("six tasks to have begun", func() bool { return len(marks("marks")) >= 8 })
	c.kill(c.leader().PID)
	if j := c.await(after, "COMPLETED", "CANCELLED", "FAILED"); j.State != "COMPLETED" {
		t.Fatalf("the dependent is %s (%s)", j.State, j.Reason)
	}
	var began []string
	running, most := 0, 0
	for _, m := range marks("all") {
		if task, ok := strings.CutPrefix(m, "+ "); ok {
			began = append(began, task)
			running++
			most = max(most, running)
			continue
		}
		running--
	}
	slices.Sort(began)
	var want []string
	for i := range 20 {
		want = append(want, fmt.Sprint(i))
	}
	slices.Sort(want)
	if !slices.Equal(began, want) || running != 0 || most > 4 {
		t.Errorf("began %v, %d at once at most, %d that did not end; want each of 0 to 19 once, 4 at once", began, most, running)
	}
	if out := c.run("sacct", "-n", "-X", "-P", "-j", fmt.Sprint(id), "-o", "state"); strings.Count(out, "COMPLETED") != 20 {
		t.Errorf("sacct says\n%s", out)
	}
}
