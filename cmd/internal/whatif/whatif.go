// Package whatif starts the simulator for a coordinator's web page, as a
// separate program that can take neither the coordinator's memory nor its
// processor time.
package whatif

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/programs"
	"github.com/berth-scheduler/berth/coordinator/web"
)

// Bounds of a simulator that a coordinator starts for its page. The heap is
// bounded twice: by the collector, which then works harder, and by the
// kernel, which then ends it.
const (
	heap      = "640MiB"
	mostData  = 1 << 30
	mostCPU   = 90 // seconds
	mostOut   = 1 << 20
	mostWords = 4 << 10
)

// Simulate runs berth-lab, installed next to this program; the caller must
// run only one at a time. This way the simulator is not linked into what runs
// on nodes. It runs on one core at the lowest priority, and is the first to
// be killed when the machine is out of memory.
func Simulate(ctx context.Context, sim *web.Simulation) ([]byte, error) {
	path, err := programs.Path(programs.Lab)
	if err != nil {
		return nil, cluster.Errorf(cluster.CodeUnavailable, "the simulator is not installed on this coordinator's machine; install the package berth-lab there (%v)", err)
	}
	return By(ctx, path, sim)
}

// By is Simulate using the program at path.
func By(ctx context.Context, path string, sim *web.Simulation) ([]byte, error) {
	cmd := exec.CommandContext(ctx, path, "sim", "what-if", "--no-timing", "--parallel", "1", "-o", "json", // #nosec G204 -- our own program, and a policy that was looked at
		"--policy", sim.Policy, "--max-shares", strconv.Itoa(sim.MaxShares))
	cmd.Env = []string{"PATH=/usr/bin:/bin", "GOMAXPROCS=1", "GOMEMLIMIT=" + heap}
	cmd.Dir, cmd.WaitDelay = "/", 5*time.Second
	out, words := &bounded{most: mostOut}, &bounded{most: mostWords}
	cmd.Stdout, cmd.Stderr = out, words
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := startLast(cmd); err != nil {
		return nil, cluster.Errorf(cluster.CodeUnavailable, "start the simulator: %v", err)
	}
	// It reads first, so that the bounds apply before it allocates anything.
	if err := confine(cmd.Process.Pid); err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return nil, cluster.Errorf(cluster.CodeUnavailable, "bound what the simulator may take: %v", err)
	}
	_, _ = in.Write(sim.Answers) // if it does not read them to the end it says why
	_ = in.Close()
	if err := cmd.Wait(); err != nil {
		return nil, cluster.Errorf(cluster.CodeUnavailable, "the simulator: %s", ended(err, string(words.have)))
	}
	if out.cut {
		return nil, cluster.Errorf(cluster.CodeUnavailable, "the simulator wrote more than %d bytes", mostOut)
	}
	return out.have, nil
}

// ended says how the simulator ended, in its own words if it has any.
func ended(err error, words string) string {
	words = strings.TrimPrefix(strings.TrimSpace(words), "berth: ")
	switch first, _, _ := strings.Cut(words, "\n"); {
	case strings.Contains(words, "out of memory") || strings.Contains(words, "cannot allocate memory"):
		return fmt.Sprintf("it needed more than the %d MiB that it may take; ask for fewer days", mostData>>20)
	case first != "":
		return first
	}
	return err.Error()
}

// confine bounds a process that was just started.
func confine(pid int) error {
	for which, most := range map[int]uint64{unix.RLIMIT_DATA: mostData, unix.RLIMIT_CPU: mostCPU, unix.RLIMIT_CORE: 0, unix.RLIMIT_FSIZE: 0} {
		if err := unix.Prlimit(pid, which, &unix.Rlimit{Cur: most, Max: most}, nil); err != nil {
			return fmt.Errorf("limit %d: %w", which, err)
		}
	}
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid), []byte("1000"), 0) // #nosec G306 -- where /proc is not to be written, the coordinator's holds
	return nil
}

// startLast starts a program with the lowest priority. Linux has priorities
// per thread, and a process begins with that of the thread that starts it:
// one that is used for nothing else, and ends with the goroutine that keeps
// it.
func startLast(cmd *exec.Cmd) error {
	failed := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := unix.Setpriority(unix.PRIO_PROCESS, 0, 19)
		if err == nil {
			err = cmd.Start()
		}
		failed <- err
	}()
	return <-failed
}

// bounded keeps the first bytes of what is written.
type bounded struct {
	have []byte
	most int
	cut  bool
}

func (b *bounded) Write(p []byte) (int, error) {
	room := b.most - len(b.have)
	b.cut = b.cut || len(p) > room
	b.have = append(b.have, p[:min(len(p), room)]...)
	return len(p), nil
}
