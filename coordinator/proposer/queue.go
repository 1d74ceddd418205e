package proposer

import (
	"context"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/fsm"
)

// Limits of one log entry. An entry that is too large holds up heartbeats.
const (
	maxEntryBytes = 1 << 20
	// largeBytes is the size from which a proposal has its own entry, which at most
	// every other one is while anything smaller waits.
	largeBytes = 64 << 10
	// MaxEntryCommands is how many commands of several callers one entry takes;
	// those of one call stay together, however many.
	MaxEntryCommands = 2048
	// maxCallBytes bounds what one call may add: it must fit in one entry.
	maxCallBytes = 3 << 20
	// maxPending bounds the commands that wait to be proposed; beyond it callers
	// must retry.
	maxPending      = 16384
	maxPendingBytes = 64 << 20
	// ownerShare is the part of that which one user's may be.
	ownerShare = 4
)

type ownerKey struct{}

// For returns a context in which proposals count as a user's: users take turns.
// Proposals of no user count as another user's.
func For(ctx context.Context, uid cluster.UID) context.Context {
	return context.WithValue(ctx, ownerKey{}, int64(uid))
}

func ownerOf(ctx context.Context) int64 {
	if uid, ok := ctx.Value(ownerKey{}).(int64); ok {
		return uid
	}
	return -1
}

// queue is what waits to be proposed: in order for each owner, in turn between
// owners. The zero value is empty.
type queue struct {
	owners map[int64]*ownerQueue
	ring   []*ownerQueue // those with waiting proposals; the first is next
	n      int
	bytes  int
	// large means that the last entry was of something large.
	large bool
}

type ownerQueue struct {
	owner int64
	wait  []*proposal
	bytes int
}

// add queues a proposal, unless too much waits. The error is a *cluster.Error.
func (q *queue) add(pr *proposal) error {
	o := q.owners[pr.owner]
	switch {
	case q.n >= maxPending || q.bytes >= maxPendingBytes:
		return cluster.Errorf(cluster.CodeExhausted, "%d requests of %d MiB wait for the disk already; try again in a second", q.n, q.bytes>>20)
	case o == nil:
		o = &ownerQueue{owner: pr.owner}
		if q.owners == nil {
			q.owners = map[int64]*ownerQueue{}
		}
		q.owners[pr.owner] = o
		q.ring = append(q.ring, o)
	case pr.owner >= 0 && (len(o.wait) >= maxPending/ownerShare || o.bytes >= maxPendingBytes/ownerShare):
		return cluster.Errorf(cluster.CodeExhausted, "%d requests of yours of %d MiB wait for the disk already; try again in a second", len(o.wait), o.bytes>>20)
	}
	o.wait = append(o.wait, pr)
	o.bytes += pr.size
	q.n++
	q.bytes += pr.size
	return nil
}

// take removes and returns what goes into the next entry, nothing if nothing waits.
func (q *queue) take() []*proposal {
	if i := q.firstLarge(); i >= 0 && !q.large {
		q.large = true
		return []*proposal{q.pop(i)}
	}
	if batch := q.takeSmall(); len(batch) > 0 {
		q.large = false
		return batch
	}
	if len(q.ring) == 0 {
		q.large = false
		return nil
	}
	return []*proposal{q.pop(0)}
}

// firstLarge returns whose turn it is among those whose next proposal is large, -1
// for none.
func (q *queue) firstLarge() int {
	return slices.IndexFunc(q.ring, func(o *ownerQueue) bool { return o.wait[0].size >= largeBytes })
}

// takeSmall takes proposals of the owners in turn until nothing small waits or the
// entry is full.
func (q *queue) takeSmall() []*proposal {
	var batch []*proposal
	size, cmds, cost := 0, 0, 0
	for passed := 0; passed < len(q.ring); {
		pr := q.ring[0].wait[0]
		if pr.size >= largeBytes {
			q.pass()
			passed++
			continue
		}
		if len(batch) > 0 && (size+pr.size > maxEntryBytes || cmds+len(pr.cmds) > MaxEntryCommands || cost+pr.cost > fsm.EntryCost) {
			break
		}
		size, cmds, cost = size+pr.size, cmds+len(pr.cmds), cost+pr.cost
		batch, passed = append(batch, q.pop(0)), 0
	}
	return batch
}

// pop takes the next proposal of an owner, which is then the last to have another
// turn.
func (q *queue) pop(i int) *proposal {
	o := q.ring[i]
	pr := o.wait[0]
	o.wait[0] = nil
	o.wait, o.bytes = o.wait[1:], o.bytes-pr.size
	q.n, q.bytes = q.n-1, q.bytes-pr.size
	q.ring = slices.Delete(q.ring, i, i+1)
	if len(o.wait) > 0 {
		q.ring = append(q.ring, o)
	} else {
		delete(q.owners, o.owner)
	}
	return pr
}

// pass skips the next owner's turn.
func (q *queue) pass() {
	o := q.ring[0]
	q.ring = append(slices.Delete(q.ring, 0, 1), o)
}

// all returns everything that waits.
func (q *queue) all() []*proposal {
	var out []*proposal
	for _, o := range q.ring {
		out = append(out, o.wait...)
	}
	return out
}
