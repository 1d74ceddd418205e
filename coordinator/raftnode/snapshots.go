package raftnode

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

const (
	snapshotDir     = "snapshots" // raft.FileSnapshotStore's own name
	retainSnapshots = 3
	snapshotMagic   = "BRAFTSN1"
)

// snapshots is raft.FileSnapshotStore with two gaps closed. Its meta file has no
// checksum, so its contents are repeated in a header of the state file, which has
// one, and compared. And Raft silently takes an older snapshot if the newest cannot
// be restored: List shows only the newest.
type snapshots struct {
	*raft.FileSnapshotStore
	dir    string
	remedy string
	fatal  func(error)
	log    hclog.Logger
}

var _ raft.SnapshotStore = (*snapshots)(nil)

func openSnapshots(dir, remedy string, fatal func(error), log hclog.Logger) (*snapshots, error) {
	fs, err := raft.NewFileSnapshotStoreWithLogger(dir, retainSnapshots, log)
	if err != nil {
		return nil, fmt.Errorf("open snapshots in %s: %w", dir, err)
	}
	return &snapshots{FileSnapshotStore: fs, dir: dir, remedy: remedy, fatal: fatal, log: log}, nil
}

// header is the part of the meta file that matters.
type header struct {
	Index, Term        uint64
	Configuration      raft.Configuration
	ConfigurationIndex uint64
}

// encodeHeader returns magic, length and JSON.
func encodeHeader(h header) ([]byte, error) {
	j, err := json.Marshal(h)
	if err != nil {
		return nil, fmt.Errorf("encode snapshot header: %w", err)
	}
	b := binary.LittleEndian.AppendUint32([]byte(snapshotMagic), uint32(len(j)))
	return append(b, j...), nil
}

// Create begins a snapshot.
func (s *snapshots) Create(v raft.SnapshotVersion, index, term uint64, conf raft.Configuration, confIndex uint64, t raft.Transport) (raft.SnapshotSink, error) {
	head, err := encodeHeader(header{Index: index, Term: term, Configuration: conf, ConfigurationIndex: confIndex})
	if err != nil {
		return nil, err
	}
	sink, err := s.FileSnapshotStore.Create(v, index, term, conf, confIndex, t)
	if err != nil {
		return nil, s.failed(err)
	}
	k := &checkedSink{SnapshotSink: sink, of: s}
	if _, err := k.Write(head); err != nil {
		_ = k.Cancel()
		return nil, err
	}
	return k, nil
}

// failed reports a failed write, if it is one, as one after which the process must
// end: except for lack of room, since the log has what the snapshot would, and Raft
// tries again.
func (s *snapshots) failed(err error) error {
	if err == nil {
		return nil
	}
	err = fmt.Errorf("write snapshot in %s: %w", s.dir, err)
	if NoRoom(err) {
		s.log.Error("no room for a snapshot; the log grows until there is some: make room on that disk", "error", err)
		return err
	}
	s.fatal(err)
	return err
}

// List returns the newest snapshot, if there is one.
func (s *snapshots) List() ([]*raft.SnapshotMeta, error) {
	all, err := s.FileSnapshotStore.List()
	if err != nil {
		s.fatal(fmt.Errorf("list snapshots in %s: %w", s.dir, err))
		return nil, err
	}
	if len(all) == 0 {
		return nil, nil
	}
	m := *all[0]
	m.Size -= int64(len(headerOf(&m)))
	return []*raft.SnapshotMeta{&m}, nil
}

// headerOf returns the header that belongs to m; nil if none could be written.
func headerOf(m *raft.SnapshotMeta) []byte {
	b, err := encodeHeader(header{Index: m.Index, Term: m.Term, Configuration: m.Configuration, ConfigurationIndex: m.ConfigurationIndex})
	if err != nil {
		return nil
	}
	return b
}

// Open verifies a snapshot and returns what the state machine wrote.
func (s *snapshots) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	m, rc, err := s.open(id)
	if err != nil {
		s.fatal(err)
	}
	return m, rc, err
}

func (s *snapshots) open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	corrupt := func(what string) error {
		return &CorruptError{File: filepath.Join(s.dir, snapshotDir, id), What: what, Remedy: s.remedy}
	}
	meta, rc, err := s.FileSnapshotStore.Open(id)
	if err != nil {
		return nil, nil, corrupt("unreadable: " + err.Error())
	}
	want := headerOf(meta)
	got := make([]byte, len(want))
	if _, err := io.ReadFull(rc, got); err != nil || !bytes.Equal(got, want) {
		_ = rc.Close()
		return nil, nil, corrupt("its meta file is not the one it was written with")
	}
	// Raft streams Size bytes to a follower, which adds its own header.
	meta.Size -= int64(len(want))
	return meta, rc, nil
}

// checkedSink reports failed writes, and leaves nothing behind.
type checkedSink struct {
	raft.SnapshotSink
	of *snapshots
}

// Write appends to the snapshot.
func (k *checkedSink) Write(p []byte) (int, error) {
	n, err := k.SnapshotSink.Write(p)
	return n, k.of.failed(err)
}

// Close makes the snapshot the newest; it is then on disk.
func (k *checkedSink) Close() error {
	err := k.SnapshotSink.Close()
	if err != nil {
		k.discard()
	}
	return k.of.failed(err)
}

// Cancel abandons the snapshot.
func (k *checkedSink) Cancel() error {
	err := k.SnapshotSink.Cancel()
	if err != nil { // it could not write what it had buffered, and stopped there
		k.discard()
	}
	return err
}

// discard removes what is left of a snapshot that could not be written. The file
// may still be open, so removing it alone would not free the room.
func (k *checkedSink) discard() {
	dir := filepath.Join(k.of.dir, snapshotDir, k.ID()+".tmp")
	_ = os.Truncate(filepath.Join(dir, "state.bin"), 0)
	if err := os.RemoveAll(dir); err != nil {
		k.of.log.Warn("part of a snapshot is left", "path", dir, "error", err)
	}
}
