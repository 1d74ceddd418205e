package nodes

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/coordinator/proposer"
	"github.com/berth-scheduler/berth/coordinator/roles"
	"github.com/berth-scheduler/berth/fsm"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
	"github.com/berth-scheduler/berth/proto/berth/node/v1/noderpc"
	"github.com/berth-scheduler/berth/proto/conv"
)

// nodeServer serves agents.
type nodeServer struct {
	noderpc.UnimplementedNodeServiceServer
	n *Nodes
}

const (
	reportTimeout  = 30 * time.Second
	sendQueue      = 64
	redirectIfNone = 2 * time.Second
)

// Session serves one agent for as long as this coordinator leads.
func (s *nodeServer) Session(stream noderpc.NodeService_SessionServer) error {
	role, id, err := s.n.peer(stream.Context())
	if err != nil || role != roles.Agent {
		return status.Error(codes.PermissionDenied, "sessions are for agents")
	}
	of := s.n.office.Await(stream.Context(), redirectIfNone)
	if of == nil {
		leaderID, addr := s.n.office.Leader()
		return stream.Send(&nodev1.SessionResponse{Kind: &nodev1.SessionResponse_Redirect{Redirect: &nodev1.Redirect{
			LeaderId: leaderID, LeaderAddr: addr,
		}}})
	}
	m, err := stream.Recv()
	if err != nil {
		return status.Convert(err).Err()
	}
	hello := m.GetHello()
	if hello == nil {
		return status.Error(codes.InvalidArgument, "a session begins with hello")
	}
	if hello.Node != id {
		return status.Errorf(codes.PermissionDenied, "the certificate is of node %q, the session says %q", id, hello.Node)
	}
	// The session ends with the stream or with this term.
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	defer context.AfterFunc(of.Ctx, cancel)()
	ss := &session{
		n: s.n, term: of.No, node: cluster.NodeID(id), stream: stream,
		out: make(chan *nodev1.SessionResponse, sendQueue), reports: make(chan []*nodev1.Report, sendQueue),
		sent: map[cluster.AttemptID]ending{}, log: s.n.log.With("node", id), gone: ctx.Done(),
	}
	if err := ss.register(ctx, hello); err != nil {
		return err
	}
	defer s.n.relays.enter(ss)()
	err = ss.run(ctx)
	if of.Ctx.Err() != nil {
		return status.Error(codes.Unavailable, "this coordinator no longer leads")
	}
	if err != nil && !errors.Is(err, io.EOF) && ctx.Err() == nil {
		return err
	}
	return nil
}

// session is the leader's end of the stream to one agent.
type session struct {
	n       *Nodes
	log     *slog.Logger
	term    uint64
	node    cluster.NodeID
	stream  noderpc.NodeService_SessionServer
	sending sync.Mutex // of stream
	out     chan *nodev1.SessionResponse
	reports chan []*nodev1.Report
	// sent holds the attempts that the agent was sent, and how it was told to end
	// them.
	sent map[cluster.AttemptID]ending
	// late is the newest hello, if it says what not every coordinator stores yet.
	late *nodev1.Hello
	// resumed is the newest index of a GPU's resumption that the agent was told.
	resumed uint64
	// fence is the node's when it registered; a node that was given up since must
	// register again.
	fence uint64
	// gangs means that the agent supports several processes.
	gangs bool
	// gone closes when the session has ended.
	gone <-chan struct{}
}

// run serves until ctx ends or the stream breaks. Three goroutines share it:
// one receives, one commits reports, one owns what is sent.
func (ss *session) run(ctx context.Context) error {
	defer ss.sending.Lock() // whoever still receives sends nothing anymore
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
			ss.n.live.heard(ss.node, k.Heartbeat.Gpus)
			ss.n.live.used(ss.node, k.Heartbeat.Attempts)
			if h := k.Heartbeat.Images; h != nil {
				ss.n.live.holds(ss.node, h.Names)
			}
			if ss.late != nil && ss.n.prop.Version() >= fsm.EntryVersion {
				if err := ss.register(ctx, ss.late); err != nil {
					return err
				}
			}
			if err := ss.answer(ctx, &nodev1.SessionResponse{Kind: &nodev1.SessionResponse_LeaseGranted{LeaseGranted: &nodev1.LeaseGranted{
				Sequence: k.Heartbeat.Sequence, Lease: durationpb.New(ss.n.cfg.Lease),
			}}}); err != nil {
				return err
			}
		case *nodev1.SessionRequest_Reports:
			ss.n.live.heard(ss.node, nil)
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

// answer sends m, which wakes nobody, or queues it behind what is being sent.
func (ss *session) answer(ctx context.Context, m *nodev1.SessionResponse) error {
	if !ss.sending.TryLock() {
		ss.queue(ctx, m)
		return nil
	}
	defer ss.sending.Unlock()
	return ss.stream.Send(m)
}

func (ss *session) send(m *nodev1.SessionResponse) error {
	ss.sending.Lock()
	defer ss.sending.Unlock()
	return ss.stream.Send(m)
}

func (ss *session) queue(ctx context.Context, m *nodev1.SessionResponse) {
	select {
	case ss.out <- m:
	case <-ctx.Done():
	}
}

// commitReports proposes what the agent reports and acknowledges what is committed.
// The rest stays unacknowledged, and is sent again.
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
		cmds := append(ss.drains(batch), ss.progress(batch)...)
		first := len(cmds)
		for _, r := range batch {
			cmds = append(cmds, &logv1.Command{Kind: &logv1.Command_ReportAttempt{ReportAttempt: conv.ReportToLog(ss.node, r)}})
		}
		pctx, cancel := context.WithTimeout(ctx, reportTimeout)
		results, err := ss.n.prop.Do(pctx, cmds...)
		cancel()
		if err != nil {
			return err // the agent finds the next leader and repeats it
		}
		acks := &nodev1.Acks{}
		results = results[first:]
		for i, r := range batch {
			if results[i].Err != nil {
				// Refused for good: an attempt of another node, or long over.
				ss.log.DebugContext(ctx, "report refused", "job", r.Job, "attempt", r.Attempt, "err", results[i].Err)
			}
			if results[i].Absurd {
				ss.n.sawAbsurd()
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
	changed, cancel := ss.n.feed.subscribe(ss.node)
	defer cancel()
	if err := ss.sendDesired(true); err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case m := <-ss.out:
			if err := ss.send(m); err != nil {
				return err
			}
		case <-changed:
			if err := ss.sendDesired(false); err != nil {
				return err
			}
		}
	}
}

// drains returns the command for reports in which the agent says that its node
// should take no more jobs, if there are any. It comes before them, so that nothing
// is placed there in between. An administrator's reason for a drain stays.
func (ss *session) drains(reports []*nodev1.Report) []*logv1.Command {
	for _, r := range reports {
		n, ok := ss.n.fsm.Node(ss.node)
		if r.GetDrain() == "" || !ok || n.Drain {
			continue
		}
		why := r.Drain
		if len(why) > MaxReason {
			why = why[:MaxReason]
		}
		why = strings.ToValidUTF8(why, "")
		ss.log.Warn("the agent asks for its node to be drained", "reason", why)
		return []*logv1.Command{{Kind: &logv1.Command_DrainNode{DrainNode: &logv1.DrainNode{Node: string(ss.node), Drain: true, Reason: why, Unasked: true}}}}
	}
	return nil
}

// progress returns the command that records the progress that attempts of this node
// reported at their end, if there are any. It comes before their ends.
func (ss *session) progress(reports []*nodev1.Report) []*logv1.Command {
	note := &logv1.NoteProgress{}
	for _, r := range reports {
		j, ok := ss.n.fsm.Job(cluster.JobID(r.Job))
		if r.Steps == nil || !ok || j.Live() == nil || j.Live().No != r.Attempt || !slices.Contains(j.Live().NodeIDs(), ss.node) {
			continue
		}
		p := conv.ProgressFromNode(r.Steps, cluster.TimeOf(ss.n.clock()))
		if was := j.Live().Progress; was == nil || p.Step > was.Step {
			note.Attempts = append(note.Attempts, conv.NoteProgress(cluster.AttemptID{Job: j.ID, No: r.Attempt}, p))
		}
	}
	cmd := &logv1.Command{Kind: &logv1.Command_NoteProgress{NoteProgress: note}}
	if len(note.Attempts) == 0 || fsm.NeedsVersion(cmd) > ss.n.prop.Version() {
		return nil
	}
	return []*logv1.Command{cmd}
}
