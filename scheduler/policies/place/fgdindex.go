package place

import "github.com/berth-scheduler/berth/scheduler/policies/scene"

// scores holds, for what a job asks for, a bound of the score on each group: a
// tournament tree whose leaves are the best score over the GPUs of a group that
// might take the shape, -1 where none does.
type scores struct {
	leaves int
	at     []int8
	made   []int32 // version of the group that a leaf is of
	done   int     // of Fleet.Changed
}

// Choose looks for the best score, of equals the first group, of these the first
// GPU.
func (f *fgd) Choose(p *scene.Scene, t *scene.Task) []int32 {
	f.notice(p)
	q := quest{f: f, p: p, t: t, top: -1, where: -1}
	for c := range t.Needs {
		if t.Needs[c].OK {
			q.k = wantOf(t, c)
			q.s = f.scoresOf(p, &q.k)
			q.search(1, 0, q.s.leaves)
		}
	}
	return q.cards
}

// quest is the search for the best place of one task.
type quest struct {
	f     *fgd
	p     *scene.Scene
	t     *scene.Task
	k     want
	s     *scores
	cards []int32
	top   int8
	where int // group
}

// search searches the subtree i over width groups from lo on, where something may
// beat what is found.
func (q *quest) search(i, lo, width int) {
	bound := q.s.at[i]
	if bound < 0 || bound < q.top || bound == q.top && lo > q.where {
		return
	}
	if i < q.s.leaves {
		l, r, half := 2*i, 2*i+1, width/2
		if q.s.at[r] > q.s.at[l] { // so that the other is cut off sooner
			q.search(r, lo+half, half)
			q.search(l, lo, half)
			return
		}
		q.search(l, lo, half)
		q.search(r, lo+half, half)
		return
	}
	if !q.p.MayHold(q.t, int32(lo)) {
		return
	}
	cards, got := q.f.bestOn(q.p, q.t, &q.k, int32(lo))
	if got > q.top || got == q.top && got >= 0 && lo < q.where {
		q.cards, q.top, q.where = q.p.Keep(cards), got, lo
	}
}

// bestOn returns the GPUs of a group that fit t exactly and score best, -1 if it
// does not fit.
func (f *fgd) bestOn(p *scene.Scene, t *scene.Task, k *want, gi int32) ([]int32, int8) {
	if t.GPUs > 1 || k.share.Exclusive {
		cards := p.Pick(t, gi, p.Fuller)
		if cards == nil {
			return nil, -1
		}
		return cards, score(f.delta(p, gi, k, cards))
	}
	top, at := int8(-1), int32(-1)
	for i, ci := range p.Fleet.Groups[gi].Cards {
		if !p.Fits(t, ci) || f.likeEarlier(p, gi, i) {
			continue
		}
		f.scratch = append(f.scratch[:0], ci)
		if got := score(f.delta(p, gi, k, f.scratch)); got > top {
			top, at = got, ci
		}
	}
	if at < 0 {
		return nil, -1
	}
	f.scratch = append(f.scratch[:0], at)
	return f.scratch, top
}

// likeEarlier reports whether an earlier GPU of the group is in the same state,
// including its residents and until when, so that it scores the same.
func (f *fgd) likeEarlier(p *scene.Scene, gi int32, i int) bool {
	cards := p.Fleet.Groups[gi].Cards
	c := &p.Fleet.Cards[cards[i]]
	for _, o := range cards[:i] {
		d := &p.Fleet.Cards[o]
		if d.Use.UsedMiB == c.Use.UsedMiB && d.Use.UsedMilli == c.Use.UsedMilli && d.Use.Shares == c.Use.Shares &&
			d.Use.Exclusive == c.Use.Exclusive && d.Until == c.Until && d.Use.MaxShares == c.Use.MaxShares && d.Use.Closed == c.Use.Closed {
			return true
		}
	}
	return false
}

// Plain is lower the better a job without GPUs scores on a host: what it takes of
// the cores can make GPUs there useless.
func (f *fgd) Plain(p *scene.Scene, t *scene.Task, hi int32) int64 {
	f.notice(p)
	k := want{cpu: t.CPU, host: t.Mem}
	sum := int64(0)
	for _, gi := range p.Fleet.Hosts[hi].Groups {
		sum += f.delta(p, gi, &k, nil)
	}
	return -int64(score(sum))
}

// notice increments the version of groups whose host changed.
func (f *fgd) notice(p *scene.Scene) {
	for ; f.seen < len(p.Fleet.Changed); f.seen++ {
		for _, gi := range p.Fleet.Hosts[p.Fleet.Changed[f.seen]].Groups {
			f.version[gi]++
		}
	}
}

// scoresOf returns the bounds for a shape, up to date.
func (f *fgd) scoresOf(p *scene.Scene, k *want) *scores {
	s := f.shapes[*k]
	if s == nil {
		s = newScores(len(p.Fleet.Groups))
		for gi := range p.Fleet.Groups {
			s.at[s.leaves+gi] = f.bound(p, k, int32(gi))
			s.made[gi] = f.version[gi]
		}
		for i := s.leaves - 1; i >= 1; i-- {
			s.at[i] = max(s.at[2*i], s.at[2*i+1])
		}
		s.done = len(p.Fleet.Changed)
		f.shapes[*k] = s
	}
	for ; s.done < len(p.Fleet.Changed); s.done++ {
		for _, gi := range p.Fleet.Hosts[p.Fleet.Changed[s.done]].Groups {
			if s.made[gi] != f.version[gi] { // it may be in the list again
				s.made[gi] = f.version[gi]
				s.set(int(gi), f.bound(p, k, gi))
			}
		}
	}
	return s
}

func newScores(n int) *scores {
	s := &scores{leaves: 1}
	for s.leaves < n {
		s.leaves *= 2
	}
	s.at, s.made = make([]int8, 2*s.leaves), make([]int32, n)
	for i := range s.at {
		s.at[i] = -1
	}
	return s
}

func (s *scores) set(i int, v int8) {
	i += s.leaves
	s.at[i] = v
	for i /= 2; i >= 1; i /= 2 {
		m := max(s.at[2*i], s.at[2*i+1])
		if m == s.at[i] {
			return
		}
		s.at[i] = m
	}
}

// bound returns the best score over the GPUs of a group that a job might fit on,
// whatever runs there and whatever is reserved.
func (f *fgd) bound(p *scene.Scene, k *want, gi int32) int8 {
	g := &p.Fleet.Groups[gi]
	h := &p.Fleet.Hosts[g.Host]
	if g.Class != k.class || int(k.gpus) > len(g.Cards) || !g.Free ||
		h.Use.CPUMilli-h.Use.UsedCPU < k.cpu || h.Use.MemMiB-h.Use.UsedMem < k.host {
		return -1
	}
	if k.share.Exclusive || k.gpus > 1 {
		return f.boundMany(p, k, gi)
	}
	top := int8(-1)
	for i, ci := range g.Cards {
		if !k.might(p, ci) || f.likeEarlier(p, gi, i) {
			continue
		}
		f.scratch = append(f.scratch[:0], ci)
		top = max(top, score(f.delta(p, gi, k, f.scratch)))
	}
	return top
}

// boundMany bounds the score of a job for several GPUs: which of them fit depends
// on the job, so shares are only marked possible or not.
func (f *fgd) boundMany(p *scene.Scene, k *want, gi int32) int8 {
	var cards []int32
	for _, ci := range p.Fleet.Groups[gi].Cards {
		if k.might(p, ci) {
			cards = append(cards, ci)
		}
	}
	switch {
	case len(cards) < int(k.gpus):
		return -1
	case k.share.Exclusive: // empty GPUs are alike
		return score(f.delta(p, gi, k, cards[:k.gpus]))
	}
	return 100
}

// might reports whether a job fits on a GPU, whatever runs there.
func (k *want) might(p *scene.Scene, ci int32) bool {
	c := &p.Fleet.Cards[ci]
	if k.share.Exclusive && c.Use.Shares > 0 || c.Use.FreeShares() < 1 || c.Use.Shares >= p.Fleet.MaxShares {
		return false
	}
	if k.share.Exclusive {
		return true
	}
	return c.Use.FreeMilli() >= k.share.Milli && c.Use.FreeMiB() >= k.share.MemMiB
}
