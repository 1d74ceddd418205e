package tlsconf

import (
	"crypto/tls"
	"net"
	"sync"
)

// ProtoJoin names the listener of a Mux for peers without a certificate. No
// client offers it by ALPN.
const ProtoJoin = "berth-join"

// welcome counts a peer without a certificate until its connection is closed;
// nil if there are too many of them.
func (m *Mux) welcome(conn *tls.Conn) net.Conn {
	host := hostOf(conn)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.nguests >= m.cfg.Strangers.Total || m.guests[host] >= m.cfg.Strangers.PerHost {
		m.cfg.Log.Debug("connection refused: too many without a certificate", "addr", host)
		return nil
	}
	m.nguests++
	m.guests[host]++
	return &guest{Conn: conn, leave: sync.OnceFunc(func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.nguests--
		if m.guests[host]--; m.guests[host] == 0 {
			delete(m.guests, host)
		}
	})}
}

// guest is a connection without a certificate.
type guest struct {
	*tls.Conn
	leave func()
}

// Close implements net.Conn. It does not wait for a peer that does not read.
func (g *guest) Close() error {
	defer g.leave()
	return g.Conn.Close()
}
