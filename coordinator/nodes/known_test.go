package nodes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/memberlist"
	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/coordinator/roles"
	"github.com/berth-scheduler/berth/fsm"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
	"github.com/berth-scheduler/berth/proto/gossip"
)

// TestWhatIsNews: a hello is written down when it says anything else than the state,
// and only then.
func TestWhatIsNews(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, Config{}, fsm.Options{})
		full := func() *nodev1.Hello {
			h := helloOf("n1")
			h.Version, h.Features, h.Problem, h.Runtimes = "v1", []string{"ib"}, "a fan", []string{"host", "containerd"}
			h.Gpus[1].State, h.Gpus[1].StateReason = nodev1.GPUState_GPU_STATE_FAILING, "xid"
			return h
		}
		w := l.dial(roles.Agent, "n1")
		w.hello(full())
		for name, change := range map[string]func(h *nodev1.Hello){
			"nothing":          func(*nodev1.Hello) {},
			"the address":      func(h *nodev1.Hello) { h.Address = "10.1.1.1:7" },
			"the boot":         func(h *nodev1.Hello) { h.BootId = "boot-2" },
			"cores":            func(h *nodev1.Hello) { h.CpuMilli++ },
			"host memory":      func(h *nodev1.Hello) { h.MemMib++ },
			"its version":      func(h *nodev1.Hello) { h.Version = "v2" },
			"a problem":        func(h *nodev1.Hello) { h.Problem = "two fans" },
			"credentials":      func(h *nodev1.Hello) { h.Credentials = true },
			"features":         func(h *nodev1.Hello) { h.Features = []string{"nvme"} },
			"a runtime":        func(h *nodev1.Hello) { h.Runtimes[1] = "other" },
			"a runtime less":   func(h *nodev1.Hello) { h.Runtimes = h.Runtimes[:1] },
			"a card less":      func(h *nodev1.Hello) { h.Gpus = h.Gpus[:2] },
			"memory of a card": func(h *nodev1.Hello) { h.Gpus[2].MemMib-- },
			"a card's state":   func(h *nodev1.Hello) { h.Gpus[0].State = nodev1.GPUState_GPU_STATE_LOST },
			"a state's reason": func(h *nodev1.Hello) { h.Gpus[1].StateReason = "xid 79" },
			"a card's strays":  func(h *nodev1.Hello) { h.Gpus[0].StrayMib = 500 },
		} {
			w.hello(full())
			before := l.f.Index()
			h := full()
			change(h)
			w.hello(h)
			after := l.f.Index()
			w.hello(h)
			if wrote := after > before; wrote != (name != "nothing") || l.f.Index() != after {
				t.Errorf("%s: written %t, and again when it was said twice: %t", name, wrote, l.f.Index() != after)
			}
		}
	})
}

// TestOldCoordinatorsAreShownLess: while one of them cannot store what a hello says,
// what is left is safe, and once all can the same session says the rest by itself.
func TestOldCoordinatorsAreShownLess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, Config{}, fsm.Options{})
		l.prop.SetVersion(1, nil)
		h := helloOf("n1")
		h.Credentials, h.Problem = true, "a fan"
		h.Gpus[0].State, h.Gpus[0].StateReason = nodev1.GPUState_GPU_STATE_FAILING, "xid"
		h.Gpus[1].CapMode, h.Gpus[1].Scope, h.Gpus[1].CapReason = "watch", "same-user", "mps: no"
		w := l.dial(roles.Agent, "n1")
		w.hello(h)
		n := l.node("n1")
		if len(n.GPUs) != 2 || n.GPU("n1-g0") != nil || n.Problem != "" || n.Credentials {
			t.Fatalf("an old coordinator is shown what is not sound: %+v", n)
		}
		if g := n.GPU("n1-g1"); g.Scope != cluster.ScopeAnyone || g.MaxShares != 1 || g.CapReason != "" {
			t.Errorf("a card for one user's jobs is shown as %+v", g)
		}
		if g := n.GPU("n1-g2"); g.MaxShares != 4 {
			t.Errorf("a card for anyone is shown as %+v", g)
		}
		index := l.f.Index()
		w.beat(&nodev1.Heartbeat{Sequence: 1})
		if l.f.Index() != index {
			t.Error("it is written again though nobody was upgraded")
		}
		l.prop.SetVersion(fsm.EntryVersion, nil)
		w.beat(&nodev1.Heartbeat{Sequence: 2})
		n = l.node("n1")
		if g := n.GPU("n1-g1"); len(n.GPUs) != 3 || n.Problem != "a fan" || !n.Credentials || g.Scope != cluster.ScopeSameUser || g.MaxShares != 4 || g.CapReason != "mps: no" {
			t.Errorf("all were upgraded: %+v", n)
		}
		index = l.f.Index()
		w.beat(&nodev1.Heartbeat{Sequence: 3})
		if l.f.Index() != index {
			t.Error("it is written again and again")
		}
	})
}

// TestLeasesAreLongEnough: a node is given up after its lease and not at it; a look that
// comes late by half a lease pardons, a shorter pause does not.
func TestLeasesAreLongEnough(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		pause time.Duration // by which the clock is ahead after a look
		lost  bool
	}{"no pause": {0, true}, "a short one": {20 * time.Second, true}, "half a lease": {31 * time.Second, false}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l, f, skew := leases(t, time.Minute)
				l.heard("n1", nil)
				time.Sleep(30 * time.Second)
				skew.Add(int64(c.pause))
				time.Sleep(30*time.Second - c.pause)
				if s := stateOf(t, f); c.pause == 0 && s != cluster.NodeReady {
					t.Errorf("at its lease it is %s", s)
				}
				time.Sleep(2 * time.Second)
				if lost := stateOf(t, f) == cluster.NodeUnreachable; lost != c.lost {
					t.Errorf("lost %t, want %t", lost, c.lost)
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		l, _, _ := leases(t, time.Minute)
		n, _ := l.fsm.Node("n1")
		if at := l.heardAt("n1"); !at.Equal(time.Now()) {
			t.Errorf("in a new term heard at %s", at)
		}
		time.Sleep(10 * time.Second)
		l.heard("n1", []*nodev1.GPUUsage{{Uuid: "GPU-own", UsedMib: 3}})
		l.described("n1", []*nodev1.GPU{{Uuid: "a", StrayMib: 5}, {Uuid: "b"}}, []byte("key"))
		if _, is := l.strayed["n1"]; !is || string(l.key("n1")) != "key" || len(l.details("n1")) != 2 {
			t.Error("what its hello says is not known")
		}
		l.described("n1", []*nodev1.GPU{{Uuid: "a"}}, []byte("key"))
		if len(l.strayed) != 0 {
			t.Error("strays that went are still there")
		}
		l.described("n1", []*nodev1.GPU{{Uuid: "a", StrayMib: 5}}, nil)
		l.reset()
		if at, gpus := l.last("n1"); !at.IsZero() || gpus != nil || len(l.strayed)+len(l.series) != 0 || l.details("n1") != nil || n.ID != "n1" {
			t.Error("a new term knows what was said in the old one")
		}
	})
}

// TestUsesAddUp: over the nodes of an attempt what was used adds up, the peak and the
// progress are the greatest, and its age is the oldest word's.
func TestUsesAddUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, f, _ := leases(t, time.Minute)
		id, a := cluster.AttemptID{Job: 4, No: 2}, &cluster.Attempt{No: 2, Berth: cluster.Berth{Node: "n1"}, Gang: &cluster.Gang{Rest: []cluster.Berth{{Node: "n2"}}, Parts: make([]cluster.Part, 2)}}
		said := func(busy, known, peak, step int64) []*nodev1.AttemptUse {
			u := &nodev1.AttemptUse{Job: 4, Attempt: 2, BusyMs: busy, KnownMs: known, PeakMib: peak}
			if step >= 0 {
				u.Steps = &nodev1.Steps{Step: step, Total: 100}
			}
			return []*nodev1.AttemptUse{u, {Job: 9, Attempt: 1, BusyMs: 1}}
		}
		ask := func(ok bool, busy, known, peak, step int64, at time.Time) {
			t.Helper()
			u, told := l.useOf(id, a)
			got := int64(-1)
			if u.Progress != nil {
				got = u.Progress.Step
			}
			if told != ok || u.BusyMs != busy || u.KnownMs != known || u.PeakMiB != peak || got != step || !at.IsZero() && u.At != cluster.TimeOf(at) {
				t.Errorf("%t, %+v, step %d; want %t, %d of %d ms, %d MiB, step %d", told, u, got, ok, busy, known, peak, step)
			}
		}
		l.used("n1", said(1, 2, 3, 4)) // of a node that was not heard in this term
		ask(false, 0, 0, 0, -1, time.Time{})
		l.heard("n1", nil)
		l.heard("n2", nil)
		first := time.Now()
		l.used("n1", said(10, 100, 7, 30))
		ask(false, 10, 100, 7, 30, time.Time{})
		time.Sleep(time.Second)
		l.used("n2", said(-5, 50, 9, 20))
		ask(true, 10, 150, 9, 30, first)
		time.Sleep(time.Second)
		l.used("n1", said(20, 200, 8, -1))
		ask(true, 20, 250, 9, 20, first.Add(time.Second))
		l.used("n2", said(30, -1, math.MinInt64, 99))
		ask(true, 50, 200, 8, 99, time.Time{})
		l.used("n2", nil) // its word is all there is: nothing of this attempt
		ask(false, 20, 200, 8, -1, time.Time{})
		if len(f.Nodes()) != 1 {
			t.Fatal("who is heard becomes a node")
		}
	})
}

// TestEmptiedNodes: a card sells what strays hold, too, and never more than it has; the
// nodes that were given stay as they were.
func TestEmptiedNodes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, f, _ := leases(t, time.Minute)
		n, _ := f.Node("n1")
		was := *n
		was.GPUs = slices.Clone(n.GPUs)
		if got := l.emptied([]*cluster.Node{n}); got[0] != n {
			t.Error("nobody strays, and the node is copied")
		}
		for stray, want := range map[int64]int64{50: 950, 100: 1000, 5000: 1000} {
			l.described("n1", []*nodev1.GPU{{Uuid: "GPU-own", StrayMib: stray, Detail: &apiv1.GPUDetail{}}}, nil)
			in := []*cluster.Node{n, {ID: "n2"}}
			got := l.emptied(in)
			if got[0].GPUs[0].SellableMiB != want || got[1] != in[1] || in[0] != n {
				t.Errorf("with %d MiB of strays it sells %d, want %d", stray, got[0].GPUs[0].SellableMiB, want)
			}
			if d := cmp.Diff(was.GPUs, n.GPUs); d != "" {
				t.Fatalf("the node has changed:\n%s", d)
			}
		}
	})
}

// TestFeed: whoever waits for a node is woken by each change of it, of its jobs and of
// those that ended there, on every node that they lie on, and by nothing else; who is
// gone is not, and takes nobody along. Where changes were missed all are woken.
func TestFeed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, Config{}, fsm.Options{ChangeRing: 8})
		l.agent("n1")
		l.agent("n2")
		chans := map[string]<-chan struct{}{}
		for _, node := range []cluster.NodeID{"n1", "n2", "n3"} {
			ch, end := l.n.feed.subscribe(node)
			defer end()
			chans[string(node)] = ch
		}
		_, end := l.n.feed.subscribe("n1")
		end()
		woken := func() string {
			synctest.Wait()
			var out []string
			for _, n := range []string{"n1", "n2", "n3"} {
				select {
				case <-chans[n]:
					out = append(out, n)
				default:
				}
			}
			return strings.Join(out, " ")
		}
		want := func(what, nodes string) {
			t.Helper()
			if got := woken(); got != nodes {
				t.Errorf("%s: %q are woken, want %q", what, got, nodes)
			}
		}
		woken()
		id := l.submit(&cluster.Spec{Name: "j", Command: []string{"x"}, Dir: "/", Nodes: 2})
		want("a job came", "")
		l.start(cluster.Start{Job: id, Attempt: 1, Berth: cluster.Berth{Node: "n1", CPUMilli: 1, MemMiB: 1}, Rest: []cluster.Berth{{Node: "n2", CPUMilli: 1, MemMiB: 1}}})
		want("it starts on two nodes", "n1 n2")
		l.do(&logv1.Command{Kind: &logv1.Command_CancelJob{CancelJob: &logv1.CancelJob{Job: uint64(id), Admin: true}}})
		want("it is cancelled", "n1 n2")
		for _, n := range []string{"n1", "n2"} {
			l.do(&logv1.Command{Kind: &logv1.Command_ReportAttempt{ReportAttempt: &logv1.ReportAttempt{Node: n, Job: uint64(id), Attempt: 1, Token: uint64(l.job(id).Last().Token), State: uint32(cluster.JobCancelled)}}})
		}
		if got := woken(); !strings.Contains(got, "n1 n2") || !l.job(id).State.Terminal() {
			t.Errorf("it ended (%s): %q are woken", l.job(id).State, got)
		}
		l.do(&logv1.Command{Kind: &logv1.Command_DrainNode{DrainNode: &logv1.DrainNode{Node: "n2", Drain: true, Reason: "x"}}})
		want("a node is drained", "n2")
		l.told.Lock()
		before := len(l.told.changes)
		l.told.Unlock()
		var cmds []*logv1.Command
		for i := range 30 {
			cmds = append(cmds, &logv1.Command{Kind: &logv1.Command_DrainNode{DrainNode: &logv1.DrainNode{Node: "n2", Drain: i%2 == 1, Reason: "x"}}})
		}
		if _, err := l.prop.Do(t.Context(), cmds...); err != nil {
			t.Fatal(err)
		}
		if got := woken(); got != "n1 n2 n3" || l.told.missed != 1 || len(l.told.changes) != before {
			t.Errorf("more changes than are kept: %q are woken, missed %d times", got, l.told.missed)
		}
	})
}

// TestHints: whatever comes and in whatever order, of a node its newest word counts,
// by its key once it has told one, and for as long as it is fresh.
func TestHints(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(3, 4))
	now, size := time.Unix(2_000_000_000, 0), 0
	keys := map[cluster.NodeID][]byte{}
	h := &hints{
		clock: func() time.Time { return now }, log: slog.New(slog.DiscardHandler), of: map[cluster.NodeID]hint{},
		known: func(id cluster.NodeID) bool { return id != "n3" }, keyOf: func(id cluster.NodeID) []byte { return keys[id] }, size: func() int { return size },
	}
	type word struct {
		seq    uint64
		stray  uint32
		at     time.Time
		signed bool
	}
	model := map[cluster.NodeID]word{}
	refused := uint64(0)
	good, bad := []byte("a key of sixteen"), []byte("another key of 16")
	for step := range 3000 {
		id := cluster.NodeID([]string{"n1", "n2", "n3"}[rnd.IntN(3)])
		switch rnd.IntN(12) {
		case 0:
			keys[id] = [][]byte{nil, good, []byte("short"), good}[rnd.IntN(4)]
		case 1:
			now = now.Add(time.Duration(rnd.IntN(25)) * time.Second)
		case 2:
			size = rnd.IntN(1200)
		default:
			w := word{seq: uint64(rnd.IntN(40)), stray: uint32(rnd.IntN(2) * 300), at: now}
			key := [][]byte{good, bad, nil}[rnd.IntN(3)]
			b, err := gossip.Capacity{Node: string(id), Seq: w.seq, GPUs: []gossip.GPU{{ID: gossip.UUIDHash("g0"), FreeMiB: uint32(w.seq), StrayMiB: w.stray}}}.Append(nil, key)
			if err != nil {
				t.Fatal(err)
			}
			w.signed = len(keys[id]) == len(good)
			old, had := model[id]
			news := id != "n3"
			if news && w.signed && string(key) != string(good) {
				news, refused = false, refused+1
			}
			if had && old.signed == w.signed && w.seq <= old.seq {
				news = false
			}
			if got := h.hear(b); got != news {
				t.Fatalf("step %d: word %d of %s is news: %t, want %t", step, w.seq, id, got, news)
			}
			if news {
				model[id] = w
			}
		}
		life := 20 * time.Second
		for n := size; n >= 500; n -= 500 {
			life += 20 * time.Second
		}
		var strayed []cluster.NodeID
		for _, id := range []cluster.NodeID{"n1", "n2", "n3"} {
			w, had := model[id]
			fresh := had && now.Sub(w.at) <= life
			got, ok := h.get(id)
			if ok != fresh || ok && (got.Seq != w.seq || got.signed != w.signed || !got.at.Equal(w.at)) {
				t.Fatalf("step %d: %s: %t, %+v; want %t, %+v", step, id, ok, got, fresh, w)
			}
			if g, is := got.gpu("g0"); ok && (!is || g.StrayMiB != w.stray) {
				t.Fatalf("step %d: %s: card %+v", step, id, g)
			}
			if fresh && w.signed && w.stray > 0 {
				strayed = append(strayed, id)
			}
		}
		if got := h.strayed(); !slices.Equal(got, strayed) || h.refusals() != refused {
			t.Fatalf("step %d: strays on %v, want %v; %d refused, want %d", step, got, strayed, h.refusals(), refused)
		}
	}
	if refused < 20 || h.hear([]byte("no message")) {
		t.Errorf("only %d were refused, or what is no message was news", refused)
	}
}

// TestGossipBesideTheSession: of strays counts what gossip says beyond what the node
// told in its session, if it is signed; a node is cut off when others hear it lately
// and the leader has not for a while.
func TestGossipBesideTheSession(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, Config{Lease: 40 * time.Second}, fsm.Options{})
		key := []byte("a key of sixteen bytes and more")
		w := l.dial(roles.Agent, "n1")
		h := helloOf("n1")
		h.GossipKey, h.Gpus[0].StrayMib, h.Gpus[0].Detail = key, 200, &apiv1.GPUDetail{}
		w.hello(h)
		seq := uint64(0)
		gossips := func(stray uint32, key []byte) {
			seq++
			c := gossip.Capacity{Node: "n1", Seq: seq, GPUs: []gossip.GPU{{ID: gossip.UUIDHash("n1-g0"), FreeMiB: 77, StrayMiB: stray}, {ID: gossip.UUIDHash("n1-g1"), StrayMiB: 5}}}
			b, err := c.Append(nil, key)
			if err != nil {
				t.Fatal(err)
			}
			l.n.hints.hear(b)
		}
		gossips(1000, key)
		l.agent("n2") // tells no key
		if b, err := (gossip.Capacity{Node: "n2", Seq: 1, GPUs: []gossip.GPU{{ID: gossip.UUIDHash("n2-g0"), StrayMiB: 900, FreeMiB: 3}}}).Append(nil, nil); err != nil || !l.n.hints.hear(b) || l.n.StrayMiB("n2", "n2-g0") != 0 {
			t.Errorf("what nobody signed holds %d MiB; %v", l.n.StrayMiB("n2", "n2-g0"), err)
		}
		if a, b := l.n.StrayMiB("n1", "n1-g0"), l.n.StrayMiB("n1", "n1-g1"); a != 800 || b != 5 {
			t.Errorf("beyond what the session told: %d and %d", a, b)
		}
		if d := cmp.Diff(map[cluster.GPUID]int64{"n1-g0": 800, "n1-g1": 5}, l.n.Held()); d != "" {
			t.Error(d)
		}
		if g := l.n.Gossip(); g.StrayMiB != 805 || g.CutOff != 0 || g.Members != 0 {
			t.Errorf("%+v", g)
		}
		if mib, ok := l.n.FreeMiB("n1", "n1-g0"); !ok || mib != 77 {
			t.Errorf("free: %d, %t", mib, ok)
		}
		gossips(100, key)
		if d := cmp.Diff(map[cluster.GPUID]int64{"n1-g1": 5}, l.n.Held()); d != "" {
			t.Errorf("the session knew more: %s", d)
		}
		gossips(5000, []byte("somebody else's key"))
		if g := l.n.Gossip(); g.Refused != 1 || g.StrayMiB != 5 {
			t.Errorf("forged: %+v", g)
		}
		// It falls silent to the leader.
		for i, c := range []struct {
			after time.Duration
			say   bool
			cut   bool
		}{{8 * time.Second, true, false}, {3 * time.Second, false, true}, {12 * time.Second, false, true}, {8 * time.Second, false, false}, {time.Second, true, true}} {
			time.Sleep(c.after)
			if c.say {
				gossips(0, key)
			}
			if text := l.n.CutOff("n1"); (text != "") != c.cut {
				t.Errorf("step %d: %q, want it said: %t", i, text, c.cut)
			}
		}
		if l.n.Gossip().CutOff != 1 {
			t.Error("it is not counted")
		}
		w.beat(&nodev1.Heartbeat{})
		if l.n.CutOff("n1") != "" {
			t.Error("heard again, and still cut off")
		}
		// Both fall silent at one time: it went down.
		time.Sleep(time.Second)
		gossips(0, key)
		time.Sleep(15 * time.Second)
		if text := l.n.CutOff("n1"); text != "" {
			t.Errorf("it went down: %q", text)
		}
	})
}

// certs sign everything, and count.
type certs struct {
	issued []string
	signs  func() // called at each signature
}

func (c *certs) Issue(csr []byte, role, id string) (cert, ca []byte, err error) {
	if len(csr) == 0 {
		return nil, nil, errors.New("no request")
	}
	c.issued = append(c.issued, role+" "+id)
	if c.signs != nil {
		c.signs()
	}
	return []byte("cert of " + id), []byte("ca"), nil
}

func (c *certs) Token() (string, []byte, error) {
	return "token", []byte(strings.Repeat("h", 32)), nil
}

func (c *certs) TokenHash(secret string) ([]byte, error) {
	if secret == "" {
		return nil, errors.New("none")
	}
	return []byte(strings.Repeat(secret[:1], 32)), nil
}

// TestJoin: a token is good once, for its name, until it expires; a wrong one costs
// neither a signature nor an entry, and after many of them nobody there may try.
func TestJoin(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ca := &certs{}
		l := newLab(t, Config{Certs: ca, Coordinators: []string{"c:1"}}, fsm.Options{})
		from := peer.NewContext(t.Context(), &peer.Peer{Addr: &net.TCPAddr{IP: net.IPv4(10, 0, 0, 9), Port: 4}})
		s := &nodeServer{n: l.n}
		for name, ttl := range map[string]time.Duration{"too short": time.Millisecond, "too long": 30*24*time.Hour + 1} {
			if _, _, err := l.n.CreateToken(from, 1, "", "n1", ttl); err == nil {
				t.Errorf("a token that lasts %s is made", name)
			}
		}
		for _, bad := range [][2]string{{roles.Coordinator, "n1"}, {roles.Agent, "no/name"}} {
			if _, _, err := l.n.CreateToken(from, 1, bad[0], bad[1], 0); err == nil {
				t.Errorf("a token for %v is made", bad)
			}
		}
		join := func(ctx context.Context, secret, node string) string {
			before, index := len(ca.issued), l.f.Index()
			r, err := s.Join(ctx, &nodev1.JoinRequest{TokenSecret: secret, Node: node, Csr: []byte("x")})
			if err == nil && (string(r.Certificate) != "cert of "+node || string(r.Ca) != "ca" || !slices.Equal(r.Coordinators, []string{"c:1"})) {
				t.Errorf("it is given %v", r)
			}
			if err != nil {
				if len(ca.issued) != before || l.f.Index() != index {
					t.Errorf("a refused join of %s cost a signature or an entry", node)
				}
				return err.Error()
			}
			return "joined"
		}
		token := func(ttl time.Duration) {
			t.Helper()
			text, ends, err := l.n.CreateToken(from, 1, "", "n1", ttl)
			if ttl == 0 {
				ttl = time.Hour
			}
			if err != nil || text != "token" || !ends.Equal(time.Now().Add(ttl)) {
				t.Fatalf("%q until %s, %v", text, ends, err)
			}
		}
		token(0)
		for _, c := range []struct{ secret, node, want string }{
			{"h", "n2", "not valid"}, {"x", "n1", "not valid"}, {"", "n1", "not valid"}, {"h", "no/name", "name"}, {"h", "n1", "joined"}, {"h", "n1", "not valid"},
		} {
			if got := join(from, c.secret, c.node); !strings.Contains(got, c.want) {
				t.Errorf("%q by %q: %s, want %s", c.node, c.secret, got, c.want)
			}
		}
		if !slices.Equal(ca.issued, []string{"agent n1"}) {
			t.Errorf("signed: %v", ca.issued)
		}
		token(30 * 24 * time.Hour)
		time.Sleep(30*24*time.Hour + time.Second)
		if got := join(from, "h", "n1"); !strings.Contains(got, "not valid") {
			t.Errorf("after its time: %s", got)
		}
		token(time.Hour) // two come with it at once: one is refused
		ca.signs = func() {
			ca.signs = nil
			if r, err := s.Join(from, &nodev1.JoinRequest{TokenSecret: "h", Node: "n1", Csr: []byte("x")}); err != nil || r == nil {
				t.Errorf("the first of two: %v", err)
			}
		}
		if r, err := s.Join(from, &nodev1.JoinRequest{TokenSecret: "h", Node: "n1", Csr: []byte("x")}); err == nil {
			t.Errorf("the second of two has %v", r)
		}
		token(time.Minute)
		for range 40 {
			join(from, "x", "n1")
		}
		elsewhere := peer.NewContext(t.Context(), &peer.Peer{Addr: &net.TCPAddr{IP: net.IPv4(10, 0, 0, 8), Port: 4}})
		if got := join(from, "h", "n1"); !strings.Contains(got, "too many") {
			t.Errorf("after forty guesses: %s", got)
		}
		if got := join(elsewhere, "h", "n1"); got != "joined" {
			t.Errorf("from another address: %s", got)
		}
		for _, c := range []struct {
			ctx context.Context
			csr string
			ok  bool
		}{{as(t.Context(), roles.Agent, "n1"), "x", true}, {as(t.Context(), roles.Agent, "n1"), "", false}, {as(t.Context(), roles.Coordinator, "c1"), "x", false}, {as(t.Context(), "", ""), "x", false}, {t.Context(), "x", false}} {
			r, err := s.Renew(c.ctx, &nodev1.RenewRequest{Csr: []byte(c.csr)})
			if (err == nil) != c.ok || c.ok && string(r.Certificate) != "cert of n1" {
				t.Errorf("renewed: %v, %v", r, err)
			}
			now, err := s.GetClock(c.ctx, nil)
			if (err == nil) != (c.ok || c.csr == "") || err == nil && !now.Now.AsTime().Equal(time.Now()) {
				t.Errorf("the time: %v, %v", now, err)
			}
		}
		l.n.office.Leave()
	})
}

// TestOnlyJoinIsOpenToStrangers: of the service for nodes.
func TestOnlyJoinIsOpenToStrangers(t *testing.T) {
	t.Parallel()
	all := nodev1.NodeService_ServiceDesc.Methods
	got := joinOnly(all)
	if len(got) != 1 || got[0].MethodName != "Join" || len(all) < 3 {
		t.Errorf("open are %v", slices.Collect(func(yield func(string) bool) {
			for _, m := range got {
				if !yield(m.MethodName) {
					return
				}
			}
		}))
	}
}

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

func (w *relayWire) Context() context.Context         { return w.ctx }
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

// TestMembersSay: of agents, and of no others, what gossip says last; a flood of names
// is bounded, and those who are known are heard all the same.
func TestMembersSay(t *testing.T) {
	t.Parallel()
	m := &members{states: map[string]string{}, about: gossip.Meta{Node: "c1", Role: gossip.RoleCoordinator, Protocol: 1}}
	node := func(name string, role gossip.Role, state memberlist.NodeStateType) *memberlist.Node {
		b, err := gossip.Meta{Node: name, Role: role, Protocol: 1, Port: 1}.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		return &memberlist.Node{Name: role.String() + "." + name, Meta: b, State: state}
	}
	for _, c := range []struct {
		tell func(*memberlist.Node)
		n    *memberlist.Node
		want string
	}{
		{m.NotifyJoin, node("n1", gossip.RoleAgent, memberlist.StateAlive), "alive"},
		{m.NotifyLeave, node("n1", gossip.RoleAgent, memberlist.StateDead), "dead"},
		{m.NotifyUpdate, node("n1", gossip.RoleAgent, memberlist.StateAlive), "alive"},
		{m.NotifyLeave, node("n1", gossip.RoleAgent, memberlist.StateLeft), "left"},
		{m.NotifyJoin, node("n1", gossip.RoleCoordinator, memberlist.StateAlive), "left"},
		{m.NotifyJoin, &memberlist.Node{Name: "agent.n1", Meta: []byte("junk")}, "left"},
	} {
		if c.tell(c.n); m.view("n1") != c.want {
			t.Errorf("it is %s, want %s", m.view("n1"), c.want)
		}
	}
	if m.view("n2") != "unknown" || m.count() != 0 {
		t.Error("somebody is known who never came")
	}
	for i := range maxStates + 10 {
		m.set(node(fmt.Sprintf("x%d", i), gossip.RoleAgent, memberlist.StateAlive), "alive")
	}
	m.set(node("n1", gossip.RoleAgent, memberlist.StateAlive), "alive")
	if len(m.states) != maxStates || m.view("n1") != "alive" {
		t.Errorf("%d names are held; one that is known is %s", len(m.states), m.view("n1"))
	}
	leads := false
	m.leads = func() bool { return leads }
	for i, c := range []struct{ leads, news bool }{{false, false}, {true, true}, {true, false}, {false, true}, {false, false}} {
		leads = c.leads
		news := m.tellLead()
		meta, err := gossip.ParseMeta(m.NodeMeta(512))
		if err != nil || news != c.news || (meta.Flags&gossip.FlagLeader != 0) != c.leads {
			t.Errorf("step %d: news %t, flags %v, %v", i, news, meta.Flags, err)
		}
	}
}

// TestWhereOthersMeet: the first node's host as others reach it; an address that is for
// one machine alone is given only to whoever is on that machine, too.
func TestWhereOthersMeet(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		one, two string // addresses; "" is a node that is not there
		want     string
	}{
		"an address":                    {"10.0.0.1:7", "10.0.0.2:7", "10.0.0.1"},
		"a name":                        {"gpu-1.site:7", "10.0.0.2:7", "gpu-1.site"},
		"without a port":                {"10.0.0.1", "10.0.0.2:7", "10.0.0.1"},
		"any address":                   {"0.0.0.0:7", "10.0.0.2:7", "n1"},
		"any address of IPv6":           {"[::]:7", "10.0.0.2:7", "n1"},
		"loopback, others do as well":   {"127.0.0.1:7", "127.0.0.1:8", "127.0.0.1"},
		"loopback, another is far":      {"127.0.0.1:7", "10.0.0.2:7", "n1"},
		"loopback of IPv6":              {"[::1]:7", "10.0.0.2:7", "n1"},
		"who is far, another is beside": {"10.0.0.1:7", "127.0.0.1:8", "10.0.0.1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := newLab(t, Config{}, fsm.Options{})
				for node, addr := range map[string]string{"n1": c.one, "n2": c.two} {
					h := helloOf(node)
					h.Address = addr
					l.dial(roles.Agent, node).hello(h)
				}
				a := &cluster.Attempt{Berth: cluster.Berth{Node: "n1"}, Gang: &cluster.Gang{Rest: []cluster.Berth{{Node: "n2"}}, Parts: make([]cluster.Part, 2)}}
				if got := masterAddr(l.f, a); got != c.want {
					t.Errorf("they meet at %q, want %q", got, c.want)
				}
				if got := masterAddr(l.f, &cluster.Attempt{Berth: cluster.Berth{Node: "n1"}}); got != "127.0.0.1" {
					t.Errorf("on one node they meet at %q", got)
				}
				if got := HostOf(l.f, "n9"); got != "n9" {
					t.Errorf("of a node that is not there: %q", got)
				}
			})
		})
	}
}
