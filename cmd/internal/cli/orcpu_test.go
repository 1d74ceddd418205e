package cli

import (
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// TestOnCores: what users see of a job that asked for a GPU and runs on cores,
// and what is predicted of one that might.
func TestOnCores(t *testing.T) {
	t.Parallel()
	at := func(minute int) *timestamppb.Timestamp {
		return timestamppb.New(time.Date(2026, 3, 14, 12, minute, 0, 0, time.UTC))
	}
	f := newFake()
	f.jobs = append(f.jobs, &apiv1.Job{
		Id: 40, Name: "train", User: "ada", Uid: 1000, State: "RUNNING", Node: "n3", GpusWanted: 1, Submitted: at(0), Started: at(1),
		Predicted: samplePredictionOnCores(),
		Spec:      &apiv1.JobSpec{Name: "train", Command: [][]byte{[]byte("python"), []byte("train.py")}, Gpus: 1, OrCpu: true, CpuMilli: 16_000, Objective: "latency"},
		Attempts: []*apiv1.Attempt{{No: 1, State: "RUNNING", Node: "n3", Placed: at(1), Started: at(1),
			Why: "16 cores in place of 1 GPU, the best for latency (~35 min, 96 W, 0.06 kWh); on T4, the wait included, ~10 h"}},
	})
	w := newWorld(t)
	w.serve("/a", f)
	golden(t, "show-cores", w.transcript("show", "40"))
	golden(t, "queue-cores", w.transcript("queue", "40"))
	golden(t, "why-cores", w.transcript("why", "40"))
	golden(t, "predict-cores", w.transcript("predict", "--model", "resnet50", "--batch", "64", "--gpus", "1", "--or-cpu", "--cpus", "16"))
	golden(t, "predict-cores-explain", w.transcript("predict", "--model", "resnet50", "--batch", "64", "--gpus", "1", "--or-cpu", "--explain"))
	golden(t, "submit-cores-nogpu", w.transcript("submit", "--or-cpu", "--", "true"))
}

func samplePredictionOnCores() *apiv1.Prediction {
	return &apiv1.Prediction{GpuType: "cpu", Seconds: 2100, HostMemMib: 5000, CpuMilli: 16_000, PowerW: 96, Confidence: 0.3, Source: "catalogue",
		Parts: []*apiv1.PredictionPart{{Name: "process", Mib: 2560}, {Name: "activations", Mib: 1286}, {Name: "margin", Mib: 1154}}}
}
