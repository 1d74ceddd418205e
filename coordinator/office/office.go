// Package office knows who leads: whether this coordinator is in office, so that
// its state is known to be current, and otherwise where the leader is.
package office

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/wait"
	"github.com/berth-scheduler/berth/coordinator/proposer"
	"github.com/berth-scheduler/berth/coordinator/raftnode"
)

// verifyLimit bounds the wait for the others to confirm a leader.
const verifyLimit = 5 * time.Second

// ErrNoLeader is the answer while there is no leader.
var ErrNoLeader = &cluster.Error{Code: cluster.CodeUnavailable,
	Msg: "the coordinators have no leader now: most of them may be down, or an election is going on; nothing was done; try again"}

// Term is a term of leadership: it lasts from when the state is known to be current
// until leadership is lost; then Ctx ends.
type Term struct {
	Ctx context.Context
	No  uint64
}

// Office is what a coordinator knows of the leadership. It is safe for concurrent
// use.
type Office struct {
	raft *raftnode.Node
	self string
	term atomic.Pointer[Term]
}

// New returns the office of the coordinator that others reach at an address,
// initially vacant.
func New(raft *raftnode.Node, self string) *Office { return &Office{raft: raft, self: self} }

// Take begins a term, which lasts until Leave.
func (o *Office) Take(t *Term) { o.term.Store(t) }

// Leave ends the term, if there is one.
func (o *Office) Leave() { o.term.Store(nil) }

// Term returns the current term of this coordinator, nil while it is not in office.
func (o *Office) Term() *Term { return o.term.Load() }

// Leader returns the leader as far as Raft knows here; the address is "" if there
// is none.
func (o *Office) Leader() (id, addr string) { return o.raft.Leader() }

// Await returns the current term; if there is none yet but this coordinator is
// Raft's leader, or there is no leader at all, it waits a moment.
func (o *Office) Await(ctx context.Context, atMost time.Duration) *Term {
	deadline := time.Now().Add(atMost)
	for {
		if t := o.Term(); t != nil {
			return t
		}
		_, addr := o.raft.Leader()
		if addr != "" && addr != o.self || time.Now().After(deadline) {
			return nil
		}
		if !wait.Sleep(ctx, 20*time.Millisecond) {
			return nil
		}
	}
}

// Verify checks that this coordinator still leads, so that what it reads is not
// older than an answer already given elsewhere.
func (o *Office) Verify(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, verifyLimit)
	defer cancel()
	if err := o.raft.VerifyLeader(ctx); err != nil {
		return &cluster.Error{Code: cluster.CodeUnavailable, Msg: proposer.ErrNotLeader.Msg, Err: err}
	}
	return nil
}
