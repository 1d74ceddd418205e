package scheduler_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/scheduler"
	"github.com/berth-scheduler/berth/scheduler/explain"
	. "github.com/berth-scheduler/berth/scheduler/schedtest"
)

// TestSharingOff: where sharing is off nobody is laid beside another, by a pass or
// when somebody ends, and the reason says so; alone on a card a job starts.
func TestSharingOff(t *testing.T) {
	t.Parallel()
	n := Node("n1", 1, a100, CapMode("watch"))
	n.GPUs[0].Unshared = "sharing is off on node n1: caps do not hold"
	w := NewWorld([]*cluster.Node{n})
	for _, j := range []*cluster.Job{light(1, "a", Of(1, 10)), light(2, "b", Of(1, 10))} {
		w.Submit(j)
		p := scheduler.Schedule(w.Snapshot(), scheduler.Default())
		w.Apply(&p)
	}
	if got := w.OnGPU(GPU("n1", 0)); len(got) != 1 {
		t.Fatalf("%d jobs on the card, want one", len(got))
	}
	x := scheduler.Explain(w.Snapshot(), w.Jobs[2], scheduler.Default())
	if !slices.ContainsFunc(x, func(e explain.Explanation) bool {
		return strings.Contains(e.Reason.Detail, "sharing is off on node n1: caps do not hold")
	}) {
		t.Errorf("explained by %v", x)
	}
	w.End(1)
	p := scheduler.OnRelease(w, []cluster.GPUID{GPU("n1", 0)}, scheduler.Default())
	if len(p.Starts) == 0 {
		p = scheduler.Schedule(w.Snapshot(), scheduler.Default())
	}
	if len(p.Starts) != 1 {
		t.Errorf("alone on the card it does not start: %v", p.Unplaced)
	}
}
