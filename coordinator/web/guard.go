package web

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/coordinator/web/session"
)

// csrfHeader has the session's token. Another site's page can neither read it nor
// send a custom header without a preflight.
const csrfHeader = "Berth-Token"

// headers are those of every answer. The policy allows nothing but the files of
// this server: no script within the page, no frame around it.
var headers = map[string]string{
	"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
		"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'",
	"X-Content-Type-Options":       "nosniff",
	"Referrer-Policy":              "no-referrer",
	"X-Frame-Options":              "DENY",
	"Cross-Origin-Opener-Policy":   "same-origin",
	"Cross-Origin-Resource-Policy": "same-origin",
	"Permissions-Policy":           "camera=(), microphone=(), geolocation=()",
	"Cache-Control":                "no-store",
}

// guard runs before everything: it bounds what is read, and refuses requests by a
// name that is not ours (a site whose name was made to resolve here) or from
// another site's page.
func (s *Server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for k, v := range headers {
			w.Header().Set(k, v)
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(answerTime))
		if _, ours := s.names[canonical(r.Host)]; !ours {
			refuse(w, http.StatusMisdirectedRequest, cluster.Errorf(cluster.CodeDenied, "coordinator %s does not answer to the name %.100q; its names are %s, and listen.web_names adds others",
				s.cfg.ID, r.Host, strings.Join(s.cfg.Names, ", ")))
			return
		}
		if err := sameSite(r); err != nil {
			refuse(w, http.StatusForbidden, err)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// canonical returns a host without its port, in lower case.
func canonical(host string) string {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	return strings.ToLower(strings.Trim(strings.TrimSuffix(host, "."), "[]"))
}

// sameSite refuses requests that another site's page makes. Opening the page itself
// does not count; what changes something must say where it comes from.
func sameSite(r *http.Request) error {
	origin, page := r.Header.Get("Origin"), r.Method == http.MethodGet && !strings.HasPrefix(r.URL.Path, "/api/")
	if site := r.Header.Get("Sec-Fetch-Site"); !page && site != "" && site != "same-origin" && site != "none" {
		return cluster.Errorf(cluster.CodeDenied, "this was requested by a page of another site")
	}
	if origin == "" {
		if r.Method != http.MethodGet {
			return cluster.Errorf(cluster.CodeDenied, "the request does not say which page it comes from (Origin)")
		}
		return nil
	}
	if u, err := url.Parse(origin); err != nil || u.Host == "" || !strings.EqualFold(u.Host, r.Host) {
		return cluster.Errorf(cluster.CodeDenied, "this was requested by a page of another site, %.100q", origin)
	}
	return nil
}

// inside admits sessions; what changes something needs their token, too.
func (s *Server) inside(next func(http.ResponseWriter, *http.Request, *session.Session)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		sess, err := s.sessions.Find(s.cookieOf(r))
		if err != nil {
			refuse(w, http.StatusUnauthorized, err)
			return
		}
		name, err := s.named(r)
		if err == nil {
			err = s.same(sess, name)
		}
		if err != nil {
			refuse(w, http.StatusUnauthorized, err)
			return
		}
		if r.Method != http.MethodGet && !sess.Vouches(r.Header.Get(csrfHeader)) {
			refuse(w, http.StatusForbidden, cluster.Errorf(cluster.CodeDenied, "the request lacks this session's token (%s); reload the page", csrfHeader))
			return
		}
		next(w, r, sess)
	}
}

// statusOf is the HTTP status of each class of errors; others are 500.
var statusOf = map[cluster.Code]int{
	cluster.CodeInvalid: http.StatusBadRequest, cluster.CodeNotFound: http.StatusNotFound, cluster.CodeAlreadyExists: http.StatusConflict,
	cluster.CodeDenied: http.StatusForbidden, cluster.CodeUnauthenticated: http.StatusUnauthorized, cluster.CodeConflict: http.StatusConflict,
	cluster.CodeExhausted: http.StatusTooManyRequests, cluster.CodeUnavailable: http.StatusServiceUnavailable, cluster.CodeUnknown: http.StatusGatewayTimeout,
	cluster.CodeOutOfRange: http.StatusGone,
}

// refuse answers with the error, as JSON.
func refuse(w http.ResponseWriter, status int, err error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": err.Error()})
}

// answer sends a value as JSON.
func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

// cookieName distinguishes the cookies of coordinators that share a host: browsers
// ignore ports.
func (s *Server) cookieName() string {
	name := fmt.Sprintf("berth-%s-%s", s.cfg.ClusterID, s.cfg.ID)
	if s.secure() {
		return "__Host-" + name
	}
	return name
}

// cookieOf returns this coordinator's cookie, or another one of Berth's, for the
// error text.
func (s *Server) cookieOf(r *http.Request) string {
	if c, err := r.Cookie(s.cookieName()); err == nil {
		return c.Value
	}
	for _, c := range r.Cookies() {
		if strings.HasPrefix(strings.TrimPrefix(c.Name, "__Host-"), "berth-") {
			return c.Value
		}
	}
	return ""
}

func (s *Server) secure() bool { return s.cfg.TLS != nil }

func (s *Server) setCookie(w http.ResponseWriter, value string, maxAge int) {
	http.SetCookie(w, &http.Cookie{ // #nosec G124 -- Secure wherever there is TLS; without, it listens on loopback alone
		Name: s.cookieName(), Value: value, Path: "/", MaxAge: maxAge, HttpOnly: true, Secure: s.secure(), SameSite: http.SameSiteStrictMode,
	})
}
