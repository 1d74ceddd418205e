package raftnode

import (
	"context"
	"errors"
	"fmt"
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

// CommitIndex returns the last entry known to be on a majority.
func (n *Node) CommitIndex() uint64 { return n.raft.CommitIndex() }

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

// AddNonvoter makes s a member that receives the log but does not vote. This is the
// first step of adding a coordinator: promote it with AddVoter once it has caught
// up, or the cluster may lose its majority meanwhile.
func (n *Node) AddNonvoter(ctx context.Context, s Server) error {
	return n.changeMembers(ctx, "add", s.ID, func(prev uint64, wait time.Duration) raft.IndexFuture {
		return n.raft.AddNonvoter(raft.ServerID(s.ID), raft.ServerAddress(s.Addr), prev, wait)
	})
}

// AddVoter makes s a voter, or changes a voter's address.
func (n *Node) AddVoter(ctx context.Context, s Server) error {
	return n.changeMembers(ctx, "add voter", s.ID, func(prev uint64, wait time.Duration) raft.IndexFuture {
		return n.raft.AddVoter(raft.ServerID(s.ID), raft.ServerAddress(s.Addr), prev, wait)
	})
}

// Remove removes a member. A leader is not removed: asked to remove itself it hands
// over leadership and returns an error that matches ErrNotLeader, and the caller
// should ask the new leader.
func (n *Node) Remove(ctx context.Context, id string) error {
	if id == n.cfg.ID {
		if !n.IsLeader() {
			return fmt.Errorf("remove %s: %w", id, ErrNotLeader)
		}
		if err := n.TransferLeadership(ctx); err != nil {
			return fmt.Errorf("remove %s: %w", id, err)
		}
		return fmt.Errorf("remove %s: it was the leader and has handed over; ask the new leader: %w", id, ErrNotLeader)
	}
	return n.changeMembers(ctx, "remove", id, func(prev uint64, wait time.Duration) raft.IndexFuture {
		return n.raft.RemoveServer(raft.ServerID(id), prev, wait)
	})
}

// changeMembers makes one change to the current configuration: if another came in
// between, Raft refuses it.
func (n *Node) changeMembers(ctx context.Context, what, id string, change func(prev uint64, wait time.Duration) raft.IndexFuture) error {
	n.members.Lock()
	defer n.members.Unlock()
	wait, err := n.admit(ctx)
	if err != nil {
		return err
	}
	if !n.IsLeader() {
		return fmt.Errorf("%s %s: %w", what, id, ErrNotLeader)
	}
	f := n.raft.GetConfiguration()
	if err := f.Error(); err != nil {
		return fmt.Errorf("%s %s: %w", what, id, err)
	}
	if err := n.await(ctx, change(f.Index(), wait)); err != nil {
		return fmt.Errorf("%s %s: %w", what, id, err)
	}
	n.log.Info("members changed", "change", what, "id", id)
	return nil
}

// Stats is what metrics show. Reading it takes no lock that Raft waits for.
type Stats struct {
	State                                 string // Follower, Candidate, Leader or Shutdown
	Term, LastIndex, CommitIndex, Applied uint64
	SnapshotIndex                         uint64
	Pending                               int           // entries committed but not yet taken by the state machine
	LastContact                           time.Duration // since the leader was heard; 0 on the leader, -1 for never
	Elections                             uint64        // leaderships this node won since Open
	LogBytes                              int64         // size of the log file
	Appends, Probes                       uint64        // writes of entries; probes of the disk
	AppendTotal, AppendWorst, ProbeWorst  time.Duration
	TrimTotal, TrimWorst                  time.Duration
	Applies                               uint64 // calls of the state machine since Open
	ApplyTotal, ApplyWorst                time.Duration
	Voters                                int
}

// Stats returns figures for metrics.
func (n *Node) Stats() Stats {
	raw := n.raft.Stats()
	num := func(key string) uint64 {
		v, err := strconv.ParseUint(raw[key], 10, 64)
		if err != nil {
			return 0
		}
		return v
	}
	ops := n.store.ops
	s := Stats{
		State: raw["state"], Term: num("term"), LastIndex: num("last_log_index"), CommitIndex: num("commit_index"),
		Applied: num("applied_index"), SnapshotIndex: num("last_snapshot_index"), Pending: int(num("fsm_pending")),
		Elections: n.terms.Load(), LogBytes: n.LogBytes(),
		Appends: ops.count[opAppend].Load(), AppendTotal: time.Duration(ops.total[opAppend].Load()), AppendWorst: time.Duration(ops.worst[opAppend].Load()),
		Probes: ops.count[opProbe].Load(), ProbeWorst: time.Duration(ops.worst[opProbe].Load()),
		TrimTotal: time.Duration(ops.total[opTrim].Load()), TrimWorst: time.Duration(ops.worst[opTrim].Load()),
		Applies:     ops.count[opApply].Load() + ops.count[opReplay].Load(),
		ApplyTotal:  time.Duration(ops.total[opApply].Load() + ops.total[opReplay].Load()),
		ApplyWorst:  time.Duration(max(ops.worst[opApply].Load(), ops.worst[opReplay].Load())),
		LastContact: -1,
	}
	if n.IsLeader() {
		s.LastContact = 0
	} else if at := n.raft.LastContact(); !at.IsZero() {
		s.LastContact = time.Since(at)
	}
	for _, m := range n.Members() {
		if m.Voter {
			s.Voters++
		}
	}
	return s
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
