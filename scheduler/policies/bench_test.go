package policies_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler/policies"
	. "github.com/berth-scheduler/berth/scheduler/schedtest"
)

// mix is a repeatable stream of numbers that does not move with the Go version.
func mix(i int) int { return int(uint32(i)*2654435761>>7) & 0xffff }

func benchSnapshot(gpus, jobs int) *dispatch.Snapshot {
	types := []string{small, a100, t4}
	var nodes []*cluster.Node
	for i := range gpus / 8 {
		nodes = append(nodes, Node(cluster.NodeID(fmt.Sprintf("n%05d", i)), 8, types[i%3], Host(256_000, 2<<20)))
	}
	w := NewWorld(nodes)
	for id := 1; id <= jobs; id++ {
		m, d := int64(1000+mix(id)%14000), time.Duration(60+mix(3*id+1)%7200)*time.Second
		j := Job(cluster.JobID(id), Predict(small, m, int64(100+mix(id+7)%900), d), Predict(a100, m, int64(100+mix(id+7)%800), d*8/10), Predict(t4, m, 1000, 4*d))
		switch {
		case id%500 == 0:
			GPUs(8)(j)
		case id%53 == 0:
			Exclusive(j)
		}
		w.Submit(j)
	}
	return w.Snapshot()
}

// BenchmarkPlan is a pass over twice as many jobs as there are cards.
func BenchmarkPlan(b *testing.B) {
	for _, gpus := range []int{1000, 10000} {
		snap := benchSnapshot(gpus, 2*gpus)
		for _, name := range append(policies.Names(), "firstfit+las", "firstfit+fairshare", "firstfit+themis", "firstfit+edf") {
			b.Run(fmt.Sprintf("%s/%dgpus", name, gpus), func(b *testing.B) {
				p := must(b, name, policies.Options{})
				for b.Loop() {
					p.Plan(snap)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/1000/float64(b.N)/float64(2*gpus), "us/job")
			})
		}
	}
}
