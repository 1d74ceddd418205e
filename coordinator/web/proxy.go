package web

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/coordinator/web/session"
)

// Proxy is a site's own proxy in front of the page, which authenticates users and
// names them in a header.
type Proxy struct {
	// Header has the user's name.
	Header string
	// From are the addresses of the proxy: requests from elsewhere need a link.
	From []netip.Prefix
	// Secret is what the proxy sends in secretHeader, since any account on its
	// machine shares its address.
	Secret string
	// User looks a name up in the user database. It is safe for concurrent use.
	User func(name string) (session.User, error)
}

// secretHeader has the secret of the proxy.
const secretHeader = "Berth-Proxy-Secret" // #nosec G101 -- the name of a header

// mostName is the longest user name that is looked up, in bytes.
const mostName = 256

// named returns the browser's user as named by the proxy, "" for requests that do
// not come from one.
func (s *Server) named(r *http.Request) (string, error) {
	p := s.cfg.Proxy
	if p == nil {
		return "", nil
	}
	names := r.Header.Values(p.Header)
	addr, err := netip.ParseAddrPort(r.RemoteAddr)
	if len(names) == 0 || err != nil || !slices.ContainsFunc(p.From, func(n netip.Prefix) bool { return n.Contains(addr.Addr().Unmap()) }) {
		return "", nil
	}
	shown, want := sha256.Sum256([]byte(r.Header.Get(secretHeader))), sha256.Sum256([]byte(p.Secret))
	if subtle.ConstantTimeCompare(shown[:], want[:]) != 1 {
		return "", cluster.Errorf(cluster.CodeDenied, "the request names a user in %s but lacks the proxy's secret (%s): the proxy must set both, and strip both from requests", p.Header, secretHeader)
	}
	if len(names) != 1 || names[0] == "" || len(names[0]) > mostName || strings.ContainsFunc(names[0], func(c rune) bool { return c <= ' ' || c == 0x7f }) {
		return "", cluster.Errorf(cluster.CodeDenied, "the proxy's header %s is not a user name: %.100q", p.Header, strings.Join(names, ", "))
	}
	return names[0], nil
}

// arrive answers the page's first request. It admits the user named by the proxy.
func (s *Server) arrive(w http.ResponseWriter, r *http.Request) {
	name, err := s.named(r)
	if err != nil {
		refuse(w, http.StatusForbidden, err)
		return
	}
	old, missing := s.sessions.Find(s.cookieOf(r))
	if name == "" || missing == nil && s.same(old, name) == nil {
		s.inside(s.me)(w, r)
		return
	}
	u, err := s.cfg.Proxy.User(name)
	if err != nil {
		refuse(w, http.StatusForbidden, err)
		return
	}
	if missing == nil {
		s.sessions.End(old) // of the previous user of this browser
	}
	cookie, sess := s.sessions.Admit(u, name)
	s.setCookie(w, cookie, int(session.MostLife.Seconds()))
	s.me(w, r, sess)
}

// same refuses a session of another user than the proxy names now: browsers keep
// their cookies when another user signs in.
func (s *Server) same(sess *session.Session, name string) error {
	if name == "" || sess.Name == name {
		return nil
	}
	if u, err := s.cfg.Proxy.User(name); err != nil || u.UID != sess.User.UID {
		return cluster.Errorf(cluster.CodeUnauthenticated, "this session belongs to another user than the one signed in, %.100q; reload the page", name)
	}
	return nil
}
