// Package agent is Berth's part on a node: it takes assignments from the
// leader, runs them through a Runtime, and reports what became of them. What
// it decides, it decides from what the runtime observes; what it must not
// forget, it journals before it acts. Jobs outlive it.
package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"github.com/berth-scheduler/berth/agent/gpu"
	"github.com/berth-scheduler/berth/agent/gpu/caps"
	"github.com/berth-scheduler/berth/agent/gpu/health"
	"github.com/berth-scheduler/berth/agent/journal"
	"github.com/berth-scheduler/berth/agent/outbox"
	"github.com/berth-scheduler/berth/agent/profile"
	"github.com/berth-scheduler/berth/cluster"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

// Protocol is the version of the node link that this agent speaks.
const Protocol = 1

// Config is what an agent needs; every field but those marked is required.
type Config struct {
	Node    cluster.NodeID
	Address string
	Version string
	// Features are what the site says that the node has.
	Features []string
	// BootID changes when the machine boots.
	BootID string
	// Dir holds the journal.
	Dir string
	// Scripts is a directory for the batch scripts of attempts, which every
	// user whose jobs run here must be able to reach; "" refuses such jobs.
	Scripts string
	// Tools are commands for jobs that are made for Slurm; optional.
	Tools Tools
	// Coordinators are addresses to find the leader at; Dial connects to one
	// of them, or to the leader that it names, with the agent's certificate.
	Coordinators []string
	Dial         func(addr string) (*grpc.ClientConn, error)
	// Host runs jobs on the node's own file system, Images those that name an
	// image; Images may be nil.
	Host, Images Runtime
	// GPUs is nil on a node without any. CapMode says how it enforces shares.
	GPUs    gpu.Provider
	CapMode string
	// Only names the cards that are Berth's; empty is all.
	Only gpu.Offer
	// MemCaps says how shares of GPU memory are watched.
	MemCaps MemCaps
	// Tail reads the end of a file with the rights of a job's user, for the
	// verdict of a job that failed; nil reads nothing.
	Tail func(ctx context.Context, l *Launch, path string, bytes int64) ([]byte, error)
	// Health says how the cards are looked after.
	Health HealthConfig
	// Devices gives jobs their cards; nil where cards have no device nodes.
	Devices Devices
	// CPUMilli and MemMiB are what jobs may use in all.
	CPUMilli, MemMiB int64
	// Users resolves who jobs run as.
	Users Users
	// Networks says what jobs see of the node's network.
	Networks Networks
	// Hooks run before and after each attempt; nil for none.
	Hooks Hooks
	// Env is added to every job's environment; the job's own wins. Grace is
	// the time between SIGTERM and SIGKILL, 0 means 30 s.
	Env   []string
	Grace time.Duration
	// Heartbeat is the interval between signs of life; 0 means 2 s.
	Heartbeat time.Duration
	// Observe hands over what the cards show at each heartbeat, for gossip;
	// optional.
	Observe func([]*nodev1.GPUUsage)
	// UsageObservers are told what the cards show, several times a second while
	// attempts with GPUs run, as Sampler.Observe says; optional.
	UsageObservers []func(now time.Time, usage []gpu.Usage)
	// IdleLimit ends sessions that stand idle for so long, 0 never does.
	IdleLimit time.Duration
	// Visitors lets users look into their jobs; without it none may.
	Visitors Visitors
	// Failpoint is called at each step of the journal, such as "before journal
	// I"; tests end the process there. nil does nothing.
	Failpoint func(step string)
	Log       *slog.Logger
}

// Users resolves numeric ids through the node's name service.
type Users interface {
	// Resolve returns the groups, home and shell of uid. name is what the
	// submitting host called it; a different name here is an error.
	Resolve(uid, gid uint32, name string) (User, error)
}

// User is an account of this node.
type User struct {
	Name, Home, Shell string
	Groups            []uint32
}

// Validate reports every missing field at once.
func (c *Config) Validate() error {
	var errs []error
	need := func(ok bool, field string) {
		if !ok {
			errs = append(errs, fmt.Errorf("agent config: %s is missing", field))
		}
	}
	need(c.Node != "", "Node")
	need(c.BootID != "", "BootID")
	need(c.Dir != "", "Dir")
	need(len(c.Coordinators) > 0, "Coordinators")
	need(c.Dial != nil, "Dial")
	need(c.Host != nil, "Host")
	need(c.Users != nil, "Users")
	need(c.Log != nil, "Log")
	need(c.CPUMilli > 0 && c.MemMiB > 0, "CPUMilli and MemMiB")
	return errors.Join(errs...)
}

// Agent runs the attempts of one node. Make it with New, and call Run once.
type Agent struct {
	cfg      Config
	log      *slog.Logger
	journal  *journal.Journal
	out      *outbox.Outbox
	sampler  *Sampler
	recorder *profile.Recorder
	power    *powerMeter
	mem      *memWatch
	oomLog   *caps.OOMLog
	cards    *cardStates
	health   *health.Monitor // nil without GPUs
	strays   *strayWatch
	gpuBusy  *gpuBusy

	mu    sync.Mutex
	tasks map[cluster.AttemptID]*task
	// term and revision are of the newest desired set seen; synced closes
	// when the first full one has come.
	term, revision uint64
	synced         chan struct{}
	isSynced       bool
	// usable is the memory of each card less the driver's reserve, by UUID, as
	// the last hello had it; replaced, never changed.
	usable map[string]int64
	// modes are how the shares of each card are enforced, likewise.
	modes map[string]caps.Mode

	// foreign are the cards that are not Berth's, likewise; nil before the first
	// hello.
	foreign map[string]struct{}

	recheck chan struct{}     // see watchDevices
	kept    map[string]string // why a card is kept from the offer, by UUID

	workers sync.WaitGroup
	ctx     context.Context // of the workers; set by Run
}

// New opens the journal and adopts what runs. It starts nothing.
func New(ctx context.Context, cfg Config) (*Agent, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Grace == 0 {
		cfg.Grace = defaultGrace
	}
	if cfg.Heartbeat == 0 {
		cfg.Heartbeat = 2 * time.Second
	}
	cfg.MemCaps = cfg.MemCaps.orDefaults()
	cfg.Health.complete(cfg.GPUs)
	if err := cfg.placeTools(); err != nil {
		return nil, err
	}
	j, err := journal.Open(cfg.Dir)
	if err != nil {
		return nil, err
	}
	if cfg.Failpoint != nil {
		j.Failpoint(cfg.Failpoint)
	}
	a := &Agent{
		cfg: cfg, log: cfg.Log.With("component", "agent", "node", string(cfg.Node)),
		journal: j, out: outbox.New(), power: newPowerMeter(), mem: newMemWatch(cfg.MemCaps.Watch), oomLog: caps.NewOOMLog(),
		cards: newCardStates(), tasks: map[cluster.AttemptID]*task{}, synced: make(chan struct{}), recheck: make(chan struct{}, 1),
	}
	a.sampler, a.recorder = NewSampler(cfg.GPUs, cfg.Log), profile.New(filepath.Join(cfg.Dir, profilesFile), a.log)
	a.sampler.Observe(a.observeMemory)
	a.strays = newStrayWatch(a.log, a.cards.again)
	a.sampler.Observe(func(now time.Time, usage []gpu.Usage) { a.strays.observe(now, a.oursUsed(usage)) })
	a.gpuBusy = &gpuBusy{last: map[string]time.Time{}}
	a.sampler.Observe(a.gpuBusy.observe)
	for _, f := range append([]func(time.Time, []gpu.Usage){a.power.observe, a.recorder.Observe}, cfg.UsageObservers...) {
		a.sampler.Observe(f)
	}
	if err := errors.Join(a.openHealth(), a.adopt(ctx)); err != nil {
		return nil, errors.Join(err, j.Close())
	}
	a.adoptHealth()
	return a, nil
}

// adopt takes over what the journal and the runtimes know. An attempt that a
// runtime has and the journal has not is kept as it is until the leader says
// whether it is wanted.
func (a *Agent) adopt(ctx context.Context) error {
	for id, rec := range a.journal.Records() {
		t := newTask(a, id, rec.Assignment)
		if rec.End != nil {
			t.end, t.phase = rec.End, phaseEnded
			t.remember(rec.Assignment)
			t.points.ended()
		} else {
			t.adopted = true
			t.remember(rec.Assignment)
		}
		a.tasks[id] = t
	}
	for _, rt := range a.runtimes() {
		seen, err := rt.List(ctx)
		if err != nil {
			return fmt.Errorf("list what runs under %s: %w", rt.Name(), err)
		}
		for _, s := range seen {
			if a.tasks[s.ID] != nil {
				continue
			}
			t := newTask(a, s.ID, nil)
			t.rt, t.adopted, t.token = rt, true, s.Token
			a.tasks[s.ID] = t
		}
		if len(seen) > 0 {
			a.log.InfoContext(ctx, "adopted attempts", "runtime", rt.Name(), "count", len(seen))
		}
	}
	return nil
}

func (a *Agent) runtimes() []Runtime {
	if a.cfg.Images == nil || a.cfg.Images == a.cfg.Host {
		return []Runtime{a.cfg.Host}
	}
	return []Runtime{a.cfg.Host, a.cfg.Images}
}

// Run serves until ctx ends. Jobs go on; nothing is stopped on the way out.
func (a *Agent) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	a.mu.Lock()
	a.ctx = ctx
	for _, t := range a.tasks {
		a.spawn(t)
	}
	a.mu.Unlock()
	for _, rt := range a.runtimes() {
		g.Go(func() error { return a.watchExits(ctx, rt) })
	}
	g.Go(func() error { return a.sampler.Run(ctx) })
	g.Go(func() error { return a.recorder.Run(ctx) })
	g.Go(func() error { return a.watchProvider(ctx) })
	g.Go(func() error { return a.runHealth(ctx) })
	g.Go(func() error { return a.runChecks(ctx) })
	g.Go(func() error { return a.runSessions(ctx) })
	g.Go(func() error { return a.watchDaemons(ctx) })
	err := g.Wait()
	a.workers.Wait()
	if cerr := a.journal.Close(); err == nil || errors.Is(err, context.Canceled) {
		err = cerr
	}
	return err
}

// spawn starts the worker of t. The caller holds a.mu.
func (a *Agent) spawn(t *task) {
	a.workers.Go(func() { t.run(a.ctx) })
}

// watchExits wakes the worker of each attempt that the runtime says ended.
func (a *Agent) watchExits(ctx context.Context, rt Runtime) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case id := <-rt.Exits():
			a.mu.Lock()
			t := a.tasks[id]
			a.mu.Unlock()
			if t != nil {
				t.poke()
			}
		}
	}
}

// apply takes over a desired set. Older ones than the last are ignored.
func (a *Agent) apply(d *nodev1.Desired) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if d.Term < a.term || d.Term == a.term && d.Revision < a.revision {
		return
	}
	a.term, a.revision = d.Term, d.Revision
	wanted := make(map[cluster.AttemptID]struct{}, len(d.Assignments))
	for _, as := range d.Assignments {
		wanted[conv.AttemptOf(as)] = struct{}{}
		a.assign(as)
	}
	for _, ref := range d.Released {
		if t := a.tasks[cluster.AttemptID{Job: cluster.JobID(ref.Job), No: ref.Attempt}]; t != nil {
			t.release()
		}
	}
	a.resumed(d.Resumes)
	if d.Full {
		for id, t := range a.tasks {
			if _, ok := wanted[id]; !ok {
				t.release()
			}
		}
		if !a.isSynced {
			a.isSynced = true
			close(a.synced)
		}
	}
}

// assign starts or updates one attempt. The caller holds a.mu.
func (a *Agent) assign(as *nodev1.Assignment) {
	id := conv.AttemptOf(as)
	if t := a.tasks[id]; t != nil {
		t.update(as)
		return
	}
	if cluster.Token(as.Token) < a.journal.Token(id.Job) {
		a.log.Warn("refused an assignment with an old fencing token", "job", id.Job.String(), "attempt", id.No, "token", as.Token)
		return
	}
	t := newTask(a, id, as)
	a.tasks[id] = t
	a.spawn(t)
}

// forget drops a task whose end is committed and whose runtime is clean.
func (a *Agent) forget(t *task) {
	a.mu.Lock()
	delete(a.tasks, t.id)
	a.mu.Unlock()
	a.recorder.Forget(t.id)
	a.gpuBusy.drop(t.id.String())
	if err := a.journal.Forget(t.id); err != nil {
		a.log.Error("cannot write the journal", "err", err)
	}
}

// acked tells the worker that the leader has committed what it reported.
func (a *Agent) acked(acks []*nodev1.Ack) {
	for _, k := range acks {
		id := cluster.AttemptID{Job: cluster.JobID(k.Job), No: k.Attempt}
		a.out.Ack(id, k.State)
		if !terminal(k.State) {
			continue
		}
		a.mu.Lock()
		t := a.tasks[id]
		a.mu.Unlock()
		if t != nil {
			t.release()
		}
	}
}

func terminal(s nodev1.AttemptState) bool {
	return s >= nodev1.AttemptState_ATTEMPT_STATE_COMPLETED
}
