package cgroup

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

func TestReadSession(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		stat    string
		session int
		alive   bool
	}{
		{"12 (sh) S 1 12 10 34816 13 4194304", 10, true},
		{"12 (a) R 9 (b) Z) S 1 12 10 0", 10, true}, // a name that looks like the rest
		{"12 (sh) Z 1 12 10 0", 0, false},
		{"12 (sh) S 1", 0, false},
		{"12 sh S 1 12 10", 0, false},
		{"", 0, false},
		{"12 (sh) S 1 12 x", 0, false},
	} {
		if session, alive := readSession(c.stat); alive != c.alive || alive && session != c.session {
			t.Errorf("%q: got %d, %v", c.stat, session, alive)
		}
	}
}

// FuzzReadSession reads anything. A name cannot make itself a session: what
// stands before the last bracket does not count.
func FuzzReadSession(f *testing.F) {
	f.Add("12 (sh) S 1 12 10 34816 13 4194304")
	f.Add("12 (a) R 9 (b) Z) S 1 12 10 0")
	f.Add(")")
	f.Fuzz(func(t *testing.T, stat string) {
		session, alive := readSession(stat)
		_, rest, _ := strings.Cut(stat[max(0, strings.LastIndexByte(stat, ')')):], ")")
		if s, a := readSession("1 (x)" + rest); strings.Contains(stat, ")") && (s != session || a != alive) {
			t.Errorf("%q: session %d, %v; without its name %d, %v", stat, session, alive, s, a)
		}
	})
}

// TestKillSession ends one of two sessions in a group.
func TestKillSession(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to make control groups")
	}
	h, err := Detect()
	if err != nil {
		t.Skip(err)
	}
	g := h.Open("/berth-test/session-" + strconv.Itoa(os.Getpid()))
	if err := g.Create(Limits{}); err != nil {
		t.Skip(err)
	}
	var cmds []*exec.Cmd
	for range 2 {
		cmd := exec.Command("sh", "-c", "read x; sleep 1000 & sleep 1000")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if err := g.Add(cmd.Process.Pid); err != nil {
			t.Fatal(err)
		}
		if _, err := in.Write([]byte("go\n")); err != nil { // its children are in the group too
			t.Fatal(err)
		}
		cmds = append(cmds, cmd)
	}
	done := make(chan error, 1)
	go func() { done <- cmds[0].Wait() }() // so that it is no zombie for ever
	if err := g.KillSession(cmds[0].Process.Pid); err != nil {
		t.Error(err)
	}
	<-done
	if !g.Has(cmds[1].Process.Pid) {
		t.Error("the other session was ended too")
	}
	go func() { done <- cmds[1].Wait() }()
	if err := g.Kill(); err != nil {
		t.Error(err)
	}
	<-done
	if err := g.RemoveUp(); err != nil {
		t.Error(err)
	}
}
