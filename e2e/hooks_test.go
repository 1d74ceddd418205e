package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// hookDir makes a directory with two programs that write down when they run
// and for whom; it returns the environment that has the agents run them.
func hookDir(t *testing.T, prolog, epilog string) (dir string, env []string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "berth-hooks-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	for name, body := range map[string]string{"prolog": prolog, "epilog": epilog} {
		text := "#!/bin/sh\nD=" + dir + "\necho " + name + " $BERTH_JOB_ID $BERTH_NODE $(id -u) $BERTH_JOB_UID $BERTH_JOB_STATE >> $D/log\n" + body + "\n"
		path := filepath.Join(dir, name)
		if err := errors.Join(os.WriteFile(path, []byte(text), 0o755), os.Chmod(path, 0o755)); err != nil {
			t.Fatal(err)
		}
		env = append(env, "BERTH_JOBS_"+strings.ToUpper(name)+"="+path)
	}
	return dir, env
}

// hookLog is the lines that hooks have written so far. A file that was only made
// has none: a hook that is killed then never writes its own.
func hookLog(dir string) []string {
	data, err := os.ReadFile(filepath.Join(dir, "log"))
	if err != nil {
		return nil
	}
	lines := strings.Split(string(data), "\n")
	return lines[:len(lines)-1]
}

// TestHooksSurviveAnAgentThatIsKilled: the agent dies in the middle of each
// hook, and while the job runs; the job runs once and its exit code is true.
func TestHooksSurviveAnAgentThatIsKilled(t *testing.T) {
	t.Parallel()
	const wait = "while [ ! -e $D/$BERTH_HOOK.go ]; do sleep 0.05; done"
	dir, env := hookDir(t, wait, wait)
	c := startClusterWith(t, env, "--nodes", "1x1xT4")
	out := openDir(t)
	r := c.runAs(alice, "submit", "--parsable", "-D", out, "--", "sh", "-c", fmt.Sprintf("echo x >> %s/ran; while [ ! -e %s/end ]; do sleep 0.05; done; exit 9", out, out))
	id := parseID(t, r.stdout)
	ran := func(n int) {
		t.Helper()
		c.eventually(fmt.Sprintf("hook %d", n), func() bool { return len(hookLog(dir)) == n })
	}
	again := func() {
		t.Helper()
		c.kill(c.daemonPID("agent", "n1"))
		c.restart("agent", "n1")
	}
	let := func(path string) {
		t.Helper()
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ran(1)
	if _, err := os.Stat(filepath.Join(out, "ran")); err == nil {
		t.Error("the job runs before its prolog is through")
	}
	again()
	ran(2)
	let(filepath.Join(dir, "prolog.go"))
	c.await(id, "RUNNING")
	again()
	let(filepath.Join(out, "end"))
	ran(3)
	again()
	ran(4)
	if s := c.show(id).State; s != "RUNNING" && s != "COMPLETING" {
		t.Errorf("the job is %s before its epilog is through", s)
	}
	let(filepath.Join(dir, "epilog.go"))
	if j := c.await(id, "FAILED", "COMPLETED", "NODE_FAIL"); j.code() != 9 || len(j.Attempts) != 1 {
		t.Errorf("ended %s with %d (%s) after %d attempts, want exit code 9", j.State, j.code(), j.Reason, len(j.Attempts))
	}
	if data, _ := os.ReadFile(filepath.Join(out, "ran")); string(data) != "x\n" {
		t.Errorf("the job ran %d times", strings.Count(string(data), "x"))
	}
	me := fmt.Sprintf("%d n1 0 %d", id, alice)
	want := []string{"prolog " + me, "prolog " + me, "epilog " + me + " FAILED", "epilog " + me + " FAILED"}
	if got := hookLog(dir); !slices.Equal(got, want) {
		t.Errorf("hooks ran as %q, want %q", got, want)
	}
	// What the killed agents' hooks left has ended.
	c.eventually("the end of all hooks", func() bool { return len(processesOf(t, dir)) == 0 })
}

// processesOf lists processes whose command line names a directory.
func processesOf(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, f := range files {
		if data, err := os.ReadFile(f); err == nil && strings.Contains(string(data), dir+"/") {
			out = append(out, strings.ReplaceAll(string(data), "\x00", " "))
		}
	}
	return out
}

// TestAPrologThatFailsDrainsTheNode: the job runs on the other node, and the
// first is drained in plain words until an administrator resumes it.
func TestAPrologThatFailsDrainsTheNode(t *testing.T) {
	t.Parallel()
	dir, env := hookDir(t, "[ ! -e $D/bad.$BERTH_NODE ] || { echo 'scratch of '$BERTH_NODE' is full' >&2; exit 4; }", "")
	c := startClusterWith(t, env, "--nodes", "2x1xT4")
	out := openDir(t)
	for _, n := range []string{"n1", "n2"} {
		if err := os.WriteFile(filepath.Join(dir, "bad."+n), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	id := c.submit("-D", out, "--", "sh", "-c", "echo done")
	type nodeView struct {
		ID          string `json:"id"`
		Drain       bool   `json:"drain"`
		DrainReason string `json:"drain_reason"`
	}
	var nodes []nodeView
	c.eventually("both nodes drained", func() bool {
		nodes = nil
		if err := json.Unmarshal([]byte(c.run("node", "list", "-o", "json")), &nodes); err != nil {
			t.Fatal(err)
		}
		return len(nodes) == 2 && nodes[0].Drain && nodes[1].Drain
	})
	for _, n := range nodes {
		want := fmt.Sprintf("prolog failed before job %d: %s/prolog ended with exit code 4: scratch of %s is full", id, dir, n.ID)
		if n.DrainReason != want {
			t.Errorf("node %s is drained for %q, want %q", n.ID, n.DrainReason, want)
		}
	}
	if j := c.show(id); j.State != "PENDING" && j.State != "QUEUED" || len(j.Attempts) != 2 {
		t.Errorf("the job is %s after %d attempts", j.State, len(j.Attempts))
	}
	if err := os.Remove(filepath.Join(dir, "bad.n2")); err != nil {
		t.Fatal(err)
	}
	c.run("node", "resume", "n2")
	if j := c.await(id, "COMPLETED"); j.Node != "n2" || len(j.Attempts) != 3 {
		t.Errorf("ended on %s after %d attempts", j.Node, len(j.Attempts))
	}
}
