package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"github.com/berth-scheduler/berth/agent/cards"
	"github.com/berth-scheduler/berth/agent/outbox"
	"github.com/berth-scheduler/berth/agent/pace"
	"github.com/berth-scheduler/berth/agent/probe"
	"github.com/berth-scheduler/berth/agent/profile"
	"github.com/berth-scheduler/berth/agent/progress"
	"github.com/berth-scheduler/berth/agent/runtime"
	"github.com/berth-scheduler/berth/cluster/wait"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
	"github.com/berth-scheduler/berth/proto/berth/node/v1/noderpc"
	"github.com/berth-scheduler/berth/proto/conv"
)

const (
	reportsPerMessage = 500
	firstReconnect    = 50 * time.Millisecond
	maxReconnect      = 2 * time.Second
	// electedSpread is the time over which agents that hear of a new leader at once spread
	// their connections.
	electedSpread = 200 * time.Millisecond
	// leaseRounds is how many unanswered heartbeats end a session: the leader may be
	// paused, and another elected.
	leaseRounds = 5
)

// errRedirected ends a session with a coordinator that does not lead.
var errRedirected = errors.New("not the leader")

// link is the session of an agent with the current leader.
type link struct {
	coordinators func() []string // where to look for the leader, in order
	leaders      func() []string // those that claim by gossip to lead
	dial         func(addr string) (*grpc.ClientConn, error)
	every        time.Duration         // between heartbeats
	hello        func() *nodev1.Hello  // the node without its GPUs
	apply        func(*nodev1.Desired) // takes over a desired set
	acked        func([]*nodev1.Ack)   // what the leader has committed
	visit        func(context.Context, grpc.ClientConnInterface, *nodev1.Visit)
	cut          func(context.Context, *nodev1.CutGPU)
	out          *outbox.Outbox
	cards        *cards.Cards
	recorder     *profile.Recorder
	progress     *progress.Feed
	prober       *probe.Prober
	puller       runtime.Puller  // nil where no images are pulled
	data         <-chan struct{} // receives when the node has other data sets
	log          *slog.Logger
}

// run keeps one session with the leader, wherever it is, until ctx ends. Losing the session
// stops nothing.
func (k *link) run(ctx context.Context) error {
	var round []string
	var last, told string // the leader it was redirected to
	wait := firstReconnect
	for ctx.Err() == nil {
		if len(round) == 0 {
			round = k.round(last)
		}
		addr := round[0]
		round, last = round[1:], addr
		began := time.Now()
		leader, err := k.session(ctx, addr)
		if ctx.Err() != nil {
			break
		}
		if time.Since(began) > 5*time.Second {
			wait, round, told = firstReconnect, nil, ""
		}
		switch {
		case errors.Is(err, errRedirected) && leader != "" && leader != addr:
			round = append([]string{leader}, round...)
			if leader != told { // the previous one may have gone
				wait, told = firstReconnect, leader
			}
			k.log.Debug("redirected to the leader", "addr", leader)
		default:
			k.log.Info("session with coordinator ended", "addr", addr, "err", err)
		}
		if k.elected(ctx, wait/2+jitter(wait)) {
			wait, round = firstReconnect, nil
			continue
		}
		wait = min(2*wait, maxReconnect)
	}
	return ctx.Err()
}

// elected waits for atMost, or until gossip names a new leader, and reports whether it did.
// Many agents hear of it at the same moment, so they spread out.
func (k *link) elected(ctx context.Context, atMost time.Duration) bool {
	late, look, before := time.After(atMost), time.NewTicker(firstReconnect), k.leaders()
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-late:
			return false
		case <-look.C:
		}
		if slices.ContainsFunc(k.leaders(), func(addr string) bool { return !slices.Contains(before, addr) }) {
			wait.Sleep(ctx, jitter(electedSpread))
			return true
		}
	}
}

// jitter returns a random part of d.
func jitter(d time.Duration) time.Duration {
	return time.Duration(rand.Int64N(int64(d))) // #nosec G404 -- spreads what many do at once
}

// round returns the addresses to try in order, with the last one tried moved to the end: a
// leader known by gossip may be gone.
func (k *link) round(last string) []string {
	out := k.coordinators()
	if i := slices.Index(out, last); i >= 0 {
		out = append(slices.Delete(out, i, i+1), last)
	}
	return out
}

// session talks to one coordinator until the stream ends. If that one does not lead, it
// returns errRedirected and the leader's address, if known.
func (k *link) session(ctx context.Context, addr string) (leader string, err error) {
	conn, err := k.dial(addr)
	if err != nil {
		return "", fmt.Errorf("dial %s: %w", addr, err)
	}
	defer conn.Close()
	g, ctx := errgroup.WithContext(ctx)
	stream, err := noderpc.NewNodeServiceClient(conn).Session(ctx)
	if err != nil {
		return "", fmt.Errorf("open session: %w", err)
	}
	hello := k.describe(ctx)
	if err := stream.Send(&nodev1.SessionRequest{Kind: &nodev1.SessionRequest_Hello{Hello: hello}}); err != nil {
		return "", streamErr(stream, err)
	}
	g.Go(func() error { return k.cards.WatchDevices(ctx, hello) })
	granted := make(chan time.Duration, 1)
	ready := make(chan struct{})
	g.Go(func() error { return k.receive(conn, stream, granted, ready, &leader) })
	g.Go(func() error {
		// Reports wait for the first desired set: a coordinator that does not lead could
		// not commit them.
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ready:
		}
		k.out.Rewind()
		return k.send(ctx, stream, granted)
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

func (k *link) receive(conn *grpc.ClientConn, stream noderpc.NodeService_SessionClient, granted chan<- time.Duration, ready chan struct{}, leader *string) error {
	first := true
	for {
		m, err := stream.Recv()
		if err != nil {
			return fmt.Errorf("receive: %w", err)
		}
		switch said := m.Kind.(type) {
		case *nodev1.SessionResponse_Redirect:
			*leader = said.Redirect.LeaderAddr
			return errRedirected
		case *nodev1.SessionResponse_Desired:
			k.apply(said.Desired)
			if first {
				first = false
				close(ready)
			}
		case *nodev1.SessionResponse_Acks:
			k.acked(said.Acks.Acks)
		case *nodev1.SessionResponse_Visit:
			k.visit(stream.Context(), conn, said.Visit)
		case *nodev1.SessionResponse_Cut:
			k.cut(stream.Context(), said.Cut)
		case *nodev1.SessionResponse_LeaseGranted:
			select {
			case granted <- said.LeaseGranted.Lease.AsDuration():
			default:
			}
		}
	}
}

func (k *link) send(ctx context.Context, stream noderpc.NodeService_SessionClient, granted <-chan time.Duration) error {
	tick := time.NewTicker(k.every)
	defer tick.Stop()
	unanswered := 0
	var held heldImages
	var rate pace.Pace
	for seq := uint64(1); ; {
		var m *nodev1.SessionRequest
		select {
		case <-ctx.Done():
			return ctx.Err()
		case lease := <-granted:
			unanswered = 0
			rate.Granted(lease)
			continue
		case <-k.data:
			if err := k.sendHello(ctx, stream); err != nil {
				return err
			}
			continue
		case <-k.cards.States.Changed:
			if err := k.sendHello(ctx, stream); err != nil {
				return err
			}
			continue
		case <-k.out.Ready():
			// The leader must know what is held against a GPU before the report that frees
			// it.
			if k.cards.States.TakeChanged() {
				if err := k.sendHello(ctx, stream); err != nil {
					return err
				}
			}
			rs := k.out.Take(reportsPerMessage)
			if len(rs) == 0 {
				continue
			}
			m = &nodev1.SessionRequest{Kind: &nodev1.SessionRequest_Reports{Reports: &nodev1.Reports{Reports: rs}}}
		case <-tick.C:
			beat := &nodev1.Heartbeat{Sequence: seq, Gpus: k.cards.Usage(), Attempts: k.uses(ctx), Images: held.news(ctx, k)}
			if !rate.Due(beat, k.every) {
				continue
			}
			if unanswered++; unanswered > leaseRounds {
				return fmt.Errorf("no answer to %d heartbeats", leaseRounds)
			}
			m = &nodev1.SessionRequest{Kind: &nodev1.SessionRequest_Heartbeat{Heartbeat: beat}}
			seq++
		}
		if err := stream.Send(m); err != nil {
			return fmt.Errorf("send: %w", err)
		}
	}
}

// uses returns the usage, progress and health of attempts, and the pull progress of those
// that wait for an image.
func (k *link) uses(ctx context.Context) []*nodev1.AttemptUse {
	uses := k.prober.Add(k.progress.Add(k.recorder.Uses()))
	if k.puller == nil {
		return uses
	}
	ctx, cancel := context.WithTimeout(ctx, k.every/4) // a hanging containerd must not delay the lease
	defer cancel()
	for id, p := range k.puller.Pulls(ctx) {
		uses = append(uses, &nodev1.AttemptUse{Job: uint64(id.Job), Attempt: id.No, Pull: conv.PullToNode(p)})
	}
	return uses
}

// heldImages is what a leader was told of the images on this node.
type heldImages struct {
	told  []string
	beats int // since the last look
	once  bool
}

// imageBeats is the number of heartbeats from one look at the images to the next.
const imageBeats = 4

// news returns the images on this node, nil when the leader knows them.
func (h *heldImages) news(ctx context.Context, k *link) *nodev1.HeldImages {
	if h.beats++; k.puller == nil || h.once && h.beats < imageBeats {
		return nil
	}
	h.beats = 0
	ctx, cancel := context.WithTimeout(ctx, k.every/4)
	defer cancel()
	names, err := k.puller.Held(ctx)
	if err != nil || h.once && slices.Equal(names, h.told) {
		return nil // what containerd does not report now, it reports at the next look
	}
	h.told, h.once = names, true
	return &nodev1.HeldImages{Names: names}
}

// helloStream is the sending side of a session.
type helloStream interface {
	Send(*nodev1.SessionRequest) error
}

// sendHello sends the leader a fresh description of the node.
func (k *link) sendHello(ctx context.Context, s helloStream) error {
	h := k.describe(ctx)
	if err := s.Send(&nodev1.SessionRequest{Kind: &nodev1.SessionRequest_Hello{Hello: h}}); err != nil {
		return fmt.Errorf("send hello: %w", err)
	}
	return nil
}

// describe returns the current description of the node.
func (k *link) describe(ctx context.Context) *nodev1.Hello {
	h := k.hello()
	k.cards.Offer(ctx, h)
	return h
}
