package nodes

import (
	"context"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/coordinator/roles"
	"github.com/berth-scheduler/berth/fsm"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// TestStreamsAreCounted by users and in all, whatever order they end in.
func TestStreamsAreCounted(t *testing.T) {
	t.Parallel()
	r := newRelays(5, 3)
	rnd := rand.New(rand.NewPCG(1, 2))
	open := map[cluster.UID][]func(){}
	count := 0
	for step := range 2000 {
		uid := cluster.UID(rnd.IntN(3))
		if rnd.IntN(2) == 0 {
			end, err := r.admit(uid)
			if may := len(open[uid]) < 3 && count < 5; may != (err == nil) {
				t.Fatalf("step %d: user %d has %d of %d open; %v", step, uid, len(open[uid]), count, err)
			}
			if err == nil {
				open[uid], count = append(open[uid], end), count+1
			}
		} else if n := len(open[uid]); n > 0 {
			i := rnd.IntN(n)
			open[uid][i]()
			open[uid], count = slices.Delete(open[uid], i, i+1), count-1
		}
		users := 0
		for _, ends := range open {
			if len(ends) > 0 {
				users++
			}
		}
		if r.count() != count || len(r.users) != users {
			t.Fatalf("step %d: %d are counted, %d are open; %d users of %d", step, r.count(), count, len(r.users), users)
		}
	}
	if d := newRelays(0, 0); d.total != defaultStreams || d.perUser != defaultStreamsPerUser {
		t.Errorf("by default %d and %d", d.total, d.perUser)
	}
}

// relayWire is an agent that calls back.
type relayWire struct {
	grpc.ServerStream
	ctx context.Context
	in  chan *nodev1.RelayRequest
}

func (w *relayWire) Context() context.Context { return w.ctx }

func (w *relayWire) Send(*nodev1.RelayResponse) error { return nil }

func (w *relayWire) Recv() (*nodev1.RelayRequest, error) {
	select {
	case m, ok := <-w.in:
		if !ok {
			return nil, io.EOF
		}
		return m, nil
	case <-w.ctx.Done():
		return nil, w.ctx.Err()
	}
}

// TestVisits: an agent that is asked comes once, by its own certificate; who does not
// come in time, is gone or was never there is said to be so, and nothing is left.
func TestVisits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, Config{}, fsm.Options{})
		come := func(node, role, id string) chan error {
			ctx, cancel := context.WithCancel(as(t.Context(), role, node))
			t.Cleanup(cancel)
			w, done := &relayWire{ctx: ctx, in: make(chan *nodev1.RelayRequest, 1)}, make(chan error, 1)
			w.in <- &nodev1.RelayRequest{Kind: &nodev1.RelayRequest_Id{Id: id}}
			go func() { done <- (&relayServer{n: l.n}).Relay(w) }()
			synctest.Wait()
			return done
		}
		type got struct {
			end  *AgentEnd
			stop func()
			err  error
		}
		visit := func(node cluster.NodeID) (chan got, string) {
			w, out := l.n.relays.session(node), make(chan got, 1)
			go func() {
				e, stop, err := l.n.Visit(t.Context(), node, &nodev1.Visit{})
				out <- got{e, stop, err}
			}()
			synctest.Wait()
			if w == nil {
				return out, ""
			}
			for _, m := range w.stream.(*wire).take() {
				if v := m.GetVisit(); v != nil {
					return out, v.Id
				}
			}
			return out, ""
		}
		if out, _ := visit("n1"); !strings.Contains((<-out).err.Error(), "no longer in the cluster") {
			t.Error("a node that is not there is visited")
		}
		first := l.agent("n1")
		l.agent("n2")
		out, id := visit("n1")
		for who, done := range map[string]chan error{"another node": come("n2", roles.Agent, id), "a coordinator": come("n1", roles.Coordinator, id), "another visit": come("n1", roles.Agent, "x")} {
			if err := <-done; err == nil {
				t.Errorf("%s comes in its place", who)
			}
		}
		mine := come("n1", roles.Agent, id)
		g := <-out
		if g.err != nil || g.end.node != "n1" {
			t.Fatalf("nobody came: %v", g.err)
		}
		if err := <-come("n1", roles.Agent, id); err == nil {
			t.Error("it comes twice")
		}
		select {
		case err := <-mine:
			t.Errorf("its stream ended before the user's: %v", err)
		default:
		}
		g.stop()
		if err := <-mine; err != nil {
			t.Errorf("its stream ended with %v", err)
		}
		// Nobody comes.
		began := time.Now()
		out, _ = visit("n1")
		if g := <-out; g.err == nil || !strings.Contains(g.err.Error(), "does not answer within 10s") || time.Since(began) != 10*time.Second {
			t.Errorf("after %s: %v", time.Since(began), g.err)
		}
		// The session ends meanwhile; a newer one is not taken along with it.
		second := l.agent("n1")
		first.cut()
		synctest.Wait()
		began = time.Now()
		out, id = visit("n1")
		if id == "" {
			t.Fatal("with the older session the newer one went")
		}
		second.cut()
		if g := <-out; g.err == nil || !strings.Contains(g.err.Error(), "not connected") || time.Since(began) != 0 {
			t.Errorf("its session ended: after %s, %v", time.Since(began), g.err)
		}
		synctest.Wait()
		if n := len(l.n.relays.waiting); n != 0 {
			t.Errorf("%d visits are still waited for", n)
		}
		if l.n.relays.session("n1") != nil || l.n.relays.session("n2") == nil {
			t.Error("sessions that ended are known, or one that goes on is not")
		}
	})
}
