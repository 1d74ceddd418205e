package sim

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-scheduler/berth/agent/gpu"
	"github.com/berth-scheduler/berth/agent/gpu/sim/simclient"
)

// The test binary plays the agent and the job of the tests below, each a
// process of its own that can be killed.
const (
	envAgent = "SIM_TEST_AGENT" // socket path: serve one T4 with j1-a1 admitted
	envJob   = "SIM_TEST_JOB"   // run a job from the environment
)

func TestMain(m *testing.M) {
	switch {
	case os.Getenv(envAgent) != "":
		playAgent(os.Getenv(envAgent))
	case os.Getenv(envJob) != "":
		cfg, err := simclient.FromEnv(os.Environ())
		if err == nil {
			err = simclient.Job{GPUMemMiB: 1000, UtilMilli: 500, Seconds: 0.75}.Run(context.Background(), cfg, os.Stdout)
		}
		os.Exit(simclient.ExitCode(err))
	}
	os.Exit(m.Run())
}

func playAgent(socket string) {
	p, err := New(Config{Node: "n1", Specs: []Spec{{Type: "T4", Count: 1}}, Socket: socket})
	if err == nil {
		_, err = p.Admit(context.Background(), testGrant())
	}
	if err != nil {
		os.Stdout.WriteString(err.Error() + "\n")
		os.Exit(1)
	}
	os.Stdout.WriteString("ready\n")
	select {} // until it is killed
}

func testGrant() gpu.Grant {
	return gpu.Grant{Attempt: "j1-a1", UID: uint32(os.Geteuid()), Cards: []gpu.GrantCard{{UUID: UUID("n1", 0), MemMiB: 1000, Milli: 500}}}
}

func startAgent(t *testing.T, socket string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), envAgent+"="+socket)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatalf("pipe: %v", err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("start agent: %v", err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("agent said %q, %v", line, err)
	}
	return cmd
}

func startJob(t *testing.T, env []string) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(append(os.Environ(), env...), envJob+"=1")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatalf("start job: %v", err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	return cmd, &out
}

// within polls until ok holds.
func within(t *testing.T, d time.Duration, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(d); !ok(); <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", d, what)
		}
	}
}

func TestJobProcessSurvivesKillOfTheAgent(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "cards")
	agent := startAgent(t, socket)
	env := append(gpu.Env(testGrant()), "BERTH_SIM_SOCKET="+socket, "BERTH_SIM_ATTEMPT=j1-a1")
	began := time.Now()
	job := exec.Command(os.Args[0])
	job.Env = append(append(os.Environ(), env...), envJob+"=1")
	out, err := job.StdoutPipe()
	if err != nil {
		t.Fatalf("pipe: %v", err)
	}
	if err := job.Start(); err != nil {
		t.Fatalf("start job: %v", err)
	}
	t.Cleanup(func() { _ = job.Process.Kill() })

	// Kill the agent in the midst of the work, and again its successor.
	lines := bufio.NewScanner(out)
	kills, last := 0, ""
	for lines.Scan() {
		last = lines.Text()
		if !strings.HasPrefix(last, "progress") || kills == 2 {
			continue
		}
		kills++
		if err := agent.Process.Kill(); err != nil {
			t.Fatalf("kill agent: %v", err)
		}
		_ = agent.Wait()
		agent = startAgent(t, socket)
	}
	if err := job.Wait(); err != nil {
		t.Fatalf("job: %v; its last line: %s", err, last)
	}
	if last != "done" || kills != 2 {
		t.Errorf("last line %q after %d kills, want done after 2", last, kills)
	}
	if d := time.Since(began); d < 3*time.Second {
		t.Errorf("job took %v: 0.75 s of work are 3 s on a T4", d)
	}
}

func TestKilledJobGivesItsMemoryBack(t *testing.T) {
	t.Parallel()
	p, err := New(Config{Node: "n1", Specs: []Spec{{Type: "T4", Count: 1}}, Socket: filepath.Join(t.TempDir(), "deep", "cards")})
	if err != nil {
		t.Fatalf("new: %v", err)
	}
	defer p.Close()
	env, err := p.Admit(t.Context(), testGrant())
	if err != nil {
		t.Fatalf("admit: %v", err)
	}
	usage := func() gpu.Usage {
		u, err := p.Usage(t.Context())
		if err != nil {
			t.Fatalf("usage: %v", err)
		}
		return u[0]
	}
	job, out := startJob(t, env)
	within(t, time.Minute, "the job computes", func() bool { return usage().UtilMilli == 500 })
	want := []gpu.Process{{PID: job.Process.Pid, Attempt: "j1-a1", MemMiB: 1000, UtilMilli: 500, PeakMiB: 1000, Kinds: gpu.Compute}}
	if d := cmp.Diff(want, usage().Processes); d != "" {
		t.Errorf("processes, with the kernel's pid (-want +got):\n%s", d)
	}
	if err := job.Process.Kill(); err != nil {
		t.Fatalf("kill job: %v", err)
	}
	_ = job.Wait()
	within(t, time.Minute, "its memory is free", func() bool { u := usage(); return u.UsedMiB == 0 && u.UtilMilli == 0 })
	if strings.Contains(out.String(), "done") {
		t.Errorf("the job was done before it was killed:\n%s", out)
	}
}

func TestSocketPath(t *testing.T) {
	t.Parallel()
	cfg := func(path string) Config {
		return Config{Node: "n1", Specs: []Spec{{Type: "T4", Count: 1}}, Socket: path}
	}
	t.Run("stale socket is replaced", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "s")
		ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			t.Fatalf("listen: %v", err)
		}
		ln.SetUnlinkOnClose(false) // as after kill -9
		ln.Close()
		p, err := New(cfg(path))
		if err != nil {
			t.Fatalf("new: %v", err)
		}
		st, err := os.Stat(path)
		if err != nil || st.Mode().Perm() != 0o666 {
			t.Errorf("socket: %v, %v; want it open to every user", st, err)
		}
		if err := p.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("socket after close: %v", err)
		}
	})
	t.Run("live socket is left alone", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "s")
		p, err := New(cfg(path))
		if err != nil {
			t.Fatalf("new: %v", err)
		}
		defer p.Close()
		if _, err := New(cfg(path)); err == nil || !strings.Contains(err.Error(), "served by another agent") {
			t.Errorf("second agent on one socket: %v", err)
		}
	})
	t.Run("private folder is noticed", func(t *testing.T) {
		t.Parallel()
		top := t.TempDir()
		private := filepath.Join(top, "private")
		if err := os.MkdirAll(filepath.Join(private, "open"), 0o755); err != nil {
			t.Fatalf("mkdir: %v", err)
		}
		path := filepath.Join(private, "open", "s")
		if got := closedDir(path); strings.HasPrefix(got, private) {
			t.Errorf("%s is said to be private", got)
		}
		if err := os.Chmod(private, 0o700); err != nil {
			t.Fatalf("chmod: %v", err)
		}
		var logged bytes.Buffer
		c := cfg(path)
		c.Log = slog.New(slog.NewTextHandler(&logged, nil))
		p, err := New(c)
		if err != nil {
			t.Fatalf("new: %v", err)
		}
		defer p.Close()
		if !strings.Contains(logged.String(), "folder="+private+" ") {
			t.Errorf("log does not name %s:\n%s", private, &logged)
		}
	})
	t.Run("file is left alone", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "s")
		if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
			t.Fatalf("write: %v", err)
		}
		if _, err := New(cfg(path)); err == nil || !strings.Contains(err.Error(), "is no socket") {
			t.Errorf("agent on a file: %v", err)
		}
	})
}
