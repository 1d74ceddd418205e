package place

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/cluster/draws"
	"github.com/berth-scheduler/berth/scheduler"
	"github.com/berth-scheduler/berth/scheduler/policies/mirror"
	"github.com/berth-scheduler/berth/scheduler/policies/scene"
	"github.com/berth-scheduler/berth/scheduler/rules"
	. "github.com/berth-scheduler/berth/scheduler/schedtest"
)

var _ = draws.Fixed()

const bigCard = "A100-SXM4-80GB"

// naiveFGD is algorithm 1 as it is written: for every job the measure of each
// node as it is and as it would be, for each of its cards.
type naiveFGD struct{ fgd }

func newNaiveFGD(p *scene.Scene) scene.Rule { return &naiveFGD{*newFGD(p, nil).(*fgd)} }

func (f *naiveFGD) Choose(p *scene.Scene, t *scene.Task) []int32 {
	delta := func(gi int32, k *want, cards []int32) int64 {
		f.version[gi]++ // nothing is remembered
		return f.delta(p, gi, k, cards)
	}
	var best []int32
	top := int8(-1)
	for gi := range p.Fleet.Groups {
		g := &p.Fleet.Groups[gi]
		if !p.MayHold(t, int32(gi)) {
			continue
		}
		k := wantOf(t, int(g.Class))
		if t.GPUs > 1 || k.share.Exclusive {
			if cards := p.Pick(t, int32(gi), p.Fuller); cards != nil {
				if got := score(delta(int32(gi), &k, cards)); got > top {
					best, top = p.Keep(cards), got
				}
			}
			continue
		}
		for _, ci := range g.Cards {
			if p.Fits(t, ci) {
				if got := score(delta(int32(gi), &k, []int32{ci})); got > top {
					best, top = []int32{ci}, got
				}
			}
		}
	}
	return best
}

// world is a scene in which jobs start as a rule chooses, by id.
type world struct {
	*scene.Scene
	rule scene.Rule
}

func sceneOf(s *dispatch.Snapshot) *world {
	w := &world{Scene: scene.New(s, s.Ledger.Clone(), &scene.Settings{Pol: rules.Default()}, &scene.Memory{})}
	w.rule = newFGD(w.Scene, nil)
	w.Scene.Rule = w.rule
	return w
}

// start starts a task on cards.
func (w *world) start(t *scene.Task, cards []int32) {
	h := w.Fleet.Hosts[w.Fleet.Groups[w.Fleet.Cards[cards[0]].Group].Host]
	b := &cluster.Berth{Node: h.Node.ID, CPUMilli: t.CPU, MemMiB: t.Mem}
	for _, ci := range cards {
		b.GPUs = append(b.GPUs, cluster.GPUShare{GPU: w.Fleet.Cards[ci].Use.ID, Share: t.Needs[w.Fleet.Groups[w.Fleet.Cards[ci].Group].Class].Share})
	}
	w.Fleet.Start(mirror.Run{Job: t.Job, Berth: b, Fresh: true})
}

func drawWorld(t *rapid.T) *World {
	var nodes []*cluster.Node
	for i := range rapid.IntRange(1, 9).Draw(t, "nodes") {
		nodes = append(nodes, Node(cluster.NodeID(fmt.Sprintf("n%d", i)), rapid.IntRange(1, 4).Draw(t, "gpus"),
			rapid.SampledFrom([]string{bigCard, "T4"}).Draw(t, "type"), Host(rapid.Int64Range(2, 16).Draw(t, "cores")*1000, 64<<10)))
	}
	w := NewWorld(nodes)
	for id := range rapid.IntRange(1, 60).Draw(t, "jobs") {
		j := Job(cluster.JobID(id+1), Mem(rapid.Int64Range(1, 14000).Draw(t, "mem")), Util(rapid.Int64Range(1, 1000).Draw(t, "milli")),
			Cores(rapid.Int64Range(0, 3).Draw(t, "cores")*700), GPUs(rapid.SampledFrom([]int{1, 1, 1, 1, 2, 3}).Draw(t, "gpus")),
			Lasts(time.Duration(rapid.IntRange(1, 9).Draw(t, "hours"))*time.Hour))
		j.Spec.Exclusive = rapid.IntRange(0, 4).Draw(t, "alone") == 0
		w.Submit(j)
	}
	return w
}

// TestIndexEqualsNaive: the index finds what asking every card finds.
func TestIndexEqualsNaive(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := sceneOf(drawWorld(t).Snapshot())
		slow := newNaiveFGD(w.Scene)
		for _, task := range w.Tasks {
			got, want := w.rule.Choose(w.Scene, task), slow.Choose(w.Scene, task)
			if !slices.Equal(got, want) {
				t.Fatalf("job %d goes on cards %v, naively %v", task.ID, got, want)
			}
			if len(got) > 0 {
				w.start(task, got)
			}
		}
	})
}

// fgdBench is 1,250 or 125 nodes of eight cards with jobs for half of them
// running, and a queue.
func fgdBench(gpus, jobs int) *dispatch.Snapshot {
	var nodes []*cluster.Node
	for i := range gpus / 8 {
		nodes = append(nodes, Node(cluster.NodeID(fmt.Sprintf("n%05d", i)), 8, bigCard, Host(256_000, 2<<20)))
	}
	w := NewWorld(nodes)
	mix := func(i int) int64 { return int64(uint32(i)*2654435761>>7) & 0xffff }
	add := func(from, n int) {
		for id := from; id < from+n; id++ {
			j := Job(cluster.JobID(id), Predict(bigCard, 1000+mix(id)%40000, 50+mix(id+7)%700, time.Duration(60+mix(3*id)%7200)*time.Second))
			if id%53 == 0 {
				Exclusive(j)
			}
			if id%301 == 0 {
				GPUs(4)(j)
			}
			w.Submit(j)
		}
	}
	add(1, gpus)
	w.Apply(new(scheduler.Schedule(w.Snapshot(), scheduler.Default())))
	w.Advance(10 * time.Minute)
	add(gpus+1, jobs)
	return w.Snapshot()
}

func BenchmarkFGD(b *testing.B) {
	for _, c := range []struct {
		name       string
		gpus, jobs int
		naive      bool
	}{
		{"index/1000gpus", 1000, 1000, false},
		{"naive/1000gpus", 1000, 1000, true},
		{"index/10000gpus", 10000, 10000, false},
		{"naive/10000gpus", 10000, 200, true},
	} {
		b.Run(c.name, func(b *testing.B) {
			snap := fgdBench(c.gpus, c.jobs)
			starts := 0
			for b.Loop() {
				w := sceneOf(snap)
				if c.naive {
					w.rule = newNaiveFGD(w.Scene)
				}
				starts = 0
				for _, task := range w.Tasks {
					if cards := w.rule.Choose(w.Scene, task); len(cards) > 0 {
						w.start(task, cards)
						starts++
					}
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/float64(c.jobs), "us/job")
			b.ReportMetric(float64(starts), "starts")
		})
	}
}
