package scheduler_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/scheduler"
	"github.com/berth-scheduler/berth/scheduler/explain"
	. "github.com/berth-scheduler/berth/scheduler/schedtest"
)

// TestWhoMayShare: cards whose memory is not held by the driver are not shared
// among those whom the site keeps apart, and why says so.
func TestWhoMayShare(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name       string
		scope      cluster.Scope
		uid        cluster.UID // of the second job; the first is of 1, group 10
		gid        uint32
		beside     bool
		code, says string
	}{
		{"anyone", cluster.ScopeAnyone, 2, 20, true, "", ""},
		{"one user", cluster.ScopeSameUser, 1, 20, true, "", ""},
		{"another user", cluster.ScopeSameUser, 2, 10, false, "Sharing", "capped by watch, is shared only among jobs of one user; job 1 there is not of them"},
		{"one group", cluster.ScopeSameGroup, 2, 10, true, "", ""},
		{"another group", cluster.ScopeSameGroup, 2, 20, false, "Sharing", "only among users of one primary group"},
		{"never", cluster.ScopeNever, 1, 10, false, "WholeGPUBusy", ""},
		{"a word that is not known", cluster.Scope("friends"), 1, 10, false, "Sharing", "by nobody"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := NewWorld([]*cluster.Node{Node("n1", 1, a100, CapMode("watch"), Scoped(tc.scope))})
			for _, j := range []*cluster.Job{light(1, "a", Of(1, 10)), light(2, "b", Of(tc.uid, tc.gid))} {
				w.Submit(j)
				p := scheduler.Schedule(w.Snapshot(), scheduler.Default())
				w.Apply(&p)
			}
			if got := len(w.OnGPU(GPU("n1", 0))) == 2; got != tc.beside {
				t.Fatalf("beside each other %t, want %t", got, tc.beside)
			}
			if tc.beside {
				return
			}
			p := scheduler.Schedule(w.Snapshot(), scheduler.Default())
			if len(p.Unplaced) != 1 || string(p.Unplaced[0].Reason.Code) != tc.code || !strings.Contains(p.Unplaced[0].Reason.Detail, tc.says) {
				t.Errorf("unplaced %v, want %s: %s", p.Unplaced, tc.code, tc.says)
			}
			x := scheduler.Explain(w.Snapshot(), w.Jobs[2], scheduler.Default())
			if !slices.ContainsFunc(x, func(e explain.Explanation) bool {
				return string(e.Reason.Code) == tc.code && strings.Contains(e.Reason.Detail, tc.says)
			}) {
				t.Errorf("explained by %v, want %s: %s", x, tc.code, tc.says)
			}
			w.End(1)
			asShort(w)
			p = scheduler.OnRelease(w, []cluster.GPUID{GPU("n1", 0)}, scheduler.Default())
			if len(p.Starts) == 0 {
				p = scheduler.Schedule(w.Snapshot(), scheduler.Default())
			}
			if len(p.Starts) != 1 {
				t.Errorf("alone on the card it does not start: %v", p.Unplaced)
			}
		})
	}
}

// TestStrangersDoNotBlockEachOther: many cards with room are of others, and
// the one that is one's own is found.
func TestStrangersDoNotBlockEachOther(t *testing.T) {
	t.Parallel()
	w := NewWorld([]*cluster.Node{Node("n1", 60, a100, Scoped(cluster.ScopeSameUser), Host(200_000, 200<<10))})
	for i := range 60 {
		w.Submit(light(cluster.JobID(i+1), "a", Of(cluster.UID(i+1), 10), Lasts(10*time.Hour)))
	}
	p := scheduler.Schedule(w.Snapshot(), scheduler.Default())
	w.Apply(&p)
	for i := range 60 {
		w.Submit(light(cluster.JobID(i+101), "a", Of(cluster.UID(i+1), 10)))
	}
	p = scheduler.Schedule(w.Snapshot(), scheduler.Default())
	w.Apply(&p)
	if len(p.Starts) != 60 || len(w.Rejected) != 0 {
		t.Errorf("%d of 60 start beside their owner's own, %d are refused", len(p.Starts), len(w.Rejected))
	}
}

// TestStrangersNeverMeet: whatever runs and waits, neither a pass nor the fast
// path lays a job on a card that is not shared with those on it.
func TestStrangersNeverMeet(t *testing.T) {
	t.Parallel()
	scopes := rapid.SampledFrom([]cluster.Scope{cluster.ScopeAnyone, cluster.ScopeSameUser, cluster.ScopeSameUser, cluster.ScopeSameGroup, cluster.ScopeNever})
	rapid.Check(t, func(t *rapid.T) {
		w, pol := drawWorld(t, true), drawPolicy(t)
		for _, n := range w.Nodes {
			for i := range n.GPUs {
				n.GPUs[i].Scope = scopes.Draw(t, "scope")
			}
			w.Ledg.SetNode(n)
		}
		for id := range cluster.JobID(len(w.Jobs) + 1) {
			if j := w.Jobs[id]; j != nil {
				Of(cluster.UID(rapid.IntRange(1, 3).Draw(t, "uid")), uint32(rapid.IntRange(1, 2).Draw(t, "gid")))(j)
			}
		}
		if rapid.Bool().Draw(t, "learned") {
			w.Know = drawKnowledge(t)
		}
		for range 3 {
			p := scheduler.Schedule(w.Snapshot(), pol)
			w.Apply(&p)
			if len(w.Rejected) > 0 {
				t.Fatalf("rejected %v", w.Rejected)
			}
			freed := w.Advance(time.Duration(rapid.IntRange(1, 60).Draw(t, "minutes")) * time.Minute)
			p = scheduler.OnRelease(w, freed, pol)
			w.Apply(&p)
			if len(w.Rejected) > 0 {
				t.Fatalf("the fast path: rejected %v", w.Rejected)
			}
		}
	})
}
