package tlsconf

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Protocol names for ALPN on the one port that a coordinator listens on.
const (
	ProtoRaft = "berth-raft"
	ProtoGRPC = "h2"
)

// ServerConfig requires a certificate of our CA with one of the given
// roles from every client. With no role given it refuses everyone.
func ServerConfig(src *Source, roles ...Role) *tls.Config {
	c := baseConfig(src, roles)
	c.ClientAuth = tls.RequireAnyClientCert // VerifyConnection verifies it
	return c
}

// JoinServerConfig is ServerConfig, but admits clients without a
// certificate, such as a joining node. For those PeerIdentity gives
// ErrNoCertificate, and the caller allows them to join and nothing else. A
// certificate that is shown is verified as ever.
func JoinServerConfig(src *Source, roles ...Role) *tls.Config {
	c := baseConfig(src, roles)
	c.ClientAuth = tls.RequestClientCert
	verify := c.VerifyConnection
	c.VerifyConnection = func(cs tls.ConnectionState) error {
		if len(cs.PeerCertificates) == 0 {
			return nil
		}
		return verify(cs)
	}
	return c
}

// BrowserConfig requires nothing of clients. They are shown what pair returns
// or, if that is nil, our certificate.
func BrowserConfig(src *Source, pair func() (*tls.Certificate, error)) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12, // with older browsers
		NextProtos: []string{ProtoGRPC, "http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			if pair != nil {
				return pair()
			}
			return &src.cur.Load().cert, nil
		},
	}
}

// ClientConfig shows our certificate and requires one of our CA with one of
// the given roles from the server. The dialled host name plays no part.
func ClientConfig(src *Source, want ...Role) *tls.Config {
	return baseConfig(src, want)
}

// ClientConfigPinned is for the joining call: it shows no certificate and
// requires a coordinator whose CA has the given hash, taken from a token.
func ClientConfigPinned(caHash [32]byte) *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS13,
		InsecureSkipVerify: true, // #nosec G402 -- names are no identity here; VerifyConnection verifies
		NextProtos:         []string{ProtoGRPC},
		VerifyConnection: func(cs tls.ConnectionState) error {
			for _, cert := range cs.PeerCertificates {
				if !SameHash(sha256.Sum256(cert.Raw), caHash) {
					continue
				}
				id, err := caClusterID(cert)
				if err != nil {
					return err
				}
				pool := x509.NewCertPool()
				pool.AddCert(cert)
				return verifyPeer(cs, pool, policy{clusterID: id, roles: []Role{RoleCoordinator}})
			}
			return fmt.Errorf("%w: the server does not show the CA that the token names; is the address that of this cluster's coordinator?", ErrOtherCluster)
		},
	}
}

func baseConfig(src *Source, roles []Role) *tls.Config {
	roles = slices.Clone(roles)
	return &tls.Config{
		MinVersion:         tls.VersionTLS13,
		InsecureSkipVerify: true, // #nosec G402 -- names are no identity here; VerifyConnection verifies
		NextProtos:         []string{ProtoGRPC},
		// A resumed session would outlive a revocation.
		SessionTicketsDisabled: true,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return &src.cur.Load().cert, nil
		},
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return &src.cur.Load().cert, nil
		},
		VerifyConnection: func(cs tls.ConnectionState) error {
			cur := src.cur.Load()
			return verifyPeer(cs, cur.pool, policy{clusterID: cur.who.ClusterID, roles: roles, denied: src.isDenied})
		},
	}
}

// policy is what verifyPeer requires of a peer.
type policy struct {
	clusterID string
	roles     []Role
	denied    DeniedFunc
}

// verifyPeer is the only place where a peer's certificate is judged: chain,
// dates, identity, cluster, role, deny list.
func verifyPeer(cs tls.ConnectionState, pool *x509.CertPool, p policy) error {
	if len(cs.PeerCertificates) == 0 {
		return fmt.Errorf("peer: %w", ErrNoCertificate)
	}
	leaf := cs.PeerCertificates[0]
	now := time.Now()
	_, err := leaf.Verify(x509.VerifyOptions{Roots: pool, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	if err != nil {
		return explain(err, leaf, now)
	}
	who, err := certIdentity(leaf)
	if err != nil {
		return err
	}
	if who.ClusterID != p.clusterID {
		return fmt.Errorf("peer %s: %w: this is cluster %s", who, ErrOtherCluster, p.clusterID)
	}
	if !slices.Contains(p.roles, who.Role) {
		return fmt.Errorf("peer %s: %w: want %s; is the address that of another daemon?", who, ErrWrongRole, orList(p.roles))
	}
	if p.denied != nil && p.denied(who, Serial(leaf)) {
		return fmt.Errorf("peer %s, serial %s: %w; it must join again with a new token", who, Serial(leaf), ErrDenied)
	}
	return nil
}

// explain turns x509's error into one that says what to do.
func explain(err error, leaf *x509.Certificate, now time.Time) error {
	if inv, ok := errors.AsType[x509.CertificateInvalidError](err); ok && inv.Reason == x509.Expired {
		cert := leaf
		if inv.Cert != nil {
			cert = inv.Cert // leaf or CA
		}
		if now.Before(cert.NotBefore) {
			return fmt.Errorf("certificate of %s: %w: valid from %s, the clock here says %s; set the clock of the machine that is wrong",
				describe(cert), ErrNotYetValid, day(cert.NotBefore), day(now))
		}
		return fmt.Errorf("certificate of %s: %w at %s, the clock here says %s; join again with a new token, or set the clock if it is wrong",
			describe(cert), ErrExpired, day(cert.NotAfter), day(now))
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return fmt.Errorf("certificate of %s: %w: our CA did not issue it (issuer %.100q); join this cluster with one of its tokens",
			describe(leaf), ErrOtherCluster, leaf.Issuer.CommonName)
	}
	return fmt.Errorf("certificate of %s: %w", describe(leaf), err)
}

// describe names a certificate whose signature need not be valid, so it quotes.
func describe(cert *x509.Certificate) string {
	if who, err := certIdentity(cert); err == nil {
		return who.String()
	}
	return fmt.Sprintf("%.100q", cert.Subject.CommonName)
}

func orList(roles []Role) string {
	if len(roles) == 0 {
		return "no peer at all"
	}
	names := make([]string, len(roles))
	for i, r := range roles {
		names[i] = string(r)
	}
	return strings.Join(names, " or ")
}
