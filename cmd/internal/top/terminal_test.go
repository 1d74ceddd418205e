package top_test

import (
	"context"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/charmbracelet/x/vt"

	"github.com/berth-scheduler/berth/agent/pty"
	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/cli/clitest"
	"github.com/berth-scheduler/berth/cmd/internal/golden"
	"github.com/berth-scheduler/berth/cmd/internal/top"
)

// patience is how long a test waits for what it knows will come.
const patience = 10 * time.Minute

// world is one with berth top at hand.
func world(t testing.TB) *clitest.World {
	w := clitest.NewWorld(t, top.Program().Commands...)
	w.Vars["TERM"], w.Vars["LANG"] = "xterm-256color", "C.UTF-8"
	w.Env.Environ = func() []string { return []string{"TERM=" + w.Vars["TERM"], "NO_COLOR=" + w.Vars["NO_COLOR"]} }
	return w
}

// terminal is a pseudo terminal with berth top on it, and what it shows.
type terminal struct {
	t      testing.TB
	master *os.File
	mu     sync.Mutex // guards what it shows and what was written to it
	screen *vt.Emulator
	raw    string
	code   chan int
}

// open runs berth top on a terminal.
func open(t testing.TB, w *clitest.World, columns, rows int, args ...string) *terminal {
	master, tty, err := pty.Open(uint32(os.Getuid()))
	if err != nil {
		t.Skipf("no pseudo terminals here: %v", err)
	}
	if err := pty.Resize(master, uint16(rows), uint16(columns)); err != nil {
		t.Fatal(err)
	}
	term := &terminal{t: t, master: master, screen: vt.NewEmulator(columns, rows), code: make(chan int, 1)}
	var wg sync.WaitGroup
	wg.Go(func() { // what the program writes
		buf := make([]byte, 4096)
		for {
			n, err := master.Read(buf)
			term.mu.Lock()
			term.raw += string(buf[:n])
			_, _ = term.screen.Write(buf[:n])
			term.mu.Unlock()
			if err != nil {
				return
			}
		}
	})
	wg.Go(func() { // what the terminal answers
		buf := make([]byte, 256)
		for {
			n, err := term.screen.Read(buf)
			if err != nil {
				return
			}
			_, _ = master.Write(buf[:n])
		}
	})
	w.Env.Stdin, w.Env.Stdout, w.Env.IsTerminal = tty, tty, true
	go func() { term.code <- w.Run(args...) }()
	t.Cleanup(func() {
		tty.Close()
		master.Close()
		if pipe, ok := term.screen.InputPipe().(io.Closer); ok { // its Close races with Read
			pipe.Close()
		}
		wg.Wait()
	})
	return term
}

// shown is what the terminal shows, without spaces at the end of lines.
func (term *terminal) shown() string {
	term.mu.Lock()
	defer term.mu.Unlock()
	var b strings.Builder
	for line := range strings.SplitSeq(term.screen.String(), "\n") {
		b.WriteString(strings.TrimRight(line, " \r") + "\n")
	}
	return b.String()
}

func (term *terminal) typed(keys string) {
	term.t.Helper()
	if _, err := term.master.WriteString(keys); err != nil {
		term.t.Fatalf("type %q: %v", keys, err)
	}
}

// await waits until the terminal shows all of these, and returns what it shows.
func (term *terminal) await(want ...string) string {
	term.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		shown, missing := term.shown(), ""
		for _, text := range want {
			if !strings.Contains(shown, text) {
				missing = text
			}
		}
		if missing == "" {
			return shown
		}
		if time.Now().After(deadline) {
			term.t.Fatalf("no %q on the terminal:\n%s", missing, shown)
		}
	}
}

// other reports whether the terminal is on its other screen.
func (term *terminal) other() bool {
	term.mu.Lock()
	defer term.mu.Unlock()
	return term.screen.IsAltScreen()
}

// leave types q and returns the exit code.
func (term *terminal) leave() int {
	term.t.Helper()
	term.typed("q")
	select {
	case code := <-term.code:
		for deadline := time.Now().Add(patience); term.other(); time.Sleep(20 * time.Millisecond) {
			if time.Now().After(deadline) {
				term.t.Fatal("the terminal was left on its other screen")
			}
		}
		return code
	case <-time.After(patience):
		term.t.Fatalf("berth top goes on after q:\n%s", term.shown())
		return -1
	}
}

// TestTerminal: the screen as terminals of two sizes show it, and after a change of
// size.
func TestTerminal(t *testing.T) {
	w, f := world(t), clitest.NewFake()
	w.Serve("/a", f)
	term := open(t, w, 80, 24, "top")
	golden.Check(t, "jobs-80x24", term.await("lab", "train", "3 of 3 GPUs held"))
	if err := pty.Resize(term.master, 50, 200); err != nil {
		t.Fatal(err)
	}
	term.mu.Lock()
	term.screen.Resize(200, 50)
	term.mu.Unlock()
	if err := syscall.Kill(os.Getpid(), syscall.SIGWINCH); err != nil { // as the kernel does for a terminal of the process's own
		t.Fatal(err)
	}
	golden.Check(t, "jobs-200x50", term.await("PARTITION", "Enter details"))
	term.typed("2")
	golden.Check(t, "gpus-200x50", term.await("MEMORY", "USED/GIVEN", "n2"))
	if code := term.leave(); code != 0 {
		t.Errorf("exit code %d: %s", code, w.Errs.String())
	}
	term.mu.Lock()
	defer term.mu.Unlock()
	if strings.Contains(term.raw, "\x1b[31m\u202e") {
		t.Error("what a job is called reached the terminal as it is")
	}
}

// TestKeys: what is typed reaches the coordinator, and its words the user.
func TestKeys(t *testing.T) {
	w, f := world(t), clitest.NewFake()
	w.Serve("/a", f)
	term := open(t, w, 120, 30, "gpu", "top")
	term.await("USED/GIVEN", "n1")
	term.typed("1")
	term.await("NODE(REASON)", "sweep")
	term.typed("/train\rg\r")
	term.await("Job 12 train: RUNNING", "busiest GPU that fits")
	term.typed("d")
	term.await("Cancel job 12 (train of ann)? [y/N]")
	term.typed("y")
	term.await("job 12: cancelled")
	f.Mu.Lock()
	cancelled := f.Cancelled
	f.Mu.Unlock()
	if len(cancelled) != 1 || cancelled[0] != 12 {
		t.Errorf("cancelled %v, want 12", cancelled)
	}
	term.typed("/\x15sweep\rg")
	term.await("Job 13 sweep")
	term.typed("dy")
	term.await("only its owner and administrators may cancel it")
	term.typed("3")
	term.await("REASON", "GPU 1 reports")
	term.typed("gDfan\r")
	term.await("node n1: draining")
	// A job that comes is shown, one that is renamed too.
	f.Change(func() { f.Jobs[0].Name = "renamed" })
	term.typed("1/\x15\r")
	term.await("renamed")
	if code := term.leave(); code != 0 {
		t.Errorf("exit code %d: %s", code, w.Errs.String())
	}
}

// TestLost: coordinators that are gone are said to be, what was known stays, and they
// are followed again once they are back.
func TestLost(t *testing.T) {
	w, f := world(t), clitest.NewFake()
	w.Serve("/a", f)
	term := open(t, w, 80, 24, "top")
	term.await("lab", "train", "3 of 3 GPUs held")
	f.Mu.Lock()
	gone := true
	f.Hook = func(context.Context, string) error {
		f.Mu.Lock()
		defer f.Mu.Unlock()
		if gone {
			return cluster.Errorf(cluster.CodeUnavailable, "the coordinator stops")
		}
		return nil
	}
	f.Mu.Unlock()
	term.await("no answer for", "train")
	f.Change(func() { gone, f.Jobs[0].Name = false, "survivor" })
	term.await("3 of 3 GPUs held", "survivor")
	if code := term.leave(); code != 0 {
		t.Errorf("exit code %d: %s", code, w.Errs.String())
	}
}

// TestRefusals: where there is nothing to draw on, words say so and what else there is.
func TestRefusals(t *testing.T) {
	t.Parallel()
	master, tty, err := pty.Open(uint32(os.Getuid()))
	if err != nil {
		t.Skipf("no pseudo terminals here: %v", err)
	}
	defer master.Close()
	defer tty.Close()
	var b strings.Builder
	w := world(t)
	b.WriteString(w.Transcript("top"))
	w.Env.Stdin, w.Env.IsTerminal = tty, true
	for _, term := range []string{"", "dumb"} {
		w.Vars["TERM"] = term
		b.WriteString(w.Transcript("top"))
	}
	w.Vars["TERM"] = "xterm"
	b.WriteString(w.Transcript("top", "--tab", "gpu"))
	b.WriteString(w.Transcript("gpu", "top", "n1"))
	golden.Check(t, "refusals", b.String())
}
