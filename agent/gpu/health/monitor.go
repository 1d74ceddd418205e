package health

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/berth-scheduler/berth/agent/gpu"
	"github.com/berth-scheduler/berth/cluster/wait"
)

// Condition is a watcher's judgement of a GPU.
type Condition uint8

// The conditions of a GPU.
const (
	Sound Condition = iota
	Failing
	Lost
)

// Fault is a fault of a GPU.
type Fault struct {
	At   time.Time
	UUID string
	Xid  Xid // Code 0 for a fault without a number
	PID  int // of the process that the driver names, 0 if none
	// Lost says that the GPU is gone.
	Lost   bool
	Detail string // the driver's own words
}

// String describes the fault.
func (f Fault) String() string {
	if f.Xid.Code == 0 {
		return f.Xid.Text
	}
	return f.Xid.String()
}

// Config configures a Monitor; every field is required unless marked otherwise.
type Config struct {
	// BootID changes when the machine boots: faults from before the boot are void.
	BootID string
	// File stores what must outlive the agent; "" stores nothing.
	File string
	// Kmsg is the kernel log, /dev/kmsg; "" reads none. PCI is the directory of PCI devices,
	// /sys/bus/pci/devices; "" skips the check.
	Kmsg, PCI string
	Table     Table
	GPUs      gpu.Provider
	// Every is the interval between checks of the bus and of the GPUs' own counters; 0 means 30
	// s.
	Every time.Duration
	// OnFault is called with each fault of a GPU, once, whoever reports it.
	OnFault func(Fault)
	// SetCard is called with the condition of a GPU. Each watcher speaks for itself, and
	// revokes its judgement with Sound.
	SetCard func(uuid, who string, c Condition, why string)
	// SetProblem is called with what is wrong with the node as a whole, "" for nothing.
	SetProblem func(why string)
	Log        *slog.Logger
}

const (
	defaultEvery  = 30 * time.Second
	askDeadline   = 10 * time.Second
	sameFault     = 10 * time.Second // reports from two sources within this time are one fault
	logSameAgain  = time.Minute      // how often a recurring fault of a GPU is logged
	clockSlack    = 5 * time.Second  // between the leader's clock and this node's
	whoFault      = "fault"
	whoMemory     = "memory"
	sourceDriver  = "driver"
	sourceKernel  = "kernel log"
	sourceBus     = "PCI bus"
	reopenAttempt = 12 // retry at which a log that cannot be read is mentioned again
)

// Monitor watches the GPUs of a node. Its methods are safe for concurrent use.
type Monitor struct {
	cfg   Config
	log   *slog.Logger
	ready chan struct{} // closed when the kernel log was read up to the present
	once  sync.Once

	mu     sync.Mutex
	st     state
	cards  map[string]string // UUID by PCI key, of every GPU ever seen
	recent map[faultKey]*seen
	counts map[Action]uint64
	onBus  map[string]bool // PCI keys found by the last look
	// missing counts, by PCI key, the consecutive looks at which the driver lacked what the bus
	// has.
	missing map[string]int
	dirty   bool // st is newer than the file
}

type faultKey struct {
	uuid string
	xid  int
}

// seen is when a fault last occurred, from which source, and how often since it was logged.
type seen struct {
	at, logged time.Time
	source     string
	silent     int
}

// New returns a monitor that knows what the file contains. It reports the faults of this boot
// immediately, by SetCard.
func New(cfg Config) (*Monitor, error) {
	if cfg.BootID == "" || cfg.GPUs == nil || cfg.OnFault == nil || cfg.SetCard == nil || cfg.SetProblem == nil || cfg.Log == nil {
		return nil, errors.New("health: the configuration is not complete")
	}
	cfg.Every = cmp.Or(cfg.Every, defaultEvery)
	m := &Monitor{
		cfg: cfg, log: cfg.Log.With("component", "gpu-health"), ready: make(chan struct{}), cards: map[string]string{},
		recent: map[faultKey]*seen{}, counts: map[Action]uint64{}, onBus: map[string]bool{}, missing: map[string]int{},
	}
	st, err := loadState(cfg.File, cfg.BootID)
	if err != nil {
		// Its faults are found again, or an administrator drains the GPU.
		m.log.Error("cannot read what is known of GPUs that failed; it is forgotten", "err", err)
	}
	m.st = st
	for uuid := range m.st.Faults {
		m.tell(uuid)
	}
	return m, nil
}

// Ready returns a channel that is closed once the records that the kernel log held when Run
// began have been read.
func (m *Monitor) Ready() <-chan struct{} { return m.ready }

// Run watches until ctx ends.
func (m *Monitor) Run(ctx context.Context) error {
	m.learnCards(ctx)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return m.runKmsg(ctx) })
	g.Go(func() error { return m.runEvents(ctx) })
	g.Go(func() error { return m.runLooks(ctx) })
	err := g.Wait()
	m.flush()
	return err
}

// Counts returns the number of faults so far, by their action.
func (m *Monitor) Counts() map[Action]uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make(map[Action]uint64, len(m.counts))
	maps.Copy(out, m.counts)
	return out
}

// Held returns the faults held against GPUs.
func (m *Monitor) Held() []Fault {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []Fault
	for uuid, f := range m.st.Faults {
		x := Xid{Text: f.Why}
		if f.Xid != 0 {
			x = m.cfg.Table.Lookup(f.Xid)
		}
		x.Action, x.Known = f.Action, true
		out = append(out, Fault{At: f.At, UUID: uuid, Xid: x, Lost: f.Lost})
	}
	slices.SortFunc(out, func(a, b Fault) int { return strings.Compare(a.UUID, b.UUID) })
	return out
}

// Resume records that an administrator declared a GPU healthy at an instant: earlier faults are
// void.
func (m *Monitor) Resume(uuid string, at time.Time) {
	m.mu.Lock()
	f, ok := m.st.Faults[uuid]
	if !ok || f.At.After(at.Add(clockSlack)) {
		m.mu.Unlock()
		return
	}
	delete(m.st.Faults, uuid)
	m.save()
	m.mu.Unlock()
	m.log.Info("GPU was resumed; what was held against it is void", "gpu", uuid, "fault", f.Why)
	m.tell(uuid)
}

// tell passes on what is held against a GPU.
func (m *Monitor) tell(uuid string) {
	m.mu.Lock()
	f, ok := m.st.Faults[uuid]
	m.mu.Unlock()
	switch {
	case !ok:
		m.cfg.SetCard(uuid, whoFault, Sound, "")
	case f.Lost:
		m.cfg.SetCard(uuid, whoFault, Lost, f.Why)
	default:
		m.cfg.SetCard(uuid, whoFault, Failing, f.Why)
	}
}

// flush writes the file if there is anything new.
func (m *Monitor) flush() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.dirty {
		m.save()
	}
}

// save writes the file. The caller holds mu.
func (m *Monitor) save() {
	m.dirty = false
	if err := m.st.save(m.cfg.File); err != nil {
		m.log.Error("cannot keep what is known of GPUs that failed", "err", err)
	}
}

// learnCards records the bus locations of GPUs, and returns the GPUs that the driver has now;
// complete reports whether it could read all.
func (m *Monitor) learnCards(ctx context.Context) (now map[string]string, complete bool) {
	ctx, cancel := context.WithTimeout(ctx, askDeadline)
	defer cancel()
	cards, err := m.cfg.GPUs.Inventory(ctx)
	if err != nil {
		m.log.Debug("cannot read every GPU", "err", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now = map[string]string{}
	for _, c := range cards {
		if key, ok := PCIKey(c.PCI); ok {
			m.cards[key], now[key] = c.UUID, c.UUID
		}
	}
	return now, err == nil
}

func (m *Monitor) runKmsg(ctx context.Context) error {
	caughtUp := func() { m.once.Do(func() { close(m.ready) }) }
	if m.cfg.Kmsg == "" {
		caughtUp()
		<-ctx.Done()
		return ctx.Err()
	}
	for i := 0; ctx.Err() == nil; i++ {
		err := follow(ctx, m.cfg.Kmsg, m.kernelSaid, caughtUp)
		if ctx.Err() != nil {
			break
		}
		if i%reopenAttempt == 0 {
			m.log.Warn("cannot read the kernel's log: faults of GPUs that only it tells of go unseen", "path", m.cfg.Kmsg, "err", err)
		}
		wait.Sleep(ctx, kmsgReopen)
	}
	return ctx.Err()
}

// kernelSaid handles one record. It skips records that an agent of the same boot has already
// counted.
func (m *Monitor) kernelSaid(l Line) {
	r, ok := ParseReport(l.Text)
	if !ok {
		return
	}
	m.mu.Lock()
	known := l.Seq <= m.st.Seq && m.st.Seen
	if !known {
		m.st.Seq, m.st.Seen, m.dirty = l.Seq, true, true
	}
	uuid := m.cards[r.PCI]
	m.mu.Unlock()
	if known {
		return
	}
	f := Fault{At: when(l.Since), UUID: uuid, PID: r.PID, Detail: r.Detail}
	if r.Xid == 0 {
		f.Xid, f.Lost = Xid{Action: End, Text: "the GPU fell off the bus", Known: true}, true
	} else {
		f.Xid = m.cfg.Table.Lookup(r.Xid)
		f.Lost = r.Xid == xidOffTheBus
	}
	if uuid == "" {
		m.log.Error("the kernel tells of a fault of a GPU that this node does not know", "pci", r.PCI, "fault", f.String(), "detail", r.Detail)
		m.flush()
		return
	}
	m.fault(f, sourceKernel)
}

const xidOffTheBus = 79

func (m *Monitor) runEvents(ctx context.Context) error {
	src, ok := m.cfg.GPUs.(gpu.EventSource)
	var events <-chan gpu.Event
	if ok {
		events = src.Events()
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case e, open := <-events:
			if !open {
				events = nil
				continue
			}
			m.driverSaid(ctx, e)
		}
	}
}

// driverSaid handles an event of the driver.
func (m *Monitor) driverSaid(ctx context.Context, e gpu.Event) {
	f := Fault{At: e.At, UUID: e.UUID, Detail: clip(e.Detail)}
	switch e.Kind {
	case gpu.EventXid:
		f.Xid, f.Lost = m.cfg.Table.Lookup(e.Xid), e.Xid == xidOffTheBus
	case gpu.EventLost:
		f.Xid, f.Lost = Xid{Action: End, Text: "the driver lost the GPU", Known: true}, true
	case gpu.EventECC:
		f.Xid = Xid{Action: Drain, Text: "a memory error that could not be corrected", Known: true}
	default: // the next look handles a remap; it does not concern running jobs
		m.lookAtMemory(ctx)
		return
	}
	m.fault(f, sourceDriver)
}

// fault handles a fault, unless another source has just reported the same.
func (m *Monitor) fault(f Fault, source string) {
	now := time.Now()
	if f.At.IsZero() || f.At.After(now) {
		f.At = now
	}
	key := faultKey{f.UUID, f.Xid.Code}
	m.mu.Lock()
	s := m.recent[key]
	if s == nil {
		s = &seen{}
		m.recent[key] = s
	}
	if s.source != "" && s.source != source && now.Sub(s.at) < sameFault {
		s.at, m.dirty = now, true
		m.mu.Unlock()
		return
	}
	s.at, s.source = now, source
	silent, quiet := s.silent, now.Sub(s.logged) < logSameAgain
	if quiet {
		s.silent++
	} else {
		s.logged, s.silent = now, 0
	}
	m.counts[f.Xid.Action]++
	news := false
	if _, had := m.st.Faults[f.UUID]; f.Xid.Action != Record && (!had || f.Lost && !m.st.Faults[f.UUID].Lost) {
		m.st.Faults[f.UUID] = heldFault{Why: f.String(), At: f.At, Xid: f.Xid.Code, Action: f.Xid.Action, Lost: f.Lost}
		news = true
	}
	// Programs cause faults by the thousand: those are not worth a write each.
	if m.dirty = true; f.Xid.Action != Record {
		m.save()
	}
	m.mu.Unlock()
	if !quiet {
		m.logFault(f, source, silent)
	}
	if news {
		m.tell(f.UUID)
	}
	m.cfg.OnFault(f)
}

func (m *Monitor) logFault(f Fault, source string, silent int) {
	attrs := []any{"gpu", f.UUID, "xid", f.Xid.Code, "fault", f.String(), "action", f.Xid.Action.String(), "source", source, "detail", f.Detail}
	if f.PID > 0 {
		attrs = append(attrs, "pid", f.PID)
	}
	if silent > 0 {
		attrs = append(attrs, "not_logged", silent)
	}
	switch {
	case f.Xid.Action == Record:
		m.log.Info("GPU reports a fault of a program", attrs...)
	case !f.Xid.Known:
		m.log.Error("GPU reports a fault that is not in the table: it takes no new jobs; look at it, and say in gpus.xids what it means", attrs...)
	default:
		m.log.Error("GPU reports a fault: it takes no new jobs", attrs...)
	}
}
