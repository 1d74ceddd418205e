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
	for _, bad := range [][]string{
		{"--gpus", "4-2"}, {"--gpus", "1-4", "--nodes", "2"}, {"--gpus", "1-4", "--array", "1-3"}, {"--gpus", "1-4", "--nodes", "1-2"}, {"--nodes", "1-2"},
	} {
		if r := c.runAs(alice, append(append([]string{"submit"}, bad...), "--", "true")...); r.code == 0 || !strings.Contains(r.stderr, "gpus") {
			t.Errorf("%q: exit code %d: %s", bad, r.code, r.stderr)
		}
	}
}

// counts says in its log on how many nodes it starts, and how many its ranks are; at USR1
// it saves, and begins again.
const counts = `#!/bin/sh
#BERTH --checkpoint USR1@60 --gpus 2 --exclusive
echo "start on $SLURM_NNODES: $SLURM_JOB_NODELIST, $SLURM_TASKS_PER_NODE, restart ${SLURM_RESTART_COUNT:-0}" >>$1
trap 'echo saved >>'$1'; exit 0' USR1
until [ -e end-$1 ]; do sleep 0.1; done
`

// TestNodesOfARange: a gang of 1 to 4 nodes starts on all that are idle and says so; one
// that waits makes it save its state and begin again on fewer; when that ended another one
// grows; and one that waits can be told how many it is to have.
func TestNodesOfARange(t *testing.T) {
	t.Parallel()
	c := startClusterWith(t, []string{"BERTH_SCHEDULING_PREEMPT_AFTER=1s", "BERTH_SCHEDULING_PREEMPT_EVERY=1s"}, "--nodes", "4x2xT4")
	dir := openDir(t)
	write(t, filepath.Join(dir, "counts.sh"), counts)
	log := func(name string) []string { return lines(filepath.Join(dir, name)) }
	says := func(name string, n int, want string) {
		t.Helper()
		c.eventually(fmt.Sprintf("%s to say %q", name, want), func() bool { return len(log(name)) >= n })
		if got := log(name)[n-1]; !strings.HasPrefix(got, want) {
			t.Fatalf("%s says %q in line %d, want %q", name, got, n, want)
		}
	}
	wide := c.submit("-D", dir, "--quiet", "-N", "1-4", "-J", "wide", filepath.Join(dir, "counts.sh"), "wide")
	says("wide", 1, "start on 4: n[1-4], 1(x4), restart 0")
	if out := c.run("show", fmt.Sprint(wide)); !strings.Contains(out, "1 to 4 nodes, this on each") {
		t.Errorf("shown as\n%s", out)
	}
	two := c.submit("--nodes", "2", "--gpus", "2", "--exclusive", "-D", dir, "--", "sh", "-c", "until [ -e end-two ]; do sleep 0.1; done")
	c.await(two, "RUNNING")
	says("wide", 2, "saved")
	says("wide", 3, "start on 2: ")
	if out := c.run("show", fmt.Sprint(wide)); !strings.Contains(out, fmt.Sprintf("begins again with fewer nodes than 4: job %d waits for some", two)) {
		t.Errorf("shown as\n%s", out)
	}
	fixed := c.submit("--nodes", "1-3", "--gpus", "2", "--exclusive", "--hold", "--", "true")
	c.run("update", fmt.Sprint(fixed), "--nodes", "1")
	if out := c.run("show", fmt.Sprint(fixed)); strings.Contains(out, "1 to 3 nodes") {
		t.Errorf("shown as\n%s", out)
	}
	c.run("cancel", fmt.Sprint(fixed))
	write(t, filepath.Join(dir, "end-wide"), "")
	c.await(wide, "COMPLETED")
	grows := c.submit("-D", dir, "--quiet", "-N", "1-4", "-J", "grows", filepath.Join(dir, "counts.sh"), "grows")
	says("grows", 1, "start on 2: ")
	write(t, filepath.Join(dir, "end-two"), "")
	says("grows", 2, "saved")
	says("grows", 3, "start on 4: ")
	write(t, filepath.Join(dir, "end-grows"), "")
	c.await(grows, "COMPLETED")
	// Each rank is told how many there are.
	ranks := c.submit("--nodes", "1-3", "--gpus", "2", "--exclusive", "-D", dir, "-o", "rank-%n", "--", "sh", "-c", "echo $WORLD_SIZE $BERTH_NODES ${MASTER_ADDR:+there}")
	c.await(ranks, "COMPLETED")
	files, err := filepath.Glob(filepath.Join(dir, "rank-*"))
	if err != nil || len(files) != 3 {
		t.Fatalf("%d ranks wrote, want 3: %v", len(files), err)
	}
	for _, file := range files {
		if got := lines(file); len(got) != 1 || got[0] != "3 3 there" {
			t.Errorf("%s holds %q", file, got)
		}
	}
}
