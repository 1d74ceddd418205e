package enter_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berth-scheduler/berth/cluster/wait"
	"github.com/berth-scheduler/berth/cmd/internal/cli/clitest"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/cli/view"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

func TestOutputPath(t *testing.T) {
	t.Parallel()
	job := &apiv1.Job{
		Id: 12, Name: "train", User: "ann", Node: "n1", Spec: &apiv1.JobSpec{Dir: []byte("/home/ann")},
	}
	for pattern, want := range map[string]string{
		"berth-%j.out": "/home/ann/berth-12.out", "/tmp/%x_%u@%N": "/tmp/train_ann@n1", "%A_%a": "/home/ann/12_4294967294", "%5j.log": "/home/ann/00012.log",
		"100%%": "/home/ann/100%", "a%": "/home/ann/a%", "%q": "/home/ann/%q", "%99999999999999999999j": "/home/ann/0000000012", "../x": "/home/x", `%j\x`: "/home/ann/%jx", "%05q": "/home/ann/%05q", "%n%t": "/home/ann/00",
	} {
		if got, err := view.OutputPath(job, pattern); err != nil || got != want {
			t.Errorf("%q: got %q, %v, want %q", pattern, got, err, want)
		}
	}
	job.Id, job.ArrayJobId, job.ArrayTaskId = 15, 12, new(uint32(7))
	if got, err := view.OutputPath(job, "%A_%a-%j"); err != nil || got != "/home/ann/12_7-15" {
		t.Errorf("a task: %q, %v", got, err)
	}
	job.ArrayCount = 3
	if got, err := view.OutputPath(job, "%A_%a"); err != nil || got != "/home/ann/12_4294967294" {
		t.Errorf("several tasks: %q, %v", got, err)
	}
	if _, err := view.OutputPath(job, ""); err == nil {
		t.Error("no pattern: want an error")
	}
}

// logWorld has job 12 write into a directory of this test.
func logWorld(t *testing.T) (*clitest.World, *clitest.Fake, string) {
	w := clitest.NewWorld(t)
	w.Env.Hostname = func() (string, error) { return "n1", nil }
	f := clitest.NewFake()
	dir := t.TempDir()
	f.Jobs[0].Spec.Dir = []byte(dir)
	f.Jobs[0].Spec.Stderr = []byte("err-%j")
	f.Jobs[2].Spec.Dir = []byte(dir)
	w.Serve("/a", f)
	return w, f, dir
}

func write(t *testing.T, name, text string) {
	t.Helper()
	f, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
}

func TestLogs(t *testing.T) {
	t.Parallel()
	w, _, dir := logWorld(t)
	if code := w.Run("logs", "12"); code != console.ExitNotFound || !strings.Contains(w.Errs.String(), "does not exist (yet)") {
		t.Errorf("no file: exit code %d: %s", code, w.Errs.String())
	}
	write(t, filepath.Join(dir, "berth-12.out"), "epoch 1\n")
	write(t, filepath.Join(dir, "err-12"), "warning\n")
	for arg, want := range map[string]string{"--follow=false": "epoch 1\n", "--stderr": "warning\n", "--path": filepath.Join(dir, "berth-12.out") + "\n"} {
		if code := w.Run("logs", arg, "12"); code != 0 || w.Out.String() != want {
			t.Errorf("logs %s: exit code %d: %q, want %q: %s", arg, code, w.Out.String(), want, w.Errs.String())
		}
	}
	if code := w.Run("logs", "13"); code != console.ExitFailed || !strings.Contains(w.Errs.String(), "only its owner") {
		t.Errorf("another user's: exit code %d: %s", code, w.Errs.String())
	}
	os.Remove(filepath.Join(dir, "berth-12.out"))
	os.Mkdir(filepath.Join(dir, "berth-12.out"), 0o700)
	if code := w.Run("logs", "12"); code != console.ExitFailed || !strings.Contains(w.Errs.String(), "not a regular file") {
		t.Errorf("a directory: exit code %d: %s", code, w.Errs.String())
	}
}

func TestLogsFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, f, dir := logWorld(t)
		name := filepath.Join(dir, "berth-14.out")
		var wg sync.WaitGroup
		wg.Go(func() {
			wait.Sleep(t.Context(), time.Minute)
			f.Change(func() { f.Jobs[2].State, f.Jobs[2].Node = "RUNNING", "n1" })
			wait.Sleep(t.Context(), 5*time.Second)
			write(t, name, "one\n")
			wait.Sleep(t.Context(), 5*time.Second)
			write(t, name, "two\n")
			f.Change(func() { f.Jobs[2].State = "COMPLETED" })
		})
		if code := w.Run("logs", "-f", "14"); code != 0 || w.Out.String() != "one\ntwo\n" {
			t.Errorf("exit code %d: %q: %s", code, w.Out.String(), w.Errs.String())
		}
		wg.Wait()
	})
}

func TestLogsFollowOfJobCancelledBeforeItRan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, f, _ := logWorld(t)
		var wg sync.WaitGroup
		wg.Go(func() {
			wait.Sleep(t.Context(), time.Minute)
			f.Change(func() { f.Jobs[2].State = "CANCELLED" })
		})
		if code := w.Run("logs", "-f", "14"); code != console.ExitFailed || !strings.Contains(w.Errs.String(), "never started") {
			t.Errorf("exit code %d: %s", code, w.Errs.String())
		}
		wg.Wait()
	})
}

// TestLogsWaitForTheImage: who follows a job whose node fetches its image sees how far that
// is, and then what it writes.
func TestLogsWaitForTheImage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, f, dir := logWorld(t)
		w.Env.StderrTerminal = true
		w.Env.Width = func() int { return 200 }
		j := f.Jobs[2]
		j.State, j.Node, j.Reason, j.ReasonDetail = "STARTING", "n1", "PullingImage", "1 of 3 layers"
		if code := w.Run("logs", "14"); code != console.ExitFailed || !strings.Contains(w.Errs.String(), "job 14 has not started (STARTING)") {
			t.Errorf("exit code %d: %s", code, w.Errs.String())
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			wait.Sleep(t.Context(), time.Minute)
			f.Change(func() { j.ReasonDetail = "2 of 3 layers" })
			wait.Sleep(t.Context(), time.Minute)
			f.Change(func() { j.State, j.Reason, j.ReasonDetail = "RUNNING", "", "" })
			write(t, filepath.Join(dir, "berth-14.out"), "one\n")
			wait.Sleep(t.Context(), 5*time.Second)
			f.Change(func() { j.State = "COMPLETED" })
		})
		if code := w.Run("logs", "-f", "14"); code != 0 || w.Out.String() != "one\n" {
			t.Errorf("exit code %d: %q: %s", code, w.Out.String(), w.Errs.String())
		}
		wg.Wait()
		want := "waiting\n\r\x1b[KSTARTING; PullingImage: 1 of 3 layers\r\x1b[KSTARTING; PullingImage: 2 of 3 layers\r\x1b[K"
		if got := w.Errs.String(); !strings.HasSuffix(got, want) {
			t.Errorf("said %q, want %q", got, want)
		}
	})
}

// TestFollowedWait: on a terminal who follows a job that waits sees why, and who stops
// learns how to go on.
func TestFollowedWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, f := clitest.NewWorld(t), clitest.NewFake()
		w.Env.StderrTerminal = true
		f.Jobs = []*apiv1.Job{{Id: 14, State: "PENDING", User: "ann", Reason: "Resources", ReasonDetail: "no GPU has 20 GiB free", Spec: &apiv1.JobSpec{Dir: []byte("/home/ann")}}}
		w.Serve("/a", f)
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Minute, func() { cancel(&console.Interruption{Sig: syscall.SIGINT}) })
		w.Env.Width = func() int { return 60 }
		code := w.RunCtx(ctx, "logs", "-f", "14")
		want := "berth: job 14 has not started (PENDING); waiting\n\r\x1b[KPENDING; Resources: no GPU has 20 GiB free; expected betwe…\r\x1b[K" +
			"berth: only the reading was ended; continue with: berth logs -f 14\n"
		if got := w.Errs.String(); code != 130 || got != want {
			t.Errorf("exit code %d, said %q, want %q", code, got, want)
		}
	})
}
