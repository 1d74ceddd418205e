package raftnode

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"time"

	"github.com/hashicorp/raft"
)

// Server is one coordinator of a cluster: a name that never changes and the
// address, host:port, at which the others reach it.
type Server struct {
	ID   string
	Addr string
}

// Timing sets how fast a cluster notices that its leader is gone. A follower starts
// an election after one to two HeartbeatTimeouts of silence, and another joins it
// within the same time, so a fail-over takes about 2 HeartbeatTimeouts and rarely
// more than 2.7.
type Timing struct {
	// HeartbeatTimeout is the silence after which a follower doubts its
	// leader. Heartbeats wait behind fsync here (see DESIGN.md), so it must be
	// well above the disk's worst pause. Between 50 ms and a minute.
	HeartbeatTimeout time.Duration
	// ElectionTimeout is how long a candidate waits for votes before it tries
	// again; at least HeartbeatTimeout, at most a minute.
	ElectionTimeout time.Duration
	// LeaderLeaseTimeout is how long a leader continues without hearing from a
	// majority; at most HeartbeatTimeout, so that it steps down before others elect
	// a new one.
	LeaderLeaseTimeout time.Duration
	// CommitTimeout is the longest delay until followers hear of a commit if
	// nothing follows it; 1 ms to HeartbeatTimeout.
	CommitTimeout time.Duration
}

// DefaultTiming is for production: fail-over typically in 3 to 4 s.
func DefaultTiming() Timing {
	return Timing{HeartbeatTimeout: 1500 * time.Millisecond, ElectionTimeout: 1500 * time.Millisecond,
		LeaderLeaseTimeout: 1200 * time.Millisecond, CommitTimeout: 50 * time.Millisecond}
}

// FastTiming is for development on one machine: fail-over in about 1 s.
func FastTiming() Timing {
	return Timing{HeartbeatTimeout: 500 * time.Millisecond, ElectionTimeout: 500 * time.Millisecond,
		LeaderLeaseTimeout: 400 * time.Millisecond, CommitTimeout: 20 * time.Millisecond}
}

const (
	minTimeout = 50 * time.Millisecond
	maxTimeout = time.Minute // the configuration's, too
)

// Validate reports everything that is wrong with t, by key.
func (t Timing) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	within := func(key string, v, lo, hi time.Duration) {
		if v < lo || v > hi {
			bad("%s: %v is outside %v to %v", key, v, lo, hi)
		}
	}
	within("heartbeat_timeout", t.HeartbeatTimeout, minTimeout, maxTimeout)
	within("election_timeout", t.ElectionTimeout, minTimeout, maxTimeout)
	within("leader_lease_timeout", t.LeaderLeaseTimeout, minTimeout, maxTimeout)
	within("commit_timeout", t.CommitTimeout, time.Millisecond, maxTimeout)
	if t.ElectionTimeout < t.HeartbeatTimeout {
		bad("election_timeout: %v is below heartbeat_timeout (%v); make it at least that", t.ElectionTimeout, t.HeartbeatTimeout)
	}
	if t.LeaderLeaseTimeout > t.HeartbeatTimeout {
		bad("leader_lease_timeout: %v is above heartbeat_timeout (%v); a deposed leader would go on beside its successor", t.LeaderLeaseTimeout, t.HeartbeatTimeout)
	}
	if t.CommitTimeout > t.HeartbeatTimeout {
		bad("commit_timeout: %v is above heartbeat_timeout (%v)", t.CommitTimeout, t.HeartbeatTimeout)
	}
	return errors.Join(errs...)
}

// Config configures a node. Fields are required unless marked optional.
type Config struct {
	// Dir holds the log, the snapshots and the identity of this node. It is
	// created, with mode 0700, if it is missing; its parent must exist.
	Dir string
	// ClusterID names the cluster that Dir belongs to, ID the node.
	ClusterID, ID string
	// Advertise is the host:port where the others reach StreamLayer.
	Advertise string
	// StreamLayer carries Raft's connections. Open owns it: Node.Close closes it,
	// and so does Open if it fails.
	StreamLayer raft.StreamLayer
	// FSM is the state machine. A raft.BatchingFSM is used as such, a
	// raft.ConfigurationStore is not.
	FSM raft.FSM
	// Reads checks what FSM would be given from Dir, before anything is changed
	// there; if it refuses, Open fails with an error that matches ErrNewer.
	Reads Reads
	// Log also receives Raft's own messages; leader changes are at info level.
	Log *slog.Logger
	// Fatal is called at most once, with the cause, when this process must not go
	// on: the disk failed, hung or holds damaged data. It should end the process.
	// It must not call Close and wait for it: the caller is often Raft's own
	// goroutine.
	Fatal func(error)

	// Timing is optional; the zero value means DefaultTiming.
	Timing Timing
	// Bootstrap lists the voters of a new cluster, including this node, and is used
	// only if Dir holds no state. Every node of a new cluster gets the same list.
	// Optional: a node without state and without Bootstrap waits to be added.
	Bootstrap []Server
	// SnapshotThreshold is how many entries accumulate before a snapshot is taken,
	// TrailingLogs how many are kept behind it so that a follower that was briefly
	// away needs no snapshot. Optional, 8192 each.
	SnapshotThreshold, TrailingLogs uint64
	// SnapshotInterval is how often it checks whether one is due. Optional, a
	// minute.
	SnapshotInterval time.Duration
	// MaxAppendEntries is how many entries are sent or fsynced at once, 1 to 1024.
	// Optional, 512.
	MaxAppendEntries int
	// MaxEntryBytes bounds one entry: a larger one would hold up heartbeats.
	// Optional, 4 MiB.
	MaxEntryBytes int
	// StallLimit is how long one disk operation, or one Apply, may take before this node gives up leadership and calls Fatal. Optional,
	// 10 s.
	StallLimit time.Duration

	// hooks are for tests.
	hooks hooks
}

// Reads say why this program's state machine cannot read what a newer one wrote:
// the data of an entry, or what it writes into snapshots. Each is optional.
type Reads struct {
	Entry func(data []byte) error
	State func(io.Reader) error
}

// hooks let a test intercept calls between Raft and its parts.
type hooks struct {
	beforeWrite func(op string) error // before each change to the log file
}

// withDefaults fills in optional fields.
func (c Config) withDefaults() Config {
	if c.Timing == (Timing{}) {
		c.Timing = DefaultTiming()
	}
	setDefault(&c.SnapshotThreshold, 8192)
	setDefault(&c.TrailingLogs, 8192)
	setDefault(&c.MaxAppendEntries, 512)
	setDefault(&c.MaxEntryBytes, 4<<20)
	setDefault(&c.StallLimit, 10*time.Second)
	setDefault(&c.SnapshotInterval, time.Minute)
	return c
}

func setDefault[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}

// Validate reports everything that is wrong with c, by key. Optional fields may be
// zero.
func (c Config) Validate() error {
	c = c.withDefaults()
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	for _, f := range []struct {
		key  string
		lack bool
	}{
		{"dir", c.Dir == ""}, {"cluster_id", c.ClusterID == ""}, {"id", c.ID == ""}, {"stream_layer", c.StreamLayer == nil},
		{"fsm", c.FSM == nil}, {"log", c.Log == nil}, {"fatal", c.Fatal == nil},
	} {
		if f.lack {
			bad("%s: missing", f.key)
		}
	}
	if err := checkAddr(c.Advertise); err != nil {
		bad("advertise: %w", err)
	}
	if err := c.Timing.Validate(); err != nil {
		bad("timing: %w", err)
	}
	if c.MaxAppendEntries < 1 || c.MaxAppendEntries > 1024 {
		bad("max_append_entries: %d is outside 1 to 1024", c.MaxAppendEntries)
	}
	if c.MaxEntryBytes < 1 || c.MaxEntryBytes > 64<<20 {
		bad("max_entry_bytes: %d is outside 1 to %d", c.MaxEntryBytes, 64<<20)
	}
	if c.StallLimit < 2*time.Second || c.StallLimit > time.Minute {
		bad("stall_limit: %v is outside 2s to 1m", c.StallLimit)
	}
	errs = append(errs, c.validateBootstrap()...)
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("raft config: %w", errors.Join(errs...))
}

func (c Config) validateBootstrap() []error {
	if len(c.Bootstrap) == 0 {
		return nil
	}
	var errs []error
	ids, addrs := map[string]struct{}{}, map[string]struct{}{}
	self := false
	for i, s := range c.Bootstrap {
		if s.ID == "" {
			errs = append(errs, fmt.Errorf("bootstrap[%d].id: missing", i))
		}
		if err := checkAddr(s.Addr); err != nil {
			errs = append(errs, fmt.Errorf("bootstrap[%d].addr: %w", i, err))
		}
		if _, dup := ids[s.ID]; dup {
			errs = append(errs, fmt.Errorf("bootstrap[%d].id: %q is there twice", i, s.ID))
		}
		if _, dup := addrs[s.Addr]; dup {
			errs = append(errs, fmt.Errorf("bootstrap[%d].addr: %q is there twice", i, s.Addr))
		}
		ids[s.ID], addrs[s.Addr] = struct{}{}, struct{}{}
		if s.ID == c.ID {
			self = true
			if s.Addr != c.Advertise {
				errs = append(errs, fmt.Errorf("bootstrap[%d].addr: %q is not what this node advertises, %q", i, s.Addr, c.Advertise))
			}
		}
	}
	if !self {
		errs = append(errs, fmt.Errorf("bootstrap: this node, %q, is not in the list", c.ID))
	}
	return errs
}

func checkAddr(a string) error {
	host, port, err := net.SplitHostPort(a)
	if err != nil || host == "" || port == "" || port == "0" {
		return fmt.Errorf("%q is not host:port", a)
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		return fmt.Errorf("%q: the others cannot connect to an unspecified address", a)
	}
	return nil
}
