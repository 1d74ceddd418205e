package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestPowerCapIsFound: a job that says its steps gets the cap at which a step takes the least
// energy among those that keep it nearly as fast; berth show tells it. It holds with the next
// agent after the first was killed, and the card has its limit again when the job is over.
func TestPowerCapIsFound(t *testing.T) {
	t.Parallel()
	c := startCluster(t, "--nodes", "1x2xA100-SXM4-80GB")
	dir := openDir(t)
	if r := c.runAs(1001, "submit", "--gpus", "1", "--exclusive", "--slowdown", "3%", "--", "true"); r.code != 2 || !strings.Contains(r.stderr, "add --power-cap auto") {
		t.Errorf("a slowdown of nothing: exit code %d\n%s", r.code, r.stderr)
	}
	silent := c.submit("-D", dir, "--gpus", "1", "--exclusive", "--power-cap", "auto", "--", "true")
	if err := os.WriteFile(filepath.Join(dir, "job.yaml"), []byte("command: ["+berth+", sim-job, --gpu-mem, 6GiB, --gpu-util, '100', --seconds, '600', --step, '0.05']\ngpus: 1\ngpu_mem: 6G\nexclusive: true\npower_cap: auto\nslowdown: 4%\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	id := c.submit("-D", dir, filepath.Join(dir, "job.yaml"))
	c.await(silent, "COMPLETED")
	if shown := c.run("show", fmt.Sprint(silent)); !strings.Contains(shown, "none found: it says no steps in BERTH_PROGRESS") {
		t.Errorf("one that says no steps:\n%s", shown)
	}
	var shown string
	c.eventually("a cap to be found", func() bool {
		shown = c.run("show", fmt.Sprint(id))
		return strings.Contains(shown, "W found: ") || strings.Contains(shown, "none is better: ")
	})
	limits := func() string { return strings.Join(strings.Fields(c.run("node", "show", "n1", "-o", "json")), "") }
	if strings.Contains(shown, "none is better: ") {
		// The steps of windows of ten seconds were counted on a machine that is busy
		// otherwise, and differed by more than the caps make.
		c.eventually("the limit as before", func() bool { return strings.Count(limits(), `"power_limit_w":400`) == 2 })
		return
	}
	cap := regexp.MustCompile(`cap (3[2468]0) W on n1:`).FindStringSubmatch(shown)
	if !strings.Contains(shown, " J per step at 400 W") || cap == nil {
		t.Fatalf("found:\n%s", shown)
	}
	c.kill(c.daemonPID("agent", "n1"))
	c.restart("agent", "n1")
	c.eventually("the next agent to know the limit", func() bool { return strings.Contains(limits(), `"power_limit_w":`+cap[1]) })
	c.run("cancel", fmt.Sprint(id))
	c.await(id, "CANCELLED")
	c.eventually("the limit to be back", func() bool { return strings.Count(limits(), `"power_limit_w":400`) == 2 })
	if shown := c.run("show", fmt.Sprint(id)); !strings.Contains(shown, cap[1]+" W found: ") {
		t.Errorf("in the end:\n%s", shown)
	}
}
