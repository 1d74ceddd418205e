package load

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"github.com/berth-scheduler/berth/cmd/internal/dev"
	"github.com/berth-scheduler/berth/cmd/internal/tlsconf"
)

// fleet is all simulated nodes.
type fleet struct {
	coordinators []string // addresses
	nodes        []*node
	// began is when each job was first seen on a node, by its number.
	began []atomic.Int64

	connected, started, ended atomic.Int64
	// connecting has an element for each node that is about to begin a session.
	connecting chan struct{}
	// An epoch ends when all nodes have connected in it.
	epoch atomic.Int64
	mu    sync.Mutex
	came  int
	all   chan struct{}
}

// atOnce is how many nodes may connect at a time. They share this machine's cores: more
// would wait for each other rather than for the leader, until their time is up.
const atOnce = 64

// newFleet makes nodes and their certificates. jobs is how many there will be.
func newFleet(c *dev.Cluster, nodes, gpus, jobs int) (*fleet, error) {
	f := &fleet{nodes: make([]*node, nodes), began: make([]atomic.Int64, jobs+1), all: make(chan struct{}), connecting: make(chan struct{}, atOnce)}
	for _, co := range c.Coordinators() {
		f.coordinators = append(f.coordinators, co.Addr)
	}
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	var g errgroup.Group
	g.SetLimit(4)
	for i := range nodes {
		g.Go(func() error {
			name := fmt.Sprintf("n%d", i+1)
			m, err := c.Certify(name)
			if err != nil {
				return err
			}
			src, err := tlsconf.NewSource(m, quiet)
			if err != nil {
				return err
			}
			// Nodes have addresses of their own: one has too few ports for all, and a
			// coordinator counts connections by address.
			from := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, byte(1+i>>16), byte(i>>8), byte(i))}}
			dial := tlsconf.Dialer(src, tlsconf.RoleCoordinator, grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
				return from.DialContext(ctx, "tcp", addr)
			}))
			f.nodes[i] = newNode(f, name, gpus, dial)
			return nil
		})
	}
	return f, g.Wait()
}

// live runs all nodes until ctx ends.
func (f *fleet) live(ctx context.Context) {
	var wg sync.WaitGroup
	for _, n := range f.nodes {
		wg.Go(func() { n.live(ctx) })
	}
	wg.Wait()
}

// entered counts a node whose session has begun.
func (f *fleet) entered(n *node) {
	f.connected.Add(1)
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.epoch.Load()
	if n.epoch == now {
		return
	}
	n.epoch = now
	if f.came++; f.came == len(f.nodes) {
		close(f.all)
	}
}

// again begins an epoch: all nodes have to connect once more.
func (f *fleet) again() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.epoch.Add(1)
	f.came, f.all = 0, make(chan struct{})
}

// awaitAll waits until all nodes have connected in this epoch.
func (f *fleet) awaitAll(ctx context.Context, limit time.Duration) error {
	f.mu.Lock()
	all := f.all
	f.mu.Unlock()
	select {
	case <-all:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(limit):
		return fmt.Errorf("%d of %d nodes have no session with the leader after %v", len(f.nodes)-int(f.connected.Load()), len(f.nodes), limit)
	}
}

// hasStarted notes that a job is on a node.
func (f *fleet) hasStarted(job uint64, at time.Time) {
	f.started.Add(1)
	if job < uint64(len(f.began)) {
		f.began[job].CompareAndSwap(0, at.UnixMicro())
	}
}

// await waits until count has reached want; it gives up when nothing moves for a while.
func await(ctx context.Context, what string, count *atomic.Int64, want int64, say func(done int64)) error {
	last, moved, said := count.Load(), time.Now(), time.Now()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		now := count.Load()
		if now >= want {
			return nil
		}
		if now != last {
			last, moved = now, time.Now()
		}
		if time.Since(moved) > stall {
			return fmt.Errorf("%s: %d are missing, and nothing has happened for %v", what, want-now, stall)
		}
		if time.Since(said) > 10*time.Second {
			said = time.Now()
			say(now)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// stall is how long nothing may happen while something should.
const stall = 2 * time.Minute
