package power

import (
	"fmt"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler/schedtest"
)

// BenchmarkLook is a look at 10,000 nodes of eight cards under a forecast, with five weeks of
// slots known: one that forecasts, and those until the slot is over.
func BenchmarkLook(b *testing.B) {
	snap := &dispatch.Snapshot{Now: base, Queues: map[cluster.GPUID][]dispatch.Waiter{}, Partitions: []*cluster.Partition{{Name: "a", Nodes: list("n[00000-09999]")}}}
	for i := range 10_000 {
		snap.Nodes = append(snap.Nodes, schedtest.Node(cluster.NodeID(fmt.Sprintf("n%05d", i)), 8, "A100"))
	}
	var spans []Span
	for i := range 2 * MaxSlots {
		from := base.Add(-time.Duration(i) * slot / 2)
		spans = append(spans, Span{Node: snap.Nodes[i%997].ID, Kind: KindOf(snap.Nodes[0], snap.Partitions), From: from, To: from.Add(time.Duration(1+i%50) * time.Hour)})
	}
	r := ahead(5)
	for name, step := range map[string]time.Duration{"same-slot": 0, "next-slot": slot} {
		b.Run(name, func(b *testing.B) {
			var k Keeper
			k.Recall(snap, r, spans, base.Add(-MaxSlots*slot))
			view := *snap
			k.Look(&view, r, nil)
			for b.Loop() {
				view.Now = view.Now.Add(step)
				k.Look(&view, r, nil)
			}
		})
	}
}
