package coordtest

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"testing"

	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
	"github.com/berth-scheduler/berth/proto/berth/node/v1/noderpc"
)

// Agent is the far end of a node's session, driven by a test.
type Agent struct {
	t       testing.TB
	stream  noderpc.NodeService_SessionClient
	sending sync.Mutex // a stream takes one message at a time
	cancel  context.CancelFunc
	relay   noderpc.RelayServiceClient
	hands   bool // its jobs get credentials
	mig     []*nodev1.MIGCard
	key     []byte
	// Assigned delivers assignments as they come.
	Assigned chan *nodev1.Assignment
	// Visits delivers users' requests, see Answer.
	Visits chan *nodev1.Visit
	// Cuts delivers what GPUs are to be cut into.
	Cuts chan *nodev1.CutGPU
	// Granted is how many heartbeats were answered.
	Granted atomic.Int64
	// Ended is closed when the leader ends the session.
	Ended chan struct{}
}

// Agent opens a session of a node with coordinator i, which must lead.
func (c *Cluster) Agent(i int, node, boot string, gpus ...*nodev1.GPU) *Agent {
	c.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	conn := c.Dial(i, "agent", node)
	stream, err := noderpc.NewNodeServiceClient(conn).Session(ctx)
	if err != nil {
		c.t.Fatal(err)
	}
	a := &Agent{t: c.t, hands: c.opts.Credentials, stream: stream, cancel: cancel, Assigned: make(chan *nodev1.Assignment, 10_000), Ended: make(chan struct{})}
	a.Visits, a.relay = make(chan *nodev1.Visit, 100), noderpc.NewRelayServiceClient(conn)
	a.Cuts = make(chan *nodev1.CutGPU, 100)
	a.Hello(node, boot, gpus...)
	m, err := stream.Recv()
	if err != nil || m.GetDesired() == nil {
		c.t.Fatalf("first message %v, %v; want the desired set", m, err)
	}
	go func() {
		defer close(a.Ended)
		for err == nil {
			for _, as := range m.GetDesired().GetAssignments() {
				a.Assigned <- as
			}
			if m.GetLeaseGranted() != nil {
				a.Granted.Add(1)
			}
			if v := m.GetVisit(); v != nil {
				a.Visits <- v
			}
			if cut := m.GetCut(); cut != nil {
				a.Cuts <- cut
			}
			m, err = stream.Recv()
		}
	}()
	c.t.Cleanup(cancel)
	return a
}

func (a *Agent) send(m *nodev1.SessionRequest) error {
	a.sending.Lock()
	defer a.sending.Unlock()
	return a.stream.Send(m)
}

// Hello describes the node, initially or again.
func (a *Agent) Hello(node, boot string, gpus ...*nodev1.GPU) {
	a.t.Helper()
	hello := &nodev1.Hello{Protocol: 1, Node: node, BootId: boot, CpuMilli: 64_000, MemMib: 1 << 20, Gpus: gpus, Runtimes: []string{"test"}, Gangs: true, Credentials: a.hands}
	hello.GossipKey, hello.MigCards = a.key, a.mig
	if err := a.send(&nodev1.SessionRequest{Kind: &nodev1.SessionRequest_Hello{Hello: hello}}); err != nil {
		a.t.Fatal(err)
	}
}

// CanCut makes it say which GPUs it can cut anew, from its next Hello on.
func (a *Agent) CanCut(cards ...*nodev1.MIGCard) { a.mig = cards }

// Sign makes it tell the leader its gossip key, from its next Hello on.
func (a *Agent) Sign(key []byte) { a.key = key }

// HandOutNothing makes it an agent that hands out no credentials, from its next
// Hello on.
func (a *Agent) HandOutNothing() { a.hands = false }

// Report reports the state of an attempt.
func (a *Agent) Report(as *nodev1.Assignment, state nodev1.AttemptState, code int32) {
	a.t.Helper()
	a.ReportUsage(as, state, code, nil)
}

// ReportUsage reports the state of an attempt, and what was measured of it.
func (a *Agent) ReportUsage(as *nodev1.Assignment, state nodev1.AttemptState, code int32, u *nodev1.Usage) {
	a.t.Helper()
	r := &nodev1.Report{Job: as.Job, Attempt: as.Attempt, Token: as.Token, State: state, Usage: u}
	if state >= nodev1.AttemptState_ATTEMPT_STATE_COMPLETED {
		r.Exit = &nodev1.Exit{Code: code}
	}
	a.SendReport(r)
}

// SendReport sends a report as it is.
func (a *Agent) SendReport(r *nodev1.Report) {
	a.t.Helper()
	err := a.send(&nodev1.SessionRequest{Kind: &nodev1.SessionRequest_Reports{Reports: &nodev1.Reports{Reports: []*nodev1.Report{r}}}})
	if err != nil {
		a.t.Fatal(err)
	}
}

// Answer calls the leader back for the visit with an id.
func (a *Agent) Answer(ctx context.Context, id string) noderpc.RelayService_RelayClient {
	a.t.Helper()
	s, err := a.relay.Relay(ctx)
	if err == nil {
		err = s.Send(&nodev1.RelayRequest{Kind: &nodev1.RelayRequest_Id{Id: id}})
	}
	if err != nil {
		a.t.Fatal(err)
	}
	return s
}

// Heartbeat sends one, with what attempts have used by now.
func (a *Agent) Heartbeat(uses ...*nodev1.AttemptUse) {
	a.t.Helper()
	err := a.send(&nodev1.SessionRequest{Kind: &nodev1.SessionRequest_Heartbeat{Heartbeat: &nodev1.Heartbeat{Sequence: 1, Attempts: uses}}})
	if err != nil && !errors.Is(err, io.EOF) { // it may have ended the session
		a.t.Fatal(err)
	}
}

// Shows sends a heartbeat with measurements of the node's GPUs.
func (a *Agent) Shows(gpus ...*nodev1.GPUUsage) {
	a.t.Helper()
	err := a.send(&nodev1.SessionRequest{Kind: &nodev1.SessionRequest_Heartbeat{Heartbeat: &nodev1.Heartbeat{Sequence: 1, Gpus: gpus}}})
	if err != nil {
		a.t.Fatal(err)
	}
}

// Silence ends the session without notice.
func (a *Agent) Silence() { a.cancel() }

// T4 returns a simulated GPU.
func T4(uuid string) *nodev1.GPU {
	return &nodev1.GPU{Uuid: uuid, Type: "T4", MemMib: 15360, CapMode: "sim"}
}
