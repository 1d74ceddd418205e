package elastic_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler/elastic"
)

// BenchmarkRestarts asks who begins again on 500 nodes of four GPUs with 200 jobs of elastic
// size that run, where 5,000 jobs wait for more than any of them leaves.
func BenchmarkRestarts(b *testing.B) {
	s := world(make([]int, 500)...)
	for i := range 200 {
		onNodes(s, time.Hour, cluster.NodeID(fmt.Sprint("n", 2*i)), cluster.NodeID(fmt.Sprint("n", 2*i+1)))
	}
	for range 5000 {
		waits(s, 4, 0, time.Hour)
	}
	for _, sizing := range []elastic.Sizing{elastic.Marginal, elastic.Optimus, elastic.Sia} {
		b.Run(string(sizing), func(b *testing.B) {
			for b.Loop() {
				elastic.Rules{Sizing: sizing}.Restarts(s, s.Ledger.Clone(), &dispatch.Plan{})
			}
		})
	}
}

// BenchmarkSizes asks with how many nodes 100 jobs start on 500 idle ones.
func BenchmarkSizes(b *testing.B) {
	idle := make([]int, 500)
	for i := range idle {
		idle[i] = 4
	}
	s := world(idle...)
	for range 100 {
		gang(s, 1, 8, 2, time.Hour)
	}
	for _, sizing := range []elastic.Sizing{elastic.Marginal, elastic.AFS, elastic.Pollux, elastic.Sia} {
		b.Run(string(sizing), func(b *testing.B) {
			for b.Loop() {
				elastic.Rules{Sizing: sizing}.Sizes(s)
			}
		})
	}
}
