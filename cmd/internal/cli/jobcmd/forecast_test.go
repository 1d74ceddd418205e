package jobcmd_test

import (
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/berth-scheduler/berth/cluster/wait"
	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/clitest"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/golden"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

func TestStarts(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"queue-start":      {"queue", "--start"},
		"queue-start-json": {"queue", "--start", "-o", "json"},
		"squeue-start":     {"squeue", "--start"},
		"help-wait":        {"wait", "--help"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := clitest.NewWorld(t)
			w.Serve("/a", clitest.NewFake())
			golden.Check(t, name, w.Transcript(args...))
		})
	}
}

func TestStartText(t *testing.T) {
	t.Parallel()
	e := &console.Env{Now: func() time.Time { return clitest.Now }}
	at := func(d time.Duration) *timestamppb.Timestamp { return timestamppb.New(clitest.Now.Add(d)) }
	for want, f := range map[string]*apiv1.Forecast{
		"":                                     nil,
		"at any moment":                        {StartP50: at(-time.Second), StartP90: at(0)},
		"by 15:59":                             {StartP50: at(0), StartP90: at(50 * time.Minute)},
		"between 15:34 and 16:09; 1 job ahead": {StartP50: at(25 * time.Minute), StartP90: at(time.Hour), Ahead: 1},
		"between 15:34 and 2026-03-15 15:09; 3 jobs ahead": {StartP50: at(25 * time.Minute), StartP90: at(24 * time.Hour), Ahead: 3},
		"about 15:34; 28 jobs ahead":                       {StartP50: at(25*time.Minute + time.Second), StartP90: at(25*time.Minute + 20*time.Second), Ahead: 28},
		"about 16:09":                                      {StartP50: at(time.Hour), StartP90: at(time.Hour)},
	} {
		if got := client.StartText(e, f, ""); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if got := client.StartText(e, nil, "it is held"); got != "cannot say: it is held" {
		t.Errorf("%q", got)
	}
}

// TestWaitAny: the first to end decides, whatever the others come to.
func TestWaitAny(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := clitest.NewWorld(t)
		f := clitest.NewFake()
		w.Serve("/a", f)
		var wg sync.WaitGroup
		wg.Go(func() {
			wait.Sleep(t.Context(), time.Minute)
			f.Change(func() { f.Jobs[2] = &apiv1.Job{Id: 14, State: "FAILED", ExitCode: new(int32(7))} })
		})
		if code := w.Run("wait", "--any", "12", "14"); code != 7 || w.Out.String() != "14\n" {
			t.Errorf("exit code %d, printed %q: %s", code, w.Out.String(), w.Errs.String())
		}
		wg.Wait()
		if code := w.Run("wait", "--any", "14", "12"); code != 7 || w.Out.String() != "14\n" {
			t.Errorf("one that has ended: exit code %d, printed %q", code, w.Out.String())
		}
		if code := w.Run("wait", "--any", "--timeout", "90s", "12"); code != console.ExitUnknown || !strings.Contains(w.Errs.String(), "berth wait 12") {
			t.Errorf("time-out: exit code %d: %s", code, w.Errs.String())
		}
	})
}
