package nodes

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/coordinator/roles"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
	"github.com/berth-scheduler/berth/proto/berth/node/v1/noderpc"
	"github.com/berth-scheduler/berth/proto/conv"
)

// Agents only dial out, so the leader cannot call one on a user's behalf: it asks
// for a visit over the agent's session, the agent calls Relay, and the two streams
// are connected end to end.

const (
	// Streams of users at once.
	defaultStreams        = 512
	defaultStreamsPerUser = 32
)

// relays pairs users' streams with those of agents.
type relays struct {
	total, perUser int

	mu       sync.Mutex
	sessions map[cluster.NodeID]*session
	waiting  map[string]*pairing
	users    map[cluster.UID]int
	open     int
}

func newRelays(total, perUser int) *relays {
	total = cmp.Or(total, defaultStreams)
	perUser = cmp.Or(perUser, defaultStreamsPerUser)
	return &relays{
		total: total, perUser: perUser, sessions: map[cluster.NodeID]*session{},
		waiting: map[string]*pairing{}, users: map[cluster.UID]int{},
	}
}

// enter registers a session until the returned function is called.
func (r *relays) enter(ss *session) func() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sessions[ss.node] = ss
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.sessions[ss.node] == ss { // not a later one
			delete(r.sessions, ss.node)
		}
	}
}

func (r *relays) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.open
}

func (r *relays) session(node cluster.NodeID) *session {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sessions[node]
}

// admit counts a stream of uid until the returned function is called.
func (r *relays) admit(uid cluster.UID) (func(), error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.users[uid] >= r.perUser:
		return nil, cluster.Errorf(cluster.CodeExhausted, "you have %d streams open (shells, commands and followed outputs), at most %d are allowed (limits.streams_per_user); end one first", r.users[uid], r.perUser)
	case r.open >= r.total:
		return nil, cluster.Errorf(cluster.CodeExhausted, "the coordinator carries %d streams of users, which is all that it may (limits.streams_total); try again later", r.open)
	}
	r.users[uid]++
	r.open++
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.open--
		if r.users[uid]--; r.users[uid] == 0 {
			delete(r.users, uid)
		}
	}, nil
}

// pairing is a visit that an agent was asked for.
type pairing struct {
	node cluster.NodeID
	// came receives the agent's end, once; done closes when it is no longer wanted.
	came chan *AgentEnd
	done chan struct{}
}

// expect creates an id for a visit to node, valid until forget is called.
func (r *relays) expect(node cluster.NodeID) (id string, p *pairing, forget func()) {
	id = rand.Text()
	p = &pairing{node: node, came: make(chan *AgentEnd, 1), done: make(chan struct{})}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting[id] = p
	return id, p, func() {
		r.mu.Lock()
		delete(r.waiting, id)
		r.mu.Unlock()
		close(p.done)
	}
}

// take returns the visit of an id to node, once.
func (r *relays) take(id string, node cluster.NodeID) *pairing {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.waiting[id]
	if p == nil || p.node != node {
		return nil
	}
	delete(r.waiting, id)
	return p
}

// relayServer serves agents that call back.
type relayServer struct {
	noderpc.UnimplementedRelayServiceServer
	n *Nodes
}

// Relay hands the agent's end to the user's and lasts as long as that.
func (s *relayServer) Relay(stream noderpc.RelayService_RelayServer) error {
	role, id, err := s.n.peer(stream.Context())
	if err != nil || role != roles.Agent {
		return status.Error(codes.PermissionDenied, "relays are for agents")
	}
	first, err := stream.Recv()
	if err != nil {
		return status.Convert(err).Err()
	}
	p := s.n.relays.take(first.GetId(), cluster.NodeID(id))
	if p == nil {
		return status.Error(codes.NotFound, "nobody waits for this visit any more")
	}
	p.came <- &AgentEnd{stream: stream, node: p.node}
	select {
	case <-p.done:
		return nil
	case <-stream.Context().Done():
		return status.FromContextError(stream.Context().Err()).Err()
	}
}

// AgentEnd is an agent that called back: the other end of a user's stream.
type AgentEnd struct {
	stream noderpc.RelayService_RelayServer
	node   cluster.NodeID
}

// Send sends a frame.
func (a *AgentEnd) Send(m *apiv1.AttachRequest) error {
	return a.stream.Send(&nodev1.RelayResponse{Frame: m})
}

// Recv returns the next frame; io.EOF is the orderly end.
func (a *AgentEnd) Recv() (*apiv1.AttachResponse, error) {
	m, err := a.stream.Recv()
	switch {
	case err != nil:
		return nil, err
	case m.GetRefused() != nil:
		return nil, conv.RefusalFromNode(m.GetRefused())
	}
	return m.GetFrame(), nil
}

// Visit asks the agent of node for a visit and waits for it to come. The
// returned function ends it.
func (n *Nodes) Visit(ctx context.Context, node cluster.NodeID, v *nodev1.Visit) (*AgentEnd, func(), error) {
	ss := n.relays.session(node)
	if ss == nil {
		return nil, nil, n.away(node)
	}
	id, p, forget := n.relays.expect(node)
	v.Id = id
	ctx, cancel := context.WithTimeout(ctx, n.cfg.VisitWait)
	defer cancel()
	ss.queue(ctx, &nodev1.SessionResponse{Kind: &nodev1.SessionResponse_Visit{Visit: v}})
	select {
	case end := <-p.came:
		return end, forget, nil
	case <-ss.gone:
		forget()
		return nil, nil, n.away(node)
	case <-ctx.Done():
	}
	forget()
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return nil, nil, cluster.Errorf(cluster.CodeUnavailable, "the agent of node %s does not answer within %s: it hangs, or is of a release that cannot do this; its log on that node says more", node, n.cfg.VisitWait)
	}
	return nil, nil, context.Cause(ctx)
}

// away returns the error for a node that cannot be asked.
func (n *Nodes) away(node cluster.NodeID) error {
	if _, ok := n.fsm.Node(node); !ok {
		return cluster.Errorf(cluster.CodeNotFound, "node %s is no longer in the cluster", node)
	}
	return cluster.Errorf(cluster.CodeUnavailable, "node %s is not connected: its agent is down or cannot reach the coordinators; try again once berth node list shows it ready", node)
}
