package web_test

import (
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/coordinator/coordtest"
	"github.com/berth-scheduler/berth/coordinator/web"
	"github.com/berth-scheduler/berth/coordinator/web/session"
)

// proxied is a request as the site's proxy hands it on.
func proxied(name string) func(*http.Request) {
	return func(r *http.Request) {
		r.Header.Set("X-Remote-User", name)
		r.Header.Set("Berth-Proxy-Secret", "open sesame, please")
	}
}

func proxyFrom(network string) *web.Proxy {
	return &web.Proxy{
		Header: "X-Remote-User", From: []netip.Prefix{netip.MustParsePrefix(network)}, Secret: "open sesame, please",
		User: func(name string) (session.User, error) {
			uid, known := map[string]cluster.UID{"alice": alice, "alice@site": alice, "bob": bob}[name]
			if !known {
				return session.User{}, cluster.Errorf(cluster.CodeDenied, "nobody is called %s", name)
			}
			return session.User{UID: uid, GID: uint32(uid)}, nil
		},
	}
}

// TestProxy: whom the proxy names is in without a link, and nobody by a header of their
// own making.
func TestProxy(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 1, Web: true, WebProxy: proxyFrom("127.0.0.0/8")})
	c.Leader()
	v := &visitor{t: t, base: "http://" + c.WebAddr(0)}
	v.wants(401, "is not logged in", "GET", "/api/me", "")
	v.wants(403, "lacks the proxy's secret", "GET", "/api/me", "", with("X-Remote-User", "alice"))
	v.wants(403, "lacks the proxy's secret", "GET", "/api/me", "", proxied("alice"), with("Berth-Proxy-Secret", "open sesame"))
	v.wants(403, "nobody is called mallory", "GET", "/api/me", "", proxied("mallory"))
	v.wants(403, "is not a user name", "GET", "/api/me", "", proxied("a b"))
	v.wants(403, "is not a user name", "GET", "/api/me", "", proxied(strings.Repeat("a", 257)))
	v.wants(403, "is not a user name", "GET", "/api/me", "", proxied("alice"), func(r *http.Request) { r.Header.Add("X-Remote-User", "bob") })
	v.wants(401, "is not logged in", "POST", "/api/JobService/ListJobs", "{}", proxied("alice")) // the page asks who it is for first

	resp, body := v.do("GET", "/api/me", "", proxied("alice"))
	if resp.StatusCode != 200 || !strings.Contains(body, `"uid":1001`) || len(resp.Cookies()) != 1 {
		t.Fatalf("%s %s", resp.Status, body)
	}
	ck := resp.Cookies()[0]
	v.cookie = ck.Name + "=" + ck.Value
	v.token = strings.Split(strings.SplitAfter(body, `"token":"`)[1], `"`)[0]
	if resp, _ := v.do("GET", "/api/me", "", proxied("alice")); len(resp.Cookies()) != 0 {
		t.Error("the same user was given another session")
	}
	v.wants(200, "{", "POST", "/api/JobService/ListJobs", "{}", proxied("alice"))
	v.wants(200, "{", "POST", "/api/JobService/ListJobs", "{}", proxied("alice@site")) // another name of the same user

	// Somebody else signs in at the same browser, which kept the cookie.
	v.wants(401, "another user", "POST", "/api/JobService/ListJobs", "{}", proxied("bob"))
	v.wants(401, "another user", "POST", "/api/JobService/ListJobs", "{}", proxied("mallory"))
	resp, body = v.do("GET", "/api/me", "", proxied("bob"))
	if resp.StatusCode != 200 || !strings.Contains(body, `"uid":1002`) || len(resp.Cookies()) != 1 {
		t.Fatalf("%s %s", resp.Status, body)
	}
	v.wants(401, "has ended", "GET", "/api/me", "") // alice's, whose cookie v still has

	// A link goes on being good, behind the proxy too, for who is signed in.
	w := visit(t, c, 0, bob)
	w.wants(200, `"uid":1002`, "GET", "/api/me", "")
	w.wants(200, `"uid":1002`, "GET", "/api/me", "", proxied("bob"))
	w.wants(401, "another user", "POST", "/api/JobService/ListJobs", "{}", proxied("alice"))
}

// TestProxyElsewhere: what comes from elsewhere than the proxy is no word of the proxy's.
func TestProxyElsewhere(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 1, Web: true, WebProxy: proxyFrom("10.0.0.0/8")})
	c.Leader()
	v := &visitor{t: t, base: "http://" + c.WebAddr(0)}
	v.wants(401, "is not logged in", "GET", "/api/me", "", proxied("alice"))
	w := visit(t, c, 0, bob)
	w.wants(200, `"uid":1002`, "GET", "/api/me", "", proxied("alice"))
}
