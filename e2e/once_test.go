package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// TestDoneOnceAcrossLeaders kills leaders while a job is signalled and while salloc
// and srun begin: signals arrive once, and both have one job, which they end.
func TestDoneOnceAcrossLeaders(t *testing.T) {
	t.Parallel()
	c := startCluster(t, "--coordinators", "3", "--nodes", "1x2xT4")
	dir := openDir(t)
	marks := filepath.Join(dir, "marks")
	write(t, marks, "")
	id := c.submit("-D", dir, "--", "sh", "-c", fmt.Sprintf("trap 'echo one >>%[1]s' USR1; trap 'echo told >>%[1]s' USR2; echo up >>%[1]s; until [ -e go ]; do sleep 0.05; done", marks))
	has := func(word string, n int) {
		t.Helper()
		c.eventually(fmt.Sprint(word, " ", n), func() bool { return strings.Count(read(t, marks), word) >= n })
	}
	has("up", 1)
	for i := 1; i <= 6; i++ {
		done := make(chan result, 1)
		go func() { done <- c.runAs(0, "signal", "--first", "USR1", fmt.Sprint(id)) }()
		if i%3 == 0 {
			was := c.leader()
			c.kill(was.PID)
			c.restart("coordinator", was.ID)
		}
		if r := <-done; r.code != 0 {
			t.Fatalf("signal %d: %+v", i, r)
		}
		has("one", i)
	}
	c.run("signal", "--first", "USR2", fmt.Sprint(id))
	has("told", 1)
	if n := strings.Count(read(t, marks), "one"); n != 6 {
		t.Errorf("six signals arrived %d times", n)
	}
	let(t, dir)
	c.await(id, "COMPLETED")

	for i, args := range [][]string{{"salloc", "-D", dir, "sh", "-c", "echo in"}, {"srun", "-D", dir, "sh", "-c", "echo in"}} {
		next := id + 1 + uint64(i)
		done := make(chan result, 1)
		go func() { done <- c.runAs(alice, args...) }()
		c.eventually("the submit", func() bool { return c.runAs(0, "show", fmt.Sprint(next)).code == 0 })
		was := c.leader()
		c.kill(was.PID)
		c.restart("coordinator", was.ID)
		if r := <-done; r.code != 0 || r.stdout != "in\n" {
			t.Errorf("%s: %+v", args[0], r)
		}
		c.await(next, "COMPLETED")
		if r := c.runAs(0, "show", fmt.Sprint(next+1)); r.code == 0 {
			t.Errorf("%s submitted two jobs", args[0])
		}
	}
}
