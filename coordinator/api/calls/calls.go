// Package calls wraps every call of a coordinator, whoever serves it: it admits the
// call unless its user has too many, bounds its time, identifies the caller,
// forwards users' calls to the leader, refuses what would grow a log for which
// there is no room, has large answers built in turns, and converts errors to
// statuses. Its servers serve nothing until services are registered with them.
package calls

import (
	"log/slog"
	"runtime"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"

	"github.com/berth-scheduler/berth/cluster/wait"
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
	// Credentials perform the handshake of daemons.
	Credentials credentials.TransportCredentials
	// FirstWait is for a request, or the first message of a stream, to arrive once
	// its headers are here; LeaderWait is for a leader to exist.
	FirstWait, LeaderWait time.Duration
	// Limits bound what one user may ask for at once and per second;
	// MaxConnsPerUser is how many local connections a user may have open, 0 means
	// 256.
	Limits          limit.Config
	MaxConnsPerUser int
}

// Needs is what the package depends on. All fields but one are required.
type Needs struct {
	Auth     *authorize.Authorizer
	Office   *office.Office
	Peers    *peers.Conns
	Space    *space.Watch
	Figures  *figures.Figures
	Underway *wait.Underway // nil records nothing
	Registry prometheus.Registerer
	Log      *slog.Logger
}

// Calls wraps calls.
type Calls struct {
	cfg     Config
	auth    *authorize.Authorizer
	office  *office.Office
	peers   *peers.Conns
	space   *space.Watch
	figures *figures.Figures
	under   *wait.Underway
	took    *prometheus.HistogramVec
	log     *slog.Logger
	limits  *limit.Table
	turns   *limit.Turns // of long computations
}

// New returns the wrapper of calls.
func New(cfg Config, d Needs) *Calls {
	c := &Calls{
		cfg: cfg, auth: d.Auth, office: d.Office, peers: d.Peers, space: d.Space, figures: d.Figures, under: d.Underway, log: d.Log,
		limits: limit.New(cfg.Limits, time.Now, d.Registry), turns: limit.NewTurns(runtime.GOMAXPROCS(0) - 1),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "berth_api_request_seconds", Help: "Time to answer a request.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 4, 9),
		}, []string{"method", "code"}),
	}
	d.Registry.MustRegister(c.took)
	return c
}

// begins counts a request in progress; ends records its outcome.
func (c *Calls) begins(method string) (ends func(codes.Code)) {
	began, ended, over := time.Now(), c.figures.Begins(method), c.under.Begin(method[strings.LastIndexByte(method, '/')+1:])
	return func(code codes.Code) {
		over()
		took := time.Since(began)
		ended(took)
		c.took.WithLabelValues(method, code.String()).Observe(took.Seconds())
	}
}
