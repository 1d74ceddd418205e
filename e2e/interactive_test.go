package e2e

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// stepsScript has the lines that scripts written for Slurm have.
const stepsScript = `#!/bin/bash
#SBATCH -N2 --ntasks-per-node=2 --gpus-per-node=1
export FOO=bar
srun -l bash -c 'echo $SLURMD_NODENAME $SLURM_NODEID $SLURM_LOCALID/$SLURM_PROCID $FOO $SLURM_GTIDS $SLURM_STEP_ID $SLURM_STEP_NUM_TASKS $PWD'
srun -N1 -n1 -w $(scontrol show hostnames $SLURM_JOB_NODELIST | tail -1) bash -c 'echo on $SLURMD_NODENAME'
srun -N3 true; echo rc $?
srun bash -c 'exit $SLURM_PROCID'; echo rc $?
srun -n1 bash -c 'kill -9 $$'; echo rc $?
srun -n1 nosuch; echo rc $?
printf 'a\nb\n' | srun -l -n2 cat
squeue -h -o '%A %D %T'
echo $SLURM_NTASKS $SLURM_TASKS_PER_NODE $SLURM_JOB_PARTITION
exit 4
`

// TestStepsOfABatchScript: srun runs its tasks on all nodes of the job, with
// the words and codes of Slurm 22.05.8.
func TestStepsOfABatchScript(t *testing.T) {
	t.Parallel()
	c := startCluster(t, "--nodes", "2x2xT4")
	dir := openDir(t)
	write(t, filepath.Join(dir, "st.sh"), stepsScript)
	r := c.runAs(alice, "sbatch", "-Q", "-W", "-D", dir, "-o", dir+"/out", "-e", dir+"/err", filepath.Join(dir, "st.sh"))
	if r.code != 4 {
		t.Errorf("the job ended with %d: %s", r.code, r.stderr)
	}
	out := strings.Split(read(t, dir+"/out"), "\n")
	has := func(lines []string, want string) {
		t.Helper()
		for _, l := range lines {
			if l == want {
				return
			}
		}
		t.Errorf("no line %q among %q", want, lines)
	}
	for rank := range 4 {
		node := rank / 2
		has(out, fmt.Sprintf("%d: n%d %d %d/%d bar %d,%d 0 4 %s", rank, node+1, node, rank%2, rank, 2*node, 2*node+1, dir))
	}
	for _, want := range []string{"on n2", "rc 1", "rc 3", "rc 137", "rc 2", "0: a", "1: b", "1 2 RUNNING", "4 2(x2) all"} {
		has(out, want)
	}
	errs := strings.Split(read(t, dir+"/err"), "\n")
	for _, want := range []string{
		"srun: error: Only allocated 2 nodes asked for 3", "srun: error: n1: task 1: Exited with exit code 1", "srun: error: n2: task 3: Exited with exit code 3",
		"srun: error: n1: task 0: Killed", "slurmstepd-n1: error: execve(): nosuch: No such file or directory", "srun: error: n1: task 0: Exited with exit code 2",
		"srun: Warning: can't run 1 processes on 2 nodes, setting nnodes to 1",
	} {
		has(errs, want)
	}
	c.eventually("the end on both nodes", func() bool { return c.show(1).State == "FAILED" })
}

// TestSessions: srun and salloc outside of jobs, on a shared cluster.
func TestSessions(t *testing.T) {
	t.Parallel()
	c := startCluster(t, "--nodes", "2x2xT4")
	dir := openDir(t)
	r := c.runAs(alice, "srun", "-D", dir, "-G1", "bash", "-c", "echo $SLURM_JOB_ID $SLURM_STEP_ID $SLURM_GPUS_ON_NODE; pwd; id -u; exit 7")
	if want := fmt.Sprintf("1 0 1\n%s\n%d\n", dir, alice); r.code != 7 || r.stdout != want || !strings.Contains(r.stderr, "srun: error: n1: task 0: Exited with exit code 7\n") {
		t.Errorf("srun: %+v, want %q", r, want)
	}
	if j := c.await(1, "FAILED", "COMPLETED", "CANCELLED"); j.State != "FAILED" || j.code() != 7 {
		t.Errorf("its job ended %s with %d", j.State, j.code())
	}
	r = c.runAs(alice, "salloc", "-N2", "-D", dir, "bash", "-c", "echo $SLURM_JOB_ID $SLURM_JOB_NODELIST; "+berth+" srun -l bash -c 'echo $SLURMD_NODENAME'; exit 5")
	if r.code != 5 || !strings.Contains(r.stdout, "2 n[1-2]\n") || !strings.Contains(r.stdout, "0: n1\n") || !strings.Contains(r.stdout, "1: n2\n") ||
		!strings.Contains(r.stderr, "salloc: Granted job allocation 2\nsalloc: Relinquishing job allocation 2\n") {
		t.Errorf("salloc: %+v", r)
	}
	if j := c.await(2, "FAILED", "COMPLETED", "CANCELLED"); j.State != "COMPLETED" {
		t.Errorf("the allocation ended %s (%s)", j.State, j.Reason)
	}
	term := c.atTerminal(alice, 33, 90, "srun", "-D", dir, "--pty", "sh")
	term.expect("$ ")
	term.typed("stty size; echo job=$SLURM_JOB_ID.$SLURM_PROCID; exit 6\n")
	term.expect("33 90\n")
	term.expect("job=3.0\n")
	if code := term.code(); code != 6 {
		t.Errorf("srun --pty ended with %d: %q", code, term.shown())
	}
	if j := c.await(3, "FAILED", "COMPLETED", "CANCELLED"); j.code() != 6 {
		t.Errorf("its job ended %s with %d", j.State, j.code())
	}
	// A session in which nothing happens is warned, and ended.
	term = c.atTerminal(alice, 24, 80, "run", "-D", dir, "--idle-limit", "6s", "--pty", "--", "sh")
	term.typed("echo in-$((1+1))\n")
	term.expect("in-2\n")
	term.expect("this session is idle")
	if code := term.code(); code == 0 {
		t.Errorf("an idle session ends with %d", code)
	}
	if j := c.await(4, "TIMEOUT", "FAILED", "COMPLETED", "CANCELLED"); j.State != "TIMEOUT" {
		t.Errorf("an idle session ended %s (%s)", j.State, j.Reason)
	}
	// A user whose machine dies keeps nothing for good, and a cancelled one is told.
	term = c.atTerminal(alice, 24, 80, "salloc", "-D", dir, "sh", "-c", "echo in; sleep 1000")
	term.expect("in\n")
	c.run("scancel", "5")
	term.expect("salloc: Job allocation 5 has been revoked.")
	if code := term.code(); code == 0 {
		t.Errorf("a revoked allocation ends with %d", code)
	}
}

// TestShellOutlivesItsConnection has a shell go on over a new leader, the death
// of the program that shows it, and a user who leaves it.
func TestShellOutlivesItsConnection(t *testing.T) {
	t.Parallel()
	c := startCluster(t, "--coordinators", "3", "--nodes", "1x1xT4")
	dir := openDir(t)
	id := c.gated(dir, filepath.Join(dir, "gate"))
	job := fmt.Sprint(id)
	term := c.atTerminal(alice, 30, 100, "shell", job)
	term.typed("cd; PS1=; stty -echo; x=kept; echo pid=$$\n")
	pid := regexp.MustCompile(`pid=(\d+)\n`)
	c.eventually("the shell", func() bool { return pid.MatchString(term.shown()) })
	first := pid.FindStringSubmatch(term.shown())[1]

	// Output that is written while there is no leader comes whole.
	term.typed("i=0; while [ $i -lt 2000 ]; do i=$((i+1)); echo line-$i-$x; [ $((i%20)) = 0 ] && sleep 0.05; done; echo all-out\n")
	term.expect("line-40-kept\n")
	was := c.leader()
	c.kill(was.PID)
	c.restart("coordinator", was.ID)
	term.expect("all-out\n")
	shown := term.shown()
	at := 0
	for i := 1; i <= 2000; i++ {
		k := strings.Index(shown[at:], fmt.Sprintf("line-%d-kept\n", i))
		if k < 0 || strings.Count(shown, fmt.Sprintf("line-%d-kept\n", i)) != 1 {
			t.Fatalf("line %d is there %d times, or out of order", i, strings.Count(shown, fmt.Sprintf("line-%d-kept\n", i)))
		}
		at += k
	}

	// The program is killed: the same shell is taken up again.
	if err := term.cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	term.code()
	c.eventually("a shell that was left", func() bool {
		return strings.Contains(c.runAs(alice, "shell", "--list", job).stdout, "detached; ends in")
	})
	again := c.atTerminal(alice, 20, 70, "shell", job)
	again.expect("all-out\n") // the last of what it printed
	again.typed("echo $x pid=$$; stty size\n")
	again.expect("kept pid=" + first + "\n20 70\n")
	// The user leaves it by a key, and somebody else may not have it.
	again.typed("\n~d")
	again.expect("detached from session")
	if code := again.code(); code != 0 {
		t.Errorf("leaving ended with %d", code)
	}
	if r := c.runAs(alice+1, "shell", "--list", job); r.code == 0 {
		t.Errorf("another user sees the sessions: %+v", r)
	}
	last := c.atTerminal(alice, 20, 70, "shell", job)
	last.typed("echo $x again; exit 3\n")
	last.expect("kept again\n")
	if code := last.code(); code != 3 {
		t.Errorf("the shell ended with %d: %q", code, last.shown())
	}
	if r := c.runAs(alice, "shell", "--list", job); strings.Contains(r.stdout, "shell") {
		t.Errorf("it is still there: %+v", r)
	}
	if err := os.WriteFile(filepath.Join(dir, "gate"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	c.await(id, "FAILED")
}

// standIn is a Jupyter as far as the notebook command knows one: it reads the
// configuration and serves with the token in it.
const standIn = `#!/usr/bin/python3
import os, socket, sys, http.server
class Section(dict):
    __getattr__ = dict.get
    __setattr__ = dict.__setitem__
class Config(dict):
    def __getattr__(self, name): return self.setdefault(name, Section())
c = Config()
path = [a for a in sys.argv if a.startswith("--config=")][0][9:]
for _ in range(2):  # Jupyter reads it more than once
    exec(compile(open(path).read(), path, "exec"), {"c": c})
app = c.ServerApp
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        ok = self.path.endswith("token=" + app.token)
        self.send_response(200 if ok else 403)
        self.end_headers()
        self.wfile.write(b"the notebook\n" if ok else b"a token is needed\n")
    def address_string(self): return "user"
    def log_message(self, *args): pass
class Server(http.server.ThreadingHTTPServer):
    address_family = socket.AF_UNIX
    def server_bind(self):
        os.umask(0o177)
        self.socket.bind(self.server_address)
        self.server_name, self.server_port = "localhost", 0
print("token is", app.token, flush=True)
Server(app.sock, Handler).serve_forever()
`

// TestNotebook starts a notebook, reaches it by what is printed, leaves it and
// takes it up again, and finds it and its token nowhere that others can reach.
func TestNotebook(t *testing.T) {
	t.Parallel()
	needPython(t, "import http.server, secrets")
	const home = "/tmp/.berth-notebook-1-0"
	clean := func() {
		if err := os.RemoveAll(home); err != nil {
			t.Error(err)
		}
	}
	clean() // of a run that was killed
	t.Cleanup(clean)
	c := startCluster(t, "--nodes", "1x1xT4")
	dir := openDir(t)
	bin := filepath.Join(dir, "jupyter-lab")
	write(t, bin, standIn)
	if err := os.Chmod(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	if r := c.runAs(alice, "notebook", "--jupyter", dir+"/none"); r.code != 2 || !strings.Contains(r.stderr, "no such program here") {
		t.Errorf("without Jupyter: %+v", r)
	}
	near := filepath.Join(dir, "near.sock")
	term := c.atTerminal(alice, 24, 200, "notebook", "--lab", "--jupyter", bin, "--gpus", "1", "-D", dir, "--socket", near)
	term.expect("\nreconnect with berth notebook attach 1.\n")
	token := regexp.MustCompile(`\n  http://localhost:8888/lab\?token=([0-9a-f]{48})\n`).FindStringSubmatch(term.shown())
	if token == nil || !strings.Contains(term.shown(), "\n  ssh -N -L 8888:"+near+" ") {
		t.Fatalf("it prints %q", term.shown())
	}
	get := func(network, address, token string) int {
		t.Helper()
		client := &http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, address)
		}}}
		resp, err := client.Get("http://localhost/lab?token=" + token)
		if err != nil {
			t.Fatalf("through %s: %v; it prints %q", address, err, term.shown())
		}
		defer resp.Body.Close()
		return resp.StatusCode
	}
	if ok, no := get("unix", near, token[1]), get("unix", near, "wrong"); ok != http.StatusOK || no != http.StatusForbidden {
		t.Errorf("with the token %d, without %d", ok, no)
	}
	for name, want := range map[string]os.FileMode{near: 0o600, home: 0o700, home + "/sock": 0o600, home + "/address": 0o600, home + "/log": 0o600, home + "/config.py": 0o600} {
		if st, err := os.Stat(name); err != nil || st.Mode().Perm() != want {
			t.Errorf("%s: %v %v, want %v", name, st, err, want)
		}
	}
	procs, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	envs, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, p := range append(procs, envs...) {
		if data, err := os.ReadFile(p); err == nil && strings.Contains(string(data), token[1]) {
			t.Errorf("%s holds the token", p)
		}
	}
	if out := c.run("show", "-o", "json", "1"); strings.Contains(out, token[1]) {
		t.Error("the job's description holds the token")
	}
	for _, args := range [][]string{{"notebook", "attach", "1"}, {"tunnel", "1", home + "/sock"}} {
		if r := c.runAs(bob, args...); r.code == 0 || strings.Contains(r.stdout, "token") {
			t.Errorf("another user: %q: %+v", args, r)
		}
	}
	term.typed("\x03")
	term.expect("the notebook keeps running")
	if code := term.code(); code != 0 {
		t.Errorf("left: %d", code)
	}
	if _, err := os.Lstat(near); err == nil {
		t.Error("the socket is left")
	}
	term = c.atTerminal(alice, 24, 200, "notebook", "attach", "--listen", "0", "1")
	term.expect("reconnect with berth notebook attach 1.\n")
	here := regexp.MustCompile(`\n  http://(127\.0\.0\.1:\d+)/lab\?token=([0-9a-f]{48})\n`).FindStringSubmatch(term.shown())
	if here == nil || here[2] != token[1] {
		t.Fatalf("again it prints %q", term.shown())
	}
	if ok := get("tcp", here[1], token[1]); ok != http.StatusOK { // root may, too
		t.Errorf("at a port: %d", ok)
	}
	c.run("cancel", "1")
	c.await(1, "CANCELLED")
	term.expect("job 1 has ended")
}
