package client

import (
	"context"
	"errors"
	"io"

	"github.com/berth-scheduler/berth/cmd/internal/cli/wire"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// SaveBackup writes the leader's backup of its state to w. Another
// coordinator is tried only until the first bytes arrive; the file itself
// says whether it is complete.
func (c *Client) SaveBackup(ctx context.Context, w io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var stream answers[*apiv1.SaveBackupResponse]
	var first *apiv1.SaveBackupResponse
	err := c.Call(ctx, Reads, func(try context.Context, cc *wire.Conn) error {
		// The time limit of a try covers only its start; the rest may take any time.
		sctx, stop := context.WithCancel(ctx)
		release := context.AfterFunc(try, stop)
		var err error
		if stream, err = follow[*apiv1.SaveBackupResponse](sctx, cc, "BackupService/SaveBackup", &apiv1.SaveBackupRequest{}); err == nil {
			first, err = stream.Recv()
		}
		if err != nil || !release() {
			stop()
		}
		return err
	})
	for m := first; err == nil; m, err = stream.Recv() {
		if _, err := w.Write(m.GetData()); err != nil {
			return err
		}
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}
