package coordtest

import (
	"errors"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// link is a coordinator's end of a network that a test can cut. It carries plain
// text: certificates are tested elsewhere.
type link struct {
	net.Listener

	mu    sync.Mutex
	down  bool
	conns map[*linkConn]struct{}
}

var errCut = errors.New("the test cut this link")

func newLink(ln net.Listener) *link {
	return &link{Listener: ln, conns: map[*linkConn]struct{}{}}
}

// Accept implements net.Listener. While the link is down, connections are closed at
// once.
func (l *link) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if c, err := l.track(conn); err == nil {
			return c, nil
		}
	}
}

// Dial implements raft.StreamLayer.
func (l *link) Dial(addr raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	conn, err := net.DialTimeout("tcp", string(addr), timeout)
	if err != nil {
		return nil, err
	}
	return l.track(conn)
}

func (l *link) track(conn net.Conn) (net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.down {
		return nil, errors.Join(errCut, conn.Close())
	}
	c := &linkConn{Conn: conn, of: l}
	l.conns[c] = struct{}{}
	return c, nil
}

// set cuts the link, and every connection over it, or mends it.
func (l *link) set(down bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = down
	if !down {
		return
	}
	for c := range l.conns {
		c.Conn.Close()
	}
	clear(l.conns)
}

type linkConn struct {
	net.Conn
	of *link
}

// Close implements net.Conn.
func (c *linkConn) Close() error {
	c.of.mu.Lock()
	delete(c.of.conns, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}
