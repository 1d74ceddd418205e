// Package resource changes named objects with revisions: partitions, reservations,
// jobs. A change is computed from the current object; if another change came in
// between, it is computed again.
package resource

import (
	"context"
	"errors"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/coordinator/proposer"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

// setTries bounds how often a change is recomputed after others.
const setTries = 5

// Set proposes the command that change computes from the current object. It calls
// change again while the command is refused as outdated.
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
