package jobcmd_test

import (
	"strings"
	"testing"

	"github.com/berth-scheduler/berth/cmd/internal/cli/clitest"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/golden"
)

// TestMyLatestJob is meant by commands about one job that name none.
func TestMyLatestJob(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		user string
		args []string
		code int
		says string
	}{
		"why":           {"ann", []string{"why"}, 0, "berth: job 16 (old), your latest\n"},
		"show":          {"cyd", []string{"show"}, 0, "berth: job 15 (prep), your latest\n"},
		"show of an id": {"cyd", []string{"show", "12"}, 0, ""},
		"logs":          {"ann", []string{"logs", "--path"}, 0, "berth: job 16 (old), your latest\n"},
		"what is wrong": {"ann", []string{"logs", "--tail", "-2"}, console.ExitUsage, "berth: --tail -2: must be 0 or more lines\nRun 'berth logs --help' for usage.\n"},
		"none":          {"eve", []string{"why"}, console.ExitNotFound, "berth: you have no jobs now; name one, or find it with: berth history\n"},
		"nobody":        {"", []string{"show"}, console.ExitUsage, "berth: your user name is not known; name a job\nRun 'berth show --help' for usage.\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := clitest.NewWorld(t)
			w.Vars["USER"] = tc.user
			w.Serve("/a", clitest.NewFake())
			if code := w.Run(tc.args...); code != tc.code || w.Errs.String() != tc.says {
				t.Errorf("exit code %d, says %q, want %d and %q", code, w.Errs.String(), tc.code, tc.says)
			}
		})
	}
}

func TestMyLatestArray(t *testing.T) {
	t.Parallel()
	w, f := clitest.NewWorld(t), clitest.NewFake()
	sweep(f, 0, task(0, "RUNNING", 0), tasks("1-9", 9, 9, "PENDING"))
	w.Serve("/a", f)
	golden.Check(t, "why-array", w.Transcript("why"))
	if w.Run("show"); !strings.Contains(w.Errs.String(), "job 30 (sweep), your latest") {
		t.Errorf("show: %s", w.Errs.String())
	}
}
