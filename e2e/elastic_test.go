package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// TestElasticJobsTakeWhatIsIdle: a job of 1 to 8 GPUs gets all of an idle node, sees
// them, and is shown with them; of 1 to 4 beside one that wants two it leaves these; and
// what cannot be is refused in words.
func TestElasticJobsTakeWhatIsIdle(t *testing.T) {
	t.Parallel()
	c := startCluster(t, "--nodes", "1x4xT4")
	dir := openDir(t)
	runs := func(name, sizes string, more ...string) uint64 {
		args := append([]string{"-D", dir, "--gpus", sizes, "--exclusive", "-J", name}, more...)
		return c.submit(append(args, "--", "sh", "-c", "echo $BERTH_JOB_GPUS $CUDA_VISIBLE_DEVICES >"+name+"; until [ -e end-"+name+" ]; do sleep 0.1; done")...)
	}
	sees := func(name string, want int) {
		t.Helper()
		c.eventually(name+" to begin", func() bool { return len(lines(filepath.Join(dir, name))) == 1 })
		n, ids, _ := strings.Cut(lines(filepath.Join(dir, name))[0], " ")
		if n != fmt.Sprint(want) || len(strings.Split(ids, ",")) != want {
			t.Errorf("%s has %s GPUs and sees %s, want %d", name, n, ids, want)
		}
	}
	all := runs("all", "1-8")
	sees("all", 4)
	if out := c.run("show", fmt.Sprint(all)); !strings.Contains(out, "Asked for  1 to 8 GPUs, exclusive") {
		t.Errorf("shown as\n%s", out)
	}
	if out := c.run("squeue", "-h", "-j", fmt.Sprint(all), "-o", "%b"); out != "gres:gpu:4\n" {
		t.Errorf("squeue says %q", out)
	}
	// Both wait for the node: one leaves the other its two.
	c.run("hold", fmt.Sprint(runs("some", "1-4", "--hold")))
	two := runs("two", "2")
	some := two - 1
	c.run("release", fmt.Sprint(some))
	c.await(two, "QUEUED", "PENDING")
	write(t, filepath.Join(dir, "end-all"), "")
	c.await(all, "COMPLETED")
	sees("two", 2)
	sees("some", 2)
	for _, name := range []string{"some", "two"} {
		write(t, filepath.Join(dir, "end-"+name), "")
	}
	c.await(some, "COMPLETED")
	for _, bad := range [][]string{{"--gpus", "4-2"}, {"--gpus", "1-4", "--nodes", "2"}, {"--gpus", "1-4", "--array", "1-3"}} {
		if r := c.runAs(alice, append(append([]string{"submit"}, bad...), "--", "true")...); r.code == 0 || !strings.Contains(r.stderr, "gpus") {
			t.Errorf("%q: exit code %d: %s", bad, r.code, r.stderr)
		}
	}
}
