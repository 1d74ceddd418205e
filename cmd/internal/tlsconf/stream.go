package tlsconf

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"time"
)

// StreamLayer carries Raft between coordinators over mutual TLS. It has the
// methods of raft.StreamLayer; A is raft.ServerAddress there, so that this
// package need not import raft.
type StreamLayer[A ~string] struct {
	net.Listener
	src       *Source
	advertise string
}

// NewStreamLayer accepts from ln, whose connections' handshakes must have
// verified a coordinator, as Mux.Listener(ProtoRaft) does, and tells peers to
// dial advertise ("host:port").
func NewStreamLayer[A ~string](ln net.Listener, src *Source, advertise string) *StreamLayer[A] {
	return &StreamLayer[A]{Listener: ln, src: src, advertise: advertise}
}

// Addr returns the advertised address.
func (s *StreamLayer[A]) Addr() net.Addr { return hostAddr(s.advertise) }

// Dial connects to another coordinator; the timeout covers the handshake too.
func (s *StreamLayer[A]) Dial(address A, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	cfg := ClientConfig(s.src, RoleCoordinator)
	cfg.NextProtos = []string{ProtoRaft}
	conn, err := (&tls.Dialer{Config: cfg}).DialContext(ctx, "tcp", string(address))
	if err != nil {
		return nil, fmt.Errorf("dial coordinator %s: %w", string(address), err)
	}
	return conn, nil
}

// hostAddr is an address that may contain a host name.
type hostAddr string

func (hostAddr) Network() string  { return "tcp" }
func (a hostAddr) String() string { return string(a) }
