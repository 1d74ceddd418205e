package calls

import (
	"context"
	"errors"
	"log/slog"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/proto/conv/apiconv"
)

// ToStatus converts a non-nil error to a gRPC status; interceptors call it, so that
// handlers return errors as they are. What is not meant for users is logged in
// full.
func ToStatus(ctx context.Context, log *slog.Logger, err error) error {
	if e, ok := errors.AsType[*cluster.Error](err); ok && e.Code != cluster.CodeInternal {
		if e.Err != nil {
			log.DebugContext(ctx, "request refused", "err", err)
		}
		return apiconv.Status(e).Err()
	}
	if s, ok := status.FromError(err); ok {
		return s.Err()
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return status.FromContextError(err).Err()
	}
	log.ErrorContext(ctx, "request failed", "err", err)
	return status.Error(codes.Internal, "internal error; the coordinator's log has the details")
}
