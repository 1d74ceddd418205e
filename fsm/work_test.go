package fsm

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/cluster/work"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

// costOf is what one of the commands costs that a machine applies, each in an entry
// of its own.
func (m *machine) costOf(cmds ...*logv1.Command) work.Cost {
	m.t.Helper()
	var entries [][]byte
	for _, c := range cmds {
		entries = append(entries, encode(m.t, testTerm, m.now, c))
	}
	m.f.Hash()
	return work.Of(len(entries), func() {
		defer m.f.Hash() // what changed is hashed then, if it was not on the way
		for _, data := range entries {
			m.index++
			if rs := applyTo(m.t, m.f, m.index, testTerm, data); rs[0].Err != nil {
				m.t.Fatalf("%v", rs[0].Err)
			}
		}
	})
}

// TestWorkOfRegister: a node registers at the same cost among many, for the first
// time and again.
func TestWorkOfRegister(t *testing.T) {
	for _, boots := range []int{1, 2} {
		work.Steady(t, 100, func(n int) work.Cost {
			m := newMachine(t)
			m.must(initCmd("c1", 1_000_000))
			var c work.Cost
			for boot := range boots {
				var cmds []*logv1.Command
				for i := range n {
					cmds = append(cmds, registerCmd(node(cluster.NodeID(fmt.Sprintf("n%05d", i)), fmt.Sprint("boot", boot), 8)))
				}
				c = m.costOf(cmds...)
			}
			return c
		})
	}
}

// TestWorkOfSubmit: a job comes at the same cost to a long queue.
func TestWorkOfSubmit(t *testing.T) {
	work.Steady(t, perEntry, func(n int) work.Cost {
		m := farm(t, 10, n)
		var cmds []*logv1.Command
		for i := range 100 {
			cmds = append(cmds, submitCmd(cluster.JobID(n+1+i), fmt.Sprintf("request-%09d", i), 1000, spec(1)))
		}
		return m.costOf(cmds...)
	})
}

// TestWorkOfArray: an array costs the same whatever its size, when it comes and when
// all of it is cancelled.
func TestWorkOfArray(t *testing.T) {
	array := func(n int) (*machine, *logv1.Command) {
		m, s := farm(t, 10, 0), spec(1)
		var err error
		if s.Array, err = cluster.ParseArray(fmt.Sprintf("0-%d", n-1)); err != nil {
			t.Fatal(err)
		}
		return m, submitCmd(1, "request-of-an-array", 1000, s)
	}
	work.Steady(t, 1000, func(n int) work.Cost {
		m, submit := array(n)
		return m.costOf(submit)
	})
	work.Steady(t, 1000, func(n int) work.Cost {
		m, submit := array(n)
		m.must(submit)
		return m.costOf(tasksCmd(changeCmd(1, "", logv1.TaskChange_TASK_CHANGE_CANCEL)))
	})
}

// TestWorkOfStartAndEnd: of jobs that share a cluster with more and more others, each
// starts and ends at the same cost.
func TestWorkOfStartAndEnd(t *testing.T) {
	const few = 200
	both := func(n int) (start, end work.Cost) {
		m := farm(t, n/20, n) // 24 fit on a node
		var starts, ends []*logv1.Command
		for i := range n {
			g := cluster.GPUID(fmt.Sprintf("n%04d-g%d", i/24, i/3%8))
			starts = append(starts, planCmd(dispatch.Plan{Starts: []dispatch.Start{m.startOf(cluster.JobID(i+1), share1(g, 13_000, 300))}}))
		}
		start = m.costOf(starts...)
		for i := range n {
			ends = append(ends, reportCmd(m.reportOf(cluster.JobID(i+1), cluster.JobCompleted)))
		}
		return start, m.costOf(ends...)
	}
	work.Steady(t, few, func(n int) work.Cost { c, _ := both(n); return c })
	work.Steady(t, few, func(n int) work.Cost { _, c := both(n); return c })
}

// TestWorkOfReading: a page costs the same of a long list, and all of it the same a job.
func TestWorkOfReading(t *testing.T) {
	work.Steady(t, perEntry, func(n int) work.Cost {
		m := farm(t, 10, n)
		return work.Of(100, func() { m.f.Jobs(Query{After: cluster.JobID(n / 2), Limit: 100}) })
	})
	work.Steady(t, perEntry, func(n int) work.Cost {
		m := farm(t, 10, n)
		return work.Of(n, func() { m.f.Jobs(Query{}) })
	})
}

// TestWorkOfSnapshot: a job takes so many bytes of a snapshot, and so much to write it.
func TestWorkOfSnapshot(t *testing.T) {
	work.Steady(t, perEntry, func(n int) work.Cost {
		m, size := farm(t, 10, n), 0
		c := work.Of(n, func() { size = len(snapshotOf(t, m.f)) })
		c.Counted = float64(size) / float64(n)
		return c
	})
}

// TestWorkOfWatching: who watches is told of one change at the same cost, however many
// jobs there are.
func TestWorkOfWatching(t *testing.T) {
	work.Steady(t, perEntry, func(n int) work.Cost {
		m := farm(t, 10, n)
		c, told := work.Cost{}, 0
		for i := range 10 {
			before := m.index
			m.must(cancelCmd(cluster.JobID(i+1), 0))
			one := work.Of(10, func() { cs, _, _ := m.f.Changes(before); told += len(cs) })
			c.Objects, c.Bytes = c.Objects+one.Objects, c.Bytes+one.Bytes
		}
		c.Counted = float64(told) / 10
		return c
	})
}

// TestWorkOfLooking: who asks for the nodes while none has changed is given what was
// given before, and what changes of a ledger that a pass has copied is copied alone.
func TestWorkOfLooking(t *testing.T) {
	work.Steady(t, 100, func(n int) work.Cost {
		m := farm(t, n, 0)
		want := m.f.Nodes()
		return work.Of(10, func() {
			for range 10 {
				if got := m.f.Nodes(); len(got) != n || &got[0] != &want[0] {
					t.Fatal("the nodes were listed anew")
				}
			}
		})
	})
	work.Steady(t, 100, func(n int) work.Cost {
		snap := farm(t, n, 0).f.SchedulerSnapshot()
		g := snap.Nodes[0].GPUs[0].ID
		return work.Of(1, func() {
			snap.Ledger.Take(&cluster.Berth{Node: snap.Nodes[0].ID, GPUs: []cluster.GPUShare{{GPU: g}}})
		})
	})
}

// TestNodesStay: a list of nodes that somebody has is not changed by what happens to
// them, and the next one shows it, in order.
func TestNodesStay(t *testing.T) {
	m := farm(t, 5, 0)
	before := m.f.Nodes()
	at := slices.Clone(before)
	for _, boot := range []string{"again", "once more"} {
		for _, id := range []cluster.NodeID{before[3].ID, before[1].ID, "m-new-" + cluster.NodeID(boot[:1])} {
			m.must(registerCmd(node(id, boot, 2)))
			list := m.f.Nodes()
			i := slices.IndexFunc(list, func(n *cluster.Node) bool { return n.ID == id })
			if i < 0 || list[i].BootID != boot || !slices.IsSortedFunc(list, func(a, b *cluster.Node) int { return strings.Compare(string(a.ID), string(b.ID)) }) {
				t.Fatalf("node %s of boot %s is not in its place among %d", id, boot, len(list))
			}
		}
	}
	if !slices.Equal(before, at) {
		t.Error("a list that was given out has changed")
	}
}
