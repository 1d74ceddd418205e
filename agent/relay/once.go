package relay

import (
	"context"
	"crypto/sha256"
	"errors"
	"syscall"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/berth-scheduler/berth/agent/journal"
	"github.com/berth-scheduler/berth/agent/runtime"
	"github.com/berth-scheduler/berth/cluster"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// signalWait bounds the sending of a signal, even if its user has gone.
const signalWait = 30 * time.Second

// request is one that must be executed once: a client that repeats it because the answer was
// lost is told its outcome.
type request struct {
	s       *Server
	journal *journal.Journal
	of      cluster.AttemptID
	// r is not changed once the journal has it.
	r *nodev1.KeptRequest
	// known is what the journal already had.
	known *nodev1.KeptRequest
}

// requestKey identifies a request in progress.
type requestKey struct {
	of cluster.AttemptID
	id string
}

// once returns the request of a visit, and makes others with its id wait until leave is called.
// A visit without an id, from an older client, gives nil.
func (s *Server) once(ctx context.Context, v *Visit, id string) (q *request, leave func(), err error) {
	if id == "" || v.Journal == nil {
		return nil, func() {}, nil
	}
	hash, err := hashOf(v.Ask.GetOpen())
	if err != nil {
		return nil, nil, err
	}
	key := requestKey{v.Launch.ID, id}
	for {
		s.mu.Lock()
		busy, mine := s.acting[key], make(chan struct{})
		if busy == nil {
			s.acting[key] = mine
		}
		s.mu.Unlock()
		if busy == nil {
			leave = func() {
				s.mu.Lock()
				defer s.mu.Unlock()
				if s.acting[key] == mine {
					delete(s.acting, key)
					close(mine)
				}
			}
			break
		}
		select {
		case <-busy:
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
	}
	q = &request{s: s, journal: v.Journal, of: v.Launch.ID, r: &nodev1.KeptRequest{Id: id, Uid: v.Ask.GetUid(), Hash: hash}}
	if q.known, err = v.Journal.Asked(q.of, q.r); err != nil {
		leave()
		return nil, nil, err
	}
	return q, leave, nil
}

// hashOf is the same for every retry of a request, and different for other requests.
func hashOf(open *apiv1.AttachOpen) ([]byte, error) {
	open = proto.CloneOf(open)
	open.Attempt = 0
	if x := open.GetExec(); x != nil {
		x.Session, x.Received, x.Window = "", nil, nil
	}
	data, err := proto.MarshalOptions{Deterministic: true}.Marshal(open)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(data)
	return sum[:16], nil
}

// intend records that the request is about to be executed.
func (q *request) intend() error {
	if q == nil {
		return nil
	}
	var err error
	if q.known, err = q.journal.Ask(q.of, q.r); err == nil && q.known != nil {
		err = q.unknown()
	}
	if _, ours := errors.AsType[*cluster.Error](err); err == nil || ours {
		return err
	}
	q.s.log.Error("a request is not begun, since the journal cannot be written", "job", q.of.Job.String(), "attempt", q.of.No, "err", err)
	return &cluster.Error{Code: cluster.CodeConflict,
		Msg: "nothing was done: the node's agent cannot write its journal, as when its disk is full; its log says more"}
}

// became records the outcome. If it cannot be recorded, it is remembered for as long as this
// agent runs, and the next one does not know it.
func (q *request) became(state nodev1.RequestState, e *apiv1.AttachEnded) {
	if q == nil {
		return
	}
	r := &nodev1.KeptRequest{Id: q.r.Id, Uid: q.r.Uid, Hash: q.r.Hash, At: q.r.At, State: state, Code: e.GetCode(), Signal: e.GetSignal()}
	if err := q.journal.Became(q.of, r); err != nil {
		q.s.log.Error("what became of a request is not recorded", "job", q.of.Job.String(), "attempt", q.of.No, "err", err)
	}
}

// unknown says that the agent ended while executing the request.
func (q *request) unknown() error {
	return cluster.Errorf(cluster.CodeConflict, "whether it was done is not known: the node's agent ended, or failed, while it did it; it is not done again")
}

// again answers a repeated command: with its session, or how it ended, but without running it
// again.
func (s *Server) again(ctx context.Context, ln *link, v *Visit, q *request) error {
	for _, h := range s.sessionsOf(v) {
		if h.request == q.r.Id {
			return h.attach(ctx, ln, nil)
		}
	}
	switch q.known.State {
	case nodev1.RequestState_REQUEST_STATE_ENDED:
		if err := ln.opened(v, "", 0); err != nil {
			return err
		}
		if err := ln.notice("the command has ended; what it wrote was lost with the connection"); err != nil {
			return err
		}
		return ln.ended(&apiv1.AttachEnded{Code: q.known.Code, Signal: q.known.Signal})
	case nodev1.RequestState_REQUEST_STATE_DONE:
		return cluster.Errorf(cluster.CodeConflict, "the command was begun, and ended with its connection or with the node's agent; it is not run again")
	}
	return q.unknown()
}

// signal sends a signal to an attempt, once.
func (s *Server) signal(ctx context.Context, ln *link, v *Visit, ask *apiv1.AttachSignal) error {
	q, leave, err := s.once(ctx, v, ask.GetRequestId())
	if err != nil {
		return err
	}
	defer leave()
	if q != nil && q.known != nil {
		if q.known.State == nodev1.RequestState_REQUEST_STATE_DONE {
			return ln.ended(&apiv1.AttachEnded{})
		}
		return q.unknown()
	}
	if err := s.awaitRuns(ctx, v); err != nil {
		return err
	}
	if err := q.intend(); err != nil {
		return err
	}
	sig := syscall.Signal(ask.GetNumber())
	s.log.InfoContext(ctx, "a user signals a job", "uid", v.Ask.GetUid(), "owner", v.Launch.UID, "admin", v.Ask.GetAdmin(),
		"job", v.Launch.ID.Job.String(), "attempt", v.Launch.ID.No, "node", string(v.Node), "signal", int(sig))
	sctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), signalWait)
	defer cancel()
	switch {
	case ask.GetFirst():
		err = v.Runtime.Signal(sctx, v.Launch.ID, sig)
	case ask.GetAll():
		err = v.Runtime.Broadcast(sctx, v.Launch.ID, sig, runtime.ToAll)
	default:
		err = v.Runtime.Broadcast(sctx, v.Launch.ID, sig, v.Audience)
	}
	if err != nil {
		return err // some processes may have received it
	}
	q.became(nodev1.RequestState_REQUEST_STATE_DONE, nil)
	return ln.ended(&apiv1.AttachEnded{})
}
