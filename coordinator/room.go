package coordinator

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc"

	"github.com/berth-scheduler/berth/coordinator/raftnode"
	"github.com/berth-scheduler/berth/coordinator/space"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// yieldEvery is the time between two looks for a coordinator with more room.
const yieldEvery = time.Second

// grows reports whether the log keeps what users send with a method. Cancelling
// is none of these, since it is how work ends, nor is what administrators do to nodes.
func grows(method string) bool {
	switch method {
	case apiv1.JobService_SubmitJobs_FullMethodName, apiv1.JobService_ControlJobs_FullMethodName, apiv1.JobService_UpdateJob_FullMethodName,
		apiv1.NotifyService_AddWebhook_FullMethodName, apiv1.NotifyService_RemoveWebhook_FullMethodName,
		apiv1.ModelService_PublishModel_FullMethodName, apiv1.ModelService_ImportRuns_FullMethodName:
		return true
	}
	return false
}

// whileRoom refuses what would grow the log while there is too little room.
func (c *Coordinator) whileRoom(method string, next grpc.UnaryHandler) grpc.UnaryHandler {
	if !grows(method) {
		return next
	}
	return func(ctx context.Context, req any) (any, error) {
		if err := c.space.Grow(); err != nil {
			return nil, toStatus(ctx, c.log, err)
		}
		return next(ctx, req)
	}
}

// yieldWhenFull hands leadership over while there is no room here for the log and
// another coordinator has some, until ctx ends.
func (c *Coordinator) yieldWhenFull(ctx context.Context) error {
	for {
		if c.space.State().Level == space.Full {
			if to, ok := c.roomiest(ctx); ok {
				c.log.WarnContext(ctx, "the disk is full; another coordinator is to lead", "to", to.ID)
				if err := c.raft.TransferTo(ctx, to); err != nil && !errors.Is(err, context.Canceled) {
					c.log.WarnContext(ctx, "leadership not handed over", "to", to.ID, "err", err)
				}
			}
		}
		if !sleep(ctx, yieldEvery) {
			return ctx.Err()
		}
	}
}

// roomiest is the other voter with the most room, of those that say how much they
// have and are not full.
func (c *Coordinator) roomiest(ctx context.Context) (best raftnode.Server, found bool) {
	most := uint64(0)
	for _, m := range c.raft.Members() {
		if !m.Voter || m.ID == c.cfg.ID {
			continue
		}
		r, err := c.ask(ctx, m)
		if err != nil || r.DiskSize == 0 || r.DiskFull || r.DiskFree <= most {
			continue
		}
		best, most, found = raftnode.Server{ID: m.ID, Addr: m.Addr}, r.DiskFree, true
	}
	return best, found
}
