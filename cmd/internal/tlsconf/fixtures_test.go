package tlsconf

import (
	"bytes"
	"crypto/rand"
	"crypto/x509"
	"log/slog"
	"net/url"
	"testing"
	"time"
)

// testCA makes a CA whose certificates are dated by now.
func testCA(t testing.TB, clusterID string) *CA {
	t.Helper()
	ca, err := NewCA(clusterID, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

func testMaterial(t testing.TB, ca *CA, role Role, id string, ttl time.Duration) Material {
	t.Helper()
	key, csr, err := NewKeyAndCSR()
	if err != nil {
		t.Fatal(err)
	}
	cert, err := ca.Sign(csr, role, id, ttl)
	if err != nil {
		t.Fatal(err)
	}
	return Material{CA: ca.CertPEM(), Cert: cert, Key: key}
}

func testSource(t testing.TB, ca *CA, role Role, id string) *Source {
	t.Helper()
	src, err := NewSource(testMaterial(t, ca, role, id, 0), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return src
}

// forge makes a credential of ca with names that Issue would refuse, past the
// checks of NewSource.
func forge(t testing.TB, ca *CA, change func(*x509.Certificate)) *Source {
	t.Helper()
	src := testSource(t, ca, RoleAgent, "forged")
	cur := *src.cur.Load()
	tmpl := *cur.leaf
	change(&tmpl)
	tmpl.ExtraExtensions = nil
	der, err := x509.CreateCertificate(rand.Reader, &tmpl, ca.cert, cur.key.Public(), ca.key)
	if err != nil {
		t.Fatal(err)
	}
	if cur.leaf, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	cur.cert.Certificate = [][]byte{der, ca.cert.Raw}
	cur.cert.Leaf = cur.leaf
	src.cur.Store(&cur)
	return src
}

func mustURI(t testing.TB, s string) *url.URL {
	t.Helper()
	u, err := url.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// logTo returns a logger for tests that read what was logged.
func logTo(buf *bytes.Buffer) *slog.Logger { return slog.New(slog.NewTextHandler(buf, nil)) }
