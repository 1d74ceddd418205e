package coordinator

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/berth-scheduler/berth/cluster"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

// attachServer connects users with their jobs.
type attachServer struct {
	apiv1.UnimplementedAttachServiceServer
	c *Coordinator
}

type attachStream = grpc.BidiStreamingServer[apiv1.AttachRequest, apiv1.AttachResponse]

// Attach serves one stream: the leader pairs it with an agent's, any other
// coordinator with one to the leader.
func (s *attachServer) Attach(stream attachStream) error {
	if err := s.attach(stream); err != nil {
		return toStatus(stream.Context(), s.c.log, err)
	}
	return nil
}

func (s *attachServer) attach(stream attachStream) error {
	ctx, who := stream.Context(), callerOf(stream.Context())
	release, err := s.c.relays.admit(who.uid)
	if err != nil {
		return err
	}
	defer release()
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	if err := conv.CheckAttach(first.GetOpen()); err != nil {
		return err
	}
	md, _ := metadata.FromIncomingContext(ctx)
	forwarded := len(md.Get(mdForwarded)) > 0
	for deadline := time.Now().Add(s.c.cfg.Waits.Leader); ; {
		if of := s.c.leading(); of != nil {
			return s.lead(of, who, first.GetOpen(), stream)
		}
		if id, addr := s.c.raft.Leader(); !forwarded && addr != "" && id != s.c.cfg.ID {
			return s.follow(addr, who, first, stream)
		}
		if time.Now().After(deadline) || forwarded && time.Until(deadline) < s.c.cfg.Waits.Leader-time.Second {
			return errNoLeader
		}
		if !sleep(ctx, 50*time.Millisecond) {
			return ctx.Err()
		}
	}
}

// errLeaderChanged ends the streams of a term of office.
var errLeaderChanged = &cluster.Error{Code: cluster.CodeUnavailable,
	Msg: "the coordinators have another leader, and the stream ended with the old one's office"}

// lead serves a stream while this coordinator leads.
func (s *attachServer) lead(of *office, who caller, open *apiv1.AttachOpen, stream attachStream) error {
	ctx, cancel := context.WithCancelCause(stream.Context())
	defer cancel(nil)
	defer context.AfterFunc(of.ctx, func() { cancel(errLeaderChanged) })()
	if err := s.c.current(ctx); err != nil {
		return err
	}
	j, a, err := s.c.attachable(who, open)
	if err != nil {
		return err
	}
	rank := rankOf(a, open)
	node := a.BerthAt(rank).Node
	owner := j.Owner.UID == who.uid
	kind := "logs"
	if sig := open.GetSignal(); sig != nil {
		s.c.log.InfoContext(ctx, "a user signals a job", "uid", who.uid, "user", who.name, "signal", sig.GetNumber(),
			"job", j.ID.String(), "attempt", a.No, "node", node, "owner", j.Owner.UID)
	}
	if open.GetExec() != nil {
		kind = "exec"
		if len(open.GetExec().GetCommand()) == 0 {
			kind = "shell"
		}
		s.c.log.InfoContext(ctx, "a user enters a job", "uid", who.uid, "user", who.name, "kind", kind,
			"job", j.ID.String(), "attempt", a.No, "node", node, "owner", j.Owner.UID)
	}
	end, leave, err := s.c.visit(ctx, node, &nodev1.Visit{
		Uid: uint32(who.uid), Admin: who.admin && !owner, Open: open, Of: conv.VisitOf(j, a, rank),
	})
	if err != nil {
		return err
	}
	defer leave()
	err = splice(ctx, stream, end)
	if _, ours := errors.AsType[*cluster.Error](err); err == nil || ours || ctx.Err() != nil {
		return err
	}
	return &cluster.Error{Code: cluster.CodeUnknown, Err: err,
		Msg: "the connection to the agent of node " + string(node) + " broke: it was restarted, or its network failed"}
}

// attachable finds the attempt that a user asks for, and says why there is
// none.
func (c *Coordinator) attachable(who caller, open *apiv1.AttachOpen) (*cluster.Job, *cluster.Attempt, error) {
	j, ok := c.fsm.Job(cluster.JobID(open.GetJob()))
	if !ok {
		return nil, nil, noJob(open.GetJob())
	}
	act, enters := actReadJob, open.GetExec() != nil || open.GetSignal() != nil
	if enters {
		act = actExec
	}
	if err := c.authorize(who, act, &j.Owner); err != nil {
		return nil, nil, err
	}
	last := j.Last()
	if last == nil || open.GetAttempt() > last.No {
		if j.State.Terminal() {
			return nil, nil, cluster.Errorf(cluster.CodeConflict, "job %d never started (%s)", open.GetJob(), j.State)
		}
		return nil, nil, cluster.Errorf(cluster.CodeConflict, "job %d has not started (%s): berth why %d says why", open.GetJob(), j.State, open.GetJob())
	}
	a := last
	for i := range j.Attempts {
		if j.Attempts[i].No == open.GetAttempt() {
			a = &j.Attempts[i]
		}
	}
	if open.GetAttempt() != 0 && a.No != open.GetAttempt() {
		return nil, nil, cluster.Errorf(cluster.CodeNotFound, "attempt %d of job %d is no longer known, its last one is %d", open.GetAttempt(), open.GetJob(), last.No)
	}
	if n := open.GetNode(); n != "" && a.Rank(cluster.NodeID(n)) < 0 {
		return nil, nil, cluster.Errorf(cluster.CodeNotFound, "job %d is not on node %s but on %s", open.GetJob(), n, cluster.FoldNames(a.NodeIDs()))
	}
	if !enters {
		return j, a, nil
	}
	switch {
	case a != last:
		return nil, nil, cluster.Errorf(cluster.CodeConflict, "attempt %d of job %d has ended; it is at attempt %d now (%s)", a.No, open.GetJob(), last.No, j.State)
	case j.State.Terminal() || !a.State.Live():
		return nil, nil, cluster.Errorf(cluster.CodeConflict, "job %d does not run (%s); one can only enter a job that runs", open.GetJob(), j.State)
	case j.State == cluster.JobUnreachable:
		return nil, nil, cluster.Errorf(cluster.CodeUnavailable, "node %s, on which job %d runs, cannot be reached now; the job goes on if the node lives", a.Berth.Node, open.GetJob())
	}
	return j, a, nil
}

// follow passes a stream on to the leader.
func (s *attachServer) follow(addr string, who caller, first *apiv1.AttachRequest, stream attachStream) error {
	conn, err := s.c.peers.get(addr)
	if err != nil {
		return &cluster.Error{Code: cluster.CodeUnavailable, Msg: "cannot reach the leader", Err: err}
	}
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	ctx = metadata.NewOutgoingContext(ctx, s.c.onBehalf(who))
	far, err := apiv1.NewAttachServiceClient(conn).Attach(ctx)
	if err == nil {
		err = far.Send(first)
		if errors.Is(err, io.EOF) {
			_, err = far.Recv()
		}
	}
	if err == nil {
		err = splice(ctx, stream, far)
	}
	if err != nil && stream.Context().Err() == nil && conv.FromStatus(err).Code == cluster.CodeUnknown {
		if _, known := status.FromError(err); known {
			return &cluster.Error{Code: cluster.CodeUnknown, Msg: "the connection to the leader broke, and the stream with it", Err: err}
		}
	}
	return err
}

// splice passes frames both ways, one at a time: what the slower side has not
// taken waits at the faster one. It returns when the far end has ended, or ctx
// does. What is still in flight then ends with the streams.
func splice(ctx context.Context, near attachStream, far farEnd) error {
	ended := make(chan error, 2)
	go func() {
		for {
			m, err := near.Recv()
			if errors.Is(err, io.EOF) {
				return // the user says nothing more, and listens on
			}
			if err != nil {
				ended <- err
				return
			}
			if far.Send(m) != nil {
				return // Recv says why
			}
		}
	}()
	go func() {
		for {
			m, err := far.Recv()
			if errors.Is(err, io.EOF) {
				err = nil
			} else if err == nil {
				if err = near.Send(m); err == nil {
					continue
				}
			}
			ended <- err
			return
		}
	}()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// rankOf is the rank of the node that is asked for, the first when none is.
func rankOf(a *cluster.Attempt, open *apiv1.AttachOpen) int {
	return max(0, a.Rank(cluster.NodeID(open.GetNode())))
}
