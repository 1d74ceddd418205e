package fsm

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sort"

	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/encoding/protodelim"

	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

// snapshotFormat is the version of the file; a newer one is refused.
const snapshotFormat = 1

// maxRecordBytes bounds one record, so that a damaged length allocates little.
const maxRecordBytes = 16 << 20

// Snapshot implements raft.FSM. It captures an immutable view: Apply goes on
// while it is written.
func (f *FSM) Snapshot() (raft.FSMSnapshot, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.st
	view := &State{
		index: s.index, term: s.term, now: s.now, nextJob: s.nextJob, lastHash: s.lastHash, config: s.config,
		jobs: maps.Clone(s.jobs), nodes: maps.Clone(s.nodes), queues: maps.Clone(s.queues),
		requests: maps.Clone(s.requests), reqOrder: slices.Clone(s.reqOrder),
		tokens: maps.Clone(s.tokens), denied: maps.Clone(s.denied),
		weights: s.weights, samples: slices.Clone(s.samples), sampleNo: s.sampleNo,
	}
	return &snapshot{view: view, hash: s.hashNow(), version: f.opts.Version}, nil
}

type snapshot struct {
	view    *State
	hash    []byte
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
	bw := bufio.NewWriterSize(w, 256<<10)
	head := &logv1.SnapshotHeader{Format: snapshotFormat, Index: s.view.index, Term: s.view.term, WrittenBy: s.version}
	if _, err := protodelim.MarshalTo(bw, head); err != nil {
		return err
	}
	n := uint64(0)
	err := s.view.each(func(r *logv1.Record) error {
		n++
		_, err := protodelim.MarshalTo(bw, r)
		return err
	})
	if err != nil {
		return err
	}
	end := &logv1.Record{Kind: &logv1.Record_End{End: &logv1.SnapshotEnd{Hash: s.hash, Records: n}}}
	if _, err := protodelim.MarshalTo(bw, end); err != nil {
		return err
	}
	return bw.Flush()
}

// Release implements raft.FSMSnapshot.
func (s *snapshot) Release() {}

// Restore implements raft.FSM. The state is replaced only when the whole
// snapshot was read and its hash is right.
func (f *FSM) Restore(r io.ReadCloser) error {
	defer r.Close()
	st, err := readSnapshot(r)
	if err != nil {
		return fmt.Errorf("restore snapshot: %w", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.st = st
	f.hashes = nil
	f.ring.reset(st.index)
	f.wake()
	return nil
}

func readSnapshot(r io.Reader) (*State, error) {
	br := bufio.NewReaderSize(r, 256<<10)
	opt := protodelim.UnmarshalOptions{MaxSize: maxRecordBytes}
	head := new(logv1.SnapshotHeader)
	if err := opt.UnmarshalFrom(br, head); err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	if head.Format != snapshotFormat {
		return nil, fmt.Errorf("format %d was written by berth %q, this one reads format %d; upgrade it", head.Format, head.WrittenBy, snapshotFormat)
	}
	st := newState()
	for n := uint64(0); ; n++ {
		rec := new(logv1.Record)
		if err := opt.UnmarshalFrom(br, rec); err != nil {
			return nil, fmt.Errorf("record %d: %w", n, err)
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
		st.settle()
		if got := st.hashNow(); !bytes.Equal(got, end.Hash) {
			return nil, fmt.Errorf("hash %x differs from %x, with which it was written", got, end.Hash)
		}
		return st, nil
	}
}

// settle puts in order what does not come in order.
func (s *State) settle() {
	sort.Slice(s.finished, func(i, k int) bool {
		a, b := s.jobs[s.finished[i]], s.jobs[s.finished[k]]
		return a.Revision < b.Revision || a.Revision == b.Revision && a.ID < b.ID
	})
	s.forgetOldest()
	s.changes = nil
}
