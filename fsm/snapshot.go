package fsm

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/encoding/protodelim"
	"google.golang.org/protobuf/proto"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/fsm/orders"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

// snapshotFormat is the version of the file; a newer one is refused.
const snapshotFormat = 1

// maxRecordBytes bounds one record, so that a corrupt length allocates little.
const maxRecordBytes = 16 << 20

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
	return &snapshot{view: view, hash: sync.OnceValue(s.hash.Later(s.metaRecord()).Sum), version: f.opts.Version}
}

type snapshot struct {
	view    *State
	hash    func() []byte
	version string
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
	out := &framer{w: bufio.NewWriterSize(w, 64<<10)}
	head := &logv1.SnapshotHeader{Format: snapshotFormat, Index: s.view.at.Index, Term: s.view.term, WrittenBy: s.version}
	if err := out.put(head); err != nil {
		return err
	}
	n := uint64(0)
	err := s.view.each(func(r *logv1.Record) error {
		n++
		return out.put(r)
	})
	if err != nil {
		return err
	}
	end := &logv1.Record{Kind: &logv1.Record_End{End: &logv1.SnapshotEnd{Hash: s.hash(), Records: n}}}
	if err := out.put(end); err != nil {
		return err
	}
	return out.w.Flush()
}

// framer writes messages, each prefixed with its length.
type framer struct {
	w    *bufio.Writer
	body []byte
	head []byte
}

func (f *framer) put(m proto.Message) error {
	var err error
	f.body, err = proto.MarshalOptions{Deterministic: true}.MarshalAppend(f.body[:0], m)
	if err != nil {
		return err
	}
	if len(f.body) > maxRecordBytes {
		return fmt.Errorf("record of %d bytes, at most %d can be read back", len(f.body), maxRecordBytes)
	}
	f.head = binary.AppendUvarint(f.head[:0], uint64(len(f.body)))
	if _, err := f.w.Write(f.head); err != nil {
		return err
	}
	_, err = f.w.Write(f.body)
	return err
}

// Release implements raft.FSMSnapshot.
func (s *snapshot) Release() {}

// Restore implements raft.FSM. The state is replaced only after the whole snapshot
// was read and its hash verified.
func (f *FSM) Restore(r io.ReadCloser) error {
	defer r.Close()
	st, err := readSnapshot(r, f.opts.Bulk)
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

func readSnapshot(r io.Reader, keep func([]string, []byte) cluster.Bulk) (*State, error) {
	br := bufio.NewReaderSize(r, 64<<10)
	// A record stays in the buffer if it fits there; a corrupt length is refused
	// before anything is allocated for it.
	opt := protodelim.UnmarshalOptions{MaxSize: maxRecordBytes}
	head := new(logv1.SnapshotHeader)
	if err := opt.UnmarshalFrom(br, head); err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	if err := readable(head, 0); err != nil {
		return nil, err
	}
	st := newState()
	st.blobs.KeepBy(keep)
	for n := uint64(0); ; n++ {
		rec := new(logv1.Record)
		if err := opt.UnmarshalFrom(br, rec); err != nil {
			return nil, fmt.Errorf("record %d: %w", n, err)
		}
		if err := readable(head, rec.GetMeta().GetEntryVersion()); err != nil {
			return nil, err
		}
		end := rec.GetEnd()
		if end == nil {
			if err := st.load(rec); err != nil {
				return nil, fmt.Errorf("record %d: %w", n, err)
			}
			continue
		}
		if end.Records != n {
			return nil, fmt.Errorf("has %d records, %d were written", n, end.Records)
		}
		if err := st.settle(); err != nil {
			return nil, err
		}
		if got := st.hashNow(); !bytes.Equal(got, end.Hash) {
			return nil, fmt.Errorf("hash %x differs from %x, with which it was written", got, end.Hash)
		}
		return st, nil
	}
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
	br := bufio.NewReader(r)
	opt := protodelim.UnmarshalOptions{MaxSize: maxRecordBytes}
	head, first := new(logv1.SnapshotHeader), new(logv1.Record) // the first record is the metadata
	if opt.UnmarshalFrom(br, head) != nil || opt.UnmarshalFrom(br, first) != nil {
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
	st, err := readSnapshot(r, o.Bulk)
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
