package agent

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/berth-scheduler/berth/agent/attempt"
	"github.com/berth-scheduler/berth/agent/gpu/caps"
	"github.com/berth-scheduler/berth/agent/gpu/health"
	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/wait"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// inbox holds what others have for the worker of an attempt. Its methods may be called from
// any goroutine.
type inbox struct {
	mu         sync.Mutex
	assignment *nodev1.Assignment
	released   bool
	over       *caps.Breach         // the attempt is above its share of a GPU
	server     *attempt.ServerFault // fault of the server through which it shares its GPU
	faults     attempt.Faults       // faults of its GPUs
	wake       chan struct{}
	computed   atomic.Pointer[time.Time] // when a GPU that it has alone last worked
}

// poke makes the worker look again.
func (b *inbox) poke() { wait.Poke(b.wake) }

// put changes the inbox and makes the worker look.
func (b *inbox) put(change func()) {
	b.mu.Lock()
	change()
	b.mu.Unlock()
	b.poke()
}

// update takes over a newer assignment, of which only stop, grace, preempt, the time limit
// and the attempt's caps on its GPUs change. It reports whether the caps changed.
func (b *inbox) update(as *nodev1.Assignment) (cut bool) {
	b.put(func() {
		cut = b.assignment != nil && !sameShares(b.assignment, as)
		b.assignment = as
	})
	return cut
}

// release records that the leader needs nothing more of this attempt: if alive, it must
// end, and may then be forgotten.
func (b *inbox) release() { b.put(func() { b.released = true }) }

// found records that the attempt is above its share.
func (b *inbox) found(br caps.Breach) { b.put(func() { b.over = &br }) }

// faulted records that the server through which the attempt shares its GPU ended.
func (b *inbox) faulted(f attempt.ServerFault) {
	b.put(func() {
		if b.server == nil {
			b.server = &f
		}
	})
}

// struck records a fault of one of the attempt's GPUs.
func (b *inbox) struck(f health.Fault) {
	b.mu.Lock()
	defer b.mu.Unlock()
	on := slices.ContainsFunc(b.assignment.GetGpus(), func(s *nodev1.Share) bool { return s.Uuid == f.UUID })
	if on && b.faults.Add(f) {
		b.poke()
	}
}

func (b *inbox) wants() (as *nodev1.Assignment, released bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.assignment, b.released
}

// blows returns what has happened so far to the attempt's memory, server and GPUs.
func (b *inbox) blows() (*caps.Breach, *attempt.ServerFault, attempt.Faults) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.over, b.server, slices.Clone(b.faults)
}

// await waits for up to d, or until there is reason to look again.
func (b *inbox) await(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(max(d, time.Millisecond))
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-b.wake:
	case <-timer.C:
	}
}

// acked tells the worker that the leader has committed what it reported.
func (a *Agent) acked(acks []*nodev1.Ack) {
	for _, k := range acks {
		id := cluster.AttemptID{Job: cluster.JobID(k.Job), No: k.Attempt}
		a.out.Ack(id, k.State)
		if !terminal(k.State) {
			continue
		}
		if t := a.task(id); t != nil && cluster.Token(k.Token) == t.token { // and not of an earlier part
			t.release()
		}
	}
}

func terminal(s nodev1.AttemptState) bool {
	return s >= nodev1.AttemptState_ATTEMPT_STATE_COMPLETED
}
