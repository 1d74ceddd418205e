package scheduler_test

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/accounting"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler"
	"github.com/berth-scheduler/berth/scheduler/company"
	"github.com/berth-scheduler/berth/scheduler/rules"
	. "github.com/berth-scheduler/berth/scheduler/schedtest"
)

// TestSlowdownsByHand: what each of a set takes, from the numbers that were learned.
func TestSlowdownsByHand(t *testing.T) {
	t.Parallel()
	gpu := &cluster.GPU{Type: a100, CapMode: "sim"}
	know := func(s dispatch.Sharing) *dispatch.Interference {
		s.GPUType = a100
		return &dispatch.Interference{MaxBend: 1.6, BandwidthPerUtil: 1, Jobs: map[string]dispatch.Temper{"a": {Self: 1}, "b": {Self: 2, Family: 9}}, Cards: []dispatch.Sharing{s}}
	}
	mates := func(milli ...int64) (out []company.Mate) {
		for i, m := range milli {
			out = append(out, company.Mate{Job: cluster.JobID(i + 1), Milli: m, Owner: &cluster.Owner{}})
		}
		return out
	}
	named := func(sigs ...string) (out []company.Mate) {
		for i, s := range sigs {
			out = append(out, company.Mate{Job: cluster.JobID(i + 1), Signature: s, Owner: &cluster.Owner{}})
		}
		return out
	}
	for _, c := range []struct {
		name string
		s    dispatch.Sharing
		set  []company.Mate
		want []float64
	}{
		{"alone", dispatch.Sharing{Switch: 1}, mates(500), []float64{1}},
		{"a switch for each neighbour", dispatch.Sharing{Switch: 0.1}, mates(500, 500, 500), []float64{1.2, 1.2, 1.2}},
		{"compute by the product", dispatch.Sharing{Compute: 2}, mates(500, 200), []float64{1.2, 1.2}},
		{"memory by the product", dispatch.Sharing{Memory: 1}, mates(500, 200), []float64{1.1, 1.1}},
		{"bandwidth beyond what there is", dispatch.Sharing{Bandwidth: 1}, mates(700, 600), []float64{1.3, 1.3}},
		{"none below it", dispatch.Sharing{Bandwidth: 1}, mates(500, 500), []float64{1, 1}},
		// No pair is beyond, all three are, by a fifth.
		{"three are more than their pairs", dispatch.Sharing{Bandwidth: 1}, mates(400, 400, 400), []float64{1.2, 1.2, 1.2}},
		// All are beyond by 0.4. The pairs of the first are by 0.1 and 0.1, so that
		// 0.2 more come; those of the others by 0.1 alone.
		{"what pairs have counts once", dispatch.Sharing{Bandwidth: 1}, mates(600, 500, 300), []float64{1 + 0.1 + 0 + 0.3, 1 + 0.1 + 0.3, 1.4}},
		{"a sensitive one", dispatch.Sharing{Effects: map[uint64]dispatch.Effect{1: {Sensitivity: 0.5}}}, named("a", "b"), []float64{2.5 / 1.5, 1}},
		{"an aggressive one", dispatch.Sharing{Effects: map[uint64]dispatch.Effect{1: {Aggression: 0.5}}}, named("a", "b"), []float64{1, 2.5 / 1.5}},
		{"what was seen of the pair", dispatch.Sharing{Histories: map[[2]uint64]float64{{1, 2}: 0.4}}, named("a", "b"), []float64{2.4 / 1.6, 1}},
		{"and of the family", dispatch.Sharing{Histories: map[[2]uint64]float64{{1, 9}: 0.4}}, named("a", "b"), []float64{2.4 / 1.6, 1}},
		{"an offset below 0 makes nobody faster", dispatch.Sharing{Effects: map[uint64]dispatch.Effect{1: {Sensitivity: -0.5}}}, named("a", "b"), []float64{1, 1}},
		{"but takes back what the load costs", dispatch.Sharing{Switch: 0.5, Effects: map[uint64]dispatch.Effect{1: {Sensitivity: -0.2}}}, named("a", "b"), []float64{1.5 * 1.8 / 2.2, 1.5}},
		{"an offset is bounded", dispatch.Sharing{Effects: map[uint64]dispatch.Effect{1: {Sensitivity: 99}}}, named("a", "b"), []float64{3.6 / 0.4, 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, ok := company.Slowdowns(know(c.s), gpu, c.set, nil)
			if !ok || len(got) != len(c.want) {
				t.Fatalf("%v, %t", got, ok)
			}
			for i := range got {
				if math.Abs(got[i]-c.want[i]) > 1e-9 {
					t.Errorf("job %d takes %.4f times as long, want %.4f", i+1, got[i], c.want[i])
				}
			}
			worst := slices.Max(c.want)
			for _, limit := range []struct {
				milli int64
				bears bool
			}{{int64(worst*1000) + 1, true}, {int64(worst*1000) - 1, worst <= 1}} {
				if limit.milli < 1000 || len(c.set) < 2 {
					continue
				}
				last := len(c.set) - 1
				pol := scheduler.Policy{MaxSlowdownMilli: limit.milli}
				if got := company.Bears(know(c.s), gpu, c.set[:last], c.set[last], &pol); got != limit.bears {
					t.Errorf("with a limit of %d thousandths it is borne: %t, want %t", limit.milli, got, limit.bears)
				}
			}
		})
	}
	// A quarter and a half are exact in binary: 1 + 1·0.5·0.5 is the limit itself.
	pol := scheduler.Policy{MaxSlowdownMilli: 1250}
	if !company.Bears(know(dispatch.Sharing{Compute: 1}), gpu, mates(500), mates(500)[0], &pol) {
		t.Error("a slowdown of just the limit is not borne")
	}
	if nine := mates(1, 1, 1, 1, 1, 1, 1, 1, 1); company.Bears(know(dispatch.Sharing{}), gpu, nine[:8], nine[8], &pol) {
		t.Error("nine share a card")
	}
}

// TestWhoIsNamed: the words of a refusal name the one who is hit worst, and the first
// on a card who does not share with the newcomer.
func TestWhoIsNamed(t *testing.T) {
	t.Parallel()
	w := NewWorld([]*cluster.Node{Node("n1", 1, a100)}, light(1, "thin"), light(2, "meek"))
	p := scheduler.Schedule(w.Snapshot(), scheduler.Default())
	w.Apply(&p)
	w.Know = bully() // it slows all down by 1.8, and "thin" by more
	w.Know.Jobs["thin"] = dispatch.Temper{Self: 3}
	w.Know.Cards[0].Effects[3] = dispatch.Effect{Sensitivity: 0.2}
	j := light(3, "bully")
	w.Submit(j)
	x := scheduler.Explain(w.Snapshot(), j, scheduler.Default())
	if len(x) == 0 || !strings.Contains(x[0].Reason.Detail, "would slow job 1 down 2.3×, the limit is 1.5×") {
		t.Errorf("explained by %+v, want job 1, whom it hits worst", x)
	}
	w = NewWorld([]*cluster.Node{Node("n1", 1, a100, Scoped(cluster.ScopeSameGroup))}, light(1, "", Of(1, 5)), light(2, "", Of(2, 5)))
	p = scheduler.Schedule(w.Snapshot(), scheduler.Default())
	if w.Apply(&p); len(w.OnGPU("n1-00")) != 2 {
		t.Fatalf("two of one group do not share: %v", p.Unplaced)
	}
	for _, c := range []struct {
		gid  uint32
		want int
	}{{5, 1}, {6, 0}} {
		w.Jobs[9] = light(9, "", Of(9, c.gid))
		p = scheduler.Schedule(w.Snapshot(), scheduler.Default())
		if len(p.Starts) != c.want {
			t.Errorf("group %d beside two of group 5: %d starts, want %d", c.gid, len(p.Starts), c.want)
		}
	}
	w = NewWorld([]*cluster.Node{Node("n1", 1, a100, Scoped(cluster.ScopeSameUser))})
	for id, uid := range map[cluster.JobID]cluster.UID{1: 5, 2: 6} { // as the switch found them
		running(w, light(id, "", Of(5, 5)), "n1-00", cluster.Share{MemMiB: 1000, Milli: 100})
		w.Jobs[id].Owner.UID = uid
	}
	w.Submit(light(3, "", Of(5, 5)))
	if p = scheduler.Schedule(w.Snapshot(), scheduler.Default()); len(p.Starts) != 0 {
		t.Error("a job lies beside a stranger who is not the first on the card")
	}
}

// TestFastPathByRule: what comes free is given to who stands first in its queue, and
// to nobody for whom that is not for the fast path to say.
func TestFastPathByRule(t *testing.T) {
	t.Parallel()
	const m, h = time.Minute, time.Hour
	at := func(id cluster.JobID, opts ...JobOption) *cluster.Job {
		return Job(id, Exclusive, Lasts(m), queued("n1-00", 0), attached(opts...))
	}
	share := func(id cluster.JobID, mem int64, opts ...JobOption) *cluster.Job {
		return Job(id, Mem(mem), Util(100), Lasts(m), queued("n1-00", 0), attached(opts...))
	}
	cancelled := func(j *cluster.Job) { j.Cancel = &cluster.CancelRequest{} }
	var twenty []cluster.GPUID
	for i := range 20 {
		twenty = append(twenty, GPU("n1", i))
	}
	for _, c := range []struct {
		name  string
		nodes []*cluster.Node
		runs  []lies
		waits []*cluster.Job
		free  []cluster.GPUID
		pol   func(*scheduler.Policy)
		long  bool // the others are not short
		want  string
	}{
		{name: "the head", nodes: one(a100), waits: []*cluster.Job{at(1), at(2)}, want: "1@n1-00"},
		{name: "not one whom its owner cancelled", nodes: one(a100), waits: []*cluster.Job{at(1, cancelled)}, want: ""},
		{name: "nor who is not short", nodes: one(a100), waits: []*cluster.Job{at(1)}, long: true, want: ""},
		{name: "but who is old", nodes: one(a100), waits: []*cluster.Job{at(1, Waited(5*h))}, long: true, want: "1@n1-00"},
		{name: "as many as may share", nodes: one(a100), waits: []*cluster.Job{share(1, 9000), share(2, 9000), share(3, 9000), share(4, 9000)}, want: "1@n1-00; 2@n1-00; 3@n1-00"},
		{name: "nobody beside one who has it alone", nodes: one(a100), waits: []*cluster.Job{at(1), share(2, 9000)}, want: "1@n1-00"},
		{name: "one for each place of the depth", nodes: one(a100), pol: func(p *scheduler.Policy) { p.ReleaseDepth = 2 },
			waits: []*cluster.Job{share(1, 9000), share(2, 9000), share(3, 9000)}, want: "1@n1-00; 2@n1-00"},
		{name: "nobody without cores", nodes: []*cluster.Node{Node("n1", 2, a100, Host(4000, 64<<10))}, runs: []lies{held(0, "n1-01", h, Cores(2000))},
			pol: func(p *scheduler.Policy) { p.KeepCPUMilli, p.KeepMemMiB = 0, 0 }, waits: []*cluster.Job{at(1, Cores(3000))}, want: ""},
		{name: "nor without host memory", nodes: []*cluster.Node{Node("n1", 2, a100, Host(64_000, 4096))}, runs: []lies{held(0, "n1-01", h, HostMem(2048))},
			pol: func(p *scheduler.Policy) { p.KeepCPUMilli, p.KeepMemMiB = 0, 0 }, waits: []*cluster.Job{at(1, HostMem(3000))}, want: ""},
		{name: "two who fit one by one and not both", nodes: []*cluster.Node{Node("n1", 2, a100, Host(4000, 64<<10))}, free: []cluster.GPUID{"n1-00", "n1-01"},
			pol:   func(p *scheduler.Policy) { p.KeepCPUMilli, p.KeepMemMiB = 0, 0 },
			waits: []*cluster.Job{at(1, Cores(3000)), Job(2, Exclusive, Lasts(m), Cores(3000), queued("n1-01", 0))}, want: "1@n1-00"},
		{name: "nothing on a node that is drained", nodes: []*cluster.Node{Node("n1", 1, a100, Drained)}, waits: []*cluster.Job{at(1)}, want: ""},
		{name: "nor silent", nodes: []*cluster.Node{Node("n1", 1, a100, Silent)}, waits: []*cluster.Job{at(1)}, want: ""},
		{name: "nobody on a node that it excludes", nodes: one(a100), waits: []*cluster.Job{at(1, where(func(w *cluster.Where) { w.Exclude = hosts("n1") }))}, want: ""},
		{name: "nor whole nodes", nodes: one(a100), waits: []*cluster.Job{at(1, where(wholeNodes))}, want: ""},
		{name: "nor another type", nodes: one(a100), waits: []*cluster.Job{at(1, Type(t4))}, want: ""},
		{name: "a gang takes cards like that one", nodes: []*cluster.Node{Node("n1", 2, a100)}, waits: []*cluster.Job{at(1, GPUs(2))}, want: "1@n1-00+n1-01"},
		{name: "all or none", nodes: []*cluster.Node{Node("n1", 2, a100)}, runs: []lies{held(0, "n1-01", h)}, waits: []*cluster.Job{at(1, GPUs(2))}, want: ""},
		{name: "an old gang in another queue of the node bars the way", nodes: []*cluster.Node{Node("n1", 3, a100)}, runs: []lies{held(0, "n1-01", h)},
			waits: []*cluster.Job{at(1), Job(2, GPUs(3), Exclusive, Lasts(m), Waited(5*h), queued("n1-01", h))}, want: ""},
		{name: "one of one card does not", nodes: []*cluster.Node{Node("n1", 3, a100)}, runs: []lies{held(0, "n1-01", h)},
			waits: []*cluster.Job{at(1), Job(2, Exclusive, Lasts(m), Waited(5*h), queued("n1-01", h))}, want: "1@n1-00"},
		{name: "but by the cores that it needs", nodes: []*cluster.Node{Node("n1", 3, a100, Host(8000, 64<<10))}, runs: []lies{held(0, "n1-01", h, Cores(1000))},
			pol:   func(p *scheduler.Policy) { p.KeepCPUMilli, p.KeepMemMiB = 0, 0 },
			waits: []*cluster.Job{at(1, Cores(2000)), Job(2, Exclusive, Cores(6000), Lasts(m), Waited(5*h), queued("n1-01", h))}, want: ""},
		{name: "nobody twice, though a card is named twice", nodes: one(a100), free: []cluster.GPUID{"n1-00", "n1-00"}, waits: []*cluster.Job{share(1, 9000)}, want: "1@n1-00"},
		{name: "no more than there is, however many cards came free", nodes: []*cluster.Node{Node("n1", 20, a100)}, free: twenty,
			waits: []*cluster.Job{share(1, 30_000, queued("n1-18", 0)), share(2, 30_000, queued("n1-18", 0)), share(3, 30_000, queued("n1-18", 0))}, want: "1@n1-18; 2@n1-18"},
		{name: "nobody without compute", nodes: one(a100), runs: []lies{{job: Job(100, Lasts(h)), on: "n1-00", mem: 1000, use: 901}}, waits: []*cluster.Job{share(1, 9000)}, want: ""},
		{name: "with all of what is left of it", nodes: one(a100), runs: []lies{{job: Job(100, Lasts(h)), on: "n1-00", mem: 71_000, use: 900}}, waits: []*cluster.Job{share(1, 9000)}, want: "1@n1-00"},
		{name: "no gang on a card as full as the policy allows", nodes: []*cluster.Node{Node("n1", 2, a100)}, runs: []lies{{job: Job(100, Lasts(h)), on: "n1-01", mem: 1000, use: 100}, {job: Job(101, Lasts(h)), on: "n1-01", mem: 1000, use: 100}},
			pol: func(p *scheduler.Policy) { p.MaxShares = 2 }, waits: []*cluster.Job{share(1, 9000, GPUs(2))}, want: ""},
		{name: "nor on one that is out of service", nodes: []*cluster.Node{Node("n1", 2, a100, func(n *cluster.Node) { n.GPUs[1].State = cluster.GPUFailing })}, waits: []*cluster.Job{at(1, GPUs(2))}, want: ""},
		{name: "nor on one of another size", nodes: []*cluster.Node{Node("n1", 2, a100, func(n *cluster.Node) { n.GPUs[1].SellableMiB = 40_000 })}, waits: []*cluster.Job{share(1, 9000, GPUs(2))}, want: ""},
		{name: "nor of another type", nodes: []*cluster.Node{Node("n1", 2, a100, func(n *cluster.Node) { n.GPUs[1].Type = t4 })}, waits: []*cluster.Job{share(1, 9000, GPUs(2))}, want: ""},
		// Of 30,000 MiB 4,000 are in use, and each idle card keeps 5,000.
		{name: "nobody who leaves idle cards too little host memory", nodes: []*cluster.Node{Node("n1", 3, a100, Host(64_000, 30_000))}, runs: []lies{{job: Job(100, Lasts(h), HostMem(4000)), on: "n1-00", mem: 1000, use: 100}},
			pol: func(p *scheduler.Policy) { p.KeepMemMiB = 5000 }, waits: []*cluster.Job{share(1, 9000, HostMem(16_001)), share(2, 9000, HostMem(16_000))}, want: "2@n1-00"},
		{name: "the card that it takes keeps nothing any more", nodes: []*cluster.Node{Node("n1", 3, a100, Host(64_000, 30_000))}, runs: []lies{held(0, "n1-01", h, HostMem(4000))},
			pol: func(p *scheduler.Policy) { p.KeepMemMiB = 5000 }, waits: []*cluster.Job{share(1, 9000, HostMem(20_000))}, want: "1@n1-00"},
		{name: "a gang on the card that an old one waits for", nodes: []*cluster.Node{Node("n1", 2, a100)},
			waits: []*cluster.Job{at(1, GPUs(2)), Job(2, Exclusive, Lasts(m), Waited(5*h), queued("n1-01", h))}, want: ""},
		{name: "nobody on the node where a deadline waits for another card", nodes: []*cluster.Node{Node("n1", 3, a100)}, runs: []lies{held(0, "n1-01", h)},
			waits: []*cluster.Job{at(1), Job(2, Exclusive, Lasts(m), Waited(5*h), dueIn(3*h), queued("n1-01", h))}, want: ""},
		{name: "who leaves an old one the cores that it needs", nodes: []*cluster.Node{Node("n1", 3, a100, Host(9000, 64<<10))}, runs: []lies{held(0, "n1-01", h, Cores(1000))},
			pol:   func(p *scheduler.Policy) { p.KeepCPUMilli, p.KeepMemMiB = 0, 0 },
			waits: []*cluster.Job{at(1, Cores(2000)), Job(2, Exclusive, Cores(6000), Lasts(m), Waited(5*h), queued("n1-01", h))}, want: "1@n1-00"},
		{name: "nobody behind an old one that does not fit, though he waited longer", nodes: one(a100), runs: []lies{{job: Job(100, Lasts(h)), on: "n1-00", mem: 40_000, use: 100}},
			waits: []*cluster.Job{share(1, 60_000, Waited(5*h)), share(2, 9000, Waited(6*h))}, want: ""},
		{name: "who is older may pass it", nodes: []*cluster.Node{Node("n1", 3, a100)}, runs: []lies{held(0, "n1-01", h)},
			waits: []*cluster.Job{at(1, Waited(6*h)), Job(2, GPUs(3), Exclusive, Lasts(m), Waited(5*h), queued("n1-01", h))}, want: "1@n1-00"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := scene{nodes: c.nodes, runs: c.runs, waits: c.waits}
			w := s.world(t)
			if !c.long {
				asShort(w)
			}
			pol := scheduler.Default()
			if c.pol != nil {
				c.pol(&pol)
			}
			if c.free == nil {
				c.free = []cluster.GPUID{"n1-00"}
			}
			p := scheduler.OnRelease(w, c.free, pol)
			if got := brief(&p); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
			w.Apply(&p)
			if err := w.Check(); err != nil || len(w.Rejected) > 0 {
				t.Errorf("applied: %v, rejected %v", err, w.Rejected)
			}
		})
	}
}

// quotaOf gives user 1 a quota, of which those who run have something.
func quotaOf(l accounting.Limits) func(*dispatch.Snapshot) {
	return func(s *dispatch.Snapshot) {
		u := accounting.Subject{User: true, UID: 1}
		s.Limits = accounting.NewLimiter(nil, map[accounting.Subject]*accounting.Quota{u: {Subject: u, Limits: l}}, nil)
		for _, j := range s.Running {
			milli, _ := j.Live().Rate()
			s.Limits.Count(accounting.HolderOf(j), 1, 1, milli)
		}
	}
}

// TestQuotasInAPass: what a quota holds, of whom, and what becomes of the others.
func TestQuotasInAPass(t *testing.T) {
	t.Parallel()
	const m, h = time.Minute, time.Hour
	mine := func(id cluster.JobID, opts ...JobOption) *cluster.Job {
		return Job(id, Exclusive, Lasts(h), Of(1, 1), attached(opts...))
	}
	cards := func(n int64) func(*dispatch.Snapshot) { return quotaOf(accounting.Limits{GPUMilli: n * 1000}) }
	node := func(n int) []*cluster.Node { return []*cluster.Node{Node("n1", n, a100)} }
	half := Predict(a100, 40_000, 500, h)
	playScenes(t, []scene{
		{name: "as many as it allows", nodes: node(4), snap: cards(2), waits: []*cluster.Job{mine(1), mine(2), mine(3)}, want: "1@n1-00; 2@n1-01; 3-AssocGrpGRES"},
		{name: "others go on", nodes: node(4), snap: cards(1), waits: []*cluster.Job{mine(1), mine(2), Job(3, Exclusive, Lasts(h))}, want: "1@n1-00; 3@n1-01; 2-AssocGrpGRES"},
		{name: "a gang counts as all of its cards", nodes: node(4), snap: cards(2), waits: []*cluster.Job{mine(1, GPUs(3))}, want: "1-AssocGrpGRES"},
		{name: "of all of its nodes", nodes: one(a100, a100, a100), snap: cards(2), waits: []*cluster.Job{mine(1, onNodes(3))}, want: "1-AssocGrpGRES"},
		{name: "and of no more", nodes: one(a100, a100, a100), snap: cards(3), waits: []*cluster.Job{mine(1, onNodes(3))}, want: "1@n1-00,n2-00,n3-00"},
		{name: "half a card is half", nodes: node(4), snap: cards(1), waits: []*cluster.Job{Job(1, half, Of(1, 1)), Job(2, half, Of(1, 1)), Job(3, half, Of(1, 1))}, want: "1@n1-00; 2@n1-00; 3-AssocGrpGRES"},
		// On the T4 it takes the whole card, on the A100 a fifth.
		{name: "a type on which it would be too much is closed to it", nodes: one(a100, t4), snap: quotaOf(accounting.Limits{GPUMilli: 500}),
			waits: []*cluster.Job{Job(1, Predict(a100, 15_000, 200, h), Predict(t4, 15_000, 200, h), Of(1, 1))}, want: "1@n1-00"},
		{name: "jobs that run, whatever they take", nodes: node(4), snap: quotaOf(accounting.Limits{Running: 1}), waits: []*cluster.Job{mine(1), mine(2)}, want: "1@n1-00; 2-AssocMaxJobsLimit"},
		{name: "who stands in a queue leaves it", nodes: node(1), snap: cards(1), runs: []lies{held(0, "n1-00", h, Of(1, 1))},
			waits: []*cluster.Job{mine(1, queued("n1-00", h), func(j *cluster.Job) { j.Reason.Code = cluster.ReasonCode("AssocGrpGRES") })}, want: "1-AssocGrpGRES"},
		{name: "and keeps nothing", nodes: []*cluster.Node{Node("n1", 2, a100)}, snap: cards(1), runs: []lies{held(0, "n1-00", h, Of(1, 1))},
			waits: []*cluster.Job{mine(1, GPUs(2), Waited(m), queued("n1-00", h)), Job(2, Exclusive, Lasts(9*h))}, want: "2@n1-01; 1-AssocGrpGRES"},
		{name: "who can do without GPUs is not held by a quota of GPUs", nodes: []*cluster.Node{Node("n1", 1, a100), Node("n2", 0, "")}, snap: cards(1), runs: []lies{held(0, "n1-00", 9*h, Of(1, 1))},
			waits: []*cluster.Job{Job(1, Exclusive, Predict(a100, 1000, 100, h), orCores(h), Of(1, 1), goal(cluster.ObjectiveLatency))}, want: "1@n2"},
	})
}

// TestLeastMilli is what submission holds against a quota: the least that a job can
// take anywhere, on all of its nodes.
func TestLeastMilli(t *testing.T) {
	t.Parallel()
	nodes := []*cluster.Node{Node("n1", 2, a100), Node("n2", 2, t4)}
	fifth := attached(Predict(a100, 15_000, 200, time.Hour), Predict(t4, 15_000, 200, time.Hour))
	for _, c := range []struct {
		name string
		job  *cluster.Job
		want int64
	}{
		{"a card", Job(1), 1000}, {"two", Job(1, GPUs(2)), 2000}, {"two on each of three nodes", Job(1, GPUs(2), onNodes(3)), 6000},
		{"a fifth where it is a fifth", Job(1, fifth), 200}, {"all where it is all", Job(1, fifth, Type(t4)), 1000},
		{"none", Job(1, GPUs(0)), 0}, {"none, if it can do without", Job(1, orCores(time.Hour)), 0}, {"what fits nowhere", Job(1, Mem(200_000)), 0},
	} {
		if got := rules.LeastMilli(nodes, c.job, scheduler.Default()); got != c.want {
			t.Errorf("%s: %d thousandths, want %d", c.name, got, c.want)
		}
	}
}

// TestGoalsOfGangs: what a gang draws and costs is that of all of its cards.
func TestGoalsOfGangs(t *testing.T) {
	t.Parallel()
	const h = time.Hour
	for _, c := range []struct {
		name string
		job  *cluster.Job
		want string // why not, "" if it starts
	}{
		{"300 W on one card", Job(1, Predict(a100, 1000, 1000, h), power(300), drawsAtMost(300)), ""},
		{"299 are allowed", Job(1, Predict(a100, 1000, 1000, h), power(300), drawsAtMost(299)), "is predicted to draw 300 W"},
		{"two cards draw twice as much", Job(1, GPUs(2), Predict(a100, 1000, 1000, h), power(300), drawsAtMost(599)), "is predicted to draw 600 W"},
		{"and on three nodes six times", Job(1, GPUs(2), onNodes(3), Predict(a100, 1000, 1000, h), power(300), drawsAtMost(1799)), "is predicted to draw 1800 W"},
		{"which is allowed", Job(1, GPUs(2), Predict(a100, 1000, 1000, h), power(300), drawsAtMost(600)), ""},
		{"four an hour for all of a card", Job(1, Predict(a100, 1000, 1000, h), costs(4000)), ""},
		{"a thousandth less is allowed", Job(1, Predict(a100, 1000, 1000, h), costs(3999)), "is predicted to take"},
		{"of no known time", Job(1, Exclusive, costs(1)), ""},
		{"of an expected time", Job(1, Exclusive, Lasts(h), costs(3999)), "is predicted to take"},
		{"of no longer than a limit", Job(1, Exclusive, Limit(h), costs(3999)), "is predicted to take"},
		{"nothing known, and counted as all of a card", Job(1, guessed(a100, 300), drawsAtMost(299)), ""},
		{"half a card is half the price", Job(1, Predict(a100, 1000, 500, h), costs(2000)), ""},
		{"two cards cost twice as much", Job(1, GPUs(2), Predict(a100, 1000, 1000, h), costs(7999)), "is predicted to take"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			nodes := []*cluster.Node{Node("n1", 2, a100), Node("n2", 2, a100), Node("n3", 2, a100)}
			err := rules.NeverFits(nodes, c.job, priced())
			p := scheduler.Schedule(NewWorld(nodes, c.job).Snapshot(), priced())
			if c.want == "" && (err != nil || len(p.Starts) != 1) || c.want != "" && (err == nil || !strings.Contains(err.Msg, c.want) || len(p.Starts) > 0) {
				t.Errorf("refused by %v, %d starts, want %q", err, len(p.Starts), c.want)
			}
		})
	}
	// 2 × 400 W for an hour are 0.8 kWh, 2 × 150 W for two hours 0.6.
	j := Job(1, GPUs(2), Predict(small, 1000, 1000, 2*h), Predict(a100, 1000, 1000, h), power(150, 400), goal(cluster.ObjectiveEnergy))
	p := scheduler.Schedule(NewWorld([]*cluster.Node{Node("n1", 2, a100), Node("n2", 2, small)}, j).Snapshot(), priced())
	if len(p.Starts) != 1 || !strings.Contains(p.Starts[0].Why, "300 W, 0.60 kWh") {
		t.Errorf("starts %+v, want two cards of 40 GB for 0.60 kWh", p.Starts)
	}
	// What nobody knows of a type counts as the worst that is known.
	j = Job(1, Predict(small, 1000, 1000, 2*h), Predict(a100, 1000, 1000, h), power(0, 400), goal(cluster.ObjectiveEnergy))
	p = scheduler.Schedule(NewWorld([]*cluster.Node{Node("n1", 1, a100), Node("n2", 1, small)}, j).Snapshot(), priced())
	if got := brief(&p); got != "1@n1-00" {
		t.Errorf("%q: a type of unknown power was taken for the one that needs none", got)
	}
}

// guessed is the estimate of a job of which nothing is known.
func guessed(gpuType string, watts int64) JobOption {
	return func(j *cluster.Job) {
		j.Estimates = []cluster.Estimate{{GPUType: gpuType, GPUMemMiB: 1000, GPUMemP95MiB: 1000, Milli: cluster.WholeGPU, PowerW: watts, Source: "none"}}
	}
}

func drawsAtMost(watts int64) JobOption { return func(j *cluster.Job) { j.Spec.MaxPowerW = watts } }

func costs(milli int64) JobOption { return func(j *cluster.Job) { j.Spec.MaxCostMilli = milli } }

// TestMakingRoomByRule: for whom somebody is ended, where, and for whom not.
func TestMakingRoomByRule(t *testing.T) {
	t.Parallel()
	const m, h = time.Minute, time.Hour
	classed := func(s *dispatch.Snapshot) { s.Standing = &accounting.Standing{QOS: classes} }
	low := func(n int, on cluster.GPUID, ran time.Duration, opts ...JobOption) lies {
		return held(n, on, 100*h, inQOS("low"), func(j *cluster.Job) { j.Spec.Checkpoint = cluster.Checkpoint{Signal: "TERM", Grace: time.Second} }, attached(opts...))
	}
	high := func(opts ...JobOption) *cluster.Job {
		return Job(1, Exclusive, Lasts(h), inQOS("high"), attached(opts...))
	}
	// began sets for how long each has run, in the order of their ids.
	began := func(ago ...time.Duration) func(*dispatch.Snapshot) {
		return func(s *dispatch.Snapshot) {
			classed(s)
			for i := range ago {
				s.Running[i] = s.Running[i].Clone()
				s.Running[i].Last().Started = Now.Add(-ago[i])
			}
		}
	}
	leaving := func(s *dispatch.Snapshot) {
		began(h, 2*h)(s)
		s.Running[0].Last().Preempt = &cluster.PreemptRequest{For: 1}
	}
	both := func(fs ...func(*dispatch.Snapshot)) func(*dispatch.Snapshot) {
		return func(s *dispatch.Snapshot) {
			for _, f := range fs {
				f(s)
			}
		}
	}
	quiet := func(p *scheduler.Policy) { p.MaxMoves = 0 }
	playScenes(t, []scene{
		{name: "the node where least is lost", nodes: one(a100, a100), runs: []lies{low(0, "n1-00", 0), low(1, "n2-00", 0)}, snap: began(2*h, h), pol: quiet, waits: []*cluster.Job{high()}, want: "101!"},
		{name: "the first of equals", nodes: one(a100, a100), runs: []lies{low(0, "n1-00", 0), low(1, "n2-00", 0)}, snap: began(h, h), pol: quiet, waits: []*cluster.Job{high()}, want: "100!"},
		{name: "on the node that it asks for", nodes: one(a100, a100), runs: []lies{low(0, "n1-00", 0), low(1, "n2-00", 0)}, snap: began(2*h, 3*h), pol: quiet, waits: []*cluster.Job{high(On("n2"))}, want: "101!"},
		{name: "not on one that it excludes", nodes: one(a100, a100), runs: []lies{low(0, "n1-00", 0), low(1, "n2-00", 0)}, snap: began(2*h, 3*h), pol: quiet,
			waits: []*cluster.Job{high(where(func(w *cluster.Where) { w.Exclude = hosts("n1") }))}, want: "101!"},
		{name: "nobody while somebody leaves for it", nodes: one(a100, a100), runs: []lies{low(0, "n1-00", 0), low(1, "n2-00", 0)}, snap: leaving, pol: quiet, waits: []*cluster.Job{high()}, want: ""},
		{name: "nobody for one that a quota holds", nodes: one(a100), runs: []lies{low(0, "n1-00", 0)}, snap: both(classed, quotaOf(accounting.Limits{Running: 1}), func(s *dispatch.Snapshot) { s.Limits.Count(accounting.Holder{UID: 1}, 1, 1, 0) }),
			pol: quiet, waits: []*cluster.Job{high(Of(1, 1))}, want: ""},
		{name: "nobody where cores would lack all the same", nodes: []*cluster.Node{Node("n1", 2, a100, Host(8000, 64<<10))}, runs: []lies{low(0, "n1-00", 0, Cores(2000)), held(1, "n1-01", h, Cores(4000))},
			snap: classed, pol: quiet, waits: []*cluster.Job{high(Cores(5000))}, want: ""},
		{name: "who gives just enough of them", nodes: []*cluster.Node{Node("n1", 2, a100, Host(8000, 64<<10))}, runs: []lies{low(0, "n1-00", 0, Cores(2000)), held(1, "n1-01", h, Cores(4000))},
			snap: classed, pol: quiet, waits: []*cluster.Job{high(Cores(4000))}, want: "100!"},
		{name: "two for a gang of two", nodes: []*cluster.Node{Node("n1", 2, a100)}, runs: []lies{low(0, "n1-00", 0), low(1, "n1-01", 0)}, snap: began(h, 2*h), pol: quiet, waits: []*cluster.Job{high(GPUs(2))}, want: "101!; 100!"},
		{name: "each for one job only", nodes: one(a100, a100), runs: []lies{low(0, "n1-00", 0), low(1, "n2-00", 0)}, snap: began(h, 2*h), pol: quiet,
			waits: []*cluster.Job{high(), Job(2, Exclusive, Lasts(2*h), inQOS("high"))}, want: "100!; 101!"},
	})
	_ = m
}

// TestRanksOfMoves: the place that a pass gives a job in a queue says who goes before
// whom there: deadlines, then the old, and who has a priority before all of them.
func TestRanksOfMoves(t *testing.T) {
	t.Parallel()
	const m, h = time.Minute, time.Hour
	all := func(p *scheduler.Policy) { p.OldDrains, p.DeadlineShareMilli = 0, 1000 }
	sc := scene{nodes: one(a100), runs: []lies{held(0, "n1-00", h, Limit(h))}, pol: all, snap: ranked, waits: []*cluster.Job{
		Job(1, Exclusive, Limit(m), dueIn(9*h)), Job(2, Exclusive, Lasts(m), Waited(5*h)), Job(3, Exclusive, Lasts(m)), Job(4, Exclusive, Lasts(m), inQOS("urgent")),
	}}
	p := sc.plan(t)
	ranks := map[cluster.JobID]int64{}
	for _, x := range p.Moves {
		ranks[x.Job] = x.Rank
	}
	if len(ranks) != 4 || !(ranks[1] < ranks[2] && ranks[2] < ranks[3] && ranks[4] < 0) {
		t.Errorf("ranks %v: want the deadline before the old before the other, and the urgent below 0", ranks)
	}
	for id, old := range map[cluster.JobID]bool{1: true, 2: true, 3: false, 4: false} {
		if scheduler.RankIsOld(ranks[id]) != old {
			t.Errorf("job %d has rank %d, which nobody passes: %t", id, ranks[id], !old)
		}
	}
	// Whose class was changed while it waits gets another place in its queue.
	sc = scene{nodes: one(a100), runs: []lies{held(0, "n1-00", h)}, snap: ranked, waits: []*cluster.Job{Job(4, Exclusive, Lasts(m), inQOS("urgent"), queued("n1-00", h))}}
	if p = sc.plan(t); len(p.Moves) != 1 || p.Moves[0].GPU != "n1-00" || p.Moves[0].Rank >= 0 {
		t.Errorf("moves %+v, want one within its queue to a rank below 0", p.Moves)
	}
}

// TestNeverFitsByKind: what counts as a gang's cards are those of one kind on one
// node, and a job is refused for good only if no node at all would do.
func TestNeverFitsByKind(t *testing.T) {
	t.Parallel()
	mixed := Node("n1", 2, "L4", func(n *cluster.Node) { n.GPUs[1].Type = "L40" }) // both sell 24,000 MiB
	for _, c := range []struct {
		name  string
		nodes []*cluster.Node
		job   *cluster.Job
		want  string
	}{
		{"one card of either type", []*cluster.Node{mixed}, Job(1), ""},
		{"two cards of two types", []*cluster.Node{mixed}, Job(1, GPUs(2)), "2 GPUs on one node; the largest is node n1 with 1 × L4"},
		{"two of one type elsewhere", []*cluster.Node{mixed, Node("n2", 2, "L4")}, Job(1, GPUs(2)), ""},
		{"cores on the second node", []*cluster.Node{Node("n1", 1, a100, Host(4000, 64<<10)), Node("n2", 1, a100, Host(8000, 64<<10))}, Job(1, Cores(8000)), ""},
		{"on neither", []*cluster.Node{Node("n1", 1, a100, Host(4000, 64<<10)), Node("n2", 1, a100, Host(8000, 64<<10))}, Job(1, Cores(8001)), "the most is node n2 with 8 cores"},
		{"cores here, memory there", []*cluster.Node{Node("n1", 1, a100, Host(4000, 64<<10)), Node("n2", 1, a100, Host(8000, 8<<10))}, Job(1, Cores(8000), HostMem(9<<10)), "host memory beside 1 GPU and 8 cores; the most is node n2"},
		{"the card on a node without cores for it", []*cluster.Node{Node("n1", 1, a100, Host(1000, 64<<10)), Node("n2", 0, "")}, Job(1, Cores(8000)), "8 cores beside 1 GPU; the most is node n1 with 1 core"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			err := rules.NeverFits(c.nodes, c.job, scheduler.Default())
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Msg, c.want)) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}
