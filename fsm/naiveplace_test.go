package fsm

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

// guest is a job on a card, to somebody who walks along the cards and looks.
type guest struct {
	job   cluster.JobID
	owner cluster.Owner
	cards map[cluster.GPUID]cluster.Share
	cores map[cluster.NodeID]int64
}

// shelfCard is a card as its node last described it, and what became of it.
type shelfCard struct {
	node     cluster.NodeID
	kind     string
	sellable int64
	most     int
	capped   bool
	scope    cluster.Scope
	drained  bool // by an administrator
	broken   bool // its agent says so
	alone    bool // sharing is switched off there
}

// hall is a cluster of which every question is answered by looking at everything.
type hall struct {
	t       *rapid.T
	m       *machine
	cards   map[cluster.GPUID]*shelfCard
	cores   map[cluster.NodeID]int64
	away    map[cluster.NodeID]bool // drained or silent
	silent  map[cluster.NodeID]bool
	guests  []*guest
	off     map[string]bool // where sharing is off
	waiting []cluster.JobID
}

func (h *hall) draw(what string, n int) int { return rapid.IntRange(0, n-1).Draw(h.t, what) }

// describe draws how a node of three cards describes itself.
func (h *hall) describe(id cluster.NodeID) {
	n := node(id, "boot1", 3)
	n.CPUMilli = 8000
	for i := range n.GPUs {
		g := &n.GPUs[i]
		g.Type = rapid.SampledFrom([]string{"A100", "A100", "T4"}).Draw(h.t, "type")
		g.MaxShares = 1 + h.draw("most", 3)
		g.Scope = rapid.SampledFrom([]cluster.Scope{cluster.ScopeAnyone, cluster.ScopeAnyone, cluster.ScopeSameUser, cluster.ScopeSameGroup, cluster.ScopeNever}).Draw(h.t, "scope")
		if h.draw("uncapped", 5) == 0 {
			g.CapMode = "none"
		}
		if h.draw("broken", 6) == 0 {
			g.State, g.StateReason = cluster.GPUFailing, "Xid 79"
		}
		c := h.cards[g.ID]
		if c == nil {
			c = &shelfCard{node: id}
			h.cards[g.ID] = c
		}
		c.kind, c.sellable, c.most, c.capped, c.scope, c.broken = g.Type, g.SellableMiB, g.MaxShares, g.CapMode != "none", g.Scope, g.State == cluster.GPUFailing
	}
	h.cores[id] = n.CPUMilli
	h.m.must(registerCmd(n))
	if h.silent[id] {
		h.silent[id] = false
		drained, _ := h.m.f.Node(id)
		h.away[id] = drained.Drain
	}
}

// on are who lies on a card.
func (h *hall) on(id cluster.GPUID) (out []*guest) {
	for _, g := range h.guests {
		if _, there := g.cards[id]; there {
			out = append(out, g)
		}
	}
	return out
}

// takes reports whether a card has room for one more share, by the plain words of
// what a share is.
func (h *hall) takes(id cluster.GPUID, sh cluster.Share, owner cluster.Owner) bool {
	c := h.cards[id]
	if c.drained || c.broken {
		return false
	}
	mem, milli := sh.MemMiB, sh.Milli
	others := h.on(id)
	for _, g := range others {
		theirs := g.cards[id]
		switch {
		case theirs.Exclusive || sh.Exclusive, c.scope == cluster.ScopeNever, !c.capped, c.alone:
			return false
		case c.scope == cluster.ScopeSameUser && g.owner.UID != owner.UID, c.scope == cluster.ScopeSameGroup && g.owner.GID != owner.GID:
			return false
		}
		mem += theirs.MemMiB
		milli += theirs.Milli
	}
	return len(others)+1 <= c.most && mem <= c.sellable && milli <= 1000
}

// fits reports whether a start may be committed.
func (h *hall) fits(j *cluster.Job, st *dispatch.Start) bool {
	nodes, kinds, cards := map[cluster.NodeID]bool{}, map[string]bool{}, map[cluster.GPUID]bool{}
	for _, b := range st.Berths() {
		used := b.CPUMilli
		for _, g := range h.guests {
			used += g.cores[b.Node]
		}
		if nodes[b.Node] || h.away[b.Node] || used > h.cores[b.Node] || len(b.GPUs) != j.Spec.GPUs {
			return false
		}
		nodes[b.Node] = true
		for i, g := range b.GPUs {
			c := h.cards[g.GPU]
			if cards[g.GPU] || c.node != b.Node || i > 0 && b.GPUs[i-1].GPU > g.GPU {
				return false
			}
			cards[g.GPU], kinds[c.kind] = true, true
			if j.Spec.Exclusive && !g.Share.Exclusive || j.Spec.GPUType != "" && c.kind != j.Spec.GPUType || !h.takes(g.GPU, g.Share, j.Owner) {
				return false
			}
		}
	}
	return len(nodes) == max(1, j.Spec.Nodes) && (len(nodes) == 1 || len(kinds) <= 1)
}

func (h *hall) submit() string {
	s := spec(h.draw("gpus", 3))
	s.Exclusive = s.GPUs > 0 && h.draw("exclusive", 5) == 0
	if s.GPUs > 0 {
		s.GPUType = rapid.SampledFrom([]string{"", "", "A100", "T4"}).Draw(h.t, "wants")
	}
	if h.draw("gang", 4) == 0 {
		s.Nodes = 2
	}
	uid := cluster.UID(1000 + h.draw("uid", 3))
	c := submitCmd(h.m.f.NextJobID(), fmt.Sprint("hall-", h.m.index), uid, s)
	c.GetSubmitJob().Owner = conv.OwnerToLog(cluster.Owner{UID: uid, GID: uint32(100 + uid/1002), Name: "ada"}) // two are of one group
	h.waiting = append(h.waiting, h.m.must(c).Jobs[0])
	return "submit"
}

// berth draws some cards of one node, most often as many as are asked for.
func (h *hall) berth(j *cluster.Job) cluster.Berth {
	n := cluster.NodeID(fmt.Sprintf("n%d", 1+h.draw("node", 3)))
	b := cluster.Berth{Node: n, CPUMilli: int64(h.draw("cores", 5)) * 1000, MemMiB: 1}
	want := j.Spec.GPUs
	if h.draw("other count", 10) == 0 {
		want = h.draw("cards", 4)
	}
	for _, at := range rapid.Permutation([]int{0, 1, 2}).Draw(h.t, "order")[:min(want, 3)] {
		from := n
		if h.draw("another node's", 15) == 0 {
			from = "n1"
		}
		sh := cluster.Share{MemMiB: rapid.SampledFrom([]int64{0, 1000, 10_000, 20_000, 40_000, 40_001}).Draw(h.t, "mib"), Milli: rapid.SampledFrom([]int64{0, 100, 400, 600, 1000}).Draw(h.t, "milli")}
		if j.Spec.Exclusive && h.draw("shared all the same", 6) > 0 || h.draw("whole", 5) == 0 {
			sh = cluster.Share{MemMiB: 40_000, Milli: cluster.WholeGPU, Exclusive: true}
		}
		b.GPUs = append(b.GPUs, cluster.GPUShare{GPU: cluster.GPUID(fmt.Sprintf("%s-g%d", from, at)), Share: sh})
	}
	if h.draw("unsorted", 12) > 0 {
		slices.SortFunc(b.GPUs, func(x, y cluster.GPUShare) int { return int(x.GPU[4]) - int(y.GPU[4]) })
	}
	return b
}

func (h *hall) start() string {
	if len(h.waiting) == 0 {
		return ""
	}
	at := h.draw("who", len(h.waiting))
	j := h.m.job(h.waiting[at])
	st := dispatch.Start{Job: j.ID, Attempt: 1, Why: "drawn", Berth: h.berth(j)}
	for range max(1, j.Spec.Nodes) - 1 - h.draw("a node less", 8)/7 {
		st.Rest = append(st.Rest, h.berth(j))
	}
	want := h.fits(j, &st)
	r := h.m.must(planCmd(dispatch.Plan{Starts: []dispatch.Start{st}}))
	if got := len(r.Plan.Started) == 1; got != want {
		h.t.Fatalf("start of job %d (%d GPUs %q, exclusive %t, %d nodes) on %+v and %+v: %+v; who looks at the cards says %t", j.ID, j.Spec.GPUs, j.Spec.GPUType, j.Spec.Exclusive, j.Spec.Nodes, st.Berth, st.Rest, r.Plan, want)
	} else if !want {
		return ""
	}
	g := &guest{job: j.ID, owner: j.Owner, cards: map[cluster.GPUID]cluster.Share{}, cores: map[cluster.NodeID]int64{}}
	for _, b := range st.Berths() {
		g.cores[b.Node] = b.CPUMilli
		for _, x := range b.GPUs {
			g.cards[x.GPU] = x.Share
		}
	}
	h.guests, h.waiting = append(h.guests, g), slices.Delete(h.waiting, at, at+1)
	return "start"
}

func (h *hall) end() string {
	if len(h.guests) == 0 {
		return ""
	}
	at := h.draw("who ends", len(h.guests))
	id := h.guests[at].job
	for rank := range h.m.job(id).Last().Nodes() {
		h.m.must(reportCmd(h.m.partOf(id, rank, cluster.JobCompleted, false)))
	}
	h.guests = slices.Delete(h.guests, at, at+1)
	return "end"
}

// order is what administrators and time make of nodes and cards.
func (h *hall) order() string {
	n := cluster.NodeID(fmt.Sprintf("n%d", 1+h.draw("node", 3)))
	card := cluster.GPUID(fmt.Sprintf("%s-g%d", n, h.draw("card", 3)))
	switch h.draw("order", 4) {
	case 0:
		on := h.draw("drain", 2) == 0
		h.m.must(drainCmd(n, on))
		h.away[n] = on || h.silent[n]
		return "drain"
	case 1:
		on := h.draw("drain", 2) == 0
		h.m.must(drainGPUCmd(n, card, on))
		h.cards[card].drained = on
		return "drain of a card"
	case 2:
		h.m.must(silentCmd(n, "boot1"))
		h.silent[n], h.away[n] = true, true
		return "silence"
	}
	h.describe(n)
	return "registration"
}

// sharing switches it off, or on, in a place.
func (h *hall) sharing() string {
	place := rapid.SampledFrom([]string{"", "n1", "n2-g0", "n2", "n1-g1"}).Draw(h.t, "place")
	o := &logv1.SharingOff{}
	switch len(place) {
	case 2:
		o.Node = place
	case 5:
		o.Gpu = place
	}
	off := h.draw("off", 2) == 0
	h.m.must(sharingCmd(o, off))
	if h.off[place] = off; !off {
		delete(h.off, place)
	}
	for id, c := range h.cards {
		c.alone = h.off[""] || h.off[string(c.node)] || h.off[string(id)]
	}
	return "sharing"
}

// TestPlacesByLooking: a start is committed exactly when somebody who looks at every
// card and at everybody on it finds room there: whatever it asks for, whoever lies
// there, and whatever was ordered of the card, its node, and sharing.
func TestPlacesByLooking(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		h := &hall{
			t: t, m: newMachine(t), cards: map[cluster.GPUID]*shelfCard{}, cores: map[cluster.NodeID]int64{}, away: map[cluster.NodeID]bool{},
			silent: map[cluster.NodeID]bool{}, off: map[string]bool{},
		}
		h.m.must(initCmd("c1", 1000))
		for _, id := range []cluster.NodeID{"n1", "n2", "n3"} {
			h.describe(id)
		}
		steps := []func() string{h.submit, h.submit, h.start, h.start, h.start, h.start, h.start, h.end, h.order, h.sharing}
		for range rapid.IntRange(10, 50).Draw(t, "steps") {
			steps[h.draw("step", len(steps))]()
			for id := range h.cards {
				var want []cluster.JobID
				for _, g := range h.on(id) {
					want = append(want, g.job)
				}
				slices.Sort(want)
				if got := h.m.f.st.fleet.On(id); !slices.Equal(got, want) {
					t.Fatalf("on card %s lie %v, who looks sees %v", id, got, want)
				}
			}
		}
	})
}

// TestStrangersBehindTheFirst: everybody on a card is asked whether a newcomer may lie
// there, not the first alone.
func TestStrangersBehindTheFirst(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.must(registerCmd(node("n1", "boot1", 1)))
	of := func(uid cluster.UID) cluster.JobID {
		return m.must(submitCmd(m.f.NextJobID(), fmt.Sprint("of-", uid, m.index), uid, spec(1))).Jobs[0]
	}
	m.start(of(1000), share1("n1-g0", 4000, 100))
	m.start(of(1001), share1("n1-g0", 4000, 100))
	n := node("n1", "boot1", 1)
	n.GPUs[0].Scope = cluster.ScopeSameUser // from now on
	m.must(registerCmd(n))
	r := m.must(planCmd(dispatch.Plan{Starts: []dispatch.Start{m.startOf(of(1000), share1("n1-g0", 4000, 100))}}))
	if len(r.Plan.Rejected) != 1 || r.Plan.Rejected[0].Reason.Code != cluster.ReasonSharing {
		t.Errorf("a job came beside a stranger: %+v", r.Plan)
	}
}
