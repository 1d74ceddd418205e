package raftnode

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
)

// logFile is the name of the log's file in a node's directory.
const logFile = "raft.db"

// remedyRejoin is what to do about a damaged directory.
const remedyRejoin = "stop this coordinator, move %s away and start it again: it rejoins by snapshot from the others"

// CorruptError means that stored data is damaged. A node that meets it must not go
// on, and must not fall back on something older.
type CorruptError struct {
	File   string // path of the damaged file
	Index  uint64 // of the log entry, 0 if it is not about one
	What   string // what is wrong
	Remedy string // what the operator should do
}

// Error names the file, the damage and the remedy.
func (e *CorruptError) Error() string {
	if e.Index > 0 {
		return fmt.Sprintf("%s: log entry %d: %s; %s", e.File, e.Index, e.What, e.Remedy)
	}
	return fmt.Sprintf("%s: %s; %s", e.File, e.What, e.Remedy)
}

// sumBytes is the length of a checksum: CRC32C, little endian.
const sumBytes = 4

// store is raft-boltdb with a checksum on every record. An entry's follows its
// Extensions, where only this node sees it: it is added on the way to the file and
// removed on the way back. That of a term or vote follows its value. Both cover the
// key too, so a record in the wrong place does not pass.
//
// After the first failed write the store refuses all others: after a failed write
// and one that then succeeds, what is on the disk is unknown.
type store struct {
	bolt     boltStore
	file     string
	remedy   string
	fatal    func(error)
	before   func(op string) error
	table    *crc32.Table
	ops      *opTimes
	appended atomic.Uint64 // bytes of entries
	poison   sync.Mutex
	poisoned error
}

// boltStore is the part of raft-boltdb that the store needs.
type boltStore interface {
	raft.LogStore
	Set(k, v []byte) error
	Get(k []byte) ([]byte, error)
	Close() error
}

var (
	_ raft.LogStore          = (*store)(nil)
	_ raft.StableStore       = (*store)(nil)
	_ raft.MonotonicLogStore = (*store)(nil)
	_ boltStore              = (*raftboltdb.BoltStore)(nil)
)

// boltMode says what a log file is opened for.
type boltMode bool

const (
	readOnly  boltMode = true
	readWrite boltMode = false
)

// openBolt opens the log file. The list of free pages is not written with every
// commit, which would be slow forever after one burst, but found by walking the
// file at start; the map is large so that it does not move while the file grows.
func openBolt(path string, mode boltMode) (*raftboltdb.BoltStore, error) {
	opts := &bbolt.Options{
		Timeout: time.Second, NoFreelistSync: true, FreelistType: bbolt.FreelistMapType,
		ReadOnly: bool(mode), NoStatistics: true,
	}
	if mode == readWrite {
		opts.InitialMmapSize = 256 << 20
	}
	return raftboltdb.New(raftboltdb.Options{Path: path, BoltOptions: opts, MsgpackUseNewTimeFormat: true})
}

func newStore(b boltStore, file, remedy string) *store {
	return &store{
		bolt: b, file: file, remedy: remedy, fatal: func(error) {}, before: func(string) error { return nil },
		table: crc32.MakeTable(crc32.Castagnoli), ops: newOpTimes(),
	}
}

// IsMonotonic is false as for raft-boltdb itself: a follower that installs a
// snapshot keeps its older entries, and a gap follows them.
func (s *store) IsMonotonic() bool { return false }

// FirstIndex returns the first index in the log, 0 when it is empty.
func (s *store) FirstIndex() (uint64, error) {
	i, err := s.bolt.FirstIndex()
	return i, s.failed("read first index", err)
}

// LastIndex returns the last index in the log, 0 when it is empty.
func (s *store) LastIndex() (uint64, error) {
	i, err := s.bolt.LastIndex()
	return i, s.failed("read last index", err)
}

// GetLog reads an entry. The error is raft.ErrLogNotFound or a *CorruptError.
func (s *store) GetLog(index uint64, l *raft.Log) error {
	err := s.bolt.GetLog(index, l)
	if errors.Is(err, raft.ErrLogNotFound) {
		return err
	}
	switch {
	case err != nil:
		err = s.corrupt(index, "unreadable: "+err.Error())
	case l.Index != index:
		err = s.corrupt(index, fmt.Sprintf("the record is that of entry %d", l.Index))
	case len(l.Extensions) < sumBytes:
		err = s.corrupt(index, "it has no checksum")
	default:
		n := len(l.Extensions) - sumBytes
		want := binary.LittleEndian.Uint32(l.Extensions[n:])
		l.Extensions = l.Extensions[:n:n]
		if n == 0 {
			l.Extensions = nil
		}
		if got := s.logSum(l); got != want {
			err = s.corrupt(index, fmt.Sprintf("checksum is %08x, should be %08x", got, want))
		}
	}
	return s.failed("read entry", err)
}

// StoreLog writes one entry.
func (s *store) StoreLog(l *raft.Log) error { return s.StoreLogs([]*raft.Log{l}) }

// StoreLogs writes entries, all or none, and returns when they are on disk. It does
// not modify logs.
func (s *store) StoreLogs(logs []*raft.Log) error {
	return s.write(opAppend, func() error {
		sealed := make([]raft.Log, len(logs))
		refs := make([]*raft.Log, len(logs))
		bytes := 0
		for i, l := range logs {
			sealed[i] = *l
			sealed[i].Extensions = binary.LittleEndian.AppendUint32(append([]byte(nil), l.Extensions...), s.logSum(l))
			refs[i] = &sealed[i]
			bytes += len(l.Data) + len(sealed[i].Extensions)
		}
		err := s.bolt.StoreLogs(refs)
		if err == nil {
			s.appended.Add(uint64(bytes))
		}
		return err
	})
}

// DeleteRange removes the entries from lo to hi, inclusive.
func (s *store) DeleteRange(lo, hi uint64) error {
	return s.write(opTrim, func() error { return s.bolt.DeleteRange(lo, hi) })
}

// Set writes a value under key.
func (s *store) Set(key, value []byte) error {
	return s.write(opStable, func() error {
		v := append(make([]byte, 0, len(value)+sumBytes), value...)
		return s.bolt.Set(key, binary.LittleEndian.AppendUint32(v, s.valueSum(key, value)))
	})
}

// Get returns the value under key. If there is none the error says «not found», as
// Raft expects.
func (s *store) Get(key []byte) ([]byte, error) {
	v, err := s.bolt.Get(key)
	if errors.Is(err, raftboltdb.ErrKeyNotFound) {
		return nil, err
	}
	if err != nil {
		return nil, s.failed("read value", err)
	}
	n := len(v) - sumBytes
	if n < 0 || s.valueSum(key, v[:n]) != binary.LittleEndian.Uint32(v[n:]) {
		return nil, s.failed("read value", s.corrupt(0, fmt.Sprintf("the stored %s has a wrong checksum", key)))
	}
	return v[:n:n], nil
}

// SetUint64 writes a number under key.
func (s *store) SetUint64(key []byte, v uint64) error {
	return s.Set(key, binary.BigEndian.AppendUint64(nil, v))
}

// GetUint64 returns the number under key, or an error as Get does.
func (s *store) GetUint64(key []byte) (uint64, error) {
	v, err := s.Get(key)
	if err != nil {
		return 0, err
	}
	if len(v) != 8 {
		return 0, s.failed("read value", s.corrupt(0, fmt.Sprintf("the stored %s is %d bytes, should be 8", key, len(v))))
	}
	return binary.BigEndian.Uint64(v), nil
}

// Close closes the file. Nothing else may be in progress.
func (s *store) Close() error { return s.bolt.Close() }

// write runs one change, timed for the watchdog.
func (s *store) write(op op, change func() error) error {
	s.poison.Lock()
	err := s.poisoned
	s.poison.Unlock()
	if err != nil {
		return fmt.Errorf("an earlier write failed, so no more is written: %w", err)
	}
	done := s.ops.begin(op)
	err = s.before(op.String())
	if err == nil {
		err = change()
	}
	done()
	if err != nil {
		err = fmt.Errorf("write %s (%s): %w", s.file, op, err)
		if NoRoom(err) {
			err = fmt.Errorf("%w; make room on that disk, then start this coordinator again: nothing that was acknowledged is lost", err)
		}
		s.poison.Lock()
		if s.poisoned == nil {
			s.poisoned = err
		}
		s.poison.Unlock()
		s.fatal(err)
	}
	return err
}

// failed reports err, if any, as one after which the process must end.
func (s *store) failed(what string, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*CorruptError](err); !ok {
		err = fmt.Errorf("%s from %s: %w", what, s.file, err)
	}
	s.fatal(err)
	return err
}

func (s *store) corrupt(index uint64, what string) error {
	return &CorruptError{File: s.file, Index: index, What: what, Remedy: s.remedy}
}

// logSum returns the checksum of all of an entry except its time of append, which
// decides nothing.
func (s *store) logSum(l *raft.Log) uint32 {
	var head [25]byte
	binary.LittleEndian.PutUint64(head[0:], l.Index)
	binary.LittleEndian.PutUint64(head[8:], l.Term)
	binary.LittleEndian.PutUint64(head[16:], uint64(len(l.Data)))
	head[24] = byte(l.Type)
	sum := crc32.Update(0, s.table, head[:])
	sum = crc32.Update(sum, s.table, l.Data)
	return crc32.Update(sum, s.table, l.Extensions)
}

func (s *store) valueSum(key, value []byte) uint32 {
	sum := crc32.Update(0, s.table, key)
	return crc32.Update(crc32.Update(sum, s.table, []byte{0}), s.table, value)
}
