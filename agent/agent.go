// Package agent is Berth's part on a node: it takes assignments from the leader, runs them
// through a Runtime, and reports their outcome. It decides only from what the runtime
// observes, and journals what it must not forget before it acts. Jobs outlive it.
package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"github.com/berth-scheduler/berth/agent/attempt"
	"github.com/berth-scheduler/berth/agent/cards"
	"github.com/berth-scheduler/berth/agent/datasets"
	"github.com/berth-scheduler/berth/agent/gpu"
	"github.com/berth-scheduler/berth/agent/gpu/caps"
	"github.com/berth-scheduler/berth/agent/gpu/health"
	"github.com/berth-scheduler/berth/agent/journal"
	"github.com/berth-scheduler/berth/agent/launch"
	"github.com/berth-scheduler/berth/agent/launcher"
	"github.com/berth-scheduler/berth/agent/outbox"
	"github.com/berth-scheduler/berth/agent/pace"
	"github.com/berth-scheduler/berth/agent/power"
	"github.com/berth-scheduler/berth/agent/probe"
	"github.com/berth-scheduler/berth/agent/profile"
	"github.com/berth-scheduler/berth/agent/progress"
	"github.com/berth-scheduler/berth/agent/runtime"
	"github.com/berth-scheduler/berth/agent/series"
	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/wait"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
	"github.com/berth-scheduler/berth/proto/conv"
	"github.com/berth-scheduler/berth/proto/gossip"
)

// Protocol is the version of the node link that this agent speaks.
const Protocol = 1

// Config is what an agent needs; every field is required unless marked otherwise.
type Config struct {
	Node    cluster.NodeID
	Address string
	Version string
	// Features are the node's features as configured by the site.
	Features []string
	// Data are the data sets on its disks; nil has none.
	Data *datasets.Sets
	// BootID changes when the machine boots.
	BootID string
	// Dir holds the journal.
	Dir string
	// Scripts is the directory for the batch scripts of attempts. Every user whose jobs run
	// here must be able to reach it; "" refuses batch jobs.
	Scripts string
	// Rooms gives the files of each attempt in Scripts a file system of their own.
	Rooms bool
	// Tools are commands for jobs written for Slurm; optional.
	Tools launcher.Tools
	// Coordinators are addresses at which to look for the leader. Dial connects to one of
	// them, or to the leader that it names, with the agent's certificate.
	Coordinators []string
	Dial         func(addr string) (*grpc.ClientConn, error)
	// Host runs jobs on the node's own file system, Images runs those that name an image;
	// Images may be nil.
	Host, Images runtime.Runtime
	// GPUs is nil on a node without GPUs. CapMode says how it enforces shares.
	GPUs    gpu.Provider
	CapMode string
	// Only names the GPUs that Berth may use; empty means all.
	Only gpu.Offer
	// Recut lets the leader replace the instances of GPUs in MIG mode.
	Recut bool
	// MemCaps configures how shares of GPU memory are enforced.
	MemCaps MemCaps
	// Tail reads the end of a file with the rights of a job's user, for the verdict on a
	// failed job; nil reads nothing.
	Tail func(ctx context.Context, l *launch.Launch, path string, bytes int64) ([]byte, error)
	// Health configures GPU health monitoring.
	Health HealthConfig
	// Devices gives jobs access to their GPUs; nil where GPUs have no device nodes.
	Devices cards.Devices
	// CPUMilli and MemMiB are what all jobs together may use.
	CPUMilli, MemMiB int64
	// Users resolves the users that jobs run as.
	Users launcher.Users
	// Networks configures what jobs see of the node's network.
	Networks launcher.Networks
	// Hooks run before and after each attempt; nil for none.
	Hooks Hooks
	// Env is added to every job's environment; the job's own wins. Grace is
	// the time between SIGTERM and SIGKILL, 0 means 30 s.
	Env   []string
	Grace time.Duration
	// Heartbeat is the interval between heartbeats of a node at work; 0 means pace.Every.
	Heartbeat time.Duration
	// Gossip is nil on a node that does not gossip.
	Gossip Gossip
	// UsageObservers are given the usage of the GPUs several times a second while attempts
	// with GPUs run, as described at Sampler.Observe; optional.
	UsageObservers []func(now time.Time, usage []gpu.Usage)
	// IdleLimit is how long a session may be idle before it is ended; 0 means for ever.
	IdleLimit time.Duration
	// Visitors lets users look into their jobs; nil forbids it.
	Visitors Visitors
	// Failpoint is called at each step of the journal with a name such as "before journal
	// I", so that tests can end the process there; nil does nothing.
	Failpoint func(step string)
	Log       *slog.Logger
	// Underway is told while steps of an attempt fail or do not end; nil records nothing.
	Underway *wait.Underway
}

// Gossip is what the nodes of the cluster tell one another.
type Gossip interface {
	// Observe publishes the state of the node's GPUs.
	Observe([]gossip.GPU)
	// Key returns the key with which this node signs its gossip.
	Key() []byte
	// Coordinators returns the addresses of the coordinators that are up, and of those that
	// claim to lead; one that has gone may be listed for a moment.
	Coordinators() (all, leaders []string)
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
	launcher *launcher.Launcher
	journal  *journal.Journal
	out      *outbox.Outbox
	recorder *profile.Recorder
	series   *series.Book
	progress *progress.Feed
	prober   *probe.Prober
	power    *cards.PowerMeter
	tuned    *power.Keeper
	outputs  *outputs
	shares   *shares
	cards    *cards.Cards
	checks   *cards.Checks
	health   *health.Monitor // nil without GPUs

	mu    sync.Mutex
	tasks map[cluster.AttemptID]*task
	// term and revision identify the newest desired set seen; synced is closed when the
	// first full set has arrived.
	term, revision uint64
	synced         chan struct{}
	isSynced       bool

	workers sync.WaitGroup
	ctx     context.Context // of the workers; set by Run
}

// New opens the journal and adopts running attempts. It starts nothing.
func New(ctx context.Context, cfg Config) (*Agent, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg.Grace, cfg.Heartbeat = cmp.Or(cfg.Grace, 30*time.Second), cmp.Or(cfg.Heartbeat, pace.Every)
	cfg.MemCaps = cfg.MemCaps.orDefaults()
	cfg.Health.complete(cfg.GPUs)
	l, err := launcher.New(launcher.Config{
		Node: cfg.Node, Scripts: cfg.Scripts, Rooms: cfg.Rooms, Tools: cfg.Tools, Users: cfg.Users, Networks: cfg.Networks,
		Env: cfg.Env, Frameworks: cfg.MemCaps.Env, Grace: cfg.Grace, Data: cfg.Data.Path,
	})
	if err != nil {
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
		cfg: cfg, launcher: l, log: cfg.Log.With("component", "agent", "node", string(cfg.Node)),
		journal: j, out: outbox.New(), power: cards.NewPowerMeter(),
		tasks: map[cluster.AttemptID]*task{}, synced: make(chan struct{}),
	}
	a.cards = cards.New(cards.Config{
		GPUs: cfg.GPUs, Devices: cfg.Devices, Only: cfg.Only, Recut: cfg.Recut, Choose: cfg.MemCaps.Choose, CapMode: cfg.CapMode, Watch: cfg.MemCaps.Watch, Log: a.log,
	}, cards.NewSampler(cfg.GPUs, cfg.Log))
	a.checks = &cards.Checks{
		Command: cfg.Health.Check, Time: cfg.Health.CheckTime, Again: cfg.Health.Recheck, Node: string(cfg.Node), States: a.cards.States, Log: a.log,
	}
	a.outputs = &outputs{tail: cfg.Tail, launcher: l, oomLog: caps.NewOOMLog(), log: a.log}
	a.shares = &shares{daemons: cfg.MemCaps.Daemons, limiter: cfg.MemCaps.Limiter, cards: a.cards, log: a.log}
	a.observe()
	if err := errors.Join(a.openHealth(), a.openPower(), a.adopt(ctx)); err != nil {
		return nil, errors.Join(err, j.Close())
	}
	a.adoptHealth()
	a.tuned.Adopt(func(attempt string) bool { return a.named(attempt) != nil })
	return a, nil
}

// observe connects the sampler to everything that observes the GPUs.
func (a *Agent) observe() {
	a.progress, a.prober = progress.New(time.Now), probe.New(probe.At(a.cfg.Address))
	a.recorder = profile.New(filepath.Join(a.cfg.Dir, profilesFile), a.log)
	a.series = series.Open(filepath.Join(a.cfg.Dir, seriesDir), time.Now(), a.log)
	a.cards.Sampler.Observe(a.observeMemory)
	a.cards.FollowStrays()
	a.cards.Follow(a.series.Observe)
	if g := a.cfg.Gossip; g != nil {
		a.cards.Sampler.Observe(func(_ time.Time, usage []gpu.Usage) { g.Observe(a.cards.Gossip(usage)) })
	}
	for _, f := range append([]func(time.Time, []gpu.Usage){a.observeWork, a.power.Observe, a.recorder.Observe}, a.cfg.UsageObservers...) {
		a.cards.Sampler.Observe(f)
	}
}

// adopt takes over what the journal and the runtimes know. An attempt that a runtime has
// but the journal does not is kept until the leader says whether it is wanted.
func (a *Agent) adopt(ctx context.Context) error {
	for id, rec := range a.journal.Records() {
		t := newTask(a, id, rec.Assignment)
		t.life = attempt.Remember(rec.Assignment)
		if rec.End == nil {
			t.adopt()
		} else {
			t.end, t.phase = rec.End, phaseEnded
			t.points.ended()
		}
		a.tasks[id] = t
	}
	for _, rt := range a.runtimes() {
		seen, err := list(ctx, a.log, rt)
		if err != nil {
			return fmt.Errorf("list what runs under %s: %w", rt.Name(), err)
		}
		for _, s := range seen {
			if a.tasks[s.ID] != nil {
				continue
			}
			t := newTask(a, s.ID, nil)
			t.rt, t.token = rt, s.Token
			t.adopt()
			a.tasks[s.ID] = t
		}
		if len(seen) > 0 {
			a.log.InfoContext(ctx, "adopted attempts", "runtime", rt.Name(), "count", len(seen))
		}
	}
	return nil
}

const (
	listWait  = 30 * time.Second
	listPause = 200 * time.Millisecond
)

// list asks a runtime what it runs, and keeps asking for listWait if it does not answer:
// containerd may be restarting at the same time as the agent.
func list(ctx context.Context, log *slog.Logger, rt runtime.Runtime) ([]runtime.Task, error) {
	for deadline := time.Now().Add(listWait); ; {
		seen, err := rt.List(ctx)
		if err == nil || time.Now().After(deadline) {
			return seen, err
		}
		log.WarnContext(ctx, "the runtime does not list what it runs yet", "runtime", rt.Name(), "err", err)
		if !wait.Sleep(ctx, listPause) {
			return nil, errors.Join(err, ctx.Err())
		}
	}
}

func (a *Agent) runtimes() []runtime.Runtime {
	if a.cfg.Images == nil || a.cfg.Images == a.cfg.Host {
		return []runtime.Runtime{a.cfg.Host}
	}
	return []runtime.Runtime{a.cfg.Host, a.cfg.Images}
}

// Run serves until ctx ends. Jobs keep running; it stops nothing on the way out.
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
	g.Go(func() error { return a.cards.Sampler.Run(ctx) })
	g.Go(func() error { return a.tuned.Run(ctx) })
	g.Go(func() error { return a.recorder.Run(ctx) })
	g.Go(func() error { return a.series.Run(ctx) })
	g.Go(func() error { return a.cards.WatchProvider(ctx) })
	if a.health != nil {
		g.Go(func() error { return a.health.Run(ctx) })
	}
	g.Go(func() error { return a.checks.Run(ctx) })
	g.Go(func() error { return a.link().run(ctx) })
	if a.cfg.MemCaps.Daemons != nil {
		g.Go(func() error { return a.watchDaemons(ctx) })
	}
	err := g.Wait()
	a.workers.Wait()
	a.prober.Close()
	if cerr := a.journal.Close(); err == nil || errors.Is(err, context.Canceled) {
		err = cerr
	}
	return err
}

// Coordinators returns where to look for the leader, in order: those that claim by gossip
// to lead, then the configured addresses, then the others that gossip knows.
func (a *Agent) Coordinators() []string {
	var out, found []string
	if a.cfg.Gossip != nil {
		found, out = a.cfg.Gossip.Coordinators()
	}
	for _, addr := range slices.Concat(a.cfg.Coordinators, found) {
		if !slices.Contains(out, addr) {
			out = append(out, addr)
		}
	}
	return out
}

// leaders returns those that claim by gossip to lead: more than one for a moment after an
// election.
func (a *Agent) leaders() []string {
	if a.cfg.Gossip == nil {
		return nil
	}
	_, leaders := a.cfg.Gossip.Coordinators()
	return leaders
}

// link returns the agent's link to the leader.
func (a *Agent) link() *link {
	puller, _ := a.cfg.Images.(runtime.Puller)
	return &link{
		coordinators: a.Coordinators, leaders: a.leaders, dial: a.cfg.Dial, every: a.cfg.Heartbeat,
		hello: a.hello, apply: a.apply, acked: a.acked, visit: a.visit, cut: a.cut, out: a.out, cards: a.cards, recorder: a.recorder, progress: a.progress, prober: a.prober, puller: puller, data: a.cfg.Data.Changed(), log: a.log,
	}
}

// hello describes the node without its GPUs.
func (a *Agent) hello() *nodev1.Hello {
	h := &nodev1.Hello{
		Protocol: Protocol, Node: string(a.cfg.Node), BootId: a.cfg.BootID, Address: a.cfg.Address,
		Version: a.cfg.Version, CpuMilli: a.cfg.CPUMilli, MemMib: a.cfg.MemMiB, Gangs: true,
		Features: a.cfg.Data.With(a.cfg.Features), Credentials: a.cfg.Scripts != "",
	}
	if a.cfg.Gossip != nil {
		h.GossipKey = a.cfg.Gossip.Key()
	}
	for _, rt := range a.runtimes() {
		h.Runtimes = append(h.Runtimes, rt.Name())
	}
	return h
}

// spawn starts the worker of t. The caller holds a.mu.
func (a *Agent) spawn(t *task) {
	a.workers.Go(func() { t.run(a.ctx) })
}

func (a *Agent) task(id cluster.AttemptID) *task {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.tasks[id]
}

// named returns the attempt with the given name, as GPUs and daemons know it, or nil.
func (a *Agent) named(name string) *task {
	id, err := cluster.ParseAttemptID(name)
	if err != nil {
		return nil
	}
	return a.task(id)
}

// watchExits wakes the worker of each attempt that the runtime reports as ended.
func (a *Agent) watchExits(ctx context.Context, rt runtime.Runtime) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case id := <-rt.Exits():
			if t := a.task(id); t != nil {
				t.poke()
			}
		}
	}
}

// apply takes over a desired set. It ignores sets older than the last.
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
			t.next = nil
			t.release()
		}
	}
	a.resumed(d.Resumes)
	if d.Full {
		for id, t := range a.tasks {
			if _, ok := wanted[id]; !ok {
				t.next = nil
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
	if t := a.tasks[id]; t != nil && cluster.Token(as.Token) > t.token {
		// The attempt has come back to this node, where its previous part is being cleaned
		// up.
		t.next = as
		t.release()
		return
	} else if t != nil {
		if t.update(as) {
			a.cards.Mem.Hold(as)
			a.cards.Regrant(as)
		}
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

// forget drops a task whose end is committed and that left nothing in its runtime.
func (a *Agent) forget(t *task) {
	a.mu.Lock()
	delete(a.tasks, t.id)
	a.mu.Unlock()
	a.recorder.Forget(t.id)
	if err := a.journal.Forget(t.id); err != nil {
		a.log.Error("cannot write the journal", "err", err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if t.next != nil {
		a.assign(t.next)
	}
}

// CardStates returns the number of present GPUs in each state.
func (a *Agent) CardStates() map[string]int { return a.cards.Count() }
