package explain

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/accounting"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/cluster/draws"
	"github.com/berth-scheduler/berth/scheduler/rules"
)

var _ = draws.Fixed()

// TestSeverityIsAnOrder: reasons from what never passes to what passes by itself.
func TestSeverityIsAnOrder(t *testing.T) {
	t.Parallel()
	order := []cluster.ReasonCode{
		cluster.ReasonNeverFits, cluster.ReasonNoNodes, cluster.ReasonReservation, cluster.ReasonNodeDown, cluster.ReasonGPUType, cluster.ReasonGPUs,
		cluster.ReasonGPUMem, cluster.ReasonCPU, cluster.ReasonSharing, cluster.ReasonQueueOrder, cluster.ReasonUnconfirmed, "SomethingElse",
	}
	if !slices.IsSortedFunc(order, func(a, b cluster.ReasonCode) int { return cmp.Compare(severity(a), severity(b)) }) {
		t.Errorf("severities %v", fmt.Sprint(order))
	}
}

// TestRoomOfQuotasAsNaive: with whatever limits and runs, a quota has room at the
// least of the ends at which what is left and the job are within it.
func TestRoomOfQuotasAsNaive(t *testing.T) {
	t.Parallel()
	now := cluster.Time(1_700_000_000_000_000)
	rapid.Check(t, func(t *rapid.T) {
		u := accounting.Subject{User: true, UID: 1}
		l := accounting.Limits{GPUMilli: rapid.Int64Range(1, 8).Draw(t, "thousands") * 500, Running: int64(rapid.IntRange(0, 4).Draw(t, "running"))}
		lim := accounting.NewLimiter(nil, map[accounting.Subject]*accounting.Quota{u: {Subject: u, Limits: l}}, nil)
		snap := &dispatch.Snapshot{Now: now, Limits: lim}
		type run struct {
			milli int64
			ends  time.Duration
			mine  bool
		}
		var runs []run
		for id := range cluster.JobID(rapid.IntRange(0, 6).Draw(t, "jobs")) {
			r := run{rapid.Int64Range(1, 4).Draw(t, "halves") * 500, time.Duration(rapid.IntRange(1, 99).Draw(t, "minutes")) * time.Minute, rapid.IntRange(0, 3).Draw(t, "whose") > 0}
			runs = append(runs, r)
			j := &cluster.Job{ID: id + 1, State: cluster.JobRunning, Owner: cluster.Owner{UID: 2}, Spec: &cluster.Spec{GPUs: 1, TimeLimit: r.ends},
				Attempts: []cluster.Attempt{{No: 1, State: cluster.JobRunning, Started: now, Placed: now, GPUMilli: r.milli, Berth: cluster.Berth{Node: "n", GPUs: []cluster.GPUShare{{GPU: "g", Share: cluster.Share{Milli: r.milli}}}}}}}
			if r.mine {
				j.Owner.UID = 1
				lim.Count(accounting.HolderOf(j), 1, 1, r.milli)
			}
			snap.Running = append(snap.Running, j)
		}
		wants := rapid.Int64Range(1, 4).Draw(t, "wants") * 500
		job := &cluster.Job{ID: 99, Owner: cluster.Owner{UID: 1}, Spec: &cluster.Spec{GPUs: 1}}
		room, ok := LimitRoom(snap, job, wants, 0, rules.Default())
		// The least instant at which it would be let in.
		instants := []time.Duration{0}
		for _, r := range runs {
			if r.mine {
				instants = append(instants, r.ends)
			}
		}
		slices.Sort(instants)
		want, found := time.Duration(0), false
		for _, at := range instants {
			held, running := int64(0), int64(0)
			for _, r := range runs {
				if r.mine && r.ends > at {
					held, running = held+r.milli, running+1
				}
			}
			if held+wants <= l.GPUMilli && (l.Running == 0 || running < l.Running) {
				want, found = at, true
				break
			}
		}
		if ok != found || ok && (room.P50.Sub(now) != want || room.P90.Sub(now) != want) {
			t.Fatalf("room in %s to %s (%t), want in %s (%t)", room.P50.Sub(now), room.P90.Sub(now), ok, want, found)
		}
	})
}

// TestUseThatDecays: a budget that halves every day, and what runs until then counts.
func TestUseThatDecays(t *testing.T) {
	t.Parallel()
	now := cluster.Time(1_700_000_000_000_000)
	u := accounting.Subject{User: true, UID: 1}
	hour := cluster.GPUTime(time.Hour.Microseconds())
	for _, c := range []struct {
		name string
		used cluster.GPUTime
		runs time.Duration // of one card, by its limit
		want time.Duration
	}{
		{"just spent", 10 * hour, 0, 0}, {"twice as much", 20 * hour, 0, 24 * time.Hour}, {"four times", 40 * hour, 0, 48 * time.Hour},
		{"ten hours more run", 10 * hour, 10 * time.Hour, 24 * time.Hour}, {"thirty more", 10 * hour, 30 * time.Hour, 48 * time.Hour},
	} {
		lim := accounting.NewLimiter(nil, map[accounting.Subject]*accounting.Quota{u: {Subject: u, Limits: accounting.Limits{GPUTime: 10 * hour}}},
			func(accounting.Subject, accounting.Period) cluster.GPUTime { return c.used })
		snap := &dispatch.Snapshot{Now: now, Limits: lim}
		if c.runs > 0 {
			snap.Running = []*cluster.Job{{ID: 1, State: cluster.JobRunning, Owner: cluster.Owner{UID: 1}, Spec: &cluster.Spec{GPUs: 1, TimeLimit: c.runs},
				Attempts: []cluster.Attempt{{No: 1, State: cluster.JobRunning, Started: now, Placed: now, GPUMilli: cluster.WholeGPU, Berth: cluster.Berth{Node: "n", GPUs: []cluster.GPUShare{{GPU: "g", Share: cluster.Share{Milli: 1000}}}}}}}}
		}
		room, ok := LimitRoom(snap, &cluster.Job{ID: 9, Owner: cluster.Owner{UID: 1}, Spec: &cluster.Spec{GPUs: 1}}, 1000, 24*time.Hour, rules.Default())
		if got := room.P50.Sub(now); !ok || got < c.want || got > c.want+2*time.Second {
			t.Errorf("%s: room in %s (%t), want %s", c.name, got, ok, c.want)
		}
	}
}
