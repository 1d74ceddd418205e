package clitest

import (
	"context"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// Predict implements apirpc.UnsafeHistoryServiceServer.
func (f *Fake) Predict(ctx context.Context, r *apiv1.PredictRequest) (*apiv1.PredictResponse, error) {
	if err := f.Enter(ctx, "Predict"); err != nil {
		return nil, err
	}
	resp := &apiv1.PredictResponse{}
	if len(r.GetBeside()) > 0 {
		resp.Sharing = sampleSharing(r)
	}
	if r.GetSpec() == nil {
		return resp, nil
	}
	resp.Predictions = []*apiv1.Prediction{
		SamplePrediction("A100-SXM4-80GB"),
		{GpuType: "T4", GpuMemMib: 11500, GpuMemP95Mib: 12100, GpuUtilMilli: 990, Seconds: 18000, HostMemMib: 6144, CpuMilli: 2000, Confidence: 0.4, Source: "history"},
	}
	resp.Predictions[0].Floors = []*apiv1.DriverFloor{{Driver: "570.1", Mib: 1100, Runs: 1}, {Driver: "580.1", Mib: 1100}}
	if r.GetSpec().GetOrCpu() {
		resp.Predictions = append(resp.Predictions, SamplePredictionOnCores())
	}
	if r.GetSpec().GetDeadlineIn() != nil {
		resp.Forecast = &apiv1.Forecast{Missing: "deadline: it needs 3 GPUs, which it has by 2026-07-26 09:14:00 UTC, and then ends by 2026-07-26 14:00:00 UTC in nine of ten cases"}
	}
	return resp, nil
}

// sampleSharing returns how the jobs of a request share a GPU.
func sampleSharing(r *apiv1.PredictRequest) []*apiv1.Sharing {
	ids := r.GetBeside()
	if r.GetSpec() != nil {
		ids = append([]uint64{0}, ids...)
	}
	a100 := &apiv1.Sharing{GpuType: "A100-SXM4-80GB", Mode: "mps", Limit: 1.5, Advice: &apiv1.SharingAdvice{
		GpuType: "A100-SXM4-80GB", Mode: "mps", Verdict: "gains", Pairs: 31, Losing: 2, MeanSum: 1.302, StdErr: 0.048}}
	t4 := &apiv1.Sharing{GpuType: "T4", Mode: "time-slicing", Limit: 1.5, Advice: &apiv1.SharingAdvice{GpuType: "T4", Mode: "time-slicing", Verdict: "unsure"}}
	for i, id := range ids {
		slow := 1.25 + 0.5*float64(i)
		a100.Jobs = append(a100.Jobs, &apiv1.SharedJob{Id: id, Speed: 1 / slow, Slowdown: slow, Parts: []string{"job 12: 1.25× (+0.20 computing at the same time)"}})
		t4.Jobs = append(t4.Jobs, &apiv1.SharedJob{Id: id, Speed: 0.8, Slowdown: 1.25})
	}
	return []*apiv1.Sharing{a100, t4}
}

// SamplePredictionOnCores returns the prediction for a job on cores.
func SamplePredictionOnCores() *apiv1.Prediction {
	return &apiv1.Prediction{GpuType: "cpu", Seconds: 2100, HostMemMib: 5000, CpuMilli: 16_000, PowerW: 96, Confidence: 0.3, Source: "catalogue",
		Parts: []*apiv1.PredictionPart{{Name: "process", Mib: 2560}, {Name: "activations", Mib: 1286}, {Name: "margin", Mib: 1154}}}
}

// SamplePrediction returns the prediction for a job on a GPU type.
func SamplePrediction(typ string) *apiv1.Prediction {
	return &apiv1.Prediction{
		GpuType: typ, GpuMemMib: 11468, GpuMemP95Mib: 12083, GpuUtilMilli: 620, Seconds: 7530, HostMemMib: 6144, CpuMilli: 2000, PowerW: 260,
		Confidence: 0.87, Source: "graph",
		Parts: []*apiv1.PredictionPart{{Name: "weights", Mib: 98}, {Name: "gradients", Mib: 98}, {Name: "optimizer", Mib: 196}, {Name: "activations", Mib: 10600}, {Name: "context", Mib: 476}},
	}
}
