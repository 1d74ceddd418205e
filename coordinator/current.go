package coordinator

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	peerv1 "github.com/berth-scheduler/berth/proto/berth/peer/v1"
)

const (
	// reachWait bounds how long a read here waits for a leader to say how far it
	// is, and to be as far: an election lasts two or three seconds.
	reachWait    = 5 * time.Second
	confirmRetry = 50 * time.Millisecond
)

// currency is how current an answer is that this coordinator gives by itself.
type currency struct {
	want   uint64 // how far it should be, 0 when no leader could tell
	behind bool   // it is not known to be as far
}

// reach waits until this coordinator's state is as far as the leader's was at
// the call or, when least is not 0, as far as that: whoever was told that
// something is done finds it done here. It gives up after a while, since what is
// here is still worth reading while there is no leader.
func (c *Coordinator) reach(ctx context.Context, least uint64) currency {
	limit := c.cfg.CatchUp
	if limit == 0 {
		limit = reachWait
	}
	if end, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(end)/2) // the other half is for the reading
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if least == 0 {
		index, ok := c.leaderIndex(ctx)
		if !ok {
			return currency{behind: true}
		}
		least = index
	}
	err := c.fsm.WaitChange(ctx, max(1, least)-1)
	return currency{want: least, behind: err != nil}
}

// leaderIndex asks whoever leads how far it is, until ctx ends.
func (c *Coordinator) leaderIndex(ctx context.Context) (index uint64, ok bool) {
	for {
		if c.leading() != nil {
			return c.fsm.Index(), true
		}
		if id, addr := c.raft.Leader(); addr != "" && id != c.cfg.ID {
			index, err := c.confirmed(ctx, addr)
			if err == nil {
				return index, true
			}
			if status.Code(err) == codes.Unimplemented {
				return 0, false // of a release that does not know the question
			}
		}
		if !sleep(ctx, confirmRetry) {
			return 0, false
		}
	}
}

func (c *Coordinator) confirmed(ctx context.Context, addr string) (uint64, error) {
	conn, err := c.peers.get(addr)
	if err != nil {
		return 0, err
	}
	r, err := peerv1.NewPeerServiceClient(conn).ConfirmIndex(ctx, &peerv1.ConfirmIndexRequest{})
	return r.GetIndex(), err
}

// ConfirmIndex says how far this coordinator is, if it leads: what it answered
// to anybody is in its state, and the others confirm that nobody answers since.
func (s *peerServer) ConfirmIndex(ctx context.Context, _ *peerv1.ConfirmIndexRequest) (*peerv1.ConfirmIndexResponse, error) {
	if role, _, err := s.c.cfg.Peer(ctx); err != nil || role != roleCoordinator {
		return nil, status.Error(codes.PermissionDenied, "this is for coordinators")
	}
	if s.c.leading() == nil {
		return nil, status.Error(codes.FailedPrecondition, "this coordinator does not lead now")
	}
	index := s.c.fsm.Index()
	if err := s.c.raft.VerifyLeader(ctx); err != nil {
		return nil, status.Error(codes.FailedPrecondition, "this coordinator may lead no longer: "+err.Error())
	}
	return &peerv1.ConfirmIndexResponse{Index: index}, nil
}
