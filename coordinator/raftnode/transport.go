package raftnode

import (
	"net"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// transport is raft's network transport without the heartbeat fast path, and with a
// configured address.
type transport struct {
	*raft.NetworkTransport
	advertise raft.ServerAddress
	conns     *trackedLayer
}

var (
	_ raft.Transport   = (*transport)(nil)
	_ raft.WithPreVote = (*transport)(nil)
	_ raft.WithClose   = (*transport)(nil)
)

// newTransport serves Raft's calls on layer, which it owns.
func newTransport(layer raft.StreamLayer, advertise string, timeout time.Duration, log hclog.Logger) *transport {
	conns := &trackedLayer{StreamLayer: layer, open: map[net.Conn]struct{}{}}
	return &transport{
		NetworkTransport: raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
			Stream: conns, MaxPool: 3, Timeout: timeout, Logger: log,
		}),
		advertise: raft.ServerAddress(advertise),
		conns:     conns,
	}
}

// SetHeartbeatHandler does nothing: heartbeats go through Raft's main loop like any
// other call. Handled outside the loop, a heartbeat of a new leader raises the term
// while the old leader's loop still writes entries, which then carry the new
// leader's term and pass for its own: replicas diverge silently
// (https://github.com/hashicorp/raft/issues/695).
func (t *transport) SetHeartbeatHandler(func(raft.RPC)) {}

// AppendEntriesPipeline returns a pipeline whose answers are received whether or
// not anything reads them.
func (t *transport) AppendEntriesPipeline(id raft.ServerID, target raft.ServerAddress) (raft.AppendPipeline, error) {
	p, err := t.NetworkTransport.AppendEntriesPipeline(id, target)
	if err != nil {
		return nil, err
	}
	w := &pipeline{AppendPipeline: p, answers: make(chan raft.AppendFuture), closed: make(chan struct{})}
	go w.take()
	return w, nil
}

// pipeline receives the answers that raft itself leaves unread. When a follower
// refuses an entry, raft stops reading answers, but may send once more before it
// notices: the sender then waits for the reader of the connection, which waits for
// its answer to be received. Heartbeats continue, and so does the leader, but that
// follower never gets another entry, and raft never ends
// (https://github.com/hashicorp/raft/issues/612).
type pipeline struct {
	raft.AppendPipeline
	answers chan raft.AppendFuture
	closed  chan struct{}
	once    sync.Once
}

// take receives answers as they come and passes them on, until the pipeline is
// closed. At most a few wait: the sender soon sees that it should stop.
func (p *pipeline) take() {
	var waiting []raft.AppendFuture
	for {
		var to chan raft.AppendFuture
		var next raft.AppendFuture
		if len(waiting) > 0 {
			to, next = p.answers, waiting[0]
		}
		select {
		case f := <-p.AppendPipeline.Consumer():
			waiting = append(waiting, f)
		case to <- next:
			waiting = waiting[1:]
		case <-p.closed:
			return
		}
	}
}

// Consumer implements raft.AppendPipeline.
func (p *pipeline) Consumer() <-chan raft.AppendFuture { return p.answers }

// Close implements raft.AppendPipeline.
func (p *pipeline) Close() error {
	p.once.Do(func() { close(p.closed) })
	return p.AppendPipeline.Close()
}

// LocalAddr returns the advertised address, not the one listened on.
func (t *transport) LocalAddr() raft.ServerAddress { return t.advertise }

// Close stops serving and closes every connection, including those that others
// opened: they would otherwise be served until their other end goes away.
func (t *transport) Close() error {
	err := t.NetworkTransport.Close()
	t.CloseStreams()
	t.conns.closeAll()
	return err
}

// trackedLayer tracks its open connections, so that Close can close them all.
type trackedLayer struct {
	raft.StreamLayer
	mu     sync.Mutex
	open   map[net.Conn]struct{}
	closed bool
}

// Accept waits for the next connection.
func (l *trackedLayer) Accept() (net.Conn, error) {
	c, err := l.StreamLayer.Accept()
	if err != nil {
		return nil, err
	}
	return l.track(c)
}

// Dial connects to another node.
func (l *trackedLayer) Dial(addr raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	c, err := l.StreamLayer.Dial(addr, timeout)
	if err != nil {
		return nil, err
	}
	return l.track(c)
}

func (l *trackedLayer) track(c net.Conn) (net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		_ = c.Close()
		return nil, net.ErrClosed
	}
	l.open[c] = struct{}{}
	return &trackedConn{Conn: c, layer: l}, nil
}

func (l *trackedLayer) closeAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for c := range l.open {
		_ = c.Close()
	}
	clear(l.open)
}

// trackedConn leaves its layer's list when it is closed.
type trackedConn struct {
	net.Conn
	layer *trackedLayer
}

// Close closes the connection.
func (c *trackedConn) Close() error {
	c.layer.mu.Lock()
	delete(c.layer.open, c.Conn)
	c.layer.mu.Unlock()
	return c.Conn.Close()
}
