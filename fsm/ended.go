package fsm

import (
	"context"
	"slices"
	"sort"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/fsm/jobs"
)

// maxHeld bounds the forgotten jobs that are held for who keeps history.
const maxHeld = 100_000

// maxGaps bounds the list of gaps; the oldest are joined.
const maxGaps = 16

// Ended is the next part of the feed of ended jobs.
type Ended struct {
	// Jobs are in order of the index at which they ended, which is their
	// Revision, and then of their id. What ended at one index is never split.
	Jobs []*cluster.Job
	// UpTo is where the next part begins: all that ended after the index that
	// was asked for and until here is in Jobs, or was missed.
	UpTo uint64
	// Missed tells that jobs which ended between the index that was asked for
	// and UpTo may be known here no more; then Jobs is empty.
	Missed bool
}

// endedFeed is what the feed has beside the state's finished jobs. The zero
// value holds nothing back.
type endedFeed struct {
	// held are jobs that the state forgot and that ended after acked, in order.
	held  []*cluster.Job
	hold  bool
	acked uint64
	// gaps are indexes of whose ended jobs some may be gone: each begins after
	// from and ends with to. They are in order and apart.
	gaps []gap
	news chan struct{} // closed and replaced when jobs ended
}

type gap struct{ from, to uint64 }

// took takes over what the state forgot at an entry.
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
		// Never cut an index in two: what is left of it would not be all of it.
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

// insert keeps the order; within one entry jobs may be forgotten out of it.
func (e *endedFeed) insert(j *cluster.Job) {
	i := len(e.held)
	for i > 0 && jobs.EndedBefore(j, e.held[i-1]) {
		i--
	}
	e.held = slices.Insert(e.held, i, j)
}

// miss notes that what ended in g may be gone.
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

// restored goes over from one state to another that was restored. What the old
// one had and nobody took yet stays; what the new one forgot is missed.
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

// HoldEnded makes the feed hold jobs that ended after an index when the state
// forgets them, in memory and at most 100,000, and lets go of those before: who
// keeps history calls it with what is safe on its disk.
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

// Ended returns jobs that ended after an index, at least one index of them and
// then no more than limit. It has those that the state keeps and those that are
// held, so that whoever remembers the last UpTo, across restarts too, gets each
// job once or is told that some are gone. Jobs are immutable.
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
	out := Ended{UpTo: max(after, end)} // a log that is replayed may be behind
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

// WaitEnded returns when a job ended after an index, or with ctx's error.
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
