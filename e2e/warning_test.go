package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestAJobIsWarnedOnce: before its time limit, by a signal that an agent which
// is killed right after it does not send again; then comes the limit. In a
// batch script the shell is spared unless it asked, and the program gets it.
func TestAJobIsWarnedOnce(t *testing.T) {
	t.Parallel()
	c := startCluster(t, "--nodes", "1x1xT4")
	dir := openDir(t)
	listen := filepath.Join(dir, "listen.sh")
	const text = `trap "echo warned $1" USR1; echo ready; while :; do sleep 0.1; done`
	if err := os.WriteFile(listen, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	script := filepath.Join(dir, "job.sh")
	const batch = "#!/bin/sh\n#SBATCH --output=berth-%%j.out\n#SBATCH --chdir=%s\n#BERTH --time=25s --signal=USR1@20\nsh %s program\necho shell ended\n"
	if err := os.WriteFile(script, fmt.Appendf(nil, batch, dir, listen), 0o755); err != nil {
		t.Fatal(err)
	}
	plain := c.submit("-D", dir, "--time", "25s", "--signal", "B:USR1@20", "--", "sh", listen, "first")
	batched := c.submit("-Q", script)
	c.output(dir, plain, "warned first")
	c.output(dir, batched, "warned program")
	c.kill(c.daemonPID("agent", "n1"))
	c.restart("agent", "n1")
	for _, id := range []uint64{plain, batched} {
		began := time.Now()
		c.await(id, "TIMEOUT", "FAILED", "COMPLETED")
		if j := c.show(id); j.State != "TIMEOUT" {
			t.Errorf("job %d ended %s (%s) after %s", id, j.State, j.Reason, time.Since(began))
		}
		out, err := os.ReadFile(filepath.Join(dir, fmt.Sprintf("berth-%d.out", id)))
		if err != nil || strings.Count(string(out), "warned") != 1 {
			t.Errorf("job %d: %v\n%s", id, err, out)
		}
	}
	if w := c.runAs(0, "submit", "--parsable", "-D", dir, "--signal", "USR1", "--", "true"); !strings.Contains(w.stderr, "is never sent, since the job has no time limit") {
		t.Errorf("a warning without a limit: %q", w.stderr)
	}
}
