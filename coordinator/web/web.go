// Package web is a coordinator's page for browsers: plain files that are part of
// the program, and a bridge from the page to the users' API. A session calls that
// API as the very user who asked for it, through the same interceptors and handlers
// as the command line: the page shows nothing and does nothing that berth would
// not.
package web

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/berth-scheduler/berth/coordinator/web/session"
	"github.com/berth-scheduler/berth/proto/berth/api/v1/apirpc"
)

// Limits on what browsers may use.
const (
	maxHeader      = 16 << 10
	maxBody        = 64 << 10
	headerTime     = 10 * time.Second
	bodyTime       = 20 * time.Second
	answerTime     = 60 * time.Second
	idleTime       = 60 * time.Second
	maxConns       = 4096
	maxConnsOfHost = 512
	sweepEvery     = time.Minute
)

// Config configures the page.
type Config struct {
	ClusterID, ClusterName, ID string
	// Listener is where browsers connect, nil for no page; TLS is its
	// configuration, nil for plain HTTP.
	Listener net.Listener
	TLS      *tls.Config
	// Names are the hosts that browsers may ask for; Address is that of links,
	// https://HOST:PORT.
	Names   []string
	Address string
	// Proxy admits the users it names, nil for none.
	Proxy *Proxy
	// MaxStreams is how many live streams there may be, MaxStreamsPerUser how many
	// of one user; 0 means 512 and 16.
	MaxStreams, MaxStreamsPerUser int
	// Simulate runs the simulator for the page "What if", see Simulation; nil for
	// none.
	Simulate func(context.Context, *Simulation) ([]byte, error)
}

// Who is what the coordinator knows of a user.
type Who struct {
	Name  string
	Admin bool
}

// Needs is what the page depends on. All fields are required.
type Needs struct {
	Who   func(session.User) Who
	Clock func() time.Time
	Log   *slog.Logger
}

// Server serves the page. Create it with New.
type Server struct {
	apirpc.UnimplementedWebServiceServer
	cfg      Config
	who      func(session.User) Who
	log      *slog.Logger
	sessions *session.Table
	within   *within
	streams  *streams
	whatIf   *whatIf
	names    map[string]struct{}
}

// New returns the page of a coordinator. It serves nothing before Run.
func New(cfg Config, d Needs) *Server {
	cfg.MaxStreams = cmp.Or(cfg.MaxStreams, 512)
	cfg.MaxStreamsPerUser = cmp.Or(cfg.MaxStreamsPerUser, 16)
	s := &Server{
		cfg: cfg, who: d.Who, log: d.Log, sessions: session.New(cfg.ClusterID, cfg.ID, d.Clock), within: newWithin(),
		streams: newStreams(cfg.MaxStreams, cfg.MaxStreamsPerUser), whatIf: newWhatIf(), names: map[string]struct{}{},
	}
	for _, n := range cfg.Names {
		s.names[canonical(n)] = struct{}{}
	}
	return s
}

// Calls returns the listener for the page's calls of the users' API: the server for
// local users should serve it, until Run has ended.
func (s *Server) Calls() net.Listener { return s.within }

// Register registers the service for links with s.
func (s *Server) Register(g *grpc.Server) { apirpc.RegisterWebServiceServer(g, s) }

// Run serves browsers until ctx ends.
func (s *Server) Run(ctx context.Context) error {
	defer s.within.Close()
	if s.cfg.Listener == nil {
		<-ctx.Done()
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	srv := &http.Server{
		Handler: s.handler(), ReadHeaderTimeout: headerTime, ReadTimeout: bodyTime, IdleTimeout: idleTime, MaxHeaderBytes: maxHeader,
		// It would only report strangers that break off, or do not speak HTTP.
		ErrorLog: log.New(io.Discard, "", 0), BaseContext: func(net.Listener) context.Context { return ctx },
	}
	var wg sync.WaitGroup
	wg.Go(func() { s.sweep(ctx) })
	wg.Go(func() {
		<-ctx.Done()
		_ = srv.Close() // streams have no end of their own
	})
	ln := bounded(s.cfg.Listener, maxConns, maxConnsOfHost)
	if s.cfg.TLS != nil {
		ln = tls.NewListener(ln, s.cfg.TLS)
	}
	err := srv.Serve(ln)
	if ctx.Err() != nil && errors.Is(err, http.ErrServerClosed) {
		err = nil
	}
	cancel()
	wg.Wait()
	return err
}

// sweep ends what has expired.
func (s *Server) sweep(ctx context.Context) {
	t := time.NewTicker(sweepEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			s.sessions.Sweep()
			s.within.closeUnless(s.sessions.Lives)
		}
	}
}

func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", s.asset)
	mux.HandleFunc("GET /static/{file}", s.asset)
	mux.HandleFunc("POST /login", s.login)
	mux.HandleFunc("POST /logout", s.inside(s.logout))
	mux.HandleFunc("GET /api/me", s.arrive)
	mux.HandleFunc("POST /api/{service}/{method}", s.inside(s.call))
	mux.HandleFunc("GET /api/whatif", s.inside(s.choices))
	mux.HandleFunc("POST /api/whatif", s.inside(s.compare))
	mux.HandleFunc("GET /api/watch", s.inside(s.watch))
	mux.HandleFunc("GET /api/log", s.inside(s.follow))
	return s.guard(mux)
}
