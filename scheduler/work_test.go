package scheduler_test

import (
	"testing"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/cluster/work"
	"github.com/berth-scheduler/berth/scheduler"
	"github.com/berth-scheduler/berth/scheduler/rules"
	"github.com/berth-scheduler/berth/scheduler/schedtest"
)

// TestWorkOfPass: a pass costs as much a waiting job among many, whether they are new or
// have their places in queues.
func TestWorkOfPass(t *testing.T) {
	for name, world := range map[string]func(nodes, jobs int) *dispatch.Snapshot{
		"new":    func(nodes, jobs int) *dispatch.Snapshot { return benchWorld(nodes, jobs).Snapshot() },
		"queued": backlog,
	} {
		t.Run(name, func(t *testing.T) {
			work.Steady(t, 1000, func(n int) work.Cost {
				snap := world(12, n)
				return work.Of(n, func() { scheduler.Schedule(snap, scheduler.Default()) })
			})
		})
	}
}

// TestWorkOfNeverFits: a submit asks a few nodes, whether there are many or not.
func TestWorkOfNeverFits(t *testing.T) {
	work.Steady(t, 100, func(n int) work.Cost {
		nodes, job := benchNodes(n), schedtest.Job(1, schedtest.GPUs(2))
		return work.Of(10, func() {
			for range 10 {
				if err := rules.NeverFits(nodes, job, scheduler.Default()); err != nil {
					t.Fatal(err)
				}
			}
		})
	})
}

// counted is a view that counts what it is asked.
type counted struct {
	*view
	asked int
}

func (c *counted) Job(id cluster.JobID) (*cluster.Job, bool) { c.asked++; return c.view.Job(id) }
func (c *counted) Node(id cluster.NodeID) (*cluster.Node, bool) {
	c.asked++
	return c.view.Node(id)
}
func (c *counted) Queue(g cluster.GPUID) []dispatch.Waiter { c.asked++; return c.view.Queue(g) }

// TestWorkOfRelease: whoever comes next on a card is found there, however many cards
// there are and jobs wait.
func TestWorkOfRelease(t *testing.T) {
	work.Steady(t, 12, func(n int) work.Cost {
		snap := shortCome(n, 60*n)
		v := &counted{view: newView(snap)}
		ends := snap.Running[:50]
		for _, j := range ends { // what a ledger shares with its copies is copied once, for the pass that copied it
			snap.Ledger.Release(&j.Last().Berth)
			snap.Ledger.Take(&j.Last().Berth)
		}
		c := work.Of(len(ends), func() {
			for _, j := range ends {
				berth := &j.Last().Berth
				snap.Ledger.Release(berth)
				var ids []cluster.GPUID
				for _, g := range berth.GPUs {
					ids = append(ids, g.GPU)
				}
				scheduler.OnRelease(v, ids, scheduler.Default())
				snap.Ledger.Take(berth)
			}
		})
		c.Counted = float64(v.asked) / float64(len(ends))
		return c
	})
}
