// Package archive fills a coordinator's store of finished jobs (coordinator/history) from
// the feed of the state machine and, where that has a gap, from the other coordinators,
// and reads store and state together.
package archive

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/wait"
	"github.com/berth-scheduler/berth/coordinator/history"
	"github.com/berth-scheduler/berth/coordinator/peers"
	"github.com/berth-scheduler/berth/coordinator/raftnode"
	"github.com/berth-scheduler/berth/fsm"
)

const (
	historyBatch = 1000
	// historyGather is how long ended jobs accumulate before they are written: one
	// write to the disk for all of them. Until then they are in the state.
	historyGather = 250 * time.Millisecond
	historyRetry  = 5 * time.Second
	historyBehind = 100_000          // log entries that snapshots wait for at most
	historyMend   = 30 * time.Second // between checks for what is missing or too old
	historyScrub  = 10 * time.Minute // between files that are read in full
	// damageWait bounds how long a reader that finds damage waits for its repair.
	damageWait = 10 * time.Second
	damageLook = 20 * time.Millisecond
)

// Config says how many finished jobs are kept, and where.
type Config struct {
	ID  string // this coordinator's
	Dir string // the store is a folder in it
	// Keep is how long jobs are kept, MaxJobs how many; whole files of FileJobs are
	// dropped. 0 means the store's defaults.
	Keep              time.Duration
	MaxJobs, FileJobs int
}

// Needs is what an archive depends on. All fields are required.
type Needs struct {
	FSM   *fsm.FSM
	Peers *peers.Conns
	// Members returns all coordinators. It is called once Run runs.
	Members func() []raftnode.Member
	// Log is the coordinator's; StoreLog has no component yet.
	Log, StoreLog *slog.Logger
}

// Archive fills this coordinator's store of finished jobs from the feed of the
// state machine. The store may fail and is retried: the cluster continues without
// it.
type Archive struct {
	cfg      Config
	fsm      *fsm.FSM
	peers    *peers.Conns
	members  func() []raftnode.Member
	log      *slog.Logger
	storeLog *slog.Logger

	store atomic.Pointer[history.Store] // nil until it could be opened
	// missing is poked when a hole appeared. begun and over count the checks for
	// what is missing.
	missing     chan struct{}
	begun, over atomic.Uint64
	failing     atomic.Pointer[string] // why it cannot be written now
	given       atomic.Uint64          // index of the last hole that no coordinator could fill
}

// New opens the store and has the state machine hold what it forgets until that is
// written. It comes before the log is read.
func New(cfg Config, d Needs) *Archive {
	a := &Archive{
		cfg: cfg, fsm: d.FSM, peers: d.Peers, members: d.Members, log: d.Log, storeLog: d.StoreLog.With("component", "history"),
		missing: make(chan struct{}, 1),
	}
	a.open()
	return a
}

// Machine returns the state machine as Raft uses it: what a snapshot would lose is
// written to the store first.
func (a *Archive) Machine() raft.FSM { return &machine{FSM: a.fsm, archive: a} }

// open opens the store, or records why not. Until it is open the state machine
// holds what it forgets.
func (a *Archive) open() {
	s, err := history.Open(history.Config{
		Dir: filepath.Join(a.cfg.Dir, "history"), Keep: a.cfg.Keep, MaxJobs: a.cfg.MaxJobs,
		SegmentJobs: a.cfg.FileJobs,
		OnDamage:    func() { wait.Poke(a.missing) },
		Log:         a.storeLog,
	})
	a.note(err)
	if err != nil {
		a.fsm.HoldEnded(0)
		return
	}
	a.store.Store(s)
	a.fsm.HoldEnded(s.UpTo())
}

// machine is the state machine as Raft uses it.
type machine struct {
	*fsm.FSM
	archive *Archive
}

// Snapshot takes a snapshot. What it may have forgotten of ended jobs is written to
// the history first; while that fails there is no snapshot, since the log still has
// those jobs, and a start reads it again: unless the history fails for so long that
// the log would grow too large.
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

// note logs once when writing begins to fail, and when it works again.
func (a *Archive) note(err error) {
	was := a.failing.Load()
	switch {
	case err == nil && was != nil:
		a.failing.Store(nil)
		a.log.Info("history is written again")
	case err != nil && was == nil:
		a.log.Error("history cannot be written; the cluster goes on, finished jobs wait in memory", "err", err)
		fallthrough
	case err != nil:
		text := err.Error()
		a.failing.Store(&text)
	}
}

// Problem returns why the store cannot be written now, "" if it can.
func (a *Archive) Problem() string {
	if p := a.failing.Load(); p != nil {
		return *p
	}
	return ""
}

// Close closes the store.
func (a *Archive) Close() {
	if s := a.store.Load(); s != nil {
		_ = s.Close()
	}
}

// Run follows the feed until ctx ends.
func (a *Archive) Run(ctx context.Context) error {
	for a.store.Load() == nil {
		if !wait.Sleep(ctx, historyRetry) {
			return ctx.Err()
		}
		a.open()
	}
	s := a.store.Load()
	for {
		err := a.step(s)
		a.note(err)
		if err != nil {
			if !wait.Sleep(ctx, historyRetry) {
				return ctx.Err()
			}
			continue
		}
		if err := a.fsm.WaitEnded(ctx, s.UpTo()); err != nil {
			return err
		}
		if !wait.Sleep(ctx, historyGather) {
			return ctx.Err()
		}
	}
}

// batch returns how many jobs are written at once: no more than a file has.
func (a *Archive) batch() int {
	if n := a.cfg.FileJobs; n > 0 {
		return min(n, historyBatch)
	}
	return historyBatch
}

// step writes everything that has ended by now.
func (a *Archive) step(s *history.Store) error {
	files := s.Stats().Segments
	defer func() {
		if s.Stats().Segments != files { // there may be more than is kept
			wait.Poke(a.missing)
		}
	}()
	for {
		after := s.UpTo()
		e := a.fsm.Ended(after, a.batch())
		switch {
		case e.UpTo <= after:
			return nil
		case e.Missed:
			if err := s.Skip(e.UpTo); err != nil {
				return err
			}
			a.log.Info("history: what ended in a part of the log is not known here; it is fetched from the others", "after", after, "until", e.UpTo)
			wait.Poke(a.missing)
		default: // also where nothing ended: what was missed may come after it
			if err := s.Append(e.UpTo, e.Jobs); err != nil {
				return err
			}
		}
		a.fsm.HoldEnded(s.UpTo())
	}
}

// Mend keeps the store complete and within bounds until ctx ends.
func (a *Archive) Mend(ctx context.Context) error {
	scrub, at := time.Now(), uint64(0)
	for {
		if s := a.store.Load(); s != nil {
			n := a.begun.Add(1)
			a.fillHoles(ctx, s)
			a.over.Store(n)
			if now := a.fsm.Now(); now > 0 {
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

// Stats returns the store's figures, of none if it is not open.
func (a *Archive) Stats() history.Stats {
	if s := a.store.Load(); s != nil {
		return s.Stats()
	}
	return history.Stats{}
}

// repaired waits until damaged data is there again, from the state or another
// coordinator. It returns false if no coordinator has it, or if that takes too
// long. An error about something else is returned.
func (a *Archive) repaired(ctx context.Context, err error) (bool, error) {
	d, ok := errors.AsType[*history.Damage](err)
	if !ok {
		return false, err
	}
	s, began := a.store.Load(), a.begun.Load()
	wait.Poke(a.missing)
	ctx, cancel := context.WithTimeout(ctx, damageWait)
	defer cancel()
	for {
		over := a.over.Load() > began // a check began after it was found, and is over
		if !missing(s, d.Span) {
			return s.Stats().Floor < d.Span.To, nil // otherwise it was given up
		}
		if over || !wait.Sleep(ctx, damageLook) {
			return false, nil
		}
	}
}

// job returns a finished job that the state has forgotten, or nil.
func (a *Archive) job(ctx context.Context, id cluster.JobID) *cluster.Job {
	s := a.store.Load()
	if s == nil {
		return nil
	}
	// First what waits to be written: it may be written and released meanwhile, and
	// then the store has it.
	if j := a.waiting(s, id); j != nil {
		return j
	}
	j, err := s.Job(id)
	for err != nil {
		if _, err = a.repaired(ctx, err); err != nil {
			a.log.Error("history cannot be read", "job", uint64(id), "err", err)
			return nil
		}
		j, err = s.Job(id)
	}
	if j != nil {
		return j
	}
	// One of several tasks that ended together?
	_, _ = a.Scan(ctx, &history.Query{IDs: []cluster.JobID{id}}, func(f *cluster.Job) error {
		if f.Fold != nil && cluster.SpanHas(f.Fold, int(id-f.ArrayJobID)) {
			j = f.Task(int(id - f.ArrayJobID))
			return errFound
		}
		return nil
	})
	return j
}

// Named returns job, or the task with a number if the id is an array's.
func (a *Archive) Named(ctx context.Context, id cluster.JobID, task *uint32) *cluster.Job {
	if task == nil {
		return a.job(ctx, id)
	}
	var found *cluster.Job
	_, _ = a.Scan(ctx, &history.Query{IDs: []cluster.JobID{id}}, func(j *cluster.Job) error {
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

func (a *Archive) waiting(s *history.Store, id cluster.JobID) *cluster.Job {
	for _, j := range a.tail(s.UpTo()) {
		if j.ID == id {
			return j
		}
	}
	return nil
}

// tail returns the jobs that ended after an index, in order, except those of which
// nothing is known.
func (a *Archive) tail(after uint64) []*cluster.Job {
	var out []*cluster.Job
	for {
		e := a.fsm.Ended(after, historyBatch)
		if e.UpTo <= after {
			return out
		}
		out, after = append(out, e.Jobs...), e.UpTo
	}
}

// Watch registers the store's metrics.
func (a *Archive) Watch(reg prometheus.Registerer) {
	for _, g := range []struct {
		name, help string
		value      func(history.Stats) float64
	}{
		{"berth_history_jobs", "Finished jobs in this coordinator's store.", func(s history.Stats) float64 { return float64(s.Jobs) }},
		{"berth_history_bytes", "Size of this coordinator's store of finished jobs.", func(s history.Stats) float64 { return float64(s.Bytes) }},
		{"berth_history_index", "Log index up to which finished jobs are stored.", func(s history.Stats) float64 { return float64(s.UpTo) }},
		{"berth_history_holes", "Parts of the log whose finished jobs are missing from the store.", func(s history.Stats) float64 { return float64(len(s.Holes)) }},
	} {
		reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: g.name, Help: g.help}, func() float64 { return g.value(a.Stats()) }))
	}
	for _, k := range []struct {
		name, help string
		value      func(history.Stats) float64
	}{
		{"berth_history_write_failures_total", "Failed writes to the store of finished jobs.", func(s history.Stats) float64 { return float64(s.Failures) }},
		{"berth_history_damaged_files_total", "Damaged files found in the store of finished jobs.", func(s history.Stats) float64 { return float64(s.Damaged) }},
	} {
		reg.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: k.name, Help: k.help}, func() float64 { return k.value(a.Stats()) }))
	}
}
