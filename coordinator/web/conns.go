package web

import (
	"net"
	"sync"
)

// bounded accepts at most most connections of ln at once, and perHost from one
// address; loopback, where a proxy may be, has only the first bound. Excess ones
// are closed at once.
func bounded(ln net.Listener, most, perHost int) net.Listener {
	return &boundedListener{Listener: ln, most: most, perHost: perHost, open: map[string]int{}}
}

type boundedListener struct {
	net.Listener
	most, perHost int

	mu   sync.Mutex
	all  int
	open map[string]int
}

// Accept implements net.Listener.
func (l *boundedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		host := canonical(conn.RemoteAddr().String())
		if ip := net.ParseIP(host); ip != nil && ip.IsLoopback() {
			host = ""
		}
		if l.enter(host) {
			return &boundedConn{Conn: conn, leave: sync.OnceFunc(func() { l.leave(host) })}, nil
		}
		conn.Close()
	}
}

func (l *boundedListener) enter(host string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all >= l.most || host != "" && l.open[host] >= l.perHost {
		return false
	}
	l.all++
	l.open[host]++
	return true
}

func (l *boundedListener) leave(host string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all--
	if l.open[host]--; l.open[host] == 0 {
		delete(l.open, host)
	}
}

type boundedConn struct {
	net.Conn
	leave func()
}

// Close implements net.Conn.
func (c *boundedConn) Close() error {
	defer c.leave()
	return c.Conn.Close()
}
