package daemon

import (
	"context"
	"crypto/rand"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"github.com/berth-scheduler/berth/agent/members"
	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/coordinator/coordtest"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/berth/api/v1/apirpc"
	"github.com/berth-scheduler/berth/proto/gossip"
)

// gossiper has a node gossip with the coordinators of c.
func gossiper(t *testing.T, c *coordtest.Cluster, node string) *members.Members {
	t.Helper()
	m, err := members.Open(members.Config{
		Node: cluster.NodeID(node), BootID: node, Addr: coordtest.FreeAddr(t), Key: []byte(coordtest.GossipKey), Join: c.Gossip(), Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = m.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return m
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Minute); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within ten minutes: %s", what)
		}
	}
}

// shows repeats what cards show: packets may be lost, and sayings have their pace.
func shows(t *testing.T, m *members.Members) (set func(gossip.GPU)) {
	var now atomic.Pointer[gossip.GPU]
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
				if g := now.Load(); g != nil {
					m.Observe([]gossip.GPU{*g})
				}
			}
		}
	}()
	t.Cleanup(func() { close(stop); <-done })
	return func(g gossip.GPU) { now.Store(&g) }
}

// counted is the value of a metric that has one.
func counted(t *testing.T, reg prometheus.Gatherer, name string) float64 {
	t.Helper()
	all, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		if m := f.GetMetric(); f.GetName() == name && len(m) == 1 {
			return m[0].GetGauge().GetValue() + m[0].GetCounter().GetValue()
		}
	}
	t.Fatalf("there is no metric %s", name)
	return 0
}

// asker asks a cluster as a user.
type asker struct {
	t    *testing.T
	conn *grpc.ClientConn
}

func (s asker) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	s.t.Cleanup(cancel)
	return coordtest.As(ctx, 1001)
}

func (s asker) node(id string) *apiv1.Node {
	s.t.Helper()
	resp, err := apirpc.NewClusterServiceClient(s.conn).ListNodes(s.ctx(), &apiv1.ListNodesRequest{Ids: []string{id}})
	if err != nil {
		s.t.Fatal(err)
	}
	return resp.Nodes[0]
}

func (s asker) submit(mib int64, alone bool) uint64 {
	s.t.Helper()
	spec := &apiv1.JobSpec{Name: "j", Command: [][]byte{[]byte("true")}, Dir: []byte("/"), Gpus: 1, GpuMemMib: mib, GpuUtilMilli: 100, Exclusive: alone}
	resp, err := apirpc.NewJobServiceClient(s.conn).SubmitJobs(s.ctx(), &apiv1.SubmitJobsRequest{RequestId: rand.Text(), Jobs: []*apiv1.JobSpec{spec}})
	if err != nil {
		s.t.Fatal(err)
	}
	return resp.Ids[0]
}

// why is the state of a job, and what is said of it.
func (s asker) why(id uint64) string {
	s.t.Helper()
	resp, err := apirpc.NewJobServiceClient(s.conn).ExplainJob(s.ctx(), &apiv1.ExplainJobRequest{Id: id})
	if err != nil {
		s.t.Fatal(err)
	}
	text := resp.Job.State
	for _, x := range resp.Explanations {
		text += "\n" + x.Code + ": " + x.Detail
	}
	return text
}

// TestStraysAreHeardOfAtOnce: what strays hold is not given away from when the node
// gossips it, before it tells the leader; what fits beside them is placed all the same,
// and all is given away again when they are gone. Who only has the gossip key says
// nothing for a node.
func TestStraysAreHeardOfAtOnce(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	c := coordtest.Start(t, coordtest.Options{N: 1, Gossip: true, Registry: reg})
	s := asker{t, c.Dial(0, "gate", "g")}
	a := c.Agent(0, "n1", "b1", coordtest.T4("GPU-1"))
	m, liar := gossiper(t, c, "n1"), gossiper(t, c, "n2")
	a.Sign(m.Key())
	a.Hello("n1", "b1", coordtest.T4("GPU-1"))
	show := shows(t, m)
	card := gossip.GPU{ID: gossip.UUIDHash("GPU-1"), FreeMiB: 3000, StrayMiB: 12_032, UtilMilli: gossip.UtilUnknown}
	show(card)
	eventually(t, "gossip tells of the strays", func() bool {
		g := s.node("n1").Gpus[0]
		return g.GossipStrayMib == 12_032 && g.GossipFreeMib == 3000
	})
	if sells := s.node("n1").Gpus[0].SellableMib; sells < 14_000 {
		t.Errorf("the ledger sells %d MiB, but what gossip says is no matter of its", sells)
	}
	large, alone := s.submit(8000, false), s.submit(1000, true)
	small := s.submit(1000, false)
	if as := <-a.Assigned; as.Job != small {
		t.Fatalf("job %d is placed, want %d, which alone fits beside the strays", as.Job, small)
	}
	for _, id := range []uint64{large, alone} {
		if why := s.why(id); strings.HasPrefix(why, "STARTING") || !strings.Contains(why, "hold 12032 MiB, as the node gossips") {
			t.Errorf("job %d: %s", id, why)
		}
	}
	// The node tells the leader, and gossip adds nothing to that.
	told := coordtest.T4("GPU-1")
	told.StrayMib, told.Detail = 12_032, &apiv1.GPUDetail{}
	a.Hello("n1", "b1", told)
	eventually(t, "the leader knows itself", func() bool { return s.node("n1").Gpus[0].GossipStrayMib == 0 })
	a.Hello("n1", "b1", coordtest.T4("GPU-1"))
	eventually(t, "gossip says that they are there", func() bool { return s.node("n1").Gpus[0].GossipStrayMib > 0 })

	forged, err := gossip.Capacity{Node: "n1", Seq: 1 << 62}.Append(nil, liar.Key())
	if err != nil {
		t.Fatal(err)
	}
	if n := counted(t, reg, "berth_gossip_stray_mib"); n != 12_032 {
		t.Errorf("%v MiB are counted as held", n)
	}
	refused := counted(t, reg, "berth_gossip_refused_total")
	liar.NotifyMsg(gossip.Relay(forged)) // which has it sent to the coordinator
	eventually(t, "what n2 says for n1 is refused", func() bool {
		liar.NotifyMsg(gossip.Relay(forged))
		return counted(t, reg, "berth_gossip_refused_total") > refused
	})
	if g := s.node("n1").Gpus[0]; g.GossipStrayMib == 0 {
		t.Error("another node's word is taken for that of n1")
	}

	card.StrayMiB, card.FreeMiB = 0, 14_000
	show(card)
	if as := <-a.Assigned; as.Job != large {
		t.Errorf("job %d is placed when the strays are gone, want %d", as.Job, large)
	}
}

// TestCutOffFromTheLeader: a node that the leader does not hear while it gossips is
// shown as such, long before its lease runs out; one that nobody hears is not.
func TestCutOffFromTheLeader(t *testing.T) {
	t.Parallel()
	var ahead atomic.Int64
	reg := prometheus.NewRegistry()
	c := coordtest.Start(t, coordtest.Options{
		N: 1, Gossip: true, Registry: reg, Lease: time.Hour, Clock: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) },
	})
	s := asker{t, c.Dial(0, "gate", "g")}
	a := c.Agent(0, "n1", "b1", coordtest.T4("GPU-1"))
	down := c.Agent(0, "n2", "b2")
	m := gossiper(t, c, "n1")
	a.Sign(m.Key())
	a.Hello("n1", "b1", coordtest.T4("GPU-1"))
	id := s.submit(1000, false)
	<-a.Assigned
	eventually(t, "gossip is heard", func() bool { return s.node("n1").GossipHeard != nil })
	if n := s.node("n1"); n.CutOff != "" {
		t.Errorf("cut off: %s", n.CutOff)
	}
	a.Silence()
	down.Silence()
	ahead.Store(int64(time.Minute))
	eventually(t, "the node is cut off", func() bool { return s.node("n1").CutOff != "" })
	n := s.node("n1")
	if n.State != "ready" || !strings.HasPrefix(n.CutOff, "the leader, c1, has not heard its agent for 1m") || s.node("n2").CutOff != "" {
		t.Errorf("n1 is %s, cut off: %q; n2: %q", n.State, n.CutOff, s.node("n2").CutOff)
	}
	if why := s.why(id); !strings.Contains(why, "node n1 is cut off: the leader, c1, ") {
		t.Errorf("job %d: %s", id, why)
	}
	if off, all := counted(t, reg, "berth_nodes_cut_off"), counted(t, reg, "berth_gossip_members"); off != 1 || all != 2 {
		t.Errorf("counted: %v nodes that are cut off, %v members", off, all)
	}
	back := c.Agent(0, "n1", "b1", coordtest.T4("GPU-1"))
	back.Sign(m.Key())
	back.Hello("n1", "b1", coordtest.T4("GPU-1"))
	eventually(t, "it is back", func() bool { n := s.node("n1"); return n.State == "ready" && n.CutOff == "" })
}

// TestGossipNamesTheLeader: an agent knows by gossip alone where the coordinators are
// and which of them leads, after another took over too.
func TestGossipNamesTheLeader(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 3, Gossip: true})
	m := gossiper(t, c, "n1")
	at := func(i int) func() bool {
		return func() bool {
			all, leaders := m.Coordinators()
			return len(all) >= 2 && slices.Contains(leaders, c.Peers()[i].Addr)
		}
	}
	first := c.Leader()
	eventually(t, "the leader is known", at(first))
	c.Stop(first)
	eventually(t, "the next leader is known", at(c.Leader()))
}
