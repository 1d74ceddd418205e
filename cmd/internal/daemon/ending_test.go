package daemon

import (
	"errors"
	"fmt"
	"syscall"
	"testing"

	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
)

// TestEnding: systemd starts a coordinator again after a full disk, and not after
// damage.
func TestEnding(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err   error
		again bool
	}{
		{fmt.Errorf("write raft.db: %w", syscall.ENOSPC), true},
		{fmt.Errorf("write raft.db: %w", syscall.EDQUOT), true},
		{fmt.Errorf("write raft.db: %w", syscall.EIO), false},
		{errors.New("state differs"), false},
	} {
		exit, ok := errors.AsType[*console.ExitError](ending(c.err))
		if stays := ok && exit.Code == exitBadState; stays == c.again || !errors.Is(ending(c.err), c.err) {
			t.Errorf("%v ends it with %v", c.err, ending(c.err))
		}
	}
}
