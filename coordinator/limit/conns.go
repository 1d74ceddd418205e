package limit

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/berth-scheduler/berth/cluster"
)

// Conns counts open connections by user. It is safe for concurrent use.
type Conns struct {
	perUser func(cluster.UID) int
	came    func(cluster.UID, int) time.Duration
	total   int

	mu   sync.Mutex
	open map[cluster.UID]int
	sum  int
}

// NewConns returns the counts of one server. perUser returns how many connections a
// user may have open, total bounds those of all users together; root is exempt from
// both. came is told how many bytes were read from a user's connection, and returns how
// long to delay them, see Table.Came.
func NewConns(perUser func(cluster.UID) int, total int, came func(cluster.UID, int) time.Duration) *Conns {
	return &Conns{perUser: perUser, total: total, came: came, open: map[cluster.UID]int{}}
}

// Enter counts a connection until leave is called; false if it is one too many.
func (c *Conns) Enter(uid cluster.UID) (leave func(), ok bool) {
	most := c.perUser(uid)
	c.mu.Lock()
	defer c.mu.Unlock()
	if uid != 0 && (c.open[uid] >= most || c.sum >= c.total) {
		return nil, false
	}
	c.open[uid]++
	c.sum++
	return sync.OnceFunc(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.sum--
		if c.open[uid]--; c.open[uid] == 0 {
			delete(c.open, uid)
		}
	}), true
}

// Credentials returns inner's credentials, for a server, that close a user's
// connection at once if it is one too many. uidOf reads which user that is.
func (c *Conns) Credentials(inner credentials.TransportCredentials, uidOf func(credentials.AuthInfo) (cluster.UID, bool)) credentials.TransportCredentials {
	return counted{TransportCredentials: inner, conns: c, uidOf: uidOf}
}

type counted struct {
	credentials.TransportCredentials
	conns *Conns
	uidOf func(credentials.AuthInfo) (cluster.UID, bool)
}

// ServerHandshake implements credentials.TransportCredentials.
func (c counted) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := c.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		return nil, nil, err
	}
	uid, ok := c.uidOf(info)
	if !ok {
		return nil, nil, fmt.Errorf("connection of nobody: %T", info)
	}
	leave, ok := c.conns.Enter(uid)
	if !ok {
		return nil, nil, fmt.Errorf("too many connections of uid %d", uid)
	}
	return &countedConn{Conn: conn, leave: leave, came: func(bytes int) time.Duration { return c.conns.came(uid, bytes) }, closed: make(chan struct{})}, info, nil
}

// Clone implements credentials.TransportCredentials.
func (c counted) Clone() credentials.TransportCredentials { return c }

// ClientHandshake implements credentials.TransportCredentials.
func (c counted) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, fmt.Errorf("these credentials are for servers")
}

type countedConn struct {
	net.Conn
	leave  func()
	came   func(int) time.Duration
	once   sync.Once
	closed chan struct{}
}

// Read implements net.Conn.
func (c *countedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	// The data waits, not the read: a connection may have been blocked reading
	// since before its user was to wait.
	if d := c.came(n); d > 0 && err == nil {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
		case <-c.closed:
		}
	}
	return n, err
}

// Close implements net.Conn.
func (c *countedConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	defer c.leave()
	return c.Conn.Close()
}
