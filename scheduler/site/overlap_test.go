package site

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler/schedtest"
)

// hosts reads a host list that is known to be one.
func hosts(t interface{ Fatal(...any) }, list string) cluster.HostList {
	h, err := cluster.ParseHostList(list)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// window is a span of time.
type window struct{ from, to cluster.Time }

// windowsOf lists all windows of a reservation that end after now, one by one,
// for the next 120 days, of which the first 100 may hold the first.
func windowsOf(r *dispatch.Reservation, now cluster.Time) (out []window) {
	every := map[dispatch.Repeat]time.Duration{dispatch.RepeatDaily: 24 * time.Hour, dispatch.RepeatWeekly: 168 * time.Hour}[r.Repeat]
	for w := (window{r.Start, r.Start.Add(r.Duration)}); w.from < now.Add(120*24*time.Hour); w = (window{w.from.Add(every), w.to.Add(every)}) {
		if w.to > now {
			out = append(out, w)
		}
		if every == 0 {
			break
		}
	}
	return out
}

// drawReservation draws one over some of the nodes n1 to n3, or single cards.
func drawReservation(t *rapid.T, name string) *dispatch.Reservation {
	r := &dispatch.Reservation{
		Name: name, Start: schedtest.Now.Add(time.Duration(rapid.IntRange(-900, 2400).Draw(t, "start")) * time.Hour),
		Duration: time.Duration(rapid.IntRange(1, 30).Draw(t, "hours")) * time.Hour,
		Repeat:   rapid.SampledFrom([]dispatch.Repeat{dispatch.RepeatNever, dispatch.RepeatDaily, dispatch.RepeatWeekly}).Draw(t, "repeat"),
		Nodes:    hosts(t, rapid.SampledFrom([]string{"n1", "n2", "n[1-2]", "n[2-4]", "ALL"}).Draw(t, "nodes")),
	}
	if r.Repeat == dispatch.RepeatDaily {
		r.Duration = min(r.Duration, 24*time.Hour)
	}
	if rapid.IntRange(0, 2).Draw(t, "cards") == 0 {
		for i := range rapid.IntRange(1, 3).Draw(t, "how many") {
			g := schedtest.GPU(cluster.NodeID("n"+string(rune('1'+i))), rapid.IntRange(0, 1).Draw(t, "card"))
			if r.Nodes.Holds(cluster.NodeID(strings.Split(string(g), "-")[0])) {
				r.GPUs = append(r.GPUs, g)
			}
		}
		slices.Sort(r.GPUs)
	}
	return r
}

// holds lists what a reservation holds: its cards, and nodes as wholes.
func holds(r *dispatch.Reservation, nodes []*cluster.Node) map[string]bool {
	out := map[string]bool{}
	for _, n := range nodes {
		if !r.Nodes.Holds(n.ID) {
			continue
		}
		if len(r.GPUs) == 0 {
			out[string(n.ID)] = true
		}
		for _, g := range n.GPUs {
			if len(r.GPUs) == 0 || slices.Contains(r.GPUs, g.ID) {
				out[string(g.ID)] = true
			}
		}
	}
	return out
}

func fourNodes() []*cluster.Node {
	return []*cluster.Node{schedtest.Node("n1", 2, "T4"), schedtest.Node("n2", 2, "T4"), schedtest.Node("n3", 2, "T4"), schedtest.Node("n4", 0, "")}
}

// TestOverlapAsAllWindows: two reservations meet when some window of one and some
// of the other do, and they hold a card or a node without cards in common; it is
// from when the first such pair is open. Which of the two is named first plays no
// part.
func TestOverlapAsAllWindows(t *testing.T) {
	t.Parallel()
	nodes := fourNodes()
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawReservation(t, "a"), drawReservation(t, "b")
		common := false
		mine := holds(a, nodes)
		for what := range holds(b, nodes) {
			common = common || mine[what]
		}
		want, meet := cluster.Time(math.MaxInt64), false
		for _, x := range windowsOf(a, schedtest.Now) {
			for _, y := range windowsOf(b, schedtest.Now) {
				if common && x.from < y.to && y.from < x.to {
					want, meet = min(want, max(x.from, y.from)), true
				}
			}
		}
		snap := &dispatch.Snapshot{Now: schedtest.Now, Nodes: nodes}
		for _, pair := range [][2]*dispatch.Reservation{{a, b}, {b, a}} {
			at, got := Overlap(pair[0], pair[1], snap)
			if got != meet || meet && at != want {
				t.Fatalf("%+v and %+v: meet %t at %s, want %t at %s", *pair[0], *pair[1], got, at.Std(), meet, want.Std())
			}
		}
	})
}

// TestDailyMeetsTheFarFuture: what repeats every day is in the way of what begins
// in a year, too.
func TestDailyMeetsTheFarFuture(t *testing.T) {
	t.Parallel()
	day := 24 * time.Hour
	daily := &dispatch.Reservation{Name: "night", Start: schedtest.Now, Duration: time.Hour, Repeat: dispatch.RepeatDaily, Nodes: hosts(t, "ALL")}
	snap := &dispatch.Snapshot{Now: schedtest.Now, Nodes: fourNodes()}
	for _, days := range []time.Duration{1, 60, 70, 365} {
		far := &dispatch.Reservation{Name: "far", Start: schedtest.Now.Add(days*day - 30*time.Minute), Duration: time.Hour, Nodes: hosts(t, "n1")}
		if at, ok := Overlap(daily, far, snap); !ok || at != schedtest.Now.Add(days*day) {
			t.Errorf("in %d days: meet %t at %s", days, ok, at.Std())
		}
	}
}
