package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

const (
	alice = 31001 // uids without accounts, as containers and tests have them
	bob   = 31002
)

// openDir makes a directory that every user may write to.
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "berth-out-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestJobRunsAsItsUserAndWritesItsOutput(t *testing.T) {
	t.Parallel()
	c := startCluster(t, "--nodes", "1x1xT4")
	dir := openDir(t)
	r := c.runAs(alice, "submit", "--parsable", "-J", "hello", "-D", dir, "--", "sh", "-c", "id -u; id -g; pwd; echo err >&2; exit 7")
	if r.code != 0 {
		t.Fatalf("submit: %d %s", r.code, r.stderr)
	}
	id := parseID(t, r.stdout)
	j := c.await(id, "FAILED")
	if j.code() != 7 || j.Reason != "NonZeroExitCode" {
		t.Errorf("ended with %d (%s), want exit code 7", j.code(), j.Reason)
	}
	path := filepath.Join(dir, fmt.Sprintf("berth-%d.out", id))
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("%d\n%d\n%s\nerr\n", alice, alice, dir); string(data) != want {
		t.Errorf("output %q, want %q", data, want)
	}
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if uid := st.Sys().(*syscall.Stat_t).Uid; uid != alice {
		t.Errorf("the output belongs to uid %d, want %d", uid, alice)
	}
	if w := c.runAs(alice, "wait", fmt.Sprint(id)); w.code != 7 {
		t.Errorf("wait: exit code %d, want the job's 7", w.code)
	}
}

func TestOthersJobsCannotBeCancelled(t *testing.T) {
	t.Parallel()
	c := startCluster(t, "--nodes", "1x1xT4")
	id := parseID(t, c.runAs(alice, "submit", "--parsable", "-D", "/tmp", "-o", "/dev/null", "--", "sleep", "60").stdout)
	c.await(id, "RUNNING")
	if r := c.runAs(bob, "cancel", fmt.Sprint(id)); r.code == 0 {
		t.Errorf("bob cancelled alice's job: %s%s", r.stdout, r.stderr)
	}
	if got := c.show(id).State; got != "RUNNING" {
		t.Errorf("the job is %s, want RUNNING", got)
	}
	if r := c.runAs(alice, "cancel", fmt.Sprint(id)); r.code != 0 {
		t.Errorf("cancel: %d %s", r.code, r.stderr)
	}
	c.await(id, "CANCELLED")
}

func TestMemoryHogIsEndedAndItsNeighbourIsNot(t *testing.T) {
	t.Parallel()
	c := startCluster(t, "--nodes", "1x1xA100-SXM4-80GB")
	dir := openDir(t)
	hog := c.submit("-J", "hog", "-D", dir, "--gpus", "1", "--gpu-mem", "2GiB", "--gpu-util", "10", "--mem", "64MiB", "--",
		"sh", "-c", "x=$(head -c 300000000 /dev/zero | tr '\\0' x); echo ${#x}")
	neighbour := c.submit("-J", "neighbour", "-D", dir, "--gpus", "1", "--gpu-mem", "2GiB", "--gpu-util", "10", "--mem", "256MiB", "--", "sleep", "3")
	j := c.await(hog, "OUT_OF_MEMORY")
	if j.Reason != "OutOfHostMemory" || j.Signal != 9 {
		t.Errorf("hog ended %q by signal %d, want OutOfHostMemory by 9", j.Reason, j.Signal)
	}
	c.await(neighbour, "COMPLETED")
	// A job that kills itself is not out of memory.
	suicide := c.submit("-D", dir, "--", "sh", "-c", "kill -9 $$")
	if j := c.await(suicide, "FAILED"); j.Signal != 9 || j.Reason != "RaisedSignal" {
		t.Errorf("self-kill ended %q by signal %d", j.Reason, j.Signal)
	}
}

func TestGPUOutOfMemoryRunsAgainWithAWholeGPU(t *testing.T) {
	t.Parallel()
	c := startCluster(t, "--nodes", "1x2xRTX-3090")
	dir := openDir(t)
	id := c.submit("-D", dir, "--gpus", "1", "--gpu-mem", "2GiB", "--gpu-util", "20", "--",
		berth, "sim-job", "--gpu-mem", "4GiB", "--gpu-util", "20", "--seconds", "0.5")
	j := c.await(id, "OUT_OF_MEMORY", "COMPLETED")
	if j.State == "COMPLETED" && len(j.Attempts) < 2 {
		t.Errorf("4 GiB fitted into a share of 2 GiB at the first attempt")
	}
	if j.Attempts[0].State != "OUT_OF_MEMORY" {
		t.Errorf("first attempt ended %s, want OUT_OF_MEMORY", j.Attempts[0].State)
	}
}

func TestJobsShareAGPUAndAreMeasured(t *testing.T) {
	t.Parallel()
	c := startCluster(t, "--nodes", "1x1xA100-SXM4-80GB")
	dir := openDir(t)
	var ids []uint64
	for range 3 {
		ids = append(ids, c.submit("-D", dir, "--gpus", "1", "--gpu-mem", "6GiB", "--gpu-util", "30", "--",
			berth, "sim-job", "--gpu-mem", "5GiB", "--gpu-util", "30", "--seconds", "1"))
	}
	for _, id := range ids {
		j := c.await(id, "COMPLETED")
		if j.Measured.GPUMemMiB < 5000 || j.Measured.GPUMemMiB > 6144 {
			t.Errorf("job %d: measured %d MiB, want about 5120", id, j.Measured.GPUMemMiB)
		}
	}
	if out := c.run("show", fmt.Sprint(ids[0])); !strings.Contains(out, fmt.Sprint(ids[1])) {
		t.Errorf("show does not name the neighbour %d:\n%s", ids[1], out)
	}
}

func TestAJobThatNoNodeCanRunIsRefused(t *testing.T) {
	t.Parallel()
	c := startCluster(t, "--nodes", "1x2xT4")
	r := c.runAs(0, "submit", "--gpus", "3", "--", "true")
	if r.code != 2 || !strings.Contains(r.stderr, "2") || !strings.Contains(r.stderr, "T4") {
		t.Errorf("3 GPUs on nodes with 2: exit code %d, %q; want 2 and the largest that there is", r.code, r.stderr)
	}
	r = c.runAs(0, "submit", "--gpus", "1", "--gpu-mem", "40GiB", "--", "true")
	if r.code != 2 || !strings.Contains(r.stderr, "never") && !strings.Contains(r.stderr, "largest") {
		t.Errorf("40 GiB on a T4: exit code %d, %q", r.code, r.stderr)
	}
	if out := c.run("queue", "-o", "json"); strings.TrimSpace(out) != "[]" {
		t.Errorf("a refused job is in the queue: %s", out)
	}
}

func TestTimeLimitAndCancel(t *testing.T) {
	t.Parallel()
	c := startCluster(t, "--nodes", "cpu")
	limited := c.submit("-D", "/tmp", "-o", "/dev/null", "-t", "1s", "--", "sleep", "60")
	if j := c.await(limited, "TIMEOUT"); j.Signal != int(syscall.SIGTERM) {
		t.Errorf("ended by signal %d, want SIGTERM", j.Signal)
	}
	running := c.submit("-D", "/tmp", "-o", "/dev/null", "--", "sleep", "60")
	c.await(running, "RUNNING")
	c.run("cancel", fmt.Sprint(running))
	c.await(running, "CANCELLED")
	if r := c.runAs(0, "cancel", "99999"); r.code != 3 {
		t.Errorf("cancel of an unknown job: exit code %d, want 3", r.code)
	}
}

func TestDrainKeepsJobsAway(t *testing.T) {
	t.Parallel()
	c := startCluster(t, "--nodes", "2x1xT4")
	c.run("node", "drain", "n1", "--reason", "test")
	id := c.submit("-D", "/tmp", "-o", "/dev/null", "-w", "n1", "--gpus", "1", "--gpu-mem", "1GiB", "--", "true")
	for range 2 { // whoever planned these has looked at the one before them
		after := c.submit("-D", "/tmp", "-o", "/dev/null", "-w", "n2", "--gpus", "1", "--gpu-mem", "1GiB", "--", "true")
		c.await(after, "COMPLETED")
	}
	if st := c.show(id).State; st != "PENDING" && st != "QUEUED" {
		t.Fatalf("on a drained node the job is %s", st)
	}
	if out := c.run("why", fmt.Sprint(id)); !strings.Contains(strings.ToLower(out), "drain") {
		t.Errorf("why does not speak of the drain: %s", out)
	}
	c.run("node", "resume", "n1")
	c.await(id, "COMPLETED")
}
