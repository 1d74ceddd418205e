package tlsconf

import (
	"cmp"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/safefile"
)

// How long certificates live, and how far they are backdated so that a peer
// whose clock is a little slow accepts a fresh one.
const (
	CALife       = 10 * 365 * 24 * time.Hour
	DefaultTTL   = 7 * 24 * time.Hour
	MaxTTL       = 90 * 24 * time.Hour
	clockSlack   = 5 * time.Minute
	maxPEMBytes  = 64 << 10
	caCertFile   = "ca.crt"
	caKeyFile    = "ca.key"
	certMode     = fs.FileMode(0o644)
	keyMode      = fs.FileMode(0o600)
	caFolderMode = fs.FileMode(0o700)
)

// CA is the cluster's certificate authority. It is safe for concurrent use as
// long as Now is not changed.
type CA struct {
	// Now is the clock that dates certificates; nil means time.Now.
	Now func() time.Time

	clusterID string
	cert      *x509.Certificate
	key       crypto.Signer
}

// NewCA makes an authority with a fresh P-256 key, valid for CALife from now.
// Nothing is written until Save.
func NewCA(clusterID string, now time.Time) (*CA, error) {
	if err := cluster.CheckName("cluster id", clusterID); err != nil {
		return nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make CA key: %w", err)
	}
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	tmpl := &x509.Certificate{
		SerialNumber: serial,
		// The name is for people who read the file; nothing trusts it.
		Subject:               pkix.Name{CommonName: "Berth CA " + clusterID},
		URIs:                  []*url.URL{{Scheme: "spiffe", Host: clusterID}},
		NotBefore:             now.Add(-clockSlack),
		NotAfter:              now.Add(CALife),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		IsCA:                  true,
		BasicConstraintsValid: true,
		MaxPathLenZero:        true,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("sign CA certificate: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("read back CA certificate: %w", err)
	}
	return &CA{clusterID: clusterID, cert: cert, key: key}, nil
}

// ParseCA returns the authority from its certificate and key in PEM.
func ParseCA(certPEM, keyPEM []byte) (*CA, error) {
	certs, err := parseCerts(certPEM)
	if err != nil {
		return nil, fmt.Errorf("CA certificate: %w", err)
	}
	key, err := parseKey(keyPEM)
	if err != nil {
		return nil, fmt.Errorf("CA key: %w", err)
	}
	cert := certs[0]
	if err := matchKey(cert, key); err != nil {
		return nil, fmt.Errorf("CA certificate and key: %w", err)
	}
	clusterID, err := caClusterID(cert)
	if err != nil {
		return nil, err
	}
	return &CA{clusterID: clusterID, cert: cert, key: key}, nil
}

// LoadCA reads an authority's certificate and key. A key that others can read
// is refused with an error that matches safefile.ErrExposed and names the
// fix. If the certificate file holds several, the first is the one to issue
// from.
func LoadCA(certPath, keyPath string) (*CA, error) {
	certPEM, err := safefile.Read(certPath, maxPEMBytes)
	if err != nil {
		return nil, fmt.Errorf("CA certificate: %w", err)
	}
	keyPEM, err := safefile.ReadSecret(keyPath, maxPEMBytes)
	if err != nil {
		return nil, fmt.Errorf("CA key: %w", err)
	}
	ca, err := ParseCA(certPEM, keyPEM)
	if err != nil {
		return nil, fmt.Errorf("load CA from %s and %s: %w", certPath, keyPath, err)
	}
	return ca, nil
}

// Save writes ca.crt (0644) and ca.key (0600) into dir, which it creates
// (0700) if missing. It never overwrites: losing a CA's key cuts off every
// node of the cluster.
func (ca *CA) Save(dir string) error {
	if err := os.MkdirAll(dir, caFolderMode); err != nil {
		return fmt.Errorf("save CA: %w", err)
	}
	for _, name := range []string{caKeyFile, caCertFile} {
		path := filepath.Join(dir, name)
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("save CA: %s: %w; a CA is never overwritten, choose an empty folder", path, fs.ErrExist)
		}
	}
	keyPEM, err := marshalKey(ca.key)
	if err != nil {
		return err
	}
	if err := safefile.Replace(filepath.Join(dir, caKeyFile), keyPEM, keyMode); err != nil {
		return fmt.Errorf("save CA: %w", err)
	}
	if err := safefile.Replace(filepath.Join(dir, caCertFile), ca.CertPEM(), certMode); err != nil {
		return fmt.Errorf("save CA: %w", err)
	}
	return nil
}

// ClusterID returns the id of the authority's cluster.
func (ca *CA) ClusterID() string { return ca.clusterID }

// CertPEM returns the authority's certificate.
func (ca *CA) CertPEM() []byte { return marshalCert(ca.cert.Raw) }

// Hash returns the SHA-256 of the authority's certificate, which join tokens
// carry.
func (ca *CA) Hash() [32]byte { return sha256.Sum256(ca.cert.Raw) }

// Issue signs a certificate for the given role and id and returns it in PEM.
// pub must be an ECDSA P-256 or Ed25519 key; ttl is between a minute and
// MaxTTL, zero means DefaultTTL.
func (ca *CA) Issue(role Role, id string, pub crypto.PublicKey, ttl time.Duration) ([]byte, error) {
	who := Identity{ClusterID: ca.clusterID, Role: role, ID: id}
	if err := who.Validate(); err != nil {
		return nil, err
	}
	if err := checkPublicKey(pub); err != nil {
		return nil, fmt.Errorf("issue %s: %w", who, err)
	}
	ttl = cmp.Or(ttl, DefaultTTL)
	if ttl < time.Minute || ttl > MaxTTL {
		return nil, fmt.Errorf("issue %s: life of %v: want 1m to %v", who, ttl, MaxTTL)
	}
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	now := ca.now()
	notAfter := now.Add(ttl)
	if notAfter.After(ca.cert.NotAfter) {
		// A leaf cannot outlive its issuer; a clear date beats a sudden end.
		notAfter = ca.cert.NotAfter
	}
	if !notAfter.After(now) {
		return nil, fmt.Errorf("issue %s: %w: the CA itself ended at %s; make a new CA with: berth cluster init", who, ErrExpired, day(ca.cert.NotAfter))
	}
	tmpl := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: string(role) + " " + id},
		URIs:                  []*url.URL{who.uri()},
		NotBefore:             now.Add(-clockSlack),
		NotAfter:              notAfter,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, ca.cert, pub, ca.key)
	if err != nil {
		return nil, fmt.Errorf("issue %s: %w", who, err)
	}
	return marshalCert(der), nil
}

// Sign issues a certificate for the key in a request in DER. Everything else
// in the request, names and extensions alike, is ignored: the caller decides
// who may be what.
func (ca *CA) Sign(csrDER []byte, role Role, id string, ttl time.Duration) ([]byte, error) {
	csr, err := x509.ParseCertificateRequest(csrDER)
	if err != nil {
		return nil, fmt.Errorf("certificate request of %s %q: %w", role, id, err)
	}
	if err := csr.CheckSignature(); err != nil {
		return nil, fmt.Errorf("certificate request of %s %q: %w", role, id, err)
	}
	return ca.Issue(role, id, csr.PublicKey, ttl)
}

func (ca *CA) now() time.Time {
	if ca.Now != nil {
		return ca.Now()
	}
	return time.Now()
}

func caClusterID(cert *x509.Certificate) (string, error) {
	if !cert.IsCA || len(cert.URIs) != 1 || cert.URIs[0].Scheme != "spiffe" {
		return "", fmt.Errorf("%w: this is not a Berth CA certificate", ErrBadIdentity)
	}
	id := cert.URIs[0].Host
	if err := cluster.CheckName("cluster id", id); err != nil {
		return "", err
	}
	return id, nil
}

func checkPublicKey(pub crypto.PublicKey) error {
	switch k := pub.(type) {
	case *ecdsa.PublicKey:
		if k.Curve == elliptic.P256() {
			return nil
		}
	case ed25519.PublicKey:
		return nil
	}
	return fmt.Errorf("key of type %T: want ECDSA P-256 or Ed25519", pub)
}

func newSerial() (*big.Int, error) {
	// 127 random bits: positive in the 20 bytes that RFC 5280 §4.1.2.2 allows.
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("make serial number: %w", err)
	}
	return n.Add(n, big.NewInt(1)), nil
}

func day(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 MST") }
