package processrt

import (
	"errors"
	"os/exec"
	"syscall"
	"testing"

	"github.com/berth-scheduler/berth/agent/runtime"
	"github.com/berth-scheduler/berth/cluster"
)

// TestTheDeadAreNotSignalled: once the exit of a task's process was seen its number
// may be another's, who gets nothing.
func TestTheDeadAreNotSignalled(t *testing.T) {
	t.Parallel()
	other := exec.Command("sleep", "600")
	other.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	id := cluster.AttemptID{Job: 1, No: 1}
	ended := &task{exited: true, state: runtime.Task{ID: id, Phase: runtime.Running, PID: other.Process.Pid}}
	k := &keeper{tasks: map[cluster.AttemptID]*task{id: ended}, noCaps: errors.New("no control groups")}
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		if err := errors.Join(k.signal(id, sig), k.broadcast(id, sig, runtime.ToAll), k.broadcast(id, sig, runtime.ToOthers)); err != nil {
			t.Error(err)
		}
	}
	if err := other.Process.Signal(syscall.SIGUSR1); err != nil {
		t.Error(err)
	}
	err := other.Wait()
	if ws, ok := other.ProcessState.Sys().(syscall.WaitStatus); !ok || ws.Signal() != syscall.SIGUSR1 {
		t.Errorf("who has the number now ended by %v, want by the signal that was meant for it", err)
	}
}
