package load

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/berth-scheduler/berth/agent/pace"
	"github.com/berth-scheduler/berth/cluster/wait"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
	"github.com/berth-scheduler/berth/proto/berth/node/v1/noderpc"
)

// What a simulated agent has in common with a real one.
const (
	firstReconnect    = 50 * time.Millisecond
	maxReconnect      = 2 * time.Second
	reportsPerMessage = 500
)

// card is what each simulated GPU is.
const (
	cardType = "A100-SXM4-80GB"
	cardMiB  = 81920
)

// node is a simulated node: its agent speaks the protocol of real ones, over a
// connection and with a certificate of its own, and its jobs are timers.
type node struct {
	fleet *fleet
	name  string
	gpus  []*nodev1.GPU
	dial  func(addr string) (*grpc.ClientConn, error)
	epoch int64 // in which it was last connected

	busyMs []int64 // of each GPU; its session's

	mu      sync.Mutex
	runs    map[attempt]*run
	reports []*nodev1.Report // those not acknowledged, in order
	sent    int              // how many of them this session has sent
	wake    chan struct{}
}

type attempt struct {
	job uint64
	no  uint32
}

// run is an attempt that is on a node.
type run struct {
	of      *nodev1.Assignment
	started time.Time
	timer   *time.Timer // nil for one that runs until it is told to stop
	ended   bool
}

func newNode(f *fleet, name string, gpus int, dial func(string) (*grpc.ClientConn, error)) *node {
	n := &node{fleet: f, name: name, dial: dial, runs: map[attempt]*run{}, wake: make(chan struct{}, 1), epoch: -1, busyMs: make([]int64, gpus)}
	for i := range gpus {
		n.gpus = append(n.gpus, &nodev1.GPU{
			Uuid: fmt.Sprintf("GPU-%s-%d", name, i), Index: uint32(i), Type: cardType, MemMib: cardMiB, CapMode: "sim", State: nodev1.GPUState_GPU_STATE_OK,
		})
	}
	return n
}

// live keeps a session with the leader until ctx ends.
func (n *node) live(ctx context.Context) {
	at, pause := 0, firstReconnect
	addr := n.fleet.coordinators[0]
	for ctx.Err() == nil {
		began := time.Now()
		leader, err := n.session(ctx, addr)
		if time.Since(began) > 5*time.Second {
			pause = firstReconnect
		}
		if errors.Is(err, errRedirected) && leader != "" && leader != addr {
			addr = leader
		} else {
			at++
			addr = n.fleet.coordinators[at%len(n.fleet.coordinators)]
		}
		wait.Sleep(ctx, pause/2+rand.N(pause)) // #nosec G404 -- spreads what many do at once
		pause = min(2*pause, maxReconnect)
	}
}

// errRedirected ends a session with a coordinator that does not lead.
var errRedirected = errors.New("not the leader")

// session talks to one coordinator until the stream ends.
func (n *node) session(ctx context.Context, addr string) (leader string, err error) {
	select {
	case n.fleet.connecting <- struct{}{}:
	case <-ctx.Done():
		return "", ctx.Err()
	}
	connected := sync.OnceFunc(func() { <-n.fleet.connecting })
	defer connected()
	conn, err := n.dial(addr)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := noderpc.NewNodeServiceClient(conn).Session(ctx)
	if err != nil {
		return "", err
	}
	hello := &nodev1.Hello{
		Protocol: 1, Node: n.name, BootId: "boot", Version: "load", CpuMilli: 16_000 * int64(1+len(n.gpus)), MemMib: int64(64<<10) * int64(1+len(n.gpus)),
		Gpus: n.gpus, Runtimes: []string{"process"}, Gangs: true, Credentials: true,
	}
	if err := stream.Send(&nodev1.SessionRequest{Kind: &nodev1.SessionRequest_Hello{Hello: hello}}); err != nil {
		return "", err
	}
	ready, ended, granted := make(chan struct{}), make(chan error, 1), make(chan time.Duration, 1)
	go func() {
		err := n.receive(stream, ready, granted, &leader)
		cancel()
		ended <- err
	}()
	select {
	case <-ready:
		connected()
		n.fleet.entered(n)
		err = n.send(ctx, stream, granted)
		n.fleet.connected.Add(-1)
	case <-ctx.Done():
	}
	cancel()
	return leader, errors.Join(err, <-ended)
}

func (n *node) receive(stream noderpc.NodeService_SessionClient, ready chan struct{}, granted chan<- time.Duration, leader *string) error {
	first := true
	for {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		switch said := m.Kind.(type) {
		case *nodev1.SessionResponse_Redirect:
			*leader = said.Redirect.LeaderAddr
			return errRedirected
		case *nodev1.SessionResponse_Desired:
			n.take(said.Desired, first)
			if first {
				first = false
				close(ready)
			}
		case *nodev1.SessionResponse_Acks:
			n.acked(said.Acks.Acks)
		case *nodev1.SessionResponse_LeaseGranted:
			select {
			case granted <- said.LeaseGranted.Lease.AsDuration():
			default:
			}
		}
	}
}

// send sends heartbeats and reports until ctx ends.
func (n *node) send(ctx context.Context, stream noderpc.NodeService_SessionClient, granted <-chan time.Duration) error {
	tick := time.NewTicker(pace.Every)
	defer tick.Stop()
	var rate pace.Pace
	var beats uint64
	since := timestamppb.Now()
	for {
		var m *nodev1.SessionRequest
		select {
		case <-ctx.Done():
			return ctx.Err()
		case lease := <-granted:
			rate.Granted(lease)
			continue
		case <-tick.C:
			beat := n.measure(since)
			if !rate.Due(beat, pace.Every) {
				continue
			}
			beats++
			beat.Sequence = beats
			m = &nodev1.SessionRequest{Kind: &nodev1.SessionRequest_Heartbeat{Heartbeat: beat}}
		case <-n.wake:
			rs := n.news()
			if len(rs) == 0 {
				continue
			}
			m = &nodev1.SessionRequest{Kind: &nodev1.SessionRequest_Reports{Reports: &nodev1.Reports{Reports: rs}}}
		}
		if err := stream.Send(m); err != nil {
			return err
		}
	}
}

// measure returns what the GPUs and the attempts on them use.
func (n *node) measure(since *timestamppb.Timestamp) *nodev1.Heartbeat {
	n.mu.Lock()
	defer n.mu.Unlock()
	held, beat := map[string]int64{}, &nodev1.Heartbeat{}
	for id, r := range n.runs {
		if r.ended {
			continue
		}
		for _, g := range r.of.Gpus {
			held[g.Uuid] += g.MemMib
		}
		ran := time.Since(r.started).Milliseconds()
		beat.Attempts = append(beat.Attempts, &nodev1.AttemptUse{Job: id.job, Attempt: id.no, BusyMs: ran * utilMilli, KnownMs: ran, PeakMib: peakOf(r.of)})
	}
	slices.SortFunc(beat.Attempts, func(a, b *nodev1.AttemptUse) int { return cmp.Compare(a.Job, b.Job) })
	for i, g := range n.gpus {
		u := &nodev1.GPUUsage{
			Uuid: g.Uuid, Since: since, UsedMib: held[g.Uuid], FreeMib: max(0, cardMiB-held[g.Uuid]), TemperatureC: 40,
			PowerW: 60 + rand.Int64N(5), // #nosec G404 -- cards differ a little from one look to the next
		}
		if u.UsedMib > 0 {
			u.UtilMilli = utilMilli
			n.busyMs[i] += pace.Every.Milliseconds() * utilMilli / 1000
		}
		u.BusyMs = n.busyMs[i]
		beat.Gpus = append(beat.Gpus, u)
	}
	return beat
}
