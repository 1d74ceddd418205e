package tlsconf

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
)

// HandshakenCredentials is for a gRPC server behind a Mux: its connections
// are verified already, so it only reads who the peer is. As credentials of a
// client it refuses.
func HandshakenCredentials() credentials.TransportCredentials { return handshaken{} }

// FromContext returns the caller of a gRPC method and its certificate's
// serial number. Over a transport without TLS, and for a caller that
// JoinServerConfig let in without a certificate, the error matches
// ErrNoCertificate.
func FromContext(ctx context.Context) (Identity, string, error) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return Identity{}, "", fmt.Errorf("caller: %w", ErrNoCertificate)
	}
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok {
		return Identity{}, "", fmt.Errorf("caller without TLS: %w", ErrNoCertificate)
	}
	who, err := PeerIdentity(info.State)
	return who, PeerSerial(info.State), err
}

type handshaken struct{}

// ServerHandshake implements credentials.TransportCredentials.
func (handshaken) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	tc, ok := conn.(interface {
		net.Conn
		ConnectionState() tls.ConnectionState
	})
	if !ok || !tc.ConnectionState().HandshakeComplete {
		return nil, nil, errors.New("connection did not come through the TLS mux")
	}
	info := credentials.TLSInfo{
		State:          tc.ConnectionState(),
		CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity},
	}
	return tc, info, nil
}

// ClientHandshake implements credentials.TransportCredentials.
func (handshaken) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("these credentials are for servers; clients use ClientConfig")
}

// Info implements credentials.TransportCredentials.
func (handshaken) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "tls"}
}

// Clone implements credentials.TransportCredentials.
func (h handshaken) Clone() credentials.TransportCredentials { return h }

// OverrideServerName implements credentials.TransportCredentials.
func (handshaken) OverrideServerName(string) error { return nil }
