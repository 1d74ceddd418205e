package conv

import (
	"slices"
	"testing"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/study"
)

// TestATrialIsToldItsValues in its command and its environment, and which metric is asked
// for; another task has others, and a job of no study has what it was submitted with.
func TestATrialIsToldItsValues(t *testing.T) {
	t.Parallel()
	spec := &cluster.Spec{Command: []string{"train", "--lr={lr}", "{opt}"}, Env: []string{"A=b"}, Study: &study.Study{
		Metric: "loss", Grid: true, Space: []study.Axis{{Name: "lr", Kind: study.KindChoice, Values: []string{"0.1", "1"}}, {Name: "opt", Kind: study.KindChoice, Values: []string{"sgd", `a"b`}}},
	}}
	var err error
	if spec.Array, err = cluster.ParseArray("0-3"); err != nil {
		t.Fatal(err)
	}
	at := func(task uint32) (command, env []string, metric string) {
		j := &cluster.Job{ID: 5 + cluster.JobID(task), ArrayJobID: 5, ArrayTaskID: task, Spec: spec}
		as := Assignment(j, &cluster.Attempt{No: 1}, 0)
		for _, c := range as.Command {
			command = append(command, string(c))
		}
		for _, e := range as.Env {
			env = append(env, string(e))
		}
		return command, env, as.Metric
	}
	command, env, metric := at(3)
	if want := []string{"train", "--lr=1", `a"b`}; !slices.Equal(command, want) || metric != "loss" {
		t.Errorf("%q of %s, want %q", command, metric, want)
	}
	for _, want := range []string{"A=b", "BERTH_PARAM_LR=1", `BERTH_PARAM_OPT=a"b`, `BERTH_PARAMS={"lr":1,"opt":"a\"b"}`} {
		if !slices.Contains(env, want) {
			t.Errorf("its environment is %q, without %s", env, want)
		}
	}
	if command, _, _ = at(0); command[1] != "--lr=0.1" || command[2] != "sgd" {
		t.Errorf("the first has %q", command)
	}
	spec.Study = &study.Study{Metric: "acc"}
	if command, env, metric = at(3); command[1] != "--lr={lr}" || len(env) != 1 || metric != "acc" {
		t.Errorf("of a metric alone: %q, %q, %q", command, env, metric)
	}
	spec.Study = nil
	if command, env, metric = at(3); command[1] != "--lr={lr}" || len(env) != 1 || metric != "" {
		t.Errorf("of no study: %q, %q, %q", command, env, metric)
	}
}
