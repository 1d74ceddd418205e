// Package processrt runs attempts as plain processes in control groups, for machines
// without containerd. A small keeper process, one per state directory, forks and reaps
// them, so that they and their exit codes survive the agent.
package processrt

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/berth-scheduler/berth/agent/cgroup"
	"github.com/berth-scheduler/berth/agent/launch"
	"github.com/berth-scheduler/berth/agent/runtime"
	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/wait"
)

// Config describes a Runtime.
type Config struct {
	// Dir holds the keeper's socket and records; its path must be short.
	Dir string
	// Exe is the command that starts the keeper once "--dir Dir --cgroup Parent" is
	// appended.
	Exe []string
	// CgroupParent is the control group below which each attempt gets its own.
	CgroupParent string
	// AllowUncapped lets root run jobs without their memory caps where control groups
	// cannot be used; otherwise such jobs are refused. Without root there are no other
	// users' jobs to protect, and it makes no difference.
	AllowUncapped bool
	Log           *slog.Logger
}

const (
	socketName  = "keeper.sock"
	logName     = "keeper.log"
	keeperStart = 10 * time.Second
	exitsQueue  = 1024
	idleConns   = 16
)

// Runtime implements runtime.Runtime.
type Runtime struct {
	cfg   Config
	exits chan cluster.AttemptID
	stop  context.CancelFunc
	wg    sync.WaitGroup
	idle  chan net.Conn
	// groups is where the keeper creates control groups, nil where it cannot.
	groups *cgroup.Hierarchy
	life   context.Context // of long-lived connections; stop ends it
	// watching is closed once a keeper has said that it reports ends.
	watching chan struct{}
	once     sync.Once

	mu sync.Mutex
	// started holds the tasks started here, and how they ended once the keeper has reported
	// it: by then the end is on disk and final.
	started map[cluster.AttemptID]*runtime.Task
}

// Open connects to the keeper of cfg.Dir, starting one if none answers.
func Open(ctx context.Context, cfg Config) (*Runtime, error) {
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, err
	}
	r := &Runtime{cfg: cfg, exits: make(chan cluster.AttemptID, exitsQueue), idle: make(chan net.Conn, idleConns), started: map[cluster.AttemptID]*runtime.Task{}, watching: make(chan struct{})}
	started, err := r.ensureKeeper(ctx)
	if err != nil {
		return nil, err
	}
	if h, err := cgroup.Detect(); err == nil && os.Getuid() == 0 {
		h = h.Plain()
		r.groups = &h
	}
	wctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	r.stop, r.life = stop, wctx
	r.wg.Go(func() { r.watch(wctx) })
	if started { // an older one does not say it
		select {
		case <-r.watching:
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), r.Close())
		}
	}
	return r, nil
}

func (r *Runtime) socket() string { return filepath.Join(r.cfg.Dir, socketName) }

// ensureKeeper starts a keeper if none answers, and reports whether it did.
func (r *Runtime) ensureKeeper(ctx context.Context) (started bool, err error) {
	if c, err := net.Dial("unix", r.socket()); err == nil {
		return false, c.Close()
	}
	args := append(append([]string(nil), r.cfg.Exe[1:]...), "--dir", r.cfg.Dir, "--cgroup", r.cfg.CgroupParent)
	cmd := exec.Command(r.cfg.Exe[0], args...)
	log, err := os.OpenFile(filepath.Join(r.cfg.Dir, logName), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return false, err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return false, fmt.Errorf("start keeper: %w", err)
	}
	gone := make(chan error, 1)
	go func() { gone <- cmd.Wait() }() // ends with the keeper, at the latest with us
	deadline := time.Now().Add(keeperStart)
	for {
		if c, err := net.Dial("unix", r.socket()); err == nil {
			return true, c.Close()
		}
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case err := <-gone:
			return false, fmt.Errorf("keeper ended at once: %v; its log is %s", err, log.Name())
		case <-time.After(2 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			return false, fmt.Errorf("keeper does not answer within %s; its log is %s", keeperStart, log.Name())
		}
	}
}

// watch passes on which tasks stop, reconnecting when a keeper is replaced.
func (r *Runtime) watch(ctx context.Context) {
	for ctx.Err() == nil {
		err := r.watchOnce(ctx)
		if ctx.Err() != nil {
			return
		}
		r.cfg.Log.Warn("lost the keeper; looking for it", "err", err)
		wait.Sleep(ctx, 200*time.Millisecond)
		if _, err := r.ensureKeeper(ctx); err != nil {
			r.cfg.Log.Error("no keeper", "err", err)
		}
	}
}

func (r *Runtime) watchOnce(ctx context.Context) error {
	c, err := net.Dial("unix", r.socket())
	if err != nil {
		return err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	if err := writeFrame(c, request{Op: opWatch}); err != nil {
		return err
	}
	for {
		var resp response
		if err := readFrame(c, &resp); err != nil {
			return err
		}
		r.once.Do(func() { close(r.watching) })
		if resp.Ended == nil {
			continue
		}
		if len(resp.Tasks) == 1 {
			r.noteEnd(resp.Tasks[0])
		}
		select {
		case r.exits <- *resp.Ended:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// call sends the keeper one request. Connections are reused.
func (r *Runtime) call(ctx context.Context, req request) (*response, error) {
	var c net.Conn
	select {
	case c = <-r.idle:
	default:
		var err error
		if c, err = net.Dial("unix", r.socket()); err != nil {
			return nil, fmt.Errorf("keeper: %w", err)
		}
	}
	stop := context.AfterFunc(ctx, func() { c.Close() })
	var resp response
	err := writeFrame(c, req)
	if err == nil {
		err = readFrame(c, &resp)
	}
	if !stop() {
		return nil, ctx.Err()
	}
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("keeper: %w", err)
	}
	select {
	case r.idle <- c:
	default:
		c.Close()
	}
	return &resp, resp.error()
}

// Name implements runtime.Runtime.
func (r *Runtime) Name() string { return "process" }

// Create implements runtime.Runtime.
func (r *Runtime) Create(ctx context.Context, l *launch.Launch) error {
	if l.Image != "" {
		return &launch.Error{Code: 125, Reason: "IMAGE", Err: errors.New("this node cannot run images: it has no containerd")}
	}
	if err := checkContainer(l); err != nil {
		return err
	}
	op := opCreate
	if l.Network == cluster.NetNone {
		op = opCreateAlone
	}
	_, err := r.call(ctx, request{Op: op, Launch: l, AllowUncapped: r.cfg.AllowUncapped})
	return err
}

// Start implements runtime.Runtime.
func (r *Runtime) Start(ctx context.Context, id cluster.AttemptID) error {
	r.mu.Lock()
	r.started[id] = nil // set first, because its end may arrive before the answer
	r.mu.Unlock()
	_, err := r.call(ctx, request{Op: opStart, ID: id})
	if err != nil {
		r.forget(id)
	}
	return err
}

// noteEnd records how a task ended, unless it was deleted meanwhile.
func (r *Runtime) noteEnd(end runtime.Task) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.started[end.ID]; ok {
		r.started[end.ID] = &end
	}
}

func (r *Runtime) forget(id cluster.AttemptID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.started, id)
}

// Signal implements runtime.Runtime.
func (r *Runtime) Signal(ctx context.Context, id cluster.AttemptID, sig syscall.Signal) error {
	_, err := r.call(ctx, request{Op: opSignal, ID: id, Signal: sig})
	return err
}

// Broadcast implements runtime.Runtime.
func (r *Runtime) Broadcast(ctx context.Context, id cluster.AttemptID, sig syscall.Signal, to runtime.Audience) error {
	_, err := r.call(ctx, request{Op: opBroadcast, ID: id, Signal: sig, To: to})
	return err
}

// Delete implements runtime.Runtime.
func (r *Runtime) Delete(ctx context.Context, id cluster.AttemptID) error {
	r.forget(id)
	_, err := r.call(ctx, request{Op: opDelete, ID: id})
	return err
}

// List implements runtime.Runtime.
func (r *Runtime) List(ctx context.Context) ([]runtime.Task, error) {
	resp, err := r.call(ctx, request{Op: opList})
	if err != nil {
		return nil, err
	}
	return resp.Tasks, nil
}

// Inspect implements runtime.Runtime.
func (r *Runtime) Inspect(ctx context.Context, id cluster.AttemptID) (runtime.Task, error) {
	r.mu.Lock()
	end := r.started[id]
	r.mu.Unlock()
	if end != nil {
		return *end, nil
	}
	resp, err := r.call(ctx, request{Op: opInspect, ID: id})
	if err != nil {
		return runtime.Task{}, err
	}
	if len(resp.Tasks) != 1 {
		return runtime.Task{ID: id}, nil
	}
	return resp.Tasks[0], nil
}

// Group returns the control group of an attempt, nil on nodes without control groups.
func (r *Runtime) Group(id cluster.AttemptID) *cgroup.Group {
	if r.groups == nil {
		return nil
	}
	return r.groups.Open(path.Join(r.cfg.CgroupParent, id.String()))
}

// Exits implements runtime.Runtime.
func (r *Runtime) Exits() <-chan cluster.AttemptID { return r.exits }

// Close disconnects from the keeper, which continues with its tasks.
func (r *Runtime) Close() error {
	r.stop()
	r.wg.Wait()
	for {
		select {
		case c := <-r.idle:
			c.Close()
		default:
			return nil
		}
	}
}

// StopKeeper ends the keeper of dir, if there is one, and all its tasks.
func StopKeeper(dir string) error {
	c, err := net.Dial("unix", filepath.Join(dir, socketName))
	if err != nil {
		return nil // none is running
	}
	defer c.Close()
	if err := writeFrame(c, request{Op: opShutdown}); err != nil {
		return err
	}
	var resp response
	if err := readFrame(c, &resp); err != nil {
		return fmt.Errorf("stop keeper of %s: %w", dir, err)
	}
	return resp.error()
}
