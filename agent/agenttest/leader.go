package agenttest

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/berth-scheduler/berth/cluster"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
	"github.com/berth-scheduler/berth/proto/berth/node/v1/noderpc"
)

// Leader is a fake leader for one agent: it sends what tests desire and records what the agent
// reports.
type Leader struct {
	noderpc.UnimplementedNodeServiceServer
	ln  *bufconn.Listener
	srv *grpc.Server

	mu       sync.Mutex
	revision uint64
	desired  map[cluster.AttemptID]*nodev1.Assignment
	reports  map[cluster.AttemptID][]*nodev1.Report
	hellos   int
	hello    *nodev1.Hello // the newest
	helloAt  map[cluster.AttemptID]*nodev1.Hello
	resumes  []*nodev1.GPUResume
	beats    []time.Time // when heartbeats came
	muteAcks bool
	visits   map[string]chan *Guest
	send     chan *nodev1.SessionResponse // of the present session
}

// NewLeader returns a Leader that serves until the test ends.
func NewLeader(t testing.TB) *Leader {
	l := &Leader{
		ln: bufconn.Listen(1 << 20), srv: grpc.NewServer(),
		desired: map[cluster.AttemptID]*nodev1.Assignment{}, reports: map[cluster.AttemptID][]*nodev1.Report{},
		helloAt: map[cluster.AttemptID]*nodev1.Hello{},
	}
	l.visits = map[string]chan *Guest{}
	noderpc.RegisterNodeServiceServer(l.srv, l)
	noderpc.RegisterRelayServiceServer(l.srv, &relayServer{l: l})
	go func() { _ = l.srv.Serve(l.ln) }() // ends with Stop
	t.Cleanup(l.srv.Stop)
	return l
}

// Listen also serves agents of other processes, on a unix socket.
func (l *Leader) Listen(t testing.TB, socket string) {
	t.Helper()
	ln, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = l.srv.Serve(ln) }() // ends with Stop
}

// DialSocket connects to a leader that listens in another process.
func DialSocket(socket string) (*grpc.ClientConn, error) {
	return grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
}

// Dial connects to the leader, whatever the address.
func (l *Leader) Dial(string) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///leader", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.ln.DialContext(ctx) }))
}

// Assign adds an attempt to the desired set, or changes one.
func (l *Leader) Assign(as *nodev1.Assignment) {
	l.mu.Lock()
	defer l.mu.Unlock()
	id := cluster.AttemptID{Job: cluster.JobID(as.Job), No: as.Attempt}
	l.desired[id] = as
	l.push(&nodev1.Desired{Assignments: []*nodev1.Assignment{as}})
}

// Drop removes an attempt from the desired set.
func (l *Leader) Drop(id cluster.AttemptID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.desired, id)
	l.push(&nodev1.Desired{Released: []*nodev1.AttemptRef{{Job: uint64(id.Job), Attempt: id.No}}})
}

// MuteAcks stops acknowledgements, as when the majority is lost.
func (l *Leader) MuteAcks(mute bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.muteAcks = mute
}

// push sends d in the current session, if there is one. The caller holds mu.
func (l *Leader) push(d *nodev1.Desired) {
	l.revision++
	d.Term, d.Revision = 1, l.revision
	if l.send != nil {
		l.send <- &nodev1.SessionResponse{Kind: &nodev1.SessionResponse_Desired{Desired: d}}
	}
}

// Say sends m in the current session, if there is one.
func (l *Leader) Say(m *nodev1.SessionResponse) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.send != nil {
		l.send <- m
	}
}

// Reports returns the reports of an attempt, in order.
func (l *Leader) Reports(id cluster.AttemptID) []*nodev1.Report {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]*nodev1.Report(nil), l.reports[id]...)
}

// Last returns the newest report of an attempt, or nil.
func (l *Leader) Last(id cluster.AttemptID) *nodev1.Report {
	if rs := l.Reports(id); len(rs) > 0 {
		return rs[len(rs)-1]
	}
	return nil
}

// Hellos returns how many sessions there have been.
func (l *Leader) Hellos() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.hellos
}

// HelloAt returns the agent's last description of its node when it reported the end of an
// attempt, nil before that.
func (l *Leader) HelloAt(id cluster.AttemptID) *nodev1.Hello {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.helloAt[id]
}

// Resume tells the agent that an administrator declared a GPU healthy.
func (l *Leader) Resume(r *nodev1.GPUResume) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.resumes = append(l.resumes, r)
	l.push(&nodev1.Desired{Resumes: l.resumes})
}

// ForgetHello makes Hello nil until the agent describes its node again.
func (l *Leader) ForgetHello() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hello = nil
}

// Hello returns the agent's last description of its node, nil before the first session.
func (l *Leader) Hello() *nodev1.Hello {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.hello
}

// Heartbeats returns when each heartbeat arrived.
func (l *Leader) Heartbeats() []time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]time.Time(nil), l.beats...)
}

// Session implements noderpc.NodeServiceServer.
func (l *Leader) Session(stream noderpc.NodeService_SessionServer) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	send := make(chan *nodev1.SessionResponse, 1000)
	l.mu.Lock()
	l.hellos++
	l.hello = first.GetHello()
	l.send = send
	all := &nodev1.Desired{Full: true, Resumes: l.resumes}
	for _, as := range l.desired {
		all.Assignments = append(all.Assignments, as)
	}
	l.push(all)
	l.mu.Unlock()
	ctx := stream.Context()
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case m := <-send:
				if stream.Send(m) != nil {
					return
				}
			}
		}
	}()
	for {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		if hb := m.GetHeartbeat(); hb != nil {
			l.mu.Lock()
			l.beats = append(l.beats, time.Now())
			l.mu.Unlock()
			send <- &nodev1.SessionResponse{Kind: &nodev1.SessionResponse_LeaseGranted{LeaseGranted: &nodev1.LeaseGranted{Sequence: hb.Sequence}}}
		}
		if h := m.GetHello(); h != nil {
			l.mu.Lock()
			l.hello = h
			l.mu.Unlock()
		}
		l.take(m.GetReports(), send)
	}
}

func (l *Leader) take(rs *nodev1.Reports, send chan<- *nodev1.SessionResponse) {
	l.mu.Lock()
	defer l.mu.Unlock()
	acks := &nodev1.Acks{}
	for _, r := range rs.GetReports() {
		id := cluster.AttemptID{Job: cluster.JobID(r.Job), No: r.Attempt}
		l.reports[id] = append(l.reports[id], r)
		acks.Acks = append(acks.Acks, &nodev1.Ack{Job: r.Job, Attempt: r.Attempt, Token: r.Token, State: r.State})
		if r.State >= nodev1.AttemptState_ATTEMPT_STATE_COMPLETED && l.helloAt[id] == nil {
			l.helloAt[id] = l.hello
		}
		if r.State >= nodev1.AttemptState_ATTEMPT_STATE_COMPLETED && !l.muteAcks {
			delete(l.desired, id)
		}
	}
	if len(acks.Acks) > 0 && !l.muteAcks {
		send <- &nodev1.SessionResponse{Kind: &nodev1.SessionResponse_Acks{Acks: acks}}
	}
}
