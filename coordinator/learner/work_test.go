package learner

import (
	"testing"
	"testing/synctest"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/work"
)

// TestWorkOfAgain: jobs that are alike are predicted once, and each of many gets its new
// estimate at the same cost.
func TestWorkOfAgain(t *testing.T) {
	work.Steady(t, 1000, func(n int) (c work.Cost) {
		synctest.Test(t, func(t *testing.T) {
			l, p := whoWait(t, n)
			p.tries = 1 // the first command is taken
			c = work.Of(n, func() {
				if err := l.again(t.Context(), func(*cluster.Job) bool { return true }, GPUTypes(p.f.Nodes())); err != nil {
					t.Fatal(err)
				}
				p.f.Hash() // of many changed jobs it is made on the way
			})
			c.Counted = float64(len(p.at)) * 1000 / float64(n)
		})
		return c
	})
}
