package policies_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler"
	"github.com/berth-scheduler/berth/scheduler/policies"
	"github.com/berth-scheduler/berth/scheduler/policies/place"
	"github.com/berth-scheduler/berth/scheduler/rules"
	. "github.com/berth-scheduler/berth/scheduler/schedtest"
)

const (
	a100  = "A100-SXM4-80GB"
	small = "A100-SXM4-40GB"
	t4    = "T4"
)

// all returns every policy with its own order and with each other one.
func all(t *testing.T, opt policies.Options) []policies.Policy {
	t.Helper()
	var out []policies.Policy
	for _, n := range policies.Names() {
		out = append(out, with(t, n, opt)...)
	}
	return out
}

// with returns a placement with its own order and with each other one.
func with(t *testing.T, name string, opt policies.Options) []policies.Policy {
	t.Helper()
	out := []policies.Policy{must(t, name, opt)}
	for _, o := range policies.Orders() {
		if p := must(t, name+"+"+o, opt); p.Name() != out[0].Name() {
			out = append(out, p)
		}
	}
	return out
}

func drawNodes(t *rapid.T) []*cluster.Node {
	var out []*cluster.Node
	for i := range rapid.IntRange(1, 6).Draw(t, "nodes") {
		n := Node(cluster.NodeID(fmt.Sprintf("n%d", i)), rapid.SampledFrom([]int{0, 1, 2, 2, 3, 4}).Draw(t, "gpus"),
			rapid.SampledFrom([]string{a100, small, t4}).Draw(t, "type"),
			Host(rapid.Int64Range(3, 24).Draw(t, "cores")*1000, rapid.Int64Range(4, 32).Draw(t, "host")*1024))
		switch rapid.IntRange(0, 15).Draw(t, "kind") {
		case 0:
			Drained(n)
		case 1:
			Silent(n)
		case 2:
			CapMode("none")(n)
		case 3: // two types in one node
			for k := range n.GPUs {
				if k%2 == 1 {
					n.GPUs[k].Type, n.GPUs[k].SellableMiB = t4, 15000
				}
			}
		case 5, 6, 7:
			numa(n, 2)
		case 8, 9:
			Scoped(rapid.SampledFrom([]cluster.Scope{cluster.ScopeSameUser, cluster.ScopeSameGroup, cluster.ScopeNever}).Draw(t, "scope"))(n)
		case 4:
			for k := range n.GPUs {
				n.GPUs[k].MaxShares = rapid.IntRange(1, 5).Draw(t, "max shares")
			}
		}
		out = append(out, n)
	}
	return out
}

func drawJob(t *rapid.T, id cluster.JobID) *cluster.Job {
	minutes := func(what string) time.Duration {
		return time.Duration(rapid.IntRange(1, 90).Draw(t, what)) * time.Minute
	}
	j := Job(id, Cores(rapid.Int64Range(0, 4).Draw(t, "cores")*1000), HostMem(rapid.Int64Range(0, 4).Draw(t, "host")*1024),
		GPUs(rapid.SampledFrom([]int{0, 1, 1, 1, 1, 1, 2, 3}).Draw(t, "gpus")),
		Waited(time.Duration(rapid.IntRange(0, 600).Draw(t, "waited"))*time.Second))
	j.Owner.UID = cluster.UID(rapid.IntRange(1, 3).Draw(t, "uid"))
	drawSpan(t, j)
	j.Spec.Signature = rapid.SampledFrom([]string{"", "meek", "bully"}).Draw(t, "signature")
	if j.Spec.GPUs == 0 {
		return j
	}
	if rapid.IntRange(0, 3).Draw(t, "predicted") > 0 {
		mem, milli := rapid.SampledFrom([]int64{1, 3000, 9000, 14500, 22000, 50000}).Draw(t, "mem"), rapid.Int64Range(1, 20).Draw(t, "twentieths")*rapid.Int64Range(10, 50).Draw(t, "milli")
		Predict(small, mem, milli, minutes("on small"))(j)
		Predict(a100, mem, milli, minutes("on a100"))(j)
		if rapid.Bool().Draw(t, "known on t4") {
			Predict(t4, mem, milli, minutes("on t4"))(j)
		}
		for i := range j.Estimates {
			j.Estimates[i].CPUMilli = rapid.Int64Range(0, 4000).Draw(t, "cpu of it")
			j.Estimates[i].ConfidenceMilli = rapid.SampledFrom([]int64{100, 900, 900, 900}).Draw(t, "sure")
		}
	}
	if len(j.Attempts) == 0 && rapid.IntRange(0, 2).Draw(t, "had an attempt") == 0 {
		began := Now.Add(-2 * time.Hour)
		j.Attempts = []cluster.Attempt{{No: 1, State: cluster.JobPreempted, Started: began, Ended: began.Add(minutes("ran")), Estimate: cluster.Estimate{GPUType: a100}}}
	}
	switch rapid.IntRange(0, 13).Draw(t, "kind") {
	case 0:
		Exclusive(j)
	case 1:
		j.NeedWhole = true
	case 2:
		j.MinGPUMemMiB = rapid.Int64Range(1, 90000).Draw(t, "least")
	case 3:
		Type(rapid.SampledFrom([]string{a100, t4}).Draw(t, "wanted type"))(j)
	case 4:
		if j.Spec.NodeCount() == 1 && j.Spec.Where == nil {
			On(cluster.NodeID(fmt.Sprintf("n%d", rapid.IntRange(0, 6).Draw(t, "wanted node"))))(j)
		}
	case 5, 6, 7:
		Mem(rapid.Int64Range(1, 20000).Draw(t, "declared"))(j)
		Util(rapid.Int64Range(1, 600).Draw(t, "declared milli"))(j)
	}
	if rapid.IntRange(0, 3).Draw(t, "limited") == 0 {
		Limit(minutes("limit"))(j)
	}
	return j
}

// drawSpan makes some jobs gangs over several nodes, of which they may name one or
// want all for themselves.
func drawSpan(t *rapid.T, j *cluster.Job) {
	switch rapid.IntRange(0, 9).Draw(t, "span") {
	case 0, 1:
		Nodes(rapid.IntRange(2, 3).Draw(t, "on nodes"))(j)
	case 2:
		Nodes(rapid.IntRange(1, 2).Draw(t, "whole nodes"))(j)
		j.Spec.Where = &cluster.Where{Whole: true}
		j.Spec.MemMiB *= int64(j.ID % 2) // the others take all
	}
	if j.Spec.NodeCount() == 1 {
		return
	}
	if rapid.IntRange(0, 3).Draw(t, "named") == 0 {
		w := cluster.Where{Whole: j.Spec.WholeNodes()}
		w.Nodes, _ = cluster.ParseHostList(fmt.Sprintf("n%d", rapid.IntRange(0, 5).Draw(t, "its node")))
		j.Spec.Where = &w
	}
	if rapid.IntRange(0, 3).Draw(t, "held up") == 0 {
		j.Attempts = []cluster.Attempt{{No: 1, State: cluster.JobNodeFail, Berth: cluster.Berth{Node: "n0"}, Gang: &cluster.Gang{
			Rest: []cluster.Berth{{Node: "n1"}}, Parts: []cluster.Part{{State: cluster.JobNodeFail}, {State: cluster.JobFailed, Ready: true}},
		}}}
	}
}

// drawWorld is a cluster in the middle of its life, as p and the scheduler
// left it: some run, some ended, some wait, some stand in queues.
func drawWorld(t *rapid.T, p policies.Policy) *World {
	w := NewWorld(drawNodes(t))
	id := cluster.JobID(0)
	for range rapid.IntRange(0, 3).Draw(t, "rounds") {
		for range rapid.IntRange(1, 12).Draw(t, "batch") {
			id++
			w.Submit(drawJob(t, id))
		}
		plan := p.Plan(w.Snapshot())
		if rapid.Bool().Draw(t, "by the scheduler") {
			plan = scheduler.Schedule(w.Snapshot(), scheduler.Default())
		}
		w.Apply(&plan)
		w.Advance(time.Duration(rapid.IntRange(0, 40).Draw(t, "minutes")) * time.Minute)
	}
	for range rapid.IntRange(1, 10).Draw(t, "new") {
		id++
		w.Submit(drawJob(t, id))
	}
	return w
}

// withTerms adds deadlines, weights and leave to preempt.
func withTerms(t *rapid.T, s *dispatch.Snapshot) *dispatch.Snapshot {
	s.Terms = map[cluster.JobID]dispatch.Terms{}
	for _, j := range slices.Concat(s.Waiting, s.Running) {
		if rapid.Bool().Draw(t, "terms") {
			x := dispatch.Terms{
				Deadline:    s.Now.Add(time.Duration(rapid.IntRange(-10, 600).Draw(t, "deadline")) * time.Minute),
				WeightMilli: rapid.Int64Range(0, 3000).Draw(t, "weight"), Preemptible: rapid.Bool().Draw(t, "preemptible"),
			}
			if rapid.Bool().Draw(t, "best effort") {
				x.Deadline = 0
			}
			if rapid.Bool().Draw(t, "measured") {
				x.Stages = rapid.SampledFrom([]place.Stages{computes(), prepares(), {300 * ms, 100 * ms, 50 * ms}}).Draw(t, "stages")
				x.Iteration = x.Stages[0] + x.Stages[1]
			}
			s.Terms[j.ID] = x
		}
	}
	if rapid.Bool().Draw(t, "learned") {
		s.Interference = bully()
	}
	if rapid.Bool().Draw(t, "service") {
		s.Service = map[cluster.UID]int64{1: rapid.Int64Range(0, 9000).Draw(t, "of 1"), 2: 100}
	}
	return s
}

// TestLaws holds for every placement with every order, each with every set of
// options: all of them plan every world, in turn, and one makes its history.
func TestLaws(t *testing.T) {
	t.Parallel()
	sets := append([]policies.Options{{Seed: 7}, {Age: 5 * time.Minute}}, comparing()...)
	for _, name := range policies.Names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var ps [][]policies.Policy
			for _, opt := range sets {
				ps = append(ps, with(t, name, opt))
			}
			rapid.Check(t, func(t *rapid.T) {
				set := rapid.SampledFrom(ps).Draw(t, "options")
				last := rapid.SampledFrom(set).Draw(t, "policy")
				w := drawWorld(t, last)
				s := withTerms(t, w.Snapshot())
				seed := rapid.Uint64().Draw(t, "seed")
				for _, p := range set {
					checkLaws(t, w, s, p, seed)
				}
				w.Apply(new(last.Plan(s)))
				if err := w.Check(); err != nil || len(w.Rejected) > 0 {
					t.Fatalf("after the plan: %v, rejected %v", err, w.Rejected)
				}
			})
		})
	}
}

// checkLaws lets a policy plan a snapshot again and again.
func checkLaws(t *rapid.T, w *World, s *dispatch.Snapshot, p policies.Policy, seed uint64) {
	led := s.Ledger.Clone()
	plan := p.Plan(s)
	if !led.Equal(s.Ledger) {
		t.Fatalf("%s: the ledger of the snapshot was changed", p.Name())
	}
	checkPlan(t, w, s, &plan)
	if again := p.Plan(s); !reflect.DeepEqual(plan, again) {
		t.Fatalf("%s: the same again (-first +second):\n%s", p.Name(), cmp.Diff(plan, again))
	}
	if again := p.Plan(shuffled(s, seed)); !reflect.DeepEqual(plan, again) {
		t.Fatalf("%s: in another order (-first +shuffled):\n%s", p.Name(), cmp.Diff(plan, again))
	}
}

func shuffled(s *dispatch.Snapshot, seed uint64) *dispatch.Snapshot {
	r := rand.New(rand.NewPCG(seed, 1))
	c := *s
	c.Nodes, c.Waiting, c.Running = slices.Clone(s.Nodes), slices.Clone(s.Waiting), slices.Clone(s.Running)
	r.Shuffle(len(c.Nodes), func(i, j int) { c.Nodes[i], c.Nodes[j] = c.Nodes[j], c.Nodes[i] })
	r.Shuffle(len(c.Waiting), func(i, j int) { c.Waiting[i], c.Waiting[j] = c.Waiting[j], c.Waiting[i] })
	r.Shuffle(len(c.Running), func(i, j int) { c.Running[i], c.Running[j] = c.Running[j], c.Running[i] })
	return &c
}

// checkPlan checks what must hold of every plan: each start fits by the
// ledger as those before it left it, gangs are whole and on as many nodes as they
// ask for, of one class of cards, with all those that they name, nobody
// starts twice or without having waited, whoever wants a card alone has it
// alone, and everybody else is told why.
func checkPlan(t *rapid.T, w *World, s *dispatch.Snapshot, plan *dispatch.Plan) {
	led := s.Ledger.Clone()
	told := map[cluster.JobID]int{}
	for i := range plan.Starts {
		st := &plan.Starts[i]
		told[st.Job]++
		j := w.Jobs[st.Job]
		if !j.State.Waiting() || int(st.Attempt) != len(j.Attempts)+1 {
			t.Fatalf("job %d starts as attempt %d, it is %s and had %d", st.Job, st.Attempt, j.State, len(j.Attempts))
		}
		checkSpan(t, w, led, j, st)
		for _, b := range st.Berths() {
			if r := led.Fits(b); r.Code != "" {
				t.Fatalf("job %d does not fit: %s", st.Job, r)
			}
			led.Take(b)
		}
		for _, g := range st.AllGPUs() {
			u, _ := led.GPU(g.GPU)
			if g.Share.Exclusive && u.Shares != 1 || (j.Spec.Exclusive || j.NeedWhole) && !g.Share.Exclusive {
				t.Fatalf("job %d wants GPU %s alone, %d shares are there", st.Job, g.GPU, u.Shares)
			}
			if u.Shares > scheduler.Default().MaxShares || u.Type != st.Estimate.GPUType {
				t.Fatalf("GPU %s of type %s has %d shares; the estimate is for %s", u.ID, u.Type, u.Shares, st.Estimate.GPUType)
			}
		}
	}
	for _, u := range plan.Unplaced {
		told[u.Job]++
		if u.Reason.Code == "" || u.Reason.Code == cluster.ReasonNone {
			t.Fatalf("job %d waits without a reason", u.Job)
		}
	}
	for _, j := range s.Waiting {
		if told[j.ID] != 1 {
			t.Fatalf("job %d is told of %d times", j.ID, told[j.ID])
		}
	}
	gone := map[cluster.JobID]bool{}
	for _, x := range plan.Preempt {
		j := w.Jobs[x.Job]
		if j.Live() == nil || j.Live().No != x.Attempt || !s.Terms[x.Job].Preemptible || gone[x.Job] {
			t.Fatalf("preemption %+v of a job in state %s, %+v, or twice", x, j.State, s.Terms[x.Job])
		}
		gone[x.Job] = true
	}
}

// checkSpan checks on which nodes a job starts, by the ledger before it does.
func checkSpan(t *rapid.T, w *World, led *dispatch.Ledger, j *cluster.Job, st *dispatch.Start) {
	nodes, classes := map[cluster.NodeID]bool{}, map[string]bool{}
	for _, b := range st.Berths() {
		nodes[b.Node] = true
		n, _ := w.Node(b.Node)
		if len(b.GPUs) != j.Spec.GPUs && !(j.Spec.WholeNodes() && j.Spec.GPUs > 0 && len(b.GPUs) > j.Spec.GPUs) {
			t.Fatalf("job %d gets %d GPUs of %s, it asks for %d", j.ID, len(b.GPUs), b.Node, j.Spec.GPUs)
		}
		if u, _ := led.Node(b.Node); j.Spec.WholeNodes() && (u.UsedCPU > 0 || b.CPUMilli != u.CPUMilli) {
			t.Fatalf("job %d wants node %s for itself and gets %d of %d cores, %d are taken", j.ID, b.Node, b.CPUMilli, u.CPUMilli, u.UsedCPU)
		}
		for _, s := range b.GPUs {
			g := n.GPU(s.GPU)
			classes[fmt.Sprint(g.Type, g.SellableMiB, g.Shareable())] = true
		}
	}
	if len(nodes) != j.Spec.NodeCount() || len(st.Rest) != j.Spec.NodeCount()-1 || len(classes) > 1 {
		t.Fatalf("job %d: %d berths on nodes %v, asks for %d; classes %v", j.ID, 1+len(st.Rest), nodes, j.Spec.NodeCount(), classes)
	}
	if wh := j.Spec.Where; wh.Named() {
		for _, id := range wh.Nodes.Names() {
			if !nodes[id] {
				t.Fatalf("job %d asks for %s and gets %v", j.ID, id, nodes)
			}
		}
	}
}

// TestTheFirstDoesNotWait: whoever is first in the queue of a placement that
// lets everybody lie beside everybody waits only if no card holds it.
func TestTheFirstDoesNotWait(t *testing.T) {
	t.Parallel()
	var ps []policies.Policy
	for _, n := range []string{"firstfit", "bestfit", "random", "fgd", "gavel"} {
		ps = append(ps, must(t, n, policies.Options{Order: "fifo"}))
	}
	rapid.Check(t, func(t *rapid.T) {
		p := rapid.SampledFrom(ps).Draw(t, "policy")
		w := drawWorld(t, p)
		s := w.Snapshot()
		for i, j := range s.Waiting { // the rule for these is not simple enough to be told again here
			s.Waiting[i] = j.Clone()
			s.Waiting[i].MinGPUMemMiB = 0
			one := *j.Spec
			one.Nodes, one.Where = 0, nil
			s.Waiting[i].Spec = &one
		}
		for _, n := range s.Nodes { // nor is it where strangers keep apart
			for i := range n.GPUs {
				n.GPUs[i].Scope = cluster.ScopeAnyone
			}
		}
		plan := p.Plan(s)
		led := s.Ledger.Clone()
		gone := map[cluster.JobID]bool{}
		for i := range plan.Starts {
			led.Take(&plan.Starts[i].Berth)
			gone[plan.Starts[i].Job] = true
		}
		var first *cluster.Job
		for _, j := range s.Waiting {
			if !gone[j.ID] && everFits(s, j) && (first == nil || j.Eligible < first.Eligible) {
				first = j
			}
		}
		if first == nil {
			return
		}
		for _, n := range s.Nodes {
			if b, ok := roomFor(led, n, first); ok {
				t.Fatalf("job %d is first and waits, though it fits on %+v", first.ID, b)
			}
		}
	})
}

func everFits(s *dispatch.Snapshot, j *cluster.Job) bool {
	return slices.ContainsFunc(s.Nodes, func(n *cluster.Node) bool {
		_, ok := roomFor(dispatch.NewLedger(s.Nodes), n, j)
		return ok
	})
}

// roomFor asks the ledger about every card of a node, type by type.
func roomFor(led *dispatch.Ledger, n *cluster.Node, j *cluster.Job) (cluster.Berth, bool) {
	pol := scheduler.Default()
	empty := cluster.Berth{Node: n.ID}
	empty.CPUMilli, empty.MemMiB = rules.HostOf(j, &pol)
	if j.Spec.Node != "" && j.Spec.Node != n.ID || led.Fits(&empty).Code != "" {
		return empty, false
	}
	if j.Spec.GPUs == 0 {
		return empty, true
	}
	for _, like := range n.GPUs {
		share, _, why := rules.ShareOn(j, &like, pol)
		if why.Code != "" {
			continue
		}
		b := empty
		for _, g := range n.GPUs {
			one := empty
			one.GPUs = []cluster.GPUShare{{GPU: g.ID, Share: share}}
			u, _ := led.GPU(g.ID)
			if g.Type == like.Type && g.SellableMiB == like.SellableMiB && g.CapMode == like.CapMode && (g.MaxShares > 1) == (like.MaxShares > 1) &&
				u.Shares < pol.MaxShares && len(b.GPUs) < j.Spec.GPUs && led.Fits(&one).Code == "" {
				b.GPUs = append(b.GPUs, one.GPUs[0])
			}
		}
		if len(b.GPUs) == j.Spec.GPUs {
			return b, true
		}
	}
	return empty, false
}
