package tlsconf

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"runtime"
	"slices"
	"sync"
	"time"
)

// Defaults of zero limits in MuxConfig.
const (
	DefaultHandshakeTimeout = 5 * time.Second
	DefaultMaxHandshakes    = 256
	// waitingPerSlot is how many connections may wait for each handshake that is
	// allowed at once: as many as there are nodes in a large cluster.
	waitingPerSlot = 64
)

// MuxConfig describes a Mux.
type MuxConfig struct {
	// Listener is the TCP port. The Mux owns it.
	Listener net.Listener
	// Protocols maps each ALPN name to how its clients are verified.
	Protocols map[string]*tls.Config
	// HandshakeTimeout bounds the wait for a handshake, the handshake, and the wait for
	// Accept, together: clients do not wait for longer.
	HandshakeTimeout time.Duration
	// MaxHandshakes bounds the concurrent handshakes; one address may have a
	// quarter of them, so that one host cannot lock out the rest.
	MaxHandshakes int
	// MaxComputing bounds how many of them compute at once; 0 is one for each core.
	MaxComputing int
	// Strangers bounds the connections without a client certificate, which a
	// protocol's configuration may let in. They come out of the listener of
	// ProtoJoin and of no other. 0 passes them on like others of their protocol.
	Strangers Strangers
	Log       *slog.Logger
}

// Strangers bounds connections of peers without a certificate.
type Strangers struct {
	// Total is how many may be open at once, PerHost how many per address.
	Total, PerHost int
}

// Mux splits one TLS port by ALPN into one net.Listener per protocol. The
// connections that those return are *tls.Conn with the handshake done and
// the peer verified.
type Mux struct {
	cfg     MuxConfig
	tls     *tls.Config
	protos  map[string]*protoListener
	slots   turns // of handshakes
	cores   turns // of those that compute
	done    chan struct{}
	closing sync.Once
	wg      sync.WaitGroup

	mu      sync.Mutex
	count   uint64                // of connections, so far
	perHost map[string]int        // handshakes
	waiting map[string]int        // for a slot, by address
	waits   int                   // how many are in waiting
	pending map[net.Conn]struct{} // accepted, not handed over yet
	guests  map[string]int        // open connections of strangers, by address
	nguests int
	known   map[*known]struct{} // open connections of peers with certificates
}

// NewMux checks the configuration. Nothing is accepted until Run.
func NewMux(cfg MuxConfig) (*Mux, error) {
	if cfg.Listener == nil || cfg.Log == nil || len(cfg.Protocols) == 0 {
		return nil, errors.New("mux: listener, log and at least one protocol are needed")
	}
	if cfg.HandshakeTimeout <= 0 {
		cfg.HandshakeTimeout = DefaultHandshakeTimeout
	}
	if cfg.MaxHandshakes <= 0 {
		cfg.MaxHandshakes = DefaultMaxHandshakes
	}
	if cfg.MaxComputing <= 0 {
		cfg.MaxComputing = runtime.GOMAXPROCS(0)
	}
	m := &Mux{
		cfg: cfg, done: make(chan struct{}), protos: map[string]*protoListener{}, slots: turns{free: cfg.MaxHandshakes}, cores: turns{free: cfg.MaxComputing},
		perHost: map[string]int{}, waiting: map[string]int{}, pending: map[net.Conn]struct{}{}, guests: map[string]int{}, known: map[*known]struct{}{},
	}
	if cfg.Strangers.Total > 0 {
		m.protos[ProtoJoin] = &protoListener{mux: m, conns: make(chan net.Conn), done: make(chan struct{})}
	}
	m.cfg.Protocols = make(map[string]*tls.Config, len(cfg.Protocols))
	for name, c := range cfg.Protocols {
		c = c.Clone()
		c.NextProtos = []string{name}
		m.cfg.Protocols[name] = c
		m.protos[name] = &protoListener{mux: m, conns: make(chan net.Conn), done: make(chan struct{})}
	}
	m.tls = &tls.Config{MinVersion: tls.VersionTLS13, GetConfigForClient: m.configFor}
	return m, nil
}

// Listener returns the listener of one of the configured protocols, or nil.
// Closing it refuses that protocol's clients and leaves the others alone.
func (m *Mux) Listener(proto string) net.Listener {
	if l, ok := m.protos[proto]; ok {
		return l
	}
	return nil
}

// Run accepts until ctx ends or Close is called, then waits until the
// handshakes in progress are cut and returns nil. It returns an error only
// when the listener fails by itself.
func (m *Mux) Run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = m.Close() })
	defer stop()
	defer m.wg.Wait()
	defer m.Close()
	waits, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	defer giveUp()
	const shortest, longest = 5 * time.Millisecond, time.Second
	backoff := shortest
	for {
		conn, err := m.cfg.Listener.Accept()
		if err == nil {
			backoff = shortest
			m.admit(waits, conn)
			continue
		}
		select {
		case <-m.done:
			return nil
		default:
		}
		if errors.Is(err, net.ErrClosed) {
			return fmt.Errorf("accept: %w", err)
		}
		// Out of file descriptors, or a client that left: it is temporary.
		m.cfg.Log.Warn("cannot accept a connection", "err", err, "dur", backoff)
		select {
		case <-m.done:
			return nil
		case <-time.After(backoff):
		}
		backoff = min(2*backoff, longest)
	}
}

// Close stops accepting, cuts handshakes in progress and ends all Accepts.
// Connections already returned stay open: they belong to their protocol.
func (m *Mux) Close() error {
	var err error
	m.closing.Do(func() {
		close(m.done)
		err = m.cfg.Listener.Close()
		m.mu.Lock()
		defer m.mu.Unlock()
		for conn := range m.pending {
			conn.Close()
		}
	})
	return err
}

// admit hands conn to a goroutine of its own, unless too many wait already.
func (m *Mux) admit(ctx context.Context, conn net.Conn) {
	host, most := hostOf(conn), waitingPerSlot*m.cfg.MaxHandshakes
	m.mu.Lock()
	defer m.mu.Unlock()
	select {
	case <-m.done: // Close has swept pending
		conn.Close()
		return
	default:
	}
	if m.waits >= most || m.waiting[host] >= max(1, most/4) {
		conn.Close()
		m.cfg.Log.Debug("connection refused: too many wait", "addr", host)
		return
	}
	m.count++
	m.waits++
	m.waiting[host]++
	m.pending[conn] = struct{}{}
	f := &fresh{Conn: conn, no: m.count, answered: func() {}}
	m.wg.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, m.cfg.HandshakeTimeout)
		defer cancel()
		m.serve(ctx, f, host)
	})
}

// serve shakes hands on a connection once that has a slot.
func (m *Mux) serve(ctx context.Context, f *fresh, host string) {
	turn := m.slots.take(ctx, f.no)
	m.mu.Lock()
	m.waits--
	less(m.waiting, host)
	tooMany := m.perHost[host] >= max(1, m.cfg.MaxHandshakes/4)
	serve := turn && !tooMany && !hungUp(f.Conn)
	if serve {
		m.perHost[host]++
	}
	m.mu.Unlock()
	if serve {
		m.handshake(ctx, f)
	} else {
		_ = f.Close()
		m.cfg.Log.Debug("connection ended before its handshake", "addr", host, "late", !turn, "many", tooMany)
	}
	m.mu.Lock()
	delete(m.pending, f.Conn)
	if serve {
		less(m.perHost, host)
	}
	m.mu.Unlock()
	if turn {
		m.slots.give()
	}
}

// less takes one from the count of an address.
func less(counts map[string]int, host string) {
	if counts[host]--; counts[host] == 0 {
		delete(counts, host)
	}
}

func (m *Mux) handshake(ctx context.Context, raw *fresh) {
	conn := tls.Server(raw, m.tls)
	err := conn.HandshakeContext(ctx)
	raw.answered()
	if err != nil {
		_ = raw.Close()
		m.cfg.Log.Debug("handshake refused", "addr", raw.RemoteAddr().String(), "err", err)
		return
	}
	// From here on Close leaves it alone: once it is returned its protocol may
	// have used it before this goroutine runs again.
	m.mu.Lock()
	delete(m.pending, raw.Conn)
	m.mu.Unlock()
	cs := conn.ConnectionState()
	l, out := m.protos[cs.NegotiatedProtocol], net.Conn(conn)
	switch {
	case len(cs.PeerCertificates) > 0:
		out = m.remember(conn)
	case m.cfg.Strangers.Total > 0:
		if l, out = m.protos[ProtoJoin], m.welcome(conn); out == nil {
			_ = raw.Close() // without close_notify, which might wait for its reader
			return
		}
	}
	select {
	case l.conns <- out:
	case <-l.done:
		out.Close()
	case <-m.done:
		out.Close()
	case <-ctx.Done(): // nothing accepts
		out.Close()
	}
}

// configFor picks the protocol and with it who may connect. A client without
// a known protocol is refused before any certificate is shown, and one that has given
// up before anything is computed for it.
func (m *Mux) configFor(hello *tls.ClientHelloInfo) (*tls.Config, error) {
	for _, name := range hello.SupportedProtos {
		c, ok := m.cfg.Protocols[name]
		if !ok {
			continue
		}
		if f, ok := hello.Conn.(*fresh); ok {
			if !m.cores.take(hello.Context(), f.no) {
				return nil, hello.Context().Err()
			}
			f.answered = sync.OnceFunc(m.cores.give)
			if hungUp(f.Conn) {
				return nil, net.ErrClosed
			}
		}
		return c, nil
	}
	return nil, fmt.Errorf("client offers protocols %.200q, want one of %q", hello.SupportedProtos, slices.Sorted(maps.Keys(m.protos)))
}

func hostOf(conn net.Conn) string {
	addr := conn.RemoteAddr().String()
	if host, _, err := net.SplitHostPort(addr); err == nil {
		return host
	}
	return addr
}

// protoListener is one protocol's side of a Mux.
type protoListener struct {
	mux     *Mux
	conns   chan net.Conn
	done    chan struct{}
	closing sync.Once
}

// Accept implements net.Listener.
func (l *protoListener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.done:
	case <-l.mux.done:
	}
	return nil, net.ErrClosed
}

// Close implements net.Listener.
func (l *protoListener) Close() error {
	l.closing.Do(func() { close(l.done) })
	return nil
}

// Addr implements net.Listener.
func (l *protoListener) Addr() net.Addr { return l.mux.cfg.Listener.Addr() }
