// Package raftnode keeps one coordinator's copy of the replicated log: it wraps
// hashicorp/raft with a transport that cannot diverge replicas, a log store that
// notices damage, checks before the start, and a watchdog over the disk. It does
// not know what the entries mean.
package raftnode

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// closeLimit bounds Close in all; part of it is for handing over leadership.
const (
	closeLimit    = 30 * time.Second
	transferLimit = 4 * time.Second
)

// Node is a member of a Raft cluster. Its methods are safe for concurrent use.
type Node struct {
	cfg   Config
	log   *slog.Logger
	raft  *raft.Raft
	store *store
	snaps *snapshots
	trans *transport
	dir   *dataDir

	changes  chan bool
	fatals   sync.Once
	stopDog  context.CancelFunc
	probeEnd func() error
	wg       sync.WaitGroup // what runs until stopping is closed
	stopping chan struct{}
	stopped  chan struct{} // closed when Raft has ended

	closing  atomic.Bool
	closeOne sync.Once
	closeErr error
}

// Open checks the directory, starts Raft and returns. The node may be leader
// any time from then on. Errors about damaged data match *CorruptError.
func Open(cfg Config) (*Node, error) {
	if err := cfg.Validate(); err != nil {
		if cfg.StreamLayer != nil {
			_ = cfg.StreamLayer.Close()
		}
		return nil, err
	}
	cfg = cfg.withDefaults()
	n := &Node{
		cfg: cfg, log: cfg.Log.With("node", cfg.ID),
		changes: make(chan bool), stopping: make(chan struct{}), stopped: make(chan struct{}),
	}
	if err := n.open(); err != nil {
		return nil, fmt.Errorf("open raft node: %w", err)
	}
	return n, nil
}

// open does Open's work; if it fails it has closed everything it opened.
func (n *Node) open() (err error) {
	undo := []func() error{n.cfg.StreamLayer.Close}
	defer func() {
		if err == nil {
			return
		}
		for i := len(undo) - 1; i >= 0; i-- {
			err = errors.Join(err, undo[i]())
		}
	}()
	if n.dir, err = openDir(n.cfg.Dir, n.cfg.ClusterID, n.cfg.ID); err != nil {
		return err
	}
	undo = append(undo, n.dir.close)
	if err := n.tellSkipped(); err != nil {
		return err
	}
	if err := n.openStores(); err != nil {
		return err
	}
	undo = append(undo, n.store.Close)
	probe, probeEnd, err := openProbe(n.cfg.Dir)
	if err != nil {
		return err
	}
	undo = append(undo, probeEnd)
	n.probeEnd = probeEnd

	hlog := newHclog(n.log)
	n.trans = newTransport(n.cfg.StreamLayer, n.cfg.Advertise, max(2*n.cfg.Timing.HeartbeatTimeout, 2*time.Second), hlog)
	undo[0] = n.trans.Close // closes the stream layer too
	rc, notify := n.raftConfig(hlog)
	if err := n.settle(rc); err != nil {
		return err
	}
	last, err := n.store.LastIndex()
	if err != nil {
		return err
	}
	if n.raft, err = raft.NewRaft(rc, timed(n.cfg.FSM, n.store.ops, last), n.store, n.store, n.snaps, n.trans); err != nil {
		return fmt.Errorf("start: %w; if the state cannot be restored, "+remedyRejoin, err, n.cfg.Dir)
	}
	n.follow(notify)
	n.watch(probe)
	return nil
}

// tellSkipped logs which entries administrators skipped here.
func (n *Node) tellSkipped() error {
	lines, err := Skipped(n.cfg.Dir)
	for _, l := range lines {
		n.log.Warn("an entry of the log was skipped by an administrator; every coordinator must have skipped it", "entry", l)
	}
	return err
}

// openStores verifies and opens log and snapshots.
func (n *Node) openStores() error {
	dir := n.cfg.Dir
	if n.dir.fresh {
		if err := clearHalfMade(dir); err != nil {
			return err
		}
	}
	if _, err := inspect(dir, n.cfg.Reads); err != nil {
		return err
	}
	remedy := fmt.Sprintf(remedyRejoin, dir)
	snaps, err := openSnapshots(dir, remedy, n.die, newHclog(n.log))
	if err != nil {
		return err
	}
	file := filepath.Join(dir, logFile)
	bolt, err := openBolt(file, readWrite)
	if err != nil {
		return fmt.Errorf("open log %s: %w", file, err)
	}
	n.snaps, n.store = snaps, newStore(bolt, file, remedy)
	n.store.fatal = n.die
	if n.cfg.hooks.beforeWrite != nil {
		n.store.before = n.cfg.hooks.beforeWrite
	}
	return nil
}

// clearHalfMade removes what an interrupted first start left behind. The
// identity is written last, so a directory without one was never in use; one
// that holds entries or votes has lost its identity, and is left alone.
func clearHalfMade(dir string) error {
	st, err := inspect(dir, Reads{})
	if err != nil {
		return err
	}
	if st.snapshot > 0 || st.last > 1 || st.term > 1 || st.votes > 0 {
		return fmt.Errorf("%s holds Raft state but no %s file; move it away, or put the file back", dir, identityFile)
	}
	if err := os.Remove(filepath.Join(dir, logFile)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("clear unfinished start: %w", err)
	}
	return nil
}

// settle makes a fresh directory a member of its cluster.
func (n *Node) settle(rc *raft.Config) error {
	if !n.dir.fresh {
		return nil
	}
	if len(n.cfg.Bootstrap) > 0 {
		var conf raft.Configuration
		for _, s := range n.cfg.Bootstrap {
			conf.Servers = append(conf.Servers, raft.Server{ID: raft.ServerID(s.ID), Address: raft.ServerAddress(s.Addr)})
		}
		if err := raft.BootstrapCluster(rc, n.store, n.store, n.snaps, n.trans, conf); err != nil {
			return fmt.Errorf("bootstrap: %w", err)
		}
	}
	return n.dir.writeIdentity(n.cfg.ClusterID, n.cfg.ID)
}

// raftConfig returns Raft's own configuration and the channel of its leadership
// notices.
func (n *Node) raftConfig(log *slogLogger) (*raft.Config, <-chan bool) {
	// Raft blocks when this is full, so follow always reads it.
	notify := make(chan bool, 16)
	c := raft.DefaultConfig()
	c.LocalID = raft.ServerID(n.cfg.ID)
	c.HeartbeatTimeout = n.cfg.Timing.HeartbeatTimeout
	c.ElectionTimeout = n.cfg.Timing.ElectionTimeout
	c.LeaderLeaseTimeout = n.cfg.Timing.LeaderLeaseTimeout
	c.CommitTimeout = n.cfg.Timing.CommitTimeout
	c.MaxAppendEntries = n.cfg.MaxAppendEntries
	c.SnapshotThreshold = n.cfg.SnapshotThreshold
	c.SnapshotInterval = n.cfg.SnapshotInterval
	c.TrailingLogs = n.cfg.TrailingLogs
	c.NotifyCh = notify
	c.Logger = log
	c.NoLegacyTelemetry = true
	// With a buffer an entry could stay in it, unanswered, when Raft ends or the
	// caller gives up; without one it was taken or it was not.
	c.BatchApplyCh = false
	return c, notify
}

// watch starts the watchdog.
func (n *Node) watch(probe func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	n.stopDog = cancel
	w := &watchdog{
		dir: n.cfg.Dir, limit: n.cfg.StallLimit, every: time.Second, ops: n.store.ops,
		handOver: func(ctx context.Context) error {
			if !n.IsLeader() {
				return nil
			}
			return n.TransferLeadership(ctx)
		},
		fatal: n.die, probe: probe,
		slow: func(index uint64, age time.Duration) {
			n.log.Warn("an entry of the log takes long to replay; the coordinator serves when it is through", "index", index, "dur", age)
		},
	}
	n.wg.Go(func() { w.run(ctx) })
}

// follow forwards leadership notices and logs the leader.
func (n *Node) follow(notify <-chan bool) {
	seen := make(chan raft.Observation, 64)
	obs := raft.NewObserver(seen, false, func(o *raft.Observation) bool {
		_, ok := o.Data.(raft.LeaderObservation)
		return ok
	})
	n.raft.RegisterObserver(obs)
	n.wg.Go(func() {
		defer close(n.changes)
		defer n.raft.DeregisterObserver(obs)
		var q notices
		for {
			out, next := n.changes, false
			if len(q.pending) == 0 {
				out = nil
			} else {
				next = q.pending[0]
			}
			select {
			case <-n.stopping:
				return
			case leads := <-notify:
				q.add(leads)
			case out <- next:
				q.pending = q.pending[1:]
			case o := <-seen:
				if l, ok := o.Data.(raft.LeaderObservation); ok && l.LeaderID != "" {
					n.log.Info("leader changed", "leader", string(l.LeaderID), "addr", string(l.LeaderAddr), "term", n.raft.CurrentTerm())
				}
			}
		}
	})
}

// notices are leadership notices not received yet. A gain and a loss that wait
// together behind another notice cancel out, so at most two wait; a reader that
// knows of a gain always receives its loss before the next gain.
type notices struct{ pending []bool }

func (q *notices) add(leads bool) {
	if n := len(q.pending); n >= 2 {
		q.pending = q.pending[:n-1]
		return
	}
	q.pending = append(q.pending, leads)
}

// die calls Config.Fatal, once.
func (n *Node) die(err error) {
	if n.closing.Load() {
		n.log.Warn("error while closing", "err", err)
		return
	}
	n.fatals.Do(func() {
		n.log.Error("raft cannot go on", "err", err)
		n.cfg.Fatal(err)
	})
}

// Close hands over leadership if this node has it, ends Raft and releases the
// directory. It returns within 30 s; with an error if Raft did not end, and then
// the process must, since the directory is still in use. Calling it again returns
// the same result.
func (n *Node) Close() error {
	n.closeOne.Do(func() { n.closeErr = n.close() })
	return n.closeErr
}

func (n *Node) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	if n.IsLeader() {
		tctx, tcancel := context.WithTimeout(ctx, transferLimit)
		if err := n.TransferLeadership(tctx); err != nil {
			n.log.Debug("leadership not handed over", "err", err)
		}
		tcancel()
	}
	return n.stop(ctx)
}

// stop ends Raft and everything that belongs to it.
func (n *Node) stop(ctx context.Context) error {
	n.closing.Store(true)
	n.stopDog()
	ended := make(chan error, 1)
	go func() {
		err := n.raft.Shutdown().Error()
		close(n.stopped)
		// follow and the watchdog end only now: Raft may wait for follow.
		close(n.stopping)
		n.wg.Wait()
		ended <- err
	}()
	select {
	case err := <-ended:
		return errors.Join(err, n.trans.Close(), n.store.Close(), n.probeEnd(), n.dir.close())
	case <-ctx.Done():
		return fmt.Errorf("raft did not end within %v; end the process", closeLimit)
	}
}
