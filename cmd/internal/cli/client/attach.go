package client

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/wait"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/conv/apiconv"
)

const (
	// attachFirst bounds the wait for a stream's first frame: the coordinators
	// may be electing a leader, and the leader waits for the node's agent.
	attachFirst = 25 * time.Second
	// quietFor is how long a stream may be silent: nodes send a heartbeat
	// every ten seconds.
	quietFor = 40 * time.Second
	// AttachPatience is how long a node may be unreachable before that is reported.
	AttachPatience = 15 * time.Second
)

// Attachment is a stream to a job on its node. One goroutine may send while
// another receives.
type Attachment struct {
	stream answers[*apiv1.AttachResponse]
	cancel context.CancelFunc
	first  *apiv1.AttachResponse // not yet handed out
}

// Attach opens a stream at one coordinator after another until one gives a
// definite answer, for at most patience. eff says whether the request may be
// repeated when it is unknown whether the first try was received; a request
// with an id may be, and is carried out once.
func (c *Client) Attach(ctx context.Context, eff effect, patience time.Duration, open *apiv1.AttachOpen) (*Attachment, error) {
	if err := c.connect(); err != nil {
		return nil, err
	}
	start, noticed := time.Now(), false
	pause := FirstWait
	var lost *cluster.Error // a try that may have been received
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
			case !Indefinite(err):
				return nil, afterLost(open, err, lost)
			case err.Code == cluster.CodeUnknown && eff == Changes && !askAgain(open):
				return nil, err
			case err.Code == cluster.CodeUnknown && eff == Changes:
				lost = err
			}
			tried = append(tried, outcome{c.conns[k].socket, err})
		}
		last := tried[len(tried)-1].err
		if time.Since(start) > patience && lost != nil {
			return nil, c.giveUp(Changes, true, tried, ctx)
		}
		if time.Since(start) > patience {
			if c.down() || last.Code == cluster.CodeUnknown {
				return nil, c.giveUp(Reads, false, tried, ctx)
			}
			return nil, last
		}
		if !noticed && time.Since(start) > noticeAt {
			noticed = true
			c.env.Warnf("trying again (%s)", console.Escape(last.Msg))
		}
		if !wait.Sleep(ctx, pause) {
			return nil, context.Cause(ctx)
		}
		pause = min(2*pause, mostWait)
	}
}

// askAgain marks a request as repeated. It reports false when the request has
// no id and might be carried out twice.
func askAgain(open *apiv1.AttachOpen) bool {
	if x := open.GetExec(); x.GetRequestId() != "" {
		x.Session = apiconv.AgainSession
		return true
	}
	return open.GetSignal() != nil // agents that know signals know their ids
}

// afterLost judges a refusal that follows a try which may have been received.
// An agent that does not know ids looks for a session and finds none.
func afterLost(open *apiv1.AttachOpen, err, lost *cluster.Error) error {
	switch {
	case lost == nil:
		return err
	case err.Code == cluster.CodeNotFound && open.GetExec().GetSession() == apiconv.AgainSession:
		return lost
	}
	return afterUnknown(err, true)
}

// Attach opens a stream on one connection and waits for its first frame.
func (cn *conn) attach(ctx context.Context, open *apiv1.AttachOpen) (*Attachment, *cluster.Error) {
	ctx, cancel := context.WithCancel(ctx)
	late := time.AfterFunc(attachFirst, cancel)
	cn.sent.Store(false)
	a := &Attachment{cancel: cancel}
	var err error
	if a.stream.Stream, err = cn.wire.Stream(ctx, usersAPI+"AttachService/Attach"); err == nil {
		if err = a.stream.Send(&apiv1.AttachRequest{Kind: &apiv1.AttachRequest_Open{Open: open}}); err == nil || errors.Is(err, io.EOF) {
			a.first, err = a.stream.Recv() // reports why the other end closed
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

// ErrOldCoordinator says that the coordinator does not support streams to jobs.
var ErrOldCoordinator = errors.New("it is older than this program")

// attachError classifies the error that ended a stream; an end without a last
// frame is the coordinator's.
func attachError(err error) *cluster.Error {
	switch {
	case err == nil || errors.Is(err, io.EOF):
		return &cluster.Error{Code: cluster.CodeUnknown, Msg: "the coordinator ended the stream"}
	case status.Code(err) == codes.Unimplemented:
		return &cluster.Error{Code: cluster.CodeConflict, Err: ErrOldCoordinator, Msg: "the coordinator does not know this request; use the same release on both sides"}
	case status.Code(err) == codes.OK:
		return &cluster.Error{Code: cluster.CodeUnknown, Msg: err.Error()}
	}
	return fromStatus(err)
}

// Recv returns the next frame; when the stream breaks, the error is a *cluster.Error.
func (a *Attachment) Recv() (*apiv1.AttachResponse, error) {
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
			return nil, &cluster.Error{Code: cluster.CodeUnknown, Msg: "nothing received for " + quietFor.String()}
		case err != nil:
			return nil, attachError(err)
		case m.GetKind() != nil:
			return m, nil
		}
	}
}

// Close ends the stream.
func (a *Attachment) Close() { a.cancel() }
