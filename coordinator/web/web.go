// Package web is the page of a coordinator for browsers: plain files that are part of the
// program, and a bridge from the page to the users' API. Whoever has a session there calls
// that API as the very user who asked for it, through the same interceptors and handlers as
// the command line does: the page shows nothing and does nothing that berth would not.
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

// Bounds of what browsers may take.
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

// Config is what the page needs of a coordinator.
type Config struct {
	ClusterID, ClusterName, ID string
	// Listener is where browsers connect, nil is no page; TLS is with what, nil is plain
	// HTTP.
	Listener net.Listener
	TLS      *tls.Config
	// Names are the hosts by which browsers may ask; Address is that of links,
	// https://HOST:PORT.
	Names   []string
	Address string
	// Proxy lets in whom it names, nil is none.
	Proxy *Proxy
	// MaxStreams is how many live streams there may be, MaxStreamsPerUser how many of one
	// user; 0 means 512 and 16.
	MaxStreams, MaxStreamsPerUser int
	// Simulate runs the simulator for the page "What if", see Simulation; nil is none.
	Simulate func(context.Context, *Simulation) ([]byte, error)
}

// Who is what the coordinator knows of a user.
type Who struct {
	Name  string
	Admin bool
}

// Needs is what the page works on. All fields are required.
type Needs struct {
	Who   func(session.User) Who
	Clock func() time.Time
	Log   *slog.Logger
}

// Server serves the page. Make it with New.
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

// New makes the page of a coordinator. It serves nothing before Run.
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

// Calls hands out the connections by which the page calls the users' API: the server for
// local users is to serve them, until Run has ended.
func (s *Server) Calls() net.Listener { return s.within }

// Register has s answer who asks for a link.
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
		// What it would say is of strangers that break off, or speak no HTTP.
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

// sweep ends what is over.
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
