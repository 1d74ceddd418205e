package scheduler_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler"
)

func genPlaces(t *rapid.T) *dispatch.Snapshot {
	now := cluster.Time(1_700_000_000_000_000)
	snap := &dispatch.Snapshot{Index: 1, Now: now}
	for i := range rapid.IntRange(1, 5).Draw(t, "nodes") {
		n := &cluster.Node{ID: cluster.NodeID(fmt.Sprintf("n%d", i)), State: cluster.NodeReady, CPUMilli: 16_000, MemMiB: 64 << 10}
		for _, f := range []string{"a", "b"} {
			if rapid.Bool().Draw(t, "has "+f) {
				n.Features = append(n.Features, f)
			}
		}
		for g := range rapid.IntRange(0, 3).Draw(t, "gpus") {
			n.GPUs = append(n.GPUs, cluster.GPU{ID: cluster.GPUID(fmt.Sprintf("n%d-g%d", i, g)), Index: g, Type: "T4", MemMiB: 16 << 10, SellableMiB: 15 << 10, MaxShares: 3, CapMode: "sim"})
		}
		snap.Nodes = append(snap.Nodes, n)
	}
	snap.Ledger = dispatch.NewLedger(snap.Nodes)
	for i := range rapid.IntRange(0, 3).Draw(t, "reservations") {
		nodes, _ := cluster.ParseHostList(rapid.SampledFrom([]string{"n0", "n[1-2]", "n[0-4]", "ALL"}).Draw(t, "on"))
		r := &dispatch.Reservation{
			Name: fmt.Sprintf("r%d", i), Nodes: nodes, Start: now.Add(time.Duration(rapid.IntRange(-90, 90).Draw(t, "minutes")) * time.Minute),
			Duration: time.Hour, Repeat: rapid.SampledFrom([]dispatch.Repeat{"", dispatch.RepeatDaily}).Draw(t, "repeat"), Users: []string{"u0"},
		}
		if rapid.Bool().Draw(t, "cards") {
			r.GPUs = []cluster.GPUID{"n0-g0", "n1-g1"}
		}
		snap.Reservations = append(snap.Reservations, r)
	}
	for i := range rapid.IntRange(1, 12).Draw(t, "jobs") {
		snap.Waiting = append(snap.Waiting, genPlacedJob(t, cluster.JobID(i+1), now))
	}
	return snap
}

func genPlacedJob(t *rapid.T, id cluster.JobID, now cluster.Time) *cluster.Job {
	j := &cluster.Job{
		ID: id, State: cluster.JobPending, Submitted: now, Eligible: now, Owner: cluster.Owner{UID: 1000, Name: fmt.Sprintf("u%d", rapid.IntRange(0, 1).Draw(t, "user"))},
		Spec: &cluster.Spec{Name: "j", Command: []string{"true"}, GPUs: rapid.IntRange(0, 2).Draw(t, "wants"), TimeLimit: time.Duration(rapid.IntRange(0, 90).Draw(t, "limit")) * time.Minute},
	}
	if j.Spec.GPUs > 0 {
		j.Spec.GPUMemMiB = rapid.Int64Range(0, 2).Draw(t, "mem") * 4096
	}
	if rapid.Bool().Draw(t, "several") {
		j.Spec.Nodes = rapid.IntRange(0, 2).Draw(t, "span")
	}
	if rapid.Bool().Draw(t, "where") {
		w := &cluster.Where{Whole: rapid.Bool().Draw(t, "whole"), Reservation: rapid.SampledFrom([]string{"", "r0", "r1"}).Draw(t, "inside")}
		w.Features, _ = cluster.ParseFeatures(rapid.SampledFrom([]string{"", "a", "a&b", "b|a"}).Draw(t, "features"))
		if x := rapid.SampledFrom([]string{"", "n0", "n[1-2]"}).Draw(t, "exclude"); x != "" {
			w.Exclude, _ = cluster.ParseHostList(x)
		}
		if x := rapid.SampledFrom([]string{"", "n1", "n3"}).Draw(t, "nodelist"); x != "" {
			w.Nodes, _ = cluster.ParseHostList(x)
		}
		j.Spec.Where = w
	}
	return j
}

// TestPlansKeepToReservations makes plans of whatever cluster and holds each
// start against the reservations and what its job asks for, one by one.
func TestPlansKeepToReservations(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		snap := genPlaces(t)
		plan := scheduler.Schedule(snap, scheduler.Default())
		for i := range plan.Starts {
			requireAllowed(t, snap, &plan.Starts[i])
		}
	})
}

func requireAllowed(t *rapid.T, snap *dispatch.Snapshot, st *dispatch.Start) {
	j := snap.Waiting[slices.IndexFunc(snap.Waiting, func(j *cluster.Job) bool { return j.ID == st.Job })]
	end := j.LatestEnd(snap.Now)
	named := 0
	for _, b := range st.Berths() {
		n := snap.Nodes[slices.IndexFunc(snap.Nodes, func(n *cluster.Node) bool { return n.ID == b.Node })]
		if why := j.Spec.Refuses(n); why != "" {
			t.Fatalf("job %d on node %s, which %s", j.ID, n.ID, why)
		}
		if w := j.Spec.Where; w.Named() && w.Nodes.Holds(n.ID) {
			named++
		}
		if j.Spec.WholeNodes() && b.CPUMilli != n.CPUMilli {
			t.Fatalf("job %d wants whole nodes and has %d milli-cores of %s", j.ID, b.CPUMilli, n.ID)
		}
		for _, r := range snap.Reservations {
			start, stop, ok := r.Window(snap.Now)
			own := r.Name == j.Spec.Where.InReservation()
			holds := len(r.GPUs) == 0 && r.Nodes.Holds(n.ID)
			for _, g := range b.GPUs {
				holds = holds || r.Nodes.Holds(n.ID) && slices.Contains(r.GPUs, g.GPU)
				if own && len(r.GPUs) > 0 && !slices.Contains(r.GPUs, g.GPU) {
					t.Fatalf("job %d of reservation %s on GPU %s", j.ID, r.Name, g.GPU)
				}
			}
			switch {
			case own && (!ok || start > snap.Now || stop <= snap.Now || !r.Nodes.Holds(n.ID) || j.Owner.Name != "u0"):
				t.Fatalf("job %d runs outside of its reservation %s", j.ID, r.Name)
			case !own && holds && ok && start < end:
				t.Fatalf("job %d, which may last until %v, lies on what reservation %s holds from %v on", j.ID, end.Std(), r.Name, start.Std())
			}
		}
	}
	if w := j.Spec.Where; w.Named() && named != len(w.Nodes.Names()) {
		t.Fatalf("job %d has %d of the nodes %s", j.ID, named, w.Nodes)
	}
}
