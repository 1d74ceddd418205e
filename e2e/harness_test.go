// Package e2e runs the real binary: coordinators, agents and jobs are
// processes, and faults are kill -9.
package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// berth is the path of the binary under test, built once by TestMain.
var berth string

func TestMain(m *testing.M) {
	if plan := os.Getenv(malloryEnv); plan != "" {
		os.Exit(runMallory(plan))
	}
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "berth-e2e-bin-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		berth = filepath.Join(dir, "berth")
		if err := os.Chmod(dir, 0o755); err != nil { // jobs of other users run it too
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		if err := buildPrograms(dir); err != nil {
			fmt.Fprintln(os.Stderr, "build:", err)
			return 1
		}
		// What make test gives tests for speed is not how daemons run.
		if err := errors.Join(os.Unsetenv("GOGC"), os.Unsetenv("GOMEMLIMIT")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return m.Run()
	}())
}

// cluster is a `berth dev` under test.
type cluster struct {
	t      *testing.T
	dir    string
	cmd    *exec.Cmd
	exited chan error
	stderr *syncBuffer
	socket string
	env    []string // of the daemons, beside ours

	mu        sync.Mutex
	restarted []*exec.Cmd

	asking sync.Once
	asker  *asker
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// startCluster brings a cluster up and takes it down when the test ends.
func startCluster(t *testing.T, args ...string) *cluster {
	t.Helper()
	return startClusterWith(t, nil, args...)
}

// startClusterWith is startCluster with more environment for the daemons.
func startClusterWith(t *testing.T, env []string, args ...string) *cluster {
	t.Helper()
	return startClusterOf(t, berth, env, args...)
}

// startClusterOf is startClusterWith of another program than the one under test.
func startClusterOf(t *testing.T, exe string, env []string, args ...string) *cluster {
	t.Helper()
	c, err := tryCluster(t, exe, env, args...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// tryCluster is startClusterOf for a cluster that may end before it is up.
func tryCluster(t *testing.T, exe string, env []string, args ...string) (*cluster, error) {
	t.Helper()
	needRoot(t)
	dir, err := os.MkdirTemp("", "be2e-")
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{t: t, dir: filepath.Join(dir, "c"), exited: make(chan error, 1), stderr: &syncBuffer{}, env: env}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	c.cmd = exec.Command(exe, append([]string{"dev", "--dir", c.dir}, args...)...)
	c.cmd.Stderr = c.stderr
	c.cmd.Env = append(os.Environ(), env...)
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.stop()
		if t.Failed() {
			c.dumpLogs()
		}
		os.RemoveAll(dir)
	})
	up := make(chan string, 1)
	go func() {
		sc := bufio.NewScanner(out)
		for sc.Scan() {
			if s, ok := strings.CutPrefix(strings.TrimSpace(sc.Text()), "export BERTH_SOCKET="); ok {
				up <- s
			}
		}
		c.exited <- c.cmd.Wait()
	}()
	select {
	case c.socket = <-up:
	case err := <-c.exited:
		return nil, fmt.Errorf("berth dev ended: %w\n%s", err, c.stderr)
	case <-time.After(10 * time.Minute):
		return nil, fmt.Errorf("berth dev did not come up\n%s", c.stderr)
	}
	return c, nil
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		if os.Getenv("CI") != "" {
			t.Fatal("end-to-end tests need root, to run jobs as other users under memory caps")
		}
		t.Skip("needs root, to run jobs as other users under memory caps")
	}
}

// stop ends the cluster as Ctrl-C does, and fails the test when that is not
// clean.
func (c *cluster) stop() {
	c.mu.Lock()
	for _, p := range c.restarted {
		_ = p.Process.Signal(syscall.SIGTERM)
		_ = p.Wait()
	}
	c.restarted = nil
	c.mu.Unlock()
	if c.cmd.ProcessState != nil {
		return
	}
	_ = c.cmd.Process.Signal(os.Interrupt)
	select {
	case <-c.exited:
	case <-time.After(10 * time.Minute):
		_ = c.cmd.Process.Kill()
		c.t.Errorf("berth dev did not stop within ten minutes")
	}
}

func (c *cluster) dumpLogs() {
	logs, _ := filepath.Glob(filepath.Join(c.dir, "*", "log"))
	for _, l := range logs {
		data, _ := os.ReadFile(l)
		if len(data) > 6000 {
			data = data[len(data)-6000:]
		}
		c.t.Logf("--- %s\n%s", l, data)
	}
	c.t.Logf("--- berth dev\n%s", c.stderr)
}

// result is how a command ended.
type result struct {
	stdout, stderr string
	code           int
}

// run runs the command line as the given uid and returns how it ended.
func (c *cluster) runAs(uid uint32, args ...string) result {
	c.t.Helper()
	return c.runOf(berth, c.socket, uid, args...)
}

// runOf is runAs of another program, or of one of the coordinators' sockets.
func (c *cluster) runOf(exe, socket string, uid uint32, args ...string) result {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, exe, args...)
	cmd.Env = append(os.Environ(), "BERTH_SOCKET="+socket)
	cmd.Dir = os.TempDir()
	if uid != 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	}
	var out, errb bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errb
	err := cmd.Run()
	var ee *exec.ExitError
	if err != nil && !errors.As(err, &ee) {
		c.t.Fatalf("berth %s: %v", strings.Join(args, " "), err)
	}
	return result{stdout: out.String(), stderr: errb.String(), code: cmd.ProcessState.ExitCode()}
}

// run is runAs root, and must succeed.
func (c *cluster) run(args ...string) string {
	c.t.Helper()
	r := c.runAs(0, args...)
	if r.code != 0 {
		c.t.Fatalf("berth %s: exit code %d\n%s%s", strings.Join(args, " "), r.code, r.stdout, r.stderr)
	}
	return r.stdout
}

// submit submits a job and returns its id.
func (c *cluster) submit(args ...string) uint64 {
	c.t.Helper()
	return parseID(c.t, c.run(append([]string{"submit", "--parsable"}, args...)...))
}

func parseID(t *testing.T, s string) uint64 {
	t.Helper()
	id, err := strconv.ParseUint(strings.TrimSpace(s), 10, 64)
	if err != nil {
		t.Fatalf("not a job id: %q", s)
	}
	return id
}

// job is the JSON of `berth show`, as far as tests look at it.
type job struct {
	ID       uint64 `json:"id"`
	Name     string `json:"name"`
	User     string `json:"user"`
	State    string `json:"state"`
	Reason   string `json:"reason"`
	ExitCode *int   `json:"exit_code"`
	Signal   int    `json:"signal"`
	Node     string `json:"node"`
	GPUs     []struct {
		UUID  string `json:"uuid"`
		Type  string `json:"type"`
		Share struct {
			MemMiB int64 `json:"mem_mib"`
			Milli  int64 `json:"milli"`
		} `json:"share"`
	} `json:"gpus"`
	Predicted struct {
		GPUMemMiB      int64   `json:"gpu_mem_mib"`
		GPUMemP95MiB   int64   `json:"gpu_mem_p95_mib"`
		Seconds        float64 `json:"seconds"`
		TimeConfidence float64 `json:"time_confidence"`
		Source         string  `json:"source"`
	} `json:"predicted"`
	Measured struct {
		GPUMemMiB  int64   `json:"gpu_mem_mib"`
		HostMemMiB int64   `json:"host_mem_mib"`
		CPUMilli   int64   `json:"cpu_milli"`
		Seconds    float64 `json:"seconds"`
	} `json:"measured"`
	Attempts []struct {
		No           int    `json:"no"`
		State        string `json:"state"`
		ReasonDetail string `json:"reason_detail"`
	} `json:"attempts"`
	Account string `json:"account"`
	QOS     string `json:"qos"`
}

// code is the exit code, -1 when there is none.
func (j job) code() int {
	if j.ExitCode == nil {
		return -1
	}
	return *j.ExitCode
}

// showInto reads the JSON of one job.
func (c *cluster) showInto(id uint64, into any) {
	c.t.Helper()
	if out := c.run("show", "-o", "json", fmt.Sprint(id)); json.Unmarshal([]byte(out), into) != nil {
		c.t.Fatalf("show %d: %s", id, out)
	}
}

func (c *cluster) show(id uint64) job {
	c.t.Helper()
	out := c.run("show", "-o", "json", fmt.Sprint(id))
	var one job
	if err := json.Unmarshal([]byte(out), &one); err == nil && one.ID == id {
		return one
	}
	var many []job
	if err := json.Unmarshal([]byte(out), &many); err != nil || len(many) != 1 {
		c.t.Fatalf("show %d: %v\n%s", id, err, out)
	}
	return many[0]
}

// await waits until the job is in one of the states, and returns what `berth
// show` says of it then.
func (c *cluster) await(id uint64, states ...string) job {
	c.t.Helper()
	c.asking.Do(func() { c.asker = newAsker(c.t, c.socket) })
	var j job
	c.eventually(fmt.Sprintf("job %d in %v", id, states), func() bool {
		if !c.asker.in(id, states) {
			return false
		}
		j = c.show(id)
		return slices.Contains(states, j.State)
	})
	return j
}

// eventually asks until ok holds, for ten minutes at most: less often the longer
// it takes, since most questions are processes.
func (c *cluster) eventually(what string, ok func() bool) {
	c.t.Helper()
	for began := time.Now(); !ok(); {
		waited := time.Since(began)
		if waited > 10*time.Minute {
			c.t.Fatalf("not within ten minutes: %s", what)
		}
		time.Sleep(min(max(waited/10, 20*time.Millisecond), 200*time.Millisecond))
	}
}

// member is a line of `berth cluster status -o json`.
type member struct {
	ID      string `json:"id"`
	Leader  bool   `json:"leader"`
	PID     int    `json:"pid"`
	Role    string `json:"role"`
	Applied uint64 `json:"applied_index"`
	Term    uint64 `json:"term"`
	Model   uint64 `json:"model_version"`
	SHA256  string `json:"model_sha256"`
	Up      bool   `json:"reachable"`
	Version string `json:"version"`
	Last    uint64 `json:"last_index"`
	Hash    string `json:"state_hash"`
	HashAt  uint64 `json:"state_hash_index"`
}

func (c *cluster) members() []member {
	c.t.Helper()
	var st struct {
		Members []member `json:"members"`
	}
	out := c.run("cluster", "status", "-o", "json")
	if err := json.Unmarshal([]byte(out), &st); err != nil {
		c.t.Fatalf("cluster status: %v\n%s", err, out)
	}
	return st.Members
}

// leader returns the member that leads.
func (c *cluster) leader() member {
	c.t.Helper()
	var l member
	c.eventually("a leader", func() bool {
		for _, m := range c.members() {
			if m.Leader || m.Role == "leader" {
				l = m
				return m.PID != 0
			}
		}
		return false
	})
	return l
}

// kill ends a process of the cluster as a power cut would.
func (c *cluster) kill(pid int) {
	c.t.Helper()
	c.end(pid, syscall.SIGKILL)
}

// end sends a signal to a process of the cluster and waits for its end.
func (c *cluster) end(pid int, sig syscall.Signal) {
	c.t.Helper()
	if err := syscall.Kill(pid, sig); err != nil {
		c.t.Fatalf("kill %d: %v", pid, err)
	}
	// Its sockets and locks are its own until the kernel is done with it, and all
	// its threads: the first may be a zombie before.
	c.eventually(fmt.Sprintf("the end of process %d", pid), func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		threads, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
		return err != nil || strings.Contains(string(stat), ") Z ") && len(threads) <= 1
	})
}

// restart starts a daemon of the cluster again from its own configuration.
func (c *cluster) restart(kind, name string) *exec.Cmd {
	c.t.Helper()
	return c.restartOf(berth, kind, name)
}

// restartOf is restart with another program.
func (c *cluster) restartOf(exe, kind, name string) *exec.Cmd {
	c.t.Helper()
	log, err := os.OpenFile(filepath.Join(c.dir, name, "log"), os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		c.t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(exe, kind, "--config", filepath.Join(c.dir, name, kind+".yaml"))
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(os.Environ(), c.env...)
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	c.mu.Lock()
	c.restarted = append(c.restarted, cmd)
	c.mu.Unlock()
	return cmd
}

// agentPID finds the agent of a node by its command line.
func (c *cluster) daemonPID(kind, name string) int {
	c.t.Helper()
	want := filepath.Join(c.dir, name, kind+".yaml")
	procs, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		c.t.Fatal(err)
	}
	for _, p := range procs {
		data, err := os.ReadFile(p)
		if err != nil {
			continue
		}
		args := strings.Split(string(data), "\x00")
		if len(args) > 3 && args[1] == kind && args[3] == want {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(p)))
			return pid
		}
	}
	c.t.Fatalf("no %s %s runs", kind, name)
	return 0
}
