package calls

import (
	"context"

	"google.golang.org/grpc"

	"github.com/berth-scheduler/berth/proto/berth/api/v1/apirpc"
)

// grows reports whether the log keeps what users send with a method. Cancelling
// does not count, since it is how work ends, nor does what administrators do to
// nodes.
func grows(method string) bool {
	switch method {
	case apirpc.JobService_SubmitJobs_FullMethodName, apirpc.JobService_ControlJobs_FullMethodName, apirpc.JobService_UpdateJob_FullMethodName,
		apirpc.NotifyService_AddWebhook_FullMethodName, apirpc.NotifyService_RemoveWebhook_FullMethodName,
		apirpc.ModelService_PublishModel_FullMethodName, apirpc.ModelService_ImportRuns_FullMethodName:
		return true
	}
	return false
}

// whileRoom refuses what would grow the log while there is too little room.
func (c *Calls) whileRoom(method string, next grpc.UnaryHandler) grpc.UnaryHandler {
	if !grows(method) {
		return next
	}
	return func(ctx context.Context, req any) (any, error) {
		if err := c.space.Grow(); err != nil {
			return nil, err
		}
		return next(ctx, req)
	}
}
