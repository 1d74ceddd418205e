package tlsconf

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berth-scheduler/berth/cmd/internal/safefile"
)

func testFiles(t *testing.T, m Material) Files {
	t.Helper()
	dir := t.TempDir()
	f := Files{CA: filepath.Join(dir, "ca.crt"), Cert: filepath.Join(dir, "node.crt"), Key: filepath.Join(dir, "node.key")}
	if err := WriteFiles(f, m); err != nil {
		t.Fatal(err)
	}
	return f
}

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

func TestOpenSourceRefuses(t *testing.T) {
	ca := testCA(t, "one")
	good := testMaterial(t, ca, RoleAgent, "n1", 0)
	other := testMaterial(t, testCA(t, "one"), RoleAgent, "n1", 0)
	for _, tc := range []struct {
		name  string
		spoil func(t *testing.T, f Files)
		want  error
		text  string
	}{
		{"key readable by all", func(t *testing.T, f Files) { chmod(t, "", f.Key, 0o604) }, safefile.ErrExposed, "chmod 600"},
		{"no certificate", func(t *testing.T, f Files) { remove(t, "", f.Cert) }, os.ErrNotExist, "node.crt"},
		{"directory", func(t *testing.T, f Files) {
			remove(t, "", f.CA)
			if err := os.Mkdir(f.CA, 0o700); err != nil {
				t.Fatal(err)
			}
		}, safefile.ErrNotRegular, "is a directory"},
		{"CA of another cluster", func(t *testing.T, f Files) { put(t, "", f.CA, string(other.CA)) }, ErrOtherCluster, "join again"},
		{"key of another certificate", func(t *testing.T, f Files) { put(t, "", f.Key, string(other.Key)) }, nil, "the key is not the certificate's"},
		{"text in the certificate's place", func(t *testing.T, f Files) { put(t, "", f.Cert, "hello") }, nil, "holds no certificate"},
		{"too many CAs", func(t *testing.T, f Files) { put(t, "", f.CA, strings.Repeat(string(good.CA), maxBundle+1)) }, nil, "more than 8"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := testFiles(t, good)
			tc.spoil(t, f)
			_, err := OpenSource(f, discard())
			if err == nil || tc.want != nil && !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.text) {
				t.Fatalf("got %v, want %v with %q", err, tc.want, tc.text)
			}
		})
	}
	if err := WriteFiles(Files{}, Material{CA: other.CA, Cert: good.Cert, Key: good.Key}); !errors.Is(err, ErrOtherCluster) {
		t.Errorf("WriteFiles: %v, want ErrOtherCluster before anything is written", err)
	}
}

func TestReload(t *testing.T) {
	ca := testCA(t, "one")
	f := testFiles(t, testMaterial(t, ca, RoleAgent, "n1", time.Hour))
	src, err := OpenSource(f, discard())
	if err != nil {
		t.Fatal(err)
	}
	before := src.NotAfter()

	if err := WriteFiles(f, testMaterial(t, ca, RoleAgent, "n1", 2*time.Hour)); err != nil {
		t.Fatal(err)
	}
	if err := src.Reload(); err != nil {
		t.Fatal(err)
	}
	after := src.NotAfter()
	if !after.After(before) {
		t.Errorf("certificate until %v after the reload, %v before", after, before)
	}

	put(t, "", f.Cert, "spoiled")
	if err := src.Reload(); err == nil || !src.NotAfter().Equal(after) {
		t.Errorf("reload of a spoiled file: %v, until %v: want an error and the old certificate", err, src.NotAfter())
	}
	if err := WriteFiles(f, testMaterial(t, ca, RoleAgent, "n2", 0)); err != nil {
		t.Fatal(err)
	}
	if err := src.Reload(); !errors.Is(err, ErrBadIdentity) || src.Identity().ID != "n1" {
		t.Errorf("reload of another node's certificate: %v, now %v", err, src.Identity())
	}
}

// TestRunRenewsAtOneThird: a week of virtual time, with a coordinator that is
// away at first.
func TestRunRenewsAtOneThird(t *testing.T) {
	f := Files{} // written inside the bubble, whose clock dates the certificates
	synctest.Test(t, func(t *testing.T) {
		ca := testCA(t, "one")
		f = testFiles(t, testMaterial(t, ca, RoleAgent, "n1", 7*24*time.Hour))
		var buf bytes.Buffer
		src, err := OpenSource(f, logTo(&buf))
		if err != nil {
			t.Fatal(err)
		}
		start, want := time.Now(), src.RenewAt()
		var asked []time.Duration
		renew := func(_ context.Context, csr []byte) ([]byte, []byte, error) {
			asked = append(asked, time.Since(start))
			if len(asked) < 4 {
				return nil, nil, errors.New("coordinator away")
			}
			cert, err := ca.Sign(csr, RoleAgent, "n1", 7*24*time.Hour)
			return cert, nil, err
		}
		cause := errors.New("test is over")
		ctx, cancel := context.WithCancelCause(t.Context())
		done := make(chan error, 1)
		go func() { done <- src.Run(ctx, renew) }()

		time.Sleep(6 * 24 * time.Hour)
		synctest.Wait()
		cancel(cause)
		if err := <-done; !errors.Is(err, cause) {
			t.Errorf("Run: %v, want the cause", err)
		}
		if len(asked) != 4 {
			t.Fatalf("asked %d times, at %v, want 3 failures and a success", len(asked), asked)
		}
		if first := asked[0]; first != want.Sub(start) || first < 4*24*time.Hour || first > 5*24*time.Hour {
			t.Errorf("first asked after %v, want at %v", first, want.Sub(start))
		}
		if gap := asked[3] - asked[0]; gap < 30*time.Second || gap > 5*time.Minute {
			t.Errorf("three retries took %v", gap)
		}
		if left := time.Until(src.NotAfter()); left < 5*24*time.Hour {
			t.Errorf("certificate has %v left after the renewal", left)
		}
		if log := buf.String(); strings.Count(log, "not renewed") != 3 || !strings.Contains(log, "certificate renewed") {
			t.Errorf("log: %s", log)
		}
	})
	if f.Cert == "" {
		t.Fatal("the bubble did not run")
	}
}

func TestRenewStoresAndKeepsTheKey(t *testing.T) {
	ca := testCA(t, "one")
	f := testFiles(t, testMaterial(t, ca, RoleAgent, "n1", time.Hour))
	key, err := os.ReadFile(f.Key)
	if err != nil {
		t.Fatal(err)
	}
	src, err := OpenSource(f, discard())
	if err != nil {
		t.Fatal(err)
	}
	next := testCA(t, "one") // the cluster is changing its CA
	bundle := append(next.CertPEM(), ca.CertPEM()...)
	err = src.Renew(t.Context(), func(_ context.Context, csr []byte) ([]byte, []byte, error) {
		cert, err := next.Sign(csr, RoleAgent, "n1", 2*time.Hour)
		return cert, bundle, err
	})
	if err != nil {
		t.Fatal(err)
	}
	again, err := OpenSource(f, discard())
	if err != nil {
		t.Fatalf("open after the renewal: %v", err)
	}
	if !again.NotAfter().Equal(src.NotAfter()) || !bytes.Equal(again.CAPEM(), bundle) {
		t.Error("the files differ from what is in use")
	}
	if now, err := os.ReadFile(f.Key); err != nil || !bytes.Equal(now, key) {
		t.Errorf("the key changed (%v)", err)
	}
	// While the change goes on, those who trust both get on with everyone.
	for name, issuer := range map[string]*CA{"old": ca, "new": next} {
		m := testMaterial(t, issuer, RoleCoordinator, "c1", 0)
		m.CA = bundle
		server, err := NewSource(m, discard())
		if err != nil {
			t.Fatal(err)
		}
		if _, clientErr, err := handshake(t, ClientConfig(src, RoleCoordinator), ServerConfig(server, RoleAgent)); err != nil || clientErr != nil {
			t.Errorf("server of the %s CA: %v, client: %v", name, err, clientErr)
		}
	}
}

func TestRenewRefusesAnothersCertificate(t *testing.T) {
	ca := testCA(t, "one")
	src := testSource(t, ca, RoleAgent, "n1")
	before := src.NotAfter()
	for name, renew := range map[string]RenewFunc{
		"other node": func(_ context.Context, csr []byte) ([]byte, []byte, error) {
			cert, err := ca.Sign(csr, RoleAgent, "n2", 0)
			return cert, nil, err
		},
		"other CA": func(_ context.Context, csr []byte) ([]byte, []byte, error) {
			cert, err := testCA(t, "one").Sign(csr, RoleAgent, "n1", 0)
			return cert, nil, err
		},
		"other key": func(context.Context, []byte) ([]byte, []byte, error) {
			return testMaterial(t, ca, RoleAgent, "n1", 0).Cert, nil, nil
		},
		"nothing": func(context.Context, []byte) ([]byte, []byte, error) { return nil, nil, nil },
	} {
		if err := src.Renew(t.Context(), renew); err == nil || !src.NotAfter().Equal(before) || src.Identity().ID != "n1" {
			t.Errorf("%s: %v, now %v until %v", name, err, src.Identity(), src.NotAfter())
		}
	}
}

// TestSourceConcurrently is for the race detector: handshakes go on while
// certificates change.
func TestSourceConcurrently(t *testing.T) {
	ca := testCA(t, "one")
	server, client := testSource(t, ca, RoleCoordinator, "c1"), testSource(t, ca, RoleAgent, "n1")
	renewer := func(role Role, id string) RenewFunc {
		return func(_ context.Context, csr []byte) ([]byte, []byte, error) {
			cert, err := ca.Sign(csr, role, id, time.Hour)
			return cert, nil, err
		}
	}
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			if _, clientErr, err := handshake(t, ClientConfig(client, RoleCoordinator), ServerConfig(server, RoleAgent)); err != nil || clientErr != nil {
				t.Errorf("server %v, client %v", err, clientErr)
			}
		})
		wg.Go(func() {
			if err := errors.Join(server.Renew(t.Context(), renewer(RoleCoordinator, "c1")), client.Renew(t.Context(), renewer(RoleAgent, "n1"))); err != nil {
				t.Error(err)
			}
			server.Deny(func(Identity, string) bool { return false })
		})
	}
	wg.Wait()
}

// FuzzMaterial: no bytes from a disk or a coordinator make the parser panic or
// take a certificate that names nobody.
func FuzzMaterial(f *testing.F) {
	good := testMaterial(f, testCA(f, "one"), RoleAgent, "n1", 0)
	f.Add(good.CA, good.Cert)
	f.Add(good.Cert, good.CA)
	f.Add([]byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), []byte{})
	f.Fuzz(func(t *testing.T, ca, cert []byte) {
		src, err := NewSource(Material{CA: ca, Cert: cert, Key: good.Key}, discard())
		if err == nil && src.Identity().Validate() != nil {
			t.Fatalf("accepted as %v", src.Identity())
		}
	})
}

// TestConfigFollowsRenewal: a config made before a renewal shows the
// certificate made after it.
func TestConfigFollowsRenewal(t *testing.T) {
	ca := testCA(t, "one")
	server, client := testSource(t, ca, RoleCoordinator, "c1"), testSource(t, ca, RoleAgent, "n1")
	scfg := ServerConfig(server, RoleAgent)
	serial := func() string {
		var shown *x509.Certificate
		ccfg := ClientConfig(client, RoleCoordinator)
		verify := ccfg.VerifyConnection
		ccfg.VerifyConnection = func(cs tls.ConnectionState) error {
			shown = cs.PeerCertificates[0]
			return verify(cs)
		}
		if _, clientErr, err := handshake(t, ccfg, scfg); err != nil || clientErr != nil {
			t.Fatalf("server %v, client %v", err, clientErr)
		}
		return Serial(shown)
	}
	before := serial()
	err := server.Renew(t.Context(), func(_ context.Context, csr []byte) ([]byte, []byte, error) {
		cert, err := ca.Sign(csr, RoleCoordinator, "c1", time.Hour)
		return cert, nil, err
	})
	if err != nil {
		t.Fatal(err)
	}
	if after := serial(); after == before {
		t.Error("the old certificate is still shown")
	}
}

// TestTheCAIsReplacedStepByStep: daemons that are at most one step apart get on with
// each other, and those of the first and the last do not.
func TestTheCAIsReplacedStepByStep(t *testing.T) {
	was, is := testCA(t, "one"), testCA(t, "one")
	both := append(was.CertPEM(), is.CertPEM()...)
	steps := []struct {
		issuer *CA
		trusts []byte
	}{{was, was.CertPEM()}, {was, both}, {is, both}, {is, is.CertPEM()}}
	at := func(step int, role Role, id string) *Source {
		m := testMaterial(t, steps[step].issuer, role, id, 0)
		m.CA = steps[step].trusts
		src, err := NewSource(m, discard())
		if err != nil {
			t.Fatal(err)
		}
		return src
	}
	for i := range steps {
		for j := range steps {
			_, clientErr, serverErr := handshake(t, ClientConfig(at(i, RoleAgent, "n1"), RoleCoordinator), ServerConfig(at(j, RoleCoordinator, "c1"), RoleAgent))
			ok := clientErr == nil && serverErr == nil
			if near := i-j <= 1 && j-i <= 1; near && !ok || i-j == 3 && ok || j-i == 3 && ok {
				t.Errorf("an agent at step %d and a coordinator at step %d: %v, %v", i+1, j+1, clientErr, serverErr)
			}
		}
	}
	for _, bundle := range [][]byte{append(was.CertPEM(), is.CertPEM()...), append(is.CertPEM(), was.CertPEM()...)} {
		key := map[bool]*CA{true: was, false: is}[bytes.HasPrefix(bundle, was.CertPEM())]
		dir := t.TempDir()
		if err := key.Save(dir); err != nil {
			t.Fatal(err)
		}
		keyPEM, err := os.ReadFile(filepath.Join(dir, caKeyFile))
		if err != nil {
			t.Fatal(err)
		}
		if ca, err := ParseCA(bundle, keyPEM); err != nil || ca.Hash() != key.Hash() {
			t.Errorf("the first of two is not the one to issue from: %v", err)
		}
	}
}
