package slurmcmd_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/berth-scheduler/berth/cmd/internal/cli/clitest"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// TestRequeuedJob: one that waits again is there, for squeue, scontrol and scancel,
// though it has the times of the attempt that ended.
func TestRequeuedJob(t *testing.T) {
	t.Parallel()
	w, f := clitest.NewWorld(t), clitest.NewFake()
	at := func(ago time.Duration) *timestamppb.Timestamp { return timestamppb.New(clitest.Now.Add(-ago)) }
	f.Jobs = append(f.Jobs, &apiv1.Job{
		Id: 77, Name: "again", User: "ann", Uid: 1001, State: "PENDING", Reason: "JobHeldUser", Node: "n1", NodeList: "n1",
		Submitted: at(time.Hour), Started: at(50 * time.Minute), Ended: at(40 * time.Minute), Spec: &apiv1.JobSpec{Name: "again"},
		Attempts: []*apiv1.Attempt{{No: 1, State: "CANCELLED", Node: "n1", Started: at(50 * time.Minute), Ended: at(40 * time.Minute)}},
	})
	w.Serve("/a", f)
	for _, args := range [][]string{
		{"squeue", "-h", "-n", "again", "-o", "%i %t %r %M %e"}, {"squeue", "-h", "--me", "-n", "again", "-o", "%i %t %r %M %e %k"},
	} {
		if code := w.Run(args...); code != 0 || !strings.HasPrefix(w.Out.String(), "77 PD JobHeldUser 0:00 N/A") {
			t.Errorf("%v: exit code %d: %q %s", args, code, w.Out.String(), w.Errs.String())
		}
	}
	if w.Run("scontrol", "show", "job", "77"); !strings.Contains(w.Out.String(), "StartTime=Unknown EndTime=Unknown") {
		t.Errorf("scontrol show job: %s%s", w.Out.String(), w.Errs.String())
	}
	if code := w.Run("scancel", "-n", "again"); code != 0 || !slices.Equal(f.Cancelled, []uint64{77}) {
		t.Errorf("scancel -n: exit code %d, cancelled %v: %s", code, f.Cancelled, w.Errs.String())
	}
}

// TestBegin: a job that is not to begin before a time starts then at the soonest.
func TestBegin(t *testing.T) {
	t.Parallel()
	w, f := clitest.NewWorld(t), clitest.NewFake()
	f.Jobs = append(f.Jobs, &apiv1.Job{Id: 77, Name: "later", User: "ann", State: "PENDING", Reason: "BeginTime", Submitted: timestamppb.New(clitest.Now),
		Spec: &apiv1.JobSpec{Name: "later", Begin: timestamppb.New(clitest.Now.Add(time.Hour))}})
	w.Serve("/a", f)
	if code := w.Run("squeue", "-h", "-j", "77", "-o", "%S %e %r"); code != 0 || w.Out.String() != "2026-03-14T16:09:26 NONE BeginTime\n" {
		t.Errorf("exit code %d: %q %s", code, w.Out.String(), w.Errs.String())
	}
	if w.Run("scontrol", "show", "job", "77"); !strings.Contains(w.Out.String(), "StartTime=2026-03-14T16:09:26 EndTime=Unknown") {
		t.Errorf("scontrol: %s", w.Out.String())
	}
}

// TestExitCodeOfASignal: what a shell would say of it is 0 to Slurm, and the signal
// stands behind the colon.
func TestExitCodeOfASignal(t *testing.T) {
	t.Parallel()
	w, f := clitest.NewWorld(t), clitest.NewFake()
	f.Jobs = append(f.Jobs, &apiv1.Job{Id: 77, Name: "ended", User: "ann", State: "CANCELLED", ExitCode: new(int32(143)), Signal: 15, Started: timestamppb.New(clitest.Now), Ended: timestamppb.New(clitest.Now)})
	w.Serve("/a", f)
	if w.Run("scontrol", "-d", "show", "job", "77"); !strings.Contains(w.Out.String(), " ExitCode=0:15\n") || !strings.Contains(w.Out.String(), "DerivedExitCode=0:15") {
		t.Errorf("%s%s", w.Out.String(), w.Errs.String())
	}
}

// TestSqueueOfAnEndedJob: who waits for a job by asking for it is told that it is gone,
// five minutes after its end as with Slurm.
func TestSqueueOfAnEndedJob(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		ago  time.Duration
		line string
		code int
		out  string
	}{
		{time.Minute, "squeue -h -j 77", 0, ""}, {6 * time.Minute, "squeue -h -j 77", 1, ""}, {6 * time.Minute, "squeue -h -j 77 -t all -o %i", 0, "77\n"},
		{6 * time.Minute, "squeue -h -j 77,12 -o %i", 0, "12\n"},
	} {
		w, f := clitest.NewWorld(t), clitest.NewFake()
		f.Jobs = append(f.Jobs, &apiv1.Job{Id: 77, Name: "ended", User: "ann", State: "COMPLETED", Started: clitest.Ago(time.Hour), Ended: clitest.Ago(tc.ago)})
		w.Serve("/a", f)
		if code := w.Run(strings.Fields(tc.line)...); code != tc.code || w.Out.String() != tc.out {
			t.Errorf("%s, ended %s ago: exit code %d, %q: %s", tc.line, tc.ago, code, w.Out.String(), w.Errs.String())
		}
	}
}
