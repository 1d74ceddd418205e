// Package fsm is Berth's replicated state machine: a function of the Raft log
// alone. It reads no clock, uses no randomness and starts nothing; the leader's
// decisions arrive as commands, and what it refuses, it refuses on every replica
// alike.
package fsm

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"sync"

	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/fsm/command"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

const (
	checkpointEvery  = 1000
	rememberedHashes = 64
	defaultRing      = 65536
)

// EntryVersion is the highest entry version supported here. What each may hold is
// in the table of package command; the rules by which it is applied, in its
// rules.go.
const EntryVersion = 15

// Options configures an FSM.
type Options struct {
	// OnDiverged is called, under the state's lock, when a checkpoint shows
	// that this replica's state differs from the leader's. It must not call
	// back into the FSM.
	OnDiverged func(index uint64, want, got []byte)
	// OnDenied is called, under the state's lock, when identities were newly
	// denied, as far as this replica knew. It must not call back into the FSM.
	OnDenied func()
	// Bulk moves a large environment and script out of memory; if it or its result
	// is nil, they stay there.
	Bulk func(env []string, script []byte) cluster.Bulk
	// Together runs what of a snapshot can be encoded, decoded and digested at once;
	// optional. It returns once all have returned.
	Together func(...func())
	// Version is written into snapshots, for people.
	Version string
	// ChangeRing is how many changes are held for watchers; 0 means 65536.
	ChangeRing int
}

// held is the state and its lock.
type held struct {
	mu sync.RWMutex
	st *State
}

// FSM implements raft.FSM. Raft calls Apply, Snapshot and Restore; all others read,
// from any goroutine, through the readers by subject.
type FSM struct {
	*held
	AccountsReader
	CredentialsReader
	JobsReader
	LearnedReader
	NodesReader
	NoticesReader

	opts   Options
	hashes []indexHash // of the last checkpoints, newest last
	ring   ring
	news   chan struct{} // closed and replaced at each entry
	ended  endedFeed
}

type indexHash struct {
	index uint64
	hash  []byte
}

// New returns an empty state machine.
func New(o Options) *FSM {
	o.ChangeRing = cmp.Or(o.ChangeRing, defaultRing)
	st := newState()
	st.blobs.KeepBy(o.Bulk)
	f := holding(st)
	f.opts, f.ring, f.news = o, ring{cap: o.ChangeRing}, make(chan struct{})
	return f
}

func holding(st *State) *FSM {
	h := &held{st: st}
	return &FSM{
		held: h, AccountsReader: AccountsReader{h}, CredentialsReader: CredentialsReader{h}, JobsReader: JobsReader{h},
		LearnedReader: LearnedReader{h}, NodesReader: NodesReader{h}, NoticesReader: NoticesReader{h},
	}
}

// NeedsVersion returns the lowest entry version that may hold cmd: older
// coordinators do not know it, and would store something different.
func NeedsVersion(cmd *logv1.Command) uint32 {
	v, _ := command.Needs(cmd)
	return v
}

// EncodeEntry encodes commands that are proposed together as a log entry, of a
// version that every coordinator reads.
func EncodeEntry(version uint32, term uint64, now cluster.Time, cmds []*logv1.Command) ([]byte, error) {
	data, err := proto.Marshal(&logv1.Entry{Version: version, Term: term, NowUs: int64(now), Commands: cmds})
	if err != nil {
		return nil, fmt.Errorf("encode log entry: %w", err)
	}
	return data, nil
}

// DecodeEntry decodes a log entry. An entry of a newer version, or with a command
// unknown to this version, is an error.
func DecodeEntry(data []byte) (*logv1.Entry, error) {
	e := new(logv1.Entry)
	if err := proto.Unmarshal(data, e); err != nil {
		return nil, fmt.Errorf("malformed: %w", err)
	}
	if e.Version < 1 || e.Version > EntryVersion {
		return nil, fmt.Errorf("version %d, this berth reads 1 to %d", e.Version, EntryVersion)
	}
	for i, c := range e.Commands {
		if c.Kind == nil {
			return nil, fmt.Errorf("command %d is of a kind that this berth does not know", i)
		}
	}
	return e, nil
}

// CheckEntry returns why a log entry cannot be applied here, which would stop this
// replica.
func CheckEntry(data []byte) error {
	_, err := DecodeEntry(data)
	return err
}

// Apply implements raft.FSM. Raft calls it from one goroutine, in log order. The
// result is a []Result, one per command.
func (f *FSM) Apply(l *raft.Log) any {
	e, err := DecodeEntry(l.Data)
	if err != nil {
		// A replica that cannot read an entry must stop, not skip it.
		panic(fmt.Sprintf("fsm: log entry %d: %v", l.Index, err))
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	results := f.st.applyEntry(l.Index, l.Term, e)
	for _, c := range e.Commands {
		if cp := c.GetCheckpoint(); cp != nil && e.Term == l.Term {
			f.compare(cp)
		}
		if c.GetDenyIdentity() != nil || c.GetRemoveNode() != nil {
			f.someDenied()
		}
	}
	if f.st.at.Index/checkpointEvery != f.st.lastHash/checkpointEvery {
		f.st.lastHash = f.st.at.Index
		f.hashes = append(f.hashes, indexHash{f.st.at.Index, f.st.hashNow()})
		if len(f.hashes) > rememberedHashes {
			f.hashes = f.hashes[1:]
		}
	}
	f.st.hash.Some()
	f.ring.add(f.st.roll.Changes, l.Index)
	f.st.roll.Changes = nil
	f.ended.took(f.st)
	f.wake()
	return results
}

func (f *FSM) someDenied() {
	if f.opts.OnDenied != nil {
		f.opts.OnDenied()
	}
}

// applyEntry applies the commands of one entry in order. An entry that a deposed
// leader proposed in another term is ignored: its proposer was told that the
// outcome is unknown, and asks again.
func (s *State) applyEntry(index, term uint64, e *logv1.Entry) []Result {
	results := make([]Result, len(e.Commands))
	s.at.Index, s.term = index, term
	if e.Term != term {
		for i := range results {
			results[i] = command.Refuse(cluster.CodeUnavailable, "proposed in an older term; nothing was done; try again")
			results[i].Index = index
		}
		return results
	}
	before := s.at.Format
	if s.at.Version = e.Version; s.at.Version > 1 {
		s.at.Format = max(s.at.Format, s.at.Version)
	}
	s.at.Now = max(s.at.Now, cluster.Time(e.NowUs))
	if before < command.ChangeVersion && s.at.Version >= command.ChangeVersion {
		s.roll.Depends.Mend()
	}
	if before < command.BulkVersion && s.at.Version >= command.BulkVersion {
		s.roll.Rehash()
	}
	for i, c := range e.Commands {
		results[i] = s.apply(c)
		s.roll.Depends.Settle()
		if s.at.Version >= command.ArrayVersion {
			// Only after others have learned what happened to the forgotten jobs.
			s.roll.Forget()
		}
	}
	return results
}

// compare compares this replica's hash with the leader's, if it has one for that
// index.
func (f *FSM) compare(c *logv1.Checkpoint) {
	for _, h := range f.hashes {
		if h.index == c.Index && !bytes.Equal(h.hash, c.Hash) && f.opts.OnDiverged != nil {
			f.opts.OnDiverged(c.Index, c.Hash, h.hash)
		}
	}
}

func (f *FSM) wake() {
	close(f.news)
	f.news = make(chan struct{})
}

// WaitChange returns once an entry after the given index is applied, or with ctx's
// error.
func (f *FSM) WaitChange(ctx context.Context, after uint64) error {
	for {
		f.mu.RLock()
		index, news := f.st.at.Index, f.news
		f.mu.RUnlock()
		if index > after {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-news:
		}
	}
}
