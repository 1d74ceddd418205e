package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/agent/pty"
)

// terminal is a user who sits at the command line.
type terminal struct {
	t      *testing.T
	master *os.File
	cmd    *exec.Cmd
	done   chan struct{}

	mu   sync.Mutex
	text string
}

// atTerminal runs the command line on a terminal of its own.
func (c *cluster) atTerminal(uid uint32, rows, columns uint16, args ...string) *terminal {
	c.t.Helper()
	master, tty, err := pty.Open(uid)
	if err != nil {
		c.t.Fatal(err)
	}
	defer tty.Close()
	if err := pty.Resize(master, rows, columns); err != nil {
		c.t.Fatal(err)
	}
	cmd := exec.Command(berth, args...)
	cmd.Env = append(os.Environ(), "BERTH_SOCKET="+c.socket, "TERM=vt100")
	cmd.Dir = os.TempDir()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	term := &terminal{t: c.t, master: master, cmd: cmd, done: make(chan struct{})}
	go func() {
		defer close(term.done)
		buf := make([]byte, 4096)
		for {
			n, err := master.Read(buf)
			term.mu.Lock()
			term.text += strings.ReplaceAll(string(buf[:n]), "\r", "")
			term.mu.Unlock()
			if err != nil { // EIO: the program has ended
				return
			}
		}
	}()
	c.t.Cleanup(func() {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
		master.Close()
		<-term.done
	})
	return term
}

func (term *terminal) typed(text string) {
	term.t.Helper()
	if _, err := io.WriteString(term.master, text); err != nil {
		term.t.Fatalf("type %q: %v", text, err)
	}
}

func (term *terminal) shown() string {
	term.mu.Lock()
	defer term.mu.Unlock()
	return term.text
}

func (term *terminal) expect(text string) {
	term.t.Helper()
	for deadline := time.Now().Add(10 * time.Minute); !strings.Contains(term.shown(), text); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			term.t.Fatalf("no %q on the terminal: %q", text, term.shown())
		}
	}
}

// code waits for the program to end.
func (term *terminal) code() int {
	term.t.Helper()
	err := term.cmd.Wait()
	<-term.done
	var ee *exec.ExitError
	if err != nil && !errors.As(err, &ee) {
		term.t.Fatal(err)
	}
	return term.cmd.ProcessState.ExitCode()
}

// gated submits a job of alice's that runs until the gate is there, and then
// ends with code 9.
func (c *cluster) gated(dir, gate string, flags ...string) uint64 {
	c.t.Helper()
	args := append([]string{"submit", "--parsable", "-D", dir, "--mem", "256MiB"}, flags...)
	r := c.runAs(alice, append(args, "--", "sh", "-c", fmt.Sprintf("echo ready; while [ ! -e %s ]; do sleep 0.1; done; exit 9", gate))...)
	if r.code != 0 {
		c.t.Fatalf("submit: %d %s", r.code, r.stderr)
	}
	id := parseID(c.t, r.stdout)
	c.await(id, "RUNNING")
	return id
}

var memoryGroup = regexp.MustCompile(`(?m)^(\d+:memory:|0::)(.*)$`)

func TestShellInAJob(t *testing.T) {
	t.Parallel()
	for _, runtime := range []string{"process", "containerd"} {
		t.Run(runtime, func(t *testing.T) {
			t.Parallel()
			if runtime == "containerd" {
				needContainerd(t)
			}
			c := startCluster(t, "--runtime", runtime, "--nodes", "1x1xT4")
			dir := openDir(t)
			gate := filepath.Join(dir, "gate")
			id := c.gated(dir, gate)
			shellSession(c, id, dir)
			execSession(c, id, dir)
			last := c.atTerminal(alice, 24, 80, "shell", fmt.Sprint(id))
			last.typed("echo rea''dy\n")
			last.expect("ready\n")
			if err := os.WriteFile(gate, nil, 0o644); err != nil {
				t.Fatal(err)
			}
			if j := c.await(id, "FAILED", "COMPLETED", "CANCELLED"); j.code() != 9 {
				t.Errorf("the job ended with %d (%s), want its own code 9", j.code(), j.Reason)
			}
			last.code()
			if !strings.Contains(last.shown(), fmt.Sprintf("job %d has ended, and the command with it", id)) {
				t.Errorf("the shell of a job that ended shows %q", last.shown())
			}
			if r := c.runAs(alice, "exec", fmt.Sprint(id), "true"); r.code != 1 || !strings.Contains(r.stderr, "is not running (FAILED)") {
				t.Errorf("a job that ended: %d %s", r.code, r.stderr)
			}
		})
	}
}

// shellSession is a user at a terminal in a job.
func shellSession(c *cluster, id uint64, dir string) {
	t := c.t
	t.Helper()
	term := c.atTerminal(alice, 33, 111, "shell", fmt.Sprint(id))
	term.typed("stty size; echo u=$(id -u) t=$TERM j=$BERTH_JOB_ID d=$PWD; grep NoNewPrivs /proc/self/status\n")
	term.expect("33 111\n")
	term.expect(fmt.Sprintf("u=%d t=vt100 j=%d d=%s\n", alice, id, dir))
	term.expect("NoNewPrivs:\t1\n")
	if err := pty.Resize(term.master, 40, 90); err != nil {
		t.Fatal(err)
	}
	c.eventually("the new size in the job", func() bool {
		term.typed("stty size\n")
		time.Sleep(50 * time.Millisecond)
		return strings.Contains(term.shown(), "40 90\n")
	})
	// In a loop, since a shell that is interrupted before it forks waits for the child.
	term.typed(`sh -c 'trap "echo cau""ght; exit" INT; echo waiti""ng; while :; do sleep 0.1; done'` + "\n")
	term.expect("waiting\n")
	term.typed("\x03") // not for berth, but for what runs in the foreground there
	term.expect("caught\n")
	term.typed("exit 5\n")
	if code := term.code(); code != 5 {
		t.Errorf("exit code %d, want the shell's, 5: %q", code, term.shown())
	}
}

// execSession runs commands in a job of alice's.
func execSession(c *cluster, id uint64, dir string) {
	t := c.t
	t.Helper()
	job := fmt.Sprint(id)
	if r := c.runAs(alice, "exec", job, "--", "sh", "-c", "echo out; echo err >&2; exit 42"); r.code != 42 || r.stdout != "out\n" || r.stderr != "err\n" {
		t.Errorf("exec: %+v", r)
	}
	if r := c.runAs(alice, "exec", job, "no-such-command"); r.code != 127 {
		t.Errorf("no such command: %+v", r)
	}
	if r := c.runAs(alice, "exec", job, "--", "sh", "-c", "kill -9 $$"); r.code != 137 {
		t.Errorf("killed: %+v", r)
	}
	// The control group of the job, as both see it.
	pid := strings.TrimSpace(c.runAs(alice, "exec", job, "--", "sh", "-c", "cat /proc/self/cgroup").stdout)
	if got := memoryGroup.FindString(pid); !strings.Contains(got, fmt.Sprintf("j%d-a1", id)) && !strings.HasSuffix(got, ":/") {
		t.Errorf("the command's control group is %q", got)
	}
	if r := c.runAs(bob, "exec", job, "id"); r.code != 1 || r.stdout != "" || !strings.Contains(r.stderr, "another user") {
		t.Errorf("another user: %+v", r)
	}
	if r := c.runAs(bob, "logs", job); r.code != 1 || r.stdout != "" {
		t.Errorf("another user's look: %+v", r)
	}
	if r := c.runAs(0, "exec", job, "id", "-u"); r.stdout != fmt.Sprintln(alice) {
		t.Errorf("an administrator is not the job's user inside of it: %+v", r)
	}
	if r := c.runAs(alice, "logs", job); r.stdout != "ready\n" {
		t.Errorf("logs: %+v", r)
	}
	log, err := os.ReadFile(filepath.Join(c.dir, "n1", "log"))
	if err != nil || !bytes.Contains(log, []byte("a user enters a job")) || bytes.Contains(log, []byte("echo out")) {
		t.Errorf("the audit (%v):\n%s", err, log)
	}
}

// TestShellDoesNotOutliveTheAgent kills the agent under a shell: the shell
// ends, of which the user hears when the node is back; the job does not, and its
// exit code is its own.
func TestShellDoesNotOutliveTheAgent(t *testing.T) {
	t.Parallel()
	c := startCluster(t, "--nodes", "1x1xT4")
	dir := openDir(t)
	gate := filepath.Join(dir, "gate")
	id := c.gated(dir, gate)
	term := c.atTerminal(alice, 24, 80, "shell", fmt.Sprint(id))
	term.typed("trap '' HUP; echo $$ > shell.pid; echo rea''dy\n")
	term.expect("ready\n")
	c.kill(c.daemonPID("agent", "n1"))
	term.expect("the connection to job")
	data, err := os.ReadFile(filepath.Join(dir, "shell.pid"))
	if err != nil {
		t.Fatal(err)
	}
	shell := strings.TrimSpace(string(data))
	c.eventually("the end of the shell", func() bool {
		stat, err := os.ReadFile("/proc/" + shell + "/stat")
		return err != nil || strings.Contains(string(stat), ") Z ")
	})
	c.restart("agent", "n1")
	if code := term.code(); code != 3 { // the new agent knows of no such shell
		t.Errorf("exit code %d: %q", code, term.shown())
	}
	c.eventually("a command in the job again", func() bool {
		r := c.runAs(alice, "exec", fmt.Sprint(id), "echo", "back")
		return r.stdout == "back\n"
	})
	if err := os.WriteFile(gate, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if j := c.await(id, "FAILED"); j.code() != 9 {
		t.Errorf("the job ended with %d (%s)", j.code(), j.Reason)
	}
}

// TestHogInAShellEndsItsJob has a shell use more than the job's cap: nobody
// else is hurt, and the job's verdict says memory.
func TestHogInAShellEndsItsJob(t *testing.T) {
	t.Parallel()
	c := startCluster(t, "--nodes", "1x2xT4")
	dir := openDir(t)
	gate := filepath.Join(dir, "gate")
	id, neighbour := c.gated(dir, gate), c.gated(dir, gate)
	c.runAs(alice, "exec", fmt.Sprint(id), "--", "sh", "-c", "x=$(head -c 600000000 /dev/zero | tr '\\0' x); echo ${#x}")
	if j := c.await(id, "OUT_OF_MEMORY", "FAILED", "COMPLETED"); j.Reason != "OutOfHostMemory" {
		t.Errorf("the job ended %s (%s)", j.State, j.Reason)
	}
	if err := os.WriteFile(gate, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if j := c.await(neighbour, "FAILED"); j.code() != 9 {
		t.Errorf("the neighbour ended with %d (%s)", j.code(), j.Reason)
	}
}

// TestLogsGoOnOverAFailover follows a job's output over every coordinator
// while the leader is killed, and compares each byte.
func TestLogsGoOnOverAFailover(t *testing.T) {
	t.Parallel()
	c := startCluster(t, "--coordinators", "3", "--nodes", "1x1xT4")
	dir := openDir(t)
	r := c.runAs(alice, "submit", "--parsable", "-D", dir, "--", "sh", "-c",
		"i=0; while [ $i -lt 150 ]; do i=$((i+1)); seq $i 100 20000; sleep 0.1; done")
	if r.code != 0 {
		t.Fatalf("submit: %+v", r)
	}
	id := parseID(t, r.stdout)
	sockets := append(strings.Split(c.socket, ","), c.socket)
	outs := make([]bytes.Buffer, len(sockets))
	errs := make([]bytes.Buffer, len(sockets))
	cmds := make([]*exec.Cmd, len(sockets))
	for i, s := range sockets {
		cmds[i] = exec.Command(berth, "logs", "-f", fmt.Sprint(id))
		cmds[i].Env = append(os.Environ(), "BERTH_SOCKET="+s)
		cmds[i].SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: alice, Gid: alice}}
		cmds[i].Stdout, cmds[i].Stderr = &outs[i], &errs[i]
		if err := cmds[i].Start(); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(dir, fmt.Sprintf("berth-%d.out", id))
	c.eventually("some output", func() bool {
		st, err := os.Stat(path)
		return err == nil && st.Size() > 20_000
	})
	was := c.leader()
	c.kill(was.PID)
	c.restart("coordinator", was.ID)
	c.await(id, "COMPLETED")
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i, cmd := range cmds {
		if err := cmd.Wait(); err != nil {
			t.Errorf("over %s: %v: %s", sockets[i], err, errs[i].String())
		}
		if got := outs[i].Bytes(); !bytes.Equal(got, want) {
			n := 0
			for n < min(len(got), len(want)) && got[n] == want[n] {
				n++
			}
			t.Errorf("over %s: %d bytes, the file has %d; they differ from byte %d on: %s", sockets[i], len(got), len(want), n, errs[i].String())
		}
	}
	if len(want) < 100_000 {
		t.Errorf("the job wrote %d bytes only", len(want))
	}
}

// TestShellInAnImage enters a job that has a root of its own.
func TestShellInAnImage(t *testing.T) {
	t.Parallel()
	needContainerd(t)
	if _, err := exec.LookPath("busybox"); err != nil {
		t.Skip("busybox is not installed; on Debian: apt-get install busybox-static")
	}
	c := startCluster(t, "--runtime", "containerd", "--busybox", "--nodes", "1x1xT4")
	dir := openDir(t)
	r := c.runAs(alice, "submit", "--parsable", "-D", dir, "--image", busyboxImage, "--mem", "64MiB", "--", "sh", "-c", "echo ready; sleep 1000")
	if r.code != 0 {
		t.Fatalf("submit: %+v", r)
	}
	id := parseID(t, r.stdout)
	c.await(id, "RUNNING")
	job := fmt.Sprint(id)
	if r := c.runAs(alice, "exec", job, "--", "sh", "-c", "id -u; pwd; ls / | grep -c root; grep -E 'CapEff|NoNewPrivs|Seccomp:' /proc/self/status; exit 6"); r.code != 6 ||
		!strings.HasPrefix(r.stdout, fmt.Sprintf("%d\n/\n", alice)) || !strings.Contains(r.stdout, "CapEff:\t0000000000000000\nNoNewPrivs:\t1\nSeccomp:\t2\n") {
		t.Errorf("in the image: %+v", r)
	}
	if r := c.runAs(alice, "exec", job, "no-such-command"); r.code != 127 {
		t.Errorf("no such command: %+v", r)
	}
	term := c.atTerminal(alice, 20, 70, "shell", job)
	term.typed("stty size; cat /proc/1/cmdline | tr '\\0' ' '; exit 3\n")
	term.expect("20 70\n")
	term.expect("sleep 1000")
	if code := term.code(); code != 3 {
		t.Errorf("exit code %d: %q", code, term.shown())
	}
	if r := c.runAs(alice, "logs", job); r.stdout != "ready\n" {
		t.Errorf("logs: %+v", r)
	}
	c.run("cancel", job)
	c.await(id, "CANCELLED")
}
