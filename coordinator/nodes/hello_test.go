package nodes

import (
	"testing"
	"testing/synctest"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/coordinator/roles"
	"github.com/berth-scheduler/berth/fsm"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
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
				if got := masterAddr(l.f, &cluster.Spec{}, a); got != c.want {
					t.Errorf("they meet at %q, want %q", got, c.want)
				}
				if got := masterAddr(l.f, &cluster.Spec{}, &cluster.Attempt{Berth: cluster.Berth{Node: "n1"}}); got != "127.0.0.1" {
					t.Errorf("on one node they meet at %q", got)
				}
				if got := HostOf(l.f, "n9"); got != "n9" {
					t.Errorf("of a node that is not there: %q", got)
				}
			})
		})
	}
}
