package tlsconf

import (
	"crypto/tls"
	"net"
	"sync"
)

// known is a connection of a peer with a certificate.
type known struct {
	*tls.Conn
	leave func()
}

func (m *Mux) remember(conn *tls.Conn) *known {
	k := &known{Conn: conn}
	k.leave = sync.OnceFunc(func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.known, k)
	})
	m.mu.Lock()
	defer m.mu.Unlock()
	m.known[k] = struct{}{}
	return k
}

// Close implements net.Conn.
func (k *known) Close() error {
	defer k.leave()
	return k.Conn.Close()
}

// Cut closes the connections of every peer for which denied returns true,
// whatever is in progress on them. It does not wait for the peers.
func (m *Mux) Cut(denied DeniedFunc) {
	m.mu.Lock()
	var cut []net.Conn
	for k := range m.known {
		cs := k.ConnectionState()
		if who, err := PeerIdentity(cs); err == nil && denied(who, PeerSerial(cs)) {
			cut = append(cut, k.NetConn())
		}
	}
	m.mu.Unlock()
	for _, c := range cut {
		_ = c.Close() // its owner closes the layers above once it reads
	}
}
