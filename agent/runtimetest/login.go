package runtimetest

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"github.com/berth-scheduler/berth/agent/cgroup"
	"github.com/berth-scheduler/berth/cluster"
)

// testLogin moves a process that the test started, as sshd would, into a job: what it starts is
// there, too, it ends with the job's group, and the runtime forgets the job like any other.
func testLogin(h *harness) {
	rt, ok := h.rt.(interface {
		Group(cluster.AttemptID) *cgroup.Group
	})
	if !ok {
		h.Skip("this runtime has no control groups")
	}
	l := h.sh("echo up; sleep 1000")
	h.start(l)
	h.printed(l.Stdout)
	g := rt.Group(l.ID)
	if g == nil {
		h.Skip("there are no control groups here")
	}
	// It starts the second one only once it has been moved.
	ready, script := h.path("moved"), `while [ ! -e "$0" ]; do sleep 0.01; done; sleep 1000 & echo $! >"$0.child"; wait`
	cmd := exec.Command("/bin/sh", "-c", script, ready)
	if err := cmd.Start(); err != nil {
		h.Fatal(err)
	}
	reaped := make(chan error, 1)
	go func() { reaped <- cmd.Wait() }() // at the latest by the cleanup
	h.Cleanup(func() { _ = cmd.Process.Kill() })
	if err := g.Adopt(cmd.Process.Pid); err != nil {
		h.Fatal(err)
	}
	if !g.Has(cmd.Process.Pid) {
		h.Errorf("process %d is not in the group of %s", cmd.Process.Pid, l.ID)
	}
	h.write("moved", "", 0o644)
	var child int
	h.until("the child of what was moved", func() bool {
		text, err := os.ReadFile(ready + ".child")
		if err != nil || !strings.HasSuffix(string(text), "\n") {
			return false
		}
		n, err := fmt.Sscan(string(text), &child)
		return err == nil && n == 1
	})
	if !g.Has(child) {
		h.Errorf("process %d, a child of what was moved, is not in the group of %s", child, l.ID)
	}
	h.signal(l.ID, syscall.SIGKILL)
	h.wait(l.ID)
	if err := g.Kill(); err != nil {
		h.Error(err)
	}
	<-reaped
	h.until("the end of the child", func() bool { return !alive(child) })
	if err := h.rt.Delete(h.Context(), l.ID); err != nil {
		h.Errorf("delete a job that somebody had logged in to: %v", err)
	}
	if err := g.Adopt(os.Getpid()); err == nil {
		h.Error("a process was moved into a group that is gone")
	}
}
