package policies

import (
	"cmp"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/scheduler/rules"
)

// schedTuneError is the mean error of SchedTune's memory predictor for
// training, in thousandths (section V-A): the margin on top of a prediction.
const schedTuneError = 90

// schedTune sends each job to the card where it is estimated to end first and
// keeps a queue for each card. Source: Albahar et al., "SchedTune: A
// Heterogeneity-Aware GPU Scheduler for Deep Learning" (CCGrid 2022), section
// IV-E: cards on which the predicted memory does not fit are no candidates;
// the delay of a queue is what remains of those that run there plus all of
// those that wait (equation 1); to that comes the run itself (equation 2).
// Queues are first come, first served unless an order is named.
//
// Our ledger also counts compute, which the paper does not; a job for
// several cards, which it does not have, queues where that many of one node
// are through first, and stands at the first of them.
type schedTune struct {
	open
	delay   []int64 // by card
	rank    []int64 // of the last in the queue of a card
	blocked []bool  // somebody earlier waits for the card
	least   []*leastTree
	place   []int32 // of a card in its class's tree
	cards   [][]int32
	at      map[cluster.JobID]berthing
	scratch []int32
}

// berthing is where a job waits and from when on it may start.
type berthing struct {
	card  int32
	delay int64
}

func newSchedTune(p *pass) placer {
	s := &schedTune{
		delay: make([]int64, len(p.f.cards)), rank: make([]int64, len(p.f.cards)), blocked: make([]bool, len(p.f.cards)),
		place: make([]int32, len(p.f.cards)), cards: make([][]int32, len(p.f.classes)), at: map[cluster.JobID]berthing{},
	}
	for ci := range p.f.cards {
		c := &p.f.cards[ci]
		if q := p.snap.Queues[c.use.ID]; len(q) > 0 {
			s.rank[ci] = q[len(q)-1].Rank
		}
		for _, o := range c.on {
			s.delay[ci] += p.runs[o.run].end - p.now
		}
		k := p.f.groups[c.group].class
		s.place[ci] = int32(len(s.cards[k]))
		s.cards[k] = append(s.cards[k], int32(ci))
	}
	for _, t := range p.tasks {
		if ci, ok := s.queueOf(p, t); ok {
			s.delay[ci] += t.needs[p.f.groups[p.f.cards[ci].group].class].dur
		}
	}
	for k := range s.cards {
		s.least = append(s.least, newLeastTree(len(s.cards[k])))
		for i, ci := range s.cards[k] {
			s.least[k].set(i, s.delay[ci])
		}
	}
	return s
}

// queueOf returns the card in whose queue t stands, if it can serve it.
func (s *schedTune) queueOf(p *pass, t *task) (int32, bool) {
	ci, ok := p.f.cardAt[t.job.Queue]
	if t.job.Queue == "" || !ok || t.gpus == 0 {
		return 0, false
	}
	return ci, p.couldHold(t, p.f.cards[ci].group)
}

func (s *schedTune) add(p *pass, ci int32, d int64) {
	s.delay[ci] += d
	s.least[p.f.groups[p.f.cards[ci].group].class].set(int(s.place[ci]), s.delay[ci])
}

// tag keeps the pass from taking one job's failure for another's: each looks
// at its own queue only.
func (s *schedTune) tag(t *task) int64 { return int64(t.id) }

func (s *schedTune) choose(p *pass, t *task) []int32 {
	if t.spans() {
		return s.free(p, t)
	}
	first, queued := s.queueOf(p, t)
	if !queued {
		if first = s.best(p, t); first < 0 {
			return nil
		}
	}
	gi := p.f.cards[first].group
	dur := t.needs[p.f.groups[gi].class].dur
	cards := s.soonest(p, t, first)
	delay := s.delay[cards[len(cards)-1]]
	ready := p.mayHold(t, gi)
	for _, ci := range cards {
		ready = ready && !s.blocked[ci] && p.fits(t, ci)
	}
	for _, ci := range cards {
		if !queued || ci != first {
			s.add(p, ci, dur)
		}
		s.blocked[ci] = s.blocked[ci] || !ready
	}
	if ready {
		return cards
	}
	s.at[t.id] = berthing{first, delay}
	return nil
}

// free returns cards for which nobody waits of the group that has the least delay,
// and on which t fits now. A job over several nodes stands in no queue of a card:
// nodes are kept for it as other placements keep them.
func (s *schedTune) free(p *pass, t *task) []int32 {
	var best []int32
	least := int64(forever)
	for gi := range p.f.groups {
		g := &p.f.groups[gi]
		if !p.mayHold(t, int32(gi)) {
			continue
		}
		var cards []int32
		for _, ci := range g.cards {
			if !s.blocked[ci] && p.fits(t, ci) {
				cards = append(cards, ci)
			}
		}
		if len(cards) < t.gpus || t.whole && len(cards) < len(g.cards) {
			continue
		}
		slices.SortStableFunc(cards, func(a, b int32) int { return cmp.Compare(s.delay[a], s.delay[b]) })
		if cards = cards[:t.gpus]; s.delay[cards[t.gpus-1]] < least {
			best, least = cards, s.delay[cards[t.gpus-1]]
		}
	}
	return best
}

// spanned counts a job that starts on several nodes.
func (s *schedTune) spanned(p *pass, t *task, parts []rules.Part) {
	for i := range parts {
		for _, ci := range parts[i].Cards {
			s.add(p, ci, t.needs[p.f.groups[p.f.cards[ci].group].class].dur)
		}
	}
}

// soonest returns the cards of a group that t would get: the one in whose
// queue it stands if it wants one, else those with the least delay.
func (s *schedTune) soonest(p *pass, t *task, first int32) []int32 {
	if t.gpus == 1 {
		s.scratch = append(s.scratch[:0], first)
		return s.scratch
	}
	s.scratch = append(s.scratch[:0], p.f.groups[p.f.cards[first].group].cards...)
	slices.SortFunc(s.scratch, func(a, b int32) int {
		return cmp.Or(cmp.Compare(boolInt(s.blocked[a]), boolInt(s.blocked[b])), cmp.Compare(s.delay[a], s.delay[b]), cmp.Compare(a, b))
	})
	return s.scratch[:t.gpus]
}

// best returns the card with the least estimated completion, of equals the
// first, -1 when no card could ever hold t.
func (s *schedTune) best(p *pass, t *task) int32 {
	best, done := int32(-1), int64(forever)
	take := func(ci int32, delay int64, k int32) {
		if end := delay + t.needs[k].dur; end < done || end == done && ci < best {
			best, done = ci, end
		}
	}
	for k := range s.least {
		if !t.needs[k].ok || len(s.cards[k]) == 0 {
			continue
		}
		ci := s.cards[k][s.least[k].first()]
		if t.gpus == 1 && p.couldHold(t, p.f.cards[ci].group) {
			take(ci, s.delay[ci], int32(k))
			continue
		}
		for gi := range p.f.groups { // the node of the least delay is too small
			if p.f.groups[gi].class == int32(k) && p.couldHold(t, int32(gi)) {
				ci, delay := s.bestIn(p, t, int32(gi))
				take(ci, delay, int32(k))
			}
		}
	}
	return best
}

// bestIn returns the card of a group with the least delay, and the delay of
// the last of those that t needs.
func (s *schedTune) bestIn(p *pass, t *task, gi int32) (int32, int64) {
	cards := s.soonest(p, t, p.f.groups[gi].cards[0])
	if t.gpus == 1 {
		ci := slices.MinFunc(p.f.groups[gi].cards, func(a, b int32) int { return cmp.Compare(s.delay[a], s.delay[b]) })
		return ci, s.delay[ci]
	}
	return cards[0], s.delay[cards[len(cards)-1]]
}

// finish moves who waits into the queue of its card.
func (s *schedTune) finish(p *pass) {
	for _, t := range p.byOrder {
		b, ok := s.at[t.id]
		switch {
		case t.gone:
		case !ok && t.job.State == cluster.JobQueued:
			p.plan.Moves = append(p.plan.Moves, cluster.QueueMove{Job: t.id, Reason: cluster.ReasonResources})
		case ok && p.f.cards[b.card].use.ID != t.job.Queue && len(p.plan.Moves) < p.opt.Base.MaxMoves:
			s.rank[b.card] = max(s.rank[b.card]+1, p.now)
			p.plan.Moves = append(p.plan.Moves, cluster.QueueMove{
				Job: t.id, GPU: p.f.cards[b.card].use.ID, Rank: s.rank[b.card], EstStart: cluster.Time(p.now + b.delay), Reason: cluster.ReasonResources,
			})
		}
	}
}

// leastTree finds the first of the least of many numbers.
type leastTree struct {
	leaves int
	at     []int64
}

func newLeastTree(n int) *leastTree {
	t := &leastTree{leaves: 1}
	for t.leaves < n {
		t.leaves *= 2
	}
	t.at = make([]int64, 2*t.leaves)
	for i := range t.at {
		t.at[i] = forever
	}
	return t
}

func (t *leastTree) set(i int, v int64) {
	i += t.leaves
	t.at[i] = v
	for i /= 2; i >= 1; i /= 2 {
		t.at[i] = min(t.at[2*i], t.at[2*i+1])
	}
}

func (t *leastTree) first() int {
	i := 1
	for i < t.leaves {
		i *= 2
		if t.at[i+1] < t.at[i] {
			i++
		}
	}
	return i - t.leaves
}
