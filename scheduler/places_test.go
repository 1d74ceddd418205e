package scheduler_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler"
	. "github.com/berth-scheduler/berth/scheduler/schedtest"
)

// where sets what a job asks of its nodes.
func where(f func(*cluster.Where)) JobOption {
	return func(j *cluster.Job) {
		if j.Spec.Where == nil {
			j.Spec.Where = &cluster.Where{}
		}
		f(j.Spec.Where)
	}
}

func hosts(list string) cluster.HostList {
	h, err := cluster.ParseHostList(list)
	if err != nil {
		panic(err)
	}
	return h
}

func wholeNodes(w *cluster.Where) { w.Whole = true }

func inside(name string) JobOption { return where(func(w *cluster.Where) { w.Reservation = name }) }

// reserve makes a snapshot's reservations of one of nodes for user 7.
func reserve(name, nodes string, from, lasts time.Duration, gpus ...cluster.GPUID) func(*dispatch.Snapshot) {
	return func(s *dispatch.Snapshot) {
		s.Reservations = append(s.Reservations, &dispatch.Reservation{
			Name: name, Nodes: hosts(nodes), GPUs: gpus, Start: s.Now.Add(from), Duration: lasts, Users: []string{"7"},
		})
	}
}

// TestReservationsToTheMoment: a job may last until a reservation begins and not a
// moment longer, by its time limit or else by what nine in ten take.
func TestReservationsToTheMoment(t *testing.T) {
	t.Parallel()
	const m, h = time.Minute, time.Hour
	alone := func(opts ...JobOption) *cluster.Job { return Job(1, Exclusive, attached(opts...)) }
	soon := reserve("r", "n1", h, h)
	open := reserve("r", "n1", -m, h)
	quiet := func(p *scheduler.Policy) { p.MaxMoves = 0 }
	playScenes(t, []scene{
		{name: "ends just when it begins", nodes: one(a100), snap: soon, waits: []*cluster.Job{alone(Limit(h))}, want: "1@n1-00"},
		{name: "ends a moment later", nodes: one(a100), snap: soon, waits: []*cluster.Job{alone(Limit(h + time.Microsecond))}, pol: quiet, want: ""},
		{name: "a guess counts three times", nodes: one(a100), snap: soon, waits: []*cluster.Job{alone(Lasts(21 * m))}, pol: quiet, want: ""},
		{name: "and just not too long", nodes: one(a100), snap: soon, waits: []*cluster.Job{alone(Lasts(20 * m))}, want: "1@n1-00"},
		{name: "of whom nobody knows anything", nodes: one(a100), snap: soon, waits: []*cluster.Job{alone()}, pol: quiet, want: ""},
		{name: "elsewhere there is none", nodes: one(a100, a100), snap: soon, waits: []*cluster.Job{alone(Limit(2 * h))}, want: "1@n2-00"},
		{name: "its own keeps nobody out who may be inside", nodes: one(a100), snap: open, waits: []*cluster.Job{alone(Limit(3*h), inside("r"), Of(7, 7))}, want: "1@n1-00"},
		{name: "who asks for it lies nowhere else", nodes: one(a100, a100), runs: []lies{held(0, "n1-00", h)}, snap: open, pol: quiet,
			waits: []*cluster.Job{alone(Limit(h), inside("r"), Of(7, 7))}, want: ""},
		{name: "who is not admitted does not", nodes: one(a100), snap: open, pol: quiet, waits: []*cluster.Job{alone(Limit(m), inside("r"), Of(8, 8))}, want: ""},
		{name: "before it opens nobody is inside", nodes: one(a100), snap: soon, pol: quiet, waits: []*cluster.Job{alone(Limit(m), inside("r"), Of(7, 7))}, want: ""},
		{name: "one of single cards leaves the others", nodes: []*cluster.Node{Node("n1", 2, a100)}, snap: reserve("r", "n1", -m, h, "n1-00"),
			waits: []*cluster.Job{alone(Limit(9 * h))}, want: "1@n1-01"},
		{name: "and the cores", nodes: one(a100), snap: reserve("r", "n1", -m, h, "n1-00"), waits: []*cluster.Job{Job(1, GPUs(0), Limit(9*h))}, want: "1@n1"},
		{name: "one of a whole node has its cores as well", nodes: one(a100), snap: open, pol: quiet, waits: []*cluster.Job{Job(1, GPUs(0), Limit(9*h))}, want: ""},
		{name: "cards that are soon kept are used until then", nodes: one(a100, a100), snap: reserve("r", "n2", h, h),
			waits: []*cluster.Job{alone(Limit(h))}, want: "1@n2-00"},
		{name: "a window that has passed is none", nodes: one(a100), snap: reserve("r", "n1", -2*h, h), waits: []*cluster.Job{alone()}, want: "1@n1-00"},
		{name: "excluded nodes are not for it", nodes: one(a100, a100), waits: []*cluster.Job{alone(where(func(w *cluster.Where) { w.Exclude = hosts("n1") }))}, want: "1@n2-00"},
	})
}

// TestSpansByRule: jobs on several nodes, and on whole ones.
func TestSpansByRule(t *testing.T) {
	t.Parallel()
	const m, h = time.Minute, time.Hour
	nodes := func(cards ...int) []*cluster.Node {
		var out []*cluster.Node
		for i, n := range cards {
			out = append(out, Node(cluster.NodeID(fmt.Sprintf("n%d", i+1)), n, a100, Host(16_000, 64<<10)))
		}
		return out
	}
	gang := func(n, gpus int, opts ...JobOption) *cluster.Job {
		return Job(1, Exclusive, GPUs(gpus), onNodes(n), Lasts(10*m), attached(opts...))
	}
	noKeep := func(p *scheduler.Policy) {
		p.KeepCPUMilli, p.KeepMemMiB, p.MaxMoves, p.ShortPart, p.LongPart = 0, 0, 0, 0, 0
	}
	plain := func(id cluster.JobID, cores int64, opts ...JobOption) *cluster.Job {
		return Job(id, GPUs(0), Cores(cores*1000), attached(opts...))
	}
	playScenes(t, []scene{
		{name: "the nodes with the fewest empty cards that are enough", nodes: nodes(4, 2, 3), waits: []*cluster.Job{gang(2, 2)}, want: "1@n2-00+n2-01,n3-00+n3-01"},
		{name: "all or none", nodes: nodes(2, 2), runs: []lies{held(0, "n1-00", h)}, pol: noKeep, waits: []*cluster.Job{gang(2, 2)}, want: ""},
		{name: "whole nodes take every card", nodes: nodes(2, 2), waits: []*cluster.Job{Job(1, GPUs(2), onNodes(1), Lasts(m), where(wholeNodes))}, want: "1@n1-00+n1-01"},
		{name: "of nodes that are empty", nodes: nodes(2, 2), runs: []lies{held(0, "n1-00", h)}, waits: []*cluster.Job{Job(1, GPUs(1), Lasts(m), where(wholeNodes))}, want: "1@n2-00+n2-01"},
		{name: "and have the host memory", nodes: []*cluster.Node{Node("n1", 1, a100, Host(16_000, 8<<10)), Node("n2", 1, a100, Host(16_000, 64<<10))},
			waits: []*cluster.Job{Job(1, HostMem(32<<10), Lasts(m), where(wholeNodes))}, want: "1@n2-00"},
		// The gang waits for node 2 and keeps cores of node 1, which is empty.
		{name: "a node of which cores are kept is not whole", nodes: nodes(1, 1), runs: []lies{held(0, "n2-00", h)}, pol: noKeep,
			waits: []*cluster.Job{gang(2, 1, Waited(m)), Job(2, Lasts(30*m), where(wholeNodes))}, want: ""},
		// Node 1 is clear in 10 minutes, node 2 in 60; the gang can start in 60.
		{name: "its nodes are kept until the last is clear", nodes: nodes(1, 1), runs: []lies{held(0, "n2-00", h)}, pol: noKeep,
			waits: []*cluster.Job{gang(2, 1, Waited(m)), Job(2, Exclusive, Lasts(59*m))}, want: "2@n1-00"},
		{name: "and not beyond", nodes: nodes(1, 1), runs: []lies{held(0, "n2-00", h)}, pol: noKeep,
			waits: []*cluster.Job{gang(2, 1, Waited(m)), Job(2, Exclusive, Lasts(61*m))}, want: ""},
		{name: "nothing is kept for it at first", nodes: nodes(1, 1), runs: []lies{held(0, "n2-00", h)}, pol: noKeep,
			waits: []*cluster.Job{gang(2, 1), Job(2, Exclusive, Lasts(61*m))}, want: "2@n1-00"},
		{name: "whole nodes keep all cores", nodes: nodes(1, 1), runs: []lies{held(0, "n1-00", h), held(1, "n2-00", 2*h)}, pol: noKeep,
			waits: []*cluster.Job{Job(1, Cores(1000), Lasts(m), Waited(m), where(wholeNodes)), plain(2, 8, On("n1"))}, want: ""},
		{name: "of that one node", nodes: nodes(1, 1), runs: []lies{held(0, "n1-00", h), held(1, "n2-00", 2*h)}, pol: noKeep,
			waits: []*cluster.Job{Job(1, Cores(1000), Lasts(m), Waited(m), where(wholeNodes)), plain(2, 8, On("n2"))}, want: "2@n2"},
		{name: "the nodes that it names, all of them", nodes: nodes(2, 2, 2), waits: []*cluster.Job{gang(2, 1, where(func(w *cluster.Where) { w.Nodes = hosts("n[2-3]") }))}, want: "1@n2-00,n3-00"},
		{name: "and not some", nodes: nodes(2, 1, 2), runs: []lies{held(0, "n2-00", h)}, pol: noKeep,
			waits: []*cluster.Job{gang(2, 1, where(func(w *cluster.Where) { w.Nodes = hosts("n[2-3]") }))}, want: ""},
	})
}

// TestGangsBesideEachOther: which NUMA groups a gang gets, and for how long it waits
// for one. The node has two groups of four.
func TestGangsBesideEachOther(t *testing.T) {
	t.Parallel()
	const m, h = time.Minute, time.Hour
	node := func() []*cluster.Node { return []*cluster.Node{Node("n1", 8, a100, sockets(4))} }
	busy := func(cards ...int) (out []lies) {
		for i, c := range cards {
			out = append(out, held(i, GPU("n1", c), 9*h))
		}
		return out
	}
	gang := func(n int, d time.Duration, opts ...JobOption) *cluster.Job {
		return Job(1, Exclusive, GPUs(n), Lasts(d), attached(opts...))
	}
	noMoves := func(p *scheduler.Policy) { p.MaxMoves = 0 }
	playScenes(t, []scene{
		{name: "the smaller hole", nodes: node(), runs: busy(0, 4, 5), waits: []*cluster.Job{gang(2, h)}, want: "1@n1-06+n1-07"},
		{name: "the larger if the smaller does not do", nodes: node(), runs: busy(0, 4, 5), waits: []*cluster.Job{gang(3, h)}, want: "1@n1-01+n1-02+n1-03"},
		{name: "too wide for any: as few groups as will do, the largest first", nodes: node(), runs: busy(0), waits: []*cluster.Job{gang(5, h)}, want: "1@n1-01+n1-04+n1-05+n1-06+n1-07"},
		{name: "it waits a tenth of its run", nodes: node(), runs: busy(0, 1, 2, 4, 5, 6), pol: noMoves, waits: []*cluster.Job{gang(2, 50*m, Waited(5*m-time.Second))}, want: ""},
		{name: "and no longer", nodes: node(), runs: busy(0, 1, 2, 4, 5, 6), waits: []*cluster.Job{gang(2, 50*m, Waited(5*m))}, want: "1@n1-03+n1-07"},
		{name: "of a long run NearAge", nodes: node(), runs: busy(0, 1, 2, 4, 5, 6), pol: noMoves, waits: []*cluster.Job{gang(2, 100*h, Waited(10*m-time.Second))}, want: ""},
		{name: "and no longer either", nodes: node(), runs: busy(0, 1, 2, 4, 5, 6), waits: []*cluster.Job{gang(2, 100*h, Waited(10*m))}, want: "1@n1-03+n1-07"},
	})
}
