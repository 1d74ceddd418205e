package dispatch

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
)

// calendar is what a reservation means, written out: every window there is, one
// after the other, and every machine and card by name.
type calendar struct {
	windows [][2]cluster.Time
	nodes   map[cluster.NodeID]bool
	gpus    map[cluster.GPUID]bool // empty: all cards of the nodes
}

func calendarOf(r *Reservation, nodes []string) calendar {
	c := calendar{nodes: map[cluster.NodeID]bool{}, gpus: map[cluster.GPUID]bool{}}
	for _, n := range nodes {
		c.nodes[cluster.NodeID(n)] = true
	}
	for _, g := range r.GPUs {
		c.gpus[g] = true
	}
	step := map[Repeat]time.Duration{RepeatNever: 0, RepeatDaily: 24 * time.Hour, RepeatWeekly: 168 * time.Hour}[r.Repeat]
	for i := range 40 {
		begin := r.Start.Add(time.Duration(i) * step)
		c.windows = append(c.windows, [2]cluster.Time{begin, begin.Add(r.Duration)})
		if step == 0 {
			break
		}
	}
	return c
}

// next is the first window that is not over at a time.
func (c calendar) next(now cluster.Time) (w [2]cluster.Time, ok bool) {
	for _, w := range c.windows {
		if now < w[1] {
			return w, true
		}
	}
	return w, false
}

// takes reports whether it is in the way of a job on a card, or with gpu ""
// on the cores of a machine: some moment of the job's lies within a window.
func (c calendar) takes(node cluster.NodeID, gpu cluster.GPUID, from, to cluster.Time) bool {
	if !c.nodes[node] {
		return false
	}
	if gpu == "" && len(c.gpus) > 0 || gpu != "" && len(c.gpus) > 0 && !c.gpus[gpu] {
		return false // only cards are kept, and not this one
	}
	w, ok := c.next(from)
	return ok && w[0] < to
}

func drawReservation(t *rapid.T, name string) (*Reservation, calendar) {
	r := &Reservation{
		Name: name, Start: cluster.Time(1_000_000 * rapid.Int64Range(1, 400_000).Draw(t, "start")),
		Duration: rapid.SampledFrom([]time.Duration{time.Second, time.Hour, 24 * time.Hour}).Draw(t, "length"),
		Repeat:   rapid.SampledFrom([]Repeat{RepeatNever, RepeatDaily, RepeatWeekly}).Draw(t, "repeat"),
	}
	nodes := rapid.SampledFrom([][]string{{"n1"}, {"n1", "n2"}, {"n3"}}).Draw(t, "nodes")
	list, err := cluster.ParseHostList(fmt.Sprintf("%s,%s", nodes[0], nodes[len(nodes)-1]))
	if err != nil {
		t.Fatal(err)
	}
	r.Nodes = list
	if rapid.Bool().Draw(t, "cards alone") {
		for _, n := range nodes {
			r.GPUs = append(r.GPUs, cluster.GPUID(n+"-g0"))
		}
		slices.Sort(r.GPUs)
	}
	if err := r.Check(); err != nil {
		t.Fatalf("drawn: %v", err)
	}
	return r, calendarOf(r, nodes)
}

// TestReservationsAreTheirCalendars: whatever is asked of a reservation has the
// answer that its windows give when they are written out.
func TestReservationsAreTheirCalendars(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r, c := drawReservation(t, "r")
		now := cluster.Time(1_000_000 * rapid.Int64Range(0, 1_500_000).Draw(t, "now"))
		if rapid.Bool().Draw(t, "on an edge") {
			w := rapid.SampledFrom(c.windows[:max(1, len(c.windows)-1)]).Draw(t, "window") // the last has no next one written out
			now = w[rapid.IntRange(0, 1).Draw(t, "edge")] + cluster.Time(rapid.IntRange(-1, 1).Draw(t, "beside"))
		}
		now = max(now, 0)
		want, ok := c.next(now)
		start, end, has := r.Window(now)
		if has != ok || ok && (start != want[0] || end != want[1]) {
			t.Fatalf("at %d: window %d to %d, %t; want %v, %t", now, start, end, has, want, ok)
		}
		if r.Active(now) != (ok && want[0] <= now) {
			t.Fatalf("at %d: active %t, window %v", now, r.Active(now), want)
		}
		at, next := cluster.Time(0), Reservations{r}.Next(now)
		for _, w := range c.windows {
			for _, edge := range w {
				if edge > now && (at == 0 || edge < at) {
					at = edge
				}
			}
		}
		if next != at {
			t.Fatalf("at %d: the next edge is %d, want %d", now, next, at)
		}
		lasts := cluster.Time(rapid.Int64Range(1, 200_000_000_000).Draw(t, "lasts"))
		if ok && want[0] > now && rapid.Bool().Draw(t, "ends as it begins") {
			lasts = max(1, want[0]-now+cluster.Time(rapid.IntRange(-1, 1).Draw(t, "late")))
		}
		j := &cluster.Job{Spec: &cluster.Spec{}}
		for _, node := range []cluster.NodeID{"n1", "n2", "n3"} {
			for _, gpu := range []cluster.GPUID{"", cluster.GPUID(node + "-g0"), cluster.GPUID(node + "-g1")} {
				_, bars := r.Bars(j, node, gpu, now, now+lasts)
				if want := c.takes(node, gpu, now, now+lasts); bars != want {
					t.Fatalf("%+v: a job from %d to %d on %s %q: barred %t, want %t", r, now, now+lasts, node, gpu, bars, want)
				}
			}
		}
	})
}

// TestOwnReservation: a job runs inside of what it asks for, on nothing else,
// and is barred by the reservations of others all the same.
func TestOwnReservation(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	own := &Reservation{Name: "own", Start: 1, Duration: day, Nodes: mustHosts(t, "n1"), Users: []string{"ada"}}
	cards := &Reservation{Name: "cards", Start: 1, Duration: day, Nodes: mustHosts(t, "n2"), GPUs: []cluster.GPUID{"n2-g0"}, Users: []string{"ada"}}
	other := &Reservation{Name: "other", Start: 1, Duration: day, Nodes: mustHosts(t, "n3"), Users: []string{"bob"}}
	rs := Reservations{cards, other, own}
	berth := func(node cluster.NodeID, gpus ...cluster.GPUID) *cluster.Berth {
		b := &cluster.Berth{Node: node, CPUMilli: 1000}
		for _, g := range gpus {
			b.GPUs = append(b.GPUs, cluster.GPUShare{GPU: g})
		}
		return b
	}
	for _, tc := range []struct {
		name, asks string
		at         *cluster.Berth
		want       string // of the reason's code, "" for none
	}{
		{"inside", "own", berth("n1", "n1-g0"), ""},
		{"inside, no card", "own", berth("n1"), ""},
		{"beside its own", "own", berth("n2", "n2-g1"), string(cluster.ReasonReservation)},
		{"on a free node, but not its own", "own", berth("n4"), string(cluster.ReasonReservation)},
		{"on its own card", "cards", berth("n2", "n2-g0"), ""},
		{"on the card beside its own", "cards", berth("n2", "n2-g1"), string(cluster.ReasonReservation)},
		{"on somebody else's", "own", berth("n3"), string(cluster.ReasonReservation)},
		{"asks for none, on a whole node", "", berth("n1"), string(cluster.ReasonReservation)},
		{"asks for none, on a kept card", "", berth("n2", "n2-g0"), string(cluster.ReasonReservation)},
		{"asks for none, beside the kept card", "", berth("n2", "n2-g1"), ""},
		{"asks for none, on a free node", "", berth("n4", "n4-g0"), ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			j := &cluster.Job{Owner: cluster.Owner{UID: 7, Name: "ada"}, Spec: &cluster.Spec{TimeLimit: time.Hour}}
			if tc.asks != "" {
				j.Spec.Where = &cluster.Where{Reservation: tc.asks}
			}
			if r := rs.Keeps(j, tc.at, 10); string(r.Code) != tc.want {
				t.Errorf("got %q, want %q", r, tc.want)
			}
		})
	}
	for _, tc := range []struct {
		asks string
		now  cluster.Time
		want cluster.ReasonCode
	}{
		{"own", 10, ""}, {"other", 10, cluster.ReasonReservationDenied}, {"gone", 10, cluster.ReasonReservationGone},
		{"own", own.End() - 1, ""}, {"own", own.End(), cluster.ReasonReservationGone}, {"own", 0, cluster.ReasonReservation},
	} {
		j := &cluster.Job{Owner: cluster.Owner{UID: 7, Name: "ada"}, Spec: &cluster.Spec{Where: &cluster.Where{Reservation: tc.asks}}}
		if r := rs.Outside(j, tc.now); r.Code != tc.want {
			t.Errorf("a job that asks for %s at %d: %q, want %q", tc.asks, tc.now, r.Code, tc.want)
		}
	}
}

func mustHosts(t testing.TB, text string) cluster.HostList {
	t.Helper()
	h, err := cluster.ParseHostList(text)
	if err != nil {
		t.Fatal(err)
	}
	return h
}
