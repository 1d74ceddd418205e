package hold

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == Arg {
		os.Exit(Main(os.Args[2:], os.Stdin, os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// beside runs a command beside a holder.
func beside(t *testing.T, name string, args ...string) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	cmd := exec.Command(os.Args[0], append([]string{Arg}, args...)...)
	cmd.Env = append(os.Environ(), Variable+"="+name)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	return cmd, &out
}

func held(cfg Config, name string) <-chan int {
	code := make(chan int, 1)
	go func() { code <- Run(cfg, name, io.Discard) }()
	return code
}

func ends(t *testing.T, code <-chan int, want int) {
	t.Helper()
	select {
	case got := <-code:
		if got != want {
			t.Errorf("ended with %d, want %d", got, want)
		}
	case <-time.After(2 * time.Minute):
		t.Fatal("it does not end")
	}
}

// end tells the holder to end once it listens.
func end(t *testing.T, name, code string) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(5 * time.Millisecond) {
		cmd, out := beside(t, name, "end", code)
		err := cmd.Run()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err, out)
		}
	}
}

func TestEndsAsItIsTold(t *testing.T) {
	name := Name()
	code := held(Config{}, name)
	end(t, name, "7")
	ends(t, code, 7)
}

func TestEndsWithoutAKeeper(t *testing.T) {
	ends(t, held(Config{First: time.Millisecond}, Name()), 1)
}

// TestKept: while somebody keeps it it goes on, and ends a while after the last
// one went.
func TestKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &holder{ends: make(chan int, 1), news: make(chan int, 16)}
		code, began := make(chan int, 1), time.Now()
		go func() { code <- h.wait(Config{First: time.Minute, Again: 50 * time.Second}, nil, io.Discard) }()
		for _, n := range []int{1, 1, -1} {
			time.Sleep(59 * time.Second)
			h.news <- n
		}
		time.Sleep(24 * time.Hour)
		select {
		case c := <-code:
			t.Fatalf("ended with %d while it was kept", c)
		default:
		}
		h.news <- -1
		if c := <-code; c != 1 || time.Since(began) != 3*59*time.Second+24*time.Hour+50*time.Second {
			t.Errorf("ended with %d after %s", c, time.Since(began))
		}
	})
}

// TestKeeperKeeps: one that is there is counted, and one that goes.
func TestKeeperKeeps(t *testing.T) {
	name := Name()
	code := held(Config{First: time.Minute, Again: 50 * time.Millisecond}, name)
	var cmd *exec.Cmd
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(5 * time.Millisecond) {
		cmd, _ = beside(t, name, "keep")
		if _, err := cmd.StdinPipe(); err != nil { // which stays open
			t.Fatal(err)
		}
		cmd.Stdout = nil
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		line := make([]byte, 5)
		if _, err := io.ReadFull(out, line); err == nil && string(line) == "kept\n" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("it is never kept")
		}
		_ = cmd.Process.Kill() // it may have ended by itself
		_ = cmd.Wait()
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	ends(t, code, 1)
	_ = cmd.Wait() // it was killed
}

func TestSignalEnds(t *testing.T) {
	name := Name()
	code := held(Config{}, name)
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(5 * time.Millisecond) {
		b, err := runOut(t, name, "end", "999")
		if err != nil && strings.Contains(string(b), "refused") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("a code out of range is not refused")
		}
	}
	if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	ends(t, code, 143)
}

func runOut(t *testing.T, name string, args ...string) ([]byte, error) {
	t.Helper()
	cmd, out := beside(t, name, args...)
	err := cmd.Run()
	return out.Bytes(), err
}

func TestParse(t *testing.T) {
	t.Parallel()
	for _, want := range []Session{{}, {Kept: true}, {Idle: time.Minute}, {Kept: true, Idle: 90 * time.Second}} {
		if got, ok := Parse([]byte(want.Text())); !ok || got != want {
			t.Errorf("%q: %+v %v, want %+v", want.Text(), got, ok, want)
		}
	}
	if (Session{Kept: true}).Text() != Script || (Session{}).Text() != FreeScript {
		t.Error("the plain scripts are others")
	}
	for _, script := range []string{"", "#!/bin/sh\n", "#!berth hold", "#!berth hold\necho\n", "#!berth hold --idle=0s\n", "#!berth hold --idle=x\n", "#!berth hold --what\n"} {
		if s, ok := Parse([]byte(script)); ok {
			t.Errorf("%q is a session: %+v", script, s)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(Script))
	f.Add([]byte("#!berth hold --free --idle=1h30m0s\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, ok := Parse(data)
		if !ok {
			return
		}
		if again, ok := Parse([]byte(s.Text())); !ok || again != s {
			t.Fatalf("%q: %+v became %+v", data, s, again)
		}
	})
}
