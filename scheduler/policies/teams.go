package policies

import (
	"fmt"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
)

// admit gives the cards away to teams, by the rank of the first of each. Who
// finds too few left waits, or ends.
func (g *teams) admit(capacity []int) {
	slices.SortFunc(g.all, func(x, y *team) int { return x.rank - y.rank })
	in := g.all[:0]
	for _, x := range g.all {
		if capacity[x.class] >= x.gpus {
			capacity[x.class] -= x.gpus
			in = append(in, x)
			continue
		}
		for i := range x.members {
			if x.members[i].run >= 0 {
				g.lose = append(g.lose, x.members[i].run)
			}
		}
	}
	g.all = in
}

// anchor keeps each team where one of it runs, and ends those of it who run
// elsewhere.
func (g *teams) anchor() {
	for _, x := range g.all {
		for i := range x.members {
			if m := &x.members[i]; m.run >= 0 && x.cards == nil {
				x.cards = g.claim(m.run)
			}
		}
		for i := range x.members {
			if m := &x.members[i]; m.run >= 0 && !g.liesOn(m.run, x.cards) {
				g.lose = append(g.lose, m.run)
			}
		}
	}
}

// claim returns the cards of a run, nil when another team has one of them.
func (g *teams) claim(ri int32) []int32 {
	var cards []int32
	for _, s := range g.p.gangs.held(ri) {
		ci, ok := g.p.f.cardAt[s.GPU]
		if _, taken := g.claimed[ci]; !ok || taken {
			return nil
		}
		cards = append(cards, ci)
	}
	for _, ci := range cards {
		g.claimed[ci] = struct{}{}
	}
	return cards
}

func (g *teams) liesOn(ri int32, cards []int32) bool {
	gs := g.p.gangs.held(ri)
	return len(gs) == len(cards) && !slices.ContainsFunc(gs, func(s cluster.GPUShare) bool { return !slices.Contains(cards, g.p.f.cardAt[s.GPU]) })
}

// start places who waits beside his team where its cards are free of others,
// and teams that run nowhere yet on empty cards. It returns the first that
// has to wait, nil when nobody does.
func (g *teams) start() (first *task) {
	for _, x := range g.all {
		if t := x.members[0].t; x.spans && t != nil {
			if !g.p.gangs.startSpan(t) && first == nil {
				first = t
			}
			continue
		}
		if x.cards == nil {
			x.cards = g.empty(x)
		}
		for i := range x.members {
			t := x.members[i].t
			if t == nil || x.cards != nil && g.startOn(t, x.cards) {
				continue
			}
			if first == nil {
				first = t
			}
		}
	}
	return first
}

// empty claims empty cards for a team of which somebody waits, of the first
// group that has enough. Where all of it run, but apart, they have to end first.
func (g *teams) empty(x *team) []int32 {
	p := g.p
	i := slices.IndexFunc(x.members, func(m member) bool { return m.t != nil })
	if i < 0 {
		return nil
	}
	t := x.members[i].t
	for gi := range p.f.groups {
		if p.f.groups[gi].class != x.class || !p.mayHold(t, int32(gi)) {
			continue
		}
		var cards []int32
		for _, ci := range p.f.groups[gi].cards {
			if _, taken := g.claimed[ci]; !taken && p.f.cards[ci].use.Shares == 0 && len(cards) < x.gpus && p.hasRoom(t, ci) {
				cards = append(cards, ci)
			}
		}
		if len(cards) == x.gpus {
			for _, ci := range cards {
				g.claimed[ci] = struct{}{}
			}
			return cards
		}
	}
	return nil
}

func (g *teams) startOn(t *task, cards []int32) bool {
	p := g.p
	if !p.mayHold(t, p.f.cards[cards[0]].group) {
		return false
	}
	for _, ci := range cards {
		leaves := func(o resident) bool { return slices.Contains(g.lose, o.run) }
		if slices.ContainsFunc(p.f.cards[ci].on, leaves) || !p.hasRoom(t, ci) {
			return false
		}
	}
	p.place(t, cards)
	return true
}

// end ends those who are in the way of first.
func (g *teams) end(first *task) {
	if first == nil {
		return
	}
	slices.Sort(g.lose)
	for _, ri := range g.lose {
		if len(g.p.plan.Preempt) == g.p.opt.MaxPreempt {
			return
		}
		r := &g.p.runs[ri]
		g.p.plan.Preempt = append(g.p.plan.Preempt, cluster.Preemption{
			Job: r.job.ID, Attempt: r.job.Live().No, For: first.id, Why: fmt.Sprintf("%s: its team is elsewhere, or it has none", g.p.label),
		})
	}
}
