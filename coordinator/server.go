package coordinator

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/berth-scheduler/berth/cluster"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
	peerv1 "github.com/berth-scheduler/berth/proto/berth/peer/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

// Limits on what the servers take in.
const (
	maxRecvBytes   = 4 << 20
	maxSendBytes   = 64 << 20
	maxStreams     = 1000
	maxHeaderBytes = 16 << 10
	callTimeout    = 60 * time.Second
	// streamWorkers are goroutines that stay, whose stacks have grown to what a
	// call needs: 5 % of the work of a submit was to let new ones grow. Calls that
	// find them all busy have goroutines of their own.
	streamWorkers = 64
)

// servers makes the server for daemons, over mutual TLS, and the one for
// local users, over the unix socket. Both answer the same users' API.
func (c *Coordinator) servers() (daemons, local *grpc.Server) {
	opts := []grpc.ServerOption{
		grpc.MaxRecvMsgSize(maxRecvBytes), grpc.MaxSendMsgSize(maxSendBytes),
		grpc.InitialWindowSize(streamWindow), grpc.InitialConnWindowSize(connWindow),
		grpc.MaxConcurrentStreams(maxStreams), grpc.MaxHeaderListSize(maxHeaderBytes),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}),
		grpc.InTapHandle(c.letIn), grpc.ConnectionTimeout(connBegin),
		grpc.ChainUnaryInterceptor(c.unary), grpc.ChainStreamInterceptor(c.stream),
		grpc.NumStreamWorkers(streamWorkers),
	}
	alive := keepalive.ServerParameters{Time: 10 * time.Second, Timeout: 5 * time.Second}
	daemons = grpc.NewServer(append(slices.Clip(opts), grpc.Creds(c.cfg.Credentials), grpc.KeepaliveParams(alive))...)
	alive.MaxConnectionIdle = connIdle
	local = grpc.NewServer(append(slices.Clip(opts), grpc.Creds(c.localCredentials()), grpc.KeepaliveParams(alive))...)
	for _, s := range []*grpc.Server{daemons, local} {
		apiv1.RegisterJobServiceServer(s, &jobServer{c: c})
		apiv1.RegisterClusterServiceServer(s, &clusterServer{c: c})
		apiv1.RegisterAccountServiceServer(s, &accountServer{c: c})
		apiv1.RegisterModelServiceServer(s, &modelServer{c: c})
		apiv1.RegisterHistoryServiceServer(s, &historyServer{c: c})
		apiv1.RegisterNotifyServiceServer(s, &notifyServer{c: c})
		apiv1.RegisterBackupServiceServer(s, &backupServer{c: c})
		apiv1.RegisterAttachServiceServer(s, &attachServer{c: c})
	}
	nodev1.RegisterNodeServiceServer(daemons, &nodeServer{c: c})
	nodev1.RegisterRelayServiceServer(daemons, &relayServer{c: c})
	peerv1.RegisterPeerServiceServer(daemons, &peerServer{c: c})
	return daemons, local
}

var errNoLeader = &cluster.Error{Code: cluster.CodeUnavailable,
	Msg: "the coordinators have no leader now: most of them may be down, or an election is going on; nothing was done; try again"}

// anywhere are the calls that every coordinator answers from what it has.
const anywhere = "/berth.api.v1.HistoryService/"

type callerKey struct{}

// callerOf returns who the interceptor found to be calling.
func callerOf(ctx context.Context) caller {
	who, _ := ctx.Value(callerKey{}).(caller)
	return who
}

// unary stands before every call: it bounds its time, finds out who calls,
// and passes users' calls on to the leader when this coordinator is not it.
func (c *Coordinator) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (resp any, err error) {
	began := time.Now()
	defer func() {
		if r := recover(); r != nil {
			err = c.panicked(ctx, info.FullMethod, r)
		}
		c.metrics.call(info.FullMethod, status.Code(err), time.Since(began))
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
		return nil, toStatus(ctx, c.log, err)
	}
	ctx = context.WithValue(ctx, callerKey{}, who)
	next = c.whileRoom(info.FullMethod, next)
	if c.leading() != nil || strings.HasPrefix(info.FullMethod, anywhere) {
		return next(ctx, req)
	}
	return c.forward(ctx, who, info.FullMethod, req, next)
}

// forward passes a call on to the leader, waiting for one during an election.
// A call that was forwarded already is not sent on, so that two coordinators
// that disagree for a moment do not play ball.
func (c *Coordinator) forward(ctx context.Context, who caller, method string, req any, next grpc.UnaryHandler) (any, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	forwarded := len(md.Get(mdForwarded)) > 0
	deadline := time.Now().Add(c.cfg.Waits.Leader)
	for {
		if c.leading() != nil {
			return next(ctx, req)
		}
		if id, addr := c.raft.Leader(); !forwarded && addr != "" && id != c.cfg.ID {
			resp, err := c.invoke(ctx, who, addr, method, req.(proto.Message))
			if !retryForward(method, err) || time.Now().After(deadline) {
				return resp, forwardError(id, method, err)
			}
		}
		if time.Now().After(deadline) || forwarded && time.Until(deadline) < c.cfg.Waits.Leader-time.Second {
			return nil, conv.Status(errNoLeader).Err()
		}
		if !sleep(ctx, 50*time.Millisecond) {
			return nil, status.FromContextError(ctx.Err()).Err()
		}
	}
}

// retryForward tells whether to look for another leader: this one is none any
// more and certainly did nothing, or it went away and the call only reads. An
// error without our detail may mean anything.
func retryForward(method string, err error) bool {
	if err == nil {
		return false
	}
	code := conv.FromStatus(err).Code
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

// forwardError says what it means that the connection to the leader broke, or that
// it does not know the call.
func forwardError(leader, method string, err error) error {
	if status.Code(err) == codes.Unimplemented {
		return conv.Status(cluster.Errorf(cluster.CodeConflict,
			"coordinator %s, which leads, is of an older release and does not know %s; nothing was done; upgrade it, then try again", leader, method[strings.LastIndexByte(method, '/')+1:])).Err()
	}
	if status.Code(err) != codes.Unavailable || conv.FromStatus(err).Code != cluster.CodeUnknown {
		return err
	}
	return conv.Status(&cluster.Error{Code: cluster.CodeUnknown,
		Msg: "the leader went away before it answered; it may have been done: ask again with the same request id", Err: err}).Err()
}

// invoke calls method at addr on behalf of who.
func (c *Coordinator) invoke(ctx context.Context, who caller, addr, method string, req proto.Message) (any, error) {
	name := protoreflect.FullName(strings.ReplaceAll(strings.TrimPrefix(method, "/"), "/", "."))
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(name)
	if err != nil {
		return nil, status.Errorf(codes.Unimplemented, "unknown method %s", method)
	}
	mt, err := protoregistry.GlobalTypes.FindMessageByName(d.(protoreflect.MethodDescriptor).Output().FullName())
	if err != nil {
		return nil, status.Errorf(codes.Unimplemented, "unknown method %s", method)
	}
	conn, err := c.peers.get(addr)
	if err != nil {
		return nil, status.Error(codes.Unavailable, "cannot reach the leader: "+err.Error())
	}
	ctx = metadata.NewOutgoingContext(ctx, c.onBehalf(who))
	resp := mt.New().Interface()
	if err := conn.Invoke(ctx, method, req, resp); err != nil {
		return nil, err
	}
	return resp, nil
}

// panicked logs a fault of ours in one request, which must not end the
// others'. What the state machine does is outside of this and does end the
// process.
func (c *Coordinator) panicked(ctx context.Context, method string, what any) error {
	c.log.ErrorContext(ctx, "handler panicked", "method", method, "err", fmt.Sprint(what), "stack", string(debug.Stack()))
	return status.Error(codes.Internal, "internal error; the coordinator's log has the details")
}

// stream stands before every stream.
func (c *Coordinator) stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = c.panicked(ss.Context(), info.FullMethod, r)
		}
	}()
	if !strings.HasPrefix(info.FullMethod, usersMethods) {
		defer here(ss.Context())
		return next(srv, daemonStream{ss})
	}
	who, err := c.identify(ss.Context())
	if err != nil {
		return toStatus(ss.Context(), c.log, err)
	}
	defer admittedOf(ss.Context()).end()
	return next(srv, &streamWithCaller{ServerStream: &admittedStream{ServerStream: ss}, ctx: context.WithValue(ss.Context(), callerKey{}, who)})
}

type streamWithCaller struct {
	grpc.ServerStream
	ctx context.Context
}

// Context implements grpc.ServerStream.
func (s *streamWithCaller) Context() context.Context { return s.ctx }

// peerConns keeps one connection to each other coordinator.
type peerConns struct {
	dial func(addr string) (*grpc.ClientConn, error)

	mu    sync.Mutex
	conns map[string]*grpc.ClientConn
}

func newPeerConns(dial func(string) (*grpc.ClientConn, error)) *peerConns {
	return &peerConns{dial: dial, conns: map[string]*grpc.ClientConn{}}
}

func (p *peerConns) get(addr string) (*grpc.ClientConn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.conns[addr]; c != nil {
		return c, nil
	}
	c, err := p.dial(addr)
	if err == nil {
		p.conns[addr] = c
	}
	return c, err
}

func (p *peerConns) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for addr, c := range p.conns {
		c.Close()
		delete(p.conns, addr)
	}
}
