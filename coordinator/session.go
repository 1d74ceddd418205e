package coordinator

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/coordinator/proposer"
	"github.com/berth-scheduler/berth/fsm"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

// nodeServer answers agents.
type nodeServer struct {
	nodev1.UnimplementedNodeServiceServer
	c *Coordinator
}

const (
	reportTimeout  = 30 * time.Second
	sendQueue      = 64
	redirectIfNone = 2 * time.Second
)

// Session serves one agent for as long as this coordinator leads.
func (s *nodeServer) Session(stream nodev1.NodeService_SessionServer) error {
	role, id, err := s.c.cfg.Peer(stream.Context())
	if err != nil || role != roleAgent {
		return status.Error(codes.PermissionDenied, "sessions are for agents")
	}
	of := s.c.awaitOffice(stream.Context(), redirectIfNone)
	if of == nil {
		leaderID, addr := s.c.raft.Leader()
		return stream.Send(&nodev1.SessionResponse{Kind: &nodev1.SessionResponse_Redirect{Redirect: &nodev1.Redirect{
			LeaderId: leaderID, LeaderAddr: addr,
		}}})
	}
	m, err := stream.Recv()
	if err != nil {
		return err
	}
	hello := m.GetHello()
	if hello == nil {
		return status.Error(codes.InvalidArgument, "a session begins with hello")
	}
	if hello.Node != id {
		return status.Errorf(codes.PermissionDenied, "the certificate is of node %q, the session says %q", id, hello.Node)
	}
	// The session ends with the stream or with this term of office.
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	defer context.AfterFunc(of.ctx, cancel)()
	ss := &session{
		c: s.c, term: of.term, node: cluster.NodeID(id), stream: stream,
		out: make(chan *nodev1.SessionResponse, sendQueue), reports: make(chan []*nodev1.Report, sendQueue),
		sent: map[cluster.AttemptID]ending{}, log: s.c.log.With("node", id), gone: ctx.Done(),
	}
	if err := ss.register(ctx, hello); err != nil {
		return toStatus(ctx, s.c.log, err)
	}
	defer s.c.relays.enter(ss)()
	err = ss.run(ctx)
	if of.ctx.Err() != nil {
		return status.Error(codes.Unavailable, "this coordinator no longer leads")
	}
	if err != nil && !errors.Is(err, io.EOF) && ctx.Err() == nil {
		return toStatus(ctx, s.c.log, err)
	}
	return nil
}

// awaitOffice returns the present term of office; when there is none yet but
// this node is Raft's leader, or there is no leader at all, it waits a moment.
func (c *Coordinator) awaitOffice(ctx context.Context, atMost time.Duration) *office {
	deadline := time.Now().Add(atMost)
	for {
		if of := c.leading(); of != nil {
			return of
		}
		_, addr := c.raft.Leader()
		if addr != "" && addr != c.cfg.Advertise || time.Now().After(deadline) {
			return nil
		}
		if !sleep(ctx, 20*time.Millisecond) {
			return nil
		}
	}
}

// session is the leader's end of the stream to one agent.
type session struct {
	c       *Coordinator
	log     *slog.Logger
	term    uint64
	node    cluster.NodeID
	stream  nodev1.NodeService_SessionServer
	out     chan *nodev1.SessionResponse
	reports chan []*nodev1.Report
	// sent holds the attempts that the agent was told of, and how it was told to
	// end them.
	sent map[cluster.AttemptID]ending
	// late is the newest hello, if it says what not every coordinator stores yet.
	late *nodev1.Hello
	// resumed is the newest index of a card's resumption that the agent was told.
	resumed uint64
	// fence is the node's when it registered; a node that was given up since
	// must do so anew.
	fence uint64
	// gangs tells that the agent knows what several processes are.
	gangs bool
	// gone closes when the session has ended.
	gone <-chan struct{}
}

// register records the node as hello describes it, when that is news. It is the
// one whose session this is.
func (ss *session) register(ctx context.Context, h *nodev1.Hello) error {
	if h.GetNode() != string(ss.node) {
		return cluster.Errorf(cluster.CodeDenied, "the session is of node %s, its agent says %q", ss.node, h.GetNode())
	}
	n, err := conv.NodeFromHello(h, ss.c.cfg.HeadroomMiB, ss.c.cfg.MaxShares)
	if err != nil {
		return err
	}
	ss.late = nil
	if !ss.c.asAllRead(n) {
		ss.late = h
	}
	if n.Address == "" {
		n.Address = peerHost(ss.stream.Context())
	}
	ss.c.untilAgreed(n)
	if old, ok := ss.c.fsm.Node(n.ID); !ok || old.State != cluster.NodeReady || !sameInventory(old, n) {
		_, err := ss.c.prop.One(ctx, &logv1.Command{Kind: &logv1.Command_RegisterNode{RegisterNode: &logv1.RegisterNode{Node: conv.NodeToLog(n)}}})
		if err != nil {
			return err
		}
		ss.logCards(ctx, old, n)
		ss.log.InfoContext(ctx, "node registered", "gpus", len(n.GPUs), "boot", n.BootID)
	}
	ss.gangs = h.Gangs
	ss.c.live.described(n.ID, h.Gpus)
	if now, ok := ss.c.fsm.Node(n.ID); ok {
		ss.fence = now.Fence
	}
	return nil
}

// valid returns why the session must end: the node was taken to be silent, or
// given up, since it registered. Only registering makes it ready again.
func (ss *session) valid() error {
	n, ok := ss.c.fsm.Node(ss.node)
	switch {
	case !ok:
		return cluster.Errorf(cluster.CodeDenied, "node %s was removed from the cluster", ss.node)
	case n.Fence != ss.fence || n.State != cluster.NodeReady:
		return cluster.Errorf(cluster.CodeUnavailable, "node %s was taken to be lost; it must register anew", ss.node)
	}
	return nil
}

func sameInventory(a, b *cluster.Node) bool {
	if a.Address != b.Address || a.BootID != b.BootID || a.CPUMilli != b.CPUMilli || a.MemMiB != b.MemMiB ||
		a.Version != b.Version || a.Problem != b.Problem || len(a.GPUs) != len(b.GPUs) || len(a.Runtimes) != len(b.Runtimes) || !slices.Equal(a.Features, b.Features) {
		return false
	}
	for i := range a.GPUs {
		if a.GPUs[i] != b.GPUs[i] {
			return false
		}
	}
	for i := range a.Runtimes {
		if a.Runtimes[i] != b.Runtimes[i] {
			return false
		}
	}
	return true
}

// run serves until ctx ends or the stream breaks. Three goroutines share it:
// one receives, one commits reports, one owns what is sent.
func (ss *session) run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	received := make(chan error, 1)
	// Recv returns only when the stream's own context ends, which is after
	// this function returns; so its goroutine is not part of the group.
	go func() { received <- ss.receive(ctx) }()
	g.Go(func() error {
		select {
		case err := <-received:
			if err == nil {
				err = io.EOF
			}
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	g.Go(func() error { return ss.commitReports(ctx) })
	g.Go(func() error { return ss.push(ctx) })
	return g.Wait()
}

func (ss *session) receive(ctx context.Context) error {
	for {
		m, err := ss.stream.Recv()
		if err != nil {
			return err
		}
		switch k := m.Kind.(type) {
		case *nodev1.SessionRequest_Heartbeat:
			if err := ss.valid(); err != nil {
				return err
			}
			ss.c.live.heard(ss.node, k.Heartbeat.Gpus)
			ss.c.live.used(ss.node, k.Heartbeat.Attempts)
			if ss.late != nil && ss.c.prop.Version() >= fsm.EntryVersion {
				if err := ss.register(ctx, ss.late); err != nil {
					return err
				}
			}
			ss.queue(ctx, &nodev1.SessionResponse{Kind: &nodev1.SessionResponse_LeaseGranted{LeaseGranted: &nodev1.LeaseGranted{
				Sequence: k.Heartbeat.Sequence, Lease: durationpb.New(ss.c.cfg.Lease),
			}}})
		case *nodev1.SessionRequest_Reports:
			ss.c.live.heard(ss.node, nil)
			select {
			case ss.reports <- k.Reports.Reports:
			case <-ctx.Done():
				return ctx.Err()
			}
		case *nodev1.SessionRequest_Hello:
			if err := ss.register(ctx, k.Hello); err != nil {
				return err
			}
		}
	}
}

func (ss *session) queue(ctx context.Context, m *nodev1.SessionResponse) {
	select {
	case ss.out <- m:
	case <-ctx.Done():
	}
}

// commitReports proposes what the agent reports and acknowledges what is
// committed. What is not stays unacknowledged, and comes again.
func (ss *session) commitReports(ctx context.Context) error {
	for {
		var batch []*nodev1.Report
		select {
		case <-ctx.Done():
			return ctx.Err()
		case batch = <-ss.reports:
		}
	gather:
		for len(batch) < proposer.MaxEntryCommands/2 {
			select {
			case more := <-ss.reports:
				batch = append(batch, more...)
			default:
				break gather
			}
		}
		cmds := ss.drains(batch)
		first := len(cmds)
		for _, r := range batch {
			cmds = append(cmds, &logv1.Command{Kind: &logv1.Command_ReportAttempt{ReportAttempt: conv.ReportToLog(ss.node, r)}})
		}
		pctx, cancel := context.WithTimeout(ctx, reportTimeout)
		results, err := ss.c.prop.Do(pctx, cmds...)
		cancel()
		if err != nil {
			return err // the agent finds the next leader and says it again
		}
		acks := &nodev1.Acks{}
		results = results[first:]
		for i, r := range batch {
			if results[i].Err != nil {
				// Refused for good: an attempt of another node, or long over.
				ss.log.DebugContext(ctx, "report refused", "job", r.Job, "attempt", r.Attempt, "err", results[i].Err)
			}
			if results[i].Absurd {
				ss.c.learn.SawAbsurd()
				ss.log.WarnContext(ctx, "measured figures cannot be; nothing is learned from them", "job", r.Job, "attempt", r.Attempt, "usage", r.Usage.String())
			}
			acks.Acks = append(acks.Acks, &nodev1.Ack{Job: r.Job, Attempt: r.Attempt, Token: r.Token, State: r.State})
		}
		ss.queue(ctx, &nodev1.SessionResponse{Kind: &nodev1.SessionResponse_Acks{Acks: acks}})
	}
}

// push sends the whole desired set, then each change of it, and whatever else
// is queued.
func (ss *session) push(ctx context.Context) error {
	changed, cancel := ss.c.feed.subscribe(ss.node)
	defer cancel()
	if err := ss.sendDesired(true); err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case m := <-ss.out:
			if err := ss.stream.Send(m); err != nil {
				return err
			}
		case <-changed:
			if err := ss.sendDesired(false); err != nil {
				return err
			}
		}
	}
}

// ending is how an attempt is to end that should not go on: at once, or after
// it saved its state, or when its time limit is up, which may be changed while it
// runs. With begin, one on several nodes may start.
type ending struct {
	stop, room, begin bool
	cut               int64 // memory that its shares were cut to, 0 before
	limit             time.Duration
}

// sendDesired sends what should be on the node: all of it when full, else
// what differs from what was sent last.
func (ss *session) sendDesired(full bool) error {
	d := &nodev1.Desired{Term: ss.term, Full: full}
	d.Revision = ss.c.fsm.Index()
	now := map[cluster.AttemptID]ending{}
	for _, j := range ss.c.fsm.NodeJobs(ss.node) {
		a := j.Live()
		if a == nil {
			continue
		}
		rank := a.Rank(ss.node)
		if rank < 0 || !a.PartLive(rank) || j.Spec.Ranked() && !ss.gangs {
			continue
		}
		id, end := cluster.AttemptID{Job: j.ID, No: a.No}, endingOf(j, a, rank)
		now[id] = end
		if was, known := ss.sent[id]; full || !known || was != end {
			as := conv.Assignment(j, a, rank)
			as.Stop = end.stop
			if p, ok := ss.c.fsm.Partition(j.Spec.Partition); ok && p.SessionIdle > 0 {
				as.SessionIdle = durationpb.New(p.SessionIdle)
			}
			if as.Ranks != nil {
				as.Ranks.MasterAddr = ss.c.masterAddr(a)
			}
			d.Assignments = append(d.Assignments, as)
		}
	}
	for id := range ss.sent {
		if _, ok := now[id]; !ok {
			d.Released = append(d.Released, &nodev1.AttemptRef{Job: uint64(id.Job), Attempt: id.No})
		}
	}
	ss.sent = now
	resumes := ss.resumes(d)
	if !full && !resumes && len(d.Assignments) == 0 && len(d.Released) == 0 {
		return nil
	}
	return ss.stream.Send(&nodev1.SessionResponse{Kind: &nodev1.SessionResponse_Desired{Desired: d}})
}

// Join exchanges a token for a certificate.
func (s *nodeServer) Join(ctx context.Context, req *nodev1.JoinRequest) (*nodev1.JoinResponse, error) {
	resp, err := s.c.join(ctx, req)
	if err != nil {
		return nil, toStatus(ctx, s.c.log, err)
	}
	return resp, nil
}

// node returns which node calls. Daemons of other roles have no business here.
func (s *nodeServer) node(ctx context.Context) (id string, err error) {
	role, id, err := s.c.cfg.Peer(ctx)
	switch {
	case err != nil, role == "":
		return "", status.Error(codes.Unauthenticated, "a certificate of a node is needed")
	case role != roleAgent:
		return "", status.Errorf(codes.PermissionDenied, "role %q may not call this: it is for nodes", role)
	}
	return id, nil
}

// GetClock tells a node the time.
func (s *nodeServer) GetClock(ctx context.Context, _ *nodev1.GetClockRequest) (*nodev1.GetClockResponse, error) {
	if _, err := s.node(ctx); err != nil {
		return nil, err
	}
	return &nodev1.GetClockResponse{Now: timestamppb.New(s.c.cfg.Clock())}, nil
}

// Renew issues a new certificate for the node that asks.
func (s *nodeServer) Renew(ctx context.Context, req *nodev1.RenewRequest) (*nodev1.RenewResponse, error) {
	id, err := s.node(ctx)
	if err != nil {
		return nil, err
	}
	if s.c.cfg.Certs == nil {
		return nil, status.Error(codes.FailedPrecondition, "this coordinator has no CA key; ask another one")
	}
	cert, ca, err := s.c.cfg.Certs.Issue(req.Csr, roleAgent, id)
	if err != nil {
		return nil, toStatus(ctx, s.c.log, cluster.Errorf(cluster.CodeInvalid, "certificate request: %v", err))
	}
	return &nodev1.RenewResponse{Certificate: cert, Ca: ca}, nil
}
