package conv_test

import (
	"testing"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/proto/conv"
)

// TestAssignmentsMayUseWhatIsPredicted: an agent limits a job to the compute that is
// predicted for it, though it reserves less under overcommit, and to what it
// declared.
func TestAssignmentsMayUseWhatIsPredicted(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name                string
		declared, predicted int64
		exclusive           bool
		held, want          int64
	}{
		{"overcommitted", 0, 500, false, 400, 500},
		{"declared", 400, 500, false, 400, 400},
		{"predicted to be more than a GPU", 0, 1100, false, 800, 1000},
		{"nothing predicted", 0, 0, false, 1000, 1000},
		{"alone", 0, 500, true, 1000, 1000},
	} {
		j := &cluster.Job{ID: 1, Spec: &cluster.Spec{GPUs: 1, GPUMilli: c.declared}}
		a := &cluster.Attempt{Estimate: cluster.Estimate{Milli: c.predicted}, Berth: cluster.Berth{
			Node: "n1", GPUs: []cluster.GPUShare{{GPU: "g", Share: cluster.Share{MemMiB: 100, Milli: c.held, Exclusive: c.exclusive}}},
		}}
		if got := conv.Assignment(j, a, 0).Gpus[0].Milli; got != c.want {
			t.Errorf("%s: the node is told %d thousandths, want %d", c.name, got, c.want)
		}
	}
}
