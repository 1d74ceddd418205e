package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/berth-scheduler/berth/agent/gpu"
	"github.com/berth-scheduler/berth/agent/gpu/health"
	"github.com/berth-scheduler/berth/cluster"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

const (
	endAction = health.End
	// whoCheck speaks for the cards that failed the site's own check.
	whoCheck = "check"
	// Phases of a check, as its command is told.
	checkBefore = "before"
	checkAfter  = "after"
	checkAgain  = "again"
	maxCheckOut = 4096
)

// awaitCards waits until the cards have what an attempt needs of them, and are
// sound. ready is false when it is to look again, or has ended.
func (t *task) awaitCards(ctx context.Context, as *nodev1.Assignment) (ready bool, err error) {
	if ready, err := t.awaitMemory(ctx, as); !ready || err != nil {
		return false, err
	}
	if t.agent.cfg.GPUs == nil || len(as.Gpus) == 0 {
		return true, nil
	}
	if why := t.unfit(ctx, as); why != "" {
		t.log.Warn("attempt does not begin: its GPU is not sound", "err", why)
		return false, t.ended(&nodev1.Report{
			State: nodev1.AttemptState_ATTEMPT_STATE_LOST, Reason: string(cluster.ReasonGPUCheck), Detail: why,
		})
	}
	return true, nil
}

// unfit says why an attempt must not begin on its cards, "" when it may. What
// the cards hold by then is what they must hold no more than afterwards.
func (t *task) unfit(ctx context.Context, as *nodev1.Assignment) string {
	for _, s := range as.Gpus {
		if state, why := t.agent.cards.get(s.Uuid); state != GPUOK {
			return fmt.Sprintf("GPU %s is not sound: %s", s.Uuid, why)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, sampleDeadline)
	defer cancel()
	usage, err := t.agent.cfg.GPUs.Usage(ctx)
	if err != nil {
		t.log.Warn("cannot read the use of every GPU", "err", err)
	}
	t.progress.GpuBaselineMib = nil
	for _, s := range as.Gpus {
		i := slices.IndexFunc(usage, func(u gpu.Usage) bool { return u.UUID == s.Uuid })
		if i < 0 {
			// Who says nothing is quarantined by those who watch the driver.
			t.progress.GpuBaselineMib = append(t.progress.GpuBaselineMib, gpu.Unknown)
			continue
		}
		mib, known := unexplained(&usage[i])
		if !known {
			mib = gpu.Unknown
		}
		t.progress.GpuBaselineMib = append(t.progress.GpuBaselineMib, mib)
		if procs, held := usage[i].Strays(); s.Exclusive && len(procs) > 0 {
			p := procs[0]
			return fmt.Sprintf("GPU %s: process %d (%s) of %s, which nobody started here, holds %d MiB of it", s.Uuid, p.PID, p.Command, p.User, held)
		}
	}
	return t.agent.checkAll(ctx, t.id, as, checkBefore)
}

// checkAfter tries the cards once an attempt is off them.
func (a *Agent) checkAfter(ctx context.Context, id cluster.AttemptID, as *nodev1.Assignment) {
	if why := a.checkAll(ctx, id, as, checkAfter); why != "" {
		a.log.WarnContext(ctx, "GPU failed the check after an attempt", "job", id.Job.String(), "attempt", id.No, "err", why)
	}
}

// checkAll runs the site's check for each card of an attempt, all at once, and
// quarantines those that fail. It says what failed, "" for nothing.
func (a *Agent) checkAll(ctx context.Context, id cluster.AttemptID, as *nodev1.Assignment, phase string) string {
	if len(a.cfg.Health.Check) == 0 {
		return ""
	}
	failed := make([]string, len(as.Gpus))
	var wg sync.WaitGroup
	for i, s := range as.Gpus {
		wg.Go(func() {
			if err := a.check(ctx, s.Uuid, phase, id.String()); err != nil {
				failed[i] = fmt.Sprintf("GPU %s: %v", s.Uuid, err)
				a.cards.set(s.Uuid, whoCheck, GPUQuarantined, err.Error())
			}
		})
	}
	wg.Wait()
	failed = slices.DeleteFunc(failed, func(s string) bool { return s == "" })
	return strings.Join(failed, "; ")
}

// check runs the site's command for one card. The error has the first line
// that it wrote.
func (a *Agent) check(ctx context.Context, uuid, phase, attempt string) error {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.Health.CheckTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, a.cfg.Health.Check[0], a.cfg.Health.Check[1:]...)
	cmd.Env = []string{
		"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "BERTH_GPU=" + uuid, "BERTH_CHECK=" + phase, "BERTH_ATTEMPT=" + attempt, "BERTH_NODE=" + string(a.cfg.Node),
	}
	cmd.Dir = "/"
	out := &limited{most: maxCheckOut}
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 100 * time.Millisecond
	err := cmd.Run()
	switch {
	case err == nil:
		return nil
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fmt.Errorf("the check did not end within %s", a.cfg.Health.CheckTime)
	}
	line, _, _ := strings.Cut(strings.TrimSpace(out.String()), "\n")
	if line == "" {
		line = "it wrote nothing"
	}
	return fmt.Errorf("the check failed (%w): %.120s", err, line)
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

// runChecks tries the cards that failed the check again, until they pass.
func (a *Agent) runChecks(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(a.cfg.Health.Recheck):
		}
		for _, uuid := range a.cards.saidBy(whoCheck) {
			if err := a.check(ctx, uuid, checkAgain, ""); err != nil {
				a.cards.set(uuid, whoCheck, GPUQuarantined, err.Error())
				continue
			}
			a.log.InfoContext(ctx, "GPU passes the check again", "gpu", uuid)
			a.cards.set(uuid, whoCheck, GPUOK, "")
		}
	}
}
