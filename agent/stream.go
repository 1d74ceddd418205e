package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/berth-scheduler/berth/agent/gpu/caps"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

const (
	reportsPerMessage = 500
	firstReconnect    = 50 * time.Millisecond
	maxReconnect      = 2 * time.Second
	// leaseRounds heartbeats without an answer end a session: the leader may
	// be paused, and another one elected.
	leaseRounds = 5
)

// errRedirected ends a session with a coordinator that does not lead.
var errRedirected = errors.New("not the leader")

// runSessions keeps one session with the leader, wherever it is, until ctx
// ends. Losing it stops nothing.
func (a *Agent) runSessions(ctx context.Context) error {
	addrs := slices.Clone(a.cfg.Coordinators)
	next, wait := 0, firstReconnect
	for ctx.Err() == nil {
		addr := addrs[next%len(addrs)]
		began := time.Now()
		leader, err := a.session(ctx, addr)
		if ctx.Err() != nil {
			break
		}
		if time.Since(began) > 5*time.Second {
			wait = firstReconnect
		}
		switch {
		case errors.Is(err, errRedirected) && leader != "" && leader != addr:
			i := slices.Index(addrs, leader)
			if i < 0 {
				i = len(addrs)
				addrs = append(addrs, leader)
			}
			next = i
			a.log.Debug("redirected to the leader", "addr", leader)
		default:
			next++
			a.log.Info("session with coordinator ended", "addr", addr, "err", err)
		}
		jitter := time.Duration(rand.Int64N(int64(wait))) // #nosec G404 -- spreads what many do at once
		select {
		case <-ctx.Done():
		case <-time.After(wait/2 + jitter):
		}
		wait = min(2*wait, maxReconnect)
	}
	return ctx.Err()
}

// session talks with one coordinator until the stream ends. When that one
// does not lead, it returns errRedirected and the leader's address, if any.
func (a *Agent) session(ctx context.Context, addr string) (leader string, err error) {
	conn, err := a.cfg.Dial(addr)
	if err != nil {
		return "", fmt.Errorf("dial %s: %w", addr, err)
	}
	defer conn.Close()
	g, ctx := errgroup.WithContext(ctx)
	stream, err := nodev1.NewNodeServiceClient(conn).Session(ctx)
	if err != nil {
		return "", fmt.Errorf("open session: %w", err)
	}
	hello, err := a.hello(ctx)
	if err != nil {
		return "", err
	}
	if err := stream.Send(&nodev1.SessionRequest{Kind: &nodev1.SessionRequest_Hello{Hello: hello}}); err != nil {
		return "", streamErr(stream, err)
	}
	g.Go(func() error { return a.watchDevices(ctx, hello) })
	granted := make(chan struct{}, 1)
	ready := make(chan struct{})
	g.Go(func() error { return a.receive(conn, stream, granted, ready, &leader) })
	g.Go(func() error {
		// Reports wait for the first desired set: a coordinator that does not
		// lead could not commit them.
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ready:
		}
		a.out.Rewind()
		return a.send(ctx, stream, granted)
	})
	return leader, g.Wait()
}

// streamErr returns the status that ended a stream, which Send hides.
func streamErr(stream grpc.ClientStream, err error) error {
	if errors.Is(err, io.EOF) {
		return stream.RecvMsg(new(nodev1.SessionResponse))
	}
	return err
}

func (a *Agent) receive(conn *grpc.ClientConn, stream nodev1.NodeService_SessionClient, granted, ready chan struct{}, leader *string) error {
	first := true
	for {
		m, err := stream.Recv()
		if err != nil {
			return fmt.Errorf("receive: %w", err)
		}
		switch k := m.Kind.(type) {
		case *nodev1.SessionResponse_Redirect:
			*leader = k.Redirect.LeaderAddr
			return errRedirected
		case *nodev1.SessionResponse_Desired:
			a.apply(k.Desired)
			if first {
				first = false
				close(ready)
			}
		case *nodev1.SessionResponse_Acks:
			a.acked(k.Acks.Acks)
		case *nodev1.SessionResponse_Visit:
			a.visit(stream.Context(), conn, k.Visit)
		case *nodev1.SessionResponse_LeaseGranted:
			select {
			case granted <- struct{}{}:
			default:
			}
		}
	}
}

func (a *Agent) send(ctx context.Context, stream nodev1.NodeService_SessionClient, granted <-chan struct{}) error {
	tick := time.NewTicker(a.cfg.Heartbeat)
	defer tick.Stop()
	unanswered := 0
	for seq := uint64(1); ; {
		var m *nodev1.SessionRequest
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-granted:
			unanswered = 0
			continue
		case <-a.cards.changed:
			if err := a.sendHello(ctx, stream); err != nil {
				return err
			}
			continue
		case <-a.out.Ready():
			// What holds of a card must be known before what it says frees it.
			if a.cards.takeChanged() {
				if err := a.sendHello(ctx, stream); err != nil {
					return err
				}
			}
			rs := a.out.Take(reportsPerMessage)
			if len(rs) == 0 {
				continue
			}
			m = &nodev1.SessionRequest{Kind: &nodev1.SessionRequest_Reports{Reports: &nodev1.Reports{Reports: rs}}}
		case <-tick.C:
			if unanswered++; unanswered > leaseRounds {
				return fmt.Errorf("no answer to %d heartbeats", leaseRounds)
			}
			gpus := a.gpuUsage()
			if a.cfg.Observe != nil {
				a.cfg.Observe(gpus)
			}
			m = &nodev1.SessionRequest{Kind: &nodev1.SessionRequest_Heartbeat{Heartbeat: &nodev1.Heartbeat{Sequence: seq, Gpus: gpus, Attempts: a.recorder.Uses()}}}
			seq++
		}
		if err := stream.Send(m); err != nil {
			return fmt.Errorf("send: %w", err)
		}
	}
}

// hello describes the node as it is now.
func (a *Agent) hello(ctx context.Context) (*nodev1.Hello, error) {
	h := &nodev1.Hello{
		Protocol: Protocol, Node: string(a.cfg.Node), BootId: a.cfg.BootID, Address: a.cfg.Address,
		Version: a.cfg.Version, CpuMilli: a.cfg.CPUMilli, MemMib: a.cfg.MemMiB, Gangs: true,
		Features: a.cfg.Features,
	}
	for _, rt := range a.runtimes() {
		h.Runtimes = append(h.Runtimes, rt.Name())
	}
	if a.cfg.GPUs == nil {
		return h, nil
	}
	cards, err := a.cfg.GPUs.Inventory(ctx)
	if err != nil {
		// A card that cannot be read is not offered; the others are.
		a.log.ErrorContext(ctx, "cannot read every GPU", "err", err)
	}
	h.Gpus = a.sell(ctx, a.offered(ctx, caps.Sold(a.ours(ctx, cards))))
	a.describeCards(h)
	return h, nil
}

// busyMeter is a provider that integrates each card's utilization over the
// time since it began to count.
type busyMeter interface {
	Busy(uuid string) (busy, elapsed time.Duration, err error)
}

// gpuUsage is what the cards showed last; what cannot be read is left out.
func (a *Agent) gpuUsage() []*nodev1.GPUUsage {
	if a.cfg.GPUs == nil {
		return nil
	}
	usage, _ := a.sampler.Last()
	usage = a.oursUsed(usage)
	a.mu.Lock()
	usable := a.usable
	a.mu.Unlock()
	out := make([]*nodev1.GPUUsage, 0, len(usage))
	for _, u := range usage {
		g := &nodev1.GPUUsage{
			Uuid: u.UUID, UsedMib: u.UsedMiB, UtilMilli: u.UtilMilli, FreeMib: max(0, usable[u.UUID]-u.UsedMiB),
		}
		if m, ok := a.cfg.GPUs.(busyMeter); ok {
			if busy, elapsed, err := m.Busy(u.UUID); err == nil {
				g.BusyMs = busy.Milliseconds()
				g.Since = timestamppb.New(time.Now().Add(-elapsed))
			}
		}
		out = append(out, g)
	}
	return out
}
