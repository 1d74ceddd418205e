package web

import (
	"context"
	"encoding/json"
	"net/http"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/coordinator/api/authorize"
	"github.com/berth-scheduler/berth/coordinator/web/session"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// CreateLink creates an address that opens the page as the caller, once. The secret
// follows the #, which browsers do not send.
func (s *Server) CreateLink(ctx context.Context, _ *apiv1.CreateLinkRequest) (*apiv1.CreateLinkResponse, error) {
	who := authorize.CallerOf(ctx)
	switch {
	case who.Plain:
		return nil, cluster.Errorf(cluster.CodeDenied, "a job may not open the web page as its user; run this on a login node")
	case s.cfg.Listener == nil:
		return nil, cluster.Errorf(cluster.CodeConflict, "coordinator %s has no web page: listen.web is not set in its configuration", s.cfg.ID)
	}
	text, ends, err := s.sessions.NewLink(session.User{UID: who.UID, GID: who.GID})
	if err != nil {
		return nil, err
	}
	return &apiv1.CreateLinkResponse{Url: s.cfg.Address + "/#in=" + text, Expires: timestamppb.New(ends), Coordinator: s.cfg.ID}, nil
}

// login turns a link into a session.
func (s *Server) login(w http.ResponseWriter, r *http.Request) {
	var req struct{ Link string }
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		refuse(w, http.StatusBadRequest, cluster.Errorf(cluster.CodeInvalid, "the request is not a link: %v", err))
		return
	}
	cookie, sess, err := s.sessions.Open(req.Link)
	if err != nil {
		refuse(w, http.StatusUnauthorized, err)
		return
	}
	if old, err := s.sessions.Find(s.cookieOf(r)); err == nil {
		s.sessions.End(old) // of this browser, which has another one now
	}
	s.setCookie(w, cookie, int(session.MostLife.Seconds()))
	s.me(w, r, sess)
}

func (s *Server) logout(w http.ResponseWriter, _ *http.Request, sess *session.Session) {
	s.sessions.End(sess)
	s.setCookie(w, "", -1)
	answer(w, struct{}{})
}

// me returns the page's user and the session's token.
func (s *Server) me(w http.ResponseWriter, _ *http.Request, sess *session.Session) {
	who := s.who(sess.User)
	answer(w, map[string]any{
		"uid": sess.User.UID, "user": who.Name, "admin": who.Admin, "token": sess.CSRF,
		"cluster": s.cfg.ClusterID, "clusterName": s.cfg.ClusterName, "coordinator": s.cfg.ID,
	})
}
