package policies_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler/policies"
	"github.com/berth-scheduler/berth/scheduler/policies/order"
	. "github.com/berth-scheduler/berth/scheduler/schedtest"
)

// comparing are the rules that published simulators have.
func comparing() []policies.Options {
	return []policies.Options{
		{Backfill: policies.BackfillNone}, {Backfill: policies.BackfillAny},
		{Evict: policies.EvictRanked, MinRun: -1}, {Evict: policies.EvictRanked, LAS: order.LAS{Limits: []time.Duration{time.Hour}, ByArrival: true}},
	}
}

func TestOptionsAreChecked(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		opt  policies.Options
		want string
	}{
		{"backfill", policies.Options{Backfill: "easy"}, `backfill "easy" is not known; want "none", "any" or nothing`},
		{"eviction", policies.Options{Evict: "all"}, `eviction "all" is not known; want "ranked" or nothing`},
		{"limits in disorder", policies.Options{LAS: order.LAS{Limits: []time.Duration{2, 1}}}, "the shortest first"},
		{"a limit of 0", policies.Options{LAS: order.LAS{Limits: []time.Duration{0}}}, "want spans above 0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, err := policies.New("firstfit", c.opt)
			var e *cluster.Error
			if !errors.As(err, &e) || e.Code != cluster.CodeInvalid || !strings.Contains(e.Msg, c.want) {
				t.Fatalf("got %v, want %q", err, c.want)
			}
		})
	}
}

// TestBackfillRules: two cards, one in use for an hour; a gang of two is first,
// then one who ends in time, one who does not, and one whom no card holds.
func TestBackfillRules(t *testing.T) {
	t.Parallel()
	for rule, want := range map[policies.Backfill]at{
		policies.BackfillEASY: {4: "n1-01"}, policies.BackfillNone: {}, policies.BackfillAny: {3: "n1-01"},
	} {
		t.Run(string(rule), func(t *testing.T) {
			t.Parallel()
			s := newScene(Node("n1", 2, a100)).runs(1, 80000, 1000, time.Hour, 0, "n1-00")
			s.waits(Job(5, GPUs(3), Lasts(time.Minute), Waited(5*time.Minute)), Job(2, GPUs(2), Lasts(time.Hour), Waited(4*time.Minute)),
				Job(3, Exclusive, Lasts(2*time.Hour), Waited(3*time.Minute)), Job(4, Exclusive, Lasts(time.Minute), Waited(2*time.Minute)))
			plan := must(t, "firstfit", policies.Options{Backfill: rule}).Plan(s.snap(t))
			if d := cmp.Diff(want, startsOf(&plan)); d != "" {
				t.Errorf("starts (-want +got):\n%s", d)
			}
		})
	}
}

// TestCountingOff: four cards. Jobs 1 and 2 run on two each, the one with long
// to go and the other with little; who waits takes what is counted off before
// them.
func TestCountingOff(t *testing.T) {
	t.Parallel()
	const m = time.Minute
	for _, c := range []struct {
		name   string
		order  string
		las    order.LAS
		pinned cluster.JobID
		waits  []*cluster.Job
		want   []cluster.JobID // who is ended
	}{
		{"shorter than one", "srtf", order.LAS{}, 0, []*cluster.Job{Job(3, Exclusive, Lasts(30*m))}, []cluster.JobID{1}},
		{"shorter than both", "srtf", order.LAS{}, 0, []*cluster.Job{Job(3, GPUs(4), Lasts(m))}, []cluster.JobID{1, 2}},
		{"longer than both", "srtf", order.LAS{}, 0, []*cluster.Job{Job(3, GPUs(4), Lasts(500*m))}, nil},
		{"the long one is not to be ended", "srtf", order.LAS{}, 1, []*cluster.Job{Job(3, GPUs(2), Lasts(m))}, []cluster.JobID{2}},
		{"no room beside who is not to be ended", "srtf", order.LAS{}, 1, []*cluster.Job{Job(3, GPUs(3), Lasts(m))}, nil},
		{"who runs stays in its queue", "las", order.LAS{Limits: []time.Duration{1000 * time.Hour}}, 0, []*cluster.Job{Job(3, GPUs(4), Waited(300*m), Lasts(m))}, nil},
		{"who came first goes first in it", "las", order.LAS{Limits: []time.Duration{1000 * time.Hour}, ByArrival: true}, 0, []*cluster.Job{Job(3, GPUs(4), Waited(300*m), Lasts(m))}, []cluster.JobID{2, 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newScene(Node("n1", 4, a100))
			w.runs(1, 80000, 1000, 200*m, 20*m, "n1-00", "n1-01").runs(2, 80000, 1000, 60*m, 20*m, "n1-02", "n1-03")
			s := w.waits(c.waits...).snap(t)
			s.Terms = map[cluster.JobID]dispatch.Terms{1: {Preemptible: c.pinned != 1}, 2: {Preemptible: c.pinned != 2}}
			plan := must(t, "firstfit", policies.Options{Order: c.order, Evict: policies.EvictRanked, LAS: c.las}).Plan(s)
			var got []cluster.JobID
			for _, x := range plan.Preempt {
				got = append(got, x.Job)
			}
			slices.Sort(got)
			slices.Sort(c.want)
			if d := cmp.Diff(c.want, got); d != "" || len(plan.Starts) > 0 {
				t.Errorf("starts %v, ended (-want +got):\n%s", startsOf(&plan), d)
			}
		})
	}
}

// TestCountingOffStarts: while nobody has to be ended all start who are counted
// in, past one that finds its cards scattered; else those after the first that
// does not fit wait for the room that is made.
func TestCountingOffStarts(t *testing.T) {
	t.Parallel()
	const m = time.Minute
	s := newScene(numa(Node("n1", 4, a100), 2)).runs(1, 80000, 1000, 200*m, 20*m, "n1-00").runs(2, 80000, 1000, 300*m, 20*m, "n1-02")
	s.waits(Job(3, GPUs(2), Lasts(m)))
	p := must(t, "consolidate", policies.Options{Order: "srtf", Evict: policies.EvictRanked})
	snap := s.snap(t)
	plan := p.Plan(snap)
	if len(plan.Starts)+len(plan.Preempt) > 0 {
		t.Fatalf("two cards of two islands were patched together, or room was made for nothing: %+v", plan)
	}
	s.waits(Job(4, Exclusive, Lasts(400*m)))
	plan = p.Plan(s.snap(t))
	if d := cmp.Diff(at{}, startsOf(&plan)); d != "" {
		t.Fatalf("two cards are counted off for job 3, none is left (-want +got):\n%s", d)
	}
	s = newScene(numa(Node("n1", 4, a100), 2)).runs(1, 80000, 1000, 200*m, 20*m, "n1-00")
	s.waits(Job(4, Exclusive, Lasts(2*m)), Job(3, GPUs(2), Lasts(m)))
	plan = p.Plan(s.snap(t))
	if d := cmp.Diff(at{3: "n1-02,n1-03", 4: "n1-01"}, startsOf(&plan)); d != "" {
		t.Fatalf("starts (-want +got):\n%s", d)
	}
}

// numa parts the cards of a node into groups of so many.
func numa(n *cluster.Node, size int) *cluster.Node {
	for i := range n.GPUs {
		n.GPUs[i].NUMA = i / size
	}
	return n
}

// TestConsolidate: one node of three islands of two cards, and one of one.
func TestConsolidate(t *testing.T) {
	t.Parallel()
	const h = time.Hour
	for _, c := range []struct {
		name string
		busy []cluster.GPUID
		want int
		on   []cluster.GPUID
	}{
		{"one card from the fullest island", []cluster.GPUID{"n1-03"}, 1, []cluster.GPUID{"n1-02"}},
		{"a pair from one island", []cluster.GPUID{"n1-03"}, 2, []cluster.GPUID{"n1-00", "n1-01"}},
		{"no pair of two islands", []cluster.GPUID{"n1-01", "n1-03", "n1-05", "n2-00"}, 2, nil},
		{"four of two whole islands", []cluster.GPUID{"n1-01"}, 4, []cluster.GPUID{"n1-02", "n1-03", "n1-04", "n1-05"}},
		{"five, the rest from the fullest", []cluster.GPUID{"n1-01"}, 5, []cluster.GPUID{"n1-00", "n1-02", "n1-03", "n1-04", "n1-05"}},
		{"four need whole islands", []cluster.GPUID{"n1-01", "n1-03"}, 4, nil},
		{"seven on no node", nil, 7, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newScene(numa(Node("n1", 6, a100), 2), Node("n2", 1, a100))
			for i, g := range append(slices.Clone(c.busy), "n2-00") {
				if !slices.Contains(c.busy[:min(i, len(c.busy))], g) {
					s.runs(cluster.JobID(100+i), 80000, 1000, h, time.Minute, g)
				}
			}
			plan := must(t, "consolidate", policies.Options{}).Plan(s.waits(Job(1, GPUs(c.want), Exclusive, Lasts(h))).snap(t))
			var on []cluster.GPUID
			for i := range plan.Starts {
				for _, g := range plan.Starts[i].Berth.GPUs {
					on = append(on, g.GPU)
				}
			}
			if d := cmp.Diff(c.on, on); d != "" {
				t.Errorf("cards (-want +got):\n%s", d)
			}
		})
	}
}
