package agent

import (
	"context"
	"time"
)

// pause waits for d; it reports false when ctx ended first.
func (t *task) pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
