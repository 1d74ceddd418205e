package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestPowerForecast: by forecast one node of three stays up to spare, and it is said why, by the
// next leader too; who comes finds it, and when it is in use and one more is needed, that one is
// powered up and another to spare.
func TestPowerForecast(t *testing.T) {
	t.Parallel()
	p := newPlug(t)
	c := startClusterWith(t, append(p.env(), "BERTH_POWER_SAVING_IDLE=3s", "BERTH_POWER_SAVING_POLICY=forecast", "BERTH_POWER_SAVING_FORECAST_EVERY=1s",
		"BERTH_POWER_SAVING_FORECAST_HORIZON=2s", "BERTH_POWER_SAVING_FORECAST_LEARN=0s", "BERTH_POWER_SAVING_FORECAST_SPARE=33"), "--coordinators", "3", "--nodes", "3x1xA100-SXM4-80GB")
	nodes := []string{"n1", "n2", "n3"}
	p.of(c, nodes...)
	dir := openDir(t)
	until := func(file string, args ...string) uint64 {
		return c.submit(append(args, "-D", dir, "--gpus", "1", "--exclusive", "--", "sh", "-c", "until [ -e "+file+" ]; do sleep 0.1; done")...)
	}
	let := func(file string) {
		t.Helper()
		if err := os.WriteFile(file, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	in := func(state string) (out []string) {
		for _, n := range nodes {
			if strings.Contains(c.run("node", "list", n), state) {
				out = append(out, n)
			}
		}
		return out
	}
	var before []uint64
	for range nodes {
		before = append(before, until(filepath.Join(dir, "first")))
	}
	for _, id := range before {
		c.await(id, "RUNNING")
	}
	c.run("partition", "set", "sleepy", "--nodes", "n[1-3]")
	let(filepath.Join(dir, "first"))
	c.eventually("two are powered down", func() bool { return len(in("powered-down")) == 2 })
	up := in("ready")
	if len(up) != 1 {
		t.Fatalf("%v are up", up)
	}
	told := func() bool {
		return strings.Contains(c.run("node", "show", up[0]), "of 3 nodes with 1xA100-SXM4-80GB in sleepy, 1 are up and 0 needed; 1 stay up: at most 0 are forecast to be needed within 2s, and 1 are to spare")
	}
	c.eventually("it is said why it is up", told)
	c.kill(c.leader().PID)
	c.eventually("the next leader says it too", told)
	c.eventually("it has read in the history who held nodes", func() bool {
		log, _ := os.ReadFile(filepath.Join(c.dir, c.leader().ID, "log"))
		return strings.Contains(string(log), `"msg":"demand of nodes is known"`) && strings.Contains(string(log), `"attempts":3`)
	})
	if off := slices.DeleteFunc(slices.Clone(nodes), func(n string) bool { return n == up[0] })[0]; !strings.Contains(c.run("node", "show", off), "not needed: of 3 ") {
		t.Errorf("berth node show %s:\n%s", off, c.run("node", "show", off))
	}
	first := until(filepath.Join(dir, "second"), "-p", "sleepy")
	if j := c.await(first, "RUNNING"); j.Node != up[0] || strings.Contains(p.did(), "up ") {
		t.Errorf("it runs on %s, and it was asked for %s", j.Node, p.did())
	}
	second := until(filepath.Join(dir, "second"), "-p", "sleepy")
	c.eventually("it is said for what it waits", func() bool { return strings.Contains(c.run("why", fmt.Sprint(second)), "to be powered up") })
	let(p.gate)
	c.await(second, "RUNNING")
	c.eventually("one more is up to spare", func() bool { return len(in("ready")) == 3 })
	let(filepath.Join(dir, "second"))
	c.await(second, "COMPLETED")
}
