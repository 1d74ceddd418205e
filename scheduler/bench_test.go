package scheduler_test

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler"
	"github.com/berth-scheduler/berth/scheduler/schedtest"
)

// benchTypes are the cards of the benchmarks' nodes, in turn.
func benchTypes(i int) string {
	return [...]string{"A100-SXM4-40GB", "A100-SXM4-80GB", "H100-SXM5-80GB", "T4"}[i%4]
}

// mix is a repeatable stream of numbers; rand would do, but the shape of the
// benchmark should not move with the Go version.
func mix(i int) int { return int(uint32(i)*2654435761>>7) & 0xffff }

func benchNodes(n int) []*cluster.Node {
	nodes := make([]*cluster.Node, n)
	for i := range nodes {
		nodes[i] = schedtest.Node(cluster.NodeID(fmt.Sprintf("n%05d", i)), 8, benchTypes(i), schedtest.Host(256_000, 2<<20))
	}
	return nodes
}

func benchJob(id int) *cluster.Job {
	m, d := int64(1000+mix(id)%30000), time.Duration(60+mix(3*id+1)%7200)*time.Second
	opts := []schedtest.JobOption{
		schedtest.Predict("A100-SXM4-40GB", m, int64(100+mix(id+7)%900), d),
		schedtest.Predict("A100-SXM4-80GB", m, int64(100+mix(id+7)%850), d*9/10),
		schedtest.Predict("H100-SXM5-80GB", m, int64(80+mix(id+7)%600), d*6/10),
		schedtest.Predict("T4", m, 1000, 4*d),
	}
	switch {
	case id%500 == 0:
		opts = append(opts, schedtest.GPUs(8))
	case id%101 == 0:
		opts = append(opts, schedtest.GPUs(2))
	case id%53 == 0:
		opts = append(opts, schedtest.Exclusive)
	}
	return schedtest.Job(cluster.JobID(id), opts...)
}

// benchWorld is nodes with jobs waiting, none placed.
func benchWorld(nodes, jobs int) *schedtest.World {
	w := schedtest.NewWorld(benchNodes(nodes))
	for id := 1; id <= jobs; id++ {
		w.Submit(benchJob(id))
	}
	return w
}

// backlog is a world in which everybody has a place or a queue.
func backlog(nodes, jobs int) *dispatch.Snapshot { return settle(benchWorld(nodes, jobs), jobs) }

func settle(w *schedtest.World, jobs int) *dispatch.Snapshot {
	pol := scheduler.Default()
	pol.MaxMoves = jobs
	for range 3 {
		p := scheduler.Schedule(w.Snapshot(), pol)
		applyFast(w, &p)
	}
	w.Clock = w.Clock.Add(time.Second)
	return w.Snapshot()
}

// shortCome is a backlog to which four times as many short jobs came as there are GPUs: they
// head the queues, and are those whom the fast path starts.
func shortCome(nodes, jobs int) *dispatch.Snapshot {
	w := benchWorld(nodes, jobs)
	settle(w, jobs)
	for id := jobs + 1; id <= jobs+32*nodes; id++ {
		j := benchJob(id)
		for i := range j.Estimates {
			j.Estimates[i].Duration = time.Duration(20+mix(5*id)%40) * time.Second
		}
		w.Submit(j)
	}
	return settle(w, jobs)
}

// applyFast is World.Apply without a slice copy for each move.
func applyFast(w *schedtest.World, p *dispatch.Plan) {
	moves := p.Moves
	p.Moves = nil
	w.Apply(p)
	for _, m := range moves {
		j := w.Jobs[m.Job]
		if j.Queue != "" {
			w.Apply(&dispatch.Plan{Moves: []dispatch.QueueMove{m}})
			continue
		}
		j.State, j.Queue, j.EstStart = cluster.JobQueued, m.GPU, m.EstStart
		w.Queues[m.GPU] = append(w.Queues[m.GPU], dispatch.Waiter{Job: m.Job, Rank: m.Rank})
	}
	for _, q := range w.Queues {
		slices.SortFunc(q, func(a, b dispatch.Waiter) int { return cmp.Or(cmp.Compare(a.Rank, b.Rank), cmp.Compare(a.Job, b.Job)) })
	}
}

func BenchmarkSchedulePending(b *testing.B) {
	for _, n := range []struct{ nodes, jobs int }{{10, 800}, {100, 8000}, {1250, 100_000}} {
		b.Run(fmt.Sprintf("gpus=%d/jobs=%d", 8*n.nodes, n.jobs), func(b *testing.B) {
			snap := benchWorld(n.nodes, n.jobs).Snapshot()
			b.ReportAllocs()
			for b.Loop() {
				p := scheduler.Schedule(snap, scheduler.Default())
				if len(p.Starts) == 0 {
					b.Fatal("nothing starts")
				}
			}
		})
	}
}

func BenchmarkScheduleBacklog(b *testing.B) {
	for _, n := range []struct{ nodes, jobs int }{{10, 800}, {100, 8000}, {1250, 125_000}} {
		b.Run(fmt.Sprintf("gpus=%d/jobs=%d", 8*n.nodes, n.jobs), func(b *testing.B) {
			snap := backlog(n.nodes, n.jobs)
			b.ReportAllocs()
			for b.Loop() {
				p := scheduler.Schedule(snap, scheduler.Default())
				if len(p.Unplaced) == 0 {
					b.Fatal("nothing waits")
				}
			}
			b.ReportMetric(float64(len(snap.Waiting)), "waiting")
		})
	}
}

// BenchmarkScheduleArrivals is the pass over jobs that came to a backlog, which looks at
// nobody else who waits.
func BenchmarkScheduleArrivals(b *testing.B) {
	snap := backlog(1250, 125_000)
	for _, jobs := range []int{1, 1000} {
		b.Run(fmt.Sprintf("jobs=%d", jobs), func(b *testing.B) {
			snap.Waiting = nil
			for i := range jobs {
				j := benchJob(200_000 + i)
				j.State = cluster.JobPending
				snap.Waiting = append(snap.Waiting, j)
			}
			b.ReportAllocs()
			for b.Loop() {
				if p := scheduler.Schedule(snap, scheduler.Default()); len(p.Starts)+len(p.Moves) == 0 {
					b.Fatal("nobody gets a place or a queue")
				}
			}
		})
	}
}

// BenchmarkScheduleOldBacklog is the worst case for fairness: every head of a
// queue has waited so long that it may not be overtaken.
func BenchmarkScheduleOldBacklog(b *testing.B) {
	snap := backlog(1250, 125_000)
	snap.Now = snap.Now.Add(30 * time.Hour)
	b.ReportAllocs()
	for b.Loop() {
		p := scheduler.Schedule(snap, scheduler.Default())
		if len(p.Unplaced) == 0 {
			b.Fatal("nothing waits")
		}
	}
}

// BenchmarkScheduleBurst is 8,000 one-GPU tasks for 1,000 empty nodes.
func BenchmarkScheduleBurst(b *testing.B) {
	for _, nodes := range []int{10, 100, 1000} {
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) {
			w := schedtest.NewWorld(benchNodes(nodes))
			for id := 1; id <= 8*nodes; id++ {
				w.Submit(schedtest.Job(cluster.JobID(id), schedtest.Exclusive))
			}
			snap := w.Snapshot()
			b.ReportAllocs()
			for b.Loop() {
				p := scheduler.Schedule(snap, scheduler.Default())
				if len(p.Starts) != 8*nodes {
					b.Fatalf("%d start, want %d", len(p.Starts), 8*nodes)
				}
			}
		})
	}
}

// view reads a snapshot the way the state machine is read: by maps.
type view struct {
	*dispatch.Snapshot
	jobs  map[cluster.JobID]*cluster.Job
	nodes map[cluster.NodeID]*cluster.Node
}

func newView(s *dispatch.Snapshot) *view {
	v := &view{s, map[cluster.JobID]*cluster.Job{}, map[cluster.NodeID]*cluster.Node{}}
	for _, j := range append(s.Waiting[:len(s.Waiting):len(s.Waiting)], s.Running...) {
		v.jobs[j.ID] = j
	}
	for _, n := range s.Nodes {
		v.nodes[n.ID] = n
	}
	return v
}

func (v *view) Now() cluster.Time                            { return v.Snapshot.Now }
func (v *view) Index() uint64                                { return v.Snapshot.Index }
func (v *view) Ledger() *dispatch.Ledger                     { return v.Snapshot.Ledger }
func (v *view) Job(id cluster.JobID) (*cluster.Job, bool)    { j, ok := v.jobs[id]; return j, ok }
func (v *view) Node(id cluster.NodeID) (*cluster.Node, bool) { n, ok := v.nodes[id]; return n, ok }
func (v *view) Queue(g cluster.GPUID) []dispatch.Waiter      { return v.Queues[g] }

// BenchmarkOnRelease ends one job after another of a full cluster and asks
// who comes next: jobs that shared a GPU, that had one alone, and all eight of a node. It fails when
// nobody is ever started, as then it would not measure what it is for.
func BenchmarkOnRelease(b *testing.B) {
	snap := shortCome(1250, 85_000)
	v := newView(snap)
	for _, c := range []struct {
		name string
		n    int
		of   func(cluster.Share) bool
	}{
		{"share", 1, func(s cluster.Share) bool { return !s.Exclusive }},
		{"gpus=1", 1, func(s cluster.Share) bool { return s.Exclusive }},
		{"gpus=8", 8, func(cluster.Share) bool { return true }},
	} {
		n := c.n
		b.Run(c.name, func(b *testing.B) {
			running := slices.DeleteFunc(slices.Clone(snap.Running), func(j *cluster.Job) bool {
				return j.Spec.GPUs != n || !c.of(j.Last().Berth.GPUs[0].Share)
			})
			i, starts := 0, 0
			b.ReportAllocs()
			for b.Loop() {
				berth := &running[i%len(running)].Last().Berth
				i++
				snap.Ledger.Release(berth)
				ids := make([]cluster.GPUID, 0, n)
				for _, g := range berth.GPUs {
					ids = append(ids, g.GPU)
				}
				p := scheduler.OnRelease(v, ids, scheduler.Default())
				starts += len(p.Starts)
				snap.Ledger.Take(berth)
			}
			if i > 1000 && starts == 0 {
				b.Fatal("nobody was started: the queues hold nobody whom the fast path starts")
			}
			b.ReportMetric(float64(starts)/float64(i), "starts/op")
		})
	}
}

// BenchmarkScheduleKnowing is BenchmarkSchedulePending where much was learned
// of sharing: a thousand kinds of jobs, of which every other pair would slow
// somebody down too much.
func BenchmarkScheduleKnowing(b *testing.B) {
	const kinds = 1000
	for _, n := range []struct{ nodes, jobs int }{{100, 8000}, {1250, 100_000}} {
		b.Run(fmt.Sprintf("gpus=%d/jobs=%d", 8*n.nodes, n.jobs), func(b *testing.B) {
			w := benchWorld(n.nodes, n.jobs)
			w.Know = &dispatch.Interference{MaxBend: 1.6, BandwidthPerUtil: 0.5, Jobs: map[string]dispatch.Temper{}}
			for k := range kinds {
				w.Know.Jobs[fmt.Sprintf("s%d", k)] = dispatch.Temper{Self: uint64(k) + 1}
			}
			for id, j := range w.Jobs {
				j.Spec.Signature = fmt.Sprintf("s%d", mix(int(id))%kinds)
			}
			for i := range 4 {
				s := dispatch.Sharing{GPUType: benchTypes(i), Switch: 0.02, Compute: 1, Effects: map[uint64]dispatch.Effect{}}
				for k := range kinds {
					s.Effects[uint64(k)+1] = dispatch.Effect{Sensitivity: float64(mix(k)%100)/200 - 0.1, Aggression: float64(mix(2*k+1)%100)/200 - 0.1}
				}
				w.Know.Cards = append(w.Know.Cards, s)
			}
			snap := w.Snapshot()
			b.ReportAllocs()
			for b.Loop() {
				if p := scheduler.Schedule(snap, scheduler.Default()); len(p.Starts) == 0 {
					b.Fatal("nothing starts")
				}
			}
		})
	}
}
