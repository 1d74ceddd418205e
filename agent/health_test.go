package agent_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/berth-scheduler/berth/agent"
	"github.com/berth-scheduler/berth/agent/agenttest"
	"github.com/berth-scheduler/berth/agent/gpu"
	"github.com/berth-scheduler/berth/agent/gpu/sim"
	"github.com/berth-scheduler/berth/agent/gpu/sim/simclient"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// leaky is simulated cards with the faults of real ones: memory that no process
// holds, and events of the driver.
type leaky struct {
	*sim.Provider
	events chan gpu.Event

	mu    sync.Mutex
	leak  map[string]int64
	looks int // at what the cards hold
}

func (l *leaky) Events() <-chan gpu.Event { return l.events }

func (l *leaky) Usage(ctx context.Context) ([]gpu.Usage, error) {
	us, err := l.Provider.Usage(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.looks++
	for i := range us {
		us[i].UsedMiB += l.leak[us[i].UUID]
	}
	return us, err
}

func (l *leaky) looked() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.looks
}

func (l *leaky) hold(card int, mib int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leak[sim.UUID("n1", card)] = mib
}

// ward is an agent with a fake runtime, three simulated cards and a kernel's log
// that the test writes.
type ward struct {
	*rig
	cards  *leaky
	socket string
	kmsg   string
	cfg    agent.HealthConfig
}

func newWard(t *testing.T, cfg agent.HealthConfig) *ward {
	t.Helper()
	t.Parallel()
	dir, err := os.MkdirTemp("", "ward")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	w := &ward{rig: &rig{t: t, dir: dir, rt: agenttest.New(), leader: agenttest.NewLeader(t)}, socket: filepath.Join(dir, "cards"), kmsg: filepath.Join(dir, "kmsg"), cfg: cfg}
	p, err := sim.New(sim.Config{Node: "n1", Specs: []sim.Spec{{Type: "T4", Count: 3, MemMiB: 8000}}, Socket: w.socket})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	w.cards = &leaky{Provider: p, events: make(chan gpu.Event, 10), leak: map[string]int64{}}
	if err := os.WriteFile(w.kmsg, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	w.cfg.Kmsg = w.kmsg
	w.begin()
	t.Cleanup(func() { w.stop() })
	return w
}

// begin runs an agent on the ward, as after a restart.
func (w *ward) begin() {
	w.t.Helper()
	w.leader.ForgetHello()
	ctx, cancel := context.WithCancel(context.Background())
	a, err := agent.New(ctx, agent.Config{
		Node: "n1", BootID: "boot", Dir: w.dir, Coordinators: []string{"leader"}, Dial: w.leader.Dial, Host: w.rt, GPUs: w.cards, CapMode: "sim",
		Users: users{}, CPUMilli: 8000, MemMiB: 1024, Grace: 50 * time.Millisecond, Heartbeat: 20 * time.Millisecond,
		Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Health: w.cfg,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	w.stop = func() {
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			w.t.Errorf("agent: %v", err)
		}
		w.stop = func() {}
	}
}

func (w *ward) on(job uint64, card int) {
	as := assignment(job)
	as.Gpus = []*nodev1.Share{{Uuid: sim.UUID("n1", card), MemMib: 3000, Milli: 200}}
	w.leader.Assign(as)
}

// take is a process that says to be of the job, and is no child of its.
func (w *ward) take(job uint64, card int, mib int64) *simclient.Client {
	w.t.Helper()
	c, err := simclient.Connect(w.t.Context(), simclient.Config{Socket: w.socket, Attempt: id(job).String(), Cards: []string{sim.UUID("n1", card)}})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { c.Close() })
	if _, err := c.Alloc(w.t.Context(), 0, mib<<20); err != nil {
		w.t.Fatal(err)
	}
	return c
}

// xid writes a line of the driver into the kernel's log, of one card, that it
// says now.
func (w *ward) xid(seq, code, card int) {
	w.t.Helper()
	w.xidOf(0, seq, code, card)
}

// xidOf is xid of what was since the machine booted.
func (w *ward) xidOf(since time.Duration, seq, code, card int) {
	w.t.Helper()
	f, err := os.OpenFile(w.kmsg, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	defer f.Close()
	if _, err := fmt.Fprintf(f, "4,%d,%d,-;NVRM: Xid (PCI:0000:%02x:00): %d, pid=7, name=train, words\n", seq, since.Microseconds(), card+1, code); err != nil {
		w.t.Fatal(err)
	}
}

// read waits until the agent has read the kernel's log: what it says last is of
// the card that nobody uses.
func (w *ward) read(seq int) {
	w.t.Helper()
	w.xid(seq, 94, 2)
	w.card(2, failing)
}

func stateOf(h *nodev1.Hello, card int) (nodev1.GPUState, string) {
	for _, g := range h.GetGpus() {
		if g.Uuid == sim.UUID("n1", card) {
			return g.State, g.StateReason
		}
	}
	return nodev1.GPUState_GPU_STATE_UNKNOWN, "not in the hello"
}

// card waits until the leader knows a card in a state, and returns why.
func (w *ward) card(card int, want nodev1.GPUState) string {
	w.t.Helper()
	why := ""
	w.within(fmt.Sprintf("card %d is %s", card, want), func() bool {
		var s nodev1.GPUState
		s, why = stateOf(w.leader.Hello(), card)
		return s == want
	})
	return why
}

// within is eventually with the patience that a loaded machine asks for.
func (w *ward) within(what string, ok func() bool) {
	w.t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			w.t.Fatalf("not within two minutes: %s; job 1 %v; node %v", what, w.leader.Last(id(1)), w.leader.Hello())
		}
	}
}

const (
	completing = nodev1.AttemptState_ATTEMPT_STATE_COMPLETING
	sound      = nodev1.GPUState_GPU_STATE_UNSPECIFIED
	kept       = nodev1.GPUState_GPU_STATE_QUARANTINED
	failing    = nodev1.GPUState_GPU_STATE_FAILING
	gone       = nodev1.GPUState_GPU_STATE_LOST
)

// TestASharesEndWaitsForItsMemory: how the process ended is known at once, and
// that it ended only when its memory is back.
func TestASharesEndWaitsForItsMemory(t *testing.T) {
	w := newWard(t, agent.HealthConfig{Quiet: 20 * time.Millisecond})
	w.on(1, 0)
	w.reported(1, running)
	lingers := w.take(1, 0, 1000)
	w.rt.Exit(id(1), 3, true)
	r := w.reported(1, completing)
	if r.Exit.GetCode() != 3 || r.Reason != "GPUReturning" || !strings.Contains(r.Detail, "holds") {
		t.Errorf("completing: %v", r)
	}
	w.on(2, 0)
	w.reported(2, running) // what others hold is no matter
	before := w.cards.looked()
	w.within("the agent looks at the cards", func() bool { return w.cards.looked() > before+3 })
	if r := w.leader.Last(id(1)); r.State != completing {
		t.Fatalf("its memory is not back, and it is reported %v", r)
	}
	lingers.Close()
	if r := w.reported(1, failed); r.Exit.Code != 3 || r.Reason != "NonZeroExitCode" {
		t.Errorf("ended: %v", r)
	}
	if s, why := stateOf(w.leader.HelloAt(id(1)), 0); s != sound {
		t.Errorf("the card was %s: %s", s, why)
	}
}

// TestMemoryThatIsNotBack: the leader knows that the card is closed before it
// knows that the share is free, and the card opens by itself.
func TestMemoryThatIsNotBack(t *testing.T) {
	for _, tc := range []struct {
		name  string
		leave func(w *ward) (end func())
		why   string
	}{
		{"of a process that escaped", func(w *ward) func() {
			return func(c *simclient.Client) func() { return func() { c.Close() } }(w.take(1, 0, 1000))
		}, "of it holds"},
		{"of no process", func(w *ward) func() { w.cards.hold(0, 65+500); return func() { w.cards.hold(0, 500) } }, "565 MiB were not freed"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWard(t, agent.HealthConfig{Within: 100 * time.Millisecond, Recheck: 20 * time.Millisecond})
			w.on(1, 0)
			w.reported(1, running)
			end := tc.leave(w)
			w.rt.Exit(id(1), 0, true)
			if r := w.reported(1, completed); r.Exit.Code != 0 {
				t.Errorf("ended: %v", r)
			}
			if s, why := stateOf(w.leader.HelloAt(id(1)), 0); s != kept || !strings.Contains(why, tc.why) && tc.name != "of no process" {
				t.Errorf("when its end was told the card was %s: %s", s, why)
			}
			// One that the leader placed before it knew goes back, unbegun.
			w.on(2, 0)
			if r := w.reported(2, lost); r.Reason != "GPUCheckFailed" || r.Started != nil {
				t.Errorf("on a quarantined card: %v", r)
			}
			w.on(3, 1) // the other card is open
			w.reported(3, running)
			w.stop()
			w.begin() // an agent that starts anew does not open the card unseen
			w.card(0, kept)
			end()
			if tc.name == "of no process" {
				w.cards.hold(0, 0)
			}
			w.card(0, sound)
			w.on(4, 0)
			w.reported(4, running)
			if r := w.leader.Last(id(3)); r.State != running {
				t.Errorf("the other card's job: %v", r)
			}
		})
	}
}

// TestWhatACardHeldBefore: memory that was held before the attempt began is
// not waited for.
func TestWhatACardHeldBefore(t *testing.T) {
	w := newWard(t, agent.HealthConfig{})
	w.cards.hold(0, 700)
	w.on(1, 0)
	w.reported(1, running)
	w.cards.hold(0, 760) // within what may stay
	w.rt.Exit(id(1), 0, true)
	w.reported(1, completed)
	if s, why := stateOf(w.leader.HelloAt(id(1)), 0); s != sound {
		t.Errorf("the card was %s: %s", s, why)
	}
}

// TestUnkillable: an attempt whose process stays after SIGKILL never ends; its
// card is quarantined, and the node says that somebody must look.
func TestUnkillable(t *testing.T) {
	w := newWard(t, agent.HealthConfig{Unkillable: 100 * time.Millisecond})
	w.rt.Ignore(syscall.SIGTERM)
	w.rt.Ignore(syscall.SIGKILL)
	w.on(1, 0)
	w.reported(1, running)
	as := assignment(1)
	as.Gpus = []*nodev1.Share{{Uuid: sim.UUID("n1", 0), MemMib: 3000, Milli: 200}}
	as.Stop = true
	w.leader.Assign(as)
	r := w.reported(1, completing)
	if r.Reason != "Unkillable" || r.Exit != nil {
		t.Errorf("reported %v", r)
	}
	if why := w.card(0, kept); !strings.Contains(why, "has not ended") {
		t.Errorf("quarantined: %s", why)
	}
	w.within("the node is flagged", func() bool { return strings.Contains(w.leader.Hello().Problem, "a process of j1-a1 has not ended") })
	before := len(w.leader.Heartbeats())
	w.within("the agent goes on", func() bool { return len(w.leader.Heartbeats()) > before+15 })
	if r := w.leader.Last(id(1)); r.State != completing {
		t.Fatalf("it is said to have ended: %v", r)
	}
	w.rt.Exit(id(1), 137, true)
	w.reported(1, cancelled)
	w.card(0, sound)
	w.within("the flag is gone", func() bool { return w.leader.Hello().Problem == "" })
}

// TestACardThatDies: an Xid ends the attempt on the card, not for its user's
// fault, and nobody else's.
func TestACardThatDies(t *testing.T) {
	w := newWard(t, agent.HealthConfig{Quiet: 20 * time.Millisecond})
	w.on(1, 0)
	w.on(2, 1)
	w.reported(1, running)
	w.reported(2, running)
	w.xid(1, 79, 0)
	r := w.reported(1, lost)
	if want := "GPU " + sim.UUID("n1", 0) + ": Xid 79: the GPU fell off the bus; it ended by signal 15"; r.Reason != "GPUFault" || r.Detail != want {
		t.Errorf("reported %s: %s, want %s", r.Reason, r.Detail, want)
	}
	w.card(0, gone)
	w.stop()
	w.begin()
	if why := w.card(0, gone); why != "Xid 79: the GPU fell off the bus" {
		t.Errorf("after a restart of the agent: %s", why)
	}
	w.leader.Resume(&nodev1.GPUResume{Uuid: sim.UUID("n1", 0), Index: 9, At: timestamppb.Now()})
	w.card(0, sound)
	w.on(3, 0)
	w.reported(3, running)
	if r := w.leader.Last(id(2)); r.State != running {
		t.Errorf("the other card's job: %v", r)
	}
}

// TestWhoIsToBlame: after a fault that drains, who fails fails for it; who ends
// well ended well. A program's own fault is told.
func TestWhoIsToBlame(t *testing.T) {
	for _, tc := range []struct {
		name          string
		xid, code     int
		state         nodev1.AttemptState
		reason, words string
		card          nodev1.GPUState
	}{
		{"drains, fails", 94, 1, lost, "GPUFault", "Xid 94: contained ECC error; it ended with exit code 1", failing},
		{"drains, ends well", 94, 0, completed, "", "", failing},
		{"a program's, fails", 13, 1, failed, "NonZeroExitCode", "exit code 1; its GPU reported Xid 13: graphics engine exception, mostly a fault of the program", sound},
		{"a program's, ends well", 43, 0, completed, "", "", sound},
		{"not in the table, fails", 777, 2, lost, "GPUFault", "Xid 777: not in the table of known Xids; it ended with exit code 2", failing},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWard(t, agent.HealthConfig{})
			w.on(1, 0)
			w.on(2, 1)
			w.reported(1, running)
			w.reported(2, running)
			w.xid(1, tc.xid, 0)
			w.read(2)
			w.rt.Exit(id(1), tc.code, true)
			r := w.reported(1, tc.state)
			if r.Reason != tc.reason || !strings.HasSuffix(r.Detail, tc.words) || r.Exit.GetCode() != int32(tc.code) {
				t.Errorf("reported %s: %s", r.Reason, r.Detail)
			}
			w.card(0, tc.card)
			w.rt.Exit(id(2), 1, true)
			if r := w.reported(2, failed); r.Detail != "exit code 1" {
				t.Errorf("the other card's job: %v", r)
			}
		})
	}
}

// TestTheDriverMaySpeakLast: who failed is told to be completing until the driver
// has had its time, and is known for what it was once the driver says it.
func TestTheDriverMaySpeakLast(t *testing.T) {
	w := newWard(t, agent.HealthConfig{Blame: 2 * time.Minute})
	w.on(1, 0)
	w.reported(1, running)
	var booted unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &booted); err != nil {
		t.Fatal(err)
	}
	w.rt.Exit(id(1), 1, true)
	w.reported(1, completing)
	w.xid(1, 13, 0) // a program's own fault explains nothing yet
	w.read(2)
	if r := w.leader.Last(id(1)); r.State != completing {
		t.Fatalf("before the driver spoke of the card: %v", r)
	}
	w.xidOf(time.Duration(booted.Nano()), 3, 94, 0)
	if r := w.reported(1, lost); r.Reason != "GPUFault" || !strings.Contains(r.Detail, "Xid 94") {
		t.Errorf("reported %v", r)
	}
}

// TestDriversWord: an event of the driver counts as a line of the kernel does.
func TestDriversWord(t *testing.T) {
	w := newWard(t, agent.HealthConfig{})
	w.on(1, 1)
	w.reported(1, running)
	w.cards.events <- gpu.Event{At: time.Now(), UUID: sim.UUID("n1", 1), Kind: gpu.EventLost}
	if r := w.reported(1, lost); r.Reason != "GPUFault" || !strings.Contains(r.Detail, "the driver lost the GPU") {
		t.Errorf("reported %v", r)
	}
	w.card(1, gone)
}

// TestCheck: the site's check keeps attempts from a card that fails it, before
// they begin, and from the next one after they end; a card that passes again
// opens.
func TestCheck(t *testing.T) {
	dir := t.TempDir()
	script := filepath.Join(dir, "check")
	text := `#!/bin/sh
echo "$BERTH_CHECK $BERTH_GPU $BERTH_ATTEMPT" >> ` + dir + `/log
[ -e ` + dir + `/hang ] && sleep 60
if [ -e ` + dir + `/bad ]; then echo "row 7 is bad"; exit 3; fi
`
	if err := os.WriteFile(script, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	touch := func(name string) {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w := newWard(t, agent.HealthConfig{Check: []string{script}, CheckTime: time.Minute, Recheck: 20 * time.Millisecond})
	w.on(1, 0)
	w.reported(1, running)
	touch("bad")
	w.rt.Exit(id(1), 0, true)
	w.reported(1, completed)
	if why := w.card(0, kept); !strings.Contains(why, "the check failed (exit status 3): row 7 is bad") {
		t.Errorf("after the attempt: %s", why)
	}
	if err := os.Remove(filepath.Join(dir, "bad")); err != nil {
		t.Fatal(err)
	}
	w.card(0, sound)
	log, err := os.ReadFile(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"before " + sim.UUID("n1", 0) + " j1-a1\n", "after " + sim.UUID("n1", 0) + " j1-a1\n", "again " + sim.UUID("n1", 0) + " \n"} {
		if !strings.Contains(string(log), line) {
			t.Errorf("the check was not run as %q:\n%s", line, log)
		}
	}
	touch("bad")
	w.on(2, 1)
	if r := w.reported(2, lost); r.Reason != "GPUCheckFailed" || r.Started != nil || !strings.Contains(r.Detail, "row 7 is bad") {
		t.Errorf("before an attempt: %v", r)
	}
	w.card(1, kept)
}

// TestCheckThatHangs: it is given up after its time, with all it started.
func TestCheckThatHangs(t *testing.T) {
	w := newWard(t, agent.HealthConfig{Check: []string{"/bin/sh", "-c", "sleep 600 & sleep 600"}, CheckTime: 100 * time.Millisecond, Recheck: time.Hour})
	w.on(1, 0)
	if r := w.reported(1, lost); !strings.Contains(r.Detail, "the check did not end within 100ms") {
		t.Errorf("reported %v", r)
	}
	w.card(0, kept)
}
