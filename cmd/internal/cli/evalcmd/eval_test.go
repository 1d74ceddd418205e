package evalcmd_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/berth-scheduler/berth/cmd/internal/cli/clitest"
	"github.com/berth-scheduler/berth/cmd/internal/cli/evalcmd"
	"github.com/berth-scheduler/berth/cmd/internal/cli/frame"
	"github.com/berth-scheduler/berth/cmd/internal/golden"
)

const evalData = "../../../../model/eval/testdata/data"

// TestModelEval holds what users see. The trainer is the one whose answers no
// better predictor changes.
func TestModelEval(t *testing.T) {
	t.Parallel()
	held := t.TempDir()
	if err := os.Mkdir(filepath.Join(held, "schedtune"), 0o755); err != nil {
		t.Fatal(err)
	}
	rows := "model,batch_size,activations_mb,parameters_mb,input_mb,peak_mem_mib,gpu,family\n" +
		"alnet10,32,400,40,18,1500,Tesla K80,alnet\ncnet3,8,90,10,4.5,800,Tesla K80,cnet\nalnet10,8,100,40,4.5,1400,Tesla V100-SXM2-16GB,alnet\n"
	if err := os.WriteFile(filepath.Join(held, "schedtune", "held.csv"), []byte(rows), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, args := range map[string][]string{
		"model-eval":      {"--target", "memory"},
		"model-eval-test": {"--test", held, "--target", "gpu_mem"},
		"model-eval-json": {"--target", "step_time", "--split", "random", "-o", "json"},
		"model-eval-yaml": {"--target", "time", "--split", "gpu", "-o", "yaml"},
		"model-eval-none": {"--target", "util", "--split", "family,gpu"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := clitest.NewWorld(t, models)
			got := w.Transcript(append([]string{"model", "eval", "--train", evalData, "--with", "mean"}, args...)...)
			golden.Check(t, name, strings.ReplaceAll(got, held, "HELD"))
		})
	}
}

func TestModelEvalReport(t *testing.T) {
	t.Parallel()
	w := clitest.NewWorld(t, models)
	plots := filepath.Join(t.TempDir(), "plots")
	if code := w.Run("model", "eval", "--train", evalData, "--with", "mean,physics", "--target", "memory", "--plot", plots, "-o", "json"); code != 0 {
		t.Fatal(w.Errs.String())
	}
	var report struct {
		Results []map[string]any `json:"results"`
	}
	if err := json.Unmarshal(w.Out.Bytes(), &report); err != nil || len(report.Results) == 0 {
		t.Fatal(len(report.Results), err)
	}
	for _, r := range report.Results {
		for _, key := range []string{"dataset", "target", "split", "n", "mape", "median_ape", "p90_ape", "rmse", "rmsle", "under", "p95_coverage", "p95_waste"} {
			if _, ok := r[key]; !ok {
				t.Errorf("a result lacks %s: %v", key, r)
			}
		}
		if r["target"] != "memory" {
			t.Errorf("a target that was not asked for: %v", r)
		}
	}
	drawings, err := filepath.Glob(filepath.Join(plots, "*.svg"))
	if err != nil || !slices.Contains(drawings, filepath.Join(plots, "schedtune_memory_mean.svg")) {
		t.Errorf("drawings %v, %v", drawings, err)
	}
}

func TestModelEvalBadInput(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		args []string
		code int
		want string
	}{
		"nothing to learn from": {nil, 2, "--train is missing"},
		"no such directory":     {[]string{"--train", "nowhere"}, 1, "nowhere"},
		"no data sets":          {[]string{"--train", "testdata"}, 1, "schedtune"},
		"target":                {[]string{"--train", evalData, "--target", "weight"}, 2, `target "weight": must be one of memory`},
		"split":                 {[]string{"--train", evalData, "--split", "half"}, 2, `split "half": must be one of random`},
		"trainer":               {[]string{"--train", evalData, "--with", "oracle"}, 2, `trainer "oracle": must be one of berth`},
		"argument":              {[]string{"--train", evalData, "more"}, 2, "takes no arguments"},
		"format":                {[]string{"--train", evalData, "-o", "wide"}, 2, "want one of table"},
	} {
		w := clitest.NewWorld(t, models)
		if code := w.Run(append([]string{"model", "eval"}, tc.args...)...); code != tc.code || !strings.Contains(w.Errs.String(), tc.want) {
			t.Errorf("%s: exit code %d, %s; want %d and %q", name, code, w.Errs.String(), tc.code, tc.want)
		}
	}
}

// models is the command of these tests.
var models = frame.Command{Name: "model", New: frame.Local(evalcmd.NewModelCmd)}
