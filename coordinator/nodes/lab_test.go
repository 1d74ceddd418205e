package nodes

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/coordinator/office"
	"github.com/berth-scheduler/berth/coordinator/proposer"
	"github.com/berth-scheduler/berth/coordinator/roles"
	"github.com/berth-scheduler/berth/fsm"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

// lab is a leader's side of nodes over a state of its own, in virtual time.
type lab struct {
	t      *testing.T
	n      *Nodes
	f      *fsm.FSM
	prop   *proposer.Proposer
	leave  context.CancelFunc // ends the term
	absurd int
	// applied are called after each entry, on the proposer's goroutine.
	raft *memoryRaft
	told struct {
		sync.Mutex
		changes []fsm.Change
		missed  int
	}
}

type callerKey struct{}

// caller is who calls by its certificate.
type caller struct{ role, id string }

func as(ctx context.Context, role, id string) context.Context {
	return context.WithValue(ctx, callerKey{}, caller{role, id})
}

const testTerm = 7

func newLab(t *testing.T, cfg Config, opts fsm.Options) *lab {
	l := &lab{t: t, f: fsm.New(opts)}
	l.raft = &memoryRaft{fsm: l.f}
	l.prop = proposer.New(l.raft, l.f, time.Now, func() error { return nil })
	l.prop.SetVersion(fsm.EntryVersion, nil)
	of := office.New(nil, "c1:1")
	if cfg.Lease == 0 {
		cfg.Lease = time.Minute
	}
	cfg.ID, cfg.MaxShares, cfg.HeadroomMiB, cfg.VisitWait = "c1", 4, 100, 10*time.Second
	l.n = New(cfg, Needs{
		FSM: l.f, Proposer: l.prop, Office: of, Clock: time.Now, Log: slog.New(slog.DiscardHandler),
		Peer: func(ctx context.Context) (string, string, error) {
			c, ok := ctx.Value(callerKey{}).(caller)
			if !ok {
				return "", "", io.ErrUnexpectedEOF
			}
			return c.role, c.id, nil
		},
		Changed: func(cs []fsm.Change) {
			l.told.Lock()
			defer l.told.Unlock()
			l.told.changes = append(l.told.changes, cs...)
		},
		Missed:    func() { l.told.Lock(); defer l.told.Unlock(); l.told.missed++ },
		SawAbsurd: func() { l.absurd++ },
	})
	if err := l.n.Open(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	term, leave := context.WithCancel(ctx)
	l.leave = leave
	var wg sync.WaitGroup
	wg.Go(func() { _ = l.prop.Run(term, 1) })
	wg.Go(func() { _ = l.n.Run(ctx) })
	synctest.Wait()
	l.n.Begin()
	of.Take(&office.Term{Ctx: term, No: testTerm})
	t.Cleanup(func() {
		leave()
		cancel()
		wg.Wait()
	})
	return l
}

// do commits a command, and fails when it is refused.
func (l *lab) do(cmd *logv1.Command) fsm.Result {
	l.t.Helper()
	r, err := l.prop.One(l.t.Context(), cmd)
	if err != nil {
		l.t.Fatalf("%v: %v", cmd, err)
	}
	synctest.Wait()
	return r
}

func (l *lab) submit(spec *cluster.Spec) cluster.JobID {
	l.t.Helper()
	first := l.f.NextJobID()
	sum := sha256.Sum256(fmt.Append(nil, first))
	return l.do(&logv1.Command{Kind: &logv1.Command_SubmitJob{SubmitJob: &logv1.SubmitJob{
		FirstJob: uint64(first), RequestId: fmt.Sprintf("request-number-%06d", first), BodyHash: sum[:],
		Owner: conv.OwnerToLog(cluster.Owner{UID: 1000, GID: 100, Name: "ada"}), Jobs: []*logv1.NewJob{{Spec: conv.SpecToLog(spec)}},
	}}}).Jobs[0]
}

func (l *lab) start(st dispatch.Start) {
	l.t.Helper()
	r := l.do(&logv1.Command{Kind: &logv1.Command_ApplyPlan{ApplyPlan: conv.PlanToLog(&dispatch.Plan{Starts: []dispatch.Start{st}})}})
	if len(r.Plan.Started) != 1 {
		l.t.Fatalf("job %d does not start: %v", st.Job, r.Plan.Rejected)
	}
}

func (l *lab) job(id cluster.JobID) *cluster.Job {
	l.t.Helper()
	j, ok := l.f.Job(id)
	if !ok {
		l.t.Fatalf("job %d is gone", id)
	}
	return j
}

func (l *lab) node(id cluster.NodeID) *cluster.Node {
	l.t.Helper()
	n, ok := l.f.Node(id)
	if !ok {
		l.t.Fatalf("node %s is gone", id)
	}
	return n
}

// wire is an agent's end of a stream.
type wire struct {
	grpc.ServerStream
	ctx  context.Context
	cut  context.CancelFunc
	in   chan *nodev1.SessionRequest
	done chan error // what the session ended with

	mu   sync.Mutex
	sent []*nodev1.SessionResponse
}

func (w *wire) Context() context.Context { return w.ctx }

func (w *wire) Send(m *nodev1.SessionResponse) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sent = append(w.sent, proto.CloneOf(m))
	return w.ctx.Err()
}

func (w *wire) Recv() (*nodev1.SessionRequest, error) {
	select {
	case m, open := <-w.in:
		if !open {
			return nil, io.EOF
		}
		return m, nil
	case <-w.ctx.Done():
		return nil, w.ctx.Err()
	}
}

// take returns what came since it was called last.
func (w *wire) take() []*nodev1.SessionResponse {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	out := w.sent
	w.sent = nil
	return out
}

// ended returns what the session ended with, and whether it has ended.
func (w *wire) ended() (error, bool) {
	synctest.Wait()
	select {
	case err := <-w.done:
		w.done <- err
		return err, true
	default:
		return nil, false
	}
}

func helloOf(node string) *nodev1.Hello {
	h := &nodev1.Hello{Protocol: 1, Node: node, BootId: "boot-1", Address: "10.0.0." + node[1:] + ":7", CpuMilli: 64_000, MemMib: 256 << 10, Gangs: true, Runtimes: []string{"host"}}
	for i := range 3 {
		h.Gpus = append(h.Gpus, &nodev1.GPU{Uuid: fmt.Sprintf("%s-g%d", node, i), Index: uint32(i), Type: "A100", MemMib: 40_960, CapMode: "sim"})
	}
	return h
}

// dial opens a stream by somebody's certificate; nothing is said yet.
func (l *lab) dial(role, id string) *wire {
	ctx, cancel := context.WithCancel(as(l.t.Context(), role, id))
	w := &wire{ctx: ctx, cut: cancel, in: make(chan *nodev1.SessionRequest), done: make(chan error, 1)}
	l.t.Cleanup(cancel)
	go func() { w.done <- (&nodeServer{n: l.n}).Session(w) }()
	return w
}

func (w *wire) say(m *nodev1.SessionRequest) {
	select {
	case w.in <- m:
	case <-w.ctx.Done():
	case err := <-w.done:
		w.done <- err
	}
	synctest.Wait()
}

func (w *wire) hello(h *nodev1.Hello) {
	w.say(&nodev1.SessionRequest{Kind: &nodev1.SessionRequest_Hello{Hello: h}})
}

func (w *wire) beat(b *nodev1.Heartbeat) {
	w.say(&nodev1.SessionRequest{Kind: &nodev1.SessionRequest_Heartbeat{Heartbeat: b}})
}

func (w *wire) report(rs ...*nodev1.Report) {
	w.say(&nodev1.SessionRequest{Kind: &nodev1.SessionRequest_Reports{Reports: &nodev1.Reports{Reports: rs}}})
}

// agent opens a session of a node, and says hello.
func (l *lab) agent(node string) *wire {
	w := l.dial(roles.Agent, node)
	w.hello(helloOf(node))
	return w
}
