package nodes

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/coordinator/proposer"
	"github.com/berth-scheduler/berth/fsm"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

// memoryRaft is a Raft of one without a disk.
type memoryRaft struct {
	fsm     *fsm.FSM
	index   uint64
	applied []func() // called after each entry
}

func (r *memoryRaft) Propose(_ context.Context, data []byte) (uint64, any, error) {
	r.index++
	answer := r.fsm.Apply(&raft.Log{Index: r.index, Term: 1, Data: data})
	for _, f := range r.applied {
		f()
	}
	return r.index, answer, nil
}

// leases runs a leader's watch over one node in virtual time. skew is added to its
// clock: a machine that stood still finds that it is later than it slept. applied are
// called after each entry.
func leases(t *testing.T, lease time.Duration, applied ...func()) (l *liveness, f *fsm.FSM, skew *atomic.Int64) {
	f, skew = fsm.New(fsm.Options{}), new(atomic.Int64)
	clock := func() time.Time { return time.Now().Add(time.Duration(skew.Load())) }
	prop := proposer.New(&memoryRaft{fsm: f, applied: applied}, f, clock, func() error { return nil })
	prop.SetVersion(fsm.EntryVersion, nil)
	l = newLiveness(Needs{FSM: f, Proposer: prop, Clock: clock, Log: slog.New(slog.DiscardHandler)}, lease)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{}, 2)
	go func() { _ = prop.Run(ctx, 1); done <- struct{}{} }()
	synctest.Wait()
	n := &cluster.Node{ID: "n1", BootID: "b1", State: cluster.NodeReady, CPUMilli: 1000, MemMiB: 1024, Address: "n1:1",
		GPUs: []cluster.GPU{{ID: "GPU-own", Type: "T4", MemMiB: 1000, SellableMiB: 900, MaxShares: 1}}}
	if _, err := prop.One(t.Context(), &logv1.Command{Kind: &logv1.Command_RegisterNode{RegisterNode: &logv1.RegisterNode{Node: conv.NodeToLog(n)}}}); err != nil {
		t.Fatal(err)
	}
	l.reset()
	go func() { _ = l.run(ctx); done <- struct{}{} }()
	t.Cleanup(func() { cancel(); <-done; <-done })
	synctest.Wait() // it sleeps until it looks next
	return l, f, skew
}

func stateOf(t *testing.T, f *fsm.FSM) cluster.NodeState {
	t.Helper()
	synctest.Wait()
	n, ok := f.Node("n1")
	if !ok {
		t.Fatal("the node is gone")
	}
	return n.State
}

// TestLeases: a node that calls is trusted, one that is silent for longer than its
// lease is not, and neither is one that was never heard in this term once it had
// a whole lease to call.
func TestLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const lease = 10 * time.Second
		l, f, _ := leases(t, lease)
		time.Sleep(lease - time.Second)
		if s := stateOf(t, f); s != cluster.NodeReady {
			t.Fatalf("within the first lease of a term it is %s", s)
		}
		for range 10 {
			l.heard("n1", nil)
			time.Sleep(lease - 2*time.Second)
			if s := stateOf(t, f); s != cluster.NodeReady {
				t.Fatalf("a node that calls is %s", s)
			}
		}
		time.Sleep(5 * time.Second)
		if s := stateOf(t, f); s != cluster.NodeUnreachable {
			t.Errorf("a node that is silent for longer than its lease is %s", s)
		}
	})
}

// TestAPausedLeaderGivesNobodyUp: a leader that stood still for longer than a lease
// did not hear what nodes said meanwhile, and gives each a whole lease to call.
func TestAPausedLeaderGivesNobodyUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const lease = 10 * time.Second
		l, f, skew := leases(t, lease)
		l.heard("n1", nil)
		skew.Add(int64(time.Minute)) // the machine was suspended
		time.Sleep(lease - 2*time.Second)
		if s := stateOf(t, f); s != cluster.NodeReady {
			t.Fatalf("after the leader's own pause the node is %s", s)
		}
		l.heard("n1", nil)
		time.Sleep(lease - 2*time.Second)
		if s := stateOf(t, f); s != cluster.NodeReady {
			t.Errorf("it called again and is %s", s)
		}
		time.Sleep(lease)
		if s := stateOf(t, f); s != cluster.NodeUnreachable {
			t.Errorf("it fell silent and is %s", s)
		}
	})
}

// TestHeartbeatsAreBounded: what a node's root sends of cards that are not its own,
// or of more attempts than there can be, is not kept.
func TestHeartbeatsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _, _ := leases(t, time.Minute)
		for i := range 10_000 {
			l.heard("n1", []*nodev1.GPUUsage{{Uuid: fmt.Sprintf("GPU-%d", i)}, {Uuid: "GPU-own"}})
		}
		if _, gpus := l.last("n1"); len(gpus) != 1 || gpus["GPU-own"] == nil {
			t.Errorf("%d cards are kept of a node that has one", len(gpus))
		}
		uses := make([]*nodev1.AttemptUse, 100_000)
		for i := range uses {
			uses[i] = &nodev1.AttemptUse{Job: uint64(i), Attempt: 1}
		}
		l.used("n1", uses)
		l.mu.Lock()
		defer l.mu.Unlock()
		if n := len(l.nodes["n1"].uses); n > maxUses {
			t.Errorf("what %d attempts use is kept", n)
		}
	})
}

// TestBackIsHeard: a node that comes back is not silent for one moment, also before
// its session goes on from registering.
func TestBackIsHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var watched atomic.Pointer[liveness]
		l, f, _ := leases(t, time.Minute, func() {
			l := watched.Load()
			if l == nil {
				return
			}
			if n, _ := l.fsm.Node("n1"); n.State == cluster.NodeReady && len(l.silent()) > 0 {
				t.Error("it is ready, and taken for silent")
			}
		})
		watched.Store(l)
		time.Sleep(2 * time.Minute)
		if s := stateOf(t, f); s != cluster.NodeUnreachable {
			t.Fatalf("after two minutes without a word it is %s", s)
		}
		ss := &session{n: &Nodes{cfg: Config{MaxShares: 1}, fsm: f, prop: l.prop, live: l}, node: "n1", log: l.log}
		hello := &nodev1.Hello{Protocol: 1, Node: "n1", BootId: "b1", CpuMilli: 1000, MemMib: 1024, Address: "n1:1",
			Gpus: []*nodev1.GPU{{Uuid: "GPU-own", Type: "T4", MemMib: 1000, CapMode: "sim"}}}
		if err := ss.register(t.Context(), hello); err != nil {
			t.Fatal(err)
		}
		if s := stateOf(t, f); s != cluster.NodeReady {
			t.Errorf("registered, it is %s", s)
		}
	})
}

// BenchmarkHeartbeat is what a heartbeat of a node of eight GPUs with ten attempts
// costs once it is decoded.
func BenchmarkHeartbeat(b *testing.B) {
	f := fsm.New(fsm.Options{})
	n := &cluster.Node{ID: "n1", BootID: "b1", State: cluster.NodeReady, CPUMilli: 1000, MemMiB: 1024, Address: "n1:1"}
	beat := &nodev1.Heartbeat{}
	for i := range 8 {
		id := fmt.Sprintf("GPU-5a7f6c1e-0d5b-4f0e-9f52-00000000000%d", i)
		n.GPUs = append(n.GPUs, cluster.GPU{ID: cluster.GPUID(id), Type: "T4", MemMiB: 1000, SellableMiB: 900, MaxShares: 1})
		beat.Gpus = append(beat.Gpus, &nodev1.GPUUsage{Uuid: id, UsedMib: 500, UtilMilli: 300})
	}
	for i := range uint64(10) {
		beat.Attempts = append(beat.Attempts, &nodev1.AttemptUse{Job: 100_000 + i, Attempt: 1, BusyMs: 5, KnownMs: 7, PeakMib: 9})
	}
	data, err := fsm.EncodeEntry(fsm.EntryVersion, 1, 1, []*logv1.Command{{Kind: &logv1.Command_RegisterNode{RegisterNode: &logv1.RegisterNode{Node: conv.NodeToLog(n)}}}})
	if err != nil {
		b.Fatal(err)
	}
	f.Apply(&raft.Log{Index: 1, Term: 1, Data: data})
	l := newLiveness(Needs{FSM: f, Clock: time.Now, Log: slog.New(slog.DiscardHandler)}, time.Minute)
	b.ReportAllocs()
	for b.Loop() {
		l.heard("n1", beat.Gpus)
		l.used("n1", beat.Attempts)
	}
}
