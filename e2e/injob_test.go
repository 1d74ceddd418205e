package e2e

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// busyScript starts steps and submits jobs, and says of each what came of it.
const busyScript = `#!/bin/bash
for i in 1 2 3 4 5 6; do
	srun -n1 sh -c "echo step $i >>steps" || echo "step $i: $?" >>failed
	sbatch --parsable -Q --mem=20M -t 5 -o /dev/null --wrap "echo job $i >>jobs" >>ids || echo "job $i: $?" >>failed
	sleep 0.3
done
exit 3
`

// TestJobsWorkOnWhileTheLeaderDies: a job whose script starts steps and submits
// more jobs loses none of them to a leader that is killed, and none is done twice.
func TestJobsWorkOnWhileTheLeaderDies(t *testing.T) {
	t.Parallel()
	c := startCluster(t, "--coordinators", "3", "--nodes", "1x1xT4")
	dir := openDir(t)
	write(t, filepath.Join(dir, "busy.sh"), busyScript)
	r := c.runAs(alice, "sbatch", "--parsable", "-Q", "--mem", "200M", "-t", "5", "-D", dir, "-o", dir+"/out", filepath.Join(dir, "busy.sh"))
	if r.code != 0 {
		t.Fatalf("sbatch: %d %s", r.code, r.stderr)
	}
	id := parseID(t, r.stdout)
	count := func(name string) []string { return lines(filepath.Join(dir, name)) }
	c.eventually("the first two jobs of the job", func() bool { return len(count("ids")) >= 2 })
	c.kill(c.leader().PID)
	if j := c.await(id, "FAILED", "COMPLETED", "NODE_FAIL"); j.code() != 3 || len(j.Attempts) != 1 {
		t.Errorf("ended %s (%s) with %d after %d attempts, want its own 3 after one", j.State, j.Reason, j.code(), len(j.Attempts))
	}
	if failed := count("failed"); len(failed) > 0 {
		t.Errorf("failed: %q; it printed %q", failed, count("out"))
	}
	var steps, jobs []string
	for i := 1; i <= 6; i++ {
		steps, jobs = append(steps, fmt.Sprint("step ", i)), append(jobs, fmt.Sprint("job ", i))
	}
	for _, text := range count("ids") {
		sub, err := strconv.ParseUint(strings.TrimSpace(text), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		if j := c.await(sub, "COMPLETED", "FAILED", "NODE_FAIL"); j.State != "COMPLETED" {
			t.Errorf("job %d ended %s (%s)", sub, j.State, j.Reason)
		}
	}
	got := count("jobs")
	slices.Sort(got) // they ran beside each other
	if !slices.Equal(count("steps"), steps) || !slices.Equal(got, jobs) {
		t.Errorf("steps %q and jobs %q ran, want each of six once", count("steps"), got)
	}
}
