// Package calls is what stands around every call of a coordinator, whoever serves it: it
// lets the call in while its user has not too many, bounds its time, finds out who calls,
// passes users' calls on to the leader, refuses what would grow a log for which there is
// no room, has large answers made in turns, and makes statuses of errors. Its servers
// serve nothing until services are registered with them.
package calls

import (
	"log/slog"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"

	"github.com/berth-scheduler/berth/coordinator/api/authorize"
	"github.com/berth-scheduler/berth/coordinator/figures"
	"github.com/berth-scheduler/berth/coordinator/limit"
	"github.com/berth-scheduler/berth/coordinator/office"
	"github.com/berth-scheduler/berth/coordinator/peers"
	"github.com/berth-scheduler/berth/coordinator/space"
)

// Config bounds calls.
type Config struct {
	ID string // this coordinator's
	// Credentials take over the handshake of daemons.
	Credentials credentials.TransportCredentials
	// FirstWait is for a request, or the first message of a stream, to arrive once its
	// headers are here; LeaderWait is for somebody to lead.
	FirstWait, LeaderWait time.Duration
	// Limits bound what one user may ask for at once and in a second; MaxConnsPerUser
	// how many local connections one may have open, 0 means 256.
	Limits          limit.Config
	MaxConnsPerUser int
}

// Needs is what the package works on. All fields are required.
type Needs struct {
	Auth     *authorize.Authorizer
	Office   *office.Office
	Peers    *peers.Conns
	Space    *space.Watch
	Figures  *figures.Figures
	Registry prometheus.Registerer
	Log      *slog.Logger
}

// Calls stands around calls.
type Calls struct {
	cfg     Config
	auth    *authorize.Authorizer
	office  *office.Office
	peers   *peers.Conns
	space   *space.Watch
	figures *figures.Figures
	took    *prometheus.HistogramVec
	log     *slog.Logger
	limits  *limit.Table
	turns   *limit.Turns // of what computes for long
}

// New makes what stands around calls.
func New(cfg Config, d Needs) *Calls {
	c := &Calls{
		cfg: cfg, auth: d.Auth, office: d.Office, peers: d.Peers, space: d.Space, figures: d.Figures, log: d.Log,
		limits: limit.New(cfg.Limits, time.Now, d.Registry), turns: limit.NewTurns(runtime.GOMAXPROCS(0) - 1),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "berth_api_request_seconds", Help: "Time to answer a request.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 4, 9),
		}, []string{"method", "code"}),
	}
	d.Registry.MustRegister(c.took)
	return c
}

// begins counts a request that is answered now; ends says how it was answered.
func (c *Calls) begins(method string) (ends func(codes.Code)) {
	began, ended := time.Now(), c.figures.Begins(method)
	return func(code codes.Code) {
		took := time.Since(began)
		ended(took)
		c.took.WithLabelValues(method, code.String()).Observe(took.Seconds())
	}
}
