package tlsconf

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/cmd/internal/safefile"
)

func TestCASaveAndLoad(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ca")
	ca := testCA(t, "hpc")
	if err := ca.Save(dir); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]fs.FileMode{".": 0o700, "ca.key": 0o600, "ca.crt": 0o644} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: mode %v, %v, want %04o", name, info.Mode(), err, want)
		}
	}
	loaded, err := LoadCA(filepath.Join(dir, caCertFile), filepath.Join(dir, caKeyFile))
	if err != nil {
		t.Fatal(err)
	}
	if loaded.Hash() != ca.Hash() || loaded.ClusterID() != "hpc" {
		t.Errorf("loaded CA of %q differs from the saved one", loaded.ClusterID())
	}
	// What the loaded CA signs, holders of the old certificate trust.
	m := testMaterial(t, loaded, RoleAgent, "n1", 0)
	m.CA = ca.CertPEM()
	if _, err := NewSource(m, logTo(new(bytes.Buffer))); err != nil {
		t.Errorf("certificate of the loaded CA: %v", err)
	}
	if err := ca.Save(dir); !errors.Is(err, fs.ErrExist) {
		t.Errorf("second Save: %v, want a refusal to overwrite", err)
	}
}

func TestLoadCARefuses(t *testing.T) {
	for _, tc := range []struct {
		name  string
		spoil func(t *testing.T, dir string)
		want  error
		text  string
	}{
		{"key readable by all", func(t *testing.T, dir string) { chmod(t, dir, "ca.key", 0o644) }, safefile.ErrExposed, "chmod 600"},
		{"key readable by the group", func(t *testing.T, dir string) { chmod(t, dir, "ca.key", 0o640) }, safefile.ErrExposed, "chmod 600"},
		{"no key", func(t *testing.T, dir string) { remove(t, dir, "ca.key") }, fs.ErrNotExist, "CA key"},
		{"no certificate", func(t *testing.T, dir string) { remove(t, dir, "ca.crt") }, fs.ErrNotExist, "CA certificate"},
		{"key of another CA", func(t *testing.T, dir string) {
			other := filepath.Join(t.TempDir(), "other")
			if err := testCA(t, "hpc").Save(other); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(filepath.Join(other, "ca.key"), filepath.Join(dir, "ca.key")); err != nil {
				t.Fatal(err)
			}
		}, nil, "the key is not the certificate's"},
		{"certificate empty", func(t *testing.T, dir string) { put(t, dir, "ca.crt", "") }, nil, "holds no certificate"},
		{"key in the certificate's place", func(t *testing.T, dir string) {
			key, err := os.ReadFile(filepath.Join(dir, "ca.key"))
			if err != nil {
				t.Fatal(err)
			}
			put(t, dir, "ca.crt", string(key))
		}, nil, `PEM block "PRIVATE KEY"`},
		{"leaf in the CA's place", func(t *testing.T, dir string) {
			m := testMaterial(t, testCA(t, "hpc"), RoleAgent, "n1", 0)
			put(t, dir, "ca.crt", string(m.Cert))
			put(t, dir, "ca.key", string(m.Key))
		}, ErrBadIdentity, "not a Berth CA"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			if err := testCA(t, "hpc").Save(dir); err != nil {
				t.Fatal(err)
			}
			tc.spoil(t, dir)
			_, err := LoadCA(filepath.Join(dir, caCertFile), filepath.Join(dir, caKeyFile))
			if err == nil || tc.want != nil && !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.text) {
				t.Fatalf("got %v, want %v with %q", err, tc.want, tc.text)
			}
		})
	}
}

func chmod(t *testing.T, dir, name string, mode fs.FileMode) {
	t.Helper()
	if err := os.Chmod(filepath.Join(dir, name), mode); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, dir, name string) {
	t.Helper()
	if err := os.Remove(filepath.Join(dir, name)); err != nil {
		t.Fatal(err)
	}
}

func put(t *testing.T, dir, name, content string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestIssueRefuses(t *testing.T) {
	ca := testCA(t, "hpc")
	good, _, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	weak, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	odd, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name string
		role Role
		id   string
		pub  any
		ttl  time.Duration
		text string
	}{
		{"empty id", RoleAgent, "", good, 0, "id"},
		{"id with a slash", RoleAgent, "n1/../c1", good, 0, "id"},
		{"unknown role", "root", "n1", good, 0, "none of coordinator, agent, gate"},
		{"RSA key", RoleAgent, "n1", weak.Public(), 0, "want ECDSA P-256 or Ed25519"},
		{"other curve", RoleAgent, "n1", odd.Public(), 0, "want ECDSA P-256 or Ed25519"},
		{"no key", RoleAgent, "n1", nil, 0, "want ECDSA P-256 or Ed25519"},
		{"life of a second", RoleAgent, "n1", good, time.Second, "want 1m"},
		{"negative life", RoleAgent, "n1", good, -time.Hour, "want 1m"},
		{"life of a year", RoleAgent, "n1", good, 365 * 24 * time.Hour, "2160h"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if _, err := ca.Issue(tc.role, tc.id, tc.pub, tc.ttl); err == nil || !strings.Contains(err.Error(), tc.text) {
				t.Fatalf("got %v, want an error with %q", err, tc.text)
			}
		})
	}
	if _, err := NewCA("Upper Case", time.Now()); err == nil {
		t.Error("NewCA took a cluster id with a space")
	}
}

// TestSignIgnoresTheRequestsNames: a node that asks to be a coordinator, or a
// CA, stays what its token says.
func TestSignIgnoresTheRequestsNames(t *testing.T) {
	ca := testCA(t, "hpc")
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	csr, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject:     pkix.Name{CommonName: "coordinator c1"},
		URIs:        []*url.URL{mustURI(t, "spiffe://hpc/coordinator/c1"), mustURI(t, "spiffe://hpc/agent/n2")},
		DNSNames:    []string{"c1"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		// basicConstraints: CA true.
		ExtraExtensions: []pkix.Extension{{Id: []int{2, 5, 29, 19}, Critical: true, Value: []byte{0x30, 3, 1, 1, 0xff}}},
	}, key)
	if err != nil {
		t.Fatal(err)
	}
	certPEM, err := ca.Sign(csr, RoleAgent, "n1", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	certs, err := parseCerts(certPEM)
	if err != nil {
		t.Fatal(err)
	}
	who, err := certIdentity(certs[0])
	if err != nil || who != (Identity{"hpc", RoleAgent, "n1"}) {
		t.Errorf("certificate names %v, %v", who, err)
	}
	if certs[0].IsCA || len(certs[0].DNSNames) != 0 || certs[0].KeyUsage&x509.KeyUsageCertSign != 0 {
		t.Errorf("the request's extensions came through: CA %v, DNS %v", certs[0].IsCA, certs[0].DNSNames)
	}
	if life := certs[0].NotAfter.Sub(certs[0].NotBefore); life != time.Hour+clockSlack {
		t.Errorf("life %v, want 1h and the slack", life)
	}
}

func TestSignChecksThatTheKeyIsHeld(t *testing.T) {
	ca := testCA(t, "hpc")
	_, csr, err := NewKeyAndCSR()
	if err != nil {
		t.Fatal(err)
	}
	spoiled := append([]byte(nil), csr...)
	spoiled[len(spoiled)-1] ^= 1
	for name, der := range map[string][]byte{"signature": spoiled, "truncated": csr[:40], "empty": nil, "trailing": append(csr, 0)} {
		if _, err := ca.Sign(der, RoleAgent, "n1", 0); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func FuzzSign(f *testing.F) {
	ca := testCA(f, "hpc")
	_, csr, err := NewKeyAndCSR()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(csr)
	f.Add(csr[:len(csr)/2])
	f.Add([]byte{0x30, 0x80})
	f.Fuzz(func(t *testing.T, der []byte) {
		certPEM, err := ca.Sign(der, RoleAgent, "n1", time.Hour)
		if err != nil {
			return
		}
		certs, err := parseCerts(certPEM)
		if err != nil {
			t.Fatal(err)
		}
		if who, err := certIdentity(certs[0]); err != nil || who.ID != "n1" || certs[0].IsCA {
			t.Fatalf("%v, %v, CA %v", who, err, certs[0].IsCA)
		}
	})
}
