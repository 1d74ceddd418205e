package policies

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/scheduler"
	. "github.com/berth-scheduler/berth/scheduler/schedtest"
)

const bigCard = "A100-SXM4-80GB"

// naiveFGD is algorithm 1 as it is written: for every job the measure of each
// node as it is and as it would be, for each of its cards.
type naiveFGD struct{ fgd }

func newNaiveFGD(p *pass) placer { return &naiveFGD{*newFGD(p).(*fgd)} }

func (f *naiveFGD) choose(p *pass, t *task) []int32 {
	delta := func(gi int32, k *want, cards []int32) int64 {
		f.version[gi]++ // nothing is remembered
		return f.delta(p, gi, k, cards)
	}
	var best []int32
	top := int8(-1)
	for gi := range p.f.groups {
		g := &p.f.groups[gi]
		if !p.mayHold(t, int32(gi)) {
			continue
		}
		k := wantOf(t, int(g.class))
		if t.gpus > 1 || k.share.Exclusive {
			if cards := p.pick(t, int32(gi), p.fuller); cards != nil {
				if got := score(delta(int32(gi), &k, cards)); got > top {
					best, top = p.keep(cards), got
				}
			}
			continue
		}
		for _, ci := range g.cards {
			if p.fits(t, ci) {
				if got := score(delta(int32(gi), &k, []int32{ci})); got > top {
					best, top = []int32{ci}, got
				}
			}
		}
	}
	return best
}

func engineOf(t interface{ Fatal(...any) }, name string, make func(*pass) placer) *engine {
	p, err := New(name, Options{})
	if err != nil {
		t.Fatal(err)
	}
	e := *p.(*engine)
	if make != nil {
		e.place.make = make
	}
	return &e
}

func drawFGDWorld(t *rapid.T) *World {
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
	fast, slow := engineOf(t, "fgd", nil), engineOf(t, "fgd", newNaiveFGD)
	rapid.Check(t, func(t *rapid.T) {
		w := drawFGDWorld(t)
		for range 2 {
			got, want := fast.Plan(w.Snapshot()), slow.Plan(w.Snapshot())
			if len(got.Starts) != len(want.Starts) {
				t.Fatalf("%d starts, naively %d", len(got.Starts), len(want.Starts))
			}
			for i := range got.Starts {
				g, w := &got.Starts[i], &want.Starts[i]
				if g.Job != w.Job || fmt.Sprint(g.Berth) != fmt.Sprint(w.Berth) {
					t.Fatalf("start %d is %d on %v, naively %d on %v", i, g.Job, g.Berth, w.Job, w.Berth)
				}
			}
			w.Apply(&got)
			w.Advance(5 * time.Hour)
		}
	})
}

// fgdBench is 1,250 or 125 nodes of eight cards with jobs for half of them
// running, and a queue.
func fgdBench(gpus, jobs int) *cluster.Snapshot {
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
	plan := scheduler.Schedule(w.Snapshot(), scheduler.Default())
	w.Apply(&plan)
	w.Advance(10 * time.Minute)
	add(gpus+1, jobs)
	return w.Snapshot()
}

func BenchmarkFGD(b *testing.B) {
	for _, c := range []struct {
		name       string
		gpus, jobs int
		make       func(*pass) placer
	}{
		{"index/1000gpus", 1000, 1000, nil},
		{"naive/1000gpus", 1000, 1000, newNaiveFGD},
		{"index/10000gpus", 10000, 10000, nil},
		{"naive/10000gpus", 10000, 200, newNaiveFGD},
		{"one/index/10000gpus", 10000, 1, nil},
		{"one/naive/10000gpus", 10000, 1, newNaiveFGD},
	} {
		b.Run(c.name, func(b *testing.B) {
			snap := fgdBench(c.gpus, c.jobs)
			e := engineOf(b, "fgd", c.make)
			starts := 0
			for b.Loop() {
				starts = len(e.Plan(snap).Starts)
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/float64(c.jobs), "us/job")
			b.ReportMetric(float64(starts), "starts")
		})
	}
}

// TestArrivalsEqualPlans: jobs that come one by one are laid where a plan for
// the whole snapshot lays each.
func TestArrivalsEqualPlans(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"firstfit", "bestfit", "random", "fgd", "ffd"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) {
				drawn := drawFGDWorld(t)
				w := NewWorld(drawn.Nodes)
				pol, err := New(name, Options{Seed: 7})
				if err != nil {
					t.Fatal(err)
				}
				short, ok := pol.(interface {
					Arrivals([]*cluster.Node, *cluster.Ledger) (scheduler.Offers, bool)
				}).Arrivals(w.Nodes, w.Ledg)
				if !ok {
					t.Fatal("it knows no short way")
				}
				for id := range cluster.JobID(len(drawn.Jobs)) {
					j := drawn.Jobs[id+1]
					if rapid.IntRange(0, 7).Draw(t, "plain") == 0 {
						GPUs(0)(j)
					}
					w.Clock = w.Clock.Add(time.Second)
					w.Submit(j)
					s := w.Snapshot()
					p := pol.Plan(s)
					got, ok := short.Offer(s.Now, s.Index, j)
					if ok != (len(p.Starts) == 1) || ok && fmt.Sprint(p.Starts[0]) != fmt.Sprint(got) {
						t.Fatalf("job %d: planned %+v, offered %t %+v", j.ID, p.Starts, ok, got)
					}
					p.Moves = nil
					w.Apply(&p)
					if !ok {
						delete(w.Jobs, j.ID)
					}
				}
			})
		})
	}
}
