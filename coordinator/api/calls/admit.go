package calls

import (
	"context"
	"errors"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/tap"
	"google.golang.org/protobuf/proto"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/coordinator/api/authorize"
	"github.com/berth-scheduler/berth/coordinator/limit"
	"github.com/berth-scheduler/berth/coordinator/roles"
	"github.com/berth-scheduler/berth/proto/conv/apiconv"
)

const (
	usersMethods = "/berth.api.v1."
	// Connections of local users.
	defaultConnsPerUser = 256
	connsTotal          = 4096
	connIdle            = 5 * time.Minute
	connBegin           = 10 * time.Second
)

// callClass returns how much a users' method costs.
func callClass(method string) limit.Class {
	switch method[strings.LastIndexByte(method, '/')+1:] {
	case "ListJobs", "ListHistory", "GetReport", "Predict", "ListForecasts", "ExplainJob", "SaveBackup":
		return limit.Expensive
	case "WatchJobs", "Attach":
		return limit.Lasting
	}
	return limit.Plain
}

type (
	admittedKey struct{}
	lateKey     struct{} // for the timer of a daemon's call
)

// admitted is an admitted call of a user.
type admitted struct {
	speaker authorize.Speaker
	call    *limit.Call
	late    *time.Timer // ends it if its request does not arrive
	stop    func() bool // what ends it when its context does
}

// letIn runs before every call, once its headers are here and nothing else of it
// was read: it counts users' calls and refuses those of unknown callers. It must
// not block, since all calls of the connection would.
func (c *Calls) letIn(ctx context.Context, info *tap.Info) (context.Context, error) {
	if !strings.HasPrefix(info.FullMethodName, usersMethods) {
		ctx, cancel := context.WithCancel(ctx)
		return context.WithValue(ctx, lateKey{}, time.AfterFunc(c.cfg.FirstWait, cancel)), nil
	}
	sp, err := c.auth.Speaker(ctx)
	if err != nil {
		return nil, ToStatus(ctx, c.log, err) // no interceptor runs around this
	}
	who := limit.Who{UID: sp.UID}
	switch {
	case sp.Role == roles.Agent:
		who.Node = sp.ID
	default:
		who.Admin = c.auth.AsAdmin(ctx, sp)
	}
	call, err := c.limits.Begin(who, callClass(info.FullMethodName))
	if err != nil {
		return nil, refused(err)
	}
	ctx, cancel := context.WithCancel(ctx)
	a := &admitted{speaker: sp, call: call, late: time.AfterFunc(c.cfg.FirstWait, cancel)}
	a.stop = context.AfterFunc(ctx, func() { a.release(); cancel() })
	return context.WithValue(ctx, admittedKey{}, a), nil
}

// end may be called more than once, and on nil.
func (a *admitted) end() {
	if a != nil {
		a.stop() // otherwise each call would start a goroutine at its end
		a.release()
	}
}

// rest returns how long a stream should send nothing. It may be called on nil.
func (a *admitted) rest() time.Duration {
	if a == nil {
		return 0
	}
	return a.call.Rest()
}

func (a *admitted) release() {
	a.late.Stop()
	a.call.End()
}

// arrived records that a request is here as a whole.
func (a *admitted) arrived(req any) error {
	if a == nil {
		return nil
	}
	a.late.Stop()
	m, _ := req.(proto.Message)
	if err := a.call.Arrived(proto.Size(m)); err != nil {
		return refused(err)
	}
	return nil
}

// identify identifies the caller.
func (c *Calls) identify(ctx context.Context) (authorize.Caller, error) {
	if a := admittedOf(ctx); a != nil {
		return c.auth.Identify(ctx, a.speaker)
	}
	sp, err := c.auth.Speaker(ctx)
	if err != nil {
		return authorize.Caller{}, err
	}
	return c.auth.Identify(ctx, sp)
}

func admittedOf(ctx context.Context) *admitted {
	a, _ := ctx.Value(admittedKey{}).(*admitted)
	return a
}

// refused converts a *limit.Refusal to a status.
func refused(err error) error {
	r, ok := errors.AsType[*limit.Refusal](err)
	if !ok {
		return err
	}
	return apiconv.StatusAfter(&cluster.Error{Code: cluster.CodeExhausted, Msg: r.Msg}, r.After).Err()
}

// admittedStream reports the first request of a stream.
type admittedStream struct {
	grpc.ServerStream
	first bool
}

// RecvMsg implements grpc.ServerStream. It is for one goroutine at a time.
func (s *admittedStream) RecvMsg(m any) error {
	err := s.ServerStream.RecvMsg(m)
	a := admittedOf(s.Context())
	switch {
	case err != nil || a == nil:
	case !s.first:
		s.first = true
		err = a.arrived(m)
	default:
		a.call.Followed(proto.Size(m.(proto.Message)))
	}
	return err
}

// here records that the first message of a daemon's call is here as a whole.
func here(ctx context.Context) {
	if late, ok := ctx.Value(lateKey{}).(*time.Timer); ok {
		late.Stop()
	}
}

// daemonStream reports the first message of a daemon's stream.
type daemonStream struct{ grpc.ServerStream }

// RecvMsg implements grpc.ServerStream.
func (s daemonStream) RecvMsg(m any) error {
	err := s.ServerStream.RecvMsg(m)
	if err == nil {
		here(s.Context())
	}
	return err
}

// localCredentials returns credentials that ask the kernel who connects, and bound
// the connections of one user.
func (c *Calls) localCredentials() credentials.TransportCredentials {
	most := c.cfg.MaxConnsPerUser
	if most <= 0 {
		most = defaultConnsPerUser
	}
	conns := limit.NewConns(func(cluster.UID) int { return most }, connsTotal, c.limits.Came)
	return conns.Credentials(authorize.UnixCredentials(), func(info credentials.AuthInfo) (cluster.UID, bool) {
		p, ok := info.(authorize.UnixPeer)
		return p.UID, ok
	})
}

// Rest returns how long the stream of a context should send nothing.
func Rest(ctx context.Context) time.Duration { return admittedOf(ctx).rest() }
