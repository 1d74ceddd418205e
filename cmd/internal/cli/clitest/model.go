package clitest

import (
	"context"
	"strings"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/conv/apiconv"
)

// SampleSHA is the checksum of the model in use, GoodWeights are the only
// weights that can be published.
const (
	SampleSHA   = "9c1185a5c5e9fc54612808977ee8f548b2258d31d1f5c2e8e8a1a0fd2cbb1e36"
	GoodWeights = "BWGT good"
)

// SampleModels returns the versions that a Fake knows.
func SampleModels() []*apiv1.Model {
	admin := uint32(2000)
	return []*apiv1.Model{
		{
			Version: 7, InUse: true, Sha256: SampleSHA, SizeBytes: 48_123, Published: Ago(26 * time.Hour), Source: "learned",
			Trained: 812, Tested: 203, ErrorBefore: 0.093, ErrorAfter: 0.041, Reason: "error 4.1 %, was 9.3 %, on 203 samples that neither had seen",
		},
		{Version: 6, Sha256: strings.Repeat("ab", 32), SizeBytes: 48_123, Published: Ago(50 * time.Hour), Source: "rollback", RolledBackTo: 4, By: &admin, Trained: 400, Tested: 100, ErrorBefore: 0.2, ErrorAfter: 0.1},
		{Version: 5, Sha256: strings.Repeat("cd", 32), SizeBytes: 300, Published: Ago(70 * time.Hour), Source: "import", By: &admin},
		{Version: 0, Sha256: strings.Repeat("ef", 32), SizeBytes: 284, Source: "built-in"},
	}
}

// ListModels implements apirpc.UnsafeBackupServiceServer.
func (f *Fake) ListModels(ctx context.Context, _ *apiv1.ListModelsRequest) (*apiv1.ListModelsResponse, error) {
	if err := f.Enter(ctx, "ListModels"); err != nil {
		return nil, err
	}
	return &apiv1.ListModelsResponse{Models: SampleModels(), Samples: 1015}, nil
}

func findModel(version *uint64) (*apiv1.Model, error) {
	for _, m := range SampleModels() {
		if version == nil || m.Version == *version {
			return m, nil
		}
	}
	return nil, apiconv.Status(cluster.Errorf(cluster.CodeNotFound, "version %d of the model is not kept; see: berth model list", *version)).Err()
}

// GetModel implements apirpc.UnsafeBackupServiceServer.
func (f *Fake) GetModel(ctx context.Context, r *apiv1.GetModelRequest) (*apiv1.GetModelResponse, error) {
	if err := f.Enter(ctx, "GetModel"); err != nil {
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
			Published: Ago(90 * time.Minute), Advice: []*apiv1.SharingAdvice{
				{GpuType: "A100-SXM4-80GB", Mode: "mps", Verdict: "gains", Pairs: 31, Losing: 2, MeanSum: 1.302, StdErr: 0.048},
				{GpuType: "K80", Mode: "time-slicing", Verdict: "loses", Pairs: 67, Losing: 52, MeanSum: 0.93, StdErr: 0.01},
				{GpuType: "T4", Mode: "time-slicing", Verdict: "unsure", Pairs: 7, MeanSum: 1.1, StdErr: 0.2},
			}}
	}
	if r.GetWithWeights() {
		resp.Weights = []byte(GoodWeights)
	}
	return resp, nil
}

// PublishModel implements apirpc.UnsafeBackupServiceServer.
func (f *Fake) PublishModel(ctx context.Context, r *apiv1.PublishModelRequest) (*apiv1.PublishModelResponse, error) {
	if err := f.Enter(ctx, "PublishModel"); err != nil {
		return nil, err
	}
	if string(r.GetWeights()) != GoodWeights {
		return nil, apiconv.Status(cluster.Errorf(cluster.CodeInvalid, "weights: not a weights file")).Err()
	}
	return &apiv1.PublishModelResponse{Model: &apiv1.Model{Version: 8, InUse: true, Source: "import"}}, nil
}

// RollbackModel implements apirpc.UnsafeBackupServiceServer.
func (f *Fake) RollbackModel(ctx context.Context, r *apiv1.RollbackModelRequest) (*apiv1.RollbackModelResponse, error) {
	if err := f.Enter(ctx, "RollbackModel"); err != nil {
		return nil, err
	}
	return &apiv1.RollbackModelResponse{Model: &apiv1.Model{Version: 8, InUse: true, Source: "rollback", RolledBackTo: r.GetVersion()}}, nil
}

// PinModel implements apirpc.UnsafeBackupServiceServer.
func (f *Fake) PinModel(ctx context.Context, r *apiv1.PinModelRequest) (*apiv1.PinModelResponse, error) {
	if err := f.Enter(ctx, "PinModel"); err != nil {
		return nil, err
	}
	m, err := findModel(r.Version)
	if err != nil {
		return nil, err
	}
	m.Pinned = r.GetPinned()
	return &apiv1.PinModelResponse{Model: m}, nil
}
