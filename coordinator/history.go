package coordinator

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/coordinator/history"
	"github.com/berth-scheduler/berth/fsm"
)

const (
	historyBatch = 1000
	// historyGather is how long ended jobs gather before they are written: one
	// write to the disk for all of them. Until then they are in the state.
	historyGather = 250 * time.Millisecond
	historyRetry  = 5 * time.Second
	historyBehind = 100_000          // log entries that snapshots wait for at most
	historyMend   = 30 * time.Second // between looks at what is missing or too old
	historyScrub  = 10 * time.Minute // between files that are read whole
	// damageWait bounds how long who finds damage waits for it to be mended.
	damageWait = 10 * time.Second
	damageLook = 20 * time.Millisecond
)

// archive fills this coordinator's store of finished jobs from the feed of the
// state machine. The store may fail and is tried again: the cluster goes on
// without.
type archive struct {
	c     *Coordinator
	store atomic.Pointer[history.Store] // nil until it could be opened
	// missing is poked when a hole appeared. begun and over count the looks at
	// what is missing.
	missing     chan struct{}
	begun, over atomic.Uint64
	failing     atomic.Pointer[string] // why it cannot be written now
	given       atomic.Uint64          // index of the last hole that nobody could fill
}

func newArchive(c *Coordinator) *archive {
	a := &archive{c: c, missing: make(chan struct{}, 1)}
	a.open()
	return a
}

// open opens the store, or notes why not. Until it is open the state machine
// holds what it forgets.
func (a *archive) open() {
	s, err := history.Open(history.Config{
		Dir: filepath.Join(a.c.cfg.Dir, "history"), Keep: a.c.cfg.HistoryKeep, MaxJobs: a.c.cfg.HistoryMaxJobs,
		SegmentJobs: a.c.cfg.HistoryFileJobs,
		OnDamage:    func() { poke(a.missing) },
		Log:         a.c.cfg.Log.With("component", "history"),
	})
	a.note(err)
	if err != nil {
		a.c.fsm.HoldEnded(0)
		return
	}
	a.store.Store(s)
	a.c.fsm.HoldEnded(s.UpTo())
}

// machine is the state machine as Raft uses it.
type machine struct {
	*fsm.FSM
	archive *archive
}

// Snapshot makes a snapshot. What it may have forgotten of jobs that ended is
// written to the history first; while that fails there is none, since the log still
// has those jobs, and a start reads it again: but for a history that fails for so
// long that the log would grow too large.
func (m *machine) Snapshot() (raft.FSMSnapshot, error) {
	if s := m.archive.store.Load(); s != nil {
		err := m.archive.step(s)
		m.archive.note(err)
		if err != nil && m.FSM.Index()-min(m.FSM.Index(), s.UpTo()) <= historyBehind {
			return nil, fmt.Errorf("jobs that ended cannot be written to the history, and a snapshot would lose them: %w", err)
		}
	}
	return m.FSM.Snapshot()
}

// note says once when writing begins to fail, and when it works again.
func (a *archive) note(err error) {
	was := a.failing.Load()
	switch {
	case err == nil && was != nil:
		a.failing.Store(nil)
		a.c.log.Info("history is written again")
	case err != nil && was == nil:
		a.c.log.Error("history cannot be written; the cluster goes on, finished jobs wait in memory", "err", err)
		fallthrough
	case err != nil:
		text := err.Error()
		a.failing.Store(&text)
	}
}

func (a *archive) problem() string {
	if p := a.failing.Load(); p != nil {
		return *p
	}
	return ""
}

func (a *archive) close() {
	if s := a.store.Load(); s != nil {
		_ = s.Close()
	}
}

// run follows the feed until ctx ends.
func (a *archive) run(ctx context.Context) error {
	for a.store.Load() == nil {
		if !sleep(ctx, historyRetry) {
			return ctx.Err()
		}
		a.open()
	}
	s := a.store.Load()
	for {
		err := a.step(s)
		a.note(err)
		if err != nil {
			if !sleep(ctx, historyRetry) {
				return ctx.Err()
			}
			continue
		}
		if err := a.c.fsm.WaitEnded(ctx, s.UpTo()); err != nil {
			return err
		}
		if !sleep(ctx, historyGather) {
			return ctx.Err()
		}
	}
}

// batch is how many jobs are written at once: no more than a file has.
func (a *archive) batch() int {
	if n := a.c.cfg.HistoryFileJobs; n > 0 {
		return min(n, historyBatch)
	}
	return historyBatch
}

// step writes all that has ended by now.
func (a *archive) step(s *history.Store) error {
	files := s.Stats().Segments
	defer func() {
		if s.Stats().Segments != files { // there may be more than is kept
			poke(a.missing)
		}
	}()
	for {
		after := s.UpTo()
		e := a.c.fsm.Ended(after, a.batch())
		switch {
		case e.UpTo <= after:
			return nil
		case e.Missed:
			if err := s.Skip(e.UpTo); err != nil {
				return err
			}
			a.c.log.Info("history: what ended in a part of the log is not known here; it is fetched from the others", "after", after, "until", e.UpTo)
			poke(a.missing)
		default: // also where nothing ended: what was missed may come after it
			if err := s.Append(e.UpTo, e.Jobs); err != nil {
				return err
			}
		}
		a.c.fsm.HoldEnded(s.UpTo())
	}
}

// mend keeps the store whole and within bounds until ctx ends.
func (a *archive) mend(ctx context.Context) error {
	scrub, at := time.Now(), uint64(0)
	for {
		if s := a.store.Load(); s != nil {
			n := a.begun.Add(1)
			a.fillHoles(ctx, s)
			a.over.Store(n)
			if now := a.c.fsm.Now(); now > 0 {
				if err := s.Retain(now); err != nil {
					a.note(err)
				}
			}
			if time.Since(scrub) > historyScrub {
				at, scrub = s.Scrub(at), time.Now()
			}
		}
		wait := time.NewTimer(historyMend)
		select {
		case <-ctx.Done():
			wait.Stop()
			return ctx.Err()
		case <-a.missing:
			wait.Stop()
		case <-wait.C:
		}
	}
}

func (a *archive) stats() history.Stats {
	if s := a.store.Load(); s != nil {
		return s.Stats()
	}
	return history.Stats{}
}

// repaired waits until what was found damaged is there again, from the state or
// another coordinator. It is not when nobody has it, or when that lasts too long.
// An error that says something else is returned.
func (a *archive) repaired(ctx context.Context, err error) (bool, error) {
	d, ok := errors.AsType[*history.Damage](err)
	if !ok {
		return false, err
	}
	s, began := a.store.Load(), a.begun.Load()
	poke(a.missing)
	ctx, cancel := context.WithTimeout(ctx, damageWait)
	defer cancel()
	for {
		over := a.over.Load() > began // a look at it began after it was found, and is over
		if !missing(s, d.Span) {
			return s.Stats().Floor < d.Span.To, nil // else it was given up
		}
		if over || !sleep(ctx, damageLook) {
			return false, nil
		}
	}
}

// job returns a finished job that the state has forgotten, or nil.
func (a *archive) job(ctx context.Context, id cluster.JobID) *cluster.Job {
	s := a.store.Load()
	if s == nil {
		return nil
	}
	// First what waits to be written: it may be written and let go of meanwhile,
	// and then the store has it.
	if j := a.waiting(s, id); j != nil {
		return j
	}
	j, err := s.Job(id)
	for err != nil {
		if _, err = a.repaired(ctx, err); err != nil {
			a.c.log.Error("history cannot be read", "job", uint64(id), "err", err)
			return nil
		}
		j, err = s.Job(id)
	}
	if j != nil {
		return j
	}
	// One of several tasks that ended together?
	_, _ = a.scan(ctx, &history.Query{IDs: []cluster.JobID{id}}, func(f *cluster.Job) error {
		if f.Fold != nil && cluster.SpanHas(f.Fold, int(id-f.ArrayJobID)) {
			j = f.Task(int(id - f.ArrayJobID))
			return errFound
		}
		return nil
	})
	return j
}

// named is job, or the task of a number when the id is an array's.
func (a *archive) named(ctx context.Context, id cluster.JobID, task *uint32) *cluster.Job {
	if task == nil {
		return a.job(ctx, id)
	}
	var found *cluster.Job
	_, _ = a.scan(ctx, &history.Query{IDs: []cluster.JobID{id}}, func(j *cluster.Job) error {
		switch {
		case j.ArrayJobID != id:
			return nil
		case j.Fold == nil && j.ArrayTaskID == *task:
			found = j
		case j.Fold != nil:
			if rank, ok := j.Spec.Array.Tasks.Rank(*task); ok && cluster.SpanHas(j.Fold, rank) {
				found = j.Task(rank)
			}
		}
		if found != nil {
			return errFound
		}
		return nil
	})
	return found
}

var errFound = errors.New("found")

func (a *archive) waiting(s *history.Store, id cluster.JobID) *cluster.Job {
	for _, j := range a.tail(s.UpTo()) {
		if j.ID == id {
			return j
		}
	}
	return nil
}

// tail returns the jobs that ended after an index, in order, but for those of
// which nothing is known.
func (a *archive) tail(after uint64) []*cluster.Job {
	var out []*cluster.Job
	for {
		e := a.c.fsm.Ended(after, historyBatch)
		if e.UpTo <= after {
			return out
		}
		out, after = append(out, e.Jobs...), e.UpTo
	}
}

// watch registers the figures of the store.
func (a *archive) watch(reg prometheus.Registerer) {
	for _, g := range []struct {
		name, help string
		value      func(history.Stats) float64
	}{
		{"berth_history_jobs", "Finished jobs in this coordinator's store.", func(s history.Stats) float64 { return float64(s.Jobs) }},
		{"berth_history_bytes", "Size of this coordinator's store of finished jobs.", func(s history.Stats) float64 { return float64(s.Bytes) }},
		{"berth_history_index", "Log index until which finished jobs are stored.", func(s history.Stats) float64 { return float64(s.UpTo) }},
		{"berth_history_holes", "Parts of the log of which finished jobs are missing in the store.", func(s history.Stats) float64 { return float64(len(s.Holes)) }},
	} {
		reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: g.name, Help: g.help}, func() float64 { return g.value(a.stats()) }))
	}
	for _, k := range []struct {
		name, help string
		value      func(history.Stats) float64
	}{
		{"berth_history_write_failures_total", "Writes to the store of finished jobs that failed.", func(s history.Stats) float64 { return float64(s.Failures) }},
		{"berth_history_damaged_files_total", "Files of the store of finished jobs that were found damaged.", func(s history.Stats) float64 { return float64(s.Damaged) }},
	} {
		reg.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: k.name, Help: k.help}, func() float64 { return k.value(a.stats()) }))
	}
}
