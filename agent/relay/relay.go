// Package relay serves users who look into their jobs on this node: it shows them a job's
// output and runs commands inside it. The leader requests each visit; the agent calls it back,
// since agents only dial out.
package relay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/berth-scheduler/berth/agent/asuser"
	"github.com/berth-scheduler/berth/cluster"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
	"github.com/berth-scheduler/berth/proto/berth/node/v1/noderpc"
	"github.com/berth-scheduler/berth/proto/conv"
)

const (
	// maxVisits bounds how many visits are served at a time.
	maxVisits = 256
	// MaxVisitsPerUser bounds how many visits of one user are served at a time. A hanging file
	// system keeps visits busy after their user has gone: only that user's.
	MaxVisitsPerUser = 64
	// startWait is how long a command waits for its job to be started.
	startWait = 10 * time.Second
	// closeWait is how long a reader may take to notice that nobody reads any more.
	closeWait = time.Second
	// aliveEvery is the longest time between messages to a user.
	aliveEvery = 10 * time.Second
)

// Server implements agent.Visitors.
type Server struct {
	log *slog.Logger
	// most is how long a command is kept without its user.
	most time.Duration
	// ctx ends with Close; serving counts the kept commands.
	ctx     context.Context
	cancel  context.CancelFunc
	serving sync.WaitGroup

	waits asuser.Waits
	open  func(path string) (*os.File, error) // openRegular, but in tests

	mu    sync.Mutex
	users map[uint32]int // visits being served, by uid
	all   int
	held  map[string]*held
	typed map[cluster.AttemptID]time.Time
	// acting are the requests in progress; each channel is closed when its request is done.
	acting map[requestKey]chan struct{}
}

// New returns a Server that keeps commands without their users for up to most. The caller must
// call Close.
func New(log *slog.Logger, most time.Duration) *Server {
	ctx, cancel := context.WithCancel(context.Background())
	return &Server{log: log.With("component", "relay"), most: most, ctx: ctx, cancel: cancel, open: openRegular, users: map[uint32]int{}, held: map[string]*held{}, typed: map[cluster.AttemptID]time.Time{}, acting: map[requestKey]chan struct{}{}}
}

// Close releases the kept commands, which end with the agent. It may be called once no visit is
// being served.
func (s *Server) Close() {
	s.cancel()
	s.serving.Wait()
}

// admit counts a visit of uid until the returned function is called.
func (s *Server) admit(uid uint32, node cluster.NodeID) (func(), error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.users[uid] >= MaxVisitsPerUser:
		return nil, cluster.Errorf(cluster.CodeExhausted, "node %s serves %d streams of yours, which is all that it may; end one first", node, MaxVisitsPerUser)
	case s.all >= maxVisits:
		return nil, cluster.Errorf(cluster.CodeExhausted, "node %s serves %d streams of users, which is all that it may; try again later", node, maxVisits)
	}
	s.users[uid]++
	s.all++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.all--
		if s.users[uid]--; s.users[uid] == 0 {
			delete(s.users, uid)
		}
	}, nil
}

// Serve implements agent.Visitors.
func (s *Server) Serve(ctx context.Context, conn grpc.ClientConnInterface, v *Visit) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := noderpc.NewRelayServiceClient(conn).Relay(ctx)
	if err == nil {
		err = stream.Send(&nodev1.RelayRequest{Kind: &nodev1.RelayRequest_Id{Id: v.Ask.GetId()}})
	}
	if err != nil {
		s.log.DebugContext(ctx, "visit not answered", "err", err)
		return
	}
	ln := &link{stream: stream, frames: make(chan *apiv1.AttachRequest)}
	var receiving sync.WaitGroup
	receiving.Go(func() {
		defer cancel() // the user, or the leader, has gone
		ln.receive(ctx)
	})
	served := make(chan struct{})
	receiving.Go(func() { ln.stayAlive(ctx, served) })
	err = s.serve(ctx, ln, v)
	close(served)
	if err != nil && ctx.Err() == nil {
		s.refuse(ctx, ln, err)
	}
	// The leader has everything once it ends the stream.
	if stream.CloseSend() != nil {
		cancel()
	}
	for range ln.frames {
	}
	receiving.Wait()
}

func (s *Server) serve(ctx context.Context, ln *link, v *Visit) error {
	if v.Refused != nil {
		return v.Refused
	}
	leave, err := s.admit(v.Ask.GetUid(), v.Node)
	if err != nil {
		return err
	}
	if logs := v.Ask.GetOpen().GetLogs(); logs != nil {
		return apart(ctx, func() error {
			defer leave()
			return s.logs(ctx, ln, v, logs)
		})
	}
	defer leave()
	switch what := v.Ask.GetOpen().GetWhat().(type) {
	case *apiv1.AttachOpen_Exec:
		if what.Exec.GetSession() != "" && what.Exec.GetRequestId() == "" {
			return s.takeUp(ctx, ln, v, what.Exec)
		}
		return s.exec(ctx, ln, v, what.Exec)
	case *apiv1.AttachOpen_Sessions:
		return s.list(ln, v)
	case *apiv1.AttachOpen_Signal:
		return s.signal(ctx, ln, v, what.Signal)
	case *apiv1.AttachOpen_Series:
		return ln.series(v, what.Series)
	}
	return cluster.Errorf(cluster.CodeConflict, "the agent of node %s does not know this request; it is older than the coordinator", v.Node)
}

// apart runs what reads a user's file. Once ctx has ended it is not waited for any longer than
// it takes to close the file: a file system that does not answer would keep the agent from
// ending.
func apart(ctx context.Context, read func() error) error {
	done := make(chan error, 1)
	go func() { done <- read() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-done:
		return err
	case <-time.After(closeWait):
		return ctx.Err()
	}
}

// refuse tells the user the reason, if it is meant for users, and otherwise logs it.
func (s *Server) refuse(ctx context.Context, ln *link, err error) {
	if errors.Is(err, errLink) {
		return // there is nobody to tell
	}
	e, ok := errors.AsType[*cluster.Error](err)
	if !ok {
		s.log.ErrorContext(ctx, "visit failed", "err", err)
		e = cluster.Errorf(cluster.CodeConflict, "the node's agent could not do it; its log says more")
	}
	_ = ln.refuse(e) // if the link is broken by now, the leader will notice
}

// errLink marks errors of the connection to the leader.
var errLink = errors.New("the stream to the leader broke")

// link is the stream to one user. Sending waits until the user has consumed enough of what was
// sent before.
type link struct {
	stream noderpc.RelayService_RelayClient
	mu     sync.Mutex
	// frames are what the user sends; closed at the end.
	frames chan *apiv1.AttachRequest
}

// next returns the user's next frame; false at the end and when ctx is over.
func (l *link) next(ctx context.Context) (m *apiv1.AttachRequest, ok bool) {
	select {
	case <-ctx.Done():
		return nil, false
	case m, ok = <-l.frames:
		return m, ok
	}
}

// receive passes frames on, each once the previous one was taken.
func (l *link) receive(ctx context.Context) {
	defer close(l.frames)
	for {
		m, err := l.stream.Recv()
		if err != nil {
			return
		}
		select {
		case l.frames <- m.GetFrame():
		case <-ctx.Done():
			return
		}
	}
}

// stayAlive sends keep-alives: a coordinator that hangs looks to the user like a silent job.
func (l *link) stayAlive(ctx context.Context, served <-chan struct{}) {
	tick := time.NewTicker(aliveEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-served:
			return
		case <-tick.C:
			if l.send(&apiv1.AttachResponse{}) != nil {
				return
			}
		}
	}
}

func (l *link) send(m *apiv1.AttachResponse) error {
	return l.put(&nodev1.RelayRequest{Kind: &nodev1.RelayRequest_Frame{Frame: m}})
}

func (l *link) refuse(e *cluster.Error) error {
	return l.put(&nodev1.RelayRequest{Kind: &nodev1.RelayRequest_Refused{Refused: conv.RefusalToNode(e)}})
}

func (l *link) put(m *nodev1.RelayRequest) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.stream.Send(m); err != nil {
		return fmt.Errorf("%w: %w", errLink, err)
	}
	return nil
}

func (l *link) notice(format string, args ...any) error {
	return l.send(&apiv1.AttachResponse{Kind: &apiv1.AttachResponse_Notice{Notice: strings.ToValidUTF8(fmt.Sprintf(format, args...), "?")}})
}

func (l *link) opened(v *Visit, path string, offset int64) error {
	return l.send(&apiv1.AttachResponse{Kind: &apiv1.AttachResponse_Opened{Opened: &apiv1.AttachOpened{
		Attempt: v.Launch.ID.No, Node: string(v.Node), Path: []byte(path), Offset: offset,
	}}})
}

func (l *link) ended(e *apiv1.AttachEnded) error {
	return l.send(&apiv1.AttachResponse{Kind: &apiv1.AttachResponse_Ended{Ended: e}})
}

func closed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}
