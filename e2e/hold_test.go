package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestHoldRequeueDepend does by the command line, Slurm's and Berth's, what
// keeps jobs from starting and what lets them start again.
func TestHoldRequeueDepend(t *testing.T) {
	t.Parallel()
	c := startCluster(t, "--nodes", "1x1xT4")
	dir := openDir(t)
	write(t, filepath.Join(dir, "again.sh"), "#!/bin/sh\n#SBATCH -H --kill-on-invalid-dep=yes\n#SBATCH --gpus=1\necho run >>runs\n[ -f go ] && exit 0\nexec sleep 600\n")
	held := c.submit("-D", dir, "--quiet", filepath.Join(dir, "again.sh"))
	after := c.submit("-D", dir, "--dependency", fmt.Sprintf("afterok:%d", held), "--", "true")
	never := c.submit("-D", dir, "--dependency", fmt.Sprintf("afternotok:%d", held), "--", "true")
	killed := c.submit("-D", dir, "-d", fmt.Sprintf("afternotok:%d", held), "--kill-on-invalid-dep", "yes", "--", "true")
	later := c.submit("-D", dir, "--begin", "now+2hours", "--", "true")
	list := c.run("squeue", "-h", "-o", "%i %t %r %E")
	for _, want := range []string{
		fmt.Sprintf("%d PD JobHeldUser (null)", held), fmt.Sprintf("%d PD Dependency afterok:%d(unfulfilled)", after, held),
		fmt.Sprintf("%d PD BeginTime (null)", later),
	} {
		if !strings.Contains(list, want+"\n") {
			t.Errorf("squeue does not say %q:\n%s", want, list)
		}
	}
	if why := c.run("why", fmt.Sprint(held)); !strings.Contains(why, "berth release") {
		t.Errorf("why: %s", why)
	}
	c.run("scontrol", "release", fmt.Sprint(held))
	c.await(held, "RUNNING")
	runs := filepath.Join(dir, "runs")
	c.eventually("the first run", func() bool { return len(lines(runs)) == 1 })
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	c.run("requeue", fmt.Sprint(held))
	j := c.await(held, "COMPLETED")
	if len(j.Attempts) != 2 || j.Attempts[0].State != "PREEMPTED" || len(lines(runs)) != 2 {
		t.Errorf("attempts %+v, runs %q", j.Attempts, lines(runs))
	}
	c.await(after, "COMPLETED")
	c.await(killed, "CANCELLED")
	if j := c.show(never); j.State != "PENDING" || !strings.Contains(c.run("squeue", "-h", "-o", "%i %r"), fmt.Sprintf("%d DependencyNeverSatisfied\n", never)) {
		t.Errorf("what can never start is %s", j.State)
	}
	if j := c.show(later); j.State != "PENDING" {
		t.Errorf("what begins in two hours is %s", j.State)
	}
}
