package scheduler_test

import (
	"slices"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler"
	. "github.com/berth-scheduler/berth/scheduler/schedtest"
)

// reserving is a world with reservations, as the fast path sees it.
type reserving struct {
	*World
	rs dispatch.Reservations
}

func (r reserving) Reservations() dispatch.Reservations { return r.rs }

// TestReleaseKeepsReservations, by hand: a node is reserved in an hour. Who may run
// for an hour starts on what was released, who may run a second longer does not, nor
// one of whom nobody knows how long; on another node all do.
func TestReleaseKeepsReservations(t *testing.T) {
	t.Parallel()
	nodes, err := cluster.ParseHostList("n1")
	if err != nil {
		t.Fatal(err)
	}
	rs := dispatch.Reservations{{Name: "r", Start: Now.Add(time.Hour), Duration: time.Hour, Nodes: nodes}}
	for limit, want := range map[time.Duration]int{time.Hour: 1, time.Hour + time.Second: 0, 0: 0} {
		for _, on := range []cluster.NodeID{"n1", "n2"} {
			w := NewWorld([]*cluster.Node{Node("n1", 1, a100), Node("n2", 1, a100)})
			j := Job(1, Exclusive, Limit(limit), Waited(5*time.Hour))
			j.Queue = GPU(on, 0)
			w.Submit(j)
			if on == "n2" {
				want = 1
			}
			if p := scheduler.OnRelease(reserving{w, rs}, []cluster.GPUID{j.Queue}, scheduler.Default()); len(p.Starts) != want {
				t.Errorf("limit %s on %s: starts %+v, want %d", limit, on, p.Starts, want)
			}
		}
	}
}

// TestReleaseStopsAtTheOld, by hand: 40,000 of 80,000 MiB are in use. An old job that
// wants 60,000 heads the queue; whoever stands behind it, small and old, does not start
// before the next full pass has said so. Without the large one it starts.
func TestReleaseStopsAtTheOld(t *testing.T) {
	t.Parallel()
	for _, blocked := range []bool{true, false} {
		w := NewWorld([]*cluster.Node{Node("n1", 1, a100)})
		running(w, Job(9, Lasts(time.Hour)), "n1-00", cluster.Share{MemMiB: 40000, Milli: 200})
		for id, mem := range map[cluster.JobID]int64{1: 60000, 2: 10000} {
			if id == 1 && !blocked {
				continue
			}
			w.Submit(Job(id, Mem(mem), Util(200), Lasts(time.Hour), Waited(6*time.Hour-time.Duration(id)*time.Minute)))
			w.Jobs[id].Queue, w.Jobs[id].State = "n1-00", cluster.JobQueued
			w.Queues["n1-00"] = append(w.Queues["n1-00"], dispatch.Waiter{Job: id, Rank: int64(w.Jobs[id].Eligible)})
		}
		sortQueue(w.Queues["n1-00"])
		p := scheduler.OnRelease(w, []cluster.GPUID{"n1-00"}, scheduler.Default())
		if (len(p.Starts) == 0) != blocked {
			t.Errorf("blocked %t: starts %+v", blocked, p.Starts)
		}
	}
}

// TestReleaseByAPlainView: who does not know who lies on a card starts jobs on cards
// that anyone may share, and on scoped ones when nobody is there.
func TestReleaseByAPlainView(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		scope cluster.Scope
		taken bool
		want  int
	}{{cluster.ScopeAnyone, false, 1}, {cluster.ScopeAnyone, true, 1}, {cluster.ScopeSameUser, false, 1}, {cluster.ScopeSameUser, true, 0}} {
		w := NewWorld([]*cluster.Node{Node("n1", 1, a100, Scoped(c.scope))})
		if c.taken {
			running(w, Job(9, Lasts(time.Hour)), "n1-00", cluster.Share{MemMiB: 1000, Milli: 100})
		}
		w.Submit(Job(1, Mem(1000), Util(100), Waited(5*time.Hour), queued("n1-00", 0)))
		plain := struct{ scheduler.View }{w}
		if p := scheduler.OnRelease(plain, []cluster.GPUID{"n1-00"}, scheduler.Default()); len(p.Starts) != c.want {
			t.Errorf("scope %v, taken %t: starts %+v, want %d", c.scope, c.taken, p.Starts, c.want)
		}
	}
}

func sortQueue(q []dispatch.Waiter) { slices.SortFunc(q, dispatch.Waiter.Compare) }
