package fsm

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/hashicorp/raft"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/fsm/orders"
	"github.com/berth-scheduler/berth/fsm/table"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

// snapshotFormat is the version of the file; a newer one is refused.
const snapshotFormat = 1

// Snapshot implements raft.FSM. It captures an immutable view, so Apply may
// continue while it is written.
func (f *FSM) Snapshot() (raft.FSMSnapshot, error) { return f.capture(), nil }

func (f *FSM) capture() *snapshot {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.st
	roll := s.roll.View()
	view := &State{
		at: roll.At, term: s.term, lastHash: s.lastHash, config: s.config, roll: roll, desk: &orders.Desk{Requests: s.desk.Requests.View()},
		fleet: s.fleet.View(), keyring: s.keyring.View(), learned: s.learned.View(), books: s.books.View(), outbox: s.outbox.View(), blobs: s.blobs.View(),
	}
	return &snapshot{view: view, hash: sync.OnceValue(s.hash.Later(s.metaRecord()).Sum), opts: &f.opts}
}

type snapshot struct {
	view *State
	hash func() []byte
	opts *Options
}

// Persist implements raft.FSMSnapshot. Records are streamed one by one.
func (s *snapshot) Persist(sink raft.SnapshotSink) error {
	err := s.write(sink)
	if err != nil {
		return errors.Join(fmt.Errorf("write snapshot: %w", err), sink.Cancel())
	}
	return sink.Close()
}

func (s *snapshot) write(w io.Writer) error {
	out := &framer{w: bufio.NewWriterSize(w, 256<<10), together: s.opts.Together}
	head := &logv1.SnapshotHeader{Format: snapshotFormat, Index: s.view.at.Index, Term: s.view.term, WrittenBy: s.opts.Version}
	if err := out.put(head); err != nil {
		return err
	}
	n := uint64(0)
	err := s.view.each(table.InParts(func(rs *table.Records) error {
		n += uint64(rs.N)
		return out.many(rs)
	}))
	if err != nil {
		return err
	}
	end := &logv1.Record{Kind: &logv1.Record_End{End: &logv1.SnapshotEnd{Hash: s.hash(), Records: n}}}
	if err := out.put(end); err != nil {
		return err
	}
	return out.w.Flush()
}

// Release implements raft.FSMSnapshot.
func (s *snapshot) Release() {}

// Restore implements raft.FSM. The state is replaced only after the whole snapshot
// was read and its hash verified.
func (f *FSM) Restore(r io.ReadCloser) error {
	defer r.Close()
	st, err := readSnapshot(r, f.opts)
	if err != nil {
		return fmt.Errorf("restore snapshot: %w", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended.restored(f.st, st)
	f.st = st
	f.hashes = nil
	f.ring.reset(st.at.Index)
	f.wake()
	f.someDenied()
	return nil
}

func readSnapshot(r io.Reader, o Options) (*State, error) {
	in := &frames{r: bufio.NewReaderSize(r, 256<<10), together: o.Together}
	head := new(logv1.SnapshotHeader)
	if err := in.one(head); err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	if err := readable(head, 0); err != nil {
		return nil, err
	}
	st := newState()
	st.blobs.KeepBy(o.Bulk)
	var (
		n    uint64
		recs []*logv1.Record
		bad  error // of what comes after recs
	)
	for {
		var end *logv1.SnapshotEnd
		var err, nextBad error
		var next []*logv1.Record
		load := func() { end, err = st.loadAll(head, recs, &n) }
		if bad == nil {
			next, nextBad = in.batch(load)
		} else {
			load()
		}
		switch {
		case err != nil:
			return nil, err
		case end != nil:
			return st, st.verify(end, n, o.Together)
		case bad != nil:
			return nil, fmt.Errorf("record %d: %w", n, bad)
		}
		recs, bad = next, nextBad
	}
}

// loadAll restores records, of which the first is the nth, up to the end of the
// snapshot if that is among them.
func (s *State) loadAll(head *logv1.SnapshotHeader, recs []*logv1.Record, n *uint64) (*logv1.SnapshotEnd, error) {
	for _, rec := range recs {
		if err := readable(head, rec.GetMeta().GetEntryVersion()); err != nil {
			return nil, err
		}
		if end := rec.GetEnd(); end != nil {
			return end, nil
		}
		if err := s.load(rec); err != nil {
			return nil, fmt.Errorf("record %d: %w", *n, err)
		}
		*n++
	}
	return nil, nil
}

// verify settles a state of n records, and compares it with the end of its snapshot.
func (s *State) verify(end *logv1.SnapshotEnd, n uint64, together table.Together) error {
	if end.Records != n {
		return fmt.Errorf("has %d records, %d were written", n, end.Records)
	}
	if err := s.settle(); err != nil {
		return err
	}
	s.hash.Settle(together)
	if got := s.hashNow(); !bytes.Equal(got, end.Hash) {
		return fmt.Errorf("hash %x differs from %x, with which it was written", got, end.Hash)
	}
	return nil
}

// readable returns why a snapshot of a state with log entries up to version cannot
// be restored here.
func readable(head *logv1.SnapshotHeader, version uint32) error {
	if head.Format != snapshotFormat {
		return fmt.Errorf("format %d was written by berth %q, this one reads format %d; upgrade it", head.Format, head.WrittenBy, snapshotFormat)
	}
	if version > EntryVersion {
		return fmt.Errorf("the state of entries up to version %d was written by berth %q, this one reads 1 to %d; upgrade it", version, head.WrittenBy, EntryVersion)
	}
	return nil
}

// CheckSnapshot returns why a snapshot written by a newer version cannot be
// restored here. Whether it is complete and correct is checked by Restore.
func CheckSnapshot(r io.Reader) error {
	in := &frames{r: bufio.NewReader(r)}
	head, first := new(logv1.SnapshotHeader), new(logv1.Record) // the first record is the metadata
	if in.one(head) != nil || in.one(first) != nil {
		return nil
	}
	return readable(head, first.GetMeta().GetEntryVersion())
}

// settle sorts what does not come in order, and checks that the records are
// consistent: a hash only proves that nothing changed since they were written.
func (s *State) settle() error {
	s.blobs.Settle()
	if err := s.roll.Settle(); err != nil {
		return err
	}
	s.books.Recount()
	return s.learned.Check()
}

// Capture is the state at one entry, for keeping outside of Raft.
type Capture struct {
	Index, Term uint64
	// EntryVersion is the highest version of an entry up to here.
	EntryVersion uint32
	// Hash is the state's hash, NextJob the least id that the next job may have.
	Hash    []byte
	NextJob cluster.JobID

	snap *snapshot
}

// Capture returns the current state. Apply may continue while it is written.
func (f *FSM) Capture() *Capture {
	s := f.capture()
	return &Capture{
		Index: s.view.at.Index, Term: s.view.term, EntryVersion: max(1, s.view.at.Format), Hash: s.hash(), NextJob: s.view.roll.NextID, snap: s,
	}
}

// Write writes the state like a snapshot, for Load.
func (c *Capture) Write(w io.Writer) error {
	if err := c.snap.write(w); err != nil {
		return fmt.Errorf("write state: %w", err)
	}
	return nil
}

// Revival says how a cluster restarts from an older state.
type Revival struct {
	// SkipJobs is how many job ids to skip: those that the cluster assigned after
	// the state was captured.
	SkipJobs uint64
}

// Load reads what a Capture wrote and returns it: unchanged, or, if revival is
// given, ready for a cluster to restart from it, with all join tokens void, since
// they may have been spent since. Incomplete input is refused.
func Load(r io.Reader, o Options, revival *Revival) (*Capture, error) {
	st, err := readSnapshot(r, o)
	if err != nil {
		return nil, fmt.Errorf("read state: %w", err)
	}
	if revival != nil {
		skip := revival.SkipJobs
		if next := uint64(st.roll.NextID) + skip; next < skip || next > 1<<53 {
			return nil, fmt.Errorf("%d ids of jobs cannot be left out after %d: ids end at 2^53", skip, st.roll.NextID)
		}
		st.roll.NextID += cluster.JobID(skip)
		st.keyring.VoidTokens()
	}
	f := New(o)
	f.st = st
	return f.Capture(), nil
}
