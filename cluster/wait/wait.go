// Package wait has what loops wait with: a sleep that ends with its context, and a
// channel that holds one token to trigger another look; and what knows for how long
// something has been waited for.
package wait

import (
	"context"
	"time"
)

// Sleep waits for d; it reports false if ctx ended first.
func Sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// Poke puts a token into ch, which holds one, unless there is one. It does not
// block.
func Poke(ch chan<- struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
