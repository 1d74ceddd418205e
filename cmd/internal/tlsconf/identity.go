// Package tlsconf gives every daemon of a cluster its identity: an embedded
// certificate authority, certificates that renew themselves, join tokens, and
// TLS 1.3 configurations in which both sides prove who they are.
//
// An identity is exactly one URI SAN, spiffe://<cluster-id>/<role>/<id>.
// Common names, DNS names and host names decide nothing.
package tlsconf

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/berth-scheduler/berth/cluster"
)

// Role is what a certificate's holder may act as.
type Role string

// The roles there are.
const (
	RoleCoordinator Role = "coordinator"
	RoleAgent       Role = "agent"
	RoleGate        Role = "gate" // forwards requests of local users
)

func (r Role) valid() bool { return r == RoleCoordinator || r == RoleAgent || r == RoleGate }

// Errors that callers branch on with errors.Is; the text around them says
// what to do.
var (
	ErrNoCertificate = errors.New("no certificate")
	ErrBadIdentity   = errors.New("certificate names no identity of ours")
	ErrNotYetValid   = errors.New("certificate not yet valid")
	ErrExpired       = errors.New("certificate expired")
	ErrOtherCluster  = errors.New("certificate of another cluster")
	ErrWrongRole     = errors.New("wrong role")
	ErrDenied        = errors.New("certificate revoked")
)

// Identity says who holds a certificate.
type Identity struct {
	ClusterID string
	Role      Role
	ID        string
}

// String returns the identity as the URI in the certificate.
func (id Identity) String() string {
	return "spiffe://" + id.ClusterID + "/" + string(id.Role) + "/" + id.ID
}

func (id Identity) uri() *url.URL {
	return &url.URL{Scheme: "spiffe", Host: id.ClusterID, Path: "/" + string(id.Role) + "/" + id.ID}
}

// Validate checks the names by cluster.CheckName and the role by the list of
// roles. Its errors match ErrBadIdentity.
func (id Identity) Validate() error {
	if err := cluster.CheckName("cluster id", id.ClusterID); err != nil {
		return fmt.Errorf("%w: %w", ErrBadIdentity, err)
	}
	if !id.Role.valid() {
		return fmt.Errorf("%w: role %q is none of coordinator, agent, gate", ErrBadIdentity, id.Role)
	}
	if err := cluster.CheckName("id", id.ID); err != nil {
		return fmt.Errorf("%w: %w", ErrBadIdentity, err)
	}
	return nil
}

// ParseIdentity parses what Identity.String wrote, and nothing else: no
// port, user, query, escape or trailing slash. Its errors match
// ErrBadIdentity.
func ParseIdentity(s string) (Identity, error) {
	rest, ok := strings.CutPrefix(s, "spiffe://")
	parts := strings.Split(rest, "/")
	if !ok || len(parts) != 3 {
		return Identity{}, fmt.Errorf("%w: %.200q is not of the form spiffe://<cluster-id>/<role>/<id>", ErrBadIdentity, s)
	}
	id := Identity{ClusterID: parts[0], Role: Role(parts[1]), ID: parts[2]}
	if err := id.Validate(); err != nil {
		return Identity{}, err
	}
	return id, nil
}

// PeerIdentity returns the identity of the peer of a connection that was
// made with a configuration of this package, whose handshake verified it. A
// peer let in without a certificate by JoinServerConfig gives
// ErrNoCertificate.
func PeerIdentity(cs tls.ConnectionState) (Identity, error) {
	if len(cs.PeerCertificates) == 0 {
		return Identity{}, fmt.Errorf("peer: %w", ErrNoCertificate)
	}
	return certIdentity(cs.PeerCertificates[0])
}

// PeerSerial returns the serial number of the peer's certificate in
// hexadecimal, as in deny lists, or "" if there is no certificate.
func PeerSerial(cs tls.ConnectionState) string {
	if len(cs.PeerCertificates) == 0 {
		return ""
	}
	return Serial(cs.PeerCertificates[0])
}

// Serial returns a certificate's serial number in lower-case hexadecimal.
func Serial(cert *x509.Certificate) string { return cert.SerialNumber.Text(16) }

// certIdentity reads the one URI SAN. A second name of any kind is refused: a
// reader that looked at another one would see another identity.
func certIdentity(cert *x509.Certificate) (Identity, error) {
	if n := len(cert.URIs); n != 1 {
		return Identity{}, fmt.Errorf("%w: it has %d URI names, want exactly 1", ErrBadIdentity, n)
	}
	if n := len(cert.DNSNames) + len(cert.IPAddresses) + len(cert.EmailAddresses); n != 0 {
		return Identity{}, fmt.Errorf("%w: it has %d DNS, IP or mail names beside its URI, want none", ErrBadIdentity, n)
	}
	return ParseIdentity(cert.URIs[0].String())
}
