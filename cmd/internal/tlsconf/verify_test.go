package tlsconf

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// handshake connects client and server over loopback and returns what each
// side's handshake, and then a byte each way, came to.
func handshake(t *testing.T, client, server *tls.Config) (state tls.ConnectionState, clientErr, serverErr error) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	type result struct {
		state tls.ConnectionState
		err   error
	}
	served := make(chan result, 1)
	go func() {
		raw, err := ln.Accept()
		if err != nil {
			served <- result{err: err}
			return
		}
		conn := tls.Server(raw, server)
		defer conn.Close()
		err = echoByte(conn, true)
		served <- result{conn.ConnectionState(), err}
	}()
	raw, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	conn := tls.Client(raw, client)
	clientErr = echoByte(conn, false)
	conn.Close()
	res := <-served
	return res.state, clientErr, res.err
}

func echoByte(conn *tls.Conn, first bool) error {
	if err := conn.SetDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		return err
	}
	if err := conn.Handshake(); err != nil {
		return err
	}
	send := func() error { _, err := conn.Write([]byte{7}); return err }
	receive := func() error { _, err := io.ReadFull(conn, make([]byte, 1)); return err }
	if first {
		return errors.Join(send(), receive())
	}
	return errors.Join(receive(), send())
}

// TestServerJudgesClients: each way a client's certificate can be wrong, over
// real connections.
func TestServerJudgesClients(t *testing.T) {
	ca, other, namesake := testCA(t, "one"), testCA(t, "two"), testCA(t, "one")
	server := testSource(t, ca, RoleCoordinator, "c1")
	dated := func(shift time.Duration) *Source {
		old := *ca
		old.Now = func() time.Time { return time.Now().Add(shift) }
		return testSource(t, &old, RoleAgent, "n1")
	}
	uris := func(names ...string) *Source {
		return forge(t, ca, func(c *x509.Certificate) {
			c.URIs = nil
			for _, n := range names {
				c.URIs = append(c.URIs, mustURI(t, n))
			}
		})
	}
	for _, tc := range []struct {
		name   string
		client *Source
		want   error
		text   string
	}{
		{"right", testSource(t, ca, RoleAgent, "n1"), nil, ""},
		{"second allowed role", testSource(t, ca, RoleGate, "login"), nil, ""},
		{"wrong role", testSource(t, ca, RoleCoordinator, "c2"), ErrWrongRole, "spiffe://one/coordinator/c2: wrong role: want agent or gate"},
		{"other cluster's CA", testSource(t, other, RoleAgent, "n1"), ErrOtherCluster, `issuer "Berth CA two"`},
		{"CA of the same name, other key", testSource(t, namesake, RoleAgent, "n1"), ErrOtherCluster, "our CA did not issue it"},
		{"not yet valid", dated(24 * time.Hour), ErrNotYetValid, "set the clock"},
		{"expired", dated(-8 * 24 * time.Hour), ErrExpired, "join again"},
		{"two URI names", uris("spiffe://one/agent/n1", "spiffe://one/agent/n2"), ErrBadIdentity, "2 URI names"},
		{"no name", uris(), ErrBadIdentity, "0 URI names"},
		{"web address as name", uris("https://one/agent/n1"), ErrBadIdentity, "not of the form"},
		{"unknown role", uris("spiffe://one/admin/n1"), ErrBadIdentity, `role "admin"`},
		{"other cluster's id under our CA", uris("spiffe://two/agent/n1"), ErrOtherCluster, "this is cluster one"},
		{"DNS name beside the URI", forge(t, ca, func(c *x509.Certificate) { c.DNSNames = []string{"c1"} }), ErrBadIdentity, "beside its URI"},
		{"only a common name and DNS", forge(t, ca, func(c *x509.Certificate) {
			c.URIs, c.DNSNames, c.Subject.CommonName = nil, []string{"agent.one"}, "spiffe://one/agent/n1"
		}), ErrBadIdentity, "0 URI names"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			// The client trusts the server whatever its own CA is: the server's
			// judgement is what is tested.
			client := &tls.Config{
				MinVersion: tls.VersionTLS13, InsecureSkipVerify: true,
				GetClientCertificate: ClientConfig(tc.client).GetClientCertificate,
			}
			state, clientErr, err := handshake(t, client, ServerConfig(server, RoleAgent, RoleGate))
			if tc.want == nil {
				if err != nil || clientErr != nil {
					t.Fatalf("server: %v, client: %v", err, clientErr)
				}
				who, err := PeerIdentity(state)
				if err != nil || who != tc.client.Identity() || PeerSerial(state) == "" {
					t.Fatalf("peer is %v, %v, want %v", who, err, tc.client.Identity())
				}
				return
			}
			if !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.text) {
				t.Fatalf("server says %v, want %v with %q", err, tc.want, tc.text)
			}
			if clientErr == nil {
				t.Fatal("the client was served")
			}
		})
	}
}

// TestClientJudgesServers: the same judge sits on the client's side.
func TestClientJudgesServers(t *testing.T) {
	ca, other := testCA(t, "one"), testCA(t, "two")
	client := testSource(t, ca, RoleAgent, "n1")
	for _, tc := range []struct {
		name   string
		server *Source
		want   error
	}{
		{"right", testSource(t, ca, RoleCoordinator, "c1"), nil},
		{"an agent in a coordinator's place", testSource(t, ca, RoleAgent, "n2"), ErrWrongRole},
		{"other cluster", testSource(t, other, RoleCoordinator, "c1"), ErrOtherCluster},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			_, err, _ := handshake(t, ClientConfig(client, RoleCoordinator), JoinServerConfig(tc.server, RoleAgent))
			if !errors.Is(err, tc.want) {
				t.Fatalf("got %v, want %v", err, tc.want)
			}
		})
	}
}

func TestNoCertificate(t *testing.T) {
	ca := testCA(t, "one")
	server := testSource(t, ca, RoleCoordinator, "c1")
	bare := ClientConfigPinned(ca.Hash())

	if _, _, err := handshake(t, bare, ServerConfig(server, RoleAgent)); err == nil {
		t.Error("ServerConfig let a client in that shows no certificate")
	}
	state, clientErr, err := handshake(t, bare, JoinServerConfig(server, RoleAgent))
	if err != nil || clientErr != nil {
		t.Fatalf("join: server %v, client %v", err, clientErr)
	}
	if who, err := PeerIdentity(state); !errors.Is(err, ErrNoCertificate) {
		t.Errorf("a joining peer is %v, %v, want ErrNoCertificate", who, err)
	}
	stranger := testSource(t, testCA(t, "one"), RoleAgent, "n1")
	cfg := &tls.Config{MinVersion: tls.VersionTLS13, InsecureSkipVerify: true, GetClientCertificate: ClientConfig(stranger).GetClientCertificate}
	if _, _, err := handshake(t, cfg, JoinServerConfig(server, RoleAgent)); !errors.Is(err, ErrOtherCluster) {
		t.Errorf("join with a stranger's certificate: %v, want ErrOtherCluster", err)
	}
}

func TestNoRolesMeansNobody(t *testing.T) {
	ca := testCA(t, "one")
	_, _, err := handshake(t, ClientConfig(testSource(t, ca, RoleAgent, "n1"), RoleCoordinator),
		ServerConfig(testSource(t, ca, RoleCoordinator, "c1")))
	if !errors.Is(err, ErrWrongRole) {
		t.Fatalf("got %v, want ErrWrongRole", err)
	}
}

func TestPinnedClient(t *testing.T) {
	ca, other := testCA(t, "one"), testCA(t, "one")
	for _, tc := range []struct {
		name   string
		server *Source
		want   error
	}{
		{"right", testSource(t, ca, RoleCoordinator, "c1"), nil},
		{"another CA of that name", testSource(t, other, RoleCoordinator, "c1"), ErrOtherCluster},
		{"an agent of the right CA", testSource(t, ca, RoleAgent, "n1"), ErrWrongRole},
		{"right CA shown beside another's leaf", func() *Source {
			src := testSource(t, other, RoleCoordinator, "c1")
			cur := *src.cur.Load()
			cur.cert.Certificate = [][]byte{cur.leaf.Raw, ca.cert.Raw}
			src.cur.Store(&cur)
			return src
		}(), ErrOtherCluster},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			_, err, _ := handshake(t, ClientConfigPinned(ca.Hash()), JoinServerConfig(tc.server, RoleAgent))
			if !errors.Is(err, tc.want) {
				t.Fatalf("got %v, want %v", err, tc.want)
			}
		})
	}
}

// TestDeny: a revoked certificate is refused from the next handshake on, and
// no session ticket gets around it.
func TestDeny(t *testing.T) {
	ca := testCA(t, "one")
	server, client := testSource(t, ca, RoleCoordinator, "c1"), testSource(t, ca, RoleAgent, "n1")
	scfg, ccfg := ServerConfig(server, RoleAgent), ClientConfig(client, RoleCoordinator)
	ccfg.ClientSessionCache = tls.NewLRUClientSessionCache(4)
	if _, clientErr, err := handshake(t, ccfg, scfg); err != nil || clientErr != nil {
		t.Fatalf("before: %v, %v", err, clientErr)
	}
	serial := Serial(client.cur.Load().leaf)
	server.Deny(func(who Identity, s string) bool { return who.ID == "n1" && s == serial })
	if _, _, err := handshake(t, ccfg, scfg); !errors.Is(err, ErrDenied) {
		t.Fatalf("denied: %v, want ErrDenied", err)
	}
	server.Deny(nil)
	if _, clientErr, err := handshake(t, ccfg, scfg); err != nil || clientErr != nil {
		t.Fatalf("allowed again: %v, %v", err, clientErr)
	}
}

func TestOldTLSIsRefused(t *testing.T) {
	ca := testCA(t, "one")
	cfg := ClientConfig(testSource(t, ca, RoleAgent, "n1"), RoleCoordinator)
	cfg.MinVersion, cfg.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
	if _, _, err := handshake(t, cfg, ServerConfig(testSource(t, ca, RoleCoordinator, "c1"), RoleAgent)); err == nil {
		t.Fatal("TLS 1.2 was accepted")
	}
}

// TestExpiredCAIsNamed: when the CA itself has ended the message must not
// blame the leaf.
func TestExpiredCAIsNamed(t *testing.T) {
	past := func() time.Time { return time.Now().Add(-CALife - time.Hour) }
	ca, err := NewCA("one", past())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ca.Issue(RoleAgent, "n1", ca.key.Public(), 0); !errors.Is(err, ErrExpired) || !strings.Contains(err.Error(), "the CA itself") {
		t.Fatalf("issue: %v, want ErrExpired naming the CA", err)
	}
	// A leaf that would live on, had its CA not ended.
	ca.Now = past
	leaf := forge(t, ca, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(time.Hour) })
	client := &tls.Config{MinVersion: tls.VersionTLS13, InsecureSkipVerify: true, GetClientCertificate: ClientConfig(leaf).GetClientCertificate}
	_, _, err = handshake(t, client, ServerConfig(leaf, RoleAgent))
	if !errors.Is(err, ErrExpired) || !strings.Contains(err.Error(), "Berth CA one") {
		t.Fatalf("got %v, want ErrExpired naming the CA", err)
	}
}
