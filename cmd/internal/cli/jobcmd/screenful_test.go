package jobcmd_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/berth-scheduler/berth/cmd/internal/cli/clitest"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// runningArray is an array of n tasks that run, each on a card of its own, four of them
// on each node, and one that waits.
func runningArray(n int) []*apiv1.Job {
	var jobs []*apiv1.Job
	for i := range n {
		jobs = append(jobs, &apiv1.Job{Id: uint64(100 + i), ArrayJobId: 100, ArrayTaskId: new(uint32(i)), Name: "train", User: "ann", State: "RUNNING", GpusWanted: 1,
			Node: fmt.Sprintf("n%d", 1+i/4), Started: timestamppb.New(clitest.Now.Add(-time.Duration(n-i) * time.Minute)),
			Gpus: []*apiv1.GPUShare{{Uuid: fmt.Sprintf("GPU-%d", i), Type: "T4", Index: uint32(i % 4)}}})
	}
	return append(jobs, &apiv1.Job{Id: uint64(100 + n), ArrayJobId: 100, ArrayTaskId: new(uint32(n)), Name: "train", User: "ann", State: "QUEUED", Reason: "WholeGPUBusy", GpusWanted: 1})
}

// TestRunningArrayOnScreen: on a terminal the tasks of an array that run are one line,
// with all of their cards and nodes; -r, a job that is named, and what is not a terminal
// have a line for each.
func TestRunningArrayOnScreen(t *testing.T) {
	t.Parallel()
	w, f := clitest.NewWorld(t), clitest.NewFake()
	f.Jobs = runningArray(60)
	w.Serve("/a", f)
	w.Env.IsTerminal, w.Env.Width = true, func() int { return 80 }
	want := "" +
		"     JOBID  NAME   USER  ST     TIME  GPUS  GPU    NODE(REASON)\n" +
		"100_[0-59]  train  ann   R   1:00:00    60  60×T4  n[1-15]\n" +
		"    100_60  train  ann   QD     0:00     1  -      (WholeGPUBusy)\n" +
		"60 running on 60 GPUs, 1 waiting\n"
	if code := w.Run("queue"); code != 0 || w.Out.String() != want {
		t.Errorf("exit code %d, wrote\n%s\nwant\n%s", code, w.Out.String(), want)
	}
	for _, args := range [][]string{{"queue", "-r"}, {"queue", "--array"}, {"queue", "100"}} {
		if code := w.Run(args...); code != 0 || !strings.Contains(w.Out.String(), "\n100_59  train") {
			t.Errorf("%q: exit code %d, no line for each task:\n%s", args, code, w.Out.String())
		}
	}
	w.Env.IsTerminal = false
	if code := w.Run("queue"); code != 0 || strings.Count(w.Out.String(), "\n") != 62 || strings.Contains(w.Out.String(), "running") {
		t.Errorf("into a pipe: exit code %d, wrote\n%s", code, w.Out.String())
	}
}

// TestWatchFitsTheScreen: queue -w shows the beginning of a list that is longer than the
// terminal, and says how much more there is.
func TestWatchFitsTheScreen(t *testing.T) {
	t.Parallel()
	w, f := clitest.NewWorld(t), clitest.NewFake()
	f.Jobs = runningArray(60)
	w.Serve("/a", f)
	w.Env.IsTerminal, w.Env.Width, w.Env.Height = true, func() int { return 80 }, func() int { return 10 }
	ctx, stop := context.WithCancel(t.Context())
	now := w.Env.Now
	w.Env.Now = func() time.Time { stop(); return now() } // once is enough
	w.RunCtx(ctx, "queue", "-r", "-w", "--interval", "1s")
	shown, _ := strings.CutPrefix(w.Out.String(), "\x1b[H\x1b[J")
	lines := strings.Split(shown, "\n")
	if len(lines) != 10 || !strings.HasPrefix(lines[0], " JOBID") || lines[9] != "and 54 more lines" {
		t.Errorf("%d lines:\n%s", len(lines), shown)
	}
}

// TestOneFigureForAStart: what JSON calls the estimated start is the later end of the range
// that why says, whatever the planner counts with; what nobody can say is not said.
func TestOneFigureForAStart(t *testing.T) {
	t.Parallel()
	w, f := clitest.NewWorld(t), clitest.NewFake()
	other := timestamppb.New(clitest.Now.Add(time.Hour))
	f.Jobs = []*apiv1.Job{{Id: 20, State: "QUEUED", EstimatedStart: other}, {Id: 21, State: "PENDING", EstimatedStart: other}, {Id: 22, State: "RUNNING", EstimatedStart: other}}
	w.Serve("/a", f)
	for _, c := range []struct{ cmd, want string }{
		{"queue -o json --jq .[].estimated_start", "2026-03-14T15:57:26Z\nnull\nnull\n"},
		{"show 20 -o json --jq .estimated_start", "2026-03-14T15:57:26Z\n"},
		{"show 21 -o json --jq .estimated_start", "null\n"},
	} {
		if code := w.Run(strings.Fields(c.cmd)...); code != 0 || w.Out.String() != c.want {
			t.Errorf("%s: exit code %d, wrote %q, want %q; %s", c.cmd, code, w.Out.String(), c.want, w.Errs.String())
		}
	}
}
