package cgroup

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// testGroup makes a group of the machine's kernel.
func testGroup(t *testing.T, l Limits) *Group {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("not root: cannot make control groups")
	}
	h, err := Detect()
	if err != nil {
		t.Skip("no control groups here: ", err)
	}
	g := h.Open("/berth-oom-test-" + strconv.Itoa(os.Getpid()) + "/j1-a1")
	if err := g.Create(l); errors.Is(err, os.ErrPermission) {
		t.Skip("control groups are read-only here: ", err)
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(g.Kill(), g.RemoveUp()); err != nil {
			t.Error(err)
		}
	})
	return g
}

// member starts a command in the group; it waits for a line on its input
// before it does anything.
func member(t *testing.T, g *Group, command string) (release func(), ended <-chan error) {
	t.Helper()
	cmd := exec.Command("/bin/sh", "-c", "read line; exec "+command)
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
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	return func() {
		if _, err := in.Write([]byte("go\n")); err != nil {
			t.Error(err)
		}
	}, done
}

func TestKillOnOOM(t *testing.T) {
	g := testGroup(t, Limits{MemBytes: 32 << 20})
	stop, err := g.KillOnOOM()
	if err != nil {
		t.Fatal(err)
	}
	_, bystander := member(t, g, "sleep 1000")
	release, hog := member(t, g, "tail /dev/zero")
	release()
	for name, ended := range map[string]<-chan error{"hog": hog, "other process of the group": bystander} {
		select {
		case err := <-ended:
			if err == nil || !strings.Contains(err.Error(), "killed") {
				t.Errorf("%s ended with %v, want killed", name, err)
			}
		case <-time.After(10 * time.Minute):
			t.Fatalf("%s lives after the group ran out of memory", name)
		}
	}
	if n, err := g.OOMKills(); err != nil || n < 1 {
		t.Errorf("OOM kills: got %d, %v", n, err)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// TestKillOnOOMLate listens only after the kill, as an agent does that was
// restarted meanwhile.
func TestKillOnOOMLate(t *testing.T) {
	g := testGroup(t, Limits{MemBytes: 32 << 20})
	if g.h.Unified != "" {
		t.Skip("version 2 needs no listener")
	}
	_, bystander := member(t, g, "sleep 1000")
	release, hog := member(t, g, "tail /dev/zero")
	release()
	<-hog
	stop, err := g.KillOnOOM()
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-bystander:
	case <-time.After(10 * time.Minute):
		t.Fatal("the other process lives")
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// TestKillOnOOMStops has nothing die when memory suffices.
func TestKillOnOOMStops(t *testing.T) {
	g := testGroup(t, Limits{MemBytes: 32 << 20})
	stop, err := g.KillOnOOM()
	if err != nil {
		t.Fatal(err)
	}
	release, ended := member(t, g, "true")
	release()
	if err := <-ended; err != nil {
		t.Errorf("true in a group with enough memory: %v", err)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// TestPids forks one process more than the group may have.
func TestPids(t *testing.T) {
	g := testGroup(t, Limits{Pids: 3})
	if g.h.Unified == "" && g.h.Pids == "" {
		t.Skip("no pids controller is mounted")
	}
	release, ended := member(t, g, `sh -c 'sleep 1000 & sleep 1000 & sleep 1000 & exit 0'`)
	release()
	select {
	case err := <-ended:
		if err == nil {
			t.Error("a shell with three children in a group of three processes ended well")
		}
	case <-time.After(10 * time.Minute):
		t.Fatal("the shell does not end")
	}
}

func TestKillOnOOMUnified(t *testing.T) {
	root := t.TempDir()
	writeTree(t, root, map[string]string{"berth/j1-a1/memory.oom.group": "0\n"})
	stop, err := Hierarchy{Unified: root}.Open("/berth/j1-a1").KillOnOOM()
	if err != nil {
		t.Fatal(err)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	if b, err := os.ReadFile(filepath.Join(root, "berth/j1-a1/memory.oom.group")); err != nil || !strings.HasPrefix(string(b), "1") {
		t.Errorf("memory.oom.group holds %q (%v), want 1", b, err)
	}
	if _, err := (Hierarchy{Memory: root}).Open("/gone").KillOnOOM(); err == nil {
		t.Error("listening to an absent group: no error")
	}
}
