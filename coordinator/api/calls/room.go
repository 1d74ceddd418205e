package calls

import (
	"context"

	"google.golang.org/grpc"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

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
