package scheduler_test

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/accounting"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler"
	. "github.com/berth-scheduler/berth/scheduler/schedtest"
)

// takes says how long a job is predicted to run.
func takes(d time.Duration) JobOption {
	return func(j *cluster.Job) {
		j.Estimates = nil
		Predict(a100, 1000, 500, d)(j)
	}
}

// part is a node and how many cards of it a job has.
type part struct {
	node  int
	cards int
}

// runsOn starts a job alone on the first free cards of nodes.
func runsOn(w *World, j *cluster.Job, on ...part) {
	w.Submit(j)
	st := dispatch.Start{Job: j.ID, Attempt: 1, Estimate: j.Estimates[0]}
	for i, l := range on {
		n := w.Nodes[l.node]
		b := cluster.Berth{Node: n.ID, CPUMilli: 1000, MemMiB: 1024}
		for k := range n.GPUs {
			if u, _ := w.Ledg.GPU(n.GPUs[k].ID); u.Shares == 0 && len(b.GPUs) < l.cards {
				b.GPUs = append(b.GPUs, cluster.GPUShare{GPU: u.ID, Share: cluster.Share{MemMiB: u.SellableMiB, Milli: cluster.WholeGPU, Exclusive: true}})
			}
		}
		if i == 0 {
			st.Berth = b
		} else {
			st.Rest = append(st.Rest, b)
		}
	}
	w.Apply(&dispatch.Plan{Starts: []dispatch.Start{st}})
}

// TestGangsMakeAndTakePlaces: a gang that waits takes the places of jobs on as many nodes
// as it needs, or of none; and one with a hook gives its place up as a whole.
func TestGangsMakeAndTakePlaces(t *testing.T) {
	t.Parallel()
	type run struct {
		job *cluster.Job
		on  []part
	}
	day, half := takes(25*time.Hour), takes(30*time.Minute)
	one := func(id cluster.JobID, node, cards int, opts ...JobOption) run {
		return run{Job(id, append([]JobOption{GPUs(cards), Exclusive, day, hooked}, opts...)...), []part{{node, cards}}}
	}
	gang := func(id cluster.JobID, on []part, opts ...JobOption) run {
		return run{Job(id, append([]JobOption{GPUs(on[0].cards), Exclusive, onNodes(len(on)), day, hooked}, opts...)...), on}
	}
	waits := func(nodes, cards int, opts ...JobOption) *cluster.Job {
		return Job(99, append([]JobOption{GPUs(cards), Exclusive, onNodes(nodes), half}, opts...)...)
	}
	soft := func(j *cluster.Job) { j.Spec.Checkpoint = cluster.Checkpoint{} }
	for _, c := range []struct {
		name  string
		nodes int
		runs  []run
		comes *cluster.Job
		want  []cluster.JobID
	}{
		{"two nodes of two", 2, []run{one(1, 0, 2), one(2, 1, 2)}, waits(2, 2), []cluster.JobID{1, 2}},
		{"one of them has no hook", 2, []run{one(1, 0, 2), one(2, 1, 2, soft)}, waits(2, 2), nil},
		{"one of them has too little left", 2, []run{one(1, 0, 2), one(2, 1, 2, takes(2*time.Hour))}, waits(2, 2), nil},
		{"a node is free", 3, []run{one(1, 0, 2), one(2, 1, 2, soft)}, waits(2, 2), []cluster.JobID{1}},
		{"those who hold least leave", 3, []run{one(1, 0, 1), one(2, 0, 1), one(3, 1, 2), one(4, 2, 2)}, waits(2, 2), []cluster.JobID{3, 4}},
		{"a gang leaves as a whole", 2, []run{gang(1, []part{{0, 2}, {1, 2}})}, waits(2, 2), []cluster.JobID{1}},
		{"rather one gang than two jobs", 4, []run{one(2, 0, 2), one(3, 1, 2), gang(1, []part{{2, 2}, {3, 2}})}, waits(2, 2), []cluster.JobID{1}},
		{"rather two jobs than a gang on four", 6, []run{one(2, 4, 2), one(3, 5, 2), gang(1, []part{{0, 2}, {1, 2}, {2, 2}, {3, 2}})}, waits(2, 2), []cluster.JobID{2, 3}},
		{"nobody whom the gang that leaves makes needless", 2, []run{one(2, 0, 1), gang(1, []part{{0, 1}, {1, 1}}), one(3, 1, 1, soft)}, waits(2, 1), []cluster.JobID{1}},
		{"a gang leaves for a job on one node", 2, []run{gang(1, []part{{0, 2}, {1, 2}})}, waits(1, 2), []cluster.JobID{1}},
		{"not for one that gains less than its cards lose", 2, []run{gang(1, []part{{0, 2}, {1, 2}})}, waits(1, 1, takes(4*time.Hour)), nil},
		{"rather a job on one node", 2, []run{gang(1, []part{{0, 1}, {1, 1}}), one(2, 0, 1), one(3, 1, 1)}, waits(1, 1), []cluster.JobID{2}},
		{"three who lose less together than it gains", 3, []run{one(1, 0, 2, takes(100*time.Minute)), one(2, 1, 2, takes(100*time.Minute)), one(3, 2, 2, takes(100*time.Minute))},
			waits(3, 2, takes(10*time.Minute)), []cluster.JobID{1, 2, 3}},
		{"three who lose more together", 3, []run{one(1, 0, 2, takes(94*time.Minute)), one(2, 1, 2, takes(94*time.Minute)), one(3, 2, 2, takes(94*time.Minute))},
			waits(3, 2, takes(10*time.Minute)), nil},
		{"a deadline", 2, []run{one(1, 0, 2), one(2, 1, 2, func(j *cluster.Job) { j.Spec.Deadline = cluster.Time(1) << 55 })}, waits(2, 2), nil},
		{"another partition", 2, []run{one(1, 0, 2), one(2, 1, 2, func(j *cluster.Job) { j.Spec.Partition = "a" })}, waits(2, 2), nil},
		{"nodes of its own", 2, []run{one(1, 0, 1), one(2, 0, 1), one(3, 1, 1)}, waits(2, 2, func(j *cluster.Job) { j.Spec.Where = &cluster.Where{Whole: true} }), []cluster.JobID{1, 2, 3}},
		{"nodes of its own, on one somebody has cores", 2, []run{one(1, 0, 2), one(2, 0, 0, soft), one(3, 1, 1)}, waits(2, 1, func(j *cluster.Job) { j.Spec.Where = &cluster.Where{Whole: true} }), nil},
		{"nodes of its own, one is not to be had", 2, []run{one(1, 0, 1), one(2, 0, 1, soft), one(3, 1, 1)}, waits(2, 1, func(j *cluster.Job) { j.Spec.Where = &cluster.Where{Whole: true} }), nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := NewWorld(farmOf(c.nodes, 2, a100))
			w.Runs = func(*cluster.Job) time.Duration { return 1000 * time.Hour }
			for _, r := range c.runs {
				runsOn(w, r.job, r.on...)
			}
			w.Advance(time.Hour)
			come(w, c.comes)
			w.Advance(3 * time.Minute)
			p := scheduler.Schedule(w.Snapshot(), scheduler.Default())
			if got := asked(&p); !slices.Equal(got, c.want) {
				t.Fatalf("asked %v, want %v; starts %+v, unplaced %+v", got, c.want, p.Starts, p.Unplaced)
			}
			for _, x := range p.Preempt {
				if x.For != 99 {
					t.Errorf("job %d leaves for %d", x.Job, x.For)
				}
			}
		})
	}
}

// TestRoomForAGangIsKept: while some of those who were asked still save their state
// nobody who comes after the gang takes what is free already, in the pass that asks
// as in those after it, unless it is gone before the last of them is; then the gang
// starts. That others wait for cards of their own changes nothing.
func TestRoomForAGangIsKept(t *testing.T) {
	t.Parallel()
	w := NewWorld(append(farmOf(3, 2, a100), Node("t0", 1, t4, Host(16_000, 64<<10))))
	w.Runs = func(*cluster.Job) time.Duration { return 1000 * time.Hour }
	for id := cluster.JobID(1); id <= 2; id++ {
		runsOn(w, Job(id, GPUs(2), Exclusive, takes(100*time.Hour), hooked), part{int(id), 2})
	}
	runsOn(w, Job(3, Exclusive, takes(100*time.Hour)), part{3, 1})
	w.Advance(time.Hour)
	for id := cluster.JobID(4); id <= 5; id++ {
		come(w, Job(id, Type(t4), Exclusive, Predict(t4, 1000, 500, time.Second)))
	}
	come(w, Job(9, GPUs(2), Exclusive, Type(a100), onNodes(3), takes(5*time.Second)))
	w.Advance(3 * time.Minute)
	come(w, Job(10, GPUs(1), Exclusive, Type(a100), takes(4*time.Hour)))
	come(w, Job(11, GPUs(1), Exclusive, Type(a100), takes(50*time.Second)))
	pol := scheduler.Default()
	p := scheduler.Schedule(w.Snapshot(), pol)
	if got := asked(&p); !slices.Equal(got, []cluster.JobID{1, 2}) {
		t.Fatalf("asked %v, want both; starts %+v, unplaced %+v", got, p.Starts, p.Unplaced)
	}
	if len(p.Starts) != 1 || p.Starts[0].Job != 11 {
		t.Fatalf("starts %+v, want job 11 alone, which ends before the others have left", p.Starts)
	}
	for id := cluster.JobID(1); id <= 2; id++ {
		w.Jobs[id].Live().Preempt = &cluster.PreemptRequest{At: w.Clock, For: 9}
	}
	w.Advance(20 * time.Second)
	w.End(1)
	if p = scheduler.Schedule(w.Snapshot(), pol); len(p.Preempt) > 0 || len(p.Starts) > 0 {
		t.Fatalf("starts %+v, asks %v while job 2 leaves", p.Starts, asked(&p))
	}
	said := fmt.Sprint(scheduler.Explain(w.Snapshot(), w.Jobs[9], pol))
	if !strings.Contains(said, "job 2 saves its state and makes room for this one") {
		t.Errorf("the gang is told %s", said)
	}
	if strings.Contains(said, "the next pass decides") {
		t.Errorf("the gang is told of one node that has room: %s", said)
	}
	if f, ok := scheduler.ForecastStart(w.Snapshot(), w.Jobs[10], pol); !ok || f.P50 <= w.Clock || !strings.Contains(f.Missing, "job 9 comes before it") {
		t.Errorf("who comes after the gang is told %+v", f)
	}
	w.End(2)
	if p = scheduler.Schedule(w.Snapshot(), pol); len(p.Starts) == 0 || p.Starts[0].Job != 9 {
		t.Errorf("starts %+v, want the gang", p.Starts)
	}
	soon := pol
	soon.YieldAfter, soon.ReserveAge = time.Second, time.Hour
	if !scheduler.SpanWaits(w.Snapshot().Waiting, w.Clock, soon) {
		t.Error("the fast path would give away what others leave")
	}
}

// TestAGangThatEndsIsLetBe: who has ended on one of its nodes is nearly done, or was
// told to end.
func TestAGangThatEndsIsLetBe(t *testing.T) {
	t.Parallel()
	for _, ended := range []bool{false, true} {
		w := NewWorld(farmOf(2, 2, a100))
		w.Runs = func(*cluster.Job) time.Duration { return 1000 * time.Hour }
		runsOn(w, Job(1, GPUs(2), Exclusive, onNodes(2), takes(100*time.Hour), hooked), part{0, 2}, part{1, 2})
		w.Advance(time.Hour)
		if a := w.Jobs[1].Live(); ended {
			w.Ledg.Release(&a.Gang.Rest[0])
			a.Gang.Parts[1].State = cluster.JobCompleted
			runsOn(w, Job(2, GPUs(2), Exclusive, takes(time.Hour)), part{1, 2})
		}
		come(w, Job(9, GPUs(2), Exclusive, takes(time.Minute)))
		w.Advance(3 * time.Minute)
		p := scheduler.Schedule(w.Snapshot(), scheduler.Default())
		if got := asked(&p); (len(got) == 0) != ended {
			t.Errorf("asked %v, a part of job 1 has ended: %t", got, ended)
		}
	}
}

// TestAllOrNobodyLeavesForAGang: a coordinator asks 64 in a pass; a gang that needs
// more to leave asks nobody.
func TestAllOrNobodyLeavesForAGang(t *testing.T) {
	t.Parallel()
	for _, n := range []int{64, 65} {
		w := NewWorld(farmOf(n, 1, a100))
		w.Runs = func(*cluster.Job) time.Duration { return 10_000 * time.Hour }
		for i := range n {
			runsOn(w, Job(cluster.JobID(i+1), Exclusive, takes(10_000*time.Hour), hooked), part{i, 1})
		}
		w.Advance(time.Hour)
		come(w, Job(999, Exclusive, takes(time.Hour), onNodes(n)))
		w.Advance(3 * time.Minute)
		p := scheduler.Schedule(w.Snapshot(), scheduler.Default())
		if got := len(asked(&p)); got != n%65 {
			t.Errorf("%d nodes: %d are asked", n, got)
		}
	}
}

// TestNobodyLeavesWhatAQuotaDenies: on small cards the gang would take more of GPUs than
// its user may, and on the large ones nobody can leave.
func TestNobodyLeavesWhatAQuotaDenies(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		milli int64
		want  []cluster.JobID
	}{{300, nil}, {3000, []cluster.JobID{1, 2}}} {
		w := NewWorld(append(farmOf(2, 1, a100), Node("t0", 1, t4, Host(16_000, 64<<10)), Node("t1", 1, t4, Host(16_000, 64<<10))))
		w.Runs = func(*cluster.Job) time.Duration { return 1000 * time.Hour }
		small := func(j *cluster.Job) { j.Estimates[0].GPUType = t4 }
		runsOn(w, Job(1, Exclusive, takes(100*time.Hour), small, hooked), part{2, 1})
		runsOn(w, Job(2, Exclusive, takes(100*time.Hour), small, hooked), part{3, 1})
		runsOn(w, Job(3, Exclusive, takes(100*time.Hour)), part{0, 1})
		runsOn(w, Job(4, Exclusive, takes(100*time.Hour)), part{1, 1})
		w.Advance(time.Hour)
		come(w, Job(9, Of(7, 7), Mem(8000), Util(100), onNodes(2), Limit(time.Minute)))
		w.Advance(3 * time.Minute)
		s := w.Snapshot()
		u := accounting.Subject{User: true, UID: 7}
		s.Limits = accounting.NewLimiter(nil, map[accounting.Subject]*accounting.Quota{u: {Subject: u, Limits: accounting.Limits{GPUMilli: c.milli}}}, nil)
		p := scheduler.Schedule(s, scheduler.Default())
		if got := asked(&p); !slices.Equal(got, c.want) {
			t.Errorf("a quota of %d thousandths: asked %v, want %v", c.milli, got, c.want)
		}
	}
}

// stayer is a running job as the law knows it.
type stayer struct {
	job  *cluster.Job
	on   []part
	left time.Duration
	may  bool // it has a hook and may be asked
}

func (h *stayer) cards() (n int) {
	for _, l := range h.on {
		n += l.cards
	}
	return n
}

// scenery is a draw of who runs and which job waits.
type scenery struct {
	nodes, cards int
	runs         []stayer
	want         *cluster.Job
	free         []int // cards by node
}

// hangs says why these may not leave for the job that waits, "" when they may: told over
// plain lists, from the documents.
func (s *scenery) hangs(who []int) string {
	const cost = 2 * time.Minute // a minute of grace and one to begin anew
	free := slices.Clone(s.free)
	idle := 0
	for _, n := range free {
		idle += n
	}
	wants := s.want.Spec.NodeCount() * s.want.Spec.GPUs
	dur := s.want.Estimates[0].Duration
	least, loss, lossOfCards, gangs := time.Duration(1<<62), time.Duration(0), 0.0, s.want.Spec.NodeCount() > 1
	for _, i := range who {
		h := &s.runs[i]
		for _, l := range h.on {
			free[l.node] += l.cards
		}
		switch work := func(d time.Duration, cards int) float64 { return d.Seconds() * float64(cards) }; {
		case !h.may:
			return fmt.Sprintf("job %d may not be asked", h.job.ID)
		case h.left < 2*(dur+cost):
			return fmt.Sprintf("job %d has %s left", h.job.ID, h.left)
		case s.want.Spec.NodeCount() == 1 && work(h.left, h.cards()) < 2*(work(dur, wants)+work(cost, h.cards())):
			return fmt.Sprintf("job %d has too little work left", h.job.ID)
		case !s.before(dur, wants, h, idle >= wants):
			return fmt.Sprintf("job %d would come before it", h.job.ID)
		}
		least, loss = min(least, h.left), loss+dur+cost
		lossOfCards += (dur + cost).Seconds() * float64(h.cards())
		gangs = gangs || len(h.on) > 1
	}
	room := 0
	for _, n := range free {
		if n >= s.want.Spec.GPUs {
			room++
		}
	}
	margin := time.Duration(2)
	if s.want.Spec.NodeCount() > 1 {
		margin = 1
	}
	switch {
	case room < s.want.Spec.NodeCount():
		return "it would not fit"
	case len(who) > 0 && least < margin*loss:
		return "they lose more time than it gains"
	case len(who) > 0 && gangs && least.Seconds()*float64(wants) < 2*lossOfCards:
		return "their cards lose more time than its cards gain"
	}
	return ""
}

// before reports whether a job that takes so long on so many cards comes before a
// running one in the order of a pass: the larger where there are cards for all, else the
// one with less GPU time, in steps of two.
func (s *scenery) before(dur time.Duration, cards int, h *stayer, plenty bool) bool {
	a, b := dur.Milliseconds()*int64(cards), h.left.Milliseconds()*int64(h.cards())
	size := cmp.Compare(h.cards(), cards)
	if plenty {
		return cmp.Or(size, cmp.Compare(a, b), cmp.Compare(s.want.ID, h.job.ID)) < 0
	}
	return cmp.Or(cmp.Compare(bits.Len64(uint64(a)), bits.Len64(uint64(b))), size, cmp.Compare(s.want.ID, h.job.ID)) < 0
}

func drawScenery(t *rapid.T) (*scenery, *World) {
	s := &scenery{nodes: rapid.IntRange(2, 4).Draw(t, "nodes"), cards: rapid.IntRange(1, 3).Draw(t, "cards")}
	for range s.nodes {
		s.free = append(s.free, s.cards)
	}
	w := NewWorld(farmOf(s.nodes, s.cards, a100))
	w.Runs = func(*cluster.Job) time.Duration { return 100_000 * time.Hour }
	for id := cluster.JobID(1); id <= 7; id++ {
		h := stayer{may: rapid.IntRange(0, 4).Draw(t, "may") > 0}
		cards := rapid.IntRange(1, s.cards).Draw(t, "of each")
		from, span := rapid.IntRange(0, s.nodes-1).Draw(t, "from"), rapid.SampledFrom([]int{1, 1, 1, 2, 3, 4}).Draw(t, "span")
		for i := range s.nodes {
			if n := (from + i) % s.nodes; s.free[n] >= cards && len(h.on) < span {
				h.on = append(h.on, part{n, cards})
			}
		}
		if len(h.on) < span {
			continue
		}
		slices.SortFunc(h.on, func(a, b part) int { return a.node - b.node })
		for _, l := range h.on {
			s.free[l.node] -= l.cards
		}
		h.left = time.Duration(rapid.SampledFrom([]int{20, 60, 150, 400, 1000, 3000, 20_000}).Draw(t, "left")) * time.Minute
		h.job = Job(id, GPUs(cards), Exclusive, takes(h.left+time.Hour))
		if span > 1 {
			h.job.Spec.Nodes = span
		}
		if h.may {
			hooked(h.job)
		} else if rapid.Bool().Draw(t, "of another partition") {
			hooked(h.job)
			h.job.Spec.Partition = "a"
		}
		runsOn(w, h.job, h.on...)
		s.runs = append(s.runs, h)
	}
	w.Advance(57 * time.Minute)
	s.want = Job(99, GPUs(rapid.IntRange(1, s.cards).Draw(t, "wants of each")), Exclusive,
		takes(time.Duration(rapid.SampledFrom([]int{1, 10, 30, 90, 600}).Draw(t, "for"))*time.Minute))
	if n := rapid.IntRange(1, s.nodes).Draw(t, "wants nodes"); n > 1 {
		s.want.Spec.Nodes = n
	}
	come(w, s.want)
	w.Advance(3 * time.Minute)
	return s, w
}

// TestWhoLeavesForGangsAsNaive: whoever is asked may be, all together make the room, none
// of them is needless, and it pays; and where nobody is asked there is hardly ever a set
// of those who run that could have been: who leaves is chosen node by node, and not of
// all sets.
func TestWhoLeavesForGangsAsNaive(t *testing.T) {
	t.Parallel()
	pol := scheduler.Default()
	pol.ShortPart, pol.LongPart, pol.FIFOAge = 0, 0, 0
	moved, stayed, gangsLeft, missed := 0, 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		s, w := drawScenery(t)
		p := scheduler.Schedule(w.Snapshot(), pol)
		got := asked(&p)
		var who []int
		for i := range s.runs {
			if slices.Contains(got, s.runs[i].job.ID) {
				who = append(who, i)
				if len(s.runs[i].on) > 1 {
					gangsLeft++
				}
			}
		}
		if len(who) != len(got) || len(got) != len(p.Preempt) {
			t.Fatalf("asked %v", got)
		}
		starts := len(p.Starts) > 0
		if why := s.hangs(nil); (why == "") != starts {
			t.Fatalf("starts %+v, but %q", p.Starts, why)
		}
		switch {
		case starts:
			if len(got) > 0 {
				t.Fatalf("asked %v for a job that starts", got)
			}
		case len(who) > 0:
			moved++
			if why := s.hangs(who); why != "" {
				t.Fatalf("asked %+v: %s; runs %+v, free %v, wants %d×%d", p.Preempt, why, s.runs, s.free, s.want.Spec.NodeCount(), s.want.Spec.GPUs)
			}
			for i := range who {
				if rest := slices.Delete(slices.Clone(who), i, i+1); s.fits(rest) {
					t.Fatalf("asked %v, and job %d without need", got, s.runs[who[i]].job.ID)
				}
			}
		default:
			stayed++
			for set := 1; set < 1<<len(s.runs); set++ {
				var who []int
				for i := range s.runs {
					if set>>i&1 == 1 {
						who = append(who, i)
					}
				}
				if s.hangs(who) == "" {
					missed++
					break
				}
			}
		}
	})
	if 100*missed > moved {
		t.Errorf("%d times nobody was asked where somebody could have been, %d times somebody was", missed, moved)
	}
	if moved == 0 || stayed == 0 || gangsLeft == 0 {
		t.Errorf("%d times somebody left, gangs %d times, %d times nobody: the law was asked nothing", moved, gangsLeft, stayed)
	}
	t.Logf("%d times somebody left, gangs %d times, %d times nobody, of which %d wrongly", moved, gangsLeft, stayed, missed)
}

func (s *scenery) fits(who []int) bool {
	all := *s
	all.runs = slices.Clone(s.runs)
	free := slices.Clone(s.free)
	for _, i := range who {
		for _, l := range all.runs[i].on {
			free[l.node] += l.cards
		}
	}
	room := 0
	for _, n := range free {
		if n >= s.want.Spec.GPUs {
			room++
		}
	}
	return room >= s.want.Spec.NodeCount()
}
