package raftnode

import (
	"context"
	"fmt"
	"time"

	"github.com/hashicorp/raft"
)

// enqueueLimit bounds the wait for Raft's loop if ctx has no deadline.
const enqueueLimit = 10 * time.Second

// Propose appends data to the log and waits until it is applied here. It returns
// the entry's index and what the state machine's Apply returned. The caller must
// not modify data afterwards. Many calls may be in flight at once: they share
// fsyncs and messages. Classify says what an error means for the entry.
func (n *Node) Propose(ctx context.Context, data []byte) (index uint64, result any, err error) {
	if len(data) > n.cfg.MaxEntryBytes {
		return 0, nil, fmt.Errorf("%w: %d bytes, at most %d", ErrEntryTooLarge, len(data), n.cfg.MaxEntryBytes)
	}
	wait, err := n.admit(ctx)
	if err != nil {
		return 0, nil, err
	}
	f := n.raft.Apply(data, wait)
	if err := n.await(ctx, f); err != nil {
		return 0, nil, fmt.Errorf("propose: %w", err)
	}
	return f.Index(), f.Response(), nil
}

// Barrier returns when every entry that was committed before the call is applied
// here. It also proves leadership: only a leader can do it.
func (n *Node) Barrier(ctx context.Context) error {
	wait, err := n.admit(ctx)
	if err != nil {
		return err
	}
	if err := n.await(ctx, n.raft.Barrier(wait)); err != nil {
		return fmt.Errorf("barrier: %w", err)
	}
	return nil
}

// VerifyLeader asks a majority whether this node still leads, so that a read
// that begins after the call and finds AppliedIndex at least CommitIndex is
// current.
func (n *Node) VerifyLeader(ctx context.Context) error {
	if _, err := n.admit(ctx); err != nil {
		return err
	}
	if err := n.await(ctx, n.raft.VerifyLeader()); err != nil {
		return fmt.Errorf("verify leadership: %w", err)
	}
	return nil
}

// admit returns how long a call may wait for Raft's loop, or why it may not begin.
func (n *Node) admit(ctx context.Context) (time.Duration, error) {
	if n.closing.Load() {
		return 0, ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return 0, fmt.Errorf("%w: %w", ErrNotProposed, context.Cause(ctx))
	}
	deadline, ok := ctx.Deadline()
	if !ok {
		return enqueueLimit, nil
	}
	left := time.Until(deadline)
	if left <= 0 {
		return 0, fmt.Errorf("%w: %w", ErrNotProposed, context.DeadlineExceeded)
	}
	return min(left, enqueueLimit), nil
}

// await waits for f, ctx or the end of Raft. Raft answers everything when
// leadership ends, but not when it is shut down, so a goroutine may be left waiting
// then; the process ends with the node.
func (n *Node) await(ctx context.Context, f raft.Future) error {
	done := make(chan error, 1)
	go func() { done <- f.Error() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-n.stopped:
	}
	select {
	case err := <-done:
		return err
	default:
		return raft.ErrRaftShutdown
	}
}

// TransferLeadership hands leadership to the most up-to-date voter, and returns
// when this node no longer leads. Proposals meanwhile are refused.
func (n *Node) TransferLeadership(ctx context.Context) error {
	return n.transfer(ctx, n.raft.LeadershipTransfer)
}

// TransferTo is TransferLeadership to one voter.
func (n *Node) TransferTo(ctx context.Context, s Server) error {
	return n.transfer(ctx, func() raft.Future {
		return n.raft.LeadershipTransferToServer(raft.ServerID(s.ID), raft.ServerAddress(s.Addr))
	})
}

func (n *Node) transfer(ctx context.Context, begin func() raft.Future) error {
	if _, err := n.admit(ctx); err != nil {
		return err
	}
	if err := n.await(ctx, begin()); err != nil {
		return fmt.Errorf("transfer leadership: %w", err)
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for n.IsLeader() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("transfer leadership: %w", context.Cause(ctx))
		case <-n.stopped:
			return nil
		case <-tick.C:
		}
	}
	return nil
}
