package policies_test

import (
	"strings"
	"testing"
	"time"

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

// TestWhyItRunsThatLong: what a start says of the time tells a prediction from a time
// limit, from what the user expects, and from nothing known, on one node and on several.
func TestWhyItRunsThatLong(t *testing.T) {
	t.Parallel()
	for want, opts := range map[string][]JobOption{
		"; predicted ~30 min":             {Predict("T4", 1000, 100, 30*time.Minute)},
		"; expected ~30 min":              {Lasts(30 * time.Minute)},
		"; limited to ~30 min":            {Limit(30 * time.Minute)},
		"; time unknown, ~60 min assumed": nil,
	} {
		for _, nodes := range []int{1, 2} {
			for _, name := range []string{"bestfit", "fgd+las"} {
				p := must(t, name, policies.Options{})
				plan := p.Plan(NewWorld([]*cluster.Node{Node("n1", 1, "T4"), Node("n2", 1, "T4")}, Job(1, append(opts, Nodes(nodes))...)).Snapshot())
				if len(plan.Starts) != 1 || !strings.HasSuffix(plan.Starts[0].Why, want) {
					t.Errorf("%s, %d nodes: %+v, want %q", name, nodes, plan.Starts, want)
				}
			}
		}
	}
}
