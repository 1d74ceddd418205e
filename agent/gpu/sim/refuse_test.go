package sim

import (
	"errors"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berth-scheduler/berth/agent/gpu/sim/simclient"
	"github.com/berth-scheduler/berth/agent/gpu/sim/wire"
)

// rawConn speaks the protocol by hand.
func rawConn(t *testing.T, cfg simclient.Config) net.Conn {
	t.Helper()
	nc, err := cfg.Dial(t.Context())
	if err != nil {
		t.Fatalf("dial: %v", err)
	}
	t.Cleanup(func() { nc.Close() })
	return nc
}

func ask(t *testing.T, nc net.Conn, q wire.Request) wire.Reply {
	t.Helper()
	if err := wire.Write(nc, q); err != nil {
		t.Fatalf("send %s: %v", q.Op, err)
	}
	rep, err := wire.ReadReply(nc)
	if err != nil {
		t.Fatalf("answer to %s: %v", q.Op, err)
	}
	return rep
}

func TestServerRefuses(t *testing.T) {
	t.Parallel()
	hello := func(attempt string, cards ...string) wire.Request {
		return wire.Request{ID: 1, Op: wire.OpHello, Hello: &wire.Hello{Version: wire.Version, Attempt: attempt, Cards: cards}}
	}
	good := hello("j1-a1", UUID("n1", 0))
	for _, tc := range []struct {
		name string
		uid  uint32 // of the peer, where not the grant's
		send []wire.Request
		want wire.Code // of the last answer
	}{
		{"good", 0, []wire.Request{good}, wire.CodeOK},
		{"another user", 4242, []wire.Request{good}, wire.CodeDenied},
		{"unknown attempt", 0, []wire.Request{hello("j9-a1", UUID("n1", 0))}, wire.CodeUnknown},
		{"card outside the grant", 0, []wire.Request{hello("j1-a1", UUID("n1", 1))}, wire.CodeDenied},
		{"card twice", 0, []wire.Request{hello("j1-a1", UUID("n1", 0), UUID("n1", 0))}, wire.CodeDenied},
		{"no hello", 0, []wire.Request{{ID: 2, Op: wire.OpAlloc, Alloc: &wire.Alloc{ID: 1, Bytes: 1}}}, wire.CodeBad},
		{"second hello", 0, []wire.Request{good, good}, wire.CodeBad},
		{"card number", 0, []wire.Request{good, {ID: 2, Op: wire.OpAlloc, Alloc: &wire.Alloc{ID: 1, Card: 1, Bytes: 1}}}, wire.CodeBad},
		{"free of nothing", 0, []wire.Request{good, {ID: 2, Op: wire.OpFree, Alloc: &wire.Alloc{ID: 1}}}, wire.CodeBad},
		{"same allocation twice", 0, []wire.Request{good,
			{ID: 2, Op: wire.OpAlloc, Alloc: &wire.Alloc{ID: 1, Bytes: 1}},
			{ID: 3, Op: wire.OpAlloc, Alloc: &wire.Alloc{ID: 1, Bytes: 1}}}, wire.CodeBad},
		{"utilization", 0, []wire.Request{good, {ID: 2, Op: wire.OpRun, Run: &wire.Run{UtilMilli: 1001, Work: 1}}}, wire.CodeBad},
		{"work of no time", 0, []wire.Request{good, {ID: 2, Op: wire.OpRun, Run: &wire.Run{UtilMilli: 10}}}, wire.CodeOK},
		{"stop of nothing", 0, []wire.Request{good, {ID: 2, Op: wire.OpStop}}, wire.CodeOK},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				n := newNode(t, Spec{Type: "T4", Count: 2})
				defer n.down()
				cfg := n.admit("j1-a1", shared(0, 1024))
				if tc.uid != 0 {
					n.uid = tc.uid
				}
				nc := rawConn(t, cfg)
				var rep wire.Reply
				for _, q := range tc.send {
					rep = ask(t, nc, q)
				}
				if rep.Code != tc.want || rep.ID != tc.send[len(tc.send)-1].ID {
					t.Errorf("got %+v, want code %s", rep, tc.want)
				}
			})
		})
	}
}

func TestServerDropsTheSilentAndTheDeaf(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, Spec{Type: "T4", Count: 1})
		defer n.down()
		cfg := n.admit("j1-a1", shared(0, 1024))
		count := func() int {
			synctest.Wait()
			n.prov.mu.Lock()
			defer n.prov.mu.Unlock()
			return len(n.prov.conns)
		}
		rawConn(t, cfg) // says nothing
		time.Sleep(helloWithin + time.Second)
		if got := count(); got != 0 {
			t.Errorf("%d connections of a client that never said hello", got)
		}
		deaf := rawConn(t, cfg)
		ask(t, deaf, wire.Request{ID: 1, Op: wire.OpHello, Hello: &wire.Hello{Version: 1, Attempt: "j1-a1", Cards: cfg.Cards}})
		if err := wire.Write(deaf, wire.Request{ID: 2, Op: wire.OpRun, Run: &wire.Run{UtilMilli: 10, Work: time.Hour}}); err != nil {
			t.Fatalf("run: %v", err)
		}
		time.Sleep(2 * writeWithin)
		if got := count(); got != 0 {
			t.Errorf("%d connections of a client that reads nothing", got)
		}
		if u := n.usage()[0]; u.UsedMiB != 0 {
			t.Errorf("a dropped client holds %d MiB", u.UsedMiB)
		}
	})
}

func TestShareSmallerThanAContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, Spec{Type: "T4", Count: 1})
		defer n.down()
		cfg := n.admit("j1-a1", shared(0, 100))
		_, err := simclient.Connect(t.Context(), cfg)
		if !errors.Is(err, simclient.ErrOutOfMemory) || !strings.Contains(err.Error(), "Tried to allocate 290.00 MiB") {
			t.Errorf("got %v, want the context's 290 MiB refused at once", err)
		}
	})
}

// A client that asks and never listens is dropped when its answers pile up.
func TestFloodIsDropped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, Spec{Type: "T4", Count: 1})
		defer n.down()
		cfg := n.admit("j1-a1", shared(0, 1024))
		nc := rawConn(t, cfg)
		ask(t, nc, wire.Request{ID: 1, Op: wire.OpHello, Hello: &wire.Hello{Version: 1, Attempt: "j1-a1", Cards: cfg.Cards}})
		for range 10 * outQueue {
			if err := wire.Write(nc, wire.Request{ID: 2, Op: wire.OpStop}); err != nil {
				t.Fatalf("send: %v", err)
			}
		}
		if u := n.usage()[0]; u.UsedMiB != 290 {
			t.Fatalf("dropped too early, or the test is wrong: %d MiB held", u.UsedMiB)
		}
		time.Sleep(writeWithin + time.Second)
		synctest.Wait()
		if u := n.usage()[0]; u.UsedMiB != 0 {
			t.Errorf("the deaf client still holds %d MiB", u.UsedMiB)
		}
	})
}

func TestRetireEndsClients(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, Spec{Type: "T4", Count: 1})
		defer n.down()
		cfg := n.admit("j1-a1", shared(0, 1024))
		nc := rawConn(t, cfg)
		ask(t, nc, wire.Request{ID: 1, Op: wire.OpHello, Hello: &wire.Hello{Version: 1, Attempt: "j1-a1", Cards: cfg.Cards}})
		for range 2 { // the second finds nothing, and that is fine
			if err := n.prov.Retire(t.Context(), "j1-a1"); err != nil {
				t.Fatalf("retire: %v", err)
			}
		}
		if _, err := wire.ReadReply(nc); err == nil {
			t.Error("the connection of a retired attempt lives on")
		}
		if u := n.usage()[0]; u.UsedMiB != 0 || len(u.Processes) != 0 {
			t.Errorf("a retired attempt still has %+v", u)
		}
	})
}
