package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPowerCap: cards have the limit and clock of the job that has them whole while it
// runs, which berth show tells; they have their own again when it is over, also when their
// agent was killed meanwhile and the job ended without one. A partition's limit is for
// whole cards alone.
func TestPowerCap(t *testing.T) {
	t.Parallel()
	c := startCluster(t, "--nodes", "1x2xA100-SXM4-80GB")
	dir := openDir(t)
	limits := func() string { return strings.Join(strings.Fields(c.run("node", "show", "n1", "-o", "json")), "") }
	has := func(id uint64, want string) {
		t.Helper()
		if shown := c.run("show", fmt.Sprint(id)); !strings.Contains(shown, want) {
			t.Errorf("berth show has no %q:\n%s", want, shown)
		}
	}
	if r := c.runAs(1001, "submit", "--gpus", "1", "--power-cap", "250W", "--", "true"); r.code != 2 || !strings.Contains(r.stderr, "add --exclusive to have whole GPUs") {
		t.Errorf("one that shares: exit code %d\n%s", r.code, r.stderr)
	}
	gate := filepath.Join(dir, "gate")
	if err := os.WriteFile(filepath.Join(dir, "job.yaml"), []byte(fmt.Sprintf("command: [sh, -c, 'until [ -e %s ]; do sleep 0.05; done']\ngpus: 2\nexclusive: true\npower_cap: 250\ngpu_freq: 1200\n", gate)), 0o644); err != nil {
		t.Fatal(err)
	}
	id := c.submit("-D", dir, filepath.Join(dir, "job.yaml"))
	c.await(id, "RUNNING")
	has(id, "cap 250 W, clock 1200 MHz on n1:0,1")
	c.eventually("the limits to be told", func() bool { return strings.Count(limits(), `"power_limit_w":250`) == 2 })
	c.kill(c.daemonPID("agent", "n1"))
	if err := os.WriteFile(gate, nil, 0o644); err != nil { // it ends while there is none
		t.Fatal(err)
	}
	c.restart("agent", "n1")
	c.await(id, "COMPLETED")
	c.eventually("the limits to be back", func() bool { return strings.Count(limits(), `"power_limit_w":400`) == 2 })
	has(id, "cap 250 W, clock 1200 MHz on n1:0,1")

	c.run("partition", "set", "all", "--nodes", "n1", "--default", "--power-cap", "60%")
	whole := c.submit("-D", dir, "--gpus", "1", "--exclusive", "--gpu-freq", "low", "--", "true")
	part := c.submit("-D", dir, "--gpus", "1", "--gpu-mem", "8G", "--", "true")
	c.await(whole, "COMPLETED")
	c.await(part, "COMPLETED")
	has(whole, "cap 240 W, clock 210 MHz on n1:")
	if shown := c.run("show", fmt.Sprint(part)); strings.Contains(shown, "Power") {
		t.Errorf("one with a part of a GPU:\n%s", shown)
	}
}
