package scheduler

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler/fleet"
	"github.com/berth-scheduler/berth/scheduler/rules"
	"github.com/berth-scheduler/berth/scheduler/schedtest"
)

// TestStreamAgeByDefinition: of the seventeen newest times at which somebody came, told
// apart, at least four; nobody for eight mean distances ends it; else it is as old as the
// oldest whom the pass sees.
func TestStreamAgeByDefinition(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(4, 4))
	zero, lasted := 0, 0
	for round := range 4000 {
		now := int64(1_000_000)
		ts := &turns{scene: &scene{now: now}}
		var all []int64
		spread := int64(1 + rnd.IntN(1+round%900))
		for i := range rnd.IntN(30) {
			at := now - rnd.Int64N(spread) - int64(rnd.IntN(2)*rnd.IntN(400))
			all = append(all, at)
			j := &cluster.Job{ID: cluster.JobID(i), Submitted: cluster.Time(at)}
			if rnd.IntN(2) == 0 {
				ts.items = append(ts.items, item{job: j})
			} else {
				ts.running = append(ts.running, j)
			}
		}
		slices.Sort(all)
		times := slices.Compact(slices.Clone(all))
		times = times[max(0, len(times)-17):]
		want := int64(0)
		if n := len(times); n >= 4 {
			newest, first := times[n-1], times[0]
			if now-newest < 8*(newest-first)/int64(n-1) {
				want = now - all[0]
			}
		}
		if got := ts.streamAge(); got != want {
			t.Fatalf("round %d: who came at %v, now %d: %d, want %d", round, all, now, got, want)
		}
		if want == 0 {
			zero++
		} else {
			lasted++
		}
	}
	if zero < 500 || lasted < 500 {
		t.Errorf("%d streams had ended, %d had not: the test draws too little", zero, lasted)
	}
}

// busyNode is a node with jobs on its cards by chance, and the ledger of it.
func busyNode(rnd *rand.Rand) (*cluster.Node, *dispatch.Ledger, []*cluster.Job) {
	n := schedtest.Node("n1", 1+rnd.IntN(3), "T4", schedtest.Host(12_000, 40_000))
	led := dispatch.NewLedger([]*cluster.Node{n})
	var running []*cluster.Job
	for id := range cluster.JobID(9) {
		j := schedtest.Job(id+1, schedtest.Lasts(time.Duration(1+rnd.IntN(9))*time.Hour), schedtest.Cores(1000), schedtest.HostMem(1000))
		b := cluster.Berth{Node: "n1", CPUMilli: int64(1+rnd.IntN(3)) * 1000, MemMiB: int64(1+rnd.IntN(8)) * 1000}
		alone := rnd.IntN(4) == 0
		for c := range n.GPUs {
			if rnd.IntN(2) == 0 {
				continue
			}
			s := cluster.Share{MemMiB: int64(1+rnd.IntN(9)) * 1000, Milli: int64(1+rnd.IntN(6)) * 100}
			if alone {
				s = cluster.Share{MemMiB: n.GPUs[c].SellableMiB, Milli: cluster.WholeGPU, Exclusive: true}
			}
			b.GPUs = append(b.GPUs, cluster.GPUShare{GPU: n.GPUs[c].ID, Share: s})
		}
		if led.Fits(&b).Code != "" {
			continue
		}
		led.Take(&b)
		j.State, j.Spec.Checkpoint = cluster.JobRunning, cluster.Checkpoint{Signal: "USR1", Grace: time.Minute}
		at := schedtest.Now.Add(-time.Duration(rnd.IntN(5000)) * time.Second)
		j.Attempts = []cluster.Attempt{{No: 1, State: cluster.JobRunning, Berth: b, Started: at, Placed: at, Estimate: cluster.Estimate{GPUType: "T4", Duration: j.Spec.Duration}}}
		running = append(running, j)
	}
	return n, led, running
}

// TestWhoIsEndedOnANode: the job fits when those are gone and not when one of them stays,
// by the ledger alone; nobody is ended where it would not fit even without all.
func TestWhoIsEndedOnANode(t *testing.T) {
	t.Parallel()
	fits, never := 0, 0
	for seed := range uint64(600) {
		rnd := rand.New(rand.NewPCG(seed, 5))
		n, led, running := busyNode(rnd)
		pol := Default()
		p := newPass(&scene{mem: &memory{}, pol: pol, now: int64(schedtest.Now), nodes: []*cluster.Node{n}, running: running})
		p.f = fleet.New(p.nodes, led.Clone(), nil, &p.pol, nil)
		want := schedtest.Job(100, schedtest.GPUs(rnd.IntN(3)), schedtest.Mem(int64(1+rnd.IntN(15))*1000), schedtest.Util(int64(1+rnd.IntN(9))*100), schedtest.Cores(int64(1+rnd.IntN(12))*1000), schedtest.HostMem(int64(1+rnd.IntN(38))*1000))
		if want.Spec.GPUs == 0 {
			want.Spec.GPUMemMiB, want.Spec.GPUMilli = 0, 0
		} else if rnd.IntN(3) == 0 {
			schedtest.Exclusive(want)
		}
		p.gather([]*cluster.Job{want})
		it := &p.items[0]
		m := &maker{p: p, taken: map[cluster.JobID]struct{}{}}
		without := func(gone []*cluster.Job) bool {
			l := led.Clone()
			for _, j := range gone {
				l.Release(&j.Live().Berth)
			}
			return room(l, n, it, pol)
		}
		vs := m.onNode(it, &p.f.Hosts[0], slices.Clone(running))
		if can := without(running); can != m.fits(it, &p.f.Hosts[0], running) || !can && len(vs) > 0 {
			t.Fatalf("seed %d: without all it fits %t by the ledger; ended are %d", seed, can, len(vs))
		} else if !can {
			never++
			continue
		}
		fits++
		if !without(vs) {
			t.Fatalf("seed %d: it does not fit when %d of %d are gone", seed, len(vs), len(running))
		}
		for i := range vs {
			if rest := slices.Delete(slices.Clone(vs), i, i+1); without(rest) {
				t.Fatalf("seed %d: job %d need not be ended", seed, vs[i].ID)
			}
		}
	}
	if fits < 100 || never < 50 {
		t.Errorf("%d fit in the end, %d never: the test draws too little", fits, never)
	}
}

// room reports whether a ledger has what an item needs on a node, by trying all sets of
// its cards.
func room(l *dispatch.Ledger, n *cluster.Node, it *item, pol Policy) bool {
	for set := range 1 << len(n.GPUs) {
		b := cluster.Berth{Node: n.ID, CPUMilli: it.cpu, MemMiB: it.mem}
		free := true
		for c := range n.GPUs {
			if set>>c&1 == 0 {
				continue
			}
			need := &it.needs[0]
			u, _ := l.GPU(n.GPUs[c].ID)
			free = free && need.Way != rules.WayNone && u.Shares < pol.MaxShares
			b.GPUs = append(b.GPUs, cluster.GPUShare{GPU: n.GPUs[c].ID, Share: need.Share(n.GPUs[c].SellableMiB)})
		}
		if free && len(b.GPUs) == it.gpus && l.Fits(&b).Code == "" {
			return true
		}
	}
	return false
}

// TestWhenACardClears: as soon as so many of those who lie there have ended, one by one
// at their latest, that the share fits.
func TestWhenACardClears(t *testing.T) {
	t.Parallel()
	for seed := range uint64(500) {
		rnd := rand.New(rand.NewPCG(seed, 6))
		n, led, running := busyNode(rnd)
		pol := Default()
		p := newPass(&scene{mem: &memory{}, pol: pol, now: int64(schedtest.Now), nodes: []*cluster.Node{n}, running: running})
		p.f = fleet.New(p.nodes, led.Clone(), nil, &p.pol, nil)
		p.lines.needResidents()
		for c := range p.f.Cards {
			need := rules.Need{Mem: int64(1+rnd.IntN(15)) * 1000, Milli: int64(1+rnd.IntN(10)) * 100, Way: rules.WayShare}
			if rnd.IntN(3) == 0 {
				need = rules.Need{Mem: 15_000, Milli: cluster.WholeGPU, Way: rules.WayWhole}
			}
			type end struct {
				at int64
				s  cluster.Share
			}
			var ends []end
			for _, j := range running {
				_, latest := rules.EndsAt(j, j.Live(), p.now, &p.pol)
				for _, g := range j.Live().Berth.GPUs {
					if g.GPU == n.GPUs[c].ID {
						ends = append(ends, end{latest, g.Share})
					}
				}
			}
			slices.SortFunc(ends, func(a, b end) int { return int(a.at - b.at) })
			want := p.now
			for gone := 0; ; gone++ {
				mem, milli, left, alone := int64(0), int64(0), 0, false
				for _, e := range ends[gone:] {
					mem, milli, left, alone = mem+e.s.MemMiB, milli+e.s.Milli, left+1, alone || e.s.Exclusive
				}
				ok := left == 0
				if need.Way == rules.WayShare {
					ok = ok || !alone && mem+need.Mem <= n.GPUs[c].SellableMiB && milli+need.Milli <= cluster.WholeGPU && left < n.GPUs[c].MaxShares
				}
				if ok {
					break
				}
				want = ends[gone].at
			}
			if got := p.keeper.clears(int32(c), &need); got != want {
				t.Fatalf("seed %d, card %d: %s after now, want %s; there lie %v, it needs %+v", seed, c, micros(got-p.now), micros(want-p.now), ends, need)
			}
		}
	}
}

func micros(us int64) string { return fmt.Sprint(time.Duration(us) * time.Microsecond) }

// TestSortedByDigits: many ranks are in the order in which comparing puts them, the
// equal ones by id.
func TestSortedByDigits(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(5, 5))
	m := new(sorter)
	for _, n := range []int{0, 1, radixLeast, 40 * radixLeast, 100} {
		for round := range 12 {
			got := make([]rank, n)
			for i := range got {
				got[i] = rank{id: cluster.JobID(i + 1), item: int32(i), class: int8(rnd.IntN(4) - 2), tier: int8(rnd.IntN(6)), first: rnd.Int64N(70), second: -rnd.Int64N(2000)}
				if round%2 == 0 { // all differ in few bits, or first in many
					got[i].first <<= 4 * round
					continue
				}
				switch rnd.IntN(4 + round) {
				case 0:
					got[i].first, got[i].second = rnd.Int64()-rnd.Int64(), 0
				case 1:
					got[i].first, got[i].second = math.MinInt64+rnd.Int64N(2), rnd.Int64()-rnd.Int64()
				case 2:
					got[i].first = rules.Forever
				}
			}
			want := slices.Clone(got)
			slices.SortFunc(want, rank.compare)
			if got = sorted(got, m); !slices.Equal(got, want) {
				t.Fatalf("%d ranks, round %d: not in order", n, round)
			}
		}
	}
}

// TestLikes: jobs have one number on a class if and only if they need the same of it,
// and most of those that nobody is like have none. Jobs that ask for a node, or for
// several GPUs, are never numbered.
func TestLikes(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(3, 3))
	ft := &fitter{scene: &scene{mem: &memory{}, f: &fleet.Fleet{Classes: make([]fleet.Class, 2)}, crowd: &crowd{}}, failed: map[shape]int64{}}
	type need struct {
		class, mem, milli, cpu int64
		way                    rules.Way
		kind                   int32
	}
	of := func(it *item, c int) need {
		n := &it.needs[c]
		return need{int64(c), n.Mem, n.Milli, it.cpu, n.Way, it.kind}
	}
	count, numbers := map[need]int{}, map[need]int32{}
	for range 2000 {
		it := item{kind: rnd.Int32N(3), cpu: rnd.Int64N(2), gpus: 1 + rnd.IntN(5)/4, needs: make([]rules.Need, 2)}
		if rnd.IntN(9) == 0 {
			it.node = "n1"
		}
		for c := range it.needs {
			it.needs[c] = rules.Need{Mem: 100 * rnd.Int64N(60), Milli: 50 * rnd.Int64N(20), Way: rules.WayShare + rules.Way(rnd.IntN(2)), Dur: 1 + rnd.Int64N(9)}
			count[of(&it, c)]++
		}
		ft.items = append(ft.items, it)
	}
	found, all := 0, 0
	for i := range ft.items {
		for c := range 2 {
			it := &ft.items[i]
			key := of(it, c)
			unlike := ft.unlike(it, c)
			like := it.needs[c].Like
			if unlike && count[key] > 1 {
				t.Fatalf("%+v is unlike all others, and %d jobs need it", key, count[key])
			}
			if count[key] == 1 {
				all++
			}
			switch {
			case unlike && count[key] == 1:
				found++
			case !unlike && (it.gpus > 1 || it.node != ""):
				if like > 0 {
					t.Fatalf("job %d is numbered, it has %d GPUs, and asks for node %q", i, it.gpus, it.node)
				}
			case numbers[key] == 0:
				numbers[key] = like
			case numbers[key] != like:
				t.Fatalf("%+v has the numbers %d and %d", key, numbers[key], like)
			}
		}
	}
	needs := map[int32]need{}
	for key, like := range numbers {
		if o, ok := needs[like]; ok || like <= 0 {
			t.Fatalf("%+v has the number %d, as %+v has", key, like, o)
		}
		needs[like] = key
	}
	if all < 500 || found < all/2 || len(needs) < 200 {
		t.Errorf("%d of %d jobs that are unlike all others are found, and %d needs are numbered", found, all, len(needs))
	}
}
