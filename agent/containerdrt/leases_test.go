package containerdrt

import (
	"context"
	"strconv"
	"sync/atomic"

	"github.com/containerd/containerd/v2/core/leases"
)

var leaseNumber atomic.Int64

func leaseID() leases.Opt {
	return leases.WithID("collect-" + strconv.FormatInt(leaseNumber.Add(1), 10))
}

// synchronous has containerd collect garbage before it answers.
func synchronous(ctx context.Context, o *leases.DeleteOptions) error {
	return leases.SynchronousDelete(ctx, o)
}
