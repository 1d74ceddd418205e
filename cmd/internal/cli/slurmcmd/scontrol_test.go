package slurmcmd_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-scheduler/berth/cmd/internal/cli/clitest"
	"github.com/berth-scheduler/berth/cmd/internal/golden"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// TestScontrolTop: the owner's other jobs of the same kind that stand before it
// step back behind it, and nobody else's.
func TestScontrolTop(t *testing.T) {
	t.Parallel()
	w := clitest.NewWorld(t)
	f := clitest.NewFake()
	waits := func(id uint64, user, partition string, nice int32) *apiv1.Job {
		return &apiv1.Job{Id: id, Name: "w", User: user, Uid: uint32(len(user)), State: "PENDING", Partition: partition, Nice: nice}
	}
	f.Jobs = []*apiv1.Job{waits(20, "ann", "gpu", 0), waits(21, "bo", "gpu", 0), waits(22, "ann", "gpu", 5), waits(23, "ann", "debug", 0), waits(24, "ann", "gpu", 0), waits(18, "ann", "gpu", 1), waits(26, "ann", "gpu", 0)}
	f.Ahead = map[uint64]uint32{20: 0, 21: 1, 22: 2, 23: 3, 24: 4, 18: 4, 26: 5}
	f.Jobs[2].State = "QUEUED" // there its place is fixed: it is held for a moment
	var controls atomic.Int32
	f.Hook = func(_ context.Context, method string) error {
		if method == "ControlJobs" {
			controls.Add(1)
		}
		return nil
	}
	w.Serve("/a", f)
	if code := w.Run("scontrol", "top", "24"); code != 0 || w.Out.Len()+w.Errs.Len() > 0 {
		t.Fatalf("exit code %d: %s%s", code, w.Out.String(), w.Errs.String())
	}
	got := map[uint64]int32{}
	for _, u := range f.Updates {
		got[u.GetId()] = u.GetNice()
	}
	if d := cmp.Diff(map[uint64]int32{18: 3, 20: 5, 22: 8}, got); d != "" {
		t.Error(d)
	}
	if n := controls.Load(); n != 2 {
		t.Errorf("asked %d times for a hold or a release, want both once", n)
	}
}

// TestScontrolGolden holds the rest of scontrol, word for word.
func TestScontrolGolden(t *testing.T) {
	t.Parallel()
	for name, line := range map[string]string{
		"config":      "scontrol show config",
		"top":         "scontrol top",
		"top-running": "scontrol top 12",
		"top-missing": "scontrol top 99",
		"wait":        "scontrol wait_job 12",
		"wait-ended":  "scontrol wait_job 16",
		"wait-none":   "scontrol wait_job 99",
		"wait-what":   "scontrol wait_job",
		"hold":        "scontrol update jobid=14 priority=0",
		"hold-none":   "scontrol update jobid=99 priority=0",
		"priority":    "scontrol update jobid=14 priority=100",
		"update":      "scontrol update jobid=14 timelimit=30",
		"update-none": "scontrol update jobid=99 timelimit=30",
		"power-down":  "scontrol update nodename=n1 state=power_down reason=moves",
		"power-what":  "scontrol update nodename=n1 state=power",
		"denied":      "scontrol update jobid=15 timelimit=30",
		"partition":   "scontrol update jobid=14 partition=nosuch",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := clitest.NewWorld(t)
			w.Serve("/a", clitest.NewFake())
			golden.Check(t, "scontrol-"+name, w.Transcript(strings.Fields(line)...))
		})
	}
}
