package raftnode

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/hashicorp/raft"
)

// Leader returns the leader's id and address as this node knows them, both
// empty while it knows none.
func (n *Node) Leader() (id, addr string) {
	a, i := n.raft.LeaderWithID()
	return string(i), string(a)
}

// IsLeader reports whether this node believes it leads. VerifyLeader asks the
// others.
func (n *Node) IsLeader() bool { return n.raft.State() == raft.Leader }

// Term returns the current term.
func (n *Node) Term() uint64 { return n.raft.CurrentTerm() }

// AppliedIndex returns the last entry that the state machine was given. It may be
// briefly ahead of what Apply has finished; Barrier waits for it.
func (n *Node) AppliedIndex() uint64 { return n.raft.AppliedIndex() }

// LastIndex returns the last entry on this node's disk.
func (n *Node) LastIndex() uint64 { return n.raft.LastIndex() }

// SnapshotIndex returns the last entry that this node's newest snapshot holds.
func (n *Node) SnapshotIndex() uint64 {
	v, err := strconv.ParseUint(n.raft.Stats()["last_snapshot_index"], 10, 64)
	if err != nil {
		return 0
	}
	return v
}

// LeaderChanges reports when this node gains (true) and loses (false) leadership.
// There is one channel, for one reader, and Close closes it. A slow reader blocks
// nothing: what it missed in between is left out, but it always receives a loss
// between two gains.
func (n *Node) LeaderChanges() <-chan bool { return n.changes }

// Member is a coordinator in the current configuration.
type Member struct {
	ID, Addr string
	Voter    bool
}

// Members returns the latest configuration, which may not be committed yet,
// in its own order.
func (n *Node) Members() []Member {
	f := n.raft.GetConfiguration()
	if f.Error() != nil {
		return nil
	}
	var ms []Member
	for _, s := range f.Configuration().Servers {
		ms = append(ms, Member{ID: string(s.ID), Addr: string(s.Address), Voter: s.Suffrage == raft.Voter})
	}
	return ms
}

// Operations returns the kinds of operations that Longest knows.
func Operations() []string {
	return []string{opAppend: "append", opTrim: "trim", opStable: "vote", opProbe: "probe", opApply: "apply", opReplay: "replay", opCapture: "capture", opSnapshot: "snapshot"}
}

// Longest returns how long the longest operation of a kind took since Open.
func (n *Node) Longest(kind string) time.Duration {
	return time.Duration(n.store.ops.worst[slices.Index(Operations(), kind)].Load())
}

// Appended returns how many bytes of entries were written since Open.
func (n *Node) Appended() uint64 { return n.store.appended.Load() }

// LogBytes returns the size of the log file.
func (n *Node) LogBytes() int64 { return fileSize(filepath.Join(n.cfg.Dir, logFile)) }

func fileSize(path string) int64 {
	info, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) || info == nil {
		return 0
	}
	return info.Size()
}
