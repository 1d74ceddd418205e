package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// loudScript writes what would steer a terminal, and then waits.
const loudScript = `#!/bin/sh
printf 'line \033[31mred\033[m \033]0;taken\007 one\n\033[2J\033[999Ctwo\n'
sleep 1000
`

// TestTopInTmux: the live screen in a real terminal. What a job writes steers nothing,
// a job is cancelled there, and it goes on when the leader is killed.
func TestTopInTmux(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("tmux"); err != nil {
		t.Skip("needs tmux, for a terminal that is none of ours")
	}
	c := startCluster(t, "--coordinators", "3", "--nodes", "1x2xT4")
	dir := openDir(t)
	write(t, filepath.Join(dir, "loud"), loudScript)
	id := parseID(t, c.runAs(alice, "submit", "--parsable", "-D", dir, "--name", "loud", "--gpus", "1", "--gpu-mem", "2GiB", filepath.Join(dir, "loud")).stdout)
	c.await(id, "RUNNING")
	tmux := func(args ...string) string {
		cmd := exec.Command("tmux", append([]string{"-f", "/dev/null", "-S", filepath.Join(dir, "tmux")}, args...)...)
		cmd.Env = append(os.Environ(), "BERTH_SOCKET="+c.socket, "LANG=C.UTF-8", "TERM=xterm-256color")
		cmd.Dir = dir
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: alice, Gid: alice}}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Logf("tmux %q: %v: %s", args, err, out)
		}
		return string(out)
	}
	tmux("new-session", "-d", "-x", "100", "-y", "30", berth, "top")
	t.Cleanup(func() { tmux("kill-server") })
	tmux("set", "-sg", "escape-time", "10")
	shown := func(want ...string) {
		t.Helper()
		last := ""
		defer func() {
			if t.Failed() {
				t.Log(last)
			}
		}()
		c.eventually(fmt.Sprintf("%q on the screen", want), func() bool {
			last = tmux("capture-pane", "-p")
			for _, text := range want {
				if !strings.Contains(last, text) {
					return false
				}
			}
			return true
		})
	}
	shown("loud", "1 running, 0 waiting", "1 of 2 GPUs held", "development")
	tmux("send-keys", "Enter")
	shown("Job 1 loud: RUNNING", "placed there because", "line red  one", "two")
	tmux("resize-window", "-x", "60", "-y", "12")
	shown("Job 1 loud")
	tmux("resize-window", "-x", "30", "-y", "5")
	shown("30×5 is too small")
	tmux("resize-window", "-x", "100", "-y", "30")
	tmux("send-keys", "2")
	shown("MEMORY", "T4", "0/2.0G", "memory capped by sim")
	c.kill(int(c.leader().PID))
	second := parseID(t, c.runAs(alice, "submit", "--parsable", "-D", dir, "--name", "after", "--gpus", "1", "--gpu-mem", "2GiB", filepath.Join(dir, "loud")).stdout)
	tmux("send-keys", "1")
	shown("after", "2 running, 0 waiting")
	tmux("send-keys", "/")
	shown("Filter: ")
	tmux("send-keys", "after", "Enter", "g", "d")
	shown(fmt.Sprintf("Cancel job %d (after of ", second), ")? [y/N]") // by name, where the machine knows one
	tmux("send-keys", "y")
	shown(fmt.Sprintf("job %d: cancelled", second))
	c.await(second, "CANCELLED")
	tmux("send-keys", "q")
	c.eventually("its end", func() bool {
		out := tmux("capture-pane", "-p")
		return strings.Contains(out, "no server") || strings.Contains(out, "error connecting")
	})
}

// harmless are the sequences that the screen's library writes: it moves the cursor,
// erases, colours and sets modes, and asks the terminal for its own.
var harmless = regexp.MustCompile(`\x1b(\[[0-9;?<>=]*[$]?[A-Za-z]|[()][0AB]|[=>78M]|\][0-9]+;\?\x07)`)

// TestTopOnAPlainTerminal: on a terminal with little nothing that a job wrote gets
// through, and without one words say so.
func TestTopOnAPlainTerminal(t *testing.T) {
	t.Parallel()
	c := startCluster(t, "--nodes", "1x1xT4")
	dir := openDir(t)
	write(t, filepath.Join(dir, "loud"), loudScript)
	id := parseID(t, c.runAs(alice, "submit", "--parsable", "-D", dir, "--name", "loud", filepath.Join(dir, "loud")).stdout)
	c.await(id, "RUNNING")
	term := c.atTerminal(alice, 24, 80, "top", "--ascii")
	term.expect("loud")
	term.typed("l")
	term.expect("one")
	term.expect("two")
	term.typed("q")
	if code := term.code(); code != 0 {
		t.Errorf("berth top ended with %d: %q", code, term.shown())
	}
	text := term.shown()
	for _, bad := range []string{"taken", "\x1b[31mred", "\x1b[999C"} {
		if strings.Contains(text, bad) {
			t.Errorf("%q of the job's output is on the terminal: %q", bad, text)
		}
	}
	if rest := harmless.ReplaceAllString(text, ""); strings.Contains(rest, "\x1b") {
		t.Errorf("other sequences are on the terminal: %q", rest)
	}
	if r := c.runAs(alice, "top"); r.code != 2 || !strings.Contains(r.stderr, "standard input and output must be a terminal; berth queue") {
		t.Errorf("without a terminal: %+v", r)
	}
}
