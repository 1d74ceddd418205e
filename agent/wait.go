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

// await waits until there is reason to look again.
func (t *task) await(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(max(d, time.Millisecond))
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-t.wake:
	case <-timer.C:
	}
}
