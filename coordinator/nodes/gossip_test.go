package nodes

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/memberlist"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/coordinator/roles"
	"github.com/berth-scheduler/berth/fsm"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
	"github.com/berth-scheduler/berth/proto/gossip"
)

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
		}{{8 * time.Second, true, false}, {5 * time.Second, false, true}, {12 * time.Second, false, true}, {8 * time.Second, false, false}, {time.Second, true, true}} {
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
		power := func(to cluster.PowerState) {
			l.do(&logv1.Command{Kind: &logv1.Command_PowerNode{PowerNode: &logv1.PowerNode{Node: "n1", To: uint32(to)}}})
		}
		if power(cluster.PoweringDown); l.n.CutOff("n1") != "" {
			t.Error("it is powered down, and cut off for that")
		}
		power(cluster.PowerUp)
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
