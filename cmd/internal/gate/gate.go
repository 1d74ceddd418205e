// Package gate lets the users of a machine without a coordinator reach the
// cluster: it forwards their calls, unread, and says on whose behalf. The
// coordinators decide for whom it may speak.
package gate

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/coordinator/limit"
)

// maxMessage is the most that coordinators accept from users; their answers
// may be longer.
const (
	maxMessage = 4 << 20
	maxAnswer  = 64 << 20
	maxStreams = 256
	maxHeaders = 16 << 10
	// Connections of a user with a job here, of one without, and of all. A user
	// without a job is only told so, and does not stay connected.
	connsWithJob = 64
	connsWithout = 4
	connsTotal   = 512
	// window is how much may be unread in one stream and in one connection,
	// except for a message that is being received.
	window    = 64 << 10
	connStart = 5 * time.Second
	connIdle  = time.Minute
	connAge   = time.Hour
	arrival   = 20 * time.Second
	// mostConns is how many connections are kept to coordinators that may be gone.
	mostConns = 64
)

// Gate forwards calls. It is safe for concurrent use.
type Gate struct {
	addrs func() []string
	dial  func(addr string) (*grpc.ClientConn, error)
	who   func(info credentials.AuthInfo) (uid, gid uint32, ok bool)
	may   func(uid uint32) bool
	calls *limit.Table
	log   *slog.Logger

	mu    sync.Mutex
	conns map[string]*grpc.ClientConn
	best  string // the coordinator that answered last
}

// New returns a gate to the coordinators that are at addrs now. who
// identifies the caller, may decides whether anything is read from it: at a
// node only from users with a job there.
func New(addrs func() []string, dial func(addr string) (*grpc.ClientConn, error), who func(info credentials.AuthInfo) (uid, gid uint32, ok bool), may func(uid uint32) bool, reg prometheus.Registerer, log *slog.Logger) *Gate {
	cfg := limit.Default() // for one node, a quarter of a coordinator's
	cfg.Calls, cfg.Streams, cfg.Arriving, cfg.ArrivingTotal, cfg.Users = cfg.Calls/2, cfg.Streams/4, cfg.Arriving/4, cfg.ArrivingTotal/4, cfg.Users/4
	return &Gate{addrs: addrs, dial: dial, who: who, may: may, calls: limit.New(cfg, time.Now, reg), log: log.With("component", "gate"), conns: map[string]*grpc.ClientConn{}}
}

// Serve accepts calls on ln until ctx ends.
func (g *Gate) Serve(ctx context.Context, ln net.Listener, creds credentials.TransportCredentials) error {
	conns := limit.NewConns(func(uid cluster.UID) int {
		if g.may(uint32(uid)) {
			return connsWithJob
		}
		return connsWithout
	}, connsTotal, g.calls.Came)
	creds = conns.Credentials(creds, func(info credentials.AuthInfo) (cluster.UID, bool) {
		uid, _, ok := g.who(info)
		return cluster.UID(uid), ok
	})
	srv := grpc.NewServer(grpc.Creds(creds), grpc.ForceServerCodec(raw{}), grpc.UnknownServiceHandler(g.handle), grpc.InTapHandle(g.letIn),
		grpc.MaxRecvMsgSize(maxMessage), grpc.MaxSendMsgSize(maxAnswer), grpc.MaxConcurrentStreams(maxStreams), grpc.MaxHeaderListSize(maxHeaders),
		grpc.InitialWindowSize(window), grpc.InitialConnWindowSize(4*window), grpc.ConnectionTimeout(connStart),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: connIdle, MaxConnectionAge: connAge}))
	defer context.AfterFunc(ctx, srv.Stop)()
	err := srv.Serve(ln)
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range g.conns {
		_ = c.Close() // nothing is left on it
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// raw passes messages through unchanged.
type raw struct{}

// Marshal implements encoding.Codec.
func (raw) Marshal(v any) ([]byte, error) {
	b, ok := v.(*[]byte)
	if !ok {
		return nil, errors.New("gate: not a raw message")
	}
	return *b, nil
}

// Unmarshal implements encoding.Codec.
func (raw) Unmarshal(data []byte, v any) error {
	b, ok := v.(*[]byte)
	if !ok {
		return errors.New("gate: not a raw message")
	}
	*b = append([]byte(nil), data...) // the buffer is reused
	return nil
}

// Name implements encoding.Codec: the messages are those of the services.
func (raw) Name() string { return "proto" }

// handle forwards one call.
func (g *Gate) handle(_ any, near grpc.ServerStream) error {
	ctx := near.Context()
	method, _ := grpc.MethodFromServerStream(near)
	let, ok := ctx.Value(letInKey{}).(*visit)
	if !ok {
		return status.Error(codes.Unauthenticated, "the kernel does not say who calls")
	}
	defer let.end()
	var first []byte
	if err := near.RecvMsg(&first); err != nil {
		return err
	}
	if err := let.arrived(len(first)); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(metadata.NewOutgoingContext(ctx, let.onBehalf(ctx)))
	defer cancel()
	far, err := g.open(ctx, method, &first)
	if err != nil {
		return err
	}
	go func() { // ends with the call
		for {
			var m []byte
			if err := near.RecvMsg(&m); err != nil {
				if errors.Is(err, io.EOF) {
					_ = far.CloseSend() // the other direction reports any error
				}
				return
			}
			let.call.Followed(len(m))
			if far.SendMsg(&m) != nil {
				return // as above
			}
		}
	}()
	for {
		var m []byte
		if err := far.RecvMsg(&m); err != nil {
			near.SetTrailer(far.Trailer())
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		if err := near.SendMsg(&m); err != nil {
			return err
		}
	}
}

var desc = grpc.StreamDesc{ServerStreams: true, ClientStreams: true}

// open starts the call at the first reachable coordinator.
func (g *Gate) open(ctx context.Context, method string, first *[]byte) (grpc.ClientStream, error) {
	err := status.Error(codes.Unavailable, "no coordinator is configured")
	addrs := g.addrs()
	g.mu.Lock()
	if i := slices.Index(addrs, g.best); i > 0 {
		addrs = slices.Concat(addrs[i:], addrs[:i])
	}
	g.forget(addrs)
	g.mu.Unlock()
	for _, addr := range addrs {
		var conn *grpc.ClientConn
		if conn, err = g.conn(addr); err != nil {
			err = status.Errorf(codes.Unavailable, "coordinator %s: %v", addr, err)
			continue
		}
		var far grpc.ClientStream
		far, err = conn.NewStream(ctx, &desc, method, grpc.ForceCodec(raw{}), grpc.MaxCallRecvMsgSize(maxAnswer))
		if err == nil {
			if err = far.SendMsg(first); err == nil || errors.Is(err, io.EOF) {
				g.mu.Lock()
				g.best = addr
				g.mu.Unlock()
				return far, nil
			}
		}
		if ctx.Err() != nil {
			return nil, status.FromContextError(ctx.Err()).Err()
		}
		g.log.DebugContext(ctx, "coordinator not reached", "addr", addr, "err", err)
	}
	return nil, err
}

// forget closes the connections to addresses that no longer belong to a
// coordinator, when there are many. The caller holds g.mu.
func (g *Gate) forget(addrs []string) {
	if len(g.conns) <= mostConns {
		return
	}
	for addr, c := range g.conns {
		if !slices.Contains(addrs, addr) {
			_ = c.Close() // calls in progress there end, and are retried
			delete(g.conns, addr)
		}
	}
}

func (g *Gate) conn(addr string) (*grpc.ClientConn, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if c := g.conns[addr]; c != nil {
		return c, nil
	}
	c, err := g.dial(addr)
	if err == nil {
		g.conns[addr] = c
	}
	return c, err
}
