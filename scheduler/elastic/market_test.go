package elastic

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
)

// TestMarketIsNearItsBound compares the sum for many jobs on three types with what no
// division is below, by the prices: what each pays for its cheapest, less what all that is
// idle costs.
func TestMarketIsNearItsBound(t *testing.T) {
	t.Parallel()
	const instances = 10
	for _, jobs := range []int{10, 40, 160} {
		chance := rand.New(rand.NewPCG(1, uint64(jobs)))
		mean, worst := 0.0, 0.0
		for range instances {
			all, snap := manyJobs(jobs, chance)
			free := blocksOf(snap, snap.Ledger)
			m := bidders(all, free, free.idle()-jobs, true, snap)
			m.divide()
			sum := m.sum()
			for _, b := range m.all {
				m.book(b, -1)
			}
			m.setPrices()
			bound := -m.price[len(m.types)] * float64(m.spare)
			for _, b := range m.all {
				bound += m.priced(m.wanted(b))
			}
			for i, typ := range m.types {
				for _, o := range free.all {
					if o.typ == typ {
						bound -= m.price[i] * float64(o.idle)
					}
				}
			}
			gap := sum/bound - 1
			if gap < 0 {
				t.Errorf("%d jobs: a sum of %g, below the bound of %g", jobs, sum, bound)
			}
			mean, worst = mean+gap/instances, max(worst, gap)
		}
		t.Logf("%d jobs: %.2f %% above the bound, at worst %.2f %%", jobs, 100*mean, 100*worst)
		if mean > 0.025 || worst > 0.05 {
			t.Errorf("%d jobs: %.2f %% above the bound, at worst %.2f %%", jobs, 100*mean, 100*worst)
		}
	}
}

// manyJobs returns jobs of 1 to 8 GPUs for four idle GPUs each, in nodes of eight of three
// types.
func manyJobs(jobs int, chance *rand.Rand) (all []*claim, s *dispatch.Snapshot) {
	s = &dispatch.Snapshot{Now: 1e15, Ledger: dispatch.NewLedger(nil)}
	for i := range jobs / 2 {
		n := &cluster.Node{ID: cluster.NodeID(fmt.Sprintf("n%03d", i)), State: cluster.NodeReady}
		for k := range 8 {
			n.GPUs = append(n.GPUs, cluster.GPU{ID: cluster.GPUID(fmt.Sprint(n.ID, "-g", k)), Type: []string{"A100", "RTX 2080 Ti", "T4"}[i%3], SellableMiB: 15_000, MaxShares: 1})
		}
		s.Nodes = append(s.Nodes, n)
		s.Ledger.SetNode(n)
	}
	for i := range jobs {
		onT4 := (1 + 99*chance.Float64()) * float64(time.Hour)
		j := &cluster.Job{ID: cluster.JobID(i + 1), State: cluster.JobPending, Spec: &cluster.Spec{GPUs: 1, GPURange: cluster.GPURange{Min: 1, Max: 8}}, Estimates: []cluster.Estimate{
			{GPUType: "A100", Duration: time.Duration(onT4 / (2 + 8*chance.Float64()))}, {GPUType: "RTX 2080 Ti", Duration: time.Duration(onT4 / (0.5 + 2*chance.Float64()))},
			{GPUType: "T4", Duration: time.Duration(onT4)},
		}}
		c := claimOf(s, j)
		c.curve.exchange = 0.3 * chance.Float64()
		all = append(all, c)
	}
	return all, s
}
