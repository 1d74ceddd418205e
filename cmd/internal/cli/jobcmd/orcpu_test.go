package jobcmd_test

import (
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/berth-scheduler/berth/cmd/internal/cli/clitest"
	"github.com/berth-scheduler/berth/cmd/internal/golden"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// TestOnCores: what users see of a job that asked for a GPU and runs on cores,
// and what is predicted of one that might.
func TestOnCores(t *testing.T) {
	t.Parallel()
	at := func(minute int) *timestamppb.Timestamp {
		return timestamppb.New(time.Date(2026, 3, 14, 12, minute, 0, 0, time.UTC))
	}
	f := clitest.NewFake()
	f.Jobs = append(f.Jobs, &apiv1.Job{
		Id: 40, Name: "train", User: "ada", Uid: 1000, State: "RUNNING", Node: "n3", GpusWanted: 1, Submitted: at(0), Started: at(1),
		Predicted: clitest.SamplePredictionOnCores(),
		Spec:      &apiv1.JobSpec{Name: "train", Command: [][]byte{[]byte("python"), []byte("train.py")}, Gpus: 1, OrCpu: true, CpuMilli: 16_000, Objective: "latency"},
		Attempts: []*apiv1.Attempt{{No: 1, State: "RUNNING", Node: "n3", Placed: at(1), Started: at(1),
			Why: "16 cores in place of 1 GPU, the best for latency (~35 min, 96 W, 0.06 kWh); on T4, the wait included, ~10 h"}},
	})
	w := clitest.NewWorld(t)
	w.Serve("/a", f)
	golden.Check(t, "show-cores", w.Transcript("show", "40"))
	golden.Check(t, "queue-cores", w.Transcript("queue", "40"))
	golden.Check(t, "why-cores", w.Transcript("why", "40"))
	golden.Check(t, "predict-cores", w.Transcript("predict", "--model", "resnet50", "--batch", "64", "--gpus", "1", "--or-cpu", "--cpus", "16"))
	golden.Check(t, "predict-cores-explain", w.Transcript("predict", "--model", "resnet50", "--batch", "64", "--gpus", "1", "--or-cpu", "--explain"))
	golden.Check(t, "submit-cores-nogpu", w.Transcript("submit", "--or-cpu", "--", "true"))
}
