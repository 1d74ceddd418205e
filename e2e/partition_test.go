package e2e

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// reload changes the policy in a coordinator's file and tells it to read it
// again; it returns once the log has said what became of that.
func (c *cluster) reload(scheduling, want string) {
	c.t.Helper()
	path, log := filepath.Join(c.dir, "c1", "coordinator.yaml"), filepath.Join(c.dir, "c1", "log")
	cfg := regexp.MustCompile(`(?m)^(scheduling:\n(?: .*\n)*?)    policy: .*\n(?:    policies: .*\n)?(?:    unknown: .*\n)?`).ReplaceAllString(read(c.t, path), "${1}"+scheduling)
	write(c.t, path, cfg)
	before := strings.Count(read(c.t, log), want)
	if err := syscall.Kill(c.members()[0].PID, syscall.SIGHUP); err != nil {
		c.t.Fatal(err)
	}
	c.eventually("a line in the log: "+want, func() bool { return strings.Count(read(c.t, log), want) > before })
}

func gpuJob(args ...string) []string {
	return append(append([]string{"--gpus", "1", "--gpu-mem", "1G", "--gpu-util", "20"}, args...), "--", "sleep", "600")
}

// TestPolicyByReload: a running cluster changes its policy when the file does,
// in the same office of the same process; a file that is wrong changes nothing.
func TestPolicyByReload(t *testing.T) {
	t.Parallel()
	c := startCluster(t, "--nodes", "1x1xT4", "--policy", "slot")
	before := c.members()[0]
	alone := c.submit(gpuJob()...)
	c.await(alone, "RUNNING")
	one, two := c.submit(gpuJob()...), c.submit(gpuJob()...)
	c.reload("    policy: ffd\n", "configuration read again")
	c.run("cancel", fmt.Sprint(alone))
	a, b := c.await(one, "RUNNING"), c.await(two, "RUNNING")
	if len(a.GPUs) != 1 || len(b.GPUs) != 1 || a.GPUs[0].UUID != b.GPUs[0].UUID || a.GPUs[0].Share.MemMiB != 1024 {
		t.Errorf("under ffd: %+v and %+v, want both on one card", a.GPUs, b.GPUs)
	}
	c.reload("    policy: fastest\n    policies: [nothing]\n    unknown: 1\n", "the one in use stays")
	log := read(t, filepath.Join(c.dir, "c1", "log"))
	for _, want := range []string{"scheduling.policy", "scheduling.policies[0]", "scheduling.unknown"} {
		if !strings.Contains(log, want) {
			t.Errorf("the log does not name %s", want)
		}
	}
	three := c.await(c.submit(gpuJob()...), "RUNNING")
	if three.GPUs[0].UUID != a.GPUs[0].UUID {
		t.Errorf("after a file that is wrong: on %s, want the shared card %s", three.GPUs[0].UUID, a.GPUs[0].UUID)
	}
	if after := c.members()[0]; after.PID != before.PID || !after.Leader || after.Term != before.Term {
		t.Errorf("before %+v, after %+v", before, after)
	}
}

// TestPartitions: two partitions with a policy each, by what people type.
func TestPartitions(t *testing.T) {
	t.Parallel()
	c := startCluster(t, "--nodes", "2x1xT4")
	c.reload("    policy: ffd\n    policies: [\"whole=slot+fifo\"]\n", "scheduling.policies")
	c.run("partition", "set", "whole", "--nodes", "n1", "--max-time", "2h")
	c.run("partition", "set", "shared", "--nodes", "n[2-9]", "--default", "--default-time", "90")
	var ids []uint64
	for _, part := range []string{"whole", "whole", "shared", "shared"} {
		ids = append(ids, c.submit(append([]string{"-p", part}, gpuJob()...)...))
	}
	for i, node := range map[int]string{0: "n1", 2: "n2", 3: "n2"} {
		if j := c.await(ids[i], "RUNNING"); j.Node != node {
			t.Errorf("job %d runs on %s, want %s", ids[i], j.Node, node)
		}
	}
	if j := c.show(ids[1]); j.State != "PENDING" {
		t.Errorf("the second of whole is %s", j.State)
	}
	if why := c.run("why", fmt.Sprint(ids[1])); !strings.Contains(why, "only the nodes of partition whole count, 1 of 2") {
		t.Errorf("why: %s", why)
	}
	if list := c.run("partition", "list"); !strings.Contains(list, "slot+fifo") || !strings.Contains(list, "shared*") {
		t.Errorf("list: %s", list)
	}
	if q := c.run("queue", "-p", "whole", "-o", "name"); q != fmt.Sprintf("%d\n%d\n", ids[0], ids[1]) {
		t.Errorf("queue: %q", q)
	}
	for _, x := range []struct {
		want string
		args []string
	}{
		{`partition "nope" is not known; the partitions are shared (default), whole`, []string{"submit", "-p", "nope", "--", "true"}},
		{"above the limit of partition whole", []string{"submit", "-p", "whole", "-t", "3h", "--", "true"}},
		{"has 1 jobs that wait and 1 that run", []string{"partition", "remove", "whole"}},
	} {
		if r := c.runAs(0, x.args...); r.code == 0 || !strings.Contains(r.stderr, x.want) {
			t.Errorf("berth %s: exit code %d, %s", strings.Join(x.args, " "), r.code, r.stderr)
		}
	}
	if r := c.runAs(4321, "partition", "set", "whole", "--state", "down"); r.code == 0 || !strings.Contains(r.stderr, "only an administrator") {
		t.Errorf("a user sets a partition: %d, %s", r.code, r.stderr)
	}
	dir := scriptDir(t)
	script := filepath.Join(dir, "job.sh")
	write(t, script, "#!/bin/sh\n#SBATCH -o "+dir+"/%j.out\necho in $SLURM_JOB_PARTITION\n")
	id := c.submit(script)
	c.await(id, "COMPLETED")
	if got := read(t, filepath.Join(dir, fmt.Sprintf("%d.out", id))); got != "in shared\n" {
		t.Errorf("the script says %q", got)
	}
}
