package tlsconf

import (
	"context"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/berth-scheduler/berth/cmd/internal/safefile"
)

// Files names where a daemon keeps its certificate, its key and the CA's
// certificate (several while a CA is being replaced).
type Files struct {
	CA, Cert, Key string
}

// Material is what a Source presents and trusts, all in PEM.
type Material struct {
	CA, Cert, Key []byte
}

// RenewFunc asks the cluster for a new certificate for the key in csrDER. It
// returns the certificate and, if the CA changed, the CA's certificates in
// PEM; caPEM nil keeps the old ones.
type RenewFunc func(ctx context.Context, csrDER []byte) (certPEM, caPEM []byte, err error)

// DeniedFunc reports whether the cluster has revoked a certificate, by its
// holder or by its serial number in hexadecimal. It is called within
// handshakes and must neither block nor call back into this package.
type DeniedFunc func(who Identity, serial string) bool

// Source holds a daemon's certificate and its trust, and keeps both fresh.
// Configurations made from it follow every change from the next handshake
// on. It is safe for concurrent use.
type Source struct {
	files Files // zero for a Source in memory
	log   *slog.Logger

	mu     sync.Mutex // serializes changes
	cur    atomic.Pointer[credential]
	denied atomic.Pointer[DeniedFunc]
}

// credential is immutable.
type credential struct {
	who  Identity
	leaf *x509.Certificate
	key  crypto.Signer
	cert tls.Certificate
	pool *x509.CertPool
	pem  Material
}

// OpenSource returns a Source from files. It fails unless the certificate was
// issued by the CA to the key, which must be closed to others, and names one
// identity; dates are not checked, so that an expired daemon can start and
// explain itself.
func OpenSource(f Files, log *slog.Logger) (*Source, error) {
	s := &Source{files: f, log: log}
	if err := s.Reload(); err != nil {
		return nil, err
	}
	return s, nil
}

// NewSource returns a Source in memory, checked as OpenSource does.
func NewSource(m Material, log *slog.Logger) (*Source, error) {
	c, err := parseCredential(m)
	if err != nil {
		return nil, err
	}
	s := &Source{log: log}
	s.cur.Store(c)
	return s, nil
}

// Reload rereads the files. On an error the old material stays complete. A
// Source in memory has nothing to reload.
func (s *Source) Reload() error {
	if s.files == (Files{}) {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	m, err := readMaterial(s.files)
	if err != nil {
		return err
	}
	c, err := parseCredential(m)
	if err != nil {
		return fmt.Errorf("%s, %s, %s: %w", s.files.CA, s.files.Cert, s.files.Key, err)
	}
	return s.swap(c)
}

// WriteFiles stores fresh material, as received when joining a cluster: key
// 0600, certificates 0644, each replaced as a whole, the certificate last.
func WriteFiles(f Files, m Material) error {
	if _, err := parseCredential(m); err != nil {
		return err
	}
	if err := safefile.Replace(f.Key, m.Key, keyMode); err != nil {
		return fmt.Errorf("store key: %w", err)
	}
	if err := safefile.Replace(f.CA, m.CA, certMode); err != nil {
		return fmt.Errorf("store CA certificate: %w", err)
	}
	if err := safefile.Replace(f.Cert, m.Cert, certMode); err != nil {
		return fmt.Errorf("store certificate: %w", err)
	}
	return nil
}

// Identity returns the Source's identity; it never changes.
func (s *Source) Identity() Identity { return s.cur.Load().who }

// NotAfter returns when the current certificate expires.
func (s *Source) NotAfter() time.Time { return s.cur.Load().leaf.NotAfter }

// CAPEM returns the trusted CA certificates.
func (s *Source) CAPEM() []byte { return s.cur.Load().pem.CA }

// Deny sets the deny list that each later handshake consults; nil denies nobody.
func (s *Source) Deny(f DeniedFunc) {
	if f == nil {
		s.denied.Store(nil)
		return
	}
	s.denied.Store(&f)
}

func (s *Source) isDenied(who Identity, serial string) bool {
	f := s.denied.Load()
	return f != nil && (*f)(who, serial)
}

// RenewAt returns when a third of the certificate's life is left.
func (s *Source) RenewAt() time.Time {
	leaf := s.cur.Load().leaf
	return leaf.NotAfter.Add(-leaf.NotAfter.Sub(leaf.NotBefore) / 3)
}

// Run renews the certificate whenever a third of its life is left, until ctx
// ends; it returns ctx's cause. Failed renewals are logged and retried after
// 10 s, then ever longer, at most 15 minutes, each with jitter so that nodes
// that started together do not ask together.
func (s *Source) Run(ctx context.Context, renew RenewFunc) error {
	const first, longest = 10 * time.Second, 15 * time.Minute
	backoff := first
	for {
		wait := time.Until(s.RenewAt())
		if wait <= 0 {
			err := s.Renew(ctx, renew)
			switch {
			case err == nil:
				backoff = first
				s.log.Info("certificate renewed", "until", s.NotAfter())
			case ctx.Err() == nil:
				s.log.Warn("certificate not renewed, will try again", "err", err, "until", s.NotAfter(), "dur", backoff)
			}
			wait = backoff/2 + rand.N(backoff) // #nosec G404 -- spreads many; also bounds the rate when a peer issues short lives
			if err != nil {
				backoff = min(2*backoff, longest)
			}
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		case <-timer.C:
		}
	}
}

// Renew requests a new certificate at once and swaps it in; on an error the
// old one stays. The key stays the same, so that a crash between writing two
// files cannot leave a certificate without its key.
func (s *Source) Renew(ctx context.Context, renew RenewFunc) error {
	old := s.cur.Load()
	csr, err := newCSR(old.key)
	if err != nil {
		return err
	}
	certPEM, caPEM, err := renew(ctx, csr)
	if err != nil {
		return fmt.Errorf("renew certificate of %s: %w", old.who, err)
	}
	m := Material{CA: old.pem.CA, Cert: certPEM, Key: old.pem.Key}
	if caPEM != nil {
		m.CA = caPEM
	}
	c, err := parseCredential(m)
	if err != nil {
		return fmt.Errorf("renewed certificate of %s: %w", old.who, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.who != old.who {
		return fmt.Errorf("renewed certificate names %s instead of %s: %w", c.who, old.who, ErrBadIdentity)
	}
	if s.files != (Files{}) {
		if err := s.store(m); err != nil {
			return err
		}
	}
	return s.swap(c)
}

// store writes what a renewal changed, the CA first: a bundle that trusts the
// new issuer and an old certificate work together, the reverse need not.
func (s *Source) store(m Material) error {
	if err := safefile.Replace(s.files.CA, m.CA, certMode); err != nil {
		return fmt.Errorf("store CA certificate: %w", err)
	}
	if err := safefile.Replace(s.files.Cert, m.Cert, certMode); err != nil {
		return fmt.Errorf("store certificate: %w", err)
	}
	return nil
}

// swap is called with mu held, or before the Source is shared.
func (s *Source) swap(c *credential) error {
	if old := s.cur.Load(); old != nil && old.who != c.who {
		return fmt.Errorf("new certificate names %s, this daemon is %s: %w; restart it to change who it is", c.who, old.who, ErrBadIdentity)
	}
	s.cur.Store(c)
	return nil
}

func readMaterial(f Files) (m Material, err error) {
	if m.CA, err = safefile.Read(f.CA, maxPEMBytes); err != nil {
		return m, fmt.Errorf("CA certificate: %w", err)
	}
	if m.Cert, err = safefile.Read(f.Cert, maxPEMBytes); err != nil {
		return m, fmt.Errorf("certificate: %w", err)
	}
	if m.Key, err = safefile.ReadSecret(f.Key, maxPEMBytes); err != nil {
		return m, fmt.Errorf("key: %w", err)
	}
	return m, nil
}

func parseCredential(m Material) (*credential, error) {
	cas, err := parseCerts(m.CA)
	if err != nil {
		return nil, fmt.Errorf("CA certificate: %w", err)
	}
	leafs, err := parseCerts(m.Cert)
	if err != nil {
		return nil, fmt.Errorf("certificate: %w", err)
	}
	key, err := parseKey(m.Key)
	if err != nil {
		return nil, fmt.Errorf("key: %w", err)
	}
	c := &credential{leaf: leafs[0], key: key, pool: x509.NewCertPool(), pem: m}
	if err := matchKey(c.leaf, key); err != nil {
		return nil, err
	}
	if c.who, err = certIdentity(c.leaf); err != nil {
		return nil, err
	}
	issuer, err := addCAs(c.pool, cas, c.leaf)
	if err != nil {
		return nil, err
	}
	// The handshake includes the issuer for joining peers, which know only its hash.
	c.cert = tls.Certificate{Certificate: [][]byte{c.leaf.Raw, issuer.Raw}, PrivateKey: key, Leaf: c.leaf}
	return c, nil
}

// addCAs fills the pool and returns the one that issued leaf.
func addCAs(pool *x509.CertPool, cas []*x509.Certificate, leaf *x509.Certificate) (*x509.Certificate, error) {
	var issuer *x509.Certificate
	for _, ca := range cas {
		if _, err := caClusterID(ca); err != nil {
			return nil, fmt.Errorf("CA certificate: %w", err)
		}
		pool.AddCert(ca)
		if leaf.CheckSignatureFrom(ca) == nil {
			issuer = ca
		}
	}
	if issuer == nil {
		return nil, errors.Join(ErrOtherCluster, errors.New("the CA file did not issue the certificate; put the cluster's ca.crt there, or join again"))
	}
	return issuer, nil
}
