package cli

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/cli/modelcmd"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

const (
	sampleSHA    = "9c1185a5c5e9fc54612808977ee8f548b2258d31d1f5c2e8e8a1a0fd2cbb1e36"
	goodWeights  = "BWGT good"
	wrongWeights = "garbage"
)

func sampleModels() []*apiv1.Model {
	admin := uint32(2000)
	return []*apiv1.Model{
		{
			Version: 7, InUse: true, Sha256: sampleSHA, SizeBytes: 48_123, Published: ago(26 * time.Hour), Source: "learned",
			Trained: 812, Tested: 203, ErrorBefore: 0.093, ErrorAfter: 0.041, Reason: "error 4.1 %, was 9.3 %, on 203 samples that neither had seen",
		},
		{Version: 6, Sha256: strings.Repeat("ab", 32), SizeBytes: 48_123, Published: ago(50 * time.Hour), Source: "rollback", RolledBackTo: 4, By: &admin, Trained: 400, Tested: 100, ErrorBefore: 0.2, ErrorAfter: 0.1},
		{Version: 5, Sha256: strings.Repeat("cd", 32), SizeBytes: 300, Published: ago(70 * time.Hour), Source: "import", By: &admin},
		{Version: 0, Sha256: strings.Repeat("ef", 32), SizeBytes: 284, Source: "built-in"},
	}
}

func (f *fakeServer) ListModels(ctx context.Context, _ *apiv1.ListModelsRequest) (*apiv1.ListModelsResponse, error) {
	if err := f.enter(ctx, "ListModels"); err != nil {
		return nil, err
	}
	return &apiv1.ListModelsResponse{Models: sampleModels(), Samples: 1015}, nil
}

func findModel(version *uint64) (*apiv1.Model, error) {
	for _, m := range sampleModels() {
		if version == nil || m.Version == *version {
			return m, nil
		}
	}
	return nil, conv.Status(cluster.Errorf(cluster.CodeNotFound, "version %d of the model is not kept; see: berth model list", *version)).Err()
}

func (f *fakeServer) GetModel(ctx context.Context, r *apiv1.GetModelRequest) (*apiv1.GetModelResponse, error) {
	if err := f.enter(ctx, "GetModel"); err != nil {
		return nil, err
	}
	m, err := findModel(r.Version)
	if err != nil {
		return nil, err
	}
	resp := &apiv1.GetModelResponse{Model: m, Samples: 1015, Accuracy: &apiv1.Accuracy{
		Runs: 240, MeanError: 0.052, MedianError: 0.031, WithinP95: 0.9625, UtilRuns: 238, UtilMedianError: 0.08, TimeRuns: 1, TimeMedianError: 0.12, OutOfMemory: 2,
	}, Interference: &apiv1.Interference{}}
	if m.GetInUse() {
		resp.Interference = &apiv1.Interference{Version: 3, Observations: 412, Sha256: strings.Repeat("1f", 32), SizeBytes: 21_504,
			Published: ago(90 * time.Minute), Advice: []*apiv1.SharingAdvice{
				{GpuType: "A100-SXM4-80GB", Mode: "mps", Verdict: "gains", Pairs: 31, Losing: 2, MeanSum: 1.302, StdErr: 0.048},
				{GpuType: "K80", Mode: "time-slicing", Verdict: "loses", Pairs: 67, Losing: 52, MeanSum: 0.93, StdErr: 0.01},
				{GpuType: "T4", Mode: "time-slicing", Verdict: "unsure", Pairs: 7, MeanSum: 1.1, StdErr: 0.2},
			}}
	}
	if r.GetWithWeights() {
		resp.Weights = []byte(goodWeights)
	}
	return resp, nil
}

func (f *fakeServer) PublishModel(ctx context.Context, r *apiv1.PublishModelRequest) (*apiv1.PublishModelResponse, error) {
	if err := f.enter(ctx, "PublishModel"); err != nil {
		return nil, err
	}
	if string(r.GetWeights()) != goodWeights {
		return nil, conv.Status(cluster.Errorf(cluster.CodeInvalid, "weights: not a weights file")).Err()
	}
	return &apiv1.PublishModelResponse{Model: &apiv1.Model{Version: 8, InUse: true, Source: "import"}}, nil
}

func (f *fakeServer) RollbackModel(ctx context.Context, r *apiv1.RollbackModelRequest) (*apiv1.RollbackModelResponse, error) {
	if err := f.enter(ctx, "RollbackModel"); err != nil {
		return nil, err
	}
	return &apiv1.RollbackModelResponse{Model: &apiv1.Model{Version: 8, InUse: true, Source: "rollback", RolledBackTo: r.GetVersion()}}, nil
}

func (f *fakeServer) PinModel(ctx context.Context, r *apiv1.PinModelRequest) (*apiv1.PinModelResponse, error) {
	if err := f.enter(ctx, "PinModel"); err != nil {
		return nil, err
	}
	m, err := findModel(r.Version)
	if err != nil {
		return nil, err
	}
	m.Pinned = r.GetPinned()
	return &apiv1.PinModelResponse{Model: m}, nil
}

func TestModelTravelsThroughFiles(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.serve("/a", newFake())
	path := filepath.Join(t.TempDir(), "site.weights")
	if code := w.run("model", "export", "6", path); code != 0 || !strings.Contains(w.out.String(), "version 6") {
		t.Fatalf("export: %d %s%s", code, w.out.String(), w.errs.String())
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != goodWeights {
		t.Fatalf("exported %q, %v", got, err)
	}
	if code := w.run("model", "import", path); code != 0 || w.out.String() != "model version 8: in use (import)\n" {
		t.Errorf("import: %d %s%s", code, w.out.String(), w.errs.String())
	}
	if code := w.run("model", "export", "-"); code != 0 || w.out.String() != goodWeights {
		t.Errorf("export to standard output: %d %q", code, w.out.String())
	}
	w.env.Stdin = strings.NewReader(goodWeights)
	if code := w.run("model", "import", "-"); code != 0 {
		t.Errorf("import of standard input: %d %s", code, w.errs.String())
	}
	w.env.Stdin = bytes.NewReader(make([]byte, modelcmd.MaxModelFile+1))
	if code := w.run("model", "import", "-"); code != 2 || !strings.Contains(w.errs.String(), "256 KiB") {
		t.Errorf("too much on standard input: %d %s", code, w.errs.String())
	}
	if err := os.WriteFile(path, []byte(wrongWeights), 0o600); err != nil {
		t.Fatal(err)
	}
	if code := w.run("model", "import", path); code != 2 || !strings.Contains(w.errs.String(), "not a weights file") {
		t.Errorf("garbage: %d %s", code, w.errs.String())
	}
	if code := w.run("model", "export", filepath.Join(path, "x")); code != 1 {
		t.Errorf("export into a file: %d %s", code, w.errs.String())
	}
}

func TestDestructiveVerbsAskOnATerminal(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]int{"y\n": 0, "YES\n": 0, "n\n": 1, "\n": 1, "": 1} {
		for _, verb := range []string{"fence", "remove"} {
			w := newWorld(t)
			f := newFake()
			called := false
			f.hook = func(context.Context, string) error { called = true; return nil }
			w.serve("/a", f)
			w.env.IsTerminal, w.env.Stdin = true, strings.NewReader(answer)
			if code := w.run("node", verb, "n1"); code != want || called != (want == 0) || !strings.Contains(w.errs.String(), "[y/N]") {
				t.Errorf("%s, answer %q: exit code %d, want %d; called %t: %s", verb, answer, code, want, called, w.errs.String())
			}
		}
	}
}
