package policies_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/cluster/draws"
	"github.com/berth-scheduler/berth/scheduler"
	"github.com/berth-scheduler/berth/scheduler/cells"
	"github.com/berth-scheduler/berth/scheduler/policies"
)

var _ = draws.Fixed()

// site is a cluster of tenants under test.
type site struct {
	nodes   []*cluster.Node
	ten     *policies.Tenancy
	waiting []*cluster.Job
	running []*cluster.Job
	soft    map[cluster.JobID]bool // preemptible
	now     cluster.Time
	next    cluster.JobID
}

func newSite(nodes, gpus int, tenants ...cells.Tenant) *site {
	s := &site{ten: &policies.Tenancy{Tenants: tenants, Users: map[string]string{}}, soft: map[cluster.JobID]bool{}, now: cluster.Time(1 << 50), next: 1}
	for i := range nodes {
		n := &cluster.Node{ID: cluster.NodeID(fmt.Sprintf("n%d", i)), State: cluster.NodeReady, BootID: "b", CPUMilli: 1 << 30, MemMiB: 1 << 30}
		for k := range gpus {
			n.GPUs = append(n.GPUs, cluster.GPU{ID: cluster.GPUID(fmt.Sprintf("n%d-%02d", i, k)), Index: k, Type: "g", MemMiB: 16000, SellableMiB: 16000, MaxShares: 3, CapMode: "sim"})
		}
		s.nodes = append(s.nodes, n)
	}
	for _, t := range tenants {
		s.ten.Users["u-"+t.Name] = t.Name
	}
	return s
}

func team(name string, cs ...string) cells.Tenant {
	t := cells.Tenant{Name: name}
	for _, c := range cs {
		x, err := cells.ParseCell("g:" + c)
		if err != nil {
			panic(err)
		}
		t.Cells = append(t.Cells, x)
	}
	return t
}

// submit adds a job for whole cards, or for a third of one when gpus is 0.
func (s *site) submit(of string, gpus int, soft bool) *cluster.Job {
	spec := &cluster.Spec{GPUs: gpus, Exclusive: true, CPUMilli: 1000, MemMiB: 1}
	if gpus == 0 {
		spec = &cluster.Spec{GPUs: 1, GPUMemMiB: 4000, GPUMilli: 300, CPUMilli: 1000, MemMiB: 1}
	}
	j := &cluster.Job{ID: s.next, Spec: spec, Owner: cluster.Owner{UID: cluster.UID(len(of)) + 1000, Name: "u-" + of}, State: cluster.JobPending, Submitted: s.now, Eligible: s.now}
	s.next++
	s.soft[j.ID] = soft
	s.waiting = append(s.waiting, j)
	return j
}

func (s *site) snapshot() *dispatch.Snapshot {
	snap := &dispatch.Snapshot{Index: 1, Now: s.now, Nodes: s.nodes, Ledger: dispatch.NewLedger(s.nodes), Waiting: slices.Clone(s.waiting), Running: slices.Clone(s.running),
		Queues: map[cluster.GPUID][]dispatch.Waiter{}, Terms: map[cluster.JobID]dispatch.Terms{}}
	for _, j := range s.running {
		snap.Ledger.Take(&j.Live().Berth)
	}
	for id, soft := range s.soft {
		if soft {
			snap.Terms[id] = dispatch.Terms{Preemptible: true}
		}
	}
	return snap
}

// pass plans, and carries out what starts; the plan comes back.
func (s *site) pass(t interface{ Fatalf(string, ...any) }, p policies.Policy) dispatch.Plan {
	snap := s.snapshot()
	plan := p.Plan(snap)
	for _, st := range plan.Starts {
		if r := snap.Ledger.Fits(&st.Berth); r.Code != "" {
			t.Fatalf("%s: start of job %d does not fit: %s", p.Name(), st.Job, r)
		}
		snap.Ledger.Take(&st.Berth)
		i := slices.IndexFunc(s.waiting, func(j *cluster.Job) bool { return j.ID == st.Job })
		j := s.waiting[i].Clone()
		s.waiting = slices.Delete(s.waiting, i, i+1)
		j.State = cluster.JobRunning
		j.Attempts = append(j.Attempts, cluster.Attempt{No: st.Attempt, State: cluster.JobRunning, Berth: st.Berth, Placed: s.now, Started: s.now})
		s.running = append(s.running, j)
	}
	slices.SortFunc(s.running, func(a, b *cluster.Job) int { return int(a.ID) - int(b.ID) })
	s.now++
	return plan
}

func (s *site) end(ids ...cluster.JobID) {
	s.running = slices.DeleteFunc(s.running, func(j *cluster.Job) bool { return slices.Contains(ids, j.ID) })
}

func guarded(t interface{ Fatalf(string, ...any) }, s *site, name string) policies.Policy {
	base := scheduler.Default()
	p, err := policies.New(name, policies.Options{Tenants: s.ten, Base: base})
	if err != nil {
		t.Fatalf("%v", err)
	}
	return p
}

func started(plan dispatch.Plan) []cluster.JobID {
	var out []cluster.JobID
	for _, s := range plan.Starts {
		out = append(out, s.Job)
	}
	slices.Sort(out)
	return out
}

func TestTenantsBorrowAndGiveBack(t *testing.T) {
	t.Parallel()
	for _, name := range policies.Names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(2, 8, team("vision", "8=1"), team("speech", "8=1"))
			p := guarded(t, s, name)
			for range 3 {
				s.submit("vision", 4, true)
			}
			if got := started(s.pass(t, p)); len(got) != 3 {
				t.Fatalf("started %v, want all three: vision's own two and one that borrows", got)
			}
			wide := s.submit("speech", 8, false)
			hard := s.submit("vision", 4, false)
			plan := s.pass(t, p)
			if got := started(plan); len(got) != 0 {
				t.Fatalf("started %v, want nobody: vision's cells are full and speech's are lent", got)
			}
			var ends []cluster.JobID
			for _, x := range plan.Preempt {
				if x.For != wide.ID {
					t.Errorf("job %d is to end for %d", x.Job, x.For)
				}
				ends = append(ends, x.Job)
			}
			if d := cmp.Diff([]cluster.JobID{3}, ends); d != "" {
				t.Fatalf("who borrowed (-want +got):\n%s", d)
			}
			i := slices.IndexFunc(plan.Unplaced, func(u dispatch.Unplaced) bool { return u.Job == hard.ID })
			want := cluster.Reason{Code: cluster.ReasonTenantCells, Detail: "team vision has 8 of 8 GPUs of its cells in use; it may borrow when preemptible: submit with a checkpoint hook"}
			if i < 0 || plan.Unplaced[i].Reason != want {
				t.Errorf("vision's next waits for %+v", plan.Unplaced)
			}
			s.end(ends...)
			if got := started(s.pass(t, p)); !slices.Equal(got, []cluster.JobID{wide.ID}) {
				t.Errorf("after the end of who borrowed %v started, want %d", got, wide.ID)
			}
		})
	}
}

func TestSharesStayInTheirCells(t *testing.T) {
	t.Parallel()
	s := newSite(1, 2, team("x", "1=1"), team("y", "1=1"))
	p := guarded(t, s, "firstfit")
	s.submit("x", 0, false)
	s.submit("y", 0, false)
	s.submit("x", 0, false)
	s.pass(t, p)
	on := map[cluster.GPUID]string{}
	for _, j := range s.running {
		g := j.Live().Berth.GPUs[0].GPU
		if who, busy := on[g]; busy && who != j.Owner.Name {
			t.Errorf("%s and %s lie on %s", who, j.Owner.Name, g)
		}
		on[g] = j.Owner.Name
	}
	if len(s.running) != 3 {
		t.Errorf("%d run, want three on two cards", len(s.running))
	}
	stranger := s.submit("nobody", 0, false)
	if got := started(s.pass(t, p)); len(got) > 0 {
		t.Errorf("job %d started on a card that somebody is guaranteed", stranger.ID)
	}
}

// TestPoliciesKeepGuarantees plays streams of jobs under every placement and
// several orders: after each pass the guarantees can be kept, and whoever
// stands first of its tenant and fits its cells has started or is having room
// made.
func TestPoliciesKeepGuarantees(t *testing.T) {
	t.Parallel()
	names := append(policies.Names(), "ffd+las", "fgd+srtf", "bestfit+qssf", "firstfit+fairshare")
	promised := 0
	rapid.Check(t, func(t *rapid.T) {
		s := newSite(rapid.IntRange(1, 3).Draw(t, "nodes"), rapid.SampledFrom([]int{4, 8}).Draw(t, "size"), team("x"), team("y"))
		for range rapid.IntRange(1, 5).Draw(t, "cells") {
			i := rapid.IntRange(0, 1).Draw(t, "of")
			old := s.ten.Tenants[i].Cells
			s.ten.Tenants[i].Cells = append(slices.Clone(old), cells.Cell{GPUType: "g", GPUs: 1 << rapid.IntRange(0, 3).Draw(t, "level"), Count: 1})
			if len(cells.Bind(s.nodes, s.ten.Tenants, nil).Short()) > 0 {
				s.ten.Tenants[i].Cells = old
			}
		}
		p := guarded(t, s, rapid.SampledFrom(names).Draw(t, "policy"))
		for range rapid.IntRange(1, 15).Draw(t, "steps") {
			if len(s.running) > 0 && rapid.Bool().Draw(t, "one ends") {
				s.end(rapid.SampledFrom(s.running).Draw(t, "ends").ID)
			}
			of := rapid.SampledFrom([]string{"x", "y", "nobody"}).Draw(t, "tenant")
			alone := !slices.ContainsFunc(s.waiting, func(j *cluster.Job) bool { return j.Owner.Name == "u-"+of })
			j := s.submit(of, rapid.IntRange(0, 8).Draw(t, "gpus"), rapid.Bool().Draw(t, "preemptible"))
			b := s.ten.Bind(s.snapshot())
			a := b.Place(cells.Request{ID: j.ID, Tenant: of, GPUType: "g", GPUs: j.Spec.GPUs, Preemptible: s.soft[j.ID]}, nil)
			must := alone && a.Guaranteed && len(a.GPUs) > 0
			plan := s.pass(t, p)
			if must {
				promised++
				if !slices.Contains(started(plan), j.ID) && !slices.ContainsFunc(plan.Preempt, func(x dispatch.Preemption) bool { return x.For == j.ID }) {
					t.Fatalf("%s: job %d of %s fits its cells and neither starts nor has room made: %+v", p.Name(), j.ID, of, plan.Unplaced)
				}
			}
			for _, x := range plan.Preempt {
				if !s.soft[x.Job] {
					t.Fatalf("%s: job %d is to end and cannot be preempted", p.Name(), x.Job)
				}
				s.end(x.Job)
			}
			if short := s.ten.Bind(s.snapshot()).Short(); len(short) > 0 {
				t.Fatalf("%s: %v", p.Name(), short)
			}
		}
	})
	if promised == 0 {
		t.Error("nobody was promised anything")
	}
}

func TestTenantsAreAFunction(t *testing.T) {
	t.Parallel()
	s := newSite(2, 8, team("x", "8=1"), team("y", "4=1"))
	p := guarded(t, s, "fgd")
	for i := range 9 {
		s.submit([]string{"x", "y", "nobody"}[i%3], 1+i%4, i%2 == 0)
	}
	s.pass(t, p)
	s.submit("x", 8, false)
	want := p.Plan(s.snapshot())
	slices.Reverse(s.running)
	slices.Reverse(s.waiting)
	slices.Reverse(s.nodes)
	if d := cmp.Diff(want, p.Plan(s.snapshot())); d != "" {
		t.Errorf("in another order (-want +got):\n%s", d)
	}
	if !strings.HasPrefix(p.Name(), "fgd") {
		t.Errorf("its name is %s", p.Name())
	}
}
