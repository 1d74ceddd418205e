package jobcmd_test

import (
	"context"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-scheduler/berth/cmd/internal/cli/clitest"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/golden"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

func TestCancelChoosesJobs(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		args  []string
		admin bool
		want  []uint64
	}{
		"cancel-me":             {args: []string{"cancel", "--me"}, want: []uint64{12, 14}},
		"cancel-state":          {args: []string{"cancel", "--state", "qd"}, want: []uint64{14}},
		"cancel-name":           {args: []string{"cancel", "--me", "--name", "train,prep"}, want: []uint64{12}},
		"cancel-nothing":        {args: []string{"cancel", "--partition", "nowhere"}},
		"cancel-all":            {args: []string{"cancel", "--all", "--yes"}},
		"cancel-all-admin":      {args: []string{"cancel", "--all", "-y"}, admin: true, want: []uint64{13, 15, 12, 14}},
		"cancel-all-unasked":    {args: []string{"cancel", "--all", "--name", "prep"}},
		"cancel-all-me":         {args: []string{"cancel", "--all", "--me"}},
		"cancel-ended":          {args: []string{"cancel", "--state", "CD"}},
		"cancel-named-and-more": {args: []string{"cancel", "--me", "12"}},
		"cancel-no-job":         {args: []string{"cancel"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, f := clitest.NewWorld(t), clitest.NewFake()
			f.Admin = tc.admin
			w.Serve("/a", f)
			golden.Check(t, name, w.Transcript(tc.args...))
			if diff := cmp.Diff(tc.want, f.Cancelled); diff != "" {
				t.Errorf("cancelled (-want +got):\n%s", diff)
			}
		})
	}
}

// TestCancelChoosesTasks: the first task of an array has the id of the array, which
// is not meant.
func TestCancelChoosesTasks(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"cancel", "--state", "R", "--name", "sweep"}, {"scancel", "-u", "ann", "-t", "RUNNING", "-n", "sweep"}} {
		w, f := clitest.NewWorld(t), clitest.NewFake()
		sweep(f, 0, task(0, "RUNNING", 0), tasks("1-9", 9, 9, "PENDING"))
		w.Serve("/a", f)
		if code := w.Run(args...); code != 0 || len(f.Cancelled) > 0 || len(f.CancelledTasks) != 1 || f.CancelledTasks[0].GetTasks() != "0" {
			t.Errorf("%v: exit code %d, ended jobs %v and tasks %v: %s", args, code, f.Cancelled, f.CancelledTasks, w.Errs.String())
		}
	}
}

// TestMoreThanOneRequest: what is named or chosen is asked for in parts of what a
// coordinator takes at once.
func TestMoreThanOneRequest(t *testing.T) {
	t.Parallel()
	const n = 2*console.MaxIDs + 500
	var jobs []*apiv1.Job
	var ids []string
	for i := range uint64(n) {
		jobs = append(jobs, &apiv1.Job{Id: 5000 + i, Name: "many", User: "ann", State: "PENDING"})
		ids = append(ids, strconv.FormatUint(5000+i, 10))
	}
	for name, args := range map[string][]string{"named": append([]string{"cancel"}, ids...), "in a list": {"cancel", strings.Join(ids, ",")}, "chosen": {"cancel", "--name", "many"}, "held": append([]string{"hold"}, ids...)} {
		w, f := clitest.NewWorld(t), clitest.NewFake()
		f.Jobs = append(f.Jobs, jobs...)
		calls := 0
		f.Hook = func(_ context.Context, method string) error {
			if method == "CancelJobs" || method == "ControlJobs" {
				calls++
			}
			return nil
		}
		w.Serve("/a", f)
		if code := w.Run(args...); code != 0 || calls != 3 || args[0] == "cancel" && len(f.Cancelled) != n {
			t.Errorf("%s: exit code %d, %d requests, %d cancelled: %s", name, code, calls, len(f.Cancelled), w.Errs.String())
		}
		if name == "chosen" && w.Out.String() != "2500 jobs cancelled\n" {
			t.Errorf("chosen: %q", w.Out.String())
		}
	}
}
