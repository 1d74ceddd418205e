package place

import (
	"cmp"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler/fleet"
	"github.com/berth-scheduler/berth/scheduler/policies/order"
	"github.com/berth-scheduler/berth/scheduler/policies/scene"
	"github.com/berth-scheduler/berth/scheduler/rules"
)

// schedTuneError is the mean error of SchedTune's memory predictor for
// training, in thousandths (section V-A): the margin on top of a prediction.
const schedTuneError = 90

// schedTune sends each job to the GPU where it is estimated to end first and keeps
// a queue for each GPU. Source: Albahar et al., "SchedTune: A Heterogeneity-Aware
// GPU Scheduler for Deep Learning" (CCGrid 2022), section IV-E: GPUs on which the
// predicted memory does not fit are no candidates; the delay of a queue is the
// remaining time of the jobs that run there plus all of those that wait (equation
// 1), to which the run itself is added (equation 2). Queues are first come, first
// served unless an order is named.
//
// Our ledger also counts compute, which the paper does not; a job for several GPUs,
// which it does not have, queues where that many of one node are done first, at the
// first of them.
type schedTune struct {
	open
	turns   *order.Turns
	delay   []int64 // by GPU
	rank    []int64 // of the last in the queue of a GPU
	blocked []bool  // an earlier job waits for the GPU
	least   []*fleet.LoadTree
	place   []int32 // of a GPU in its class's tree
	cards   [][]int32
	at      map[cluster.JobID]berthing
	scratch []int32
}

// anywhere is a demand that any GPU of a class satisfies.
var anywhere = fleet.LoadLeaf{CPU: -1, Host: -1, Count: -1}

// berthing is where a job waits and when it may start.
type berthing struct {
	card  int32
	delay int64
}

func newSchedTune(p *scene.Scene, ts *order.Turns) scene.Rule {
	s := &schedTune{
		turns: ts,
		delay: make([]int64, len(p.Fleet.Cards)), rank: make([]int64, len(p.Fleet.Cards)), blocked: make([]bool, len(p.Fleet.Cards)),
		place: make([]int32, len(p.Fleet.Cards)), cards: make([][]int32, len(p.Fleet.Classes)), at: map[cluster.JobID]berthing{},
	}
	for ci := range p.Fleet.Cards {
		c := &p.Fleet.Cards[ci]
		if q := p.Snap.Queues[c.Use.ID]; len(q) > 0 {
			s.rank[ci] = q[len(q)-1].Rank
		}
		for _, o := range c.On {
			s.delay[ci] += p.Fleet.Runs[o.Run].End - p.Now
		}
		k := p.Fleet.Groups[c.Group].Class
		s.place[ci] = int32(len(s.cards[k]))
		s.cards[k] = append(s.cards[k], int32(ci))
	}
	for _, t := range p.Tasks {
		if ci, ok := s.queueOf(p, t); ok {
			s.delay[ci] += t.Needs[p.Fleet.Groups[p.Fleet.Cards[ci].Group].Class].Dur
		}
	}
	for k := range s.cards {
		s.least = append(s.least, fleet.NewLoadTree(len(s.cards[k])))
		for i, ci := range s.cards[k] {
			s.least[k].SetLoad(i, s.delay[ci])
		}
	}
	return s
}

// queueOf returns the GPU whose queue t is in, if it can serve it.
func (s *schedTune) queueOf(p *scene.Scene, t *scene.Task) (int32, bool) {
	ci, ok := p.Fleet.CardAt[t.Job.Queue]
	if t.Job.Queue == "" || !ok || t.GPUs == 0 {
		return 0, false
	}
	return ci, p.CouldHold(t, p.Fleet.Cards[ci].Group)
}

func (s *schedTune) add(p *scene.Scene, ci int32, d int64) {
	s.delay[ci] += d
	s.least[p.Fleet.Groups[p.Fleet.Cards[ci].Group].Class].SetLoad(int(s.place[ci]), s.delay[ci])
}

// Tag keeps the pass from taking one job's failure for another's: each considers
// only its own queue.
func (s *schedTune) Tag(t *scene.Task) int64 { return int64(t.ID) }
func (s *schedTune) Choose(p *scene.Scene, t *scene.Task) []int32 {
	if t.Spans() {
		return s.free(p, t)
	}
	first, queued := s.queueOf(p, t)
	if !queued {
		if first = s.best(p, t); first < 0 {
			return nil
		}
	}
	gi := p.Fleet.Cards[first].Group
	dur := t.Needs[p.Fleet.Groups[gi].Class].Dur
	cards := s.soonest(p, t, first)
	delay := s.delay[cards[len(cards)-1]]
	ready := p.MayHold(t, gi)
	for _, ci := range cards {
		ready = ready && !s.blocked[ci] && p.Fits(t, ci)
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
	s.at[t.ID] = berthing{first, delay}
	return nil
}

// free returns GPUs for which no job waits, of the group that has the least delay,
// and on which t fits now. A job over several nodes is in no queue of a GPU: nodes
// are reserved for it as by other placements.
func (s *schedTune) free(p *scene.Scene, t *scene.Task) []int32 {
	var best []int32
	least := int64(rules.Forever)
	for gi := range p.Fleet.Groups {
		g := &p.Fleet.Groups[gi]
		if !p.MayHold(t, int32(gi)) {
			continue
		}
		var cards []int32
		for _, ci := range g.Cards {
			if !s.blocked[ci] && p.Fits(t, ci) {
				cards = append(cards, ci)
			}
		}
		if len(cards) < t.GPUs || t.Whole && len(cards) < len(g.Cards) {
			continue
		}
		slices.SortStableFunc(cards, func(a, b int32) int { return cmp.Compare(s.delay[a], s.delay[b]) })
		if cards = cards[:t.GPUs]; s.delay[cards[t.GPUs-1]] < least {
			best, least = cards, s.delay[cards[t.GPUs-1]]
		}
	}
	return best
}

// Spanned counts a job that starts on several nodes.
func (s *schedTune) Spanned(p *scene.Scene, t *scene.Task, parts []rules.Part) {
	for i := range parts {
		for _, ci := range parts[i].Cards {
			s.add(p, ci, t.Needs[p.Fleet.Groups[p.Fleet.Cards[ci].Group].Class].Dur)
		}
	}
}

// soonest returns the GPUs of a group that t would get: the one whose queue it is
// in if it wants one, otherwise those with the least delay.
func (s *schedTune) soonest(p *scene.Scene, t *scene.Task, first int32) []int32 {
	if t.GPUs == 1 {
		s.scratch = append(s.scratch[:0], first)
		return s.scratch
	}
	s.scratch = append(s.scratch[:0], p.Fleet.Groups[p.Fleet.Cards[first].Group].Cards...)
	slices.SortFunc(s.scratch, func(a, b int32) int {
		return cmp.Or(rules.CompareBool(s.blocked[a], s.blocked[b]), cmp.Compare(s.delay[a], s.delay[b]), cmp.Compare(a, b))
	})
	return s.scratch[:t.GPUs]
}

// best returns the GPU with the least estimated completion, of equals the first, -1
// if no GPU could ever hold t.
func (s *schedTune) best(p *scene.Scene, t *scene.Task) int32 {
	best, done := int32(-1), int64(rules.Forever)
	take := func(ci int32, delay int64, k int32) {
		if end := delay + t.Needs[k].Dur; end < done || end == done && ci < best {
			best, done = ci, end
		}
	}
	for k := range s.least {
		if !t.Needs[k].OK || len(s.cards[k]) == 0 {
			continue
		}
		ci := s.cards[k][s.least[k].Least(&anywhere)]
		if t.GPUs == 1 && p.CouldHold(t, p.Fleet.Cards[ci].Group) {
			take(ci, s.delay[ci], int32(k))
			continue
		}
		for gi := range p.Fleet.Groups { // the node of the least delay is too small
			if p.Fleet.Groups[gi].Class == int32(k) && p.CouldHold(t, int32(gi)) {
				ci, delay := s.bestIn(p, t, int32(gi))
				take(ci, delay, int32(k))
			}
		}
	}
	return best
}

// bestIn returns the GPU of a group with the least delay, and the delay of the last
// of those that t needs.
func (s *schedTune) bestIn(p *scene.Scene, t *scene.Task, gi int32) (int32, int64) {
	cards := s.soonest(p, t, p.Fleet.Groups[gi].Cards[0])
	if t.GPUs == 1 {
		ci := slices.MinFunc(p.Fleet.Groups[gi].Cards, func(a, b int32) int { return cmp.Compare(s.delay[a], s.delay[b]) })
		return ci, s.delay[ci]
	}
	return cards[0], s.delay[cards[len(cards)-1]]
}

// Finish moves waiting tasks into the queue of their GPU.
func (s *schedTune) Finish(p *scene.Scene) {
	for _, t := range s.turns.Sorted() {
		b, ok := s.at[t.ID]
		switch {
		case t.Gone:
		case !ok && t.Job.State == cluster.JobQueued:
			p.Plan.Moves = append(p.Plan.Moves, dispatch.QueueMove{Job: t.ID, Reason: cluster.ReasonResources})
		case ok && p.Fleet.Cards[b.card].Use.ID != t.Job.Queue && len(p.Plan.Moves) < p.Pol.MaxMoves:
			s.rank[b.card] = max(s.rank[b.card]+1, p.Now)
			p.Plan.Moves = append(p.Plan.Moves, dispatch.QueueMove{
				Job: t.ID, GPU: p.Fleet.Cards[b.card].Use.ID, Rank: s.rank[b.card], EstStart: cluster.Time(p.Now + b.delay), Reason: cluster.ReasonResources,
			})
		}
	}
}
