package gate

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/coordinator/limit"
	"github.com/berth-scheduler/berth/proto/conv/apiconv"
)

type letInKey struct{}

// visit is a call that is being read.
type visit struct {
	uid, gid uint32
	call     *limit.Call
	late     *time.Timer // ends it when its first message does not arrive
}

func (l *visit) end() {
	l.late.Stop()
	l.call.End()
}

// onBehalf tells a coordinator on whose behalf the call is, and passes on a
// job's credential: the coordinator judges it.
func (l *visit) onBehalf(ctx context.Context) metadata.MD {
	md := metadata.Pairs("berth-on-behalf-of-uid", strconv.FormatUint(uint64(l.uid), 10), "berth-on-behalf-of-gid", strconv.FormatUint(uint64(l.gid), 10))
	if v := metadata.ValueFromIncomingContext(ctx, cluster.CredentialKey); len(v) == 1 && len(v[0]) <= cluster.MaxCredential {
		md.Set(cluster.CredentialKey, v[0])
	}
	return md
}

func (l *visit) arrived(bytes int) error {
	l.late.Stop()
	return refused(l.call.Arrived(bytes))
}

// refused converts a *limit.Refusal to a status.
func refused(err error) error {
	if r, ok := errors.AsType[*limit.Refusal](err); ok {
		return apiconv.StatusAfter(&cluster.Error{Code: cluster.CodeExhausted, Msg: r.Msg}, r.After).Err()
	}
	return err
}

// letIn runs before every call, when its headers have arrived and nothing
// else of it was read. It must not block.
func (g *Gate) letIn(ctx context.Context, info *tap.Info) (context.Context, error) {
	method := info.FullMethodName
	if !strings.HasPrefix(method, "/berth.api.v1.") {
		return nil, status.Errorf(codes.Unimplemented, "%.100s is not for users", method)
	}
	p, ok := peer.FromContext(ctx)
	if !ok {
		return nil, status.Error(codes.Unauthenticated, "the kernel does not say who calls")
	}
	uid, gid, ok := g.who(p.AuthInfo)
	if !ok {
		return nil, status.Error(codes.Unauthenticated, "the kernel does not say who calls")
	}
	if !g.may(uid) {
		return nil, apiconv.Status(cluster.Errorf(cluster.CodeDenied, "uid %d has no job on this node, and from here only jobs reach the cluster", uid)).Err()
	}
	class := limit.Plain
	if strings.HasSuffix(method, "/WatchJobs") || strings.HasSuffix(method, "/Attach") {
		class = limit.Lasting
	}
	call, err := g.calls.Begin(limit.Who{UID: cluster.UID(uid)}, class)
	if err != nil {
		return nil, refused(err)
	}
	ctx, cancel := context.WithCancel(ctx)
	l := &visit{uid: uid, gid: gid, call: call, late: time.AfterFunc(arrival, cancel)}
	context.AfterFunc(ctx, func() { l.end(); cancel() })
	return context.WithValue(ctx, letInKey{}, l), nil
}
