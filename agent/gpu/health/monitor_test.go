package health

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/agent/gpu"
)

// driver is a provider whose cards come and go as a test says.
type driver struct {
	gpu.Provider
	events chan gpu.Event

	mu     sync.Mutex
	cards  []gpu.Card
	health []gpu.Health
	err    error
}

func newDriver(n int) *driver {
	d := &driver{events: make(chan gpu.Event, 10)}
	for i := range n {
		d.cards = append(d.cards, gpu.Card{UUID: fmt.Sprintf("GPU-%d", i), Index: i, PCI: fmt.Sprintf("00000000:%02X:00.0", i+0x3a)})
	}
	return d
}

func (d *driver) Inventory(context.Context) ([]gpu.Card, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.cards), d.err
}

func (d *driver) Events() <-chan gpu.Event { return d.events }

func (d *driver) Health(context.Context) ([]gpu.Health, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.health), nil
}

func (d *driver) lose(uuid string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cards = slices.DeleteFunc(d.cards, func(c gpu.Card) bool { return c.UUID == uuid })
}

func (d *driver) say(h ...gpu.Health) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.health = h
}

// ward is a monitor of a driver with two cards, and what it says.
type ward struct {
	t      *testing.T
	dir    string
	driver *driver
	kmsg   string
	pci    string
	boot   string
	stop   func()
	m      *Monitor

	mu      sync.Mutex
	cards   map[string]string // card and who -> condition and why
	faults  []Fault
	problem string
}

func newWard(t *testing.T) *ward {
	t.Parallel()
	w := &ward{t: t, dir: t.TempDir(), driver: newDriver(2), boot: "boot1", cards: map[string]string{}}
	w.kmsg = filepath.Join(w.dir, "kmsg")
	w.pci = bus(t, map[string][2]string{"0000:3a:00.0": {"0x10de", "0x030200"}, "0000:3b:00.0": {"0x10de", "0x030200"}})
	w.write()
	w.start()
	t.Cleanup(func() { w.stop() })
	return w
}

// start runs a monitor on the ward's files, as after a restart of the agent.
func (w *ward) start() {
	w.t.Helper()
	w.mu.Lock()
	w.cards, w.faults = map[string]string{}, nil
	w.mu.Unlock()
	m, err := New(Config{
		BootID: w.boot, File: filepath.Join(w.dir, "state.json"), Kmsg: w.kmsg, PCI: w.pci, GPUs: w.driver, Every: 20 * time.Millisecond,
		OnFault: func(f Fault) { w.mu.Lock(); w.faults = append(w.faults, f); w.mu.Unlock() },
		SetCard: func(uuid, who string, c Condition, why string) {
			w.mu.Lock()
			defer w.mu.Unlock()
			if c == Sound {
				delete(w.cards, uuid+" "+who)
				return
			}
			w.cards[uuid+" "+who] = []string{"sound", "failing", "lost"}[c] + ": " + why
		},
		SetProblem: func(why string) { w.mu.Lock(); w.problem = why; w.mu.Unlock() },
		Log:        slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.m = m
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	<-m.Ready()
	w.stop = func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			w.t.Errorf("run: %v", err)
		}
		w.stop = func() {}
	}
}

// write adds records to the kernel's log.
func (w *ward) write(lines ...string) {
	w.t.Helper()
	f, err := os.OpenFile(w.kmsg, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		w.t.Fatal(err)
	}
	defer f.Close()
	for _, l := range lines {
		if _, err := f.WriteString(l + "\n"); err != nil {
			w.t.Fatal(err)
		}
	}
}

func xid(seq, code int) string {
	return fmt.Sprintf("4,%d,0,-;NVRM: Xid (PCI:0000:3b:00): %d, pid=42, name=train, words", seq, code) // 0: just now
}

func (w *ward) card(key string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.cards[key]
}

func (w *ward) seen() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []string
	for _, f := range w.faults {
		out = append(out, f.UUID+" "+f.String())
	}
	return out
}

func (w *ward) eventually(what string, ok func() bool) {
	w.t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.t.Fatalf("not within two minutes: %s; faults %q, cards %q, problem %q", what, w.seen(), w.cards, w.problem)
		}
	}
}

// TestOffTheBus: a card can go in four ways, and each is seen, of this card
// alone and once.
func TestOffTheBus(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, want string
		gone       func(w *ward)
	}{
		{"an Xid in the kernel's log", "GPU-1 Xid 79: the GPU fell off the bus", func(w *ward) { w.write(xid(1, 79)) }},
		{"words in the kernel's log and no Xid", "GPU-1 the GPU fell off the bus", func(w *ward) {
			w.write("6,7,100,-;NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.")
		}},
		{"gone from the PCI bus", "GPU-1 the GPU is gone from the PCI bus", func(w *ward) {
			w.eventually("seen on the bus", func() bool { w.m.mu.Lock(); defer w.m.mu.Unlock(); return len(w.m.onBus) == 2 })
			if err := os.RemoveAll(filepath.Join(w.pci, "0000:3b:00.0")); err != nil {
				w.t.Fatal(err)
			}
		}},
		{"the driver lost it and nobody says a word", "GPU-1 the driver lost the GPU", func(w *ward) { w.driver.lose("GPU-1") }},
		{"the driver says that it lost it", "GPU-1 the driver lost the GPU", func(w *ward) {
			w.driver.events <- gpu.Event{At: time.Now(), UUID: "GPU-1", Kind: gpu.EventLost}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWard(t)
			tc.gone(w)
			w.eventually("lost", func() bool { return w.card("GPU-1 fault") != "" && len(w.seen()) > 0 })
			if got := w.seen(); !slices.Equal(got, []string{tc.want}) || w.card("GPU-0 fault") != "" {
				t.Errorf("faults %q, want %q; the other card: %q", got, tc.want, w.card("GPU-0 fault"))
			}
			if c := w.card("GPU-1 fault"); c[:5] != "lost:" {
				t.Errorf("card is %q", c)
			}
			w.mu.Lock()
			f := w.faults[0]
			w.mu.Unlock()
			if f.Xid.Action != End || !f.Lost {
				t.Errorf("fault %+v", f)
			}
		})
	}
}

func TestProblemOfTheNode(t *testing.T) {
	w := newWard(t)
	plug(t, w.pci, "0000:d8:00.0", "0x10de", "0x030200")
	problem := func() string { w.mu.Lock(); defer w.mu.Unlock(); return w.problem }
	w.eventually("told", func() bool { return problem() != "" })
	if got, want := problem(), "the PCI bus has 3 GPUs and the driver 2: it does not have 0000:d8:00"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if err := os.RemoveAll(filepath.Join(w.pci, "0000:d8:00.0")); err != nil {
		t.Fatal(err)
	}
	w.eventually("solved", func() bool { return problem() == "" })
	if got := w.seen(); len(got) != 0 {
		t.Errorf("faults of nobody's card: %q", got)
	}
}

// TestRestart: a fault is counted once, by whichever agent of the boot; what is
// held against a card outlives the agent, and neither a boot nor an
// administrator's word.
func TestRestart(t *testing.T) {
	w := newWard(t)
	w.write(xid(1, 13), xid(2, 48))
	w.eventually("both seen", func() bool { return len(w.seen()) == 2 })
	w.stop()
	w.write(xid(3, 31)) // nobody listens
	w.start()
	w.eventually("what came meanwhile is seen", func() bool { return len(w.seen()) == 1 })
	if got := w.seen(); got[0] != "GPU-1 Xid 31: memory page fault, mostly a fault of the program" {
		t.Errorf("seen %q", got)
	}
	if c := w.card("GPU-1 fault"); c != "failing: Xid 48: double bit ECC error" {
		t.Errorf("after a restart it is %q", c)
	}
	if h := w.m.Held(); len(h) != 1 || h[0].UUID != "GPU-1" || h[0].Xid.Code != 48 {
		t.Errorf("held: %+v", h)
	}
	// An administrator's word of before the fault says nothing of it.
	w.m.Resume("GPU-1", time.Now().Add(-time.Hour))
	if w.card("GPU-1 fault") == "" {
		t.Error("resumed by a word of an hour ago")
	}
	w.m.Resume("GPU-1", time.Now())
	if c := w.card("GPU-1 fault"); c != "" {
		t.Errorf("after being resumed it is %q", c)
	}
	w.stop()
	w.start()
	if c := w.card("GPU-1 fault"); c != "" {
		t.Errorf("resumed, and after a restart %q", c)
	}
	w.write(xid(4, 95))
	w.eventually("a new fault counts", func() bool { return w.card("GPU-1 fault") != "" })
	w.stop()
	// The next boot: the log begins anew.
	w.boot = "boot2"
	if err := os.Remove(w.kmsg); err != nil {
		t.Fatal(err)
	}
	w.write(xid(1, 43))
	w.start()
	w.eventually("its first records count", func() bool { return len(w.seen()) == 1 })
	if c := w.card("GPU-1 fault"); c != "" {
		t.Errorf("after a boot it is %q", c)
	}
}

func TestTwoSourcesOneFault(t *testing.T) {
	w := newWard(t)
	w.write(xid(1, 94))
	w.eventually("seen", func() bool { return len(w.seen()) == 1 })
	w.driver.events <- gpu.Event{At: time.Now(), UUID: "GPU-1", Kind: gpu.EventXid, Xid: 94}
	w.driver.events <- gpu.Event{At: time.Now(), UUID: "GPU-0", Kind: gpu.EventXid, Xid: 94}
	w.eventually("the other card's", func() bool { return len(w.seen()) == 2 })
	if n := w.m.Counts()[Drain]; n != 2 {
		t.Errorf("%d faults counted, want 2: %q", n, w.seen())
	}
}

// TestNoise: a program may make the same fault by the thousand; each is counted
// and told, and few are logged or written.
func TestNoise(t *testing.T) {
	w := newWard(t)
	const n = 3000
	for i := range n {
		w.write(xid(i+1, 45))
	}
	w.eventually("all counted", func() bool { return w.m.Counts()[Record] == n })
	if c := w.card("GPU-1 fault"); c != "" {
		t.Errorf("noise drained the card: %q", c)
	}
	w.m.mu.Lock()
	s := *w.m.recent[faultKey{"GPU-1", 45}]
	w.m.mu.Unlock()
	if s.silent < n-5 {
		t.Errorf("%d of %d were not logged", s.silent, n)
	}
}

func TestBadMemory(t *testing.T) {
	w := newWard(t)
	for _, tc := range []struct {
		h    gpu.Health
		want string
	}{
		{gpu.Health{UUID: "GPU-0", RemapPending: true}, "failing: bad rows of its memory are to be replaced: reset it"},
		{gpu.Health{UUID: "GPU-0", RemapPending: true, RemapFailed: true}, "failing: a bad row of its memory cannot be replaced: replace the card"},
		{gpu.Health{UUID: "GPU-0", RetirePending: true}, "failing: bad pages of its memory are to be given up: reset it"},
		{gpu.Health{UUID: "GPU-0"}, ""}, // it was reset
	} {
		w.driver.say(tc.h)
		w.eventually(tc.want, func() bool { return w.card("GPU-0 memory") == tc.want })
	}
	if got := w.seen(); len(got) != 0 {
		t.Errorf("those who run are told of %q", got)
	}
}

func TestUnknownXidDrains(t *testing.T) {
	w := newWard(t)
	w.write(xid(1, 150))
	w.eventually("drained", func() bool { return w.card("GPU-1 fault") == "failing: Xid 150: not in the table of known Xids" })
}

// TestNoKernelLog: a log that cannot be read holds up nothing.
func TestNoKernelLog(t *testing.T) {
	t.Parallel()
	d := newDriver(1)
	var mu sync.Mutex
	var got []Fault
	m, err := New(Config{
		BootID: "b", Kmsg: filepath.Join(t.TempDir(), "none"), GPUs: d, Log: slog.New(slog.DiscardHandler),
		OnFault: func(f Fault) { mu.Lock(); got = append(got, f); mu.Unlock() }, SetCard: func(string, string, Condition, string) {}, SetProblem: func(string) {},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	<-m.Ready()
	d.events <- gpu.Event{UUID: "GPU-0", Kind: gpu.EventECC}
	for n := 0; n == 0; time.Sleep(time.Millisecond) {
		mu.Lock()
		n = len(got)
		mu.Unlock()
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if got[0].Xid.Action != Drain || got[0].At.IsZero() {
		t.Errorf("%+v", got[0])
	}
}

// TestADamagedStateIsForgotten: the agent starts, and finds anew what is so.
func TestADamagedStateIsForgotten(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "state.json")
	for _, text := range []string{"", "{", `{"boot":"b","faults":{"GPU-0":`, `[]`} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		st, err := loadState(path, "b")
		if err == nil || st.Boot != "b" || st.Faults == nil {
			t.Errorf("%q: %+v, %v", text, st, err)
		}
	}
}

// TestARestartChangesNoAction: a fault that let those who run go on does so
// after a restart, too.
func TestARestartChangesNoAction(t *testing.T) {
	w := newWard(t)
	w.driver.events <- gpu.Event{At: time.Now(), UUID: "GPU-0", Kind: gpu.EventECC}
	w.driver.events <- gpu.Event{At: time.Now(), UUID: "GPU-1", Kind: gpu.EventLost}
	w.eventually("both seen", func() bool { return len(w.seen()) == 2 })
	w.stop()
	w.start()
	h := w.m.Held()
	if len(h) != 2 || h[0].Xid.Action != Drain || h[0].Lost || h[1].Xid.Action != End || !h[1].Lost {
		t.Errorf("held: %+v", h)
	}
}
