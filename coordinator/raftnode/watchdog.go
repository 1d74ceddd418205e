package raftnode

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// op is a kind of operation that may hang.
type op int

const (
	opAppend op = iota
	opTrim
	opStable
	opProbe
	opApply
	// What follows has no limit.
	opReplay   // of an entry that was on the disk at the start
	opCapture  // of the state for a snapshot, while no entry is applied
	opSnapshot // from then on until it is on the disk
	numOps
)

// String says what the operation does.
func (o op) String() string {
	return [...]string{"append entries", "remove entries", "term or vote", "probe the disk", "apply", "replay", "capture the state", "write a snapshot"}[o]
}

// opTimes knows which operations are in progress and for how long. At most one of a
// kind runs at a time. Reading it takes no lock and touches no disk.
type opTimes struct {
	base  time.Time
	since [numOps]atomic.Int64 // ns after base, 0 if none is in progress
	worst [numOps]atomic.Int64
	index atomic.Uint64 // of the last entry that the state machine was given
}

func newOpTimes() *opTimes { return &opTimes{base: time.Now().Add(-time.Nanosecond)} }

// begin records that o starts; the function it returns, that it ended.
func (t *opTimes) begin(o op) func() {
	start := time.Since(t.base)
	t.since[o].Store(int64(start))
	return func() {
		t.since[o].Store(0)
		took := int64(time.Since(t.base) - start)
		for old := t.worst[o].Load(); took > old && !t.worst[o].CompareAndSwap(old, took); old = t.worst[o].Load() {
		}
	}
}

// age returns how long an operation has been in progress, 0 if it is not.
func (t *opTimes) age(o op) time.Duration {
	if s := t.since[o].Load(); s > 0 {
		return time.Since(t.base) - time.Duration(s)
	}
	return 0
}

// oldest returns the longest running operation, if any, of those that must end in
// time.
func (t *opTimes) oldest() (op, time.Duration) {
	now := int64(time.Since(t.base))
	which, age := op(0), int64(0)
	for o := range opReplay {
		if s := t.since[o].Load(); s > 0 && now-s > age {
			which, age = o, now-s
		}
	}
	return which, time.Duration(age)
}

// excuse subtracts time in which the process did not run from what is in progress.
func (t *opTimes) excuse(lost time.Duration) {
	now := int64(time.Since(t.base))
	for o := range t.since {
		if s := t.since[o].Load(); s > 0 {
			t.since[o].CompareAndSwap(s, min(s+int64(lost), now))
		}
	}
}

// watchdog ends a node whose disk or state machine hangs without an error. A leader
// in that state still sends heartbeats, so the others would wait for it forever
// (https://github.com/hashicorp/raft/issues/503).
type watchdog struct {
	dir   string
	limit time.Duration // of one operation
	every time.Duration
	ops   *opTimes
	// handOver gives leadership away; it gets 2 s.
	handOver func(context.Context) error
	fatal    func(error)
	probe    func() error
	// slow is called at each multiple of the limit for an entry that is replayed
	// for longer than that.
	slow func(index uint64, age time.Duration)
	told time.Duration // the last age that slow was called with
	last time.Time     // of the last look
}

// missedLooks is how many looks in a row are missed only by a process that was not
// running: its machine was paused or moved, or it was stopped. Then no disk hung.
const missedLooks = 3

// looks records a look, and excuses operations in progress for a pause since the
// last one.
func (w *watchdog) looks() {
	now := time.Now()
	if gap := now.Sub(w.last); !w.last.IsZero() && gap > missedLooks*w.every {
		w.ops.excuse(gap - w.every)
	}
	w.last = now
}

// run watches until ctx ends. The probe has its own goroutine, since it is what may
// hang; this one touches no disk. When ctx ends it does not wait for a probe that
// hangs.
func (w *watchdog) run(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() { w.probeLoop(ctx) })
	defer func() {
		if _, age := w.ops.oldest(); age < w.limit {
			wg.Wait()
		}
	}()
	tick := time.NewTicker(w.every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			w.looks()
			w.checkReplay()
			if err := w.check(); err != nil {
				hctx, cancel := context.WithTimeout(ctx, 2*time.Second)
				_ = w.handOver(hctx) // what hangs may also block the hand-over: fatal follows anyway
				cancel()
				w.fatal(err)
				return
			}
		}
	}
}

// checkReplay reports that an entry that was in the log at the start takes long. It
// does not end the process, which would meet the same entry again at each start, on
// every replica alike.
func (w *watchdog) checkReplay() {
	age := w.ops.age(opReplay)
	if age < w.told {
		w.told = 0 // it is another entry
	}
	if age-w.told > w.limit {
		w.told = age
		w.slow(w.ops.index.Load(), age)
	}
}

// check says what hangs, if anything does.
func (w *watchdog) check() error {
	o, age := w.ops.oldest()
	switch {
	case age <= w.limit:
		return nil
	case o == opApply:
		return fmt.Errorf("the state machine hangs in one entry for %v; start this coordinator again", age.Round(time.Millisecond))
	default:
		return fmt.Errorf("%s in %s hangs for %v: the disk does not answer; check it, then start this coordinator again", o, w.dir, age.Round(time.Millisecond))
	}
}

// probeLoop writes a little to the disk each second, so that a hang shows on an
// idle node too. A full disk is no failure here: a node without room continues as
// long as its log finds some.
func (w *watchdog) probeLoop(ctx context.Context) {
	tick := time.NewTicker(w.every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			done := w.ops.begin(opProbe)
			err := w.probe()
			done()
			if err != nil && !NoRoom(err) && ctx.Err() == nil {
				w.fatal(fmt.Errorf("probe the disk of %s: %w", w.dir, err))
				return
			}
		}
	}
}

// openProbe returns a function that writes to a file in dir and waits for the
// disk, and one that closes the file. The same byte is overwritten.
func openProbe(dir string) (probe, closeFile func() error, err error) {
	f, err := os.OpenFile(filepath.Join(dir, "probe"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, nil, fmt.Errorf("open disk probe: %w", err)
	}
	n := byte(0)
	return func() error {
		n++
		if _, err := f.WriteAt([]byte{n}, 0); err != nil {
			return err
		}
		return f.Sync()
	}, f.Close, nil
}

// timedFSM records how long the state machine takes.
type timedFSM struct {
	raft.FSM
	ops *opTimes
	// replayed is the last entry that was on the disk at the start.
	replayed uint64
}

// begin records that the state machine is given the entry l.
func (f *timedFSM) begin(l *raft.Log) func() {
	f.ops.index.Store(l.Index)
	if l.Index <= f.replayed {
		return f.ops.begin(opReplay)
	}
	return f.ops.begin(opApply)
}

// Apply applies one entry.
func (f *timedFSM) Apply(l *raft.Log) any {
	defer f.begin(l)()
	return f.FSM.Apply(l)
}

// Snapshot captures the state.
func (f *timedFSM) Snapshot() (raft.FSMSnapshot, error) {
	defer f.ops.begin(opCapture)()
	s, err := f.FSM.Snapshot()
	if err != nil {
		return nil, err
	}
	return timedSnapshot{s, f.ops}, nil
}

// timedSnapshot records how long it takes to write a snapshot.
type timedSnapshot struct {
	raft.FSMSnapshot
	ops *opTimes
}

// Persist writes the snapshot.
func (s timedSnapshot) Persist(sink raft.SnapshotSink) error {
	defer s.ops.begin(opSnapshot)()
	return s.FSMSnapshot.Persist(sink)
}

// timedBatchFSM is timedFSM for state machines that take batches.
type timedBatchFSM struct {
	timedFSM
	batch raft.BatchingFSM
}

// ApplyBatch applies entries in order.
func (f *timedBatchFSM) ApplyBatch(ls []*raft.Log) []any {
	defer f.begin(ls[0])()
	return f.batch.ApplyBatch(ls)
}

// timed wraps f; replayed is the last entry that is on the disk before it starts.
func timed(f raft.FSM, ops *opTimes, replayed uint64) raft.FSM {
	t := timedFSM{FSM: f, ops: ops, replayed: replayed}
	if b, ok := f.(raft.BatchingFSM); ok {
		return &timedBatchFSM{timedFSM: t, batch: b}
	}
	return &t
}
