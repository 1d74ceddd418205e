package studycmd_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/cli/clitest"
	"github.com/berth-scheduler/berth/cmd/internal/golden"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

const sweep = `command: [python, train.py, "--lr={lr}"]
gpus: 1
study:
  metric: loss
  trials: 30
  at_once: 4
  space:
    lr: {log: [1e-5, 0.1]}
    width: [64, 128]
  first: 10
  budget: 1.5
`

// studied is a study of ann's in each of the states that a trial can be in.
func studied() []*apiv1.Job {
	spec := &apiv1.JobSpec{Command: [][]byte{[]byte("python")}, Study: &apiv1.Study{
		Metric: "loss", Rule: "asha", First: 10, Eta: 3, Seed: 1, Budget: durationpb.New(90 * time.Minute), Space: []*apiv1.Axis{
			{Name: "lr", Kind: "log", Low: 1e-5, High: 0.1}, {Name: "opt", Kind: "values", Values: []string{"sgd", "=adam"}},
		},
	}}
	trial := func(task uint32, state string, best float64, step int64, ended time.Duration) *apiv1.Job {
		j := &apiv1.Job{
			Id: 40 + uint64(task), ArrayJobId: 40, ArrayTaskId: &task, Name: "sweep", User: "ann", State: state, Spec: spec,
			Trial: &apiv1.Trial{Metric: "loss", GpuSeconds: 90, Step: step},
		}
		if step > 0 {
			j.Trial.Last, j.Trial.Best, j.Trial.BestStep, j.Trial.Rungs = new(best+1), &best, step-1, 1
		}
		if ended > 0 {
			j.Ended = timestamppb.New(clitest.Now.Add(ended - time.Hour))
		}
		return j
	}
	stopped := trial(1, "CANCELLED", 0.5, 12, 2*time.Minute)
	stopped.Reason, stopped.ReasonDetail = string(cluster.ReasonStudy), "loss 0.5 at step 10 is number 3 of 3 trials there, and the best 1 go on"
	waits := trial(9, "PENDING", 0, 0, 0)
	waits.ArrayCount, waits.ArrayTasks = 5, "5-9"
	cancelled := trial(10, "CANCELLED", 0.75, 20, 4*time.Minute) // by ann
	cancelled.Reason = string(cluster.ReasonByUser)
	return []*apiv1.Job{
		trial(0, "COMPLETED", 0.25, 100, time.Minute), stopped, trial(2, "COMPLETED", -3.125, 100, 3*time.Minute), trial(3, "RUNNING", 0.125, 40, 0),
		trial(4, "RUNNING", 0, 0, 0), waits, cancelled,
	}
}

// failing is a study of which four trials failed, three of them alike.
func failing() []*apiv1.Job {
	jobs := studied()[:3]
	for i, detail := range []string{"exit code 3", "exit code 3", "exit code 3", ""} {
		j := &apiv1.Job{Id: 51 + uint64(i), ArrayJobId: 40, ArrayTaskId: new(uint32(11 + i)), Name: "sweep", User: "ann", State: "FAILED", Reason: "NonZeroExitCode", ReasonDetail: detail, Trial: &apiv1.Trial{Metric: "loss"}}
		if detail == "" {
			j.State, j.Reason = "TIMEOUT", "TimeLimit"
		}
		jobs = append(jobs, j)
	}
	return jobs
}

// TestGolden: what the commands print.
func TestGolden(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"list": {"list"}, "list-json": {"list", "-o", "json"}, "show": {"show", "40"}, "show-latest": {"show"}, "show-json": {"show", "40", "-o", "json"},
		"show-csv": {"show", "40", "-o", "csv"}, "show-none": {"show", "12"}, "show-missing": {"show", "99"}, "show-failed": {"show", "40"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, f := clitest.NewWorld(t), clitest.NewFake()
			f.Jobs = studied()
			if name == "show-none" {
				f.Jobs = clitest.SampleJobs()
			}
			if name == "show-failed" {
				f.Jobs = failing()
			}
			w.Serve("/a", f)
			golden.Check(t, name, w.Transcript(append([]string{"study"}, args...)...))
			if strings.HasPrefix(name, "list") && !f.LastList.GetTrials() {
				t.Error("it asked for all jobs")
			}
		})
	}
}

// TestSmallBudget: of a budget of seconds one sees how much is used.
func TestSmallBudget(t *testing.T) {
	t.Parallel()
	w, f := clitest.NewWorld(t), clitest.NewFake()
	f.Jobs = studied()[:1]
	w.Serve("/a", f)
	for seconds, want := range map[float64]string{0: "0.00", 0.06: "0.000017", 9: "0.0025", 342: "0.095", 360: "0.10", 4000: "1.11"} {
		f.Jobs[0].Trial.GpuSeconds = seconds
		f.Jobs[0].Spec.Study.Budget = durationpb.New(14400 * time.Millisecond)
		if got, want := w.Transcript("study", "show", "40"), "Used    "+want+" GPU-hours, of 0.004 at most\n"; !strings.Contains(got, want) {
			t.Errorf("%g s: without %q:\n%s", seconds, want, got)
		}
		if got := w.Transcript("study", "list"); !strings.Contains(got, "  "+want+"  ") {
			t.Errorf("%g s: the list is without %q:\n%s", seconds, want, got)
		}
	}
}

// TestCreate: a file becomes an array with a study; faults are named with their place.
func TestCreate(t *testing.T) {
	t.Parallel()
	submit := func(text string, args ...string) (*apiv1.JobSpec, string) {
		w, f := clitest.NewWorld(t), clitest.NewFake()
		w.Serve("/a", f)
		name := filepath.Join(t.TempDir(), "sweep.yaml")
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if code := w.Run(append([]string{"study", "create", name}, args...)...); code != 0 {
			return nil, strings.ReplaceAll(w.Errs.String(), name+":", "")
		}
		return f.Requests[0].GetJobs()[0], w.Out.String()
	}
	spec, said := submit(sweep)
	if spec == nil {
		t.Fatal(said)
	}
	s := spec.GetStudy()
	if !strings.Contains(said, "of 30 trials; berth study show ") || spec.GetArray() != "0-29%4" || s.GetRule() != "asha" || s.GetEta() != 3 || s.GetFirst() != 10 ||
		s.GetBudget().AsDuration() != 90*time.Minute || len(s.GetSpace()) != 2 || s.GetSpace()[0].GetLow() != 1e-5 || s.GetSpace()[1].GetValues()[1] != "128" {
		t.Errorf("%s submitted %v", said, spec)
	}
	if spec, said = submit(sweep, "--array", "3,7"); spec.GetArray() != "3,7" {
		t.Errorf("some trials again: %v, %s", spec, said)
	}
	grid := "command: [x]\nstudy:\n  sampling: grid\n  metric: acc\n  goal: maximize\n  stop: none\n  seed: 9\n  space:\n    a: [1, 2, 3]\n    b: {int: [0, 4]}\n"
	if spec, said = submit(grid); spec.GetArray() != "0-14" || !spec.GetStudy().GetMaximize() || spec.GetStudy().GetSeed() != 9 || spec.GetStudy().GetRule() != "none" {
		t.Errorf("a grid: %v, %s", spec, said)
	}
	for _, bad := range []struct{ was, is, want string }{
		{"study:", "sweep:", `3:1: unknown key "sweep"`},
		{sweep[strings.Index(sweep, "study:"):], "", "the study is missing"},
		{"  trials: 30\n", "", "4:3: study: trials: want a number of trials"},
		{"trials: 30", "trials: 10001", "5:11: study: trials: \"10001\": want a whole number from 1 to 10000"},
		{"metric: loss", "metrik: loss", `4:3: study: unknown key "metrik"; did you mean "metric"?`},
		{"metric: loss", "goal: least", `4:9: study: goal: "least": want minimize or maximize`},
		{"metric: loss", "goal: [a]", "4:9: study: goal:"},
		{"metric: loss", "metric: [loss]", "4:11: study: metric: want text"},
		{"metric: loss", "seed: -1", "4:9: study: seed:"},
		{"budget: 1.5", "budget: NaN", "11:11: study: budget: \"NaN\": want a number of GPU-hours above 0"},
		{"first: 10", "first: 0", "10:10: study: first:"},
		{"first: 10", "stop: often", `4:3: study: stop "often"`},
		{"{log: [1e-5, 0.1]}", "{log: [0.1, 1e-5]}", "4:3: study: space: lr: log from 0.1 to 1e-05"},
		{"{log: [1e-5, 0.1]}", "{log: [a, 1]}", `8:9: study: space: lr: "a" is not a number`},
		{"{log: [1e-5, 0.1]}", "7", "8:9: study: space: lr: want a list of values, or one of"},
		{"{log: [1e-5, 0.1]}", "[[1]]", "8:10: study: space: lr: want values, no lists"},
		{"[64, 128]", "[]", "4:3: study: space: width: 0 values"},
		{"  space:\n    lr: {log: [1e-5, 0.1]}\n    width: [64, 128]\n", "  space: 3\n", "7:10: study: space: want parameters"},
		{"  space:\n    lr: {log: [1e-5, 0.1]}\n    width: [64, 128]\n", "", "space: has no parameter"},
	} {
		text := strings.Replace(sweep, bad.was, bad.is, 1)
		if text == sweep {
			t.Fatalf("%q is not there", bad.was)
		}
		if spec, said := submit(text); spec != nil || !strings.Contains(said, bad.want) {
			t.Errorf("%s in place of %s: %v\n%s want %s", bad.is, bad.was, spec, said, bad.want)
		}
	}
}
