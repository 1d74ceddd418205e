// Package containerdrt runs attempts as containers under containerd. Only it and the
// packages below it import containerd.
package containerdrt

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/errdefs"

	"github.com/berth-scheduler/berth/agent/asuser"
	"github.com/berth-scheduler/berth/agent/cgroup"
	"github.com/berth-scheduler/berth/agent/containerdrt/firsts"
	"github.com/berth-scheduler/berth/agent/containerdrt/gates"
	"github.com/berth-scheduler/berth/agent/gpu/cdi"
	"github.com/berth-scheduler/berth/agent/runtime"
	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/wait"
)

// Config describes a Runtime.
type Config struct {
	// Address is containerd's socket, Namespace the namespace of our containers.
	Address, Namespace string
	// Dir holds output specs and exit records; only root may access it.
	Dir string
	// CgroupParent is the control group below which each attempt gets its own.
	CgroupParent string
	// Inside is the helper program in jobs, see package inside; Program is what provides a
	// job's commands in an image.
	Inside, Program string
	// PullPause is the wait before a registry is asked again the first time; 0 means 2 s.
	// It doubles each time.
	PullPause time.Duration
	// Policy is what the node grants its containers.
	Policy Policy
	// Devices turns the CDI names of a launch into what a container gets; nil reads the
	// node's own specifications.
	Devices *cdi.Injector
	Log     *slog.Logger
}

const (
	labelToken   = "berth/token"
	dialTimeout  = 10 * time.Second
	answerWait   = 30 * time.Second
	exitsQueue   = 1024
	rewaitPause  = 200 * time.Millisecond
	callDeadline = 30 * time.Second
)

// Runtime implements runtime.Runtime.
type Runtime struct {
	cfg    Config
	client *containerd.Client
	exits  chan cluster.AttemptID
	puller
	ctx  context.Context // of the waiters
	stop context.CancelFunc
	wg   sync.WaitGroup

	// Its parts, each with only what it needs.
	records records
	tries   *tryBook
	firsts  *firsts.Processes
	gates   gates.Gates
	roots   hostRoots
	binds   binder
	waits   asuser.Waits
	build   *builder
	look    *imageLook
	clearer *clearer

	mu      sync.Mutex
	waiting map[cluster.AttemptID]struct{}
}

// puller implements runtime.Puller.
type puller struct{ images *Images }

// Pulls implements runtime.Puller.
func (p puller) Pulls(ctx context.Context) map[cluster.AttemptID]cluster.Pull {
	by := p.images.fetched.Now()
	if len(by) == 0 {
		return nil
	}
	under, err := p.images.client.ContentStore().ListStatuses(p.images.with(ctx))
	if err != nil {
		under = nil // complete layers are known all the same
	}
	out := make(map[cluster.AttemptID]cluster.Pull, len(by))
	for id, of := range by {
		out[id] = of.State(under)
	}
	return out
}

// Held implements runtime.Puller.
func (p puller) Held(ctx context.Context) ([]string, error) { return p.images.names(ctx) }

// Open connects to containerd and starts to wait for the running tasks.
func Open(ctx context.Context, cfg Config) (*Runtime, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if err := cfg.Policy.validate(filepath.Clean(cfg.Dir), filepath.Dir(cfg.Address)); err != nil {
		return nil, fmt.Errorf("containers' policy: %w", err)
	}
	cfg.Policy = cfg.Policy.withDefaults()
	if cfg.Devices == nil {
		var err error
		if cfg.Devices, err = cdi.New(cdi.Config{}); err != nil {
			return nil, err
		}
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, err
	}
	c, err := containerd.New(cfg.Address, containerd.WithDefaultNamespace(cfg.Namespace), containerd.WithTimeout(dialTimeout))
	if err != nil {
		return nil, fmt.Errorf("containerd at %s: %w; is it running?", cfg.Address, err)
	}
	h, err := cgroup.Detect()
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	wctx, stop := context.WithCancel(namespaces.WithNamespace(context.WithoutCancel(ctx), cfg.Namespace))
	r := &Runtime{
		cfg: cfg, client: c, exits: make(chan cluster.AttemptID, exitsQueue),
		puller: puller{newImages(c, ImagesConfig{Address: cfg.Address, Namespace: cfg.Namespace, PullPause: cfg.PullPause, Registries: cfg.Policy.Registries, Log: cfg.Log})},
		ctx:    wctx, stop: stop, waiting: map[cluster.AttemptID]struct{}{},
	}
	r.furnish(h)
	if err := r.answer(ctx); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	tasks, err := r.List(ctx)
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	r.checkVersions(ctx)
	r.sweepExecs(ctx)
	for _, t := range tasks {
		if t.Phase == runtime.Running {
			r.adopt(ctx, t)
			r.await(t.ID)
		}
	}
	return r, nil
}

// furnish creates the parts of a runtime.
func (r *Runtime) furnish(h cgroup.Hierarchy) {
	r.records = records{dir: r.cfg.Dir}
	r.tries, r.firsts = newTryBook(r.records), firsts.New()
	r.gates = gates.Gates{Root: filepath.Join(runcRoot, r.cfg.Namespace), Namespace: r.cfg.Namespace}
	r.roots, r.binds = hostRoots{cfg: &r.cfg, records: r.records}, binder{cfg: &r.cfg, waits: &r.waits}
	r.build = &builder{cfg: &r.cfg, records: r.records, tries: r.tries, roots: r.roots}
	r.look = &imageLook{client: r.client, cfg: &r.cfg}
	r.clearer = &clearer{cfg: &r.cfg, client: r.client, groups: h, gates: r.gates, tries: r.tries}
}

// adopt tracks the first process of a task that an earlier agent started, if it still
// exists: its pid may have been reused meanwhile.
func (r *Runtime) adopt(ctx context.Context, t runtime.Task) {
	r.firsts.Hold(t.ID, t.PID)
	if now, err := r.Inspect(ctx, t.ID); err != nil || now.Phase != runtime.Running {
		r.firsts.LetGo(t.ID)
	}
}

// answer waits until containerd answers: after a boot or a crash it may come up later than
// we do.
func (r *Runtime) answer(ctx context.Context) error {
	deadline := time.Now().Add(answerWait)
	for {
		_, err := r.client.Version(r.with(ctx))
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("containerd at %s does not answer for %s: %w", r.cfg.Address, answerWait, err)
		}
		if !wait.Sleep(ctx, rewaitPause) {
			return ctx.Err()
		}
	}
}

// Close disconnects from containerd; containers keep running.
func (r *Runtime) Close() error {
	r.stop()
	r.wg.Wait()
	r.firsts.Close()
	return r.client.Close()
}

// Name implements runtime.Runtime.
func (r *Runtime) Name() string { return "containerd" }

// Exits implements runtime.Runtime.
func (r *Runtime) Exits() <-chan cluster.AttemptID { return r.exits }

func (r *Runtime) with(ctx context.Context) context.Context {
	return namespaces.WithNamespace(ctx, r.cfg.Namespace)
}

func (r *Runtime) task(ctx context.Context, id cluster.AttemptID) (containerd.Task, error) {
	c, err := r.client.LoadContainer(ctx, r.tries.name(id))
	if err != nil {
		return nil, err
	}
	return taskOf(ctx, c)
}

// await announces when a task stops. When the connection breaks it waits again: only a
// stopped task reports an exit code.
func (r *Runtime) await(id cluster.AttemptID) {
	r.mu.Lock()
	_, already := r.waiting[id]
	r.mu.Unlock()
	if !already {
		r.awaitWith(id, r.endTogether(id))
	}
}

// awaitWith is await with the function that endTogether returned.
func (r *Runtime) awaitWith(id cluster.AttemptID, disarm func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.waiting[id]; ok {
		r.wg.Go(disarm)
		return
	}
	r.waiting[id] = struct{}{}
	r.firsts.Listen(id)
	r.wg.Go(func() {
		defer func() {
			r.mu.Lock()
			delete(r.waiting, id)
			r.mu.Unlock()
		}()
		defer disarm()
		for r.ctx.Err() == nil {
			if r.awaitOnce(id) {
				select {
				case r.exits <- id:
				case <-r.ctx.Done():
				}
				return
			}
			wait.Sleep(r.ctx, rewaitPause)
		}
	})
}

// endTogether makes an OOM kill of one process of a task end them all, until the returned
// function is called. Under cgroup version 2 the kernel does so even while no agent runs;
// under version 1 the next agent makes up for it.
func (r *Runtime) endTogether(id cluster.AttemptID) func() {
	warn := func(err error) {
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // it has ended
			r.cfg.Log.Warn("cannot end a task that is out of memory as a whole", "task", id.String(), "err", err)
		}
	}
	disarm, err := r.group(id).KillOnOOM()
	if err != nil {
		warn(err)
		return func() {}
	}
	return func() { warn(disarm()) }
}

// awaitOnce reports whether there is something to look at.
func (r *Runtime) awaitOnce(id cluster.AttemptID) bool {
	task, err := r.task(r.ctx, id)
	if err != nil {
		return errdefs.IsNotFound(err)
	}
	ch, err := task.Wait(r.ctx)
	if err != nil {
		return errdefs.IsNotFound(err)
	}
	select {
	case <-r.ctx.Done():
		return false
	case st := <-ch:
		return st.Error() == nil
	}
}

// Delete implements runtime.Runtime.
func (r *Runtime) Delete(ctx context.Context, id cluster.AttemptID) error {
	if err := r.clear(ctx, id); err != nil {
		return err
	}
	return r.tries.forget(id)
}

// clear removes everything of an attempt but the number of its tries.
func (r *Runtime) clear(ctx context.Context, id cluster.AttemptID) error {
	ctx, cancel := context.WithTimeout(r.with(ctx), callDeadline)
	defer cancel()
	if err := r.clearer.clearEarlier(ctx, id); err != nil {
		return err
	}
	c, err := r.client.LoadContainer(ctx, r.tries.name(id))
	switch {
	case errdefs.IsNotFound(err):
		err = r.clearer.clearTry(ctx, r.tries.name(id), r.clearer.allShims()[r.tries.name(id)])
	case err == nil:
		err = r.clearer.deleteContainer(ctx, c)
	}
	if err != nil {
		return err
	}
	// A shim that died leaves processes and control groups.
	g := r.group(id)
	if err := errors.Join(g.Kill(), g.Remove()); err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	if err := errors.Join(r.roots.remove(id), unstage(r.binds.dir(id)), r.gates.Remove(r.tries.name(id))); err != nil {
		return err
	}
	r.firsts.LetGo(id)
	return r.records.forget(id)
}

// Group returns the control group of an attempt.
func (r *Runtime) Group(id cluster.AttemptID) *cgroup.Group { return r.group(id) }
