package policies

import (
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/scheduler/policies/mirror"
	"github.com/berth-scheduler/berth/scheduler/policies/place"
	"github.com/berth-scheduler/berth/scheduler/policies/scene"
)

// admit allocates the GPUs to teams, by the rank of the first of each. Teams that
// find too few left wait, or end.
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
			if x.members[i].Run >= 0 {
				g.lose = append(g.lose, x.members[i].Run)
			}
		}
	}
	g.all = in
}

// anchor keeps each team where one of it runs, and ends those of it that run
// elsewhere.
func (g *teams) anchor() {
	for _, x := range g.all {
		for i := range x.members {
			if m := &x.members[i]; m.Run >= 0 && x.cards == nil {
				x.cards = g.claim(m.Run)
			}
		}
		for i := range x.members {
			if m := &x.members[i]; m.Run >= 0 && !g.liesOn(m.Run, x.cards) {
				g.lose = append(g.lose, m.Run)
			}
		}
	}
}

// claim returns the GPUs of a run, nil if another team has one of them.
func (g *teams) claim(ri int32) []int32 {
	var cards []int32
	for _, s := range g.p.Fleet.Held(ri) {
		ci, ok := g.p.Fleet.CardAt[s.GPU]
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
	gs := g.p.Fleet.Held(ri)
	return len(gs) == len(cards) && !slices.ContainsFunc(gs, func(s cluster.GPUShare) bool { return !slices.Contains(cards, g.p.Fleet.CardAt[s.GPU]) })
}

// start places waiting tasks with their team if its GPUs are free of others, and
// teams that run nowhere yet on empty GPUs. It returns the first that has to wait,
// nil if none does.
func (g *teams) start() (first *scene.Task) {
	for _, x := range g.all {
		if t := x.members[0].Task; x.spans && t != nil {
			if !g.p.starter.startSpan(t) && first == nil {
				first = t
			}
			continue
		}
		if x.cards == nil {
			x.cards = g.empty(x)
		}
		for i := range x.members {
			t := x.members[i].Task
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

// empty claims empty GPUs for a team with waiting tasks, of the first group that
// has enough. If all of it run, but apart, they have to end first.
func (g *teams) empty(x *team) []int32 {
	p := g.p
	i := slices.IndexFunc(x.members, func(m place.Member) bool { return m.Task != nil })
	if i < 0 {
		return nil
	}
	t := x.members[i].Task
	for gi := range p.Fleet.Groups {
		if p.Fleet.Groups[gi].Class != x.class || !p.MayHold(t, int32(gi)) {
			continue
		}
		var cards []int32
		for _, ci := range p.Fleet.Groups[gi].Cards {
			if _, taken := g.claimed[ci]; !taken && p.Fleet.Cards[ci].Use.Shares == 0 && len(cards) < x.gpus && p.HasRoom(t, ci) {
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

func (g *teams) startOn(t *scene.Task, cards []int32) bool {
	p := g.p
	if !p.MayHold(t, p.Fleet.Cards[cards[0]].Group) {
		return false
	}
	for _, ci := range cards {
		leaves := func(o mirror.Resident) bool { return slices.Contains(g.lose, o.Run) }
		if slices.ContainsFunc(p.Fleet.Cards[ci].On, leaves) || !p.HasRoom(t, ci) {
			return false
		}
	}
	p.starter.place(t, cards)
	return true
}

// end ends the runs that are in the way of first.
func (g *teams) end(first *scene.Task) {
	if first == nil {
		return
	}
	slices.Sort(g.lose)
	for _, ri := range g.lose {
		if !g.p.MayAsk() {
			return
		}
		g.p.Ask(&g.p.Fleet.Runs[ri], first.ID, "its team is elsewhere, or it has none")
	}
}
