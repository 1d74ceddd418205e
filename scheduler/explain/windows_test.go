package explain

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler/rules"
	"github.com/berth-scheduler/berth/scheduler/schedtest"
)

const hour = time.Hour

func drawWindows(t *rapid.T) (rs dispatch.Reservations) {
	for i := range rapid.IntRange(0, 4).Draw(t, "reservations") {
		nodes, err := cluster.ParseHostList(rapid.SampledFrom([]string{"n0", "n1", "n[0-1]"}).Draw(t, "holds"))
		if err != nil {
			t.Fatal(err)
		}
		r := &dispatch.Reservation{
			Name: fmt.Sprint("r", i), Nodes: nodes, Users: []string{"ann"},
			Start:    schedtest.Now.Add(time.Duration(rapid.IntRange(-5, 9).Draw(t, "begins")) * hour),
			Duration: time.Duration(rapid.IntRange(1, 4).Draw(t, "lasts")) * hour,
			Repeat:   rapid.SampledFrom([]dispatch.Repeat{"", "", dispatch.RepeatDaily}).Draw(t, "again"),
		}
		if rapid.IntRange(0, 3).Draw(t, "one card") == 0 {
			r.GPUs = []cluster.GPUID{"n0-00"}
		}
		rs = append(rs, r)
	}
	return rs
}

// mayRun is whether a job may run on a card of a node for so many hours from one on, by
// each hour and each window.
func mayRun(rs dispatch.Reservations, own string, node cluster.NodeID, gpu cluster.GPUID, from, hours int) bool {
	inside := own == ""
	for _, r := range rs {
		holds := r.Nodes.Holds(node) && (len(r.GPUs) == 0 || r.GPUs[0] == gpu)
		begins, lasts := int(r.Start.Sub(schedtest.Now)/hour), int(r.Duration/hour)
		open := func(h int) bool {
			if r.Repeat == dispatch.RepeatDaily && h >= begins {
				return (h-begins)%24 < lasts
			}
			return h >= begins && h < begins+lasts
		}
		if r.Name == own { // a job may outlast its own window
			inside = inside || open(from)
			continue
		}
		for h := from; h < from+hours; h++ {
			if holds && open(h) {
				return false
			}
		}
	}
	return inside
}

// TestShiftedAsTriedByTheHour: a job starts in the first hour from which on no window
// of another reservation comes in its way, and in which its own is open.
func TestShiftedAsTriedByTheHour(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		snap := &dispatch.Snapshot{Now: schedtest.Now, Reservations: drawWindows(t)}
		own := rapid.SampledFrom([]string{"", "", "r0"}).Draw(t, "inside")
		if own != "" && (len(snap.Reservations) == 0 || len(snap.Reservations[0].GPUs) > 0) {
			own = ""
		}
		j := schedtest.Job(1)
		j.Spec.Where = &cluster.Where{Reservation: own}
		c := &clearing{x: &explainer{snap: snap, job: j}, node: schedtest.Node("n0", 2, "A"), cards: []int{rapid.IntRange(0, 1).Draw(t, "card")}}
		from, hours := rapid.IntRange(0, 6).Draw(t, "from"), rapid.IntRange(1, 5).Draw(t, "takes")
		want, can := from, false
		for ; want < 200 && !can; want++ {
			can = mayRun(snap.Reservations, own, "n0", c.node.GPUs[c.cards[0]].ID, want, hours)
		}
		want--
		at, ok := c.shifted(int64(schedtest.Now.Add(time.Duration(from)*hour)), (time.Duration(hours) * hour).Microseconds())
		if ok != can {
			t.Fatalf("it may ever start: %t, want %t", ok, can)
		}
		if got := cluster.Time(at).Sub(schedtest.Now); ok && got != time.Duration(want)*hour {
			t.Fatalf("in %s, want in %d h", got, want)
		}
	})
}

// TestTogetherAsTriedByTheHour: nodes that become free one after the other and are
// reserved now and then are open together first in the hour in which a count finds so
// many, and of the last of them it is told.
func TestTogetherAsTriedByTheHour(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		snap := &dispatch.Snapshot{Now: schedtest.Now, Reservations: drawWindows(t)}
		x := &explainer{snap: snap, job: schedtest.Job(1)}
		hours := rapid.IntRange(1, 3).Draw(t, "takes")
		var ps []spanPlace
		var free []int
		for i := range rapid.IntRange(1, 3).Draw(t, "nodes") {
			c := &clearing{x: x, node: schedtest.Node(cluster.NodeID(fmt.Sprint("n", i)), 1, "A"), cards: []int{0}, length: (time.Duration(hours) * hour).Microseconds()}
			free = append(free, rapid.IntRange(0, 6).Draw(t, "free"))
			ps = append(ps, spanPlace{clearing: c, early: int64(schedtest.Now.Add(time.Duration(free[i]) * hour))})
		}
		wants := rapid.IntRange(1, len(ps)).Draw(t, "wants")
		open := func(h int) (n int) {
			for i := range ps {
				if free[i] <= h && mayRun(snap.Reservations, "", ps[i].node.ID, ps[i].node.GPUs[0].ID, h, hours) {
					n++
				}
			}
			return n
		}
		want := 0
		for want < 200 && open(want) < wants {
			want++
		}
		at, last, ok := together(ps, wants, int64(schedtest.Now), func(p *spanPlace) int64 { return p.early })
		if got := cluster.Time(at).Sub(schedtest.Now); ok != (want < 200) || ok && got != time.Duration(want)*hour {
			t.Fatalf("in %s (%t), want in %d h", got, ok, want)
		}
		if ok && last == nil {
			t.Fatal("none is the last")
		}
	})
}

// TestPlayByHand: those who stand before a job in the queue of its card go first, one
// after the other, each as long as it is predicted, three times as long at the tail
// where that is a guess; who stands behind it, or for another card, does not count.
func TestPlayByHand(t *testing.T) {
	t.Parallel()
	n := schedtest.Node("n", 2, "A")
	queued := func(id cluster.JobID, gpu int, d time.Duration, opts ...schedtest.JobOption) *cluster.Job {
		j := schedtest.Job(id, append(opts, schedtest.Exclusive, schedtest.Lasts(d))...)
		j.Queue, j.State = n.GPUs[gpu].ID, cluster.JobQueued
		return j
	}
	snap := func(jobs ...*cluster.Job) *dispatch.Snapshot {
		s := &dispatch.Snapshot{Now: schedtest.Now, Nodes: []*cluster.Node{n}, Ledger: dispatch.NewLedger([]*cluster.Node{n}), Queues: map[cluster.GPUID][]dispatch.Waiter{}}
		for i, j := range jobs {
			s.Waiting = append(s.Waiting, j)
			s.Queues[j.Queue] = append(s.Queues[j.Queue], dispatch.Waiter{Job: j.ID, Rank: int64(i)})
		}
		slices.SortFunc(s.Waiting, func(a, b *cluster.Job) int { return int(a.ID) - int(b.ID) })
		return s
	}
	mine := queued(9, 0, hour)
	for _, c := range []struct {
		name         string
		snap         *dispatch.Snapshot
		middle, tail time.Duration
		ahead        int
	}{
		{"alone", snap(mine), 0, 0, 0},
		{"one before it", snap(queued(20, 0, hour), mine), hour, 3 * hour, 1},
		{"two before it, one within its limit", snap(queued(20, 0, hour), queued(3, 0, hour, schedtest.Limit(2*hour)), mine), 2 * hour, 5 * hour, 2},
		{"one behind it", snap(mine, queued(20, 0, hour)), 0, 0, 0},
		{"one at another card", snap(queued(20, 1, hour), mine), 0, 0, 0},
	} {
		pol := rules.Default()
		x := newExplainer(c.snap, mine, pol, Passes{})
		p := &clearing{x: x, node: n, at: int64(schedtest.Now), cards: []int{0}}
		middle, tail := p.play(rules.Middle)-int64(schedtest.Now), p.play(rules.Tail)-int64(schedtest.Now)
		if middle != c.middle.Microseconds() || tail != c.tail.Microseconds() || p.before() != c.ahead {
			t.Errorf("%s: in %d to %d s behind %d, want %s to %s behind %d", c.name, middle/1e6, tail/1e6, p.before(), c.middle, c.tail, c.ahead)
		}
	}
}

// TestLongQueuesInProportion: of more than 256 before a job the rest counts in
// proportion.
func TestLongQueuesInProportion(t *testing.T) {
	t.Parallel()
	n := schedtest.Node("n", 1, "A")
	s := &dispatch.Snapshot{Now: schedtest.Now, Nodes: []*cluster.Node{n}, Ledger: dispatch.NewLedger([]*cluster.Node{n}), Queues: map[cluster.GPUID][]dispatch.Waiter{}}
	for id := range cluster.JobID(513) {
		j := schedtest.Job(id+1, schedtest.Exclusive, schedtest.Lasts(time.Minute))
		j.Queue, j.State = n.GPUs[0].ID, cluster.JobQueued
		s.Waiting = append(s.Waiting, j)
		s.Queues[j.Queue] = append(s.Queues[j.Queue], dispatch.Waiter{Job: j.ID, Rank: int64(j.ID)})
	}
	f, ok := When(s, s.Waiting[512], rules.Default(), Passes{})
	if got := f.P50.Sub(schedtest.Now).Minutes(); !ok || math.Abs(got-512) > 0.01 || f.Ahead != 512 {
		t.Errorf("in %f minutes behind %d, want in 512 behind 512", got, f.Ahead)
	}
}
