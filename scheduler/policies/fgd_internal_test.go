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

// TestFragment works the measure of Weng et al., section 4.2, out by hand: a
// node with two cards of which 400 and 700 thousandths are idle.
func TestFragment(t *testing.T) {
	t.Parallel()
	left := hostLeft{4000, 16 << 10}
	for _, c := range []struct {
		name        string
		m           coarse
		cards, good int64
		want        int64
	}{
		{"half a card: the 400 are lost", coarse{gpus: 1, milli: 10}, 1, 700, 400},
		{"a third: nothing is lost", coarse{gpus: 1, milli: 7}, 2, 1100, 0},
		{"a whole card: all is lost", coarse{gpus: 1, excl: true}, 0, 0, 1100},
		{"two halves: one card is not enough", coarse{gpus: 2, milli: 10}, 1, 700, 1100},
		{"two thirds of ten: both are", coarse{gpus: 2, milli: 7}, 2, 1100, 0},
		{"too many cores", coarse{gpus: 1, milli: 7, cpu: 5}, 2, 1100, 1100},
		{"too much memory", coarse{gpus: 1, milli: 7, host: 5}, 2, 1100, 1100},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if got := fragment(&target{coarse: c.m}, left, 1100, c.cards, c.good); got != c.want {
				t.Errorf("fragment %d, want %d", got, c.want)
			}
		})
	}
}

func TestScore(t *testing.T) {
	t.Parallel()
	// int(100/(1+e^Δ)): 46.26 at 0.15, 26.89 at 1, 73.11 at -1.
	for delta, want := range map[int64]int8{0: 50, 150: 46, 1000: 26, -1000: 73, 100_000: 0, -100_000: 100} {
		if got := score(delta); got != want {
			t.Errorf("score(%d) = %d, want %d", delta, got, want)
		}
	}
}

func TestPopular(t *testing.T) {
	t.Parallel()
	count := map[coarse]int64{{milli: 1}: 90, {milli: 2}: 5, {milli: 3}: 4, {milli: 4}: 1}
	if got, kept := popular(count); len(got) != 2 || kept != 95 || got[0].milli != 1 || got[1].milli != 2 {
		t.Errorf("kept %d of %v, want the first two shapes, 95 jobs", kept, got)
	}
	many := map[coarse]int64{}
	for i := range int64(100) {
		many[coarse{milli: i}] = 1
	}
	if got, kept := popular(many); len(got) != maxTargets || kept != maxTargets || got[31].milli != 31 {
		t.Errorf("kept %d of %d shapes, want the first %d", kept, len(got), maxTargets)
	}
}

// naiveFGD is algorithm 1 as it is written: for every job the measure of each
// node as it is and as it would be, for each of its cards.
type naiveFGD struct{ fgd }

func newNaiveFGD(p *pass) placer { return &naiveFGD{*newFGD(p).(*fgd)} }

func (f *naiveFGD) choose(p *pass, t *task) []int32 {
	delta := func(gi int32, k *coarse, cards []int32) int64 {
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
		k := p.coarseOf(t, int(g.class))
		if t.gpus > 1 || k.excl {
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
