package nodes

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/peer"

	"github.com/berth-scheduler/berth/coordinator/roles"
	"github.com/berth-scheduler/berth/fsm"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
	"github.com/berth-scheduler/berth/proto/berth/node/v1/noderpc"
)

// certs sign everything, and count.
type certs struct {
	issued []string
	signs  func() // called at each signature
}

func (c *certs) Issue(csr []byte, role, id string) (cert, ca []byte, err error) {
	if len(csr) == 0 {
		return nil, nil, errors.New("no request")
	}
	c.issued = append(c.issued, role+" "+id)
	if c.signs != nil {
		c.signs()
	}
	return []byte("cert of " + id), []byte("ca"), nil
}

func (c *certs) Token() (string, []byte, error) {
	return "token", []byte(strings.Repeat("h", 32)), nil
}

func (c *certs) TokenHash(secret string) ([]byte, error) {
	if secret == "" {
		return nil, errors.New("none")
	}
	return []byte(strings.Repeat(secret[:1], 32)), nil
}

// TestJoin: a token is good once, for its name, until it expires; a wrong one costs
// neither a signature nor an entry, and after many of them nobody there may try.
func TestJoin(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ca := &certs{}
		l := newLab(t, Config{Certs: ca, Coordinators: []string{"c:1"}}, fsm.Options{})
		from := peer.NewContext(t.Context(), &peer.Peer{Addr: &net.TCPAddr{IP: net.IPv4(10, 0, 0, 9), Port: 4}})
		s := &nodeServer{n: l.n}
		for name, ttl := range map[string]time.Duration{"too short": time.Millisecond, "too long": 30*24*time.Hour + 1} {
			if _, _, err := l.n.CreateToken(from, 1, "", "n1", ttl); err == nil {
				t.Errorf("a token that lasts %s is made", name)
			}
		}
		for _, bad := range [][2]string{{roles.Coordinator, "n1"}, {roles.Agent, "no/name"}} {
			if _, _, err := l.n.CreateToken(from, 1, bad[0], bad[1], 0); err == nil {
				t.Errorf("a token for %v is made", bad)
			}
		}
		join := func(ctx context.Context, secret, node string) string {
			before, index := len(ca.issued), l.f.Index()
			r, err := s.Join(ctx, &nodev1.JoinRequest{TokenSecret: secret, Node: node, Csr: []byte("x")})
			if err == nil && (string(r.Certificate) != "cert of "+node || string(r.Ca) != "ca" || !slices.Equal(r.Coordinators, []string{"c:1"})) {
				t.Errorf("it is given %v", r)
			}
			if err != nil {
				if len(ca.issued) != before || l.f.Index() != index {
					t.Errorf("a refused join of %s cost a signature or an entry", node)
				}
				return err.Error()
			}
			return "joined"
		}
		token := func(ttl time.Duration) {
			t.Helper()
			text, ends, err := l.n.CreateToken(from, 1, "", "n1", ttl)
			if ttl == 0 {
				ttl = time.Hour
			}
			if err != nil || text != "token" || !ends.Equal(time.Now().Add(ttl)) {
				t.Fatalf("%q until %s, %v", text, ends, err)
			}
		}
		token(0)
		for _, c := range []struct{ secret, node, want string }{
			{"h", "n2", "not valid"}, {"x", "n1", "not valid"}, {"", "n1", "not valid"}, {"h", "no/name", "name"}, {"h", "n1", "joined"}, {"h", "n1", "not valid"},
		} {
			if got := join(from, c.secret, c.node); !strings.Contains(got, c.want) {
				t.Errorf("%q by %q: %s, want %s", c.node, c.secret, got, c.want)
			}
		}
		if !slices.Equal(ca.issued, []string{"agent n1"}) {
			t.Errorf("signed: %v", ca.issued)
		}
		token(30 * 24 * time.Hour)
		time.Sleep(30*24*time.Hour + time.Second)
		if got := join(from, "h", "n1"); !strings.Contains(got, "not valid") {
			t.Errorf("after its time: %s", got)
		}
		token(time.Hour) // two come with it at once: one is refused
		ca.signs = func() {
			ca.signs = nil
			if r, err := s.Join(from, &nodev1.JoinRequest{TokenSecret: "h", Node: "n1", Csr: []byte("x")}); err != nil || r == nil {
				t.Errorf("the first of two: %v", err)
			}
		}
		if r, err := s.Join(from, &nodev1.JoinRequest{TokenSecret: "h", Node: "n1", Csr: []byte("x")}); err == nil {
			t.Errorf("the second of two has %v", r)
		}
		token(time.Minute)
		for range 40 {
			join(from, "x", "n1")
		}
		elsewhere := peer.NewContext(t.Context(), &peer.Peer{Addr: &net.TCPAddr{IP: net.IPv4(10, 0, 0, 8), Port: 4}})
		if got := join(from, "h", "n1"); !strings.Contains(got, "too many") {
			t.Errorf("after forty guesses: %s", got)
		}
		if got := join(elsewhere, "h", "n1"); got != "joined" {
			t.Errorf("from another address: %s", got)
		}
		for _, c := range []struct {
			ctx context.Context
			csr string
			ok  bool
		}{{as(t.Context(), roles.Agent, "n1"), "x", true}, {as(t.Context(), roles.Agent, "n1"), "", false}, {as(t.Context(), roles.Coordinator, "c1"), "x", false}, {as(t.Context(), "", ""), "x", false}, {t.Context(), "x", false}} {
			r, err := s.Renew(c.ctx, &nodev1.RenewRequest{Csr: []byte(c.csr)})
			if (err == nil) != c.ok || c.ok && string(r.Certificate) != "cert of n1" {
				t.Errorf("renewed: %v, %v", r, err)
			}
			now, err := s.GetClock(c.ctx, nil)
			if (err == nil) != (c.ok || c.csr == "") || err == nil && !now.Now.AsTime().Equal(time.Now()) {
				t.Errorf("the time: %v, %v", now, err)
			}
		}
		l.n.office.Leave()
	})
}

// TestOnlyJoinIsOpenToStrangers: of the service for nodes.
func TestOnlyJoinIsOpenToStrangers(t *testing.T) {
	t.Parallel()
	all := noderpc.NodeService_ServiceDesc.Methods
	got := joinOnly(all)
	if len(got) != 1 || got[0].MethodName != "Join" || len(all) < 3 {
		t.Errorf("open are %v", slices.Collect(func(yield func(string) bool) {
			for _, m := range got {
				if !yield(m.MethodName) {
					return
				}
			}
		}))
	}
}
