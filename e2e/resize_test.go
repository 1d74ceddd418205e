package e2e

import (
	"strconv"
	"strings"
	"testing"
)

// TestSharesFollowUse: a job of which nothing was known has a whole GPU; once it is
// known what it takes, another one starts beside it. A job that then grows has what it
// was granted, while nobody else is promised that.
func TestSharesFollowUse(t *testing.T) {
	t.Parallel()
	c := startCluster(t, "--nodes", "1x1xA100-SXM4-80GB")
	c.run("partition", "set", "p", "--nodes", "ALL", "--default", "--resize", "eager")
	submit := func(args ...string) uint64 {
		t.Helper()
		r := c.runAs(1001, append([]string{"submit", "--parsable", "-D", "/", "--output", "/dev/null", "--gpus", "1", "--time", "20m"}, args...)...)
		if r.code != 0 {
			t.Fatalf("submit: %+v", r)
		}
		return parseID(t, r.stdout)
	}
	grows := submit("--", "sh", "-c", berth+" sim-job --gpu-mem 4GiB --gpu-util 20 --seconds 60 && "+berth+" sim-job --gpu-mem 30GiB --gpu-util 20 --seconds 10")
	c.await(grows, "RUNNING")
	beside := submit("--gpu-mem", "8GiB", "--gpu-util", "20", "--", berth, "sim-job", "--gpu-mem", "7GiB", "--gpu-util", "20", "--seconds", "5")
	show := func() string { return c.run("show", strconv.FormatUint(grows, 10)) }
	c.eventually("the job to be cut", func() bool { return strings.Contains(show(), "cut from 78.7 GiB") })
	c.await(beside, "COMPLETED")
	if j := c.show(grows); j.State != "RUNNING" {
		t.Errorf("the one beside which another ran is %s", j.State)
	}
	if j := c.await(grows, "COMPLETED"); len(j.Attempts) != 1 || j.code() != 0 {
		t.Errorf("it grew to what it had been granted: %d attempts, %+v", len(j.Attempts), j)
	}
}
