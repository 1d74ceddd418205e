package containerdrt

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/errdefs"

	"github.com/berth-scheduler/berth/agent/runtime"
	"github.com/berth-scheduler/berth/cluster"
)

// Signal implements runtime.Runtime.
func (r *Runtime) Signal(ctx context.Context, id cluster.AttemptID, sig syscall.Signal) error {
	ctx, cancel := context.WithTimeout(r.with(ctx), callDeadline)
	defer cancel()
	task, err := r.task(ctx, id)
	if errdefs.IsNotFound(err) {
		if sig == syscall.SIGKILL {
			return r.group(id).Kill() // a shim that died may have left some
		}
		return nil
	}
	if errors.Is(err, errSilent) && sig == syscall.SIGKILL {
		return r.group(id).Kill() // the end of a job does not wait for its shim
	}
	if err != nil {
		return fmt.Errorf("signal: %w", err)
	}
	if droppedByKernel(int(task.Pid()), sig) {
		if err := os.WriteFile(r.records.file(id, kindSignal), []byte(strconv.Itoa(int(sig))), 0o600); err != nil {
			return fmt.Errorf("signal: %w", err)
		}
		sig = syscall.SIGKILL
	}
	var opts []containerd.KillOpts
	if sig == syscall.SIGKILL {
		opts = append(opts, containerd.WithKillAll)
	}
	err = task.Kill(ctx, sig, opts...)
	if err != nil && !errdefs.IsNotFound(err) && !errdefs.IsFailedPrecondition(err) {
		return fmt.Errorf("signal: %w", err)
	}
	return nil
}

// Broadcast implements runtime.Runtime.
func (r *Runtime) Broadcast(ctx context.Context, id cluster.AttemptID, sig syscall.Signal, to runtime.Audience) error {
	ctx, cancel := context.WithTimeout(r.with(ctx), callDeadline)
	defer cancel()
	task, err := r.task(ctx, id)
	if errdefs.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("signal: %w", err)
	}
	if err := r.group(id).Signal(sig, int(task.Pid())); err != nil {
		return fmt.Errorf("signal: %w", err)
	}
	if to == runtime.ToOthers {
		return nil
	}
	return r.Signal(ctx, id, sig)
}

// droppedByKernel reports whether sig would end a process that is spared only because it is
// the first of its pid namespace: the kernel drops signals that such a process does not
// handle (pid_namespaces(7)). Most programs are not written for containers and count on the
// default, so Signal does what it says.
func droppedByKernel(pid int, sig syscall.Signal) bool {
	switch sig {
	case syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM, syscall.SIGXCPU:
	default:
		return false
	}
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return false
	}
	first, taken, err := readSignalState(data)
	return err == nil && first && taken&(1<<(sig-1)) == 0
}

// readSignalState parses /proc/PID/status: whether the process is the first of a pid
// namespace below ours, and which signals it handles or ignores.
func readSignalState(status []byte) (first bool, taken uint64, err error) {
	sc := bufio.NewScanner(bytes.NewReader(status))
	seen := 0
	for sc.Scan() {
		key, value, _ := strings.Cut(sc.Text(), ":")
		switch key {
		case "NSpid":
			f := strings.Fields(value)
			first = len(f) > 1 && f[len(f)-1] == "1"
		case "SigIgn", "SigCgt":
			bits, err := strconv.ParseUint(strings.TrimSpace(value), 16, 64)
			if err != nil {
				return false, 0, fmt.Errorf("%s of a process: %w", key, err)
			}
			taken |= bits
		default:
			continue
		}
		seen++
	}
	if seen < 3 {
		return false, 0, errors.New("the status of a process lacks its signals")
	}
	return first, taken, sc.Err()
}
