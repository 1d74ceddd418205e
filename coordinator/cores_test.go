package coordinator_test

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/berth-scheduler/berth/coordinator/coordtest"
	"github.com/berth-scheduler/berth/model"
	"github.com/berth-scheduler/berth/model/graph"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/berth/api/v1/apirpc"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// resnet is a job for one GPU that trains ResNet-50 for a thousand steps: some
// minutes on a T4, some tens of minutes on 16 cores.
func resnet(t *testing.T) *apiv1.JobSpec {
	t.Helper()
	f, err := model.FromCatalogue("resnet50", model.Run{Mode: model.Training, Batch: 32, Steps: 1000, Precision: graph.FP32, Optimizer: graph.Momentum})
	if err != nil {
		t.Fatal(err)
	}
	s := spec(0)
	s.Gpus, s.CpuMilli, s.Objective, s.Features = 1, 16_000, "latency", f.Encode()
	return s
}

// TestCoresWhileTheGPUIsBusy: a job that may run without a GPU does so at once
// while the only one is busy for hours, and teaches how long it took; the same
// job that may not waits, and why says so.
func TestCoresWhileTheGPUIsBusy(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 1})
	cc := c.Dial(0, "gate", "g")
	a := c.Agent(0, "n1", "b1", coordtest.T4("GPU-1"))
	long := spec(0)
	long.Gpus, long.Exclusive, long.Expected = 1, true, durationpb.New(10*time.Hour)
	submitted(t, cc, alice, reqID(1), long)
	a.Report(next(t, a), running, 0)

	bound, free := resnet(t), resnet(t)
	free.OrCpu = true
	ids := submitted(t, cc, alice, reqID(2), bound, free)
	asg := assigned(t, a, ids[1])
	a.Report(asg, running, 0)
	j := await(t, cc, ids[1], "RUNNING")
	p := j.Predicted
	if len(asg.Gpus) > 0 || len(j.Gpus) > 0 || j.GpusWanted != 1 || !j.Spec.OrCpu || p.GpuType != "cpu" || p.Seconds < 300 || p.Seconds > 2*3600 {
		t.Errorf("runs as %v, predicted %v", j, p)
	}
	// Its memory lies in the host, and its cap holds it.
	if p.HostMemMib < 3000 || asg.MemMib < p.HostMemMib || asg.CpuMilli != 16_000 || p.PowerW != 96 {
		t.Errorf("capped at %d MiB and %d thousandths of a core by %v", asg.MemMib, asg.CpuMilli, p)
	}
	if w := j.Attempts[0].Why; !strings.Contains(w, "16 cores in place of 1 GPU, the best for latency") || !strings.Contains(w, "on T4, the wait included, ~10 h") {
		t.Errorf("because %q", w)
	}
	if j := await(t, cc, ids[0], "QUEUED"); len(j.Attempts) > 0 {
		t.Errorf("who may not run on cores does: %v", j)
	}

	a.ReportUsage(asg, completed, 0, &nodev1.Usage{HostMemPeakMib: 9000, CpuMilli: 15_500})
	await(t, cc, ids[1], "COMPLETED")
	resp, err := apirpc.NewJobServiceClient(cc).Predict(as(t, alice), &apiv1.PredictRequest{Spec: free})
	if err != nil || len(resp.Predictions) != 2 {
		t.Fatalf("%v, %v", resp, err)
	}
	gpu, cores := resp.Predictions[0], resp.Predictions[1]
	if cores.GpuType != "cpu" || cores.Source != "history" || cores.HostMemMib != 11_700 || cores.Seconds > 60 {
		t.Errorf("after a run on cores: %v", cores)
	}
	if gpu.GpuType != "T4" || gpu.Source == "history" {
		t.Errorf("a run on cores changed what is predicted of the GPU: %v", gpu)
	}
}

// TestCoresAreExplained: why names the choice of cores that was not taken.
func TestCoresAreExplained(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 1})
	cc := c.Dial(0, "gate", "g")
	a := c.Agent(0, "n1", "b1", coordtest.T4("GPU-1"))
	long := spec(0)
	long.Gpus, long.Exclusive, long.Expected = 1, true, durationpb.New(10*time.Hour)
	submitted(t, cc, alice, reqID(1), long)
	a.Report(next(t, a), running, 0)
	s := resnet(t)
	s.OrCpu, s.Objective = true, ""
	ids := submitted(t, cc, alice, reqID(2), s)
	await(t, cc, ids[0], "QUEUED")
	resp, err := apirpc.NewJobServiceClient(cc).ExplainJob(as(t, alice), &apiv1.ExplainJobRequest{Id: ids[0]})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range resp.Explanations {
		if e.GpuType == "cpu" && strings.Contains(e.Detail, "without an objective") {
			return
		}
	}
	t.Errorf("explained by %v", resp.Explanations)
}
