package fsm

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
)

// booking is a reservation to somebody who writes each hour of it into a calendar.
type booking struct {
	name   string
	nodes  map[cluster.NodeID]bool
	cards  map[cluster.GPUID]bool // nil for all of its nodes
	starts []cluster.Time         // of its windows
	length time.Duration
	uid    cluster.UID // for whom it is; 0 for administrators
}

// during reports whether a window of b and a time have something in common; what
// ends as the other begins has not.
func (b *booking) during(from, to cluster.Time) bool {
	for _, s := range b.starts {
		if s < to && s.Add(b.length) > from {
			return true
		}
	}
	return false
}

// open reports whether a window of b holds a moment.
func (b *booking) open(at cluster.Time) bool { return b.during(at, at+1) }

// holds reports whether b keeps something that a berth would take: a card, or the
// cores of a machine that it keeps whole.
func (b *booking) holds(berth *cluster.Berth) bool {
	if !b.nodes[berth.Node] {
		return false
	}
	for _, g := range berth.GPUs {
		if b.cards == nil || b.cards[g.GPU] {
			return true
		}
	}
	return b.cards == nil
}

// calendar is all bookings.
type calendar struct {
	t     *rapid.T
	m     *machine
	books map[string]*booking
	taken map[cluster.GPUID]cluster.JobID
}

func (c *calendar) draw(what string, n int) int { return rapid.IntRange(0, n-1).Draw(c.t, what) }

func (c *calendar) book() {
	names := []string{"r1", "r2", "r3"}
	b := &booking{name: names[c.draw("name", 3)], nodes: map[cluster.NodeID]bool{}}
	r := &dispatch.Reservation{Name: b.name, Start: c.m.now.Add(time.Duration(c.draw("from", 9)-3) * time.Hour), Duration: time.Duration(1+c.draw("for", 4)) * time.Hour}
	b.length = r.Duration
	text := rapid.SampledFrom([]string{"n1", "n[1-2]", "n3", "ALL"}).Draw(c.t, "nodes")
	r.Nodes = hosts(c.t, text)
	for _, n := range []cluster.NodeID{"n1", "n2", "n3"} {
		b.nodes[n] = text == "ALL" || text == string(n) || text == "n[1-2]" && n != "n3"
	}
	if c.draw("cards", 3) == 0 {
		r.GPUs = []cluster.GPUID{"n1-g0", "n2-g1"}
		b.cards = map[cluster.GPUID]bool{"n1-g0": true, "n2-g1": true}
	}
	if b.uid = cluster.UID(1000 + c.draw("whose", 3)); b.uid == 1002 {
		b.uid = 0
		r.Maint = true
	} else {
		r.Users = []string{fmt.Sprint(b.uid)}
	}
	every := time.Duration(0)
	if c.draw("repeat", 3) == 0 {
		r.Repeat, every = dispatch.RepeatDaily, 24*time.Hour
	}
	for k := range 40 {
		if b.starts = append(b.starts, r.Start.Add(time.Duration(k)*every)); every == 0 {
			break
		}
	}
	base := uint64(0)
	if old := c.m.f.st.Reservations().Get(b.name); old != nil {
		base = old.Revision
	}
	c.m.must(reservationCmd(r, base))
	c.books[b.name] = b
	// Those that are over and that nobody asks for are forgotten then; they keep
	// nothing and let nobody in, so that it makes no difference here.
}

// may reports whether a job may start now on some berths, and whether only for want
// of its own reservation.
func (c *calendar) may(j *cluster.Job, st *dispatch.Start) bool {
	now := c.m.now.Add(time.Second) // of the entry that starts it
	ends := cluster.Time(1) << 62
	if j.Spec.TimeLimit > 0 {
		ends = now.Add(j.Spec.TimeLimit)
	}
	own := (*booking)(nil)
	if j.Spec.Where != nil && j.Spec.Where.Reservation != "" {
		if own = c.books[j.Spec.Where.Reservation]; own == nil || !own.open(now) || own.uid != j.Owner.UID {
			return false
		}
	}
	for _, b := range st.Berths() {
		for _, o := range c.books {
			if o != own && o.holds(b) && o.during(now, ends) {
				return false
			}
		}
		if own != nil {
			if !own.nodes[b.Node] {
				return false
			}
			for _, g := range b.GPUs {
				if own.cards != nil && !own.cards[g.GPU] {
					return false
				}
			}
		}
		if j.Spec.Where != nil && j.Spec.Where.Whole {
			for card := range c.taken {
				if cluster.NodeID(card[:2]) == b.Node {
					return false
				}
			}
			if b.CPUMilli < 64_000 {
				return false
			}
		}
	}
	return true
}

// try submits a job, has it start somewhere, and holds what comes of it against
// the calendar.
func (c *calendar) try() {
	s := spec(1)
	s.Nodes = []int{0, 0, 2, 3}[c.draw("on", 4)]
	s.TimeLimit = time.Duration(c.draw("limit", 4)) * 90 * time.Minute
	if c.draw("where", 2) == 0 {
		s.Where = &cluster.Where{Whole: c.draw("whole", 4) == 0}
		if c.draw("inside", 2) == 0 {
			s.Where.Reservation = []string{"r1", "r2", "r3"}[c.draw("inside of", 3)]
		}
	}
	uid := cluster.UID(1000 + c.draw("uid", 2))
	cmd := submitCmd(c.m.f.NextJobID(), fmt.Sprint("calendar-", c.m.index), uid, s)
	cmd.GetSubmitJob().Jobs[0].Estimates = nil // nobody knows how long it runs without a limit
	id := c.m.must(cmd).Jobs[0]
	var cards []cluster.GPUID
	for _, n := range rapid.Permutation([]int{1, 2, 3}).Draw(c.t, "nodes")[:max(1, s.Nodes)] {
		g := cluster.GPUID(fmt.Sprintf("n%d-g%d", n, c.draw("card", 2)))
		if c.taken[g] != 0 {
			c.m.must(cancelCmd(id, 0))
			return
		}
		cards = append(cards, g)
	}
	st := c.m.gangStart(id, cards...)
	if s.Where != nil && s.Where.Whole && c.draw("all cores", 4) > 0 {
		st.Berth.CPUMilli = 64_000
		for i := range st.Rest {
			st.Rest[i].CPUMilli = 64_000
		}
		for card := range c.taken { // those cores are not free
			for _, b := range st.Berths() {
				if cluster.NodeID(card[:2]) == b.Node {
					c.m.must(cancelCmd(id, 0))
					return
				}
			}
		}
	}
	for _, b := range st.Berths() {
		for card, who := range c.taken {
			if cluster.NodeID(card[:2]) == b.Node && c.m.job(who).Spec.WholeNodes() {
				c.m.must(cancelCmd(id, 0)) // somebody has all cores there
				return
			}
		}
	}
	j := c.m.job(id)
	want := c.may(j, &st)
	r := c.m.must(planCmd(dispatch.Plan{Starts: []dispatch.Start{st}}))
	if got := len(r.Plan.Started) == 1; got != want {
		c.t.Fatalf("job %d of %d (limit %s, where %+v) on %v: %+v; by the calendar it may: %t\n%v", id, uid, s.TimeLimit, s.Where, cards, r.Plan, want, c.m.f.Reservations())
	}
	if !want {
		c.m.must(cancelCmd(id, 0))
		return
	}
	for _, g := range cards {
		c.taken[g] = id
	}
}

// end ends the job with the least id.
func (c *calendar) end() {
	first := cluster.JobID(0)
	for _, id := range c.taken {
		if first == 0 || id < first {
			first = id
		}
	}
	for rank := range c.m.job(first).Last().Nodes() {
		c.m.must(reportCmd(c.m.partOf(first, rank, cluster.JobCompleted, false)))
	}
	for g, id := range c.taken {
		if id == first {
			delete(c.taken, g)
		}
	}
}

// TestReservationsByTheCalendar: a job, on one node or several, starts exactly when
// the calendar has nobody else's window on what it would take until its limit is
// over, and its own, if it asks for one, is open, is for its owner and has all of
// its nodes and cards.
func TestReservationsByTheCalendar(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := &calendar{t: t, m: newMachine(t), books: map[string]*booking{}, taken: map[cluster.GPUID]cluster.JobID{}}
		c.m.must(initCmd("c1", 1000))
		for _, n := range []cluster.NodeID{"n1", "n2", "n3"} {
			c.m.must(registerCmd(node(n, "boot1", 2)))
		}
		for range rapid.IntRange(6, 25).Draw(t, "steps") {
			c.m.now = c.m.now.Add(time.Duration(c.draw("pass", 5)) * 40 * time.Minute)
			switch c.draw("step", 5) {
			case 0:
				c.book()
			case 1:
				if len(c.taken) > 2 {
					c.end()
				}
			default:
				c.try()
			}
		}
	})
}

// TestInsideSingleCards: who runs inside a reservation of single cards has these, and
// not the others of their nodes.
func TestInsideSingleCards(t *testing.T) {
	t.Parallel()
	m := lab(t)
	m.must(reservationCmd(&dispatch.Reservation{Name: "r", Start: m.now, Duration: time.Hour, Nodes: hosts(t, "n1"), GPUs: []cluster.GPUID{"n1-g0"}, Users: []string{"1000"}}, 0))
	s := spec(1)
	s.Where = &cluster.Where{Reservation: "r"}
	id := m.submit(s)
	for _, card := range []cluster.GPUID{"n1-g1", "n2-g0"} {
		r := m.must(planCmd(dispatch.Plan{Starts: []dispatch.Start{m.startOf(id, share1(card, 8000, 300))}}))
		if len(r.Plan.Rejected) != 1 || r.Plan.Rejected[0].Reason.Code != cluster.ReasonReservation {
			t.Errorf("on %s, which is not of its reservation: %+v", card, r.Plan)
		}
	}
	m.start(id, share1("n1-g0", 8000, 300))
}

// TestWholeNodesAreAlone: a job that wants its node alone does not come beside one
// other, though that takes neither cores nor the card; and it takes all cores.
func TestWholeNodesAreAlone(t *testing.T) {
	t.Parallel()
	m := lab(t)
	other := m.submit(spec(1))
	idle := m.startOf(other, share1("n1-g1", 1, 1))
	idle.Berth.CPUMilli = 0
	m.must(planCmd(dispatch.Plan{Starts: []dispatch.Start{idle}}))
	s := spec(1)
	s.Where = &cluster.Where{Whole: true}
	id := m.submit(s)
	start := func(cores int64) *dispatch.Result {
		st := m.startOf(id, whole("n1-g0"))
		st.Berth.CPUMilli = cores
		return m.must(planCmd(dispatch.Plan{Starts: []dispatch.Start{st}})).Plan
	}
	if r := start(64_000); len(r.Rejected) != 1 || r.Rejected[0].Reason.Code != cluster.ReasonExclusive {
		t.Errorf("beside one other: %+v", r)
	}
	m.report(other, cluster.JobCompleted)
	if r := start(63_999); len(r.Rejected) != 1 || r.Rejected[0].Reason.Code != cluster.ReasonStale {
		t.Errorf("without one of its cores: %+v", r)
	}
	if r := start(64_000); len(r.Started) != 1 {
		t.Errorf("alone: %+v", r)
	}
}
