package scheduler

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler/company"
	"github.com/berth-scheduler/berth/scheduler/fleet"
	"github.com/berth-scheduler/berth/scheduler/rules"
	"github.com/berth-scheduler/berth/scheduler/schedtest"
)

// A pass mirrors the ledger in indexes and keeps sums over it, which every start, move
// and promise changes a little. These tests make them anew after each pass of a random
// life, from the ledger, the queues and the plan alone, and compare.

// lived is a world by chance, and how to go on with it.
func lived(rnd *rand.Rand) (w *schedtest.World, more func()) {
	nodes := []*cluster.Node{
		schedtest.Node("n1", 2, "T4"), schedtest.Node("n2", 4, "T4"), schedtest.Node("n3", 4, "A100-SXM4-80GB", schedtest.Host(24_000, 128<<10)),
		schedtest.Node("n4", 0, "", schedtest.Host(16_000, 64<<10)), schedtest.Node("n5", 8, "A100-SXM4-80GB", schedtest.Host(32_000, 256<<10)),
	}
	if rnd.IntN(3) == 0 {
		schedtest.Drained(nodes[rnd.IntN(len(nodes))])
	}
	w = schedtest.NewWorld(nodes)
	id := cluster.JobID(0)
	more = func() {
		for range rnd.IntN(12) {
			id++
			gpus := rnd.IntN(4)
			opts := []schedtest.JobOption{
				schedtest.GPUs(gpus), schedtest.Cores(int64(rnd.IntN(9)) * 1000), schedtest.HostMem(int64(rnd.IntN(5)) << 12),
				schedtest.Lasts(time.Duration(1+rnd.IntN(600)) * time.Minute), schedtest.Of(cluster.UID(1000+rnd.IntN(3)), uint32(rnd.IntN(2))), schedtest.Signed(fmt.Sprint("s", rnd.IntN(4))),
			}
			if gpus > 0 {
				opts = append(opts, schedtest.Mem(int64(1+rnd.IntN(16))<<10), schedtest.Util(int64(100*(1+rnd.IntN(9)))))
				if rnd.IntN(4) == 0 {
					opts = append(opts, schedtest.Exclusive)
				}
				if rnd.IntN(6) == 0 {
					opts = append(opts, schedtest.Nodes(2))
				}
			}
			if rnd.IntN(3) == 0 {
				opts = append(opts, schedtest.Limit(time.Duration(1+rnd.IntN(900))*time.Minute))
			}
			j := schedtest.Job(id, opts...)
			if gpus == 0 {
				j.Spec.GPUMemMiB, j.Spec.GPUMilli = 0, 0
			}
			j.Submitted, j.Eligible = w.Clock, w.Clock
			if rnd.IntN(5) == 0 {
				j.Eligible = w.Clock.Add(-time.Duration(rnd.IntN(9)) * time.Hour)
			}
			w.Submit(j)
		}
	}
	return w, more
}

// TestAPassMirrorsTheLedger: after each pass all that it knows of cards, nodes and
// queues is what the ledger and the plan say.
func TestAPassMirrorsTheLedger(t *testing.T) {
	t.Parallel()
	for seed := range uint64(24) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			rnd := rand.New(rand.NewPCG(seed, 9))
			pol := Default()
			pol.MaxMoves, pol.MaxRebalance = 1+rnd.IntN(60), rnd.IntN(30)
			if rnd.IntN(2) == 0 {
				pol.FragNodes = 0
			}
			w, more := lived(rnd)
			for round := range 25 {
				more()
				snap := w.Snapshot()
				if rnd.IntN(4) == 0 { // an arrival pass sees nobody who stands in a queue
					snap.Waiting = slices.DeleteFunc(snap.Waiting, func(j *cluster.Job) bool { return j.State == cluster.JobQueued })
				}
				p := schedule(snap, pol)
				m := &mirrorCheck{t: t, p: p, snap: snap, at: fmt.Sprintf("round %d", round)}
				m.cards()
				m.hosts()
				m.company()
				m.loads()
				m.plan()
				if t.Failed() {
					return
				}
				w.Apply(&p.plan)
				w.Advance(time.Duration(1+rnd.IntN(3600)) * time.Second)
			}
		})
	}
}

type mirrorCheck struct {
	t    *testing.T
	p    *pass
	snap *dispatch.Snapshot
	at   string
}

func (m *mirrorCheck) failf(format string, args ...any) {
	m.t.Helper()
	m.t.Errorf("%s: %s", m.at, fmt.Sprintf(format, args...))
}

// cards compares accounts of cards, their leaves and the counts of empty ones.
func (m *mirrorCheck) cards() {
	f := m.p.f
	led := m.snap.Ledger.Clone()
	for i := range m.p.plan.Starts {
		if !led.TakeStart(&m.p.plan.Starts[i]) {
			m.failf("start %+v does not fit the ledger", m.p.plan.Starts[i])
		}
	}
	askCPU, askMem := m.p.mostAsked()
	clip := func(r *fleet.Room) fleet.Room {
		return fleet.Room{Mem: r.Mem, Milli: r.Milli, Slots: r.Slots, CPU: min(r.CPU, askCPU), Host: min(r.Host, askMem), Until: r.Until}
	}
	for i := range f.Cards {
		c := &f.Cards[i]
		u, _ := led.GPU(c.Use.ID)
		if c.Use != u {
			m.failf("card %s is taken for %+v, the ledger says %+v", u.ID, c.Use, u)
		}
		if c.Class < 0 {
			continue
		}
		k, r := &f.Classes[c.Class], f.Room(c)
		in, out := k.Used, k.Empty
		if u.Shares == 0 {
			in, out = out, in
		}
		if got := clip(in.Leaf(int(c.Place))); got != clip(&r) {
			m.failf("card %s: its leaf is %+v, it has %+v", u.ID, got, r)
		}
		if got := out.Leaf(int(c.Place)); got.Slots > 0 {
			m.failf("card %s stands in the other tree, too: %+v", u.ID, *got)
		}
	}
	for c := range f.Classes {
		k := &f.Classes[c]
		for gi := range k.Groups {
			g, empty := &k.Groups[gi], int32(0)
			for _, i := range k.Cards[g.Lo:g.Hi] {
				if f.Cards[i].Use.Shares == 0 {
					empty++
				}
			}
			if g.Empty != empty {
				m.failf("node %s has %d empty cards of class %d, %d are counted", f.Hosts[g.Host].Node.ID, empty, c, g.Empty)
			}
			for n := range k.Free {
				if in := k.Free[n].Next(gi) == gi; in != (int32(n) == empty) {
					m.failf("node %s with %d empty cards of class %d is listed among those with %d: %t", f.Hosts[g.Host].Node.ID, empty, c, n, in)
				}
			}
		}
	}
}

// hosts compares accounts of nodes and their leaves in both trees.
func (m *mirrorCheck) hosts() {
	f := m.p.f
	led := m.snap.Ledger.Clone()
	for i := range m.p.plan.Starts {
		led.TakeStart(&m.p.plan.Starts[i])
	}
	for i := range f.Hosts {
		h := &f.Hosts[i]
		u, _ := led.Node(h.Node.ID)
		if h.Use.UsedCPU != u.UsedCPU || h.Use.UsedMem != u.UsedMem {
			m.failf("node %s is taken for %+v, the ledger says %+v", u.ID, h.Use, u)
		}
		if h.Place < 0 {
			continue
		}
		if got := f.IdleOf(h); h.Idle != got {
			m.failf("of node %s %d thousandths of its GPUs are idle, %d are noted", u.ID, got, h.Idle)
		}
		if got, want := *f.Plain.Leaf(int(h.Place)), f.HostRoom(h); got != want {
			m.failf("node %s has %+v for jobs without GPUs, its leaf is %+v", u.ID, want, got)
		}
		// What is kept for somebody changes the first tree alone.
		if mild := m.p.plains.mild; mild != nil && h.KeptCPU+h.KeptMem+h.PlainCPU+h.PlainMem == 0 {
			if got, want := *mild.tree.Leaf(int(h.Place)), m.p.plains.mildRoom(h); got != want {
				m.failf("node %s has %+v beside its idle GPUs, its leaf is %+v", u.ID, want, got)
			}
		}
	}
}

// company compares who lies on which card.
func (m *mirrorCheck) company() {
	if m.p.crowd == nil {
		return
	}
	on := map[cluster.GPUID][]cluster.JobID{}
	for _, j := range m.snap.Running {
		for _, g := range j.Live().HeldGPUs() {
			on[g.GPU] = append(on[g.GPU], j.ID)
		}
	}
	for i := range m.p.plan.Starts {
		for _, g := range m.p.plan.Starts[i].AllGPUs() {
			on[g.GPU] = append(on[g.GPU], m.p.plan.Starts[i].Job)
		}
	}
	for i := range m.p.f.Cards {
		var got []cluster.JobID
		for _, s := range m.p.crowd.on[i] {
			got = append(got, company.Sharer(s).Job)
		}
		want := on[m.p.f.Cards[i].Use.ID]
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			m.failf("on card %s lie %v, the pass thinks %v", m.p.f.Cards[i].Use.ID, want, got)
		}
	}
}

// loads makes the loads of cards anew: of who runs what is left, of who starts now and
// of who waits in the queue at the end of the pass all, of who is not seen the mean.
func (m *mirrorCheck) loads() {
	p, f := m.p, m.p.f
	if !p.lines.loaded {
		return
	}
	want := make([]int64, len(f.Cards))
	sum, count := make([]int64, len(f.Classes)), make([]int64, len(f.Classes))
	dominant := func(mem, milli int64, whole bool, sells int64) int64 {
		if whole {
			return cluster.WholeGPU
		}
		return min(cluster.WholeGPU, max(milli, mem*cluster.WholeGPU/sells))
	}
	for _, j := range m.snap.Running {
		a := j.Live()
		end, _ := rules.EndsAt(j, a, p.now, &p.pol)
		for _, g := range a.HeldGPUs() {
			i := f.CardAt[g.GPU]
			want[i] += (end - p.now) / cluster.WholeGPU * dominant(g.Share.MemMiB, g.Share.Milli, g.Share.Exclusive, f.Cards[i].Use.SellableMiB)
			if c := f.Cards[i].Class; c >= 0 {
				sum[c] += rules.DurationOf(j, &a.Estimate, &p.pol)
				count[c]++
			}
		}
	}
	weigh := func(it *item, c int32) int64 {
		n := &it.needs[c]
		return n.Dur / cluster.WholeGPU * dominant(n.Mem, n.Milli, n.Way == rules.WayWhole, f.Classes[c].Sellable)
	}
	seen := make([]int, len(f.Cards))
	for i := range p.items {
		it := &p.items[i]
		if it.job.Queue != "" {
			if at, ok := f.CardAt[it.job.Queue]; ok {
				seen[at]++
			}
		}
		if it.gone || it.queue < 0 {
			continue
		}
		c := f.Cards[it.queue].Class
		if c < 0 || it.needs[c].Way == rules.WayNone {
			continue
		}
		if it.gpus <= 1 {
			want[it.queue] += weigh(it, c)
			continue
		}
		g := &f.Classes[c].Groups[f.Cards[it.queue].Group]
		for _, i := range f.Classes[c].Cards[g.Lo:g.Hi] {
			want[i] += weigh(it, c) * int64(it.gpus) / int64(g.Hi-g.Lo)
		}
	}
	for i := range p.plan.Starts {
		st := &p.plan.Starts[i]
		for _, g := range st.AllGPUs() {
			at := f.CardAt[g.GPU]
			want[at] += weigh(p.find(st.Job), f.Cards[at].Class)
		}
	}
	for i := range f.Cards {
		c := &f.Cards[i]
		if c.Class < 0 {
			continue
		}
		k := &f.Classes[c.Class]
		mean := p.pol.AssumedDuration.Microseconds()
		if count[c.Class] > 0 {
			mean = sum[c.Class] / count[c.Class]
		}
		want[i] += int64(max(0, len(c.Queue)-seen[i])) * mean
		if diff := c.Load - want[i]; max(diff, -diff) > 1000 { // what is spread over a node is rounded once at the start, and once for each afterwards
			m.failf("the load of card %s is %d, %d by what lies and waits there", c.Use.ID, c.Load, want[i])
		}
		if leaf := k.Loads.At[k.Loads.Leaves+int(c.Place)].Load; leaf != c.Load {
			m.failf("the load of card %s is %d, its leaf has %d", c.Use.ID, c.Load, leaf)
		}
	}
}

// plan holds of every plan: one move at most of a job and none of one that starts, no
// more than are allowed, queues that can serve, and everybody who does not start told.
func (m *mirrorCheck) plan() {
	p := m.p
	started, moved, told := map[cluster.JobID]bool{}, map[cluster.JobID]bool{}, map[cluster.JobID]bool{}
	for _, st := range p.plan.Starts {
		j := p.find(st.Job).job
		cpu, mem := rules.HostOf(j, &p.pol)
		for _, b := range st.Berths() {
			if b.CPUMilli != cpu && !j.Spec.WholeNodes() || b.MemMiB != mem || len(b.GPUs) != j.Spec.GPUs {
				m.failf("job %d takes %+v", st.Job, b)
			}
			if !slices.IsSortedFunc(b.GPUs, func(a, b cluster.GPUShare) int { return compareText(a.GPU, b.GPU) }) {
				m.failf("job %d: its cards are not sorted: %+v", st.Job, b.GPUs)
			}
		}
		if started[st.Job] || st.Attempt != uint32(len(j.Attempts))+1 || st.Why == "" {
			m.failf("start %+v", st)
		}
		started[st.Job] = true
	}
	for _, mv := range p.plan.Moves {
		it := p.find(mv.Job)
		if moved[mv.Job] || started[mv.Job] || mv.Reason == "" {
			m.failf("move %+v of a job that starts (%t), or twice (%t)", mv, started[mv.Job], moved[mv.Job])
		}
		moved[mv.Job] = true
		if mv.GPU == "" {
			continue
		}
		i := p.f.CardAt[mv.GPU]
		h := &p.f.Hosts[p.f.Cards[i].Host]
		if it.queue != i || !h.Use.Schedulable || p.f.Cards[i].Class < 0 || h.Use.CPUMilli < it.cpu || h.Use.MemMiB < it.mem || int64(mv.EstStart) < p.now && mv.EstStart != it.job.EstStart {
			m.failf("move %+v to a card of node %s, which is to start at %d, now is %d", mv, h.Node.ID, mv.EstStart, p.now)
		}
	}
	if n := len(p.plan.Moves); n > p.pol.MaxMoves+2*p.pol.MaxRebalance {
		m.failf("%d moves, with %d and %d allowed", n, p.pol.MaxMoves, p.pol.MaxRebalance)
	}
	for _, u := range p.plan.Unplaced {
		if told[u.Job] || started[u.Job] || u.Reason.Code == "" {
			m.failf("%+v is told of a job that starts (%t), or twice (%t)", u, started[u.Job], told[u.Job])
		}
		told[u.Job] = true
	}
	for _, j := range m.snap.Waiting {
		if started[j.ID] == told[j.ID] {
			m.failf("job %d starts (%t), or is told why not (%t)", j.ID, started[j.ID], told[j.ID])
		}
	}
}

func compareText(a, b cluster.GPUID) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}
