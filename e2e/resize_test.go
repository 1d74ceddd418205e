package e2e

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// leaper is the program of a job that holds 4 GiB until a file is there, then 30 GiB
// for a while.
func leaper(file string) []string {
	sim := berth + " sim-job --gpu-util 20 --gpu-mem "
	return []string{"--", "sh", "-c", "if [ $BERTH_RESTART_COUNT = 0 ]; then " + sim + "4GiB --seconds 3600 & p=$!; until [ -e " + file + " ]; do sleep 0.1; done; kill $p; wait; fi; " +
		sim + "30GiB --seconds 2"}
}

// resizing is a cluster of one card, whose jobs' shares follow what they use.
func resizing(t *testing.T) (c *cluster, submit func(uid uint32, args ...string) uint64) {
	c = startCluster(t, "--nodes", "1x1xA100-SXM4-80GB")
	c.run("partition", "set", "p", "--nodes", "ALL", "--default", "--resize", "eager")
	return c, func(uid uint32, args ...string) uint64 {
		t.Helper()
		r := c.runAs(uid, append([]string{"submit", "--parsable", "-D", "/", "--output", "/dev/null", "--gpus", "1", "--time", "20m"}, args...)...)
		if r.code != 0 {
			t.Fatalf("submit: %+v", r)
		}
		return parseID(t, r.stdout)
	}
}

// TestSharesFollowUse: a job of which nothing was known has a whole GPU; once it is
// known what it takes, another one starts beside it. A job that then grows has what it
// was granted, while nobody else is promised that.
func TestSharesFollowUse(t *testing.T) {
	t.Parallel()
	c, submit := resizing(t)
	file := filepath.Join(openDir(t), "leap")
	grows := submit(1001, leaper(file)...)
	c.await(grows, "RUNNING")
	beside := submit(1001, "--gpu-mem", "8GiB", "--gpu-util", "20", "--", berth, "sim-job", "--gpu-mem", "7GiB", "--gpu-util", "20", "--seconds", "2")
	c.await(beside, "COMPLETED")
	if text := c.run("show", strconv.FormatUint(grows, 10)); !strings.Contains(text, "RUNNING") || !strings.Contains(text, "cut from 78.7 GiB") {
		t.Errorf("the one beside which another ran:\n%s", text)
	}
	leap(t, file)
	if j := c.await(grows, "COMPLETED"); len(j.Attempts) != 1 || j.code() != 0 {
		t.Errorf("it grew to what it had been granted: %d attempts, %+v", len(j.Attempts), j)
	}
}

// TestPartitionsTellOfShares: what becomes of shares where nothing is set, and what may be.
func TestPartitionsTellOfShares(t *testing.T) {
	t.Parallel()
	c := startCluster(t, "--nodes", "1x1xT4")
	c.run("partition", "set", "p", "--nodes", "ALL", "--default")
	for _, x := range [][2]string{
		{"", "shrunk to what jobs with a checkpoint hook use, conservative"}, {"off", "kept as granted"}, {"eager", "shrunk to what jobs use, eager"},
		{"default", "shrunk to what jobs with a checkpoint hook use, conservative"},
	} {
		if x[0] != "" {
			c.run("partition", "set", "p", "--resize", x[0])
		}
		if text := c.run("partition", "show", "p"); !strings.Contains(text, x[1]) {
			t.Errorf("--resize %q: it shows\n%s", x[0], text)
		}
	}
	if r := c.runAs(0, "partition", "set", "p", "--resize", "often"); r.code != 2 || !strings.Contains(r.stderr, "want default, off, conservative or eager") {
		t.Errorf("a mode that is none: %+v", r)
	}
}

// TestWhatWasCutComesBack: a job whose share was cut leaps above what is left beside
// another user's, and runs again with what it was granted: who came since makes room
// for it, and goes on afterwards.
func TestWhatWasCutComesBack(t *testing.T) {
	t.Parallel()
	c, submit := resizing(t)
	file := filepath.Join(openDir(t), "leap")
	leaps := submit(1001, leaper(file)...)
	c.await(leaps, "RUNNING")
	beside := submit(1002, "--gpu-mem", "60GiB", "--gpu-util", "20", "--checkpoint", "USR1@10s", "--", "sh", "-c", "trap 'exit 0' USR1; if [ $BERTH_RESTART_COUNT = 0 ]; then sleep 3600 & wait; fi")
	c.await(beside, "RUNNING")
	leap(t, file)
	if j := c.await(leaps, "COMPLETED"); len(j.Attempts) != 2 || j.Attempts[0].State != "OUT_OF_MEMORY" {
		t.Errorf("it ran %d times: %+v", len(j.Attempts), j.Attempts)
	}
	if text := c.run("show", strconv.FormatUint(leaps, 10)); !strings.Contains(text, "its share had been cut to what it used; it runs again with the") {
		t.Errorf("its owner reads\n%s", text)
	}
	if j := c.await(beside, "COMPLETED"); len(j.Attempts) != 2 || j.Attempts[0].State != "PREEMPTED" {
		t.Errorf("the one that made room: %+v", j.Attempts)
	}
}

// leap lets a leaper go on.
func leap(t *testing.T, file string) {
	t.Helper()
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
}
