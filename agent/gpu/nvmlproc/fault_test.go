//go:build linux && cgo

package nvmlproc

import (
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/berth-scheduler/berth/agent/gpu"
)

// Whatever call hangs: callers get an error in time, after three misses in a
// row the cards are unknown and take no job, and a good answer heals them.
func TestAnyCallThatHangs(t *testing.T) {
	t.Parallel()
	calls := []string{
		"nvmlInit_v2", "nvmlSystemGetDriverVersion", "nvmlDeviceGetCount_v2", "nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetUUID",
		"nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetUtilizationRates", "nvmlDeviceGetPowerUsage", "nvmlDeviceGetTotalEnergyConsumption",
		"nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetGraphicsRunningProcesses_v3", "nvmlDeviceGetMPSComputeRunningProcesses_v3",
		"nvmlDeviceGetProcessUtilization",
	}
	if testing.Short() {
		calls = calls[2:6]
	}
	for _, call := range calls {
		t.Run(call, func(t *testing.T) {
			t.Parallel()
			cfg := quick()
			cfg.StartTimeout = 200 * time.Millisecond // for a driver that hangs while it is loaded
			n := newNode(t, cfg, cardA+cardB)
			within(t, "the cards answer", func() bool { n.usage(); return n.states() == "GPU-aaaa=ok GPU-bbbb=ok" })
			n.write(cardA + cardB + "hang " + call + "\n")
			if strings.HasPrefix(call, "nvmlInit") || strings.HasPrefix(call, "nvmlSystem") { // called once by each process
				if err := syscall.Kill(n.pid(), syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
			}
			asked := 0
			within(t, "the cards are unknown", func() bool {
				asked++
				if _, err := n.usage(); err == nil && asked > 1 {
					t.Fatal("a driver that hangs answers")
				}
				return n.states() == "GPU-aaaa=unknown GPU-bbbb=unknown"
			})
			if _, err := n.Admit(t.Context(), gpu.Grant{Attempt: "j1-a1", Cards: []gpu.GrantCard{{UUID: "GPU-aaaa", MemMiB: 1}}}); !errors.Is(err, gpu.ErrSilent) {
				t.Errorf("a card that does not answer takes a job: %v", err)
			}
			// The node can still say what it has.
			cards, err := n.Inventory(t.Context())
			if len(cards) != 2 || !errors.Is(err, gpu.ErrSilent) {
				t.Errorf("inventory of a silent driver: %+v, %v", cards, err)
			}
			select {
			case <-n.Changed():
			default:
				t.Error("nobody was told")
			}
			n.write(cardA + cardB)
			within(t, "the cards heal", func() bool { n.usage(); return n.states() == "GPU-aaaa=ok GPU-bbbb=ok" })
			if _, err := n.Admit(t.Context(), gpu.Grant{Attempt: "j1-a1", Cards: []gpu.GrantCard{{UUID: "GPU-aaaa", MemMiB: 1}}}); err != nil {
				t.Errorf("a healed card refuses a job: %v", err)
			}
		})
	}
}

// A wait for events that never returns costs events and nothing else.
func TestEventsThatHang(t *testing.T) {
	t.Parallel()
	n := newNode(t, quick(), cardA+"hang nvmlEventSetWait_v2\n")
	for range 20 {
		if u, err := n.usage(); err != nil || len(u) != 1 {
			t.Fatalf("usage: %+v, %v", u, err)
		}
	}
	if n.states() != "GPU-aaaa=ok" {
		t.Errorf("states: %s", n.states())
	}
}

func TestEventsThatFail(t *testing.T) {
	t.Parallel()
	n := newNode(t, quick(), cardA+"fail -1 nvmlEventSetWait_v2 999\n")
	within(t, "it is logged", func() bool { return n.log.count("cannot wait for events") > 0 })
	if _, err := n.usage(); err != nil || n.states() != "GPU-aaaa=ok" {
		t.Errorf("states: %s, %v", n.states(), err)
	}
	// It is tried again, and an event that came meanwhile is told.
	n.write(cardA + "event GPU-aaaa 8 31\n")
	if _, err := n.usage(); err != nil { // has the fake read its script
		t.Fatal(err)
	}
	n.wantEvents(gpu.Event{UUID: "GPU-aaaa", Kind: gpu.EventXid, Xid: 31, Detail: "Xid 31"})
}

func (n *node) wantEvents(want ...gpu.Event) {
	n.t.Helper()
	var got []gpu.Event
	for range want {
		select {
		case e := <-n.Events():
			got = append(got, e)
		case <-time.After(2 * time.Minute):
			n.t.Fatalf("only %d of %d events in two minutes", len(got), len(want))
		}
	}
	if d := cmp.Diff(want, got, cmpopts.IgnoreFields(gpu.Event{}, "At")); d != "" {
		n.t.Errorf("events (-want +got):\n%s", d)
	}
}

func TestEvents(t *testing.T) {
	t.Parallel()
	n := newNode(t, quick(), cardA+cardB+"event GPU-bbbb 8 79\nevent GPU-aaaa 2 0\n")
	n.wantEvents(
		gpu.Event{UUID: "GPU-bbbb", Kind: gpu.EventXid, Xid: 79, Detail: "Xid 79"},
		gpu.Event{UUID: "GPU-aaaa", Kind: gpu.EventECC, Detail: "double bit ECC error"})
}

// Index is for display: however the driver counts, every answer is about the
// same cards.
func TestPermutedIndices(t *testing.T) {
	t.Parallel()
	n := newNode(t, quick(), cardA+cardB)
	if _, err := n.Inventory(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-n.Changed()
	n.write(cardB + cardA)
	usage, err := n.usage()
	if err != nil || usage[1].UUID != "GPU-aaaa" || usage[1].UsedMiB != 7168 {
		t.Errorf("usage: %+v, %v", usage, err)
	}
	cards, err := n.Inventory(t.Context())
	if err != nil || len(cards) != 2 || cards[1].UUID != "GPU-aaaa" || cards[1].Index != 1 || cards[1].MemMiB != 24576 {
		t.Errorf("inventory: %+v, %v", cards, err)
	}
	if n.states() != "GPU-aaaa=ok GPU-bbbb=ok" {
		t.Errorf("states: %s", n.states())
	}
}

// The instances of a card are given and named like cards, and share its fate.
func TestInstances(t *testing.T) {
	t.Parallel()
	one, two := "mig 0 MIG-1 10737418240 14 1 1 9 0 1g.10gb\n", "mig 0 MIG-2 10737418240 14 1 1 8 0 1g.10gb\n"
	n := newNode(t, quick(), cardA+one)
	grant := gpu.Grant{Attempt: "j1-a1", Cards: []gpu.GrantCard{{UUID: "MIG-1", MemMiB: 1}}}
	if env, err := n.Admit(t.Context(), grant); err != nil || env[0] != "CUDA_VISIBLE_DEVICES=MIG-1" {
		t.Errorf("admit: %v, %v", env, err)
	}
	if u, err := n.usage(); err != nil || len(u) != 2 || u[1].UUID != "MIG-1" || n.states() != "GPU-aaaa=ok MIG-1=ok" {
		t.Errorf("usage: %+v, %v; %s", u, err, n.states())
	}
	told := func() bool {
		n.usage()
		select {
		case <-n.Changed():
			return true
		default:
			return false
		}
	}
	for told() { // what the start had to tell
	}
	for _, layout := range []string{one + two, two, ""} {
		n.write(cardA + layout)
		within(t, "a new layout is told", told)
		if _, err := n.Inventory(t.Context()); err != nil {
			t.Fatal(err)
		}
		for told() { // the inventory itself
		}
	}
	if n.states() != "GPU-aaaa=ok" {
		t.Errorf("states: %s", n.states())
	}
	if _, err := n.Admit(t.Context(), grant); !errors.Is(err, gpu.ErrUnknownCard) {
		t.Errorf("an instance that is gone takes a job: %v", err)
	}
}

func TestLostCards(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, script, reason string }{
		{"said so, by name", cardA + cardB + "fail 0 nvmlDeviceGetMemoryInfo_v2 15\n", "the driver says"},
		{"said so, by number", cardA + cardB + "fail 0 nvmlDeviceGetHandleByIndex_v2 15\n", "the driver says"},
		{"not there any more", cardB, "no longer shows it"},
		{"all gone", "", "no longer shows it"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, quick(), cardA+cardB)
			n.write(tc.script)
			want := "GPU-aaaa=lost GPU-bbbb=ok"
			if tc.script == "" {
				want = "GPU-aaaa=lost GPU-bbbb=lost"
			}
			within(t, want, func() bool { n.usage(); return n.states() == want })
			if why := n.States()[0].Reason; !strings.Contains(why, tc.reason) {
				t.Errorf("reason: %s", why)
			}
			if e := <-n.Events(); e.Kind != gpu.EventLost {
				t.Errorf("event: %+v", e)
			}
			if _, err := n.Admit(t.Context(), gpu.Grant{Attempt: "j1-a1", Cards: []gpu.GrantCard{{UUID: "GPU-aaaa", MemMiB: 1}}}); !errors.Is(err, gpu.ErrLost) {
				t.Errorf("a lost card takes a job: %v", err)
			}
			cards, err := n.Inventory(t.Context())
			if len(cards) != 2 || !errors.Is(err, gpu.ErrLost) {
				t.Errorf("inventory: %+v, %v", cards, err)
			}
			n.write(cardA + cardB)
			within(t, "it is back", func() bool { n.usage(); return n.states() == "GPU-aaaa=ok GPU-bbbb=ok" })
		})
	}
}

// A card with an error that is not loss is unknown by itself; the others work.
func TestOneCardThatFails(t *testing.T) {
	t.Parallel()
	n := newNode(t, quick(), cardA+cardB)
	n.write(cardA + cardB + "fail 1 nvmlDeviceGetMemoryInfo_v2 999\n")
	for i := range 3 {
		if n.states() != "GPU-aaaa=ok GPU-bbbb=ok" {
			t.Errorf("after %d looks: %s", i, n.states())
		}
		if u, err := n.usage(); len(u) != 1 || err == nil {
			t.Errorf("usage: %+v, %v", u, err)
		}
	}
	if n.states() != "GPU-aaaa=ok GPU-bbbb=unknown" {
		t.Errorf("after 3 looks: %s", n.states())
	}
}

func TestChildThatCrashes(t *testing.T) {
	t.Parallel()
	n := newNode(t, quick(), cardA)
	first := n.pid()
	if err := syscall.Kill(first, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	// Between questions nobody misses it.
	within(t, "there is another child", func() bool { _, err := n.usage(); return err == nil && n.pid() != first })
	if n.states() != "GPU-aaaa=ok" {
		t.Errorf("states: %s", n.states())
	}
	n.write(cardA + "crash nvmlDeviceGetUUID\n")
	within(t, "the cards are unknown", func() bool { n.usage(); return n.states() == "GPU-aaaa=unknown" })
	n.write(cardA)
	within(t, "the cards heal", func() bool { n.usage(); return n.states() == "GPU-aaaa=ok" })
}

// A child that cannot be ended, as one that hangs in the kernel, is left
// behind, and there are never many of them.
func TestChildThatCannotBeEnded(t *testing.T) {
	t.Parallel()
	cfg := quick()
	pids := make(chan int, 10*maxStuck)
	cfg.kill = func(p *os.Process) error { pids <- p.Pid; return nil }
	n := newNode(t, cfg, cardA)
	within(t, "it answers", func() bool { _, err := n.usage(); return err == nil })
	n.write(cardA + "hang nvmlDeviceGetUUID\n")
	within(t, "no more are started", func() bool { _, err := n.usage(); return err != nil && strings.Contains(err.Error(), "needs a reboot") })
	if got := n.loop.stuck.Load(); got != maxStuck || n.states() != "GPU-aaaa=unknown" {
		t.Errorf("%d children are stuck, %s", got, n.states())
	}
	n.write(cardA)
	for range maxStuck { // the kernel lets go of them
		if err := syscall.Kill(<-pids, syscall.SIGKILL); err != nil {
			t.Error(err)
		}
	}
	within(t, "it answers again", func() bool { _, err := n.usage(); return err == nil && n.states() == "GPU-aaaa=ok" })
}

// The child goes when its parent does, however that ends.
func TestChildEndsWithItsInput(t *testing.T) {
	t.Parallel()
	n := newNode(t, quick(), cardA)
	pid := n.pid()
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	within(t, "it is gone", func() bool { return syscall.Kill(pid, 0) != nil })
	if _, err := n.usage(); !errors.Is(err, errClosed) {
		t.Errorf("a closed provider says %v", err)
	}
	if _, open := <-n.Events(); open {
		t.Error("the channel of events is open")
	}
}

func TestOpenWithoutADriver(t *testing.T) {
	t.Parallel()
	n := &node{t: t, script: t.TempDir() + "/script", log: &logged{}}
	cfg := quick()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cfg.Command = []string{exe}
	cfg.Env = []string{childEnv + "=" + n.script} // no library
	if _, err := Open(t.Context(), cfg); !errors.Is(err, gpu.ErrNoDriver) || !strings.Contains(err.Error(), "install the driver or configure gpus: none") {
		t.Errorf("got %v", err)
	}
	cfg.Command = []string{"/nonexistent"}
	cfg.StartTimeout = 100 * time.Millisecond
	p, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatalf("a driver that cannot be reached now: %v", err)
	}
	if cards, err := p.Inventory(t.Context()); len(cards) != 0 || err == nil {
		t.Errorf("inventory: %v, %v", cards, err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}
