package fsm

import (
	"context"
	"slices"
	"sort"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/fsm/jobs"
)

// maxHeld bounds the forgotten jobs that are held for the keeper of history.
const maxHeld = 100_000

// maxGaps bounds the list of gaps; the oldest are merged.
const maxGaps = 16

// Ended is the next part of the feed of ended jobs.
type Ended struct {
	// Jobs are ordered by the index at which they ended, which is their Revision,
	// and then by id. Jobs that ended at one index are never split.
	Jobs []*cluster.Job
	// UpTo is where the next part begins: every job that ended after the requested
	// index and up to here is in Jobs, or was missed.
	UpTo uint64
	// Missed means that jobs which ended between the requested index and UpTo may
	// no longer be known; Jobs is then empty.
	Missed bool
}

// endedFeed is what the feed keeps in addition to the state's finished jobs. The
// zero value is empty.
type endedFeed struct {
	// held are jobs that the state forgot and that ended after acked, in order.
	held  []*cluster.Job
	hold  bool
	acked uint64
	// gaps are ranges of indexes at which some ended jobs may be gone: each begins
	// after from and ends with to. They are sorted and disjoint.
	gaps []gap
	news chan struct{} // closed and replaced when jobs end
}

type gap struct{ from, to uint64 }

// took takes over the jobs that the state forgot at an entry.
func (e *endedFeed) took(s *State) {
	for _, j := range s.roll.Forgot {
		if !e.hold || j.Revision <= e.acked {
			e.miss(gap{0, j.Revision}) // jobs are forgotten in order
			continue
		}
		e.insert(j)
	}
	s.roll.Forgot = nil
	if n := len(e.held) - maxHeld; n > 0 {
		// Never split an index: the rest would be incomplete.
		last := e.held[n-1].Revision
		for n < len(e.held) && e.held[n].Revision == last {
			n++
		}
		e.miss(gap{e.held[0].Revision - 1, last})
		e.held = slices.Clone(e.held[n:])
	}
	if s.roll.EndedNow {
		s.roll.EndedNow = false
		e.wake()
	}
}

// insert keeps the order; within one entry jobs may be forgotten out of order.
func (e *endedFeed) insert(j *cluster.Job) {
	i := len(e.held)
	for i > 0 && jobs.EndedBefore(j, e.held[i-1]) {
		i--
	}
	e.held = slices.Insert(e.held, i, j)
}

// miss records that jobs that ended in g may be gone.
func (e *endedFeed) miss(g gap) {
	i := sort.Search(len(e.gaps), func(i int) bool { return e.gaps[i].to >= g.from })
	k := i
	for k < len(e.gaps) && e.gaps[k].from <= g.to {
		g.from, g.to = min(g.from, e.gaps[k].from), max(g.to, e.gaps[k].to)
		k++
	}
	e.gaps = slices.Replace(e.gaps, i, k, g)
	if len(e.gaps) > maxGaps {
		e.gaps[1].from = e.gaps[0].from
		e.gaps = slices.Delete(e.gaps, 0, 1)
	}
}

// restored switches from one state to a restored one. Jobs that the old one had and
// nobody fetched yet are kept; what the new one forgot counts as missed.
func (e *endedFeed) restored(old, st *State) {
	for _, id := range old.roll.Finished {
		j := old.roll.Jobs.Get(id)
		switch _, there := st.Job(id); {
		case there:
		case e.hold && j.Revision > e.acked:
			e.insert(j)
		default:
			e.miss(gap{0, j.Revision}) // jobs are forgotten in order
		}
	}
	if len(st.roll.Finished) >= st.roll.Keep {
		if first := st.roll.Jobs.Get(st.roll.Finished[0]).Revision; first > old.at.Index {
			e.miss(gap{old.at.Index, first})
		}
	}
	e.wake()
}

func (e *endedFeed) wake() {
	if e.news != nil {
		close(e.news)
		e.news = nil
	}
}

// HoldEnded makes the feed hold, in memory, up to 100,000 jobs that ended after an
// index when the state forgets them, and release those before it. The keeper of
// history calls it with the index that is safe on its disk.
func (f *FSM) HoldEnded(after uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e := &f.ended
	e.hold, e.acked = true, max(e.acked, after)
	n := sort.Search(len(e.held), func(i int) bool { return e.held[i].Revision > e.acked })
	if n == 0 {
		return
	}
	e.miss(gap{0, e.held[n-1].Revision})
	e.held = slices.Clone(e.held[n:])
}

// Ended returns jobs that ended after an index, at least one index's worth and then
// no more than limit. It covers jobs in the state and held ones, so that a caller
// that remembers the last UpTo, even across restarts, gets each job once or learns
// that some are gone. Jobs are immutable.
func (f *FSM) Ended(after uint64, limit int) Ended {
	f.mu.RLock()
	defer f.mu.RUnlock()
	s, e := f.st, &f.ended
	end := s.at.Index
	if i := sort.Search(len(e.gaps), func(i int) bool { return e.gaps[i].to > after }); i < len(e.gaps) {
		if g := e.gaps[i]; g.from <= after {
			return Ended{UpTo: g.to, Missed: true}
		}
		end = min(end, e.gaps[i].from)
	}
	out := Ended{UpTo: max(after, end)} // a log that is being replayed may be behind
	add := func(j *cluster.Job) bool {
		switch n := len(out.Jobs); {
		case j.Revision > end:
			return false
		case n >= max(limit, 1) && out.Jobs[n-1].Revision != j.Revision:
			out.UpTo = out.Jobs[n-1].Revision
			return false
		}
		out.Jobs = append(out.Jobs, j)
		return true
	}
	more := true
	for i := sort.Search(len(e.held), func(i int) bool { return e.held[i].Revision > after }); more && i < len(e.held); i++ {
		more = add(e.held[i])
	}
	i := sort.Search(len(s.roll.Finished), func(i int) bool { return s.roll.Jobs.Get(s.roll.Finished[i]).Revision > after })
	for ; more && i < len(s.roll.Finished); i++ {
		more = add(s.roll.Jobs.Get(s.roll.Finished[i]))
	}
	return out
}

// WaitEnded returns once a job has ended after an index, or with ctx's error.
func (f *FSM) WaitEnded(ctx context.Context, after uint64) error {
	for {
		f.mu.Lock()
		last := uint64(0)
		if n := len(f.st.roll.Finished); n > 0 {
			last = f.st.roll.Jobs.Get(f.st.roll.Finished[n-1]).Revision
		}
		if f.ended.news == nil {
			f.ended.news = make(chan struct{})
		}
		news := f.ended.news
		f.mu.Unlock()
		if last > after {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-news:
		}
	}
}
