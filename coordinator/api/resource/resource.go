// Package resource changes what is kept by name and has a revision: partitions,
// reservations, jobs. A change is made from what there is; when another changed it
// meanwhile, it is made again.
package resource

import (
	"context"
	"errors"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/coordinator/proposer"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

// setTries bounds how often a change is made again from what another made of it.
const setTries = 5

// Set proposes the command that change makes of what there is. It calls change again
// while the command is refused since it was made from something older.
func Set(ctx context.Context, p *proposer.Proposer, change func() (*logv1.Command, error)) error {
	for try := 1; ; try++ {
		cmd, err := change()
		if err != nil {
			return err
		}
		_, err = p.One(ctx, cmd)
		if e, ok := errors.AsType[*cluster.Error](err); !ok || e.Code != cluster.CodeConflict || try == setTries {
			return err
		}
	}
}
