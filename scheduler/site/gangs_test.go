package site

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler"
	"github.com/berth-scheduler/berth/scheduler/cells"
	"github.com/berth-scheduler/berth/scheduler/policies"
	"github.com/berth-scheduler/berth/scheduler/schedtest"
)

// guests is a cluster of T4 nodes on which users 7 and 8 are teams x and y.
type guests struct {
	*schedtest.World
	site *Site
	next cluster.JobID
}

func newGuests(t interface{ Fatalf(string, ...any) }, policy string, nodes []*cluster.Node, tenants ...cells.Tenant) *guests {
	p, err := policies.New(policy, policies.Options{Base: scheduler.Default(), Tenants: &policies.Tenancy{Tenants: tenants, Users: map[string]string{"7": "x", "8": "y"}}})
	if err != nil {
		t.Fatalf("%v", err)
	}
	w := schedtest.NewWorld(nodes)
	w.Runs = func(*cluster.Job) time.Duration { return 1000 * time.Hour }
	return &guests{w, &Site{Chosen: Chosen{Policy: scheduler.Default(), Planner: p}}, 1}
}

func team(name string, of ...string) cells.Tenant {
	out := cells.Tenant{Name: name}
	for _, s := range of {
		c, err := cells.ParseCell("T4:" + s)
		if err != nil {
			panic(err)
		}
		out.Cells = append(out.Cells, c)
	}
	return out
}

func soft(j *cluster.Job) {
	j.Spec.Checkpoint = cluster.Checkpoint{Signal: "USR1", Grace: time.Minute}
}

func hard(*cluster.Job) {}

// come submits a job for whole cards of so many nodes.
func (g *guests) come(uid cluster.UID, nodes, cards int, opts ...schedtest.JobOption) *cluster.Job {
	j := schedtest.Job(g.next, append([]schedtest.JobOption{schedtest.Of(uid, 1), schedtest.Exclusive, schedtest.GPUs(cards), schedtest.Predict("T4", 1000, 100, time.Hour)}, opts...)...)
	if nodes > 1 {
		j.Spec.Nodes = nodes
	}
	g.next++
	j.Submitted, j.Eligible = g.Clock, g.Clock
	g.Submit(j)
	g.Advance(time.Second)
	return j
}

// pass plans, and carries out what starts.
func (g *guests) pass(t interface{ Fatalf(string, ...any) }) dispatch.Plan {
	snap := g.Snapshot()
	Prepare(snap, g.site, Full)
	before := snap.Ledger.Clone()
	p := Plan(snap, g.site, Full)
	if !before.Equal(snap.Ledger) {
		t.Fatalf("the pass changed its snapshot")
	}
	g.Apply(&p)
	if len(g.Rejected) > 0 {
		t.Fatalf("rejected %v of %+v", g.Rejected, p.Starts)
	}
	g.Advance(time.Second)
	return p
}

func starts(p *dispatch.Plan, id cluster.JobID) bool {
	return slices.ContainsFunc(p.Starts, func(s dispatch.Start) bool { return s.Job == id })
}

func endsFor(p *dispatch.Plan, id cluster.JobID) (who []cluster.JobID) {
	for _, x := range p.Preempt {
		if x.For == id {
			who = append(who, x.Job)
		}
	}
	slices.Sort(who)
	return who
}

func farm(n, cards int, racks ...string) []*cluster.Node {
	var out []*cluster.Node
	for i := range n {
		node := schedtest.Node(cluster.NodeID(fmt.Sprintf("n%d", i)), cards, "T4", schedtest.Host(64_000, 256<<10))
		if len(racks) > 0 {
			node.Features = []string{cluster.RackFeature + racks[i]}
		}
		out = append(out, node)
	}
	return out
}

// TestGangsOfTenants: a gang that its team's cells can hold starts at once, in a rack
// where the cells are one, or has those ended who borrowed them, gangs as a whole; whoever
// has no such cells starts where nobody is guaranteed anything.
func TestGangsOfTenants(t *testing.T) {
	t.Parallel()
	g := newGuests(t, "fgd", farm(5, 2, "a", "b", "a", "b", "c"), team("x", "4=1"), team("y", "2=1"))
	lent := g.come(8, 3, 2, soft)
	if p := g.pass(t); !starts(&p, lent.ID) {
		t.Fatalf("a gang that may be ended does not borrow: %+v", p.Unplaced)
	}
	mine := g.come(7, 2, 2)
	p := g.pass(t)
	if got := endsFor(&p, mine.ID); !starts(&p, mine.ID) && !slices.Equal(got, []cluster.JobID{lent.ID}) {
		t.Fatalf("ends %v for the team's gang, starts %+v, want that it starts or job %d ends", got, p.Starts, lent.ID)
	} else if len(got) > 0 {
		if u := p.Unplaced; len(u) != 1 || !strings.Contains(u[0].Reason.Detail, "being cleared on 2 nodes") {
			t.Errorf("it is told %+v", u)
		}
		g.End(lent.ID)
		if p = g.pass(t); !starts(&p, mine.ID) {
			t.Fatalf("they have ended and it waits: %+v", p.Unplaced)
		}
	}
	at := g.Jobs[mine.ID].Live().NodeIDs()
	if racks := []string{"n0 n2", "n1 n3"}; !slices.Contains(racks, fmt.Sprint(at[0])+" "+fmt.Sprint(at[1])) {
		t.Errorf("it is on %v, want two nodes of one rack", at)
	}
	beyond := g.come(7, 2, 2)
	p = g.pass(t)
	why := "team x has 4 of 4 GPUs of its cells in use; it may borrow when preemptible: submit with a checkpoint hook"
	if i := slices.IndexFunc(p.Unplaced, func(u dispatch.Unplaced) bool { return u.Job == beyond.ID }); i < 0 || p.Unplaced[i].Reason.Detail != why {
		t.Errorf("the next of the team: starts %t, told %+v", starts(&p, beyond.ID), p.Unplaced)
	}
	snap := g.Snapshot()
	if r := TenantReason(&g.site.Chosen, snap, g.Jobs[beyond.ID]); r.Detail != why {
		t.Errorf("it is told %q when it asks", r.Detail)
	}
	if r, ok := g.site.WhyWaits(snap, g.Jobs[beyond.ID]); !ok || r.Detail != why {
		t.Errorf("its pass says %q", r.Detail)
	}
}

// TestRoomOfATenantsGangIsKept: while one of those who borrowed saves its state nobody
// takes what another has left: neither a borrower nor a job of the team that came later.
func TestRoomOfATenantsGangIsKept(t *testing.T) {
	t.Parallel()
	g := newGuests(t, "bestfit", farm(2, 1), team("x", "1=2"))
	one, two := g.come(8, 1, 1, soft), g.come(8, 1, 1, soft)
	g.pass(t)
	gang := g.come(7, 2, 1)
	p := g.pass(t)
	if got := endsFor(&p, gang.ID); !slices.Equal(got, []cluster.JobID{one.ID, two.ID}) {
		t.Fatalf("ends %v, want both: %+v", got, p.Unplaced)
	}
	for _, id := range []cluster.JobID{one.ID, two.ID} {
		g.Jobs[id].Live().Preempt = &cluster.PreemptRequest{At: g.Clock, For: gang.ID}
	}
	g.End(one.ID)
	g.come(8, 1, 1, soft)
	g.come(7, 1, 1)
	if p = g.pass(t); len(p.Starts)+len(p.Preempt) > 0 {
		t.Fatalf("starts %+v, ends %+v while job %d leaves", p.Starts, p.Preempt, two.ID)
	}
	if i := slices.IndexFunc(p.Unplaced, func(u dispatch.Unplaced) bool { return u.Job == gang.ID }); i < 0 || !strings.Contains(p.Unplaced[i].Reason.Detail, "being cleared on 2 nodes: 0 that borrowed them are asked to end, others end already") {
		t.Errorf("told %+v", p.Unplaced)
	}
	g.End(two.ID)
	if p = g.pass(t); !starts(&p, gang.ID) {
		t.Errorf("the gang waits: %+v", p.Unplaced)
	}
}

// TestGuaranteedGangsComeFirst: one that came later has its team's nodes, and not one that
// would borrow them.
func TestGuaranteedGangsComeFirst(t *testing.T) {
	t.Parallel()
	g := newGuests(t, "fgd", farm(2, 1), team("x", "1=2"))
	lent, mine := g.come(8, 2, 1, soft), g.come(7, 2, 1)
	if p := g.pass(t); starts(&p, lent.ID) || !starts(&p, mine.ID) {
		t.Errorf("starts %+v, unplaced %+v", p.Starts, p.Unplaced)
	}
}

// TestATenantsGangWaitsForItsRack: of a cell of two nodes one is free, and so is a node of
// another rack, while who borrowed the other saves its state: the gang waits for that.
func TestATenantsGangWaitsForItsRack(t *testing.T) {
	t.Parallel()
	g := newGuests(t, "fgd", farm(4, 1, "a", "a", "b", "b"), team("x", "2=1"))
	lent := []*cluster.Job{g.come(8, 1, 1, soft), g.come(8, 1, 1, soft), g.come(8, 1, 1, soft), g.come(8, 1, 1, soft)}
	g.pass(t)
	gang := g.come(7, 2, 1)
	p := g.pass(t)
	asked := endsFor(&p, gang.ID)
	if len(asked) != 2 {
		t.Fatalf("ends %v, want two", asked)
	}
	for _, id := range asked {
		g.Jobs[id].Live().Preempt = &cluster.PreemptRequest{At: g.Clock, For: gang.ID}
	}
	other := slices.IndexFunc(lent, func(j *cluster.Job) bool { return !slices.Contains(asked, j.ID) })
	g.End(lent[other].ID)
	g.End(asked[0])
	if p = g.pass(t); len(p.Starts)+len(p.Preempt) > 0 {
		t.Fatalf("starts %+v, ends %+v while job %d leaves", p.Starts, p.Preempt, asked[1])
	}
	g.End(asked[1])
	if p = g.pass(t); !starts(&p, gang.ID) {
		t.Fatalf("the gang waits: %+v", p.Unplaced)
	}
	if at := fmt.Sprint(g.Jobs[gang.ID].Live().NodeIDs()); at != "[n0 n1]" && at != "[n2 n3]" {
		t.Errorf("it is on %s", at)
	}
}

// TestTenantsGangsAreNotPassedForEver: small jobs of the team come for ever, each before
// the last has ended; the gang is kept nodes as they come free, and starts.
func TestTenantsGangsAreNotPassedForEver(t *testing.T) {
	t.Parallel()
	g := newGuests(t, "firstfit", farm(3, 1), team("x", "1=3"))
	g.Runs = func(j *cluster.Job) time.Duration { return time.Duration(3+j.ID%3) * time.Minute }
	for range 3 {
		g.come(7, 1, 1)
	}
	g.pass(t)
	gang := g.come(7, 3, 1)
	for range 30 {
		g.come(7, 1, 1)
		if p := g.pass(t); starts(&p, gang.ID) {
			return
		}
		g.Advance(time.Minute)
	}
	t.Error("the gang has not started in half an hour")
}

// TestAnOlderJobOfTheTeamComesFirst: a gang does not take the cell of one that waits
// for longer, but for hours it does not step back.
func TestAnOlderJobOfTheTeamComesFirst(t *testing.T) {
	t.Parallel()
	for _, waited := range []time.Duration{0, 5 * time.Hour} {
		g := newGuests(t, "firstfit", farm(2, 1), team("x", "1=2"))
		one, gang := g.come(7, 1, 1), g.come(7, 2, 1)
		g.Advance(waited)
		p := g.pass(t)
		if starts(&p, one.ID) != (waited == 0) || starts(&p, gang.ID) == (waited == 0) {
			t.Errorf("after %s: starts %+v, unplaced %+v", waited, p.Starts, p.Unplaced)
		}
	}
}

// TestWholeNodesAreNobodys: what wants nodes for itself is refused under tenants.
func TestWholeNodesAreNobodys(t *testing.T) {
	t.Parallel()
	g := newGuests(t, "firstfit", farm(2, 1), team("x", "1=2"))
	j := g.come(7, 2, 1, func(j *cluster.Job) { j.Spec.Where = &cluster.Where{Whole: true} })
	p := g.pass(t)
	if u := p.Unplaced; len(p.Starts) > 0 || len(u) != 1 || u[0].Job != j.ID || !strings.Contains(u[0].Reason.Detail, "nodes are nobody's alone") {
		t.Errorf("starts %+v, unplaced %+v", p.Starts, u)
	}
}

// TestTenantsGangsAreGuaranteed plays streams of jobs of two teams whose cells are
// nodes, and of others. After each pass the nodes of each team can still be had, by a
// count; whoever is ended may be; and a job of whole nodes of a team that has no more
// running than its cells hold with it starts, or has room made and starts then: at once, or where others of this pass were before
// it in the next.
func TestTenantsGangsAreGuaranteed(t *testing.T) {
	t.Parallel()
	promised, cleared := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		nodes, cards := rapid.IntRange(2, 5).Draw(t, "nodes"), rapid.SampledFrom([]int{1, 2, 4}).Draw(t, "cards")
		own := map[cluster.UID]int{7: rapid.IntRange(1, nodes-1).Draw(t, "of x")}
		own[8] = rapid.IntRange(0, nodes-own[7]).Draw(t, "of y")
		x, y := team("x", fmt.Sprintf("%d=%d", cards, own[7])), cells.Tenant{Name: "y"}
		if own[8] > 0 {
			y = team("y", fmt.Sprintf("%d=%d", cards, own[8]))
		}
		g := newGuests(t, rapid.SampledFrom([]string{"firstfit", "fgd", "bestfit+qssf", "ffd", "consolidate"}).Draw(t, "policy"), farm(nodes, cards), x, y)
		for range rapid.IntRange(1, 14).Draw(t, "steps") {
			if running := g.Snapshot().Running; len(running) > 0 && rapid.Bool().Draw(t, "one ends") {
				g.End(rapid.SampledFrom(running).Draw(t, "ends").ID)
			}
			uid := rapid.SampledFrom([]cluster.UID{7, 7, 8, 9}).Draw(t, "user")
			on, each := rapid.IntRange(1, nodes).Draw(t, "on"), cards
			if uid != 7 {
				each = rapid.IntRange(1, cards).Draw(t, "each")
			}
			alone := !slices.ContainsFunc(g.Snapshot().Waiting, func(o *cluster.Job) bool { return o.Owner.UID == uid })
			j := g.come(uid, on, each, rapid.SampledFrom([]schedtest.JobOption{soft, hard}).Draw(t, "may be ended"))
			must := uid == 7 && alone && on+g.nodesOf(7) <= own[7]
			p := g.pass(t)
			g.check(t, &p, cards, own)
			if must && !starts(&p, j.ID) && len(endsFor(&p, j.ID)) == 0 {
				// Somebody may have begun to borrow there in this very pass, before it.
				for _, x := range p.Preempt {
					g.End(x.Job)
				}
				p = g.pass(t)
				g.check(t, &p, cards, own)
			}
			if must {
				promised++
				if who := endsFor(&p, j.ID); !starts(&p, j.ID) {
					if len(who) == 0 {
						t.Fatalf("job %d fits its cells, and neither starts nor has room made: %+v", j.ID, p.Unplaced)
					}
					cleared++
				}
			}
			for _, x := range p.Preempt {
				g.End(x.Job)
			}
			if len(p.Preempt) > 0 {
				again := g.pass(t)
				g.check(t, &again, cards, own)
				if must && !starts(&p, j.ID) && !starts(&again, j.ID) {
					t.Fatalf("those in the way of job %d have ended, and it waits: %+v", j.ID, again.Unplaced)
				}
				for _, x := range again.Preempt {
					g.End(x.Job)
				}
			}
		}
	})
	if promised == 0 || cleared == 0 {
		t.Errorf("%d jobs were within a guarantee, for %d room was made: the law was asked nothing", promised, cleared)
	}
	t.Logf("%d jobs were within a guarantee, for %d room was made", promised, cleared)
}

// nodesOf is on how many nodes jobs of a user run.
func (g *guests) nodesOf(uid cluster.UID) (n int) {
	for _, j := range g.Snapshot().Running {
		if j.Owner.UID == uid {
			n += j.Live().Nodes()
		}
	}
	return n
}

// check counts the nodes that each team could have: those where nobody else's job lies
// that cannot be ended.
func (g *guests) check(t *rapid.T, p *dispatch.Plan, cards int, own map[cluster.UID]int) {
	if err := g.Check(); err != nil {
		t.Fatalf("%v", err)
	}
	owner := map[cluster.NodeID]cluster.UID{} // of firm jobs, 1 for several or for no team
	for _, j := range g.Snapshot().Running {
		if j.Spec.Checkpoint.Set() {
			continue
		}
		for _, b := range j.Live().Held() {
			switch was, ok := owner[b.Node]; {
			case own[j.Owner.UID] == 0 || ok && was != j.Owner.UID:
				owner[b.Node] = 1
			default:
				owner[b.Node] = j.Owner.UID
			}
		}
	}
	free := len(g.Nodes) - len(owner)
	for uid, want := range own {
		have := 0
		for _, o := range owner {
			if o == uid {
				have++
			}
		}
		free -= max(0, want-have)
	}
	if free < 0 {
		t.Fatalf("nodes of the teams are held for good by others: %v, cells %v, starts %+v", owner, own, p.Starts)
	}
	for _, x := range p.Preempt {
		if j := g.Jobs[x.Job]; j == nil || j.Live() == nil || !j.Spec.Checkpoint.Set() || j.Live().No != x.Attempt {
			t.Fatalf("%+v is to end", x)
		}
	}
}
