package daemon

import (
	"testing"

	"github.com/berth-scheduler/berth/agent/gpu"
	"github.com/berth-scheduler/berth/agent/gpu/sim"
	"github.com/berth-scheduler/berth/model/gpuspec"
)

// The agent names a card's type and the predictor looks it up; neither may
// import the other, so only here can they be held against each other.
func TestAgentAndPredictorAgreeOnGPUTypes(t *testing.T) {
	t.Parallel()
	names := []string{
		"NVIDIA A100-SXM4-80GB", "Tesla T4", "NVIDIA GeForce RTX 3090", "NVIDIA H100 80GB HBM3", "NVIDIA H200",
		"Tesla V100-SXM2-32GB", "NVIDIA L4", "NVIDIA L40S", "NVIDIA A10", "NVIDIA RTX A6000", "some card of tomorrow",
	}
	for _, s := range gpuspec.All() {
		names = append(names, s.Name)
	}
	for _, n := range names {
		if a, m := gpu.NormalizeType(n), gpuspec.Normalize(n); a != m {
			t.Errorf("%q is %q to the agent and %q to the predictor", n, a, m)
		}
	}
	for _, typ := range sim.Types() {
		if _, ok := gpuspec.Lookup(typ); !ok {
			t.Errorf("simulated type %q is unknown to the predictor", typ)
		}
	}
}
