package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// saveAndRestore copies the state of a cluster that runs, and makes a
// coordinator's directory of the copy, which nothing serves.
func saveAndRestore(t *testing.T, c *cluster) {
	t.Helper()
	dir := scriptDir(t)
	file, data := filepath.Join(dir, "state.snap"), filepath.Join(dir, "data")
	if r := c.runAs(4321, "cluster", "snapshot", "save", filepath.Join(dir, "mine")); r.code == 0 || !strings.Contains(r.stderr, "administrator") {
		t.Errorf("a user saved the state: exit code %d\n%s", r.code, r.stderr)
	}
	if got := c.run("cluster", "snapshot", "save", file); !strings.Contains(got, "Saved "+file) {
		t.Errorf("snapshot save printed %q", got)
	}
	if got := c.run("cluster", "snapshot", "show", file); !strings.Contains(got, "checksum correct") {
		t.Errorf("snapshot show printed\n%s", got)
	}
	got := c.run("cluster", "snapshot", "restore", file, "--config", filepath.Join(c.dir, "c1", "coordinator.yaml"), "--data", data)
	if !strings.Contains(got, "coordinator c1") {
		t.Errorf("snapshot restore printed %q", got)
	}
	if _, err := os.Stat(filepath.Join(data, "cluster-id")); err != nil {
		t.Error(err)
	}
}

// upgrade stops every coordinator and an agent as a package's upgrade does, one
// after the other, and starts them anew, while one job runs, one ends and one is
// submitted: docs/upgrades.md has the steps.
func upgrade(t *testing.T, c *cluster) {
	t.Helper()
	dir := scriptDir(t)
	mark, let := filepath.Join(dir, "mark"), filepath.Join(dir, "let")
	// It ends by itself, with a code that only the one run of it can give.
	long := c.submit("--gpus", "1", "--mem", "50M", "-D", dir, "--", "sh", "-c", "echo x >> mark; while [ ! -e let ]; do sleep 0.1; done; exit 7")
	node := c.await(long, "RUNNING").Node
	c.eventually("the job to have begun", func() bool { _, err := os.Stat(mark); return err == nil })
	before := c.members()
	for _, m := range before {
		// The one before must be back: three survive the loss of one.
		c.eventually("three coordinators that have caught up", func() bool { return caughtUp(c) == len(before) })
		c.end(c.daemonPID("coordinator", m.ID), syscall.SIGTERM)
		during := c.submit("--mem", "50M", "--", "true") // at once, while an election may go on
		c.restart("coordinator", m.ID)
		c.await(during, "COMPLETED")
	}
	c.end(c.daemonPID("agent", node), syscall.SIGTERM)
	if err := os.WriteFile(let, nil, 0o644); err != nil { // it ends while no agent looks
		t.Fatal(err)
	}
	c.restart("agent", node)
	j := c.await(long, "FAILED", "COMPLETED", "NODE_FAIL")
	data, err := os.ReadFile(mark)
	if j.code() != 7 || len(j.Attempts) != 1 || err != nil || string(data) != "x\n" {
		t.Errorf("job %d: %s with code %d in %d attempts, wrote %q (%v); want 7 in one", long, j.State, j.code(), len(j.Attempts), data, err)
	}
	c.await(c.submit("--gpus", "1", "--mem", "50M", "--", "true"), "COMPLETED")
	if got := c.run("node", "list"); strings.Count(got, "ready") != 2 {
		t.Errorf("after the upgrade the nodes are\n%s", got)
	}
	if n := caughtUp(c); n != len(before) {
		t.Logf("%d of %d coordinators have caught up already", n, len(before))
	}
}

// caughtUp is how many coordinators are there with all that the leader has.
func caughtUp(c *cluster) int {
	lead, n := c.leader(), 0
	for _, m := range c.members() {
		if m.PID != 0 && m.Applied+5 >= lead.Applied {
			n++
		}
	}
	return n
}

// logIn does what sshd does by pam_exec: whoever has a job on a node gets in and
// is moved into its control group, and ends with it.
func logIn(t *testing.T, c *cluster) {
	t.Helper()
	dir := scriptDir(t)
	r := c.runAs(4321, "submit", "--parsable", "--quiet", "--mem", "50M", "-D", dir, "-o", "/dev/null", "--", "sleep", "600")
	id := parseID(t, r.stdout)
	socket := filepath.Join(c.dir, c.await(id, "RUNNING").Node, "data", "login.sock")
	pam := func(kind, user, script string) *exec.Cmd {
		cmd := exec.Command("/bin/sh", "-c", script, berth, kind, socket)
		cmd.Env = []string{"PATH=/usr/bin:/bin", "PAM_TYPE=open_session", "PAM_USER=" + user}
		return cmd
	}
	const once = `"$0" pam "$1" --socket "$2"`
	if out, err := pam("account", "4321", once).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("a user with a job may not log in: %v %s", err, out)
	}
	if out, err := pam("account", "4322", once).CombinedOutput(); err == nil || string(out) != "berth: access denied: you have no running job on this node\n" {
		t.Errorf("a user without a job: %v %q", err, out)
	}
	login := pam("session", "4321", once+` && cat /proc/self/cgroup && exec sleep 600`)
	var out syncBuffer
	login.Stdout, login.Stderr = &out, &out
	if err := login.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- login.Wait() }()
	t.Cleanup(func() { _ = login.Process.Kill() })
	c.eventually("the login to show its control groups", func() bool { return strings.Contains(out.String(), "\n") })
	if want := fmt.Sprintf("j%d-a1", id); !strings.Contains(out.String(), want) {
		t.Errorf("the login is not in the group of job %s:\n%s", want, out.String())
	}
	c.runAs(4321, "cancel", fmt.Sprint(id))
	select {
	case <-ended:
	case <-time.After(10 * time.Minute):
		t.Error("the login outlived its job")
	}
}

// limitsAndCards takes one card out of use and back, and bounds what a user may
// hold: a job above that waits and is told why, until the bound is taken away.
func limitsAndCards(t *testing.T, c *cluster) {
	t.Helper()
	c.run("gpu", "drain", "n1/1", "--reason", "Xid 79")
	if got := c.run("gpu", "list"); !strings.Contains(got, "Xid 79") {
		t.Errorf("no drained GPU in\n%s", got)
	}
	c.run("gpu", "resume", "n1/1")
	c.run("quota", "set", "--user", "4321", "--running", "1")
	submit := func(args ...string) uint64 {
		r := c.runAs(4321, append([]string{"submit", "--parsable", "--quiet", "--mem", "50M", "-D", "/tmp", "-o", "/dev/null", "--"}, args...)...)
		if r.code != 0 {
			t.Fatalf("submit: %d %s", r.code, r.stderr)
		}
		return parseID(t, r.stdout)
	}
	first := submit("sleep", "600")
	c.await(first, "RUNNING")
	second := submit("true")
	c.eventually("the quota among the reasons", func() bool {
		return strings.Contains(c.runAs(4321, "why", fmt.Sprint(second)).stdout, "may run 1 job at once")
	})
	if got := c.show(second).State; got != "PENDING" {
		t.Errorf("above the quota a job is %s", got)
	}
	c.run("quota", "set", "--user", "4321", "--running", "0")
	c.await(second, "COMPLETED")
	c.run("cancel", fmt.Sprint(first))
}
