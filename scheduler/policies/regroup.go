package policies

import (
	"slices"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/scheduler/company"
	"github.com/berth-scheduler/berth/scheduler/policies/mirror"
	"github.com/berth-scheduler/berth/scheduler/policies/place"
	"github.com/berth-scheduler/berth/scheduler/policies/scene"
)

// team is a group being formed, on as many GPUs as each of its jobs asks for.
type team struct {
	class   int32
	gpus    int
	rank    int // of its first job
	members []place.Member
	kind    int32
	speed   float64 // what it gets done, one job alone being 1
	cards   []int32 // where some of it already run
	spans   bool    // it is one job over several nodes
}

// teams is a pass that forms all groups anew.
type teams struct {
	p       *ranker
	rule    place.Teamer
	all     []*team
	left    []int // GPUs by class that are not spoken for
	kinds   map[kindKey]int32
	pairs   map[[2]int32]float64
	lose    []int32            // runs that end: in no team, or not where their team is
	claimed map[int32]struct{} // GPUs of teams
}

// regroup counts the GPUs off by rank as rerank does, but shares them if more jobs
// want some than there are: see teams.form and teams.merge. It starts and ends jobs
// until each is with its team.
//
// Source: the rounds of Muri (Zhao et al., SIGCOMM 2022, section 4.2), whose
// matching is Blossom's.
func (rk *ranker) regroup(rule place.Teamer) {
	g := &teams{p: rk, rule: rule, left: make([]int, len(rk.Fleet.Classes)), kinds: map[kindKey]int32{}, pairs: map[[2]int32]float64{}, claimed: map[int32]struct{}{}}
	for gi := range rk.Fleet.Groups {
		for _, ci := range rk.Fleet.Groups[gi].Cards {
			if !slices.ContainsFunc(rk.Fleet.Cards[ci].On, func(o mirror.Resident) bool { return !rk.counts(o.Run) }) {
				g.left[rk.Fleet.Groups[gi].Class]++
			}
		}
	}
	all := rk.rankAll()
	for _, x := range all {
		if x.run < 0 && x.Task.GPUs == 0 {
			rk.starter.start(x.Task)
		}
	}
	capacity := slices.Clone(g.left)
	g.form(all)
	g.merge(capacity)
	g.admit(capacity)
	g.anchor()
	g.end(g.start())
}

// form goes through all by rank. A job that finds enough GPUs left claims them and
// brings along the next that ask for as many, up to the sharing limit of a GPU.
// These are teams of one so far; all others have no chance in this pass.
func (g *teams) form(all []ranking) {
	in := make([]bool, len(all))
	for i := range all {
		if in[i] || all[i].run < 0 && all[i].Task.GPUs == 0 {
			continue
		}
		n, class := all[i].gpus(), int32(-1)
		for c := range g.left {
			if g.left[c] >= n && (class < 0 || g.left[c] > g.left[class]) && g.can(&all[i], int32(c)) {
				class = int32(c)
			}
		}
		if class < 0 {
			continue
		}
		g.left[class] -= n
		along := g.shares(&g.p.Fleet.Classes[class])
		for k := i; k < len(all) && along > 0; k++ {
			if !in[k] && all[k].gpus() == n && g.can(&all[k], class) && (k == i || !all[i].spans && !all[k].spans) {
				in[k] = true
				along--
				m := g.member(&all[k], class)
				g.all = append(g.all, &team{class: class, gpus: n, rank: k, members: []place.Member{m}, kind: g.teamKind(m.Kind, -1), speed: 1, spans: all[k].spans})
			}
		}
	}
	for i := range all {
		if !in[i] && all[i].run >= 0 {
			g.lose = append(g.lose, all[i].run)
		}
	}
}

// shares returns how many jobs may share a GPU of a class.
func (g *teams) shares(k *mirror.Class) int {
	if !k.Shareable {
		return 1
	}
	return min(g.p.Fleet.MaxShares, k.Rep.MaxShares, place.MostKinds)
}

func (x *ranking) gpus() int {
	if x.run >= 0 {
		return x.cards
	}
	return x.Task.Cards()
}

// can reports whether a job can be on a class; running jobs stay on theirs.
func (g *teams) can(x *ranking, class int32) bool {
	if x.run >= 0 {
		c, _ := g.p.heldBy(x.run)
		return c == class
	}
	return x.Task.Needs[class].OK
}

func (g *teams) member(x *ranking, class int32) place.Member {
	m := place.Member{ID: x.id, Task: x.Task, Run: x.run}
	if x.run >= 0 {
		r := &g.p.Fleet.Runs[x.run]
		m.Task, m.Job, m.Share, m.Est, m.CPU = nil, r.Job, r.Berth.GPUs[0].Share, r.Est, r.Berth.CPUMilli
	} else {
		n := &x.Task.Needs[class]
		m.Job, m.Share, m.Est, m.CPU = x.Task.Job, n.Share, n.Est, x.Task.CPU
	}
	m.Kind = g.kindOf(&m, class)
	return m
}

// kindKey identifies a job's kind, and a team's: the kinds of its jobs, sorted,
// each one more than it is.
type kindKey struct {
	shape
	stages place.Stages
	alone  time.Duration
	of     [place.MostKinds]int32
}

func (g *teams) kindOf(m *place.Member, class int32) int32 {
	return g.intern(kindKey{
		shape:  shape{class: class, gpus: int32(m.Job.Spec.GPUs), share: m.Share, temper: g.p.Temper(m.Job), owner: g.p.OwnerOn(m.Job, class), cpu: m.CPU, host: m.Est.CPUMilli},
		stages: g.p.Snap.Terms[m.Job.ID].Stages, alone: g.p.Snap.Terms[m.Job.ID].Iteration,
	})
}

// teamKind returns the kind of a team combined from two teams; -1 is none.
func (g *teams) teamKind(kinds ...int32) int32 {
	key := kindKey{}
	for i, k := range kinds {
		key.of[i] = k + 1
	}
	slices.Sort(key.of[:])
	return g.intern(key)
}

func (g *teams) intern(key kindKey) int32 {
	k, ok := g.kinds[key]
	if !ok {
		k = int32(len(g.kinds))
		g.kinds[key] = k
	}
	return k
}

// merge merges teams pairwise, in rounds, the pairs with most gain first, while the
// teams of a class want more GPUs than it has. In each round a team is merged once,
// so that pairs become fours.
func (g *teams) merge(capacity []int) {
	want := make([]int, len(capacity))
	for _, x := range g.all {
		want[x.class] += x.gpus
	}
	for range place.MostKinds {
		merged := false
		for _, o := range g.offers() {
			for want[o.a[0].class] > capacity[o.a[0].class] {
				x, y := o.next(g)
				if x == nil {
					break
				}
				g.unite(x, y)
				want[x.class] -= x.gpus
				merged = true
			}
		}
		g.all = slices.DeleteFunc(g.all, func(x *team) bool { return x.members == nil })
		if !merged {
			return
		}
	}
}

// unite lets y join x.
func (g *teams) unite(x, y *team) {
	x.rank = min(x.rank, y.rank)
	x.members = append(x.members, y.members...)
	slices.SortFunc(x.members, func(a, b place.Member) int { return int(a.ID) - int(b.ID) })
	var kinds []int32
	for i := range x.members {
		kinds = append(kinds, x.members[i].Kind)
	}
	x.kind, x.speed = g.teamKind(kinds...), g.speed(x.class, x.members)
	y.members = nil
}

func (g *teams) speed(class int32, group []place.Member) (sum float64) {
	var buf [place.MostKinds]float64
	for _, v := range g.rule.Speeds(g.p.Scene, class, group, buf[:0]) {
		sum += v
	}
	return sum
}

// offer is a possible merger of teams of two kinds.
type offer struct {
	speed float64
	a, b  []*team // the last of the order first; the same for one kind
	used  map[*team]struct{}
}

// offers lists which kinds of team gain by merging, the most productive first.
func (g *teams) offers() []*offer {
	byKind := map[int32][]*team{}
	var kinds []int32
	for _, x := range g.all {
		if byKind[x.kind] == nil {
			kinds = append(kinds, x.kind)
		}
		byKind[x.kind] = append(byKind[x.kind], x)
	}
	for _, ts := range byKind {
		slices.SortFunc(ts, func(x, y *team) int { return y.rank - x.rank })
	}
	used := map[*team]struct{}{}
	var out []*offer
	for i, a := range kinds {
		for _, b := range kinds[i:] {
			x, y := byKind[a], byKind[b]
			if s := g.together(x[0], y[0]); s >= 1 {
				out = append(out, &offer{s, x, y, used})
			}
		}
	}
	slices.SortStableFunc(out, func(x, y *offer) int {
		switch {
		case x.speed > y.speed:
			return -1
		case x.speed < y.speed:
			return 1
		}
		return 0
	})
	return out
}

// next returns two teams of an offer that are still unmerged, nil if there are
// none: of the last of one kind, the team of the other that it shares GPUs with, or
// the last.
func (o *offer) next(g *teams) (x, y *team) {
	free := func(t *team, but *team) bool {
		_, gone := o.used[t]
		return !gone && t != but
	}
	for len(o.a) > 0 && !free(o.a[0], nil) {
		o.a = o.a[1:]
	}
	for len(o.b) > 0 && !free(o.b[0], nil) {
		o.b = o.b[1:]
	}
	if len(o.a) == 0 {
		return nil, nil
	}
	x = o.a[0]
	for _, t := range o.b {
		if free(t, x) && (y == nil || g.neighbours(x, t)) {
			if y = t; g.neighbours(x, t) {
				break
			}
		}
	}
	if y == nil {
		return nil, nil
	}
	o.used[x], o.used[y] = struct{}{}, struct{}{}
	return x, y
}

// neighbours reports whether some of two teams run on the same cards.
func (g *teams) neighbours(x, y *team) bool {
	for i := range x.members {
		for k := range y.members {
			if a, b := x.members[i].Run, y.members[k].Run; a >= 0 && b >= 0 && g.sameCards(a, b) {
				return true
			}
		}
	}
	return false
}

// together returns what two teams get done as one, 0 if they cannot be.
func (g *teams) together(x, y *team) float64 {
	if x.class != y.class || x.gpus != y.gpus || x.spans || y.spans {
		return 0
	}
	key := [2]int32{min(x.kind, y.kind), max(x.kind, y.kind)}
	sum, ok := g.pairs[key]
	if !ok {
		if all := slices.Concat(x.members, y.members); g.holds(x.class, all) {
			sum = g.speed(x.class, all)
		}
		g.pairs[key] = sum
	}
	return sum
}

// holds reports whether GPUs of a class hold all of a group at once.
func (g *teams) holds(class int32, all []place.Member) bool {
	k := &g.p.Fleet.Classes[class]
	if len(all) > g.shares(k) {
		return false
	}
	mem, milli := int64(0), int64(0)
	for i := range all {
		s := &all[i].Share
		mem, milli = mem+s.MemMiB, milli+s.Milli
		if s.Exclusive || !g.bearsAll(k.Rep, all[:i], &all[i]) {
			return false
		}
	}
	return mem <= k.Sellable && milli <= cluster.WholeGPU
}

func (g *teams) sameCards(a, b int32) bool {
	return slices.EqualFunc(g.p.Fleet.Runs[a].Berth.GPUs, g.p.Fleet.Runs[b].Berth.GPUs, func(x, y cluster.GPUShare) bool { return x.GPU == y.GPU })
}

// bearsAll reports whether a job that would join a group on GPUs like gpu tolerates
// it and is tolerated.
func (g *teams) bearsAll(gpu *cluster.GPU, group []place.Member, one *place.Member) bool {
	if !g.p.Choosy(gpu) {
		return true
	}
	on := make([]company.Mate, len(group))
	for i := range group {
		on[i] = scene.MateOf(group[i].Job, group[i].Share.Milli)
	}
	return company.Bears(g.p.Snap.Interference, gpu, on, scene.MateOf(one.Job, one.Share.Milli), g.p.Pol)
}
