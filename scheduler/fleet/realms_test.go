package fleet

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler/rules"
	"github.com/berth-scheduler/berth/scheduler/schedtest"
)

func hosts(t interface{ Fatal(...any) }, text string) cluster.HostList {
	if text == "" {
		return cluster.HostList{}
	}
	l, err := cluster.ParseHostList(text)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func features(t interface{ Fatal(...any) }, text string) cluster.Features {
	x, err := cluster.ParseFeatures(text)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// drawReservations draws windows before, around and after now, of whole nodes and of
// single cards.
func drawReservations(t *rapid.T, nodes []*cluster.Node) (rs dispatch.Reservations) {
	for i := range rapid.IntRange(0, 5).Draw(t, "reservations") {
		r := &dispatch.Reservation{
			Name: fmt.Sprintf("r%d", i), Start: schedtest.Now.Add(time.Duration(rapid.IntRange(-4, 4).Draw(t, "begins in")) * time.Hour),
			Duration: time.Duration(rapid.IntRange(1, 6).Draw(t, "lasts")) * time.Hour,
			Nodes:    hosts(t, rapid.SampledFrom([]string{"n0", "n1", "n[0-1]", "n[1-3]"}).Draw(t, "holds")),
			Users:    []string{rapid.SampledFrom([]string{"ann", "bob"}).Draw(t, "for")},
			Repeat:   rapid.SampledFrom([]dispatch.Repeat{dispatch.RepeatNever, dispatch.RepeatDaily}).Draw(t, "again"),
		}
		if n := nodes[0]; len(n.GPUs) > 0 && rapid.IntRange(0, 2).Draw(t, "cards alone") == 0 {
			r.GPUs = []cluster.GPUID{rapid.SampledFrom(n.GPUs).Draw(t, "card").ID}
		}
		rs = append(rs, r)
	}
	return rs
}

func drawBoundJob(t *rapid.T, id cluster.JobID) *cluster.Job {
	s := &cluster.Spec{GPUs: 1, TimeLimit: time.Duration(rapid.IntRange(1, 5).Draw(t, "limit")) * time.Hour}
	j := &cluster.Job{ID: id, Spec: s, Owner: cluster.Owner{UID: 7, Name: rapid.SampledFrom([]string{"ann", "bob"}).Draw(t, "owner")}}
	if rapid.IntRange(0, 3).Draw(t, "anywhere") == 0 {
		return j
	}
	s.Where = &cluster.Where{
		Nodes:       hosts(t, rapid.SampledFrom([]string{"", "n0", "n1", "n2"}).Draw(t, "nodes")),
		Exclude:     hosts(t, rapid.SampledFrom([]string{"", "n0", "n[1-2]"}).Draw(t, "not")),
		Features:    features(t, rapid.SampledFrom([]string{"", "", "ib", "ib|nvme"}).Draw(t, "features")),
		Reservation: rapid.SampledFrom([]string{"", "", "r0", "r1", "gone"}).Draw(t, "reservation"),
	}
	return j
}

// barred is whether a job may lie on a card, or with gpu "" on a node's cores, by its
// words and each reservation alone.
func barred(j *cluster.Job, n *cluster.Node, gpu cluster.GPUID, rs dispatch.Reservations) bool {
	if j.Spec.Refuses(n) != "" {
		return true
	}
	own := ""
	if j.Spec.Where != nil {
		own = j.Spec.Where.Reservation
	}
	inside := false
	for _, r := range rs {
		start, end := r.Start, r.Start.Add(r.Duration)
		for r.Repeat == dispatch.RepeatDaily && end <= schedtest.Now {
			start, end = start.Add(24*time.Hour), end.Add(24*time.Hour)
		}
		if end <= schedtest.Now {
			continue
		}
		holds := len(r.GPUs) == 0
		for _, g := range r.GPUs {
			holds = holds || g == gpu
		}
		holds = holds && r.Nodes.Holds(n.ID)
		switch {
		case r.Name == own:
			inside = holds && start <= schedtest.Now && r.Users[0] == j.Owner.Name
		case holds && start < schedtest.Now.Add(j.Spec.TimeLimit):
			return true
		}
	}
	return own != "" && !inside
}

// TestRealmsBarAsReservationsDo: whether a job may lie on each card and on the cores
// of each node, asked of the realm, is what the job's own words and the windows of
// reservations say. Cards of one realm and type are one class.
func TestRealmsBarAsReservationsDo(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		nodes := []*cluster.Node{schedtest.Node("n0", 3, "A"), schedtest.Node("n1", 2, "A"), schedtest.Node("n2", 1, "A"), schedtest.Node("n3", 0, "A")}
		nodes[0].Features, nodes[1].Features = []string{"ib"}, []string{"nvme"}
		snap := &dispatch.Snapshot{Now: schedtest.Now, Nodes: nodes, Ledger: dispatch.NewLedger(nodes), Reservations: drawReservations(t, nodes)}
		for id := range rapid.IntRange(0, 6).Draw(t, "jobs") {
			snap.Waiting = append(snap.Waiting, drawBoundJob(t, cluster.JobID(id+1)))
		}
		x := NewRealms(snap)
		if x == nil {
			for _, j := range snap.Waiting {
				for _, n := range nodes {
					if barred(j, n, "", snap.Reservations) {
						t.Fatalf("there is one realm, and job %d may not lie on %s", j.ID, n.ID)
					}
				}
			}
			return
		}
		pol := rules.Default()
		f := New(nodes, snap.Ledger, nil, &pol, x)
		for _, j := range snap.Waiting {
			b := x.BoundsOf(j, int64(snap.Now), snap.Reservations)
			if b.Single {
				t.Fatalf("job %d of %d makes no realm", j.ID, len(snap.Waiting))
			}
			for h := range f.Hosts {
				n := f.Hosts[h].Node
				// A reservation of single cards holds nothing else of a machine.
				if own := snap.Reservations.Get(j.Spec.Where.InReservation()); own == nil || len(own.GPUs) == 0 {
					if got, want := x.Bars(&b, f.Hosts[h].Realm) != rules.VetoNone, barred(j, n, "", snap.Reservations); got != want {
						t.Fatalf("job %d is barred from the cores of %s: %t, want %t", j.ID, n.ID, got, want)
					}
				}
				for _, c := range f.Cards[f.Hosts[h].Lo:f.Hosts[h].Hi] {
					veto := x.Bars(&b, f.Classes[c.Class].Realm)
					if want := barred(j, n, c.GPU.ID, snap.Reservations); (veto != rules.VetoNone) != want {
						t.Fatalf("job %d is barred from %s: %d, want %t", j.ID, c.GPU.ID, veto, want)
					}
					if refused := j.Spec.Refuses(n) != ""; refused != (veto == rules.VetoWhere) {
						t.Fatalf("job %d on %s: veto %d, the node is refused: %t", j.ID, c.GPU.ID, veto, refused)
					}
				}
			}
		}
	})
}

// TestNoRealms: without reservations and jobs that ask for nodes there is nothing to
// look at; one that asks for a reservation that is not there is reason enough.
func TestNoRealms(t *testing.T) {
	t.Parallel()
	where := func(w *cluster.Where) []*cluster.Job {
		return []*cluster.Job{{ID: 1, Spec: &cluster.Spec{GPUs: 1, Where: w}}, {ID: 2, Spec: &cluster.Spec{GPUs: 1}}}
	}
	past := &dispatch.Reservation{Name: "past", Start: schedtest.Now.Add(-2 * time.Hour), Duration: time.Hour, Nodes: hosts(t, "n0")}
	ends := &dispatch.Reservation{Name: "ends now", Start: schedtest.Now.Add(-time.Hour), Duration: time.Hour, Nodes: hosts(t, "n0")}
	later := &dispatch.Reservation{Name: "later", Start: schedtest.Now.Add(time.Hour), Duration: time.Hour, Nodes: hosts(t, "n0")}
	for name, c := range map[string]struct {
		jobs []*cluster.Job
		rs   dispatch.Reservations
		one  bool
	}{
		"nothing":                {where(nil), nil, true},
		"a reservation is over":  {where(nil), dispatch.Reservations{past, ends}, true},
		"one comes":              {where(nil), dispatch.Reservations{past, later}, false},
		"a job asks for nodes":   {where(&cluster.Where{Exclude: hosts(t, "n0")}), nil, false},
		"for a reservation":      {where(&cluster.Where{Reservation: "gone"}), nil, false},
		"for nodes of its own":   {where(&cluster.Where{Whole: true, Exclude: hosts(t, "n0")}), nil, false},
		"asks for that one type": {[]*cluster.Job{{ID: 1, Spec: &cluster.Spec{GPUs: 1, GPUType: "A", Node: "n0"}}}, nil, true},
	} {
		if x := NewRealms(&dispatch.Snapshot{Now: schedtest.Now, Waiting: c.jobs, Reservations: c.rs}); (x == nil) != c.one {
			t.Errorf("%s: one realm is %t, want %t", name, x == nil, c.one)
		}
	}
}

// TestTheFirstSixteenSets: so many sets of nodes make realms, a set asked for again
// is the same, and who asks for another is marked to be looked at alone.
func TestTheFirstSixteenSets(t *testing.T) {
	t.Parallel()
	snap := &dispatch.Snapshot{Now: schedtest.Now}
	for i := range 40 { // each set by two jobs
		w := &cluster.Where{Exclude: hosts(t, fmt.Sprintf("n%d", i/2))}
		snap.Waiting = append(snap.Waiting, &cluster.Job{ID: cluster.JobID(i + 1), Spec: &cluster.Spec{GPUs: 1, Where: w}})
	}
	x := NewRealms(snap)
	for i, j := range snap.Waiting {
		b := x.BoundsOf(j, int64(snap.Now), nil)
		if first := i/2 < 16; b.Single == first || first && int(b.Asked) != i/2 || !first && b.Asked != -1 {
			t.Errorf("job %d: set %d, alone %t", j.ID, b.Asked, b.Single)
		}
	}
}
