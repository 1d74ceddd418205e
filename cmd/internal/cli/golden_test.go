package cli_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/berth-scheduler/berth/cmd/internal/cli/clitest"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/golden"
)

// TestGolden holds what users see, word for word.
func TestGolden(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"queue-table":         {"queue"},
		"queue-all":           {"queue", "--all"},
		"queue-me":            {"queue", "--me"},
		"queue-states":        {"queue", "--state", "pd,QUEUED"},
		"queue-wide":          {"queue", "-o", "wide"},
		"queue-cols":          {"queue", "-o", "cols=jobid,name,gpus,node", "--sort", "-gpus"},
		"queue-cols-unknown":  {"queue", "-o", "cols=jobid,nodes"},
		"queue-sort-json":     {"queue", "-o", "json", "--sort", "name"},
		"node-list-cols":      {"node", "list", "-o", "cols=node,gpu_use", "--sort", "-node"},
		"gpu-list-sort":       {"gpu", "list", "--sort", "type"},
		"queue-json":          {"queue", "-o", "json"},
		"queue-yaml":          {"queue", "-o", "yaml", "14"},
		"queue-name":          {"queue", "-o", "name"},
		"queue-missing":       {"queue", "12", "99", "98"},
		"show":                {"show", "12"},
		"show-two":            {"show", "14", "16"},
		"show-svg":            {"show", "--timeout", "5s", "--plot", "-o", "svg", "12_3"},
		"show-json":           {"show", "-o", "json", "16"},
		"show-yaml":           {"show", "-o", "yaml", "12"},
		"show-missing":        {"show", "99"},
		"why-waiting":         {"why", "14"},
		"why-running":         {"why", "12"},
		"why-ended":           {"why", "16"},
		"why-json":            {"why", "15", "-o", "json"},
		"node-list":           {"node", "list"},
		"node-list-wide":      {"node", "list", "-o", "wide"},
		"node-list-json":      {"node", "list", "-o", "json", "n1"},
		"node-list-yaml":      {"node", "list", "-o", "yaml", "n3"},
		"node-list-name":      {"node", "list", "-o", "name"},
		"node-show":           {"node", "show", "n1"},
		"node-missing":        {"node", "show", "n9"},
		"node-drain":          {"node", "drain", "n1", "--reason", "GPU 0 reports ECC errors"},
		"node-drain-until":    {"node", "drain", "n1", "--reason", "new driver", "--until", "2026-03-14T22:00"},
		"node-drain-from":     {"node", "drain", "n1", "--reason", "new driver", "--from", "2026-03-14T18:00", "--until", "2026-03-14T22:00"},
		"node-drain-open":     {"node", "drain", "n1", "--reason", "new driver", "--from", "2026-03-14T18:00"},
		"node-resume":         {"node", "resume", "n1"},
		"node-power-down":     {"node", "power-down", "n1", "--reason", "moves"},
		"node-power-up":       {"node", "power-up", "n1"},
		"node-power-denied":   {"node", "power-up", "N 1"},
		"node-fence":          {"node", "fence", "n3", "--yes"},
		"node-remove":         {"node", "remove", "n3", "--yes"},
		"model-list":          {"model", "list"},
		"model-list-json":     {"model", "list", "-o", "json"},
		"model-list-yaml":     {"model", "ls", "-o", "yaml"},
		"model-list-name":     {"model", "list", "-o", "name"},
		"model-show":          {"model", "show"},
		"model-show-old":      {"model", "show", "v6"},
		"model-show-json":     {"model", "show", "-o", "json", "0"},
		"model-missing":       {"model", "show", "3"},
		"model-pin":           {"model", "pin"},
		"model-unpin":         {"model", "unpin"},
		"model-rollback":      {"model", "rollback", "5"},
		"help-model":          {"model", "--help"},
		"help-node-fence":     {"node", "fence", "--help"},
		"cluster-status":      {"cluster", "status"},
		"cluster-json":        {"cluster", "status", "-o", "json"},
		"token-create":        {"token", "create", "--id", "n7", "--ttl", "2h"},
		"predict":             {"predict", "--model", "resnet50", "--batch", "64"},
		"predict-deadline":    {"predict", "--model", "resnet50", "--batch", "64", "--gpus", "1-8", "--deadline", "5h"},
		"predict-explain":     {"predict", "--model", "resnet50", "--batch", "64", "--explain"},
		"predict-json":        {"predict", "--model", "resnet50", "--batch", "64", "--format", "json"},
		"predict-features":    {"predict", "--features", "modelcmd/testdata/traced.json", "--steps", "1000", "--batch", "9"},
		"predict-beside":      {"predict", "--model", "resnet50", "--batch", "64", "--beside", "12"},
		"predict-beside-jobs": {"predict", "--beside", "12,13", "--explain"},
		"predict-beside-json": {"predict", "--beside", "12-13", "--format", "json"},
		"predict-beside-one":  {"predict", "--beside", "12"},
		"submit":              {"submit", "--gpus", "1", "--gpu-mem", "12G", "--time", "2h", "--", "python", "train.py"},
		"submit-parsable":     {"submit", "--parsable", "--", "true"},
		"submit-count":        {"submit", "--count", "3", "--", "true"},
		"hold":                {"hold", "12", "13", "14,16", "99"},
		"release":             {"release", "12"},
		"requeue":             {"requeue", "12", "13", "14,16", "99"},
		"cancel":              {"cancel", "12", "13", "14,16", "99"},
		"wait-failed":         {"wait", "16"},
		"logs-not-started":    {"logs", "14"},
		"logs-elsewhere":      {"logs", "16"},
		"help":                {"--help"},
		"help-submit":         {"submit", "--help"},
		"help-logs":           {"logs", "--help"},
		"help-exec":           {"exec", "--help"},
		"help-shell":          {"shell", "--help"},
		"exec-no-command":     {"exec", "12"},
		"exec-no-job":         {"exec"},
		"logs-two-begins":     {"logs", "--tail", "3", "--since-offset", "4", "12"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := clitest.NewWorld(t)
			w.Serve("/a", clitest.NewFake())
			golden.Check(t, name, w.Transcript(args...))
		})
	}
}

func TestTableOnTerminal(t *testing.T) {
	t.Parallel()
	for name, width := range map[string]int{"queue-60-columns": 60, "queue-80-columns": 80} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := clitest.NewWorld(t)
			w.Serve("/a", clitest.NewFake())
			w.Env.IsTerminal, w.Env.Width = true, func() int { return width }
			got := w.Transcript("queue")
			for _, line := range strings.Split(strings.TrimSpace(w.Out.String()), "\n") {
				if n := console.TextWidth(line); n > width {
					t.Errorf("line of %d columns: %q", n, line)
				}
			}
			golden.Check(t, name, got)
		})
	}
}

func TestNoControlCharactersReachTheTerminal(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"queue"}, {"queue", "-o", "wide"}, {"show", "13"}, {"queue", "-o", "yaml"}, {"why", "13"},
		{"squeue"}, {"scontrol", "show", "job", "13"}, {"sacct", "-j", "13"}} {
		w := clitest.NewWorld(t)
		w.ServeParted("/a", clitest.NewParted())
		w.Run(args...)
		if out := w.Out.String(); strings.ContainsAny(out, "\x1b\u202e") || out == "" {
			t.Errorf("%v: %q", args, out)
		}
	}
}

func TestJSONAndYAMLAgree(t *testing.T) {
	t.Parallel()
	w := clitest.NewWorld(t)
	w.Serve("/a", clitest.NewFake())
	var j, y any
	w.Run("queue", "--all", "-o", "json")
	if err := json.Unmarshal(w.Out.Bytes(), &j); err != nil {
		t.Fatal(err)
	}
	w.Run("queue", "--all", "-o", "yaml")
	if err := yaml.Unmarshal(w.Out.Bytes(), &y); err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(y)
	if err != nil {
		t.Fatal(err)
	}
	var back any
	if err := json.Unmarshal(raw, &back); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(j, back); d != "" {
		t.Errorf("YAML differs from JSON:\n%s", d)
	}
}

func TestBriefOnlyWhereItIsEnough(t *testing.T) {
	t.Parallel()
	for o, want := range map[string]bool{"table": true, "name": true, "wide": false, "json": false, "yaml": false} {
		w := clitest.NewWorld(t)
		f := clitest.NewFake()
		w.Serve("/a", f)
		w.Run("queue", "-o", o)
		if f.LastList.GetBrief() != want {
			t.Errorf("-o %s: brief %t, want %t", o, f.LastList.GetBrief(), want)
		}
	}
}
