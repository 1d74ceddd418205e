package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestAccountsAndClasses: a quota holds a job back and is named, use is charged,
// and a job of a class takes the GPU of one that makes room for it, which comes
// back.
func TestAccountsAndClasses(t *testing.T) {
	t.Parallel()
	c := startClusterWith(t, []string{"BERTH_SCHEDULING_PREEMPT_EVERY=1s", "BERTH_SCHEDULING_FAIRSHARE=0.5"}, "--nodes", "1x1xT4")
	me, dir := fmt.Sprint(os.Getuid()), openDir(t)
	c.run("qos", "add", "scavenger", "--grace", "20s", "--default")
	c.run("qos", "add", "high", "--priority", "10", "--preempts", "scavenger")
	c.run("account", "add", "science")
	c.run("account", "add", "bio", "--parent", "science", "--shares", "3")
	c.run("account", "add", "bio", "--user", me)
	c.run("quota", "set", "--account", "science", "--running", "1")

	// The first job writes a line each time it starts, and ends at once at its
	// second start.
	write(t, filepath.Join(dir, "low.sh"), "#!/bin/sh\n#SBATCH --gpus=1 --exclusive\necho start >>starts\n[ $(wc -l <starts) -gt 1 ] && exit 0\nexec sleep 600\n")
	low := c.submit("-D", dir, "--quiet", filepath.Join(dir, "low.sh"))
	if j := c.await(low, "RUNNING"); j.Account != "bio" || j.QOS != "scavenger" {
		t.Errorf("charged to %q with qos %q", j.Account, j.QOS)
	}
	second := c.submit("-D", dir, "--gpus", "1", "--gpu-mem", "1G", "--", "true")
	c.eventually("squeue to name the quota", func() bool {
		return strings.Contains(c.run("squeue", "-h", "-o", "%i %r %a %q"), fmt.Sprintf("%d AssocGrpJobsLimit bio scavenger\n", second))
	})
	if why := c.run("why", fmt.Sprint(second)); !strings.Contains(why, "account science may run 1 job at once, and 1 run") {
		t.Errorf("why: %s", why)
	}
	c.run("cancel", fmt.Sprint(second))
	c.run("quota", "set", "--account", "science", "--running", "2")

	high := c.submit("-D", dir, "--gpus", "1", "--exclusive", "--qos", "high", "--", "sleep", "1")
	c.await(high, "COMPLETED")
	j := c.await(low, "COMPLETED")
	if len(j.Attempts) != 2 || j.Attempts[0].State != "PREEMPTED" || !strings.Contains(j.Attempts[0].ReasonDetail, fmt.Sprintf("for job %d: qos high goes before qos scavenger", high)) {
		t.Errorf("attempts %+v", j.Attempts)
	}
	if use := c.run("account", "show", "--usage"); !strings.Contains(use, "bio") || !strings.Contains(use, "1/1") {
		t.Errorf("usage:\n%s", use)
	}
}
