package jobcmd_test

import (
	"context"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/berth-scheduler/berth/cluster/wait"
	"github.com/berth-scheduler/berth/cmd/internal/cli/clitest"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// waited runs berth wait for job 14, which waits, runs and ends a minute apart.
func waited(t *testing.T, w *clitest.World, ctx context.Context, verb ...string) (code int) {
	f := clitest.NewFake()
	job := func(state string) *apiv1.Job {
		return &apiv1.Job{Id: 14, State: state, Name: "x", User: "ann", Spec: &apiv1.JobSpec{}}
	}
	f.Jobs = []*apiv1.Job{job("PENDING")}
	f.Jobs[0].Reason, f.Jobs[0].ReasonDetail = "Resources", "no GPU has 20 GiB free"
	w.Serve("/a", f)
	var wg sync.WaitGroup
	wg.Go(func() {
		for _, next := range []string{"RUNNING", "COMPLETED"} {
			if !wait.Sleep(ctx, time.Minute) {
				return
			}
			f.Change(func() {
				f.Jobs[0] = job(next)
				f.Jobs[0].Node, f.Jobs[0].Started = "n1", timestamppb.New(clitest.Now)
			})
		}
	})
	code = w.RunCtx(ctx, verb...)
	wg.Wait()
	return code
}

// TestWaitLine: on a terminal a wait has one line, which follows the job and is gone in
// the end; elsewhere there is none.
func TestWaitLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := clitest.NewWorld(t)
		if code := waited(t, w, t.Context(), "wait", "14"); code != 0 || w.Errs.Len() > 0 {
			t.Errorf("off a terminal: exit code %d, said %q", code, w.Errs.String())
		}
		w.Env.StderrTerminal = true
		w.Env.Width = func() int { return 200 }
		if code := waited(t, w, t.Context(), "wait", "14"); code != 0 {
			t.Errorf("exit code %d: %q", code, w.Errs.String())
		}
		want := "\r\x1b[Kjob 14: PENDING; Resources: no GPU has 20 GiB free; expected between 15:34 and 15:57; 3 jobs ahead" +
			"\r\x1b[Kjob 14: RUNNING on n1 since 15:09\r\x1b[K"
		if got := w.Errs.String(); got != want {
			t.Errorf("said %q\nwant %q", got, want)
		}
		w.Env.Width = func() int { return 40 }
		if waited(t, w, t.Context(), "wait", "14"); !strings.Contains(w.Errs.String(), "\r\x1b[Kjob 14: PENDING; Resources: no GPU has…\r") {
			t.Errorf("in 40 columns: %q", w.Errs.String())
		}
	})
}

// TestLeavingAWait: who interrupts one learns that the job goes on, and how to come back.
func TestLeavingAWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := clitest.NewWorld(t)
		w.Env.StderrTerminal = true
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(90*time.Second, func() { cancel(&console.Interruption{Sig: syscall.SIGINT}) })
		code := waited(t, w, ctx, "wait", "14")
		want := "\r\x1b[Kberth: still going; wait again with: berth wait 14; cancel with: berth cancel 14\n"
		if got := w.Errs.String(); code != 130 || !strings.HasSuffix(got, want) {
			t.Errorf("exit code %d, said %q, want %q", code, got, want)
		}
	})
}
