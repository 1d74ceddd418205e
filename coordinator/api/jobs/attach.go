package jobs

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/hostnames"
	"github.com/berth-scheduler/berth/cluster/wait"
	"github.com/berth-scheduler/berth/coordinator/api/authorize"
	"github.com/berth-scheduler/berth/coordinator/office"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/berth/api/v1/apirpc"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
	"github.com/berth-scheduler/berth/proto/conv"
	"github.com/berth-scheduler/berth/proto/conv/apiconv"
)

// attachServer connects users to their jobs.
type attachServer struct {
	apirpc.UnimplementedAttachServiceServer
	c *Jobs
}

// farEnd is the other end of a user's stream: an agent that called back, or the
// leader.
type farEnd interface {
	Send(*apiv1.AttachRequest) error
	Recv() (*apiv1.AttachResponse, error)
}

type attachStream = grpc.BidiStreamingServer[apiv1.AttachRequest, apiv1.AttachResponse]

// Attach serves one stream: the leader pairs it with an agent's, any other
// coordinator with one to the leader.
func (s *attachServer) Attach(stream attachStream) error {
	ctx, who := stream.Context(), authorize.CallerOf(stream.Context())
	release, err := s.c.nodes.AdmitStream(who.UID)
	if err != nil {
		return err
	}
	defer release()
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	if err := apiconv.CheckAttach(first.GetOpen()); err != nil {
		return err
	}
	forwarded := authorize.Forwarded(ctx)
	for deadline := time.Now().Add(s.c.cfg.LeaderWait); ; {
		if of := s.c.office.Term(); of != nil {
			return s.lead(of, who, first.GetOpen(), stream)
		}
		if id, addr := s.c.office.Leader(); !forwarded && addr != "" && id != s.c.cfg.ID {
			return s.follow(addr, who, first, stream)
		}
		if time.Now().After(deadline) || forwarded && time.Until(deadline) < s.c.cfg.LeaderWait-time.Second {
			return office.ErrNoLeader
		}
		if !wait.Sleep(ctx, 50*time.Millisecond) {
			return ctx.Err()
		}
	}
}

// errLeaderChanged ends the streams of a leader's term.
var errLeaderChanged = &cluster.Error{Code: cluster.CodeUnavailable,
	Msg: "the coordinators have a new leader, and the stream ended with the old one"}

// lead serves a stream while this coordinator leads.
func (s *attachServer) lead(of *office.Term, who authorize.Caller, open *apiv1.AttachOpen, stream attachStream) error {
	ctx, cancel := context.WithCancelCause(stream.Context())
	defer cancel(nil)
	defer context.AfterFunc(of.Ctx, func() { cancel(errLeaderChanged) })()
	if err := s.c.office.Verify(ctx); err != nil {
		return err
	}
	j, a, err := s.c.attachable(who, open)
	if err != nil {
		return err
	}
	rank := rankOf(a, open)
	node := a.BerthAt(rank).Node
	owner := j.Owner.UID == who.UID
	kind := "logs"
	if sig := open.GetSignal(); sig != nil {
		s.c.log.InfoContext(ctx, "a user signals a job", "uid", who.UID, "user", who.Name, "signal", sig.GetNumber(),
			"job", j.ID.String(), "attempt", a.No, "node", node, "owner", j.Owner.UID)
	}
	if open.GetExec() != nil {
		kind = "exec"
		if len(open.GetExec().GetCommand()) == 0 {
			kind = "shell"
		}
		s.c.log.InfoContext(ctx, "a user enters a job", "uid", who.UID, "user", who.Name, "kind", kind,
			"job", j.ID.String(), "attempt", a.No, "node", node, "owner", j.Owner.UID)
	}
	end, leave, err := s.c.nodes.Visit(ctx, node, &nodev1.Visit{
		Uid: uint32(who.UID), Admin: who.Admin && !owner, Open: open, Of: conv.VisitOf(j, a, rank),
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

// attachable finds the attempt that a user asks for, or says why there is none.
func (c *Jobs) attachable(who authorize.Caller, open *apiv1.AttachOpen) (*cluster.Job, *cluster.Attempt, error) {
	j, ok := c.fsm.Job(cluster.JobID(open.GetJob()))
	if !ok {
		return nil, nil, noJob(open.GetJob())
	}
	act, enters := authorize.ReadJob, open.GetExec() != nil || open.GetSignal() != nil
	if enters {
		act = authorize.Exec
	}
	if err := c.auth.May(who, act, &j.Owner); err != nil {
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
		return nil, nil, cluster.Errorf(cluster.CodeNotFound, "job %d is not on node %s but on %s", open.GetJob(), n, hostnames.Fold(a.NodeIDs()))
	}
	if !enters {
		return j, a, nil
	}
	switch {
	case a != last:
		return nil, nil, cluster.Errorf(cluster.CodeConflict, "attempt %d of job %d has ended; it is at attempt %d now (%s)", a.No, open.GetJob(), last.No, j.State)
	case j.State.Terminal() || !a.State.Live():
		return nil, nil, cluster.Errorf(cluster.CodeConflict, "job %d is not running (%s); only a running job can be entered", open.GetJob(), j.State)
	case j.State == cluster.JobUnreachable:
		return nil, nil, cluster.Errorf(cluster.CodeUnavailable, "node %s, on which job %d runs, cannot be reached now; the job continues if the node is alive", a.Berth.Node, open.GetJob())
	}
	return j, a, nil
}

// follow forwards a stream to the leader.
func (s *attachServer) follow(addr string, who authorize.Caller, first *apiv1.AttachRequest, stream attachStream) error {
	conn, err := s.c.peers.Get(addr)
	if err != nil {
		return &cluster.Error{Code: cluster.CodeUnavailable, Msg: "cannot reach the leader", Err: err}
	}
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	ctx = metadata.NewOutgoingContext(ctx, s.c.auth.OnBehalf(who))
	far, err := apirpc.NewAttachServiceClient(conn).Attach(ctx)
	if err == nil {
		err = far.Send(first)
		if errors.Is(err, io.EOF) {
			_, err = far.Recv()
		}
	}
	if err == nil {
		err = splice(ctx, stream, far)
	}
	if err != nil && stream.Context().Err() == nil && apiconv.FromStatus(err).Code == cluster.CodeUnknown {
		if _, known := status.FromError(err); known {
			return &cluster.Error{Code: cluster.CodeUnknown, Msg: "the connection to the leader broke, and the stream with it", Err: err}
		}
	}
	return err
}

// splice passes frames both ways, one at a time: what the slower side has not taken
// waits at the faster one. It returns when the far end has ended, or ctx does. What
// is still in flight then ends with the streams.
func splice(ctx context.Context, near attachStream, far farEnd) error {
	ended := make(chan error, 2)
	go func() {
		for {
			m, err := near.Recv()
			if errors.Is(err, io.EOF) {
				return // the user sends nothing more, but still listens
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

// rankOf returns the rank of the requested node, the first if none was requested.
func rankOf(a *cluster.Attempt, open *apiv1.AttachOpen) int {
	return max(0, a.Rank(cluster.NodeID(open.GetNode())))
}
