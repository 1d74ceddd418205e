package cli

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/berth-scheduler/berth/cluster"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

const (
	// attachFirst bounds the wait for a stream's first frame: the coordinators
	// may elect a leader, and the leader waits for the node's agent.
	attachFirst = 25 * time.Second
	// quietFor is how long a stream may be silent: nodes give a sign of life
	// every ten seconds.
	quietFor = 40 * time.Second
	// attachPatience is how long a node may be away before that is said.
	attachPatience = 15 * time.Second
)

// attachment is a stream to a job on its node. One goroutine may send while
// another receives.
type attachment struct {
	stream grpc.BidiStreamingClient[apiv1.AttachRequest, apiv1.AttachResponse]
	cancel context.CancelFunc
	first  *apiv1.AttachResponse // not yet handed out
}

// attach opens a stream at one coordinator after the other until one gives a
// definite answer, for at most patience. Its effect says whether it may be
// asked again when it is not known whether the first try was heard.
func (c *client) attach(ctx context.Context, eff effect, patience time.Duration, open *apiv1.AttachOpen) (*attachment, error) {
	if err := c.connect(); err != nil {
		return nil, err
	}
	start, noticed := time.Now(), false
	wait := firstWait
	for {
		var tried []outcome
		for i := range c.conns {
			k := (c.best + i) % len(c.conns)
			a, err := c.conns[k].attach(ctx, open)
			switch {
			case err == nil:
				c.best = k
				return a, nil
			case ctx.Err() != nil:
				return nil, context.Cause(ctx)
			case !indefinite(err), err.Code == cluster.CodeUnknown && eff == changes:
				return nil, err
			}
			tried = append(tried, outcome{c.conns[k].socket, err})
		}
		last := tried[len(tried)-1].err
		if time.Since(start) > patience {
			if c.down() || last.Code == cluster.CodeUnknown {
				return nil, c.giveUp(reads, false, tried, ctx)
			}
			return nil, last
		}
		if !noticed && time.Since(start) > noticeAt {
			noticed = true
			c.env.warnf("trying again (%s)", escape(last.Msg))
		}
		if !sleep(ctx, wait) {
			return nil, context.Cause(ctx)
		}
		wait = min(2*wait, mostWait)
	}
}

// attach opens a stream on one connection and waits for its first frame.
func (cn *conn) attach(ctx context.Context, open *apiv1.AttachOpen) (*attachment, *cluster.Error) {
	ctx, cancel := context.WithCancel(ctx)
	late := time.AfterFunc(attachFirst, cancel)
	cn.sent.Store(false)
	a := &attachment{cancel: cancel}
	var err error
	if a.stream, err = apiv1.NewAttachServiceClient(cn.grpc).Attach(ctx); err == nil {
		if err = a.stream.Send(&apiv1.AttachRequest{Kind: &apiv1.AttachRequest_Open{Open: open}}); err == nil || errors.Is(err, io.EOF) {
			a.first, err = a.stream.Recv() // which knows why the other end closed
		}
	}
	intime := late.Stop()
	if err == nil && intime {
		return a, nil
	}
	cancel()
	ce := attachError(err)
	if ce.Code == cluster.CodeUnknown && !cn.sent.Load() {
		ce.Code = cluster.CodeUnavailable
	}
	if dial, ok := cn.dialErr.Load().(error); ok && !cn.reached.Load() {
		ce.Msg = dial.Error()
	}
	if !intime {
		ce.Msg = "no answer within " + attachFirst.String()
	}
	return nil, ce
}

// errOldCoordinator says that streams to jobs are not known yet.
var errOldCoordinator = errors.New("its release is older than this program")

// attachError classes what ended a stream; an end without a last frame is one
// of the coordinator's.
func attachError(err error) *cluster.Error {
	switch {
	case err == nil || errors.Is(err, io.EOF):
		return &cluster.Error{Code: cluster.CodeUnknown, Msg: "the coordinator ended the stream"}
	case status.Code(err) == codes.Unimplemented:
		return &cluster.Error{Code: cluster.CodeConflict, Err: errOldCoordinator, Msg: "the coordinator does not know this request; use the same release"}
	case status.Code(err) == codes.OK:
		return &cluster.Error{Code: cluster.CodeUnknown, Msg: err.Error()}
	}
	return conv.FromStatus(err)
}

// recv returns the next frame; the error of a stream that broke is a
// *cluster.Error.
func (a *attachment) recv() (*apiv1.AttachResponse, error) {
	if m := a.first; m != nil {
		a.first = nil
		return m, nil
	}
	for {
		quiet := time.AfterFunc(quietFor, a.cancel)
		m, err := a.stream.Recv()
		intime := quiet.Stop()
		switch {
		case err != nil && !intime:
			return nil, &cluster.Error{Code: cluster.CodeUnknown, Msg: "nothing was heard for " + quietFor.String()}
		case err != nil:
			return nil, attachError(err)
		case m.GetKind() != nil:
			return m, nil
		}
	}
}

func (a *attachment) close() { a.cancel() }
