// Package current makes a coordinator's own state as current as the leader's, for
// answers that it gives itself.
package current

import (
	"cmp"
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/berth-scheduler/berth/cluster/wait"
	"github.com/berth-scheduler/berth/coordinator/office"
	"github.com/berth-scheduler/berth/coordinator/peers"
	"github.com/berth-scheduler/berth/fsm"
	peerv1 "github.com/berth-scheduler/berth/proto/berth/peer/v1"
)

const (
	// reachWait bounds how long a read here waits for a leader to report its index,
	// and to catch up: an election lasts two or three seconds.
	reachWait    = 5 * time.Second
	confirmRetry = 50 * time.Millisecond
)

// Current knows how far the leader is. It is safe for concurrent use.
type Current struct {
	self    string
	catchUp time.Duration
	fsm     *fsm.FSM
	office  *office.Office
	peers   *peers.Conns
}

// New returns a Current that keeps the answers of the coordinator self current.
// catchUp bounds how long each waits, 0 means five seconds.
func New(self string, catchUp time.Duration, f *fsm.FSM, o *office.Office, p *peers.Conns) *Current {
	return &Current{self: self, catchUp: catchUp, fsm: f, office: o, peers: p}
}

// Currency is how current an answer is that this coordinator gives itself.
type Currency struct {
	Want   uint64 // how far it should be, 0 if no leader could say
	Behind bool   // it is not known to be that far
}

// Reach waits until this coordinator's state is as far as the leader's was at the
// call or, if least is not 0, as far as that: a client that was told that something
// is done finds it done here. It gives up after a while, since what is here is
// still worth reading while there is no leader.
func (c *Current) Reach(ctx context.Context, least uint64) Currency {
	limit := cmp.Or(c.catchUp, reachWait)
	if end, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(end)/2) // the other half is for the reading
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if least == 0 {
		index, ok := c.leaderIndex(ctx)
		if !ok {
			return Currency{Behind: true}
		}
		least = index
	}
	err := c.fsm.WaitChange(ctx, max(1, least)-1)
	return Currency{Want: least, Behind: err != nil}
}

// leaderIndex asks the leader for its index, until ctx ends.
func (c *Current) leaderIndex(ctx context.Context) (index uint64, ok bool) {
	for {
		if c.office.Term() != nil {
			return c.fsm.Index(), true
		}
		if id, addr := c.office.Leader(); addr != "" && id != c.self {
			index, err := c.confirmed(ctx, addr)
			if err == nil {
				return index, true
			}
			if status.Code(err) == codes.Unimplemented {
				return 0, false // from a release that does not know the query
			}
		}
		if !wait.Sleep(ctx, confirmRetry) {
			return 0, false
		}
	}
}

func (c *Current) confirmed(ctx context.Context, addr string) (uint64, error) {
	conn, err := c.peers.Get(addr)
	if err != nil {
		return 0, err
	}
	r, err := peerv1.NewPeerServiceClient(conn).ConfirmIndex(ctx, &peerv1.ConfirmIndexRequest{})
	return r.GetIndex(), err
}
