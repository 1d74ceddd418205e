package raftnode

import (
	"net"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// transport is raft's network transport without the heartbeat fast path, and
// with an address of our own choice.
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

// SetHeartbeatHandler does nothing: heartbeats go through Raft's main loop as
// any other call does. Handled beside the loop, a heartbeat of a new leader
// raises the term while the old leader's loop still writes entries, which then
// carry the new leader's term and pass for its own: replicas diverge silently
// (https://github.com/hashicorp/raft/issues/695).
func (t *transport) SetHeartbeatHandler(func(raft.RPC)) {}

// LocalAddr is the advertised address, not the one listened on.
func (t *transport) LocalAddr() raft.ServerAddress { return t.advertise }

// Close stops serving and cuts every connection, also those that others opened:
// they would otherwise be served until their other end goes away.
func (t *transport) Close() error {
	err := t.NetworkTransport.Close()
	t.CloseStreams()
	t.conns.closeAll()
	return err
}

// trackedLayer knows its open connections, so that Close can end them all.
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
