package jobcmd

import (
	"testing"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// TestPredictedText: what is known is said, and of what is not how a job fares.
func TestPredictedText(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		p    *apiv1.Prediction
		want string
	}{
		{nil, ""},
		{&apiv1.Prediction{Source: "none", GpuType: "T4"}, "nothing is known about it: whole GPUs until a run has been measured, time unknown"},
		{&apiv1.Prediction{Source: "none", GpuType: "cpu", Seconds: 60}, "nothing is known about it, 1m00s"},
		{&apiv1.Prediction{Source: "none", GpuType: "T4", Seconds: 8, TimeConfidence: 0.9}, "its GPU needs are not known: whole GPUs until a run has been measured; 8s (90%: 13s)"},
		{&apiv1.Prediction{Source: "history", GpuType: "T4", Seconds: 60, GpuMemMib: 2048, GpuMemP95Mib: 3072, GpuUtilMilli: 500, Confidence: 0.9},
			"GPU memory 2.0 GiB (95%: 3.0 GiB), GPU 50%, 1m00s on T4; confidence 90%, from history"},
	} {
		if got := predictedText(c.p); got != c.want {
			t.Errorf("%v: %q, want %q", c.p, got, c.want)
		}
	}
}
