package fsm

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

// plate is a card as it is screwed to a node.
type plate struct {
	id    cluster.GPUID
	state cluster.GPUState
	why   string
}

// machineRoom is what a caretaker knows of one node.
type machineRoom struct {
	boot, problem string
	silent        bool
	drained       bool
	reason        string
	until         cluster.Time
	plates        []plate
	orders        map[cluster.GPUID]cluster.GPUOrder
	diary         []cluster.NodeEvent // all of it
}

func (r *machineRoom) plate(id cluster.GPUID) *plate {
	for i := range r.plates {
		if r.plates[i].id == id {
			return &r.plates[i]
		}
	}
	return nil
}

// caretaker writes down whatever befalls nodes and cards.
type caretaker struct {
	t     *rapid.T
	m     *machine
	rooms map[cluster.NodeID]*machineRoom
	gone  map[cluster.NodeID]bool
	waits map[cluster.JobID]cluster.GPUID // who waits for which card
}

func (c *caretaker) draw(what string, n int) int { return rapid.IntRange(0, n-1).Draw(c.t, what) }

func (c *caretaker) node() cluster.NodeID {
	return rapid.SampledFrom([]cluster.NodeID{"n1", "n2"}).Draw(c.t, "node")
}

// cards are those that may be screwed to a node: two of its own, and one that is carried
// about.
func (c *caretaker) cards(id cluster.NodeID) []cluster.GPUID {
	return []cluster.GPUID{cluster.GPUID(id) + "-g0", cluster.GPUID(id) + "-g1", "x-carried"}
}

// note writes an event into the diary of a node.
func (c *caretaker) note(r *machineRoom, e cluster.NodeEvent) {
	e.At = c.m.now
	r.diary = append(r.diary, e)
}

// says applies a command and holds the answer against what is right.
func (c *caretaker) says(cmd *logv1.Command, want cluster.Code) bool {
	hash := entitiesHash(c.m.f)
	r := c.m.do(cmd)[0]
	got := done
	if r.Err != nil {
		got = r.Err.Code
	}
	if got != want {
		c.t.Fatalf("%s: %v, by the diary code %d", cmd, r.Err, want)
	}
	if want != done && hash != entitiesHash(c.m.f) {
		c.t.Fatalf("%s was refused and changed the hash", cmd)
	}
	return want == done
}

// known is the room of a node that is there, or nil and what any command about it is
// answered.
func (c *caretaker) known(id cluster.NodeID) (*machineRoom, cluster.Code) {
	if r := c.rooms[id]; r != nil {
		return r, done
	}
	return nil, cluster.CodeNotFound
}

func (c *caretaker) calls() {
	id := c.node()
	old := c.rooms[id]
	now := &machineRoom{boot: "boot1", problem: rapid.SampledFrom([]string{"", "", "no fans"}).Draw(c.t, "problem"), orders: map[cluster.GPUID]cluster.GPUOrder{}}
	if old != nil {
		if now.boot = old.boot; c.draw("boots", 4) == 0 {
			now.boot += "x"
		}
		now.drained, now.reason, now.until, now.diary = old.drained, old.reason, old.until, old.diary
	}
	n := node(id, now.boot, 0)
	n.Problem = now.problem
	want := done
	if c.gone[id] {
		want = cluster.CodeDenied
	}
	for i, g := range c.cards(id) {
		if c.draw("there", 4) == 0 {
			continue
		}
		p := plate{id: g}
		if c.draw("fails", 4) == 0 {
			p.state, p.why = cluster.GPUFailing, "Xid 79"
		}
		now.plates = append(now.plates, p)
		n.GPUs = append(n.GPUs, cluster.GPU{ID: g, Index: i, Type: "A100", MemMiB: 40_960, SellableMiB: 40_000, MaxShares: 3, State: p.state, StateReason: p.why})
		for other, r := range c.rooms {
			if other != id && r.plate(g) != nil && want == done {
				want = cluster.CodeConflict
			}
		}
	}
	if !c.says(registerCmd(n), want) {
		return
	}
	c.compare(old, now)
	if old != nil {
		for g, o := range old.orders {
			if o.Drain || now.plate(g) != nil {
				now.orders[g] = o
			}
		}
	}
	c.rooms[id] = now
}

// compare writes down what is new in how a node is.
func (c *caretaker) compare(old, now *machineRoom) {
	switch {
	case old == nil:
		c.note(now, cluster.NodeEvent{Kind: "registered"})
	case old.boot != now.boot:
		c.note(now, cluster.NodeEvent{Kind: "booted"})
	case old.silent:
		c.note(now, cluster.NodeEvent{Kind: "back"})
	}
	isNew := old == nil
	if isNew {
		old = &machineRoom{}
	}
	switch {
	case now.problem != "" && now.problem != old.problem:
		c.note(now, cluster.NodeEvent{Kind: "problem", Detail: now.problem})
	case now.problem != old.problem:
		c.note(now, cluster.NodeEvent{Kind: "problem", Detail: "solved: " + old.problem})
	}
	for _, p := range now.plates {
		was := old.plate(p.id)
		if was == nil && !isNew {
			c.note(now, cluster.NodeEvent{GPU: p.id, Kind: "back", Detail: p.why})
		}
		if was == nil && p.state != cluster.GPUOK || was != nil && *was != p {
			c.note(now, cluster.NodeEvent{GPU: p.id, Kind: p.state.String(), Detail: p.why})
		}
	}
	for _, p := range old.plates {
		if now.plate(p.id) == nil {
			c.note(now, cluster.NodeEvent{GPU: p.id, Kind: "vanished", Detail: "its agent no longer reports it"})
		}
	}
}

func (c *caretaker) falls() {
	id := c.node()
	r, want := c.known(id)
	boot := "boot1"
	if r != nil && c.draw("late", 4) > 0 {
		boot = r.boot
	}
	if c.says(silentCmd(id, boot), want) && !r.silent && boot == r.boot {
		r.silent = true
		c.note(r, cluster.NodeEvent{Kind: "lost", Detail: "silent for longer than its lease"})
	}
}

func (c *caretaker) fences() {
	id := c.node()
	r, want := c.known(id)
	if r != nil && !r.silent {
		want = cluster.CodeConflict
	}
	if c.says(fenceCmd(id), want) {
		c.note(r, cluster.NodeEvent{Kind: "fenced", Asked: true, By: 1})
	}
}

func (c *caretaker) drains() {
	id := c.node()
	r, want := c.known(id)
	d := &logv1.DrainNode{Node: string(id), Drain: c.draw("drain", 2) == 0, By: 8, Reason: rapid.SampledFrom([]string{"fans", "dust"}).Draw(c.t, "why")}
	if c.draw("with an end", 2) == 0 {
		d.UntilUs = int64(t0) + int64(c.draw("end", 2))
		if r != nil && !d.Drain && c.draw("its own end", 2) == 0 {
			d.UntilUs = int64(r.until)
		}
	}
	if !c.says(&logv1.Command{Kind: &logv1.Command_DrainNode{DrainNode: d}}, want) {
		return
	}
	switch byTime := d.UntilUs != 0; {
	case d.Drain:
		if !r.drained || r.reason != d.Reason {
			c.note(r, cluster.NodeEvent{Kind: "drained", Detail: d.Reason, Asked: true, By: 8})
		}
		r.drained, r.reason, r.until = true, d.Reason, cluster.Time(d.UntilUs)
	case byTime && cluster.Time(d.UntilUs) != r.until: // of a drain that is no more
	case r.drained && byTime:
		c.note(r, cluster.NodeEvent{Kind: "resumed", Detail: "the time of its drain was over", By: 8})
		r.drained, r.reason, r.until = false, "", 0
	case r.drained:
		c.note(r, cluster.NodeEvent{Kind: "resumed", Asked: true, By: 8})
		r.drained, r.reason, r.until = false, "", 0
	}
}

func (c *caretaker) orders() {
	id := c.node()
	r, want := c.known(id)
	g := c.cards(id)[c.draw("card", 3)]
	cmd := drainGPUCmd(id, g, c.draw("drain", 2) == 0)
	d := cmd.GetDrainGpu()
	d.Reason = rapid.SampledFrom([]string{"fans", "dust"}).Draw(c.t, "why") // of a resume nobody keeps one
	var was cluster.GPUOrder
	ordered := false
	if r != nil {
		if was, ordered = r.orders[g]; !ordered && r.plate(g) == nil {
			want = cluster.CodeNotFound
		}
	}
	if !c.says(cmd, want) || d.Drain && was.Drain && was.Reason == d.Reason {
		return
	}
	o := cluster.GPUOrder{GPU: g, Drain: d.Drain, Reason: d.Reason, By: 7, At: c.m.now, Resumed: was.Resumed}
	kind := "drained"
	if !d.Drain {
		kind, o.Reason, o.Resumed = "resumed", "", c.m.index
	}
	c.note(r, cluster.NodeEvent{GPU: g, Kind: kind, Detail: o.Reason, Asked: true, By: 7})
	if r.orders[g] = o; !d.Drain && r.plate(g) == nil {
		delete(r.orders, g)
	}
}

// removes takes a node away for good, or lets its name come again.
func (c *caretaker) removes() {
	id := c.node()
	if c.gone[id] {
		cmd := denyCmd(agentRole, string(id))
		cmd.GetDenyIdentity().Allow = true
		c.says(cmd, done)
		delete(c.gone, id)
		return
	}
	if _, want := c.known(id); c.says(removeCmd(id), want) {
		delete(c.rooms, id)
		c.gone[id] = true
	}
}

// open reports whether a card takes jobs.
func (c *caretaker) open(g cluster.GPUID) bool {
	for _, r := range c.rooms {
		if p := r.plate(g); p != nil {
			return !r.silent && !r.drained && p.state == cluster.GPUOK && !r.orders[g].Drain
		}
	}
	return false
}

// queues has a job wait for a card.
func (c *caretaker) queues() {
	g := c.cards(c.node())[c.draw("card", 3)]
	id := c.m.submit(spec(1))
	r := c.m.must(planCmd(dispatch.Plan{Moves: []dispatch.QueueMove{{Job: id, GPU: g, Rank: int64(id), Reason: cluster.ReasonResources}}}))
	if got := r.Plan.Moved == 1; got != c.open(g) {
		c.t.Fatalf("a job comes to wait for %s: %t, by the diary it is open: %t; %+v", g, got, !got, r.Plan)
	} else if got {
		c.waits[id] = g
	}
}

// check holds the diary against the machine.
func (c *caretaker) check(what string) {
	homes := map[cluster.GPUID]cluster.NodeID{}
	for id, r := range c.rooms {
		n, ok := c.m.f.Node(id)
		if !ok || (n.State == cluster.NodeUnreachable) != r.silent || n.Drain != r.drained || n.DrainReason != r.reason || n.DrainUntil != r.until {
			c.t.Fatalf("%s: node %s is %+v, by the diary %+v", what, id, n, *r)
		}
		orders := slices.SortedFunc(maps.Values(r.orders), func(a, b cluster.GPUOrder) int { return slices.Compare([]byte(a.GPU), []byte(b.GPU)) })
		if d := cmp.Diff(orders, slices.Clone(n.Orders)); len(orders)+len(n.Orders) > 0 && d != "" {
			c.t.Fatalf("%s: orders of node %s: %s", what, id, d)
		}
		if d := cmp.Diff(r.diary[max(0, len(r.diary)-20):], n.History); d != "" {
			c.t.Fatalf("%s: the history of node %s: %s", what, id, d)
		}
		for _, p := range r.plates {
			homes[p.id] = id
		}
	}
	if n := len(c.m.f.Nodes()); n != len(c.rooms) {
		c.t.Fatalf("%s: there are %d nodes, by the diary %d", what, n, len(c.rooms))
	}
	for _, g := range append(c.cards("n1"), c.cards("n2")...) {
		if got := c.m.f.st.fleet.NodeOf(g); got != homes[g] {
			c.t.Fatalf("%s: %s is of node %q, by the diary of %q", what, g, got, homes[g])
		}
	}
	for id, g := range c.waits {
		if !c.open(g) { // whoever waited for it waits for any
			delete(c.waits, id)
		}
		if got, _ := c.m.f.QueuePosition(id); got != c.waits[id] {
			c.t.Fatalf("%s: job %d waits for %q, by the diary for %q", what, id, got, c.waits[id])
		}
	}
}

// TestNodesByTheDiary: whatever nodes say of themselves and of their cards, however they
// fall silent, boot, come back or are removed, and whatever administrators order: what is
// known of them, what their history tells and who waits for which card is what a
// caretaker wrote down.
func TestNodesByTheDiary(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := &caretaker{t: t, m: newMachine(t), rooms: map[cluster.NodeID]*machineRoom{}, gone: map[cluster.NodeID]bool{}, waits: map[cluster.JobID]cluster.GPUID{}}
		c.m.must(initCmd("c1", 1000))
		steps := []func(){c.calls, c.calls, c.calls, c.falls, c.fences, c.drains, c.drains, c.orders, c.orders, c.orders, c.queues, c.queues, c.removes}
		for i := range rapid.IntRange(5, 60).Draw(t, "steps") {
			c.m.now = c.m.now.Add(time.Duration(c.draw("pause", 3)) * time.Second)
			steps[c.draw("step", len(steps))]()
			c.check(fmt.Sprint("step ", i))
		}
		c.m.f = restored(t, snapshotOf(t, c.m.f))
		c.check("a restore")
	})
}
