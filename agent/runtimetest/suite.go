package runtimetest

import (
	"context"
	"errors"
	"os"
	goruntime "runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-scheduler/berth/agent/launch"
	"github.com/berth-scheduler/berth/agent/runtime"
	"github.com/berth-scheduler/berth/cluster"
)

// backgroundOf returns a context for cleaning up after a test.
func backgroundOf(t *testing.T) context.Context { return context.WithoutCancel(t.Context()) }

// Run tests one implementation. It skips without root, unless in CI. The process that it starts
// again in order to kill it is recognised by childEnv.
func Run(t *testing.T, open Open) {
	Require(t, Root())
	if env(childEnv) != "" {
		runChild(t, open)
		return
	}
	for _, c := range []struct {
		name string
		run  func(*harness)
	}{
		{"exit codes", testExitCodes},
		{"signals", testSignals},
		{"a job that saves its state", testSaves},
		{"a signal to all of a job", testBroadcast},
		{"commands that cannot run", testRefusals},
		{"commands that the kernel refuses", testKernelRefuses},
		{"a first process that ignores SIGTERM", testStubborn},
		{"out of memory", testOutOfMemory},
		{"out of memory in a part", testOutOfMemoryInPart},
		{"output in order, as the user", testOutput},
		{"output through the user's links", testOutputLinks},
		{"what a job used", testMeasured},
		{"input", testInput},
		{"environment", testEnv},
		{"bytes that are no text", testBytes},
		{"identity", testIdentity},
		{"working directory", testWorkDir},
		{"network", testNetwork},
		{"calls repeated", testIdempotent},
		{"list and inspect", testList},
		{"exits are announced", testExits},
		{"what a job leaves behind ends with it", testLeftBehind},
		{"logins end with the job", testLogin},
		{"many at once", testMany},
		{"commands inside of a job", testExec},
		{"commands end in every way", testExecEnds},
		{"a command's input and outputs", testExecStreams},
		{"a terminal inside of a job", testExecTerminal},
		{"several terminals", testExecSeveral},
		{"signals to a command", testExecSignal},
		{"a command whose user went away", testExecHangUp},
		{"a command whose job ends", testExecJobEnds},
		{"a command too large for its job", testExecOutOfMemory},
		{"a command when the runtime is opened again", testExecReopen},
		{"commands where no job runs", testExecRefused},
		{"opened again", testReopen},
		{"exit while closed", testExitWhileClosed},
		{"opener killed", testOpenerKilled},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(newHarness(t, open)) })
	}
}

func testExitCodes(h *harness) {
	for _, code := range []int{0, 1, 7, 126, 127, 255} {
		task := h.run(h.sh("exit " + strconv.Itoa(code)))
		if task.Phase != runtime.Stopped || task.ExitCode != code || task.Signal != 0 || task.OOMKilled {
			h.Errorf("exit %d: got %+v", code, task)
		}
		if task.Started.IsZero() || task.Ended.Before(task.Started) {
			h.Errorf("exit %d: started %v, ended %v", code, task.Started, task.Ended)
		}
	}
}

func testSignals(h *harness) {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL, syscall.SIGSEGV} {
		task := h.run(h.sh("kill -" + strconv.Itoa(int(sig)) + " $$"))
		if task.ExitCode != 128+int(sig) || task.Signal != sig || task.OOMKilled {
			h.Errorf("job killed itself with %v: got %+v", sig, task)
		}
	}
	l := h.sh("trap 'exit 9' TERM; echo ready; while :; do sleep 0.02; done")
	h.start(l)
	h.printed(l.Stdout)
	h.signal(l.ID, syscall.SIGTERM)
	if task := h.wait(l.ID); task.ExitCode != 9 {
		h.Errorf("job handles SIGTERM with exit 9: got %+v", task)
	}
	h.signal(l.ID, syscall.SIGTERM) // does nothing
	l = h.job("sleep", "1000")
	h.start(l)
	h.signal(l.ID, syscall.SIGTERM)
	if task := h.wait(l.ID); task.Signal != syscall.SIGTERM || task.ExitCode != 143 {
		h.Errorf("sleep ended by SIGTERM: got %+v", task)
	}
}

// testSaves sends a signal that is not meant to end the job: a job that handles it continues
// and ends by itself, one that does not is ended by it.
func testSaves(h *harness) {
	l := h.sh("trap 'echo saving' USR1; trap 'exit 3' TERM; echo ready; while :; do sleep 0.02; done")
	h.start(l)
	h.printed(l.Stdout)
	h.signal(l.ID, syscall.SIGUSR1)
	h.until("the job to save", func() bool { return len(h.printed(l.Stdout)) > 1 })
	if task := h.inspect(l.ID); task.Phase != runtime.Running || !alive(task.PID) {
		h.Errorf("after SIGUSR1: got %+v, want it running", task)
	}
	h.signal(l.ID, syscall.SIGTERM)
	if task := h.wait(l.ID); task.ExitCode != 3 || task.Signal != 0 {
		h.Errorf("then it ended as %+v, want exit code 3", task)
	}
	l = h.sh("echo ready; exec sleep 1000")
	h.start(l)
	h.printed(l.Stdout) // before that it may be the runtime's own program
	h.signal(l.ID, syscall.SIGUSR1)
	if task := h.wait(l.ID); task.Signal != syscall.SIGUSR1 || task.ExitCode != 138 {
		h.Errorf("sleep ended by SIGUSR1: got %+v", task)
	}
}

func testRefusals(h *harness) {
	plain := h.write("plain", "#!/bin/sh\nexit 0\n", 0o644)
	for _, c := range []struct {
		name string
		args []string
		code int
	}{
		{"no such path", []string{"/no/such/command"}, 127},
		{"no such name", []string{"no-such-command"}, 127},
		{"not executable", []string{plain}, 126},
		{"a directory", []string{h.out}, 126},
	} {
		if le := h.refused(h.job(c.args...)); le.Code != c.code || le.Reason != "COMMAND" {
			h.Errorf("%s: got code %d reason %s (%v), want %d COMMAND", c.name, le.Code, le.Reason, le, c.code)
		}
	}
}

// testKernelRefuses has commands that look runnable. A runtime reports the failure when it
// launches them, or with the exit code that a shell would give.
func testKernelRefuses(h *harness) {
	for name, code := range map[string]int{
		h.write("shebang", "#!/no/such/interpreter\n", 0o755): 127,
		h.write("text", "exit 0\n", 0o755):                    126,
	} {
		l := h.job(name)
		err := h.rt.Create(h.Context(), l)
		if err == nil {
			err = h.rt.Start(h.Context(), l.ID)
		}
		got := -1
		if le, ok := errors.AsType[*launch.Error](err); ok {
			got = le.Code
		} else if err == nil {
			got = h.wait(l.ID).ExitCode
		}
		if got != code {
			h.Errorf("%s: got code %d (%v), want %d", name, got, err, code)
		}
	}
}

func testStubborn(h *harness) {
	l := h.sh("trap '' TERM; echo ready; while :; do sleep 0.02; done")
	h.start(l)
	h.printed(l.Stdout)
	h.signal(l.ID, syscall.SIGTERM)
	if task := h.inspect(l.ID); task.Phase != runtime.Running || !alive(task.PID) {
		h.Errorf("after SIGTERM: got %+v, want it running", task)
	}
	h.signal(l.ID, syscall.SIGKILL)
	if task := h.wait(l.ID); task.Signal != syscall.SIGKILL || task.ExitCode != 137 || task.OOMKilled {
		h.Errorf("after SIGKILL: got %+v", task)
	}
}

func testOutOfMemory(h *harness) {
	neighbour := h.job("sleep", "1000")
	h.start(neighbour)
	hog := h.job("tail", "/dev/zero")
	hog.MemBytes = 48 << 20
	if task := h.run(hog); !task.OOMKilled || task.Signal != syscall.SIGKILL || task.MemPeakBytes < 24<<20 {
		h.Errorf("memory hog: got %+v, want it killed for its memory", task)
	}
	child := h.sh("tail /dev/zero; exit $?") // as job scripts do
	child.MemBytes = 48 << 20
	if task := h.run(child); !task.OOMKilled || task.ExitCode != 137 {
		h.Errorf("script around a memory hog: got %+v, want it counted as killed for its memory", task)
	}
	// A script that continues may end well before the runtime can kill it.
	on := h.sh("tail /dev/zero; exit 0")
	on.MemBytes = 48 << 20
	if task := h.run(on); !task.OOMKilled {
		h.Errorf("script that goes on after a memory hog: got %+v, want it counted as killed for its memory", task)
	}
	plain := h.sh("kill -KILL $$")
	plain.MemBytes = 48 << 20
	if task := h.run(plain); task.OOMKilled {
		h.Errorf("job that kills itself under a cap: got %+v, want no blame on memory", task)
	}
	if task := h.inspect(neighbour.ID); task.Phase != runtime.Running {
		h.Errorf("neighbour: got %+v, want it running", task)
	}
}

// testOutOfMemoryInPart loses one process of a job whose first would continue, or wait for
// ever.
func testOutOfMemoryInPart(h *harness) {
	l := h.sh("tail /dev/zero & sleep 1000")
	l.MemBytes = 48 << 20
	if task := h.run(l); !task.OOMKilled || task.Signal != syscall.SIGKILL || task.ExitCode != 137 {
		h.Errorf("job that lost a child to its cap: got %+v, want it killed for its memory as a whole", task)
	}
}

func testOutput(h *harness) {
	l := h.sh("for i in 1 2 3 4 5 6 7 8; do echo out $i; echo err $i >&2; done")
	h.write(l.ID.String()+".out", "", 0o644)
	if err := os.Remove(l.Stdout); err != nil {
		h.Fatal(err)
	}
	h.run(l)
	var want []string
	for i := range 8 {
		want = append(want, "out "+strconv.Itoa(i+1), "err "+strconv.Itoa(i+1))
	}
	h.until("all output", func() bool { return len(h.printed(l.Stdout)) >= len(want) })
	if diff := cmp.Diff(want, h.printed(l.Stdout)); diff != "" {
		h.Errorf("output (-want +got):\n%s", diff)
	}
	st, err := os.Stat(l.Stdout)
	if err != nil {
		h.Fatal(err)
	}
	if sys := st.Sys().(*syscall.Stat_t); sys.Uid != testUID || sys.Gid != testGID || st.Mode().Perm() != 0o644 {
		h.Errorf("output file: owner %d:%d mode %v, want %d:%d 0644", sys.Uid, sys.Gid, st.Mode(), testUID, testGID)
	}
	fresh := h.sh("echo new")
	fresh.Stdout, fresh.Stderr, fresh.Truncate = h.path("fresh"), h.path("fresh"), true
	h.write("fresh", "old\n", 0o666)
	if err := h.rt.Create(h.Context(), fresh); err != nil {
		h.Fatal(err)
	}
	if old := h.printed(fresh.Stdout); !slices.Equal(old, []string{"old"}) {
		h.Errorf("an output file is emptied before its job starts: %q", old)
	}
	h.run(fresh)
	h.until("emptied output", func() bool { return slices.Equal(h.printed(fresh.Stdout), []string{"new"}) })
	again := h.sh("echo more; echo bad >&2")
	again.Stdout, again.Stderr = l.Stdout, h.path("second.err")
	h.run(again)
	h.until("appended output", func() bool { return slices.Equal(h.printed(l.Stdout), append(slices.Clone(want), "more")) })
	if diff := cmp.Diff([]string{"bad"}, h.printed(again.Stderr)); diff != "" {
		h.Errorf("error output (-want +got):\n%s", diff)
	}
}

// testOutputLinks gives output paths that only root could write.
func testOutputLinks(h *harness) {
	secret := tempDir(h.T) + "/secret"
	if err := os.WriteFile(secret, []byte("root's"), 0o600); err != nil {
		h.Fatal(err)
	}
	link := h.path("link")
	if err := os.Symlink(secret, link); err != nil {
		h.Fatal(err)
	}
	for _, path := range []string{link, secret, "/etc/berth-runtimetest", h.path("no/such/dir")} {
		l := h.sh("echo mine")
		l.Stdout, l.Stderr = path, path
		if le := h.refused(l); le.Code != 125 || le.Reason != "OUTPUT" {
			h.Errorf("output to %s: got %d %s, want 125 OUTPUT", path, le.Code, le.Reason)
		} else if missing := path == h.path("no/such/dir"); le.Missing != missing {
			h.Errorf("output to %s: its directory is missing: %t, want %t", path, le.Missing, missing)
		}
	}
	if b, err := os.ReadFile(secret); err != nil || string(b) != "root's" {
		h.Errorf("root's file now holds %q (%v)", b, err)
	}
}

func testInput(h *harness) {
	l := h.job("cat")
	l.Stdin = h.write("input", "hello\n", 0o644)
	h.run(l)
	if got := h.printed(l.Stdout); !slices.Equal(got, []string{"hello"}) {
		h.Errorf("cat of its input printed %q", got)
	}
	l = h.sh("cat; echo end")
	h.run(l)
	if got := h.printed(l.Stdout); !slices.Equal(got, []string{"end"}) {
		h.Errorf("cat without input printed %q", got)
	}
	l = h.job("cat")
	l.Stdin = h.path("none")
	if le := h.refused(l); le.Code != 125 || le.Reason != "INPUT" {
		h.Errorf("missing input: got %d %s, want 125 INPUT", le.Code, le.Reason)
	}
}

func testEnv(h *harness) {
	h.Setenv("RUNTIMETEST_LEAK", "1")
	l := h.job("env")
	l.Env = []string{"PATH=/usr/bin:/bin", "A=1", "EMPTY=", "SPACE=a b", "EQ=x=y", "BASH_FUNC_module%%=() { :; }", "LANG=C"}
	h.run(l)
	h.until("the last variable", func() bool { return len(h.printed(l.Stdout)) >= len(l.Env) })
	got := h.printed(l.Stdout)
	slices.Sort(got)
	want := slices.Sorted(slices.Values(l.Env))
	if diff := cmp.Diff(want, got); diff != "" {
		h.Errorf("environment (-want +got):\n%s", diff)
	}
}

// testBytes passes what the kernel accepts but no text encoding does.
func testBytes(h *harness) {
	odd := "a\xff\xfe\x80\n\u2028b"
	l := h.job("/bin/sh", "-c", `printf '%s|%s' "$1" "$ODD"`, "sh", odd)
	l.Env = append(l.Env, "ODD="+odd)
	l.Stdout = h.path("out-\xff")
	if task := h.run(l); task.ExitCode != 0 {
		h.Errorf("got %+v", task)
	}
	h.until("both", func() bool {
		b, err := os.ReadFile(l.Stdout)
		return err == nil && len(b) >= 2*len(odd)+1
	})
	if b, err := os.ReadFile(l.Stdout); err != nil || string(b) != odd+"|"+odd {
		h.Errorf("argument and variable: got %q (%v), want %q twice", b, err, odd)
	}
}

func testIdentity(h *harness) {
	l := h.sh("id -u; id -g; id -G; grep -E '^(NoNewPrivs|CapEff|CapPrm|CapInh|CapAmb):' /proc/self/status; cat /proc/self/oom_score_adj")
	h.run(l)
	want := []string{
		"65534", "65534", "65534 4711",
		"CapInh:\t0000000000000000", "CapPrm:\t0000000000000000", "CapEff:\t0000000000000000", "CapAmb:\t0000000000000000",
		"NoNewPrivs:\t1", "0",
	}
	h.until("all lines", func() bool { return len(h.printed(l.Stdout)) >= len(want) })
	if diff := cmp.Diff(want, h.printed(l.Stdout)); diff != "" {
		h.Errorf("identity (-want +got):\n%s", diff)
	}
}

func testWorkDir(h *harness) {
	l := h.job("/bin/pwd")
	h.run(l)
	if got := h.printed(l.Stdout); !slices.Equal(got, []string{h.out}) {
		h.Errorf("pwd printed %q, want %s", got, h.out)
	}
	closed := tempDir(h.T) // root's, mode 0700
	trap := h.path("trap")
	if err := os.Symlink("/proc/self/fd", trap); err != nil {
		h.Fatal(err)
	}
	for _, dir := range []string{"/no/such/dir", closed, h.write("file", "", 0o644), "/proc/self/fd/7", trap} {
		l := h.sh("pwd")
		l.Dir = dir
		if le := h.refused(l); le.Code != 125 || le.Reason != "WORKDIR" {
			h.Errorf("in %s: got %d %s, want 125 WORKDIR", dir, le.Code, le.Reason)
		}
	}
}

// testMany runs eight times as many concurrent jobs as there are cores: next to other tests, a
// containerd that must start more gives some up.
func testMany(h *harness) {
	n := min(64, 8*goruntime.NumCPU())
	var wg sync.WaitGroup
	for i := range n {
		l := h.sh("echo hello $BERTH_N; exit " + strconv.Itoa(i))
		l.Env = append(l.Env, "BERTH_N="+strconv.Itoa(i))
		wg.Go(func() {
			if err := h.rt.Create(h.Context(), l); err != nil {
				h.Errorf("create: %v", err)
				return
			}
			if err := h.rt.Start(h.Context(), l.ID); err != nil {
				h.Errorf("start: %v", err)
				return
			}
			var task runtime.Task
			var err error
			for late := time.Now().Add(patience); time.Now().Before(late) && task.Phase != runtime.Stopped; {
				task, err = h.rt.Inspect(h.Context(), l.ID) // it may be too busy to answer
				time.Sleep(pollEvery)
			}
			if err != nil || task.ExitCode != i {
				h.Errorf("job %d: got %+v, %v", i, task, err)
			}
			if err := h.rt.Delete(h.Context(), l.ID); err != nil {
				h.Errorf("delete: %v", err)
			}
		})
	}
	wg.Wait()
	for i := range n {
		id := cluster.AttemptID{Job: cluster.JobID(i + 1), No: 1}
		if got := strings.Join(h.printed(h.path(id.String()+".out")), ","); got != "hello "+strconv.Itoa(i) {
			h.Errorf("job %d printed %q", i, got)
		}
	}
}
