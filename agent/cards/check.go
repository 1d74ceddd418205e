package cards

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/wait"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

const (
	// whoCheck reports the GPUs that failed the site's own check.
	whoCheck = "check"
	// CheckBefore is the phase passed to the command of a check before an attempt.
	CheckBefore = "before"
	checkAfter  = "after"
	checkAgain  = "again"
	maxCheckOut = 4096
)

// Checks are the site's own checks of the GPUs.
type Checks struct {
	// Command is run for each GPU, with its own environment, within Time; empty checks nothing.
	// A GPU that failed is checked again after Again.
	Command     []string
	Time, Again time.Duration
	Node        string
	States      *States
	Log         *slog.Logger
}

// After checks the GPUs once an attempt has left them.
func (k *Checks) After(ctx context.Context, id cluster.AttemptID, as *nodev1.Assignment) {
	if why := k.All(ctx, id, as, checkAfter); why != "" {
		k.Log.WarnContext(ctx, "GPU failed the check after an attempt", "job", id.Job.String(), "attempt", id.No, "err", why)
	}
}

// All runs the site's check for all GPUs of an attempt in parallel, and quarantines those that
// fail. It returns what failed, "" for nothing.
func (k *Checks) All(ctx context.Context, id cluster.AttemptID, as *nodev1.Assignment, phase string) string {
	if len(k.Command) == 0 {
		return ""
	}
	failed := make([]string, len(as.Gpus))
	var wg sync.WaitGroup
	for i, s := range as.Gpus {
		wg.Go(func() {
			if err := k.check(ctx, s.Uuid, phase, id.String()); err != nil {
				failed[i] = fmt.Sprintf("GPU %s: %v", s.Uuid, err)
				k.States.Set(s.Uuid, whoCheck, Quarantined, err.Error())
			}
		})
	}
	wg.Wait()
	failed = slices.DeleteFunc(failed, func(s string) bool { return s == "" })
	return strings.Join(failed, "; ")
}

// check runs the site's command for one GPU. The error contains the first line of its output.
func (k *Checks) check(ctx context.Context, uuid, phase, attempt string) error {
	ctx, cancel := context.WithTimeout(ctx, k.Time)
	defer cancel()
	cmd := exec.CommandContext(ctx, k.Command[0], k.Command[1:]...)
	cmd.Env = []string{
		"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "BERTH_GPU=" + uuid, "BERTH_CHECK=" + phase, "BERTH_ATTEMPT=" + attempt, "BERTH_NODE=" + k.Node,
	}
	cmd.Dir = "/"
	out := &limited{most: maxCheckOut}
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 100 * time.Millisecond
	err := cmd.Run()
	switch {
	case err == nil, errors.Is(err, exec.ErrWaitDelay): // it passed, and something that it left holds its output open
		return nil
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fmt.Errorf("the check did not end within %s", k.Time)
	}
	line, _, _ := strings.Cut(strings.TrimSpace(out.String()), "\n")
	line = cmp.Or(line, "it wrote nothing")
	return fmt.Errorf("the check failed (%w): %.120s", err, plain(line))
}

// limited keeps the beginning of what is written to it.
type limited struct {
	bytes.Buffer
	most int
}

// Write implements io.Writer; it never fails.
func (l *limited) Write(p []byte) (int, error) {
	l.Buffer.Write(p[:min(len(p), max(0, l.most-l.Len()))])
	return len(p), nil
}

// Run repeats the check of failed GPUs until they pass.
func (k *Checks) Run(ctx context.Context) error {
	for {
		if !wait.Sleep(ctx, k.Again) {
			return ctx.Err()
		}
		for _, uuid := range k.States.saidBy(whoCheck) {
			if err := k.check(ctx, uuid, checkAgain, ""); err != nil {
				k.States.Set(uuid, whoCheck, Quarantined, err.Error())
				continue
			}
			k.Log.InfoContext(ctx, "GPU passes the check again", "gpu", uuid)
			k.States.Set(uuid, whoCheck, OK, "")
		}
	}
}
