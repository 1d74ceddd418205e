package agenttest

import (
	"context"
	"errors"
	"strconv"
	"time"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
	"github.com/berth-scheduler/berth/proto/berth/node/v1/noderpc"
)

// visitWait is how long an agent may take to call back.
const visitWait = 2 * time.Minute

// Guest is the leader's end of one visit.
type Guest struct {
	stream noderpc.RelayService_RelayServer
	gone   chan struct{}
}

// Send sends something to the agent in the user's name.
func (g *Guest) Send(m *apiv1.AttachRequest) error {
	return g.stream.Send(&nodev1.RelayResponse{Frame: m})
}

// Recv returns what the agent sends next: a frame or a refusal.
func (g *Guest) Recv() (*nodev1.RelayRequest, error) { return g.stream.Recv() }

// Leave ends the visit, as a user who leaves.
func (g *Guest) Leave() { close(g.gone) }

// relayServer accepts calls from agents.
type relayServer struct {
	noderpc.UnimplementedRelayServiceServer
	l *Leader
}

// Relay implements noderpc.RelayServiceServer.
func (r *relayServer) Relay(stream noderpc.RelayService_RelayServer) error {
	m, err := stream.Recv()
	if err != nil {
		return err
	}
	r.l.mu.Lock()
	ch := r.l.visits[m.GetId()]
	delete(r.l.visits, m.GetId())
	r.l.mu.Unlock()
	if ch == nil {
		return errors.New("nobody asked for this visit")
	}
	g := &Guest{stream: stream, gone: make(chan struct{})}
	ch <- g
	select {
	case <-g.gone:
	case <-stream.Context().Done():
	}
	return nil
}

// Visit requests a visit from the agent and waits for it.
func (l *Leader) Visit(ctx context.Context, v *nodev1.Visit) (*Guest, error) {
	ch := make(chan *Guest, 1)
	l.mu.Lock()
	l.revision++
	v.Id = "visit-" + strconv.FormatUint(l.revision, 10)
	l.visits[v.Id] = ch
	send := l.send
	l.mu.Unlock()
	if send == nil {
		return nil, errors.New("the agent has no session")
	}
	send <- &nodev1.SessionResponse{Kind: &nodev1.SessionResponse_Visit{Visit: v}}
	ctx, cancel := context.WithTimeout(ctx, visitWait)
	defer cancel()
	select {
	case g := <-ch:
		return g, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
