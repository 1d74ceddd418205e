package policies_test

import (
	"testing"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/scheduler/policies"
	. "github.com/berth-scheduler/berth/scheduler/schedtest"
)

// TestWhyNothingCouldRunIt: a job with GPUs is told whether there are none, or those
// that there are take no jobs.
func TestWhyNothingCouldRunIt(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		nodes []*cluster.Node
		want  string
	}{
		{nil, "NoNodes: no node is registered"},
		{[]*cluster.Node{Node("n1", 0, ""), Node("n2", 0, "", Drained)}, "NeverFits: no node has a GPU"},
		{[]*cluster.Node{Node("n1", 0, ""), Node("n2", 1, "T4", Silent)}, "ReqNodeNotAvail: every node with GPUs is drained or silent"},
		{[]*cluster.Node{Node("n1", 1, "T4", Drained)}, "ReqNodeNotAvail: every node is drained or silent"},
	} {
		p, err := policies.New("firstfit+fifo", policies.Options{})
		if err != nil {
			t.Fatal(err)
		}
		plan := p.Plan(NewWorld(c.nodes, Job(1)).Snapshot())
		if len(plan.Unplaced) != 1 || plan.Unplaced[0].Reason.String() != c.want {
			t.Errorf("%+v, want %q", plan.Unplaced, c.want)
		}
	}
}
