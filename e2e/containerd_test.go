package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// needContainerd skips where containerd is not installed, and fails in CI.
func needContainerd(t *testing.T) {
	t.Helper()
	for _, b := range []string{"containerd", "runc"} {
		if _, err := exec.LookPath(b); err != nil {
			if os.Getenv("CI") != "" {
				t.Fatalf("%s is not installed; on Debian: apt-get install containerd runc", b)
			}
			t.Skipf("%s is not installed; on Debian: apt-get install containerd runc", b)
		}
	}
}

func TestContainerdRunsHostJobsUnderCaps(t *testing.T) {
	t.Parallel()
	needContainerd(t)
	c := startCluster(t, "--runtime", "containerd", "--nodes", "1x1xA100-SXM4-80GB")
	dir := openDir(t)
	r := c.runAs(alice, "submit", "--parsable", "-J", "who", "-D", dir, "--", "sh", "-c", "id -u; grep -E 'CapEff|NoNewPrivs|Seccomp:' /proc/self/status; exit 7")
	if r.code != 0 {
		t.Fatalf("submit: %d %s", r.code, r.stderr)
	}
	id := parseID(t, r.stdout)
	if j := c.await(id, "FAILED"); j.code() != 7 {
		t.Errorf("exit code %d (%s), want 7", j.code(), j.Reason)
	}
	path := filepath.Join(dir, fmt.Sprintf("berth-%d.out", id))
	var data []byte
	c.eventually("the output", func() bool {
		data, _ = os.ReadFile(path)
		return bytes.Count(data, []byte("\n")) == 4
	})
	for _, want := range []string{fmt.Sprintln(alice), "CapEff:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"} {
		if !strings.Contains(string(data), want) {
			t.Errorf("the job's status lacks %q:\n%s", want, data)
		}
	}
	hog := c.submit("-J", "hog", "-D", dir, "--gpus", "1", "--gpu-mem", "2GiB", "--gpu-util", "10", "--mem", "64MiB", "--",
		"sh", "-c", "x=$(head -c 300000000 /dev/zero | tr '\\0' x); echo ${#x}")
	neighbour := c.submit("-J", "neighbour", "-D", dir, "--gpus", "1", "--gpu-mem", "2GiB", "--gpu-util", "10", "--mem", "256MiB", "--", "sleep", "3")
	if j := c.await(hog, "OUT_OF_MEMORY"); j.Reason != "OutOfHostMemory" || j.Signal != 9 {
		t.Errorf("hog ended %q by signal %d", j.Reason, j.Signal)
	}
	c.await(neighbour, "COMPLETED")
	missing := c.submit("-D", dir, "--", "no-such-program")
	if j := c.await(missing, "FAILED"); j.code() != 127 {
		t.Errorf("a missing program ended with %d (%s), want 127", j.code(), j.Reason)
	}
	running := c.submit("-D", dir, "--", "sleep", "60")
	c.await(running, "RUNNING")
	c.run("cancel", fmt.Sprint(running))
	c.await(running, "CANCELLED")
}

func TestContainersOutliveAgentAndContainerd(t *testing.T) {
	t.Parallel()
	needContainerd(t)
	c := startCluster(t, "--runtime", "containerd", "--nodes", "1x1xT4")
	dir := openDir(t)
	var ids []uint64
	for i, secs := range []string{"1", "4", "8"} {
		ids = append(ids, c.submit("-D", dir, "--", "sh", "-c", fmt.Sprintf("echo x >> %s/ran-%d; sleep %s; exit %d", dir, i, secs, 50+i)))
	}
	for _, id := range ids {
		c.await(id, "RUNNING", "FAILED")
	}
	c.kill(c.daemonPID("agent", "n1"))
	c.kill(c.containerdPID())
	time.Sleep(2 * time.Second) // the first ends while both are gone
	c.restartContainerd()
	c.restart("agent", "n1")
	for i, id := range ids {
		j := c.await(id, "FAILED", "NODE_FAIL")
		if j.code() != 50+i || len(j.Attempts) != 1 {
			t.Errorf("job %d: %s, exit code %d (%s), want %d", id, j.State, j.code(), j.Reason, 50+i)
		}
		data, _ := os.ReadFile(filepath.Join(dir, fmt.Sprintf("ran-%d", i)))
		if string(data) != "x\n" {
			t.Errorf("job %d ran %d times, want once", id, strings.Count(string(data), "x"))
		}
	}
}

func TestImageJobsTakeNothingFromTheImage(t *testing.T) {
	t.Parallel()
	needContainerd(t)
	if _, err := os.Stat("/bin/busybox"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("busybox-static is not installed; on Debian: apt-get install busybox-static")
		}
		t.Skip("busybox-static is not installed; on Debian: apt-get install busybox-static")
	}
	c := startCluster(t, "--runtime", "containerd", "--nodes", "cpu", "--busybox")
	dir := openDir(t)
	r := c.runAs(alice, "submit", "--parsable", "-D", dir, "--image", "berth.test/busybox:static", "--", "sh", "-c", "id -u; ls /; env")
	id := parseID(t, r.stdout)
	if j := c.await(id, "COMPLETED", "FAILED"); j.State != "COMPLETED" {
		t.Fatalf("ended %s (%s)", j.State, j.Reason)
	}
	var data []byte
	c.eventually("the output", func() bool {
		data, _ = os.ReadFile(filepath.Join(dir, fmt.Sprintf("berth-%d.out", id)))
		return strings.Contains(string(data), "BERTH_JOB_ID")
	})
	out := string(data)
	if !strings.HasPrefix(out, fmt.Sprintln(alice)) {
		t.Errorf("runs as %q, want uid %d", strings.SplitN(out, "\n", 2)[0], alice)
	}
	for _, bad := range []string{"LD_PRELOAD", "NVIDIA_", "home\n"} {
		if strings.Contains(out, bad) {
			t.Errorf("the job sees %q:\n%s", bad, out)
		}
	}
	pullsAreSeen(t, c)
}

// containerdPID finds the cluster's own containerd.
func (c *cluster) containerdPID() int {
	c.t.Helper()
	want := filepath.Join(c.dir, "containerd", "config.toml")
	procs, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		c.t.Fatal(err)
	}
	for _, p := range procs {
		data, err := os.ReadFile(p)
		if err == nil && strings.HasPrefix(string(data), "containerd\x00") && strings.Contains(string(data), want) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(p)))
			return pid
		}
	}
	c.t.Fatal("the cluster's containerd does not run")
	return 0
}

// restartContainerd starts the cluster's containerd again after a kill.
func (c *cluster) restartContainerd() {
	c.t.Helper()
	cmd := exec.Command("containerd", "--config", filepath.Join(c.dir, "containerd", "config.toml"))
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	c.mu.Lock()
	c.restarted = append(c.restarted, cmd)
	c.mu.Unlock()
}
