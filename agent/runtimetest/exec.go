package runtimetest

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-scheduler/berth/agent/launch"
	"github.com/berth-scheduler/berth/agent/runtime"
	"github.com/berth-scheduler/berth/cluster"
)

// console is a process in a job whose output is collected.
type console struct {
	*runtime.Process
	h    *harness
	mu   sync.Mutex
	text map[*os.File]string
	wg   sync.WaitGroup
}

// exec starts a command in a job.
func (h *harness) exec(id cluster.AttemptID, x runtime.Exec) *console {
	h.Helper()
	p, err := h.tryExec(id, x)
	if err != nil {
		h.Fatalf("exec %q: %v", x.Args, err)
	}
	c := &console{Process: p, h: h, text: map[*os.File]string{}}
	for _, f := range []*os.File{p.Stdout, p.Stderr} {
		if f == nil {
			continue
		}
		c.wg.Go(func() {
			buf := make([]byte, 4096)
			for {
				n, err := f.Read(buf)
				c.mu.Lock()
				c.text[f] += string(buf[:n])
				c.mu.Unlock()
				if err != nil { // end of file, or a terminal that nothing has open
					return
				}
			}
		})
	}
	h.Cleanup(c.close)
	return c
}

func (h *harness) tryExec(id cluster.AttemptID, x runtime.Exec) (*runtime.Process, error) {
	h.Helper()
	rt, ok := h.rt.(runtime.Executor)
	if !ok {
		h.Fatal("the runtime is no runtime.Executor")
	}
	return rt.Exec(h.Context(), id, &x)
}

// close ends the process; it may be called again.
func (c *console) close() {
	if err := c.Close(); err != nil {
		c.h.Errorf("close: %v", err)
	}
	for _, f := range []*os.File{c.Stdin, c.Stdout, c.Stderr} {
		if f != nil {
			_ = f.Close() // the test may have done so
		}
	}
	c.wg.Wait()
}

// out returns what the process has written so far, with plain newlines.
func (c *console) out() string { return c.of(c.Stdout) }

func (c *console) of(f *os.File) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.ReplaceAll(c.text[f], "\r", "")
}

func (c *console) expect(text string) {
	c.h.Helper()
	deadline := time.Now().Add(patience)
	for !strings.Contains(c.out(), text) {
		if time.Now().After(deadline) {
			c.h.Fatalf("no %q in what the command printed: %q", text, c.out())
		}
		time.Sleep(pollEvery)
	}
}

func (c *console) typed(text string) {
	c.h.Helper()
	if _, err := io.WriteString(c.Stdin, text); err != nil {
		c.h.Fatalf("type %q: %v", text, err)
	}
}

// end waits for the process and all of its output.
func (c *console) end() runtime.ProcessEnd {
	c.h.Helper()
	e, err := c.Wait(c.h.Context())
	if err != nil {
		c.h.Fatalf("wait: %v", err)
	}
	c.wg.Wait()
	return e
}

// runIn runs a command to its end, without input.
func (h *harness) runIn(id cluster.AttemptID, args ...string) (string, runtime.ProcessEnd) {
	h.Helper()
	c := h.exec(id, runtime.Exec{Args: args})
	c.Stdin.Close()
	e := c.end()
	c.close()
	return c.out() + c.of(c.Stderr), e
}

// sleeper returns a job that runs until it is told to end.
func (h *harness) sleeper() *launch.Launch {
	h.Helper()
	l := h.sh("echo ready; while [ ! -e gate-$BERTH_N ]; do sleep 0.02; done; exit 9")
	l.Env = append(l.Env, "BERTH_N="+strconv.FormatUint(uint64(l.ID.Job), 10), "A=a job's", "SHELL=/bin/sh")
	h.start(l)
	h.printed(l.Stdout)
	return l
}

// finish lets a sleeper end, and checks that it did so by itself.
func (h *harness) finish(l *launch.Launch) {
	h.Helper()
	h.write("gate-"+strconv.FormatUint(uint64(l.ID.Job), 10), "", 0o644)
	if task := h.wait(l.ID); task.ExitCode != 9 || task.Signal != 0 {
		h.Errorf("the job ended as %+v, want exit code 9", task)
	}
}

// groupsOf lists the control groups of a process, as it or its job sees them.
func groupsOf(h *harness, pid int) string {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cgroup")
	if err != nil {
		h.Fatal(err)
	}
	return string(b)
}

// testExec checks what a command gets.
func testExec(h *harness) {
	l := h.sleeper()
	script := `id -u; id -g; id -G; grep -E '^(NoNewPrivs|CapEff|CapPrm|CapInh|CapAmb):' /proc/self/status
cat /proc/self/oom_score_adj; pwd; echo "$A"; echo "$B"; ulimit -c; ls /proc/self/fd | tr '\n' ' '; echo`
	c := h.exec(l.ID, runtime.Exec{Args: []string{"sh", "-c", script}, Env: []string{"B=more"}})
	c.Stdin.Close()
	if e := c.end(); e.Code != 0 {
		h.Fatalf("ended as %+v: %s", e, c.of(c.Stderr))
	}
	want := []string{
		"65534", "65534", "65534 4711",
		"CapInh:\t0000000000000000", "CapPrm:\t0000000000000000", "CapEff:\t0000000000000000", "CapAmb:\t0000000000000000",
		"NoNewPrivs:\t1", "0", h.out, "a job's", "more", "0",
		"0 1 2 3 ", // standard files and the directory that ls reads
	}
	if diff := cmp.Diff(want, strings.Split(strings.TrimSuffix(c.out(), "\n"), "\n")); diff != "" {
		h.Errorf("in the job (-want +got):\n%s", diff)
	}
	c.close()
	// In every controller, it is in the job's group.
	c = h.exec(l.ID, runtime.Exec{Args: []string{"sh", "-c", "echo $$; read x" + own(1)}})
	c.expect("\n")
	mine, theirs := groupsOf(h, h.inspect(l.ID).PID), ""
	for _, pid := range childrenNamed(h, "read x"+own(1)) {
		theirs = groupsOf(h, pid)
	}
	if diff := cmp.Diff(mine, theirs); diff != "" {
		h.Errorf("control groups (-job +command):\n%s", diff)
	}
	c.close()
	h.finish(l)
}

// own returns a number of seconds, beginning with n, for which no other process sleeps: the
// tests of other runtimes run concurrently.
func own(n int) string { return fmt.Sprintf("%d%07d", n, os.Getpid()) }

// childrenNamed finds processes of the test's user by part of their command.
func childrenNamed(h *harness, part string) []int {
	h.Helper()
	dirs, err := os.ReadDir("/proc")
	if err != nil {
		h.Fatal(err)
	}
	var out []int
	for _, d := range dirs {
		pid, err := strconv.Atoi(d.Name())
		if err != nil {
			continue
		}
		st, err := os.Stat("/proc/" + d.Name())
		if err != nil || st.Sys().(*syscall.Stat_t).Uid != testUID {
			continue
		}
		if b, err := os.ReadFile("/proc/" + d.Name() + "/cmdline"); err == nil && strings.Contains(string(b), part) && alive(pid) {
			out = append(out, pid)
		}
	}
	return out
}

func testExecEnds(h *harness) {
	l := h.sleeper()
	for _, code := range []int{0, 1, 7, 125, 255} {
		if out, e := h.runIn(l.ID, "sh", "-c", "exit "+strconv.Itoa(code)); e.Code != code || e.Signal != 0 {
			h.Errorf("exit %d: got %+v: %s", code, e, out)
		}
	}
	if _, e := h.runIn(l.ID, "sh", "-c", "kill -TERM $$"); e.Code != 143 || e.Signal != syscall.SIGTERM {
		h.Errorf("killed itself: got %+v", e)
	}
	plain := h.write("plain", "#!/bin/sh\n", 0o644)
	for name, code := range map[string]int{"no-such-command": 127, "/no/such/command": 127, plain: 126} {
		p, err := h.tryExec(l.ID, runtime.Exec{Args: []string{name}})
		if le, ok := errors.AsType[*launch.Error](err); ok {
			if le.Code != code {
				h.Errorf("%s: got %v, want code %d", name, le, code)
			}
			continue
		}
		if err != nil {
			h.Errorf("%s: %v", name, err)
			continue
		}
		if e, err := p.Wait(h.Context()); err != nil || e.Code != code {
			h.Errorf("%s: ended as %+v, %v, want code %d", name, e, err, code)
		}
		if err := p.Close(); err != nil {
			h.Error(err)
		}
	}
	h.finish(l)
}

func testExecStreams(h *harness) {
	l := h.sleeper()
	c := h.exec(l.ID, runtime.Exec{Args: []string{"sh", "-c", "cat; echo oops >&2; exit 4"}})
	big := strings.Repeat("0123456789abcde\n", 1<<16) // 1 MiB, more than any pipe holds
	c.typed(big)
	if err := c.Stdin.Close(); err != nil {
		h.Fatal(err)
	}
	if e := c.end(); e.Code != 4 {
		h.Errorf("ended as %+v", e)
	}
	if c.out() != big || c.of(c.Stderr) != "oops\n" {
		h.Errorf("%d bytes came back of %d, and on standard error %q", len(c.out()), len(big), c.of(c.Stderr))
	}
	h.finish(l)
}

func testExecTerminal(h *harness) {
	l := h.sleeper()
	c := h.exec(l.ID, runtime.Exec{Terminal: true, Window: runtime.Window{Rows: 33, Columns: 111}, Env: []string{"TERM=vt100", "PS1=> "}})
	c.typed("stty size; echo term $TERM; tty >/dev/null && echo is-a-tty; [ -t 0 -a -t 1 -a -t 2 ] && echo all-three\n")
	for _, text := range []string{"33 111\n", "term vt100\n", "is-a-tty\n", "all-three\n"} {
		c.expect(text)
	}
	if err := c.Resize(h.Context(), runtime.Window{Rows: 50, Columns: 99}); err != nil {
		h.Fatal(err)
	}
	c.typed("stty size\n")
	c.expect("50 99\n")
	nap := own(1000)
	c.typed("id -u; sleep " + nap + "\n")
	c.expect("65534\n")
	h.until("sleep in the foreground", func() bool { return len(childrenNamed(h, nap)) == 1 })
	c.typed("\x03") // the terminal turns it into SIGINT for sleep alone
	h.until("the end of sleep", func() bool { return len(childrenNamed(h, nap)) == 0 })
	c.typed("exit 5\n")
	if e := c.end(); e.Code != 5 {
		h.Errorf("ended as %+v: %q", e, c.out())
	}
	h.finish(l)
}

func testExecSeveral(h *harness) {
	l := h.sleeper()
	var cs []*console
	for i := range 8 {
		c := h.exec(l.ID, runtime.Exec{Terminal: i%2 == 0, Args: []string{"sh", "-c", `read x; echo "[$x]"; read y; exit $y`}})
		cs = append(cs, c)
	}
	for i, c := range cs {
		c.typed("hello " + strconv.Itoa(i) + "\n")
	}
	for i, c := range cs {
		c.expect("[hello " + strconv.Itoa(i) + "]\n")
		c.typed(strconv.Itoa(10+i) + "\n")
	}
	for i, c := range cs {
		if e := c.end(); e.Code != 10+i {
			h.Errorf("command %d ended as %+v", i, e)
		}
	}
	h.finish(l)
}

func testExecSignal(h *harness) {
	l := h.sleeper()
	c := h.exec(l.ID, runtime.Exec{Args: []string{"sh", "-c", "trap 'echo interrupted' INT; echo ready; while :; do sleep 0.02; done"}})
	c.expect("ready\n")
	if err := c.Signal(h.Context(), syscall.SIGINT); err != nil {
		h.Fatal(err)
	}
	c.expect("interrupted\n")
	if err := c.Signal(h.Context(), syscall.SIGTERM); err != nil {
		h.Fatal(err)
	}
	if e := c.end(); e.Signal != syscall.SIGTERM {
		h.Errorf("ended as %+v", e)
	}
	if err := c.Signal(h.Context(), syscall.SIGTERM); err != nil {
		h.Errorf("a signal after the end: %v", err)
	}
	h.finish(l)
}

// testExecHangUp checks that a command and its children end with its connection, even if they
// ignore SIGHUP, and that the job continues.
func testExecHangUp(h *harness) {
	l := h.sleeper()
	c := h.exec(l.ID, runtime.Exec{Args: []string{"sh", "-c", "trap '' HUP TERM; sleep " + own(2001) + " & echo ready; while :; do sleep " + own(2001) + "; done"}})
	c.expect("ready\n")
	h.until("two of them", func() bool { return len(childrenNamed(h, own(2001))) >= 2 })
	polite := h.exec(l.ID, runtime.Exec{Args: []string{"sh", "-c", "trap 'echo hung up >polite; exit' HUP; echo ready; while :; do sleep 0.02; done"}})
	polite.expect("ready\n")
	c.close()
	h.until("the end of all of them", func() bool { return len(childrenNamed(h, own(2001))) == 0 })
	polite.close()
	if got := h.printed(h.path("polite")); !slices.Equal(got, []string{"hung up"}) {
		h.Errorf("printed %q", got)
	}
	h.finish(l)
}

func testExecJobEnds(h *harness) {
	l := h.sleeper()
	shell := h.exec(l.ID, runtime.Exec{Terminal: true})
	shell.typed("echo rea''dy; sleep " + own(2002) + " & (trap '' HUP TERM; sleep " + own(2002) + ")\n")
	shell.expect("ready\n")
	h.until("two of them", func() bool { return len(childrenNamed(h, own(2002))) >= 2 })
	h.finish(l) // with its own exit code, not the shell's
	if e := shell.end(); e.Signal != syscall.SIGHUP && e.Signal != syscall.SIGKILL && e.Code != 0 {
		h.Errorf("the shell ended as %+v", e)
	}
	h.until("the end of all of them", func() bool { return len(childrenNamed(h, own(2002))) == 0 })
	if err := h.rt.Delete(h.Context(), l.ID); err != nil {
		h.Errorf("delete: %v", err)
	}
}

// testExecOutOfMemory has a command use more memory than its job may have. The cap applies to
// the job and the command together, and so do its consequences.
func testExecOutOfMemory(h *harness) {
	l := h.sh("echo ready; while :; do sleep 0.02; done")
	l.MemBytes = 48 << 20
	h.start(l)
	h.printed(l.Stdout)
	c := h.exec(l.ID, runtime.Exec{Args: []string{"sh", "-c", `x=$(head -c 200000000 /dev/zero | tr '\0' x); echo survived ${#x}`}})
	c.Stdin.Close()
	if e := c.end(); e.Signal != syscall.SIGKILL && e.Code == 0 {
		h.Errorf("the command ended as %+v: %s", e, c.out())
	}
	if task := h.wait(l.ID); !task.OOMKilled || task.Signal != syscall.SIGKILL {
		h.Errorf("the job ended as %+v, want out of memory", task)
	}
}

func testExecReopen(h *harness) {
	l := h.sleeper()
	c := h.exec(l.ID, runtime.Exec{Terminal: true, Args: []string{"sh", "-c", "trap '' HUP; echo ready; sleep " + own(2003)}})
	c.expect("ready\n")
	h.until("it runs", func() bool { return len(childrenNamed(h, own(2003))) > 0 })
	h.reopen()
	h.until("the end of it", func() bool { return len(childrenNamed(h, own(2003))) == 0 })
	if task := h.inspect(l.ID); task.Phase != runtime.Running || !alive(task.PID) {
		h.Errorf("the job: %+v", task)
	}
	if _, e := h.runIn(l.ID, "true"); e.Code != 0 {
		h.Errorf("a command afterwards: %+v", e)
	}
	h.finish(l)
}

func testExecRefused(h *harness) {
	if _, err := h.tryExec(cluster.AttemptID{Job: 999, No: 1}, runtime.Exec{}); !errors.Is(err, runtime.ErrNotRunning) {
		h.Errorf("no task: %v", err)
	}
	l := h.sleeper()
	h.finish(l)
	if _, err := h.tryExec(l.ID, runtime.Exec{}); !errors.Is(err, runtime.ErrNotRunning) {
		h.Errorf("a task that ended: %v", err)
	}
	l = h.sh("true")
	if err := h.rt.Create(h.Context(), l); err != nil {
		h.Fatal(err)
	}
	if _, err := h.tryExec(l.ID, runtime.Exec{}); !errors.Is(err, runtime.ErrNotRunning) {
		h.Errorf("a task that was not started: %v", err)
	}
}
