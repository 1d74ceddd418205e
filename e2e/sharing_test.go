package e2e

import (
	"strconv"
	"strings"
	"testing"
)

// TestSharingUnderTheWatch: on cards that hold nobody to a share the agent
// ends the job above its own, its neighbour goes on, and another user's job
// waits for a card of its own.
func TestSharingUnderTheWatch(t *testing.T) {
	t.Parallel()
	c := startClusterWith(t, []string{"BERTH_GPUS_SIM_CAPS=watch"}, "--nodes", "1x1xA100-SXM4-80GB")
	submit := func(uid uint32, mem string, args ...string) uint64 {
		t.Helper()
		r := c.runAs(uid, append([]string{"submit", "--parsable", "--output", "/dev/null", "--gpus", "1", "--gpu-mem", mem, "--gpu-util", "20", "--time", "10m", "--", berth, "sim-job"}, args...)...)
		if r.code != 0 {
			t.Fatalf("submit: %+v", r)
		}
		return parseID(t, r.stdout)
	}
	modest := submit(1001, "6GiB", "--gpu-mem", "5GiB", "--gpu-util", "20", "--seconds", "25")
	c.await(modest, "RUNNING")
	stranger := submit(1002, "4GiB", "--gpu-mem", "1GiB", "--gpu-util", "20", "--seconds", "1")
	greedy := submit(1001, "4GiB", "--gpu-mem", "20GiB", "--gpu-util", "20", "--seconds", "200", "--ramp", "2")
	j := c.await(greedy, "OUT_OF_MEMORY")
	if text := c.run("show", strconv.FormatUint(j.ID, 10)); !strings.Contains(text, "more than its share of 4.0 GiB, and was ended; ask for --gpu-mem") {
		t.Errorf("greedy:\n%s", text)
	}
	if got := c.show(stranger); got.State != "PENDING" && got.State != "QUEUED" {
		t.Errorf("the other user's job is %s beside strangers", got.State)
	}
	c.eventually("why names who shares the card", func() bool {
		return strings.Contains(c.run("why", strconv.FormatUint(stranger, 10)), "is shared only among jobs of one user")
	})
	if text := c.run("show", strconv.FormatUint(modest, 10)); !strings.Contains(text, "held by watch") {
		t.Errorf("show does not say what holds the job:\n%s", text)
	}
	if text := c.run("node", "list", "-o", "wide"); !strings.Contains(text, "watch/same-user") {
		t.Errorf("node list does not say who shares:\n%s", text)
	}
	if j := c.await(modest, "COMPLETED"); j.code() != 0 {
		t.Errorf("modest: %+v", j)
	}
	c.await(stranger, "COMPLETED")
}
