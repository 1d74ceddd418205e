package hooks

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func write(t *testing.T, dir, text string) string {
	t.Helper()
	p := filepath.Join(dir, "hook")
	if err := errors.Join(os.WriteFile(p, []byte("#!/bin/sh\n"+text), 0o755), os.Chmod(p, 0o755)); err != nil {
		t.Fatal(err)
	}
	return p
}

// sink is a log that may be read while it is written.
type sink struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *sink) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *sink) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func runner(t *testing.T, prog string, timeout time.Duration) (*Runner, *sink) {
	t.Helper()
	log := &sink{}
	r, err := Open(Config{
		Prolog: prog, Epilog: prog, Timeout: timeout, CgroupParent: "/berth-hooks-test-" + filepath.Base(filepath.Dir(filepath.Dir(prog))),
		Log: slog.New(slog.NewTextHandler(log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	if r.noCaps == nil {
		t.Cleanup(func() {
			if err := r.groups.Open(r.cfg.CgroupParent + "/hooks").RemoveUp(); err != nil {
				t.Error(err)
			}
		})
	}
	return r, log
}

var job = &Job{
	Hook: Epilog, Job: 7, Attempt: "j7-a2", Name: "train; rm -rf $HOME", User: "alice", UID: 1000, GID: 100, Node: "n1", Restarts: 1,
	Partition: "gpu", GPUs: []GPU{{UUID: "GPU-1", MemMiB: 4096, Milli: 500}, {UUID: "GPU-2"}}, MemMiB: 64,
	End: &End{State: "FAILED", ExitCode: 3, Reason: "NonZeroExitCode"},
}

// TestWhatAHookIsTold: the job as JSON, a fixed environment, and nothing of
// what surrounds the agent.
func TestWhatAHookIsTold(t *testing.T) {
	t.Setenv("LD_LIBRARY_PATH", "/secret")
	dir := t.TempDir()
	prog := write(t, dir, `cat > "${0%/*}/stdin"; env > "${0%/*}/env"; pwd > "${0%/*}/pwd"`)
	r, _ := runner(t, prog, 30*time.Second)
	if err := r.Run(t.Context(), Epilog, job); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(dir, "stdin"))
	if err != nil {
		t.Fatal(err)
	}
	got := new(Job)
	if err := json.Unmarshal(data, got); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(job, got); d != "" {
		t.Error(d)
	}
	env, err := os.ReadFile(filepath.Join(dir, "env"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"BERTH_HOOK=epilog", "BERTH_JOB_ID=7", "BERTH_ATTEMPT=j7-a2", "BERTH_JOB_NAME=train; rm -rf $HOME", "BERTH_JOB_UID=1000", "BERTH_GPU_UUIDS=GPU-1,GPU-2",
		"BERTH_JOB_STATE=FAILED", "BERTH_JOB_EXIT_CODE=3", "SLURM_JOB_ID=7", "SLURM_JOB_USER=alice", "SLURM_SCRIPT_CONTEXT=epilog_slurmd", "HOME=/root",
	} {
		if !strings.Contains("\n"+string(env), "\n"+want+"\n") {
			t.Errorf("the environment lacks %s:\n%s", want, env)
		}
	}
	if strings.Contains(string(env), "LD_") {
		t.Errorf("the agent's environment reaches the hook:\n%s", env)
	}
	if wd, err := os.ReadFile(filepath.Join(dir, "pwd")); err != nil || string(wd) != "/\n" {
		t.Errorf("runs in %q (%v)", wd, err)
	}
}

func TestHowHooksFail(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		script, want string
		timeout      time.Duration
	}{
		"exit code":     {"echo 'scratch is full' >&2; exit 3", "ended with exit code 3: scratch is full", time.Minute},
		"signal":        {"kill -SEGV $$", "ended by a signal", time.Minute},
		"hangs":         {"echo waiting; sleep 600", "took longer than 5s (jobs.hook_timeout) and was killed: waiting", 5 * time.Second},
		"ignores TERM":  {"trap '' TERM HUP INT; while :; do sleep 1; done", "took longer than", time.Second},
		"no output":     {"exit 1", "ended with exit code 1", time.Minute},
		"binary output": {"printf 'a\\377b\\n'; exit 1", "exit code 1: a?b", time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, _ := runner(t, write(t, t.TempDir(), c.script), c.timeout)
			one := *job
			one.Attempt = strings.ReplaceAll(name, " ", "-")
			err := r.Run(t.Context(), Prolog, &one)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

// TestWhatAHookLeavesBehindEnds: also in a session of its own, where there are
// control groups.
func TestWhatAHookLeavesBehindEnds(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("needs root: control groups find what left its session")
	}
	dir := t.TempDir()
	prog := write(t, dir, `setsid sh -c 'echo $$ > "$1/pid"; exec sleep 600' x "${0%/*}" & while [ ! -s "${0%/*}/pid" ]; do sleep 0.05; done`)
	r, _ := runner(t, prog, 30*time.Second)
	if r.noCaps != nil {
		t.Skip(r.noCaps)
	}
	if err := r.Run(t.Context(), Prolog, job); err != nil {
		t.Fatal(err)
	}
	gone(t, dir)
}

// gone waits for the end of the process whose number a hook wrote.
func gone(t *testing.T, dir string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "pid"))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(5 * time.Millisecond) {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || bytes.Contains(stat, []byte(") Z ")) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("process %d goes on", pid)
		}
	}
}

// TestOutputIsBounded: a hook that says too much fills no log and goes on.
func TestOutputIsBounded(t *testing.T) {
	t.Parallel()
	r, log := runner(t, write(t, t.TempDir(), "yes 'a line' | head -c 4000000; echo done"), 30*time.Second)
	if err := r.Run(t.Context(), Prolog, job); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(log.String(), "hook says"); n != maxLines {
		t.Errorf("%d lines are logged, want %d", n, maxLines)
	}
	if n := len(log.String()); n > 64<<10 {
		t.Errorf("%d bytes are logged", n)
	}
}

// TestAStopKillsTheHook: and says that it was no fault of its own.
func TestAStopKillsTheHook(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r, _ := runner(t, write(t, dir, `echo $$ > "${0%/*}/pid"; exec sleep 600`), time.Hour)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx, Prolog, job) }()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(5 * time.Millisecond) {
		if b, err := os.ReadFile(filepath.Join(dir, "pid")); err == nil && len(b) > 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the hook does not run")
		}
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	gone(t, dir)
}

func TestCheck(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("needs root: files of others are made")
	}
	good := write(t, t.TempDir(), "exit 0")
	if err := Check(good); err != nil {
		t.Errorf("a sound hook: %v", err)
	}
	for name, c := range map[string]struct {
		spoil func(dir, prog string) string
		want  string
	}{
		"relative":  {func(string, string) string { return "hook" }, "want an absolute path"},
		"dots":      {func(dir, _ string) string { return dir + "/../x/hook" }, "without '..'"},
		"missing":   {func(dir, _ string) string { return dir + "/none" }, "no such file"},
		"directory": {func(dir, _ string) string { return dir }, "is not a plain file"},
		"link": {func(dir, prog string) string {
			must(os.Symlink(prog, dir+"/link"))
			return dir + "/link"
		}, "is a symbolic link"},
		"link on the way": {func(dir, _ string) string {
			must(os.Symlink(dir, dir+"/way"))
			return dir + "/way/hook"
		}, "is a symbolic link"},
		"not executable": {func(_, prog string) string { must(os.Chmod(prog, 0o644)); return prog }, "is not executable"},
		"of a user":      {func(_, prog string) string { must(os.Chown(prog, 1000, 0)); return prog }, "belongs to uid 1000"},
		"group writes":   {func(_, prog string) string { must(os.Chmod(prog, 0o775)); return prog }, "may be written by others (mode 0775)"},
		"all write":      {func(_, prog string) string { must(os.Chmod(prog, 0o777)); return prog }, "may be written by others"},
		"open directory": {func(dir, prog string) string { must(os.Chmod(dir, 0o777)); return prog }, "may be written by others"},
		"user's directory": {func(dir, prog string) string {
			must(os.Chown(dir, 1000, 1000))
			return prog
		}, "belongs to uid 1000"},
		"FIFO": {func(dir, _ string) string {
			must(syscall.Mkfifo(dir+"/fifo", 0o755))
			return dir + "/fifo"
		}, "is not a plain file"},
	} {
		dir := t.TempDir()
		err := Check(c.spoil(dir, write(t, dir, "exit 0")))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
