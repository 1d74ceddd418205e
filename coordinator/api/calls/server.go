package calls

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/wait"
	"github.com/berth-scheduler/berth/coordinator/api/authorize"
	"github.com/berth-scheduler/berth/coordinator/limit"
	"github.com/berth-scheduler/berth/coordinator/office"
	"github.com/berth-scheduler/berth/coordinator/proposer"
	"github.com/berth-scheduler/berth/proto/conv/apiconv"
)

// Limits on what the servers accept.
const (
	maxRecvBytes   = 4 << 20
	maxSendBytes   = 64 << 20
	maxStreams     = 1000
	maxHeaderBytes = 16 << 10
	callTimeout    = 60 * time.Second
	// streamWindow is how much may be unread in one stream: memory for each of
	// them, since nothing else is queued.
	streamWindow = 256 << 10
	connWindow   = 4 << 20
	// streamWorkers are persistent goroutines, whose stacks have grown to what a
	// call needs: growing new ones was 5 % of the work of a submit. Calls that find
	// them all busy have goroutines of their own.
	streamWorkers = 64
)

// Servers creates the server for daemons, over mutual TLS, and the one for local
// users, over the unix socket. Both should serve the same users' API.
func (c *Calls) Servers() (daemons, local *grpc.Server) {
	opts := []grpc.ServerOption{
		grpc.MaxRecvMsgSize(maxRecvBytes), grpc.MaxSendMsgSize(maxSendBytes),
		grpc.InitialWindowSize(streamWindow), grpc.InitialConnWindowSize(connWindow),
		grpc.MaxConcurrentStreams(maxStreams), grpc.MaxHeaderListSize(maxHeaderBytes),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}),
		grpc.InTapHandle(c.letIn), grpc.ConnectionTimeout(connBegin),
		grpc.ChainUnaryInterceptor(c.unary), grpc.ChainStreamInterceptor(c.stream),
		grpc.NumStreamWorkers(streamWorkers), grpc.ForceServerCodecV2(newCodec()),
	}
	alive := keepalive.ServerParameters{Time: 10 * time.Second, Timeout: 5 * time.Second}
	// Its buffer is that of each node while nothing is said; TLS has one of its own for
	// what arrived.
	daemons = grpc.NewServer(append(slices.Clip(opts), grpc.ReadBufferSize(4<<10), grpc.Creds(c.cfg.Credentials), grpc.KeepaliveParams(alive))...)
	alive.MaxConnectionIdle = connIdle
	local = grpc.NewServer(append(slices.Clip(opts), grpc.Creds(c.localCredentials()), grpc.KeepaliveParams(alive))...)
	return daemons, local
}

// anywhere reports whether every coordinator answers a call, from its own state.
func anywhere(method string) bool {
	return strings.HasPrefix(method, "/berth.api.v1.HistoryService/") || strings.HasPrefix(method, "/berth.api.v1.WebService/")
}

// unary wraps every call: it bounds its time, identifies the caller, forwards
// users' calls to the leader if this coordinator is not it, and converts errors to
// statuses.
func (c *Calls) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (resp any, err error) {
	ends := c.begins(info.FullMethod)
	defer func() {
		if r := recover(); r != nil {
			err = c.panicked(ctx, info.FullMethod, r)
		} else if err != nil {
			err = ToStatus(ctx, c.log, err)
		}
		ends(status.Code(err))
	}()
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if !strings.HasPrefix(info.FullMethod, usersMethods) {
		here(ctx)
		return next(ctx, req) // daemons' methods check their caller's role themselves
	}
	admission := admittedOf(ctx)
	defer admission.end()
	if err := admission.arrived(req); err != nil {
		return nil, err
	}
	who, err := c.identify(ctx)
	if err != nil {
		return nil, err
	}
	ctx = proposer.For(authorize.With(ctx, who), who.UID)
	next = c.whileRoom(info.FullMethod, next)
	if c.office.Term() != nil || anywhere(info.FullMethod) {
		resp, err = next(ctx, req)
	} else {
		resp, err = c.forward(ctx, who, info.FullMethod, req, next)
	}
	if err == nil && callClass(info.FullMethod) == limit.Expensive {
		resp, err = c.encodeInTurn(ctx, resp)
	}
	if err != nil || admission == nil {
		return resp, err
	}
	return admission.counting(resp)
}

// forward forwards a call to the leader, waiting for one during an election. A
// forwarded call is not sent on, so that two coordinators that briefly disagree do
// not bounce it.
func (c *Calls) forward(ctx context.Context, who authorize.Caller, method string, req any, next grpc.UnaryHandler) (any, error) {
	forwarded := authorize.Forwarded(ctx)
	deadline := time.Now().Add(c.cfg.LeaderWait)
	for {
		if c.office.Term() != nil {
			return next(ctx, req)
		}
		if id, addr := c.office.Leader(); !forwarded && addr != "" && id != c.cfg.ID {
			resp, err := c.invoke(ctx, who, addr, method, req.(proto.Message))
			if !retryForward(method, err) || time.Now().After(deadline) {
				return resp, forwardError(id, method, err)
			}
		}
		if time.Now().After(deadline) || forwarded && time.Until(deadline) < c.cfg.LeaderWait-time.Second {
			return nil, office.ErrNoLeader
		}
		if !wait.Sleep(ctx, 50*time.Millisecond) {
			return nil, ctx.Err()
		}
	}
}

// retryForward reports whether to look for another leader: this one no longer leads
// and certainly did nothing, or it went away and the call only reads. An error
// without our detail may mean anything.
func retryForward(method string, err error) bool {
	if err == nil {
		return false
	}
	code := apiconv.FromStatus(err).Code
	return code == cluster.CodeUnavailable || code == cluster.CodeUnknown && reads(method) && status.Code(err) == codes.Unavailable
}

func reads(method string) bool {
	name := method[strings.LastIndexByte(method, '/')+1:]
	for _, verb := range []string{"Get", "List", "Explain", "Predict"} {
		if strings.HasPrefix(name, verb) {
			return true
		}
	}
	return false
}

// forwardError returns the meaning of a broken connection to the leader, or of a
// call that it does not know.
func forwardError(leader, method string, err error) error {
	if status.Code(err) == codes.Unimplemented {
		return cluster.Errorf(cluster.CodeConflict,
			"coordinator %s, which leads, is of an older release and does not know %s; nothing was done; upgrade it, then try again", leader, method[strings.LastIndexByte(method, '/')+1:])
	}
	if status.Code(err) != codes.Unavailable || apiconv.FromStatus(err).Code != cluster.CodeUnknown {
		return err
	}
	return &cluster.Error{Code: cluster.CodeUnknown,
		Msg: "the leader went away before it answered; it may have been done: retry with the same request id", Err: err}
}

// invoke calls method at addr on behalf of who. It does not decode the answer.
func (c *Calls) invoke(ctx context.Context, who authorize.Caller, addr, method string, req proto.Message) (*Encoded, error) {
	conn, err := c.peers.Get(addr)
	if err != nil {
		return nil, status.Error(codes.Unavailable, "cannot reach the leader: "+err.Error())
	}
	ctx = metadata.NewOutgoingContext(ctx, c.auth.OnBehalf(who))
	resp := &Encoded{} // and is returned to the caller unchanged
	if err := conn.Invoke(ctx, method, req, resp, grpc.ForceCodecV2(newCodec())); err != nil {
		return nil, err
	}
	return resp, nil
}

// panicked logs a bug in one request, which must not end the others'. The state
// machine runs outside of this and does end the process.
func (c *Calls) panicked(ctx context.Context, method string, what any) error {
	c.log.ErrorContext(ctx, "handler panicked", "method", method, "err", fmt.Sprint(what), "stack", string(debug.Stack()))
	return status.Error(codes.Internal, "internal error; the coordinator's log has the details")
}

// stream wraps every stream, as unary does calls.
func (c *Calls) stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = c.panicked(ss.Context(), info.FullMethod, r)
		} else if err != nil {
			err = ToStatus(ss.Context(), c.log, err)
		}
	}()
	if !strings.HasPrefix(info.FullMethod, usersMethods) {
		defer here(ss.Context())
		return next(srv, daemonStream{ss})
	}
	who, err := c.identify(ss.Context())
	if err != nil {
		return err
	}
	defer admittedOf(ss.Context()).end()
	return next(srv, &streamWithCaller{ServerStream: &admittedStream{ServerStream: ss}, ctx: authorize.With(ss.Context(), who)})
}

type streamWithCaller struct {
	grpc.ServerStream
	ctx context.Context
}

// Context implements grpc.ServerStream.
func (s *streamWithCaller) Context() context.Context { return s.ctx }
