package modelcmd_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-scheduler/berth/cmd/internal/cli/clitest"
	"github.com/berth-scheduler/berth/cmd/internal/cli/jobspec"
	"github.com/berth-scheduler/berth/model"
)

// TestFeaturesComeBackAsTheyWerePrinted: what berth features prints of a model
// and --features reads is what --config alone would have sent.
func TestFeaturesComeBackAsTheyWerePrinted(t *testing.T) {
	t.Parallel()
	flags := []string{"--batch", "4", "--seq-len", "1024", "--optimizer", "adamw", "--lora-rank", "8", "--framework", "pytorch", "--checkpointing"}
	want, _ := submitted(t, append([]string{"--config", "testdata/tiny-llama/config.json", "--steps", "77"}, flags...)...)
	w := clitest.NewWorld(t)
	if code := w.Run(append([]string{"features", "testdata/tiny-llama/config.json", "-o", "json"}, flags...)...); code != 0 {
		t.Fatal(w.Errs.String())
	}
	path := filepath.Join(t.TempDir(), "f.json")
	if err := os.WriteFile(path, w.Out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	got, warned := submitted(t, "--features", path, "--steps", "77")
	if d := cmp.Diff(want, got); d != "" || warned != "" {
		t.Errorf("%s, warned %q", d, warned)
	}
	got, warned = submitted(t, "--features", path, "--batch", "5", "--optimizer", "sgd", "--seq-len", "1024")
	if got.Batch != 4 || got.Optimizer != "adamw" || !strings.Contains(warned, "so --batch, --optimizer have no effect") {
		t.Errorf("%+v, warned %q", got, warned)
	}
}

func TestFeaturesFromStandardInput(t *testing.T) {
	t.Parallel()
	traced, err := os.ReadFile("testdata/traced.json")
	if err != nil {
		t.Fatal(err)
	}
	w, f := clitest.NewWorld(t), clitest.NewFake()
	w.Serve("/a", f)
	w.Env.Stdin = strings.NewReader(string(traced))
	if code := w.Run("submit", "--features", "-", "--", "true"); code != 0 || len(f.Requests) != 1 {
		t.Fatalf("exit code %d: %s", code, w.Errs.String())
	}
	j := f.Requests[0].GetJobs()[0]
	ft, err := model.DecodeFeatures(j.GetFeatures())
	if err != nil || ft.Model != "Net" || ft.TracedBytes != 8388608 || ft.Mode != model.Training || j.GetGpus() != 1 {
		t.Errorf("%+v, %v, %d GPUs", ft, err, j.GetGpus())
	}
}

// TestOddFeaturesOnlyWarn: what cannot be read never keeps a job from running,
// and the warning says what is wrong; a file that is not there does.
func TestOddFeaturesOnlyWarn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, c := range map[string]struct{ text, want string }{
		"empty":      {" \n", "is empty"},
		"no JSON":    {"resnet50", "invalid character"},
		"cut":        {`{"model":"Net"`, "is truncated"},
		"two":        {`{"model":"Net","source":"graph","batch":1}{}`, "continues after the first object"},
		"a list":     {`[]`, "is a JSON array"},
		"odd key":    {`{"model":"Net","surprise":1}`, `unknown field "surprise"`},
		"odd number": {`{"batch":"many"}`, "batch is a JSON string, want int64"},
		"range":      {`{"model":"Net","source":"graph","batch":-1}`, "batch -1"},
		"source":     {`{"model":"Net","batch":1}`, "does not describe a model"},
		"precision":  {`{"model":"Net","source":"graph","batch":1,"precision":"fp8"}`, `precision "fp8"`},
		"large":      {strings.Repeat(" ", jobspec.MaxFeaturesFile+1), "more than 64 KiB"},
	} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		f, warned := submitted(t, "--features", path, "--batch", "3")
		if !strings.Contains(warned, c.want) || !strings.Contains(warned, "predicted without its model") || strings.Count(warned, "\n") != 1 {
			t.Errorf("%s: warned %q, want %q", name, warned, c.want)
		}
		if f.Known() || f.Batch != 3 {
			t.Errorf("%s: %+v", name, f)
		}
	}
	for want, args := range map[string][]string{
		"no such file": {"--features", filepath.Join(dir, "absent")}, "give only one of them": {"--features", filepath.Join(dir, "empty"), "--model", "resnet50"},
	} {
		w := clitest.NewWorld(t)
		w.Serve("/a", clitest.NewFake())
		if code := w.Run(append(append([]string{"submit"}, args...), "--", "true")...); code != 2 || !strings.Contains(w.Errs.String(), want) {
			t.Errorf("%q: exit code %d, %q", args, code, w.Errs.String())
		}
	}
}

func FuzzFeatures(f *testing.F) {
	traced, err := os.ReadFile("testdata/traced.json")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(traced)
	f.Add([]byte(`{"model":"x","source":"catalogue","batch":1,"flops":1e999}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		ft, err := jobspec.ParseFeatures(data)
		if err != nil {
			return
		}
		back, err := model.DecodeFeatures(ft.Encode())
		if err != nil || !cmp.Equal(back, ft) {
			t.Fatalf("%+v goes over the wire as %+v, %v", ft, back, err)
		}
	})
}
