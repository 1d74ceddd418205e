package scene

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/cluster/draws"
	"github.com/berth-scheduler/berth/scheduler/policies/mirror"
	"github.com/berth-scheduler/berth/scheduler/rules"
	"github.com/berth-scheduler/berth/scheduler/schedtest"
)

var _ = draws.Fixed()

// anyone is a rule that admits everybody.
type anyone struct{}

func (anyone) Choose(*Scene, *Task) []int32            { return nil }
func (anyone) Admits(*Scene, *Task, *mirror.Card) bool { return true }
func (anyone) Tag(*Task) int64                         { return 0 }

// drawScene draws a few nodes on which jobs run, and some that wait.
func drawScene(t *rapid.T) (*Scene, []*cluster.Node) {
	var nodes []*cluster.Node
	for i := range rapid.IntRange(1, 3).Draw(t, "nodes") {
		n := schedtest.Node(cluster.NodeID(fmt.Sprint("n", i)), rapid.IntRange(0, 4).Draw(t, "cards"), "A", schedtest.Host(rapid.Int64Range(4, 12).Draw(t, "cores"), rapid.Int64Range(4, 12).Draw(t, "memory")))
		for k := range n.GPUs {
			n.GPUs[k].SellableMiB = 100
			if rapid.IntRange(0, 5).Draw(t, "type") == 0 {
				n.GPUs[k].Type = "B"
			}
			if rapid.IntRange(0, 7).Draw(t, "lost") == 0 {
				n.GPUs[k].State = cluster.GPULost
			}
		}
		nodes = append(nodes, n)
	}
	led := dispatch.NewLedger(nodes)
	snap := &dispatch.Snapshot{Now: schedtest.Now, Nodes: nodes, Ledger: led}
	for id := range cluster.JobID(rapid.IntRange(0, 8).Draw(t, "running")) {
		n := nodes[rapid.IntRange(0, len(nodes)-1).Draw(t, "node")]
		b := cluster.Berth{Node: n.ID, CPUMilli: rapid.Int64Range(0, 3).Draw(t, "takes cores"), MemMiB: rapid.Int64Range(0, 3).Draw(t, "takes memory")}
		alone := rapid.IntRange(0, 2).Draw(t, "alone") == 0
		for k := range n.GPUs {
			if rapid.IntRange(0, 2).Draw(t, "on it") == 0 {
				s := cluster.Share{MemMiB: rapid.Int64Range(1, 60).Draw(t, "MiB"), Milli: rapid.Int64Range(1, 600).Draw(t, "milli")}
				if alone {
					s = cluster.Share{MemMiB: 100, Milli: 1000, Exclusive: true}
				}
				b.GPUs = append(b.GPUs, cluster.GPUShare{GPU: n.GPUs[k].ID, Share: s})
			}
		}
		if led.Fits(&b).Code != "" {
			continue
		}
		led.Take(&b)
		left := time.Duration(rapid.IntRange(1, 9).Draw(t, "left")) * time.Minute
		j := schedtest.Job(id+1, schedtest.Lasts(left), schedtest.Limit(left))
		j.State = cluster.JobRunning
		j.Attempts = []cluster.Attempt{{No: 1, State: cluster.JobRunning, Placed: schedtest.Now, Started: schedtest.Now, Berth: b}}
		snap.Running = append(snap.Running, j)
	}
	for id := range cluster.JobID(rapid.IntRange(1, 4).Draw(t, "waiting")) {
		j := schedtest.Job(id+100, schedtest.GPUs(rapid.IntRange(0, 3).Draw(t, "GPUs")), schedtest.Cores(rapid.Int64Range(1, 9).Draw(t, "asks cores")), schedtest.HostMem(rapid.Int64Range(1, 9).Draw(t, "asks memory")),
			schedtest.Mem(rapid.Int64Range(1, 110).Draw(t, "declares")), schedtest.Util(rapid.Int64Range(1, 1000).Draw(t, "compute")), schedtest.Limit(time.Minute))
		j.Spec.Exclusive = rapid.IntRange(0, 3).Draw(t, "wants it alone") == 0
		j.Spec.Node = rapid.SampledFrom([]cluster.NodeID{"", "", "n0"}).Draw(t, "where")
		snap.Waiting = append(snap.Waiting, j)
	}
	sc := New(snap, led.Clone(), &Settings{Pol: rules.Default()}, &Memory{})
	sc.Rule = anyone{}
	return sc, nodes
}

// fitting are the cards of a group that take the share of a task by the ledger, when
// those of gone have ended.
func fitting(sc *Scene, t *Task, gi int32, gone []int32) (cards []int32, host bool) {
	led := sc.Fleet.Led.Clone()
	for _, ri := range gone {
		led.Release(sc.Fleet.Runs[ri].Berth)
	}
	g := &sc.Fleet.Groups[gi]
	node := sc.Fleet.Hosts[g.Host].Node.ID
	for _, ci := range g.Cards {
		share := t.Needs[g.Class].Share
		if t.Needs[g.Class].OK && led.Fits(&cluster.Berth{Node: node, GPUs: []cluster.GPUShare{{GPU: sc.Fleet.Cards[ci].Use.ID, Share: share}}}).Code == "" {
			cards = append(cards, ci)
		}
	}
	host = led.Fits(&cluster.Berth{Node: node, CPUMilli: t.Job.Spec.CPUMilli, MemMiB: t.Job.Spec.MemMiB}).Code == ""
	return cards, host
}

// TestRoomAsTheLedgerSays: the cards that are picked are the first of those that take
// the share; a cheap no is a no; and a group is clear when by the ends of those on its
// node, the first first, the ledger takes the task. What is tried leaves no trace.
func TestRoomAsTheLedgerSays(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		sc, _ := drawScene(t)
		for _, task := range sc.Tasks {
			for gi := range int32(len(sc.Fleet.Groups)) {
				if task.GPUs == 0 || !task.Needs[sc.Fleet.Groups[gi].Class].OK {
					continue
				}
				cards, host := fitting(sc, task, gi, nil)
				var want []int32
				if len(cards) >= task.GPUs {
					want = cards[:task.GPUs]
				}
				if got := sc.Pick(task, gi, nil); !slices.Equal(got, want) {
					t.Fatalf("picked %v, want %v", got, want)
				}
				if got := sc.RoomOn(task, gi); got != (host && want != nil) {
					t.Fatalf("room: %t, want %t", got, host && want != nil)
				}
				h := &sc.Fleet.Hosts[sc.Fleet.Groups[gi].Host]
				there := task.Job.Spec.Node == "" || task.Job.Spec.Node == h.Node.ID
				if host && want != nil && there && !sc.MayHold(task, gi) {
					t.Fatalf("there is room, and it is said to be certain that there is none")
				}
				if sc.MayHold(task, gi) && (!host || !there) {
					t.Fatalf("the host has no room, or is another than is asked for")
				}
				clearsAsTold(t, sc, task, gi)
			}
		}
	})
}

func clearsAsTold(t *rapid.T, sc *Scene, task *Task, gi int32) {
	h := &sc.Fleet.Hosts[sc.Fleet.Groups[gi].Host]
	use := h.Use
	limit := sc.Now + rapid.Int64Range(1, 12).Draw(t, "limit")*60_000_000
	at, cards := sc.Clears(task, gi, limit)
	if h.Use != use {
		t.Fatalf("the node has %+v after it was tried, %+v before", h.Use, use)
	}
	runs := sc.Fleet.ByLatest(h)
	want := int64(rules.Forever)
	for gone := 0; gone <= len(runs); gone++ {
		when := sc.Now
		if gone > 0 {
			when = sc.Fleet.Runs[runs[gone-1]].Latest
		}
		if when >= limit {
			break
		}
		if fits, host := fitting(sc, task, gi, runs[:gone]); host && len(fits) >= task.GPUs {
			want = when
			break
		}
	}
	if at != want || (cards == nil) != (want == rules.Forever) || cards != nil && len(cards) != task.GPUs {
		t.Fatalf("clear in %d s on %v, want in %d s", (at-sc.Now)/1e6, cards, (want-sc.Now)/1e6)
	}
}

// TestPlainRoomAsTheLedgerSays: when a node has the cores and memory of a task.
func TestPlainRoomAsTheLedgerSays(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		sc, _ := drawScene(t)
		for _, task := range sc.Tasks {
			for hi := range sc.Fleet.Hosts {
				h := &sc.Fleet.Hosts[hi]
				led, when := sc.Fleet.Led.Clone(), sc.Now
				b := &cluster.Berth{Node: h.Node.ID, CPUMilli: task.Job.Spec.CPUMilli, MemMiB: task.Job.Spec.MemMiB}
				for _, ri := range sc.Fleet.ByLatest(h) {
					if led.Fits(b).Code == "" {
						break
					}
					led.Release(sc.Fleet.Runs[ri].Berth)
					when = sc.Fleet.Runs[ri].Latest
				}
				at, ok := sc.ClearsPlain(task, h)
				if want := led.Fits(b).Code == ""; ok != want || ok && at != when {
					t.Fatalf("in %d s (%t), want in %d s (%t)", (at-sc.Now)/1e6, ok, (when-sc.Now)/1e6, want)
				}
			}
		}
	})
}

// TestEverFitsAsNeverFits: a task could be held by an empty node exactly when the
// scheduler's own check refuses it on none; cards that are lost count there, as they
// may come back.
func TestEverFitsAsNeverFits(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		sc, nodes := drawScene(t)
		for _, task := range sc.Tasks {
			if got, want := sc.EverFits(task), rules.NeverFits(nodes, task.Job, *sc.Pol) == nil; got != want {
				t.Fatalf("job %d could ever run: %t, want %t (%+v)", task.ID, got, want, task.Job.Spec)
			}
		}
	})
}

// TestExactlyWhatIsLeft: a share of all that a card has left is given, and a card that
// is kept from an instant on is given to who is gone by then, not a microsecond later.
func TestExactlyWhatIsLeft(t *testing.T) {
	t.Parallel()
	n := schedtest.Node("n", 1, "A")
	led := dispatch.NewLedger([]*cluster.Node{n})
	led.Take(&cluster.Berth{Node: "n", GPUs: []cluster.GPUShare{{GPU: "n-00", Share: cluster.Share{MemMiB: 20_000, Milli: 700}}}})
	waits := func(mem, milli int64) *cluster.Job {
		return schedtest.Job(cluster.JobID(mem*1000+milli), schedtest.Mem(mem), schedtest.Util(milli), schedtest.Limit(time.Minute))
	}
	snap := &dispatch.Snapshot{Now: schedtest.Now, Nodes: []*cluster.Node{n}, Ledger: led, Waiting: []*cluster.Job{waits(4000, 300), waits(4001, 300), waits(4000, 301)}}
	sc := New(snap, led.Clone(), &Settings{Pol: rules.Default()}, &Memory{})
	sc.Rule = anyone{}
	for _, task := range sc.Tasks {
		want := task.Job.Spec.GPUMemMiB == 4000 && task.Job.Spec.GPUMilli == 300
		if may, room := sc.MayHold(task, 0), sc.RoomOn(task, 0); may != want || room != want {
			t.Errorf("%d MiB and %d thousandths: may be held %t, has room %t", task.Job.Spec.GPUMemMiB, task.Job.Spec.GPUMilli, may, room)
		}
	}
	first := sc.Tasks[0]
	for late, want := range map[int64]bool{0: true, 1: false} {
		sc.Fleet.Cards[0].Until = sc.Now + time.Minute.Microseconds() - late
		if got := sc.HasRoom(first, 0); got != want {
			t.Errorf("kept %d us before its end: room %t", late, got)
		}
	}
}
