package cli_test

import (
	"strings"
	"testing"

	"github.com/berth-scheduler/berth/cmd/internal/cli/clitest"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// TestMistypedToSlurm: Slurm's words for what was mistyped, and behind them what was
// likely meant.
func TestMistypedToSlurm(t *testing.T) {
	t.Parallel()
	for typed, want := range map[string]string{
		"squeue -t RUNING":                  `squeue: error: Invalid job state specified: RUNING; did you mean "RUNNING"?`,
		"squeue --nodelst n1":               `squeue: unrecognized option '--nodelst'; did you mean "--nodelist"?`,
		"sacct --fromat=JobID":              `sacct: unrecognized option '--fromat'; did you mean "--format"?`,
		"sbatch --gress=gpu:1 --wrap=true":  `sbatch: error: unrecognized option '--gress=gpu:1'; try --gres`,
		"scontrol shwo job 1":               `invalid keyword: shwo; did you mean "show"?`,
		"scontrol show jbo 1":               `invalid entity:jbo for keyword:show ; did you mean "job"?`,
		"sbtach x.sh":                       `berth: unknown command "sbtach"; did you mean "sbatch"?`,
		"submit --begin soon -- true":       `want a time such as now+2hours, +30m, 16:00, noon, teatime, tomorrow or 2026-03-14T18:00`,
		"submit --deadline 25:00 -- true":   `want a duration such as 90 (minutes) or 6h, or a time such as now+2hours`,
		"reservation create x --start +10m": `berth: unknown command "create" for "berth reservation"; did you mean "add"?`,
		"completion fis":                    `did you mean "fish"?`,
	} {
		w := clitest.NewWorld(t)
		w.Serve("/a", clitest.NewFake())
		if code := w.Run(strings.Fields(typed)...); code == 0 || !strings.Contains(w.Errs.String(), want) {
			t.Errorf("%s: exit code %d, said %q, want %q", typed, code, w.Errs.String(), want)
		}
	}
}

// TestMistypedUsers: a list that came out empty for the name of nobody says so; one of
// a user who is known, or whose jobs are there, does not.
func TestMistypedUsers(t *testing.T) {
	t.Parallel()
	for typed, want := range map[string]string{
		"queue -u ghost":        `berth: there is no user "ghost", nor any job of theirs` + "\n",
		"history -u ghost":      `berth: there is no user "ghost", nor any job of theirs` + "\n",
		"squeue -u ghost":       "squeue: error: Invalid user: ghost\n",
		"scancel -u ghost":      "scancel: error: Invalid user name: ghost\n",
		"sacct -u ghost":        "sacct: error: Invalid user id: ghost\n",
		"queue -u root":         "",
		"queue -u elsewhere":    "",
		"squeue -u 4000000":     "",
		"squeue -u elsewhere":   "",
		"scancel -u daemon":     "",
		"scancel -u 0 -t R":     "",
		"history --user daemon": "",
	} {
		w, f := clitest.NewWorld(t), clitest.NewFake()
		if strings.Contains(typed, "elsewhere") {
			f.Jobs = []*apiv1.Job{{Id: 7, User: "elsewhere", State: "RUNNING", Spec: &apiv1.JobSpec{}}}
		}
		w.Serve("/a", f)
		if w.Run(strings.Fields(typed)...); w.Errs.String() != want {
			t.Errorf("%s: said %q, want %q", typed, w.Errs.String(), want)
		}
	}
}

// TestCompletionOfArrays: an array is one proposal, until a task of it is typed.
func TestCompletionOfArrays(t *testing.T) {
	t.Parallel()
	task := func(n uint32, state string) *apiv1.Job {
		return &apiv1.Job{Id: 100 + uint64(n), ArrayJobId: 100, ArrayTaskId: &n, Name: "sweep", User: "ann", State: state}
	}
	rest := task(2, "PENDING")
	rest.ArrayCount, rest.ArrayTasks = 7, "2-8"
	for typed, want := range map[string]string{
		"":      "100\tsweep, 8 tasks\n:4\n",
		"1":     "100\tsweep, 8 tasks\n:4\n",
		"100_":  "100_0\tsweep, RUNNING\n:4\n",
		"17,10": "17,100\tsweep, 8 tasks\n:4\n",
	} {
		w, f := clitest.NewWorld(t), clitest.NewFake()
		f.Jobs = []*apiv1.Job{task(0, "RUNNING"), rest} // a page of the fake coordinator
		w.Serve("/a", f)
		w.Env.User = func() string { return "ann" }
		if code := w.Run("__complete", "cancel", typed); code != 0 || filtered(w.Out.String(), typed) != want {
			t.Errorf("%q: exit code %d, proposed %q, want %q", typed, code, w.Out.String(), want)
		}
	}
}

// filtered leaves the proposals that begin with what was typed, as shells do.
func filtered(out, typed string) string {
	var b strings.Builder
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, typed) || strings.HasPrefix(line, ":") {
			b.WriteString(line)
		}
	}
	return b.String()
}
