package nodes

import (
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-scheduler/berth/cluster"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// TestLeasesAreLongEnough: a node is given up after its lease and not at it; a look that
// comes late by half a lease pardons, a shorter pause does not.
func TestLeasesAreLongEnough(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		pause time.Duration // by which the clock is ahead after a look
		lost  bool
	}{"no pause": {0, true}, "a short one": {20 * time.Second, true}, "half a lease": {31 * time.Second, false}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l, f, skew := leases(t, time.Minute)
				l.heard("n1", nil)
				time.Sleep(30 * time.Second)
				skew.Add(int64(c.pause))
				time.Sleep(30*time.Second - c.pause)
				if s := stateOf(t, f); c.pause == 0 && s != cluster.NodeReady {
					t.Errorf("at its lease it is %s", s)
				}
				time.Sleep(2 * time.Second)
				if lost := stateOf(t, f) == cluster.NodeUnreachable; lost != c.lost {
					t.Errorf("lost %t, want %t", lost, c.lost)
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		l, _, _ := leases(t, time.Minute)
		n, _ := l.fsm.Node("n1")
		if at := l.heardAt("n1"); !at.Equal(time.Now()) {
			t.Errorf("in a new term heard at %s", at)
		}
		time.Sleep(10 * time.Second)
		l.heard("n1", []*nodev1.GPUUsage{{Uuid: "GPU-own", UsedMib: 3}})
		l.described("n1", []*nodev1.GPU{{Uuid: "a", StrayMib: 5}, {Uuid: "b"}}, nil, []byte("key"))
		if _, is := l.strayed["n1"]; !is || string(l.key("n1")) != "key" || len(l.details("n1")) != 2 {
			t.Error("what its hello says is not known")
		}
		l.described("n1", []*nodev1.GPU{{Uuid: "a"}}, nil, []byte("key"))
		if len(l.strayed) != 0 {
			t.Error("strays that went are still there")
		}
		l.described("n1", []*nodev1.GPU{{Uuid: "a", StrayMib: 5}}, nil, nil)
		l.reset()
		if at, gpus := l.last("n1"); !at.IsZero() || gpus != nil || len(l.strayed)+len(l.series) != 0 || l.details("n1") != nil || n.ID != "n1" {
			t.Error("a new term knows what was said in the old one")
		}
	})
}

// TestUsesAddUp: over the nodes of an attempt what was used adds up, the peak and the
// progress are the greatest, and its age is the oldest word's.
func TestUsesAddUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, f, _ := leases(t, time.Minute)
		id, a := cluster.AttemptID{Job: 4, No: 2}, &cluster.Attempt{No: 2, Berth: cluster.Berth{Node: "n1"}, Gang: &cluster.Gang{Rest: []cluster.Berth{{Node: "n2"}}, Parts: make([]cluster.Part, 2)}}
		said := func(busy, known, peak, step int64) []*nodev1.AttemptUse {
			u := &nodev1.AttemptUse{Job: 4, Attempt: 2, BusyMs: busy, KnownMs: known, PeakMib: peak}
			if step >= 0 {
				u.Steps = &nodev1.Steps{Step: step, Total: 100}
			}
			return []*nodev1.AttemptUse{u, {Job: 9, Attempt: 1, BusyMs: 1}}
		}
		ask := func(ok bool, busy, known, peak, step int64, at time.Time) {
			t.Helper()
			u, told := l.useOf(id, a)
			got := int64(-1)
			if u.Progress != nil {
				got = u.Progress.Step
			}
			if told != ok || u.BusyMs != busy || u.KnownMs != known || u.PeakMiB != peak || got != step || !at.IsZero() && u.At != cluster.TimeOf(at) {
				t.Errorf("%t, %+v, step %d; want %t, %d of %d ms, %d MiB, step %d", told, u, got, ok, busy, known, peak, step)
			}
		}
		tells := func(want ...cluster.AttemptID) {
			t.Helper()
			if got := l.telling(); !slices.Equal(got, want) {
				t.Errorf("%v tell how far they are, want %v", got, want)
			}
		}
		l.used("n1", said(1, 2, 3, 4)) // of a node that was not heard in this term
		ask(false, 0, 0, 0, -1, time.Time{})
		l.heard("n1", nil)
		l.heard("n2", nil)
		first := time.Now()
		l.used("n1", said(10, 100, 7, 30))
		ask(false, 10, 100, 7, 30, time.Time{})
		time.Sleep(time.Second)
		tells(id)
		l.used("n2", said(-5, 50, 9, 20))
		tells(id)
		ask(true, 10, 150, 9, 30, first)
		time.Sleep(time.Second)
		l.used("n1", said(20, 200, 8, -1))
		ask(true, 20, 250, 9, 20, first.Add(time.Second))
		l.used("n2", said(30, -1, math.MinInt64, 99))
		ask(true, 50, 200, 8, 99, time.Time{})
		l.used("n2", nil) // its word is all there is: nothing of this attempt
		ask(false, 20, 200, 8, -1, time.Time{})
		tells()
		for i, layers := range []uint32{1, 4, 0} { // the slowest node's image counts
			l.used("n1", []*nodev1.AttemptUse{{Job: 4, Attempt: 2, Pull: &nodev1.Pull{Layers: 2, LayersDone: 1, Bytes: 100, BytesDone: 50}}})
			l.used("n2", []*nodev1.AttemptUse{{Job: 4, Attempt: 2, Pull: &nodev1.Pull{Layers: layers, Bytes: 1000, BytesDone: 700 - 300*int64(i)}}})
			tells(id)
			if u, _ := l.useOf(id, a); u.Pull.Layers != []uint32{2, 4, 0}[i] {
				t.Errorf("%d: the image is at %v", i, u.Pull)
			}
		}
		if len(f.Nodes()) != 1 {
			t.Fatal("who is heard becomes a node")
		}
	})
}

// TestEmptiedNodes: a card sells what strays hold, too, and never more than it has; the
// nodes that were given stay as they were.
func TestEmptiedNodes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, f, _ := leases(t, time.Minute)
		n, _ := f.Node("n1")
		was := *n
		was.GPUs = slices.Clone(n.GPUs)
		if got := l.emptied([]*cluster.Node{n}); got[0] != n {
			t.Error("nobody strays, and the node is copied")
		}
		for stray, want := range map[int64]int64{50: 950, 100: 1000, 5000: 1000} {
			l.described("n1", []*nodev1.GPU{{Uuid: "GPU-own", StrayMib: stray, Detail: &apiv1.GPUDetail{}}}, nil, nil)
			in := []*cluster.Node{n, {ID: "n2"}}
			got := l.emptied(in)
			if got[0].GPUs[0].SellableMiB != want || got[1] != in[1] || in[0] != n {
				t.Errorf("with %d MiB of strays it sells %d, want %d", stray, got[0].GPUs[0].SellableMiB, want)
			}
			if d := cmp.Diff(was.GPUs, n.GPUs); d != "" {
				t.Fatalf("the node has changed:\n%s", d)
			}
		}
	})
}
