package limit

import (
	"context"
	"runtime"
	"time"

	"golang.org/x/sync/semaphore"
)

// slice is how long a turn computes before it yields to others.
const slice = 500 * time.Microsecond

// Worked charges time that the coordinator computed for a call. It may be called on
// nil, and after the call ended.
func (c *Call) Worked(d time.Duration) {
	if c == nil || c.times != 1 || d <= 0 {
		return
	}
	t := c.t
	t.mu.Lock()
	defer t.mu.Unlock()
	c.u.work.add(t.now(), t.inBucket(d))
}

// inBucket returns how long it takes until computed time is repaid.
func (t *Table) inBucket(d time.Duration) time.Duration {
	return min(time.Duration(float64(d)*1000/float64(t.cfg.WorkMilli)), longestDebt)
}

// Rest returns how long a stream should send nothing, since its user took more of
// the coordinator's time than allowed; 0 on nil.
func (c *Call) Rest() time.Duration {
	if c == nil || c.times != 1 {
		return 0
	}
	t := c.t
	t.mu.Lock()
	defer t.mu.Unlock()
	return c.u.work.wait(t.now(), workBurst)
}

// MayWork refuses a call that computes for long, but waits too much to be counted
// with lists, while its user took more of the coordinator's time than allowed; nil
// on nil.
func (c *Call) MayWork() error {
	rest := c.Rest()
	if rest <= 0 {
		return nil
	}
	c.t.mu.Lock()
	defer c.t.mu.Unlock()
	return c.t.refuse(tooMuchWork, max(rest, retrySoon))
}

// Turns runs long computations one after the other and in slices, so that there is
// always a core for short ones. It is safe for concurrent use.
type Turns struct{ free *semaphore.Weighted }

// NewTurns returns Turns with n turns at a time.
func NewTurns(n int) *Turns { return &Turns{semaphore.NewWeighted(int64(max(1, n)))} }

// Turn is one call's turn. It is for one goroutine.
type Turn struct {
	of    *Turns
	call  *Call
	ctx   context.Context
	since time.Time
	held  bool
}

// Take waits for a turn, which must be ended by End. call is charged for it, and
// may be nil.
func (t *Turns) Take(ctx context.Context, call *Call) (*Turn, error) {
	turn := &Turn{of: t, call: call, ctx: ctx}
	return turn, turn.take()
}

func (t *Turn) take() error {
	if err := t.of.free.Acquire(t.ctx, 1); err != nil {
		return err
	}
	t.since, t.held = time.Now(), true
	return nil
}

// End ends the turn and charges what it took. It may be called more than once, and
// on nil.
func (t *Turn) End() {
	if t == nil || !t.held {
		return
	}
	t.held = false
	t.of.free.Release(1)
	t.call.Worked(time.Since(t.since))
}

// Step yields to others once the turn has lasted for a slice. The error is the
// context's, if it ended; the turn is over then. It may be called on nil.
func (t *Turn) Step() error {
	if t == nil || t.held && time.Since(t.since) < slice {
		return nil
	}
	t.End()
	runtime.Gosched()
	return t.take()
}
