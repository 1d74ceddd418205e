// Package containerdrt runs attempts as containers under containerd. It is the
// only package that imports containerd.
package containerdrt

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/errdefs"

	"github.com/berth-scheduler/berth/agent"
	"github.com/berth-scheduler/berth/agent/asuser"
	"github.com/berth-scheduler/berth/agent/cgroup"
	"github.com/berth-scheduler/berth/cluster"
)

// Config describes a Runtime.
type Config struct {
	// Address is containerd's socket, Namespace the one of our containers.
	Address, Namespace string
	// Dir holds output specs and exit records; root's alone.
	Dir string
	// CgroupParent is the group under which each attempt gets its own.
	CgroupParent string
	// Logger is the binary that the shim runs with "container-logger FILE" to
	// copy output.
	Logger string
	Log    *slog.Logger
}

const (
	labelToken   = "berth/token"
	loggerArg    = "container-logger"
	pullTimeout  = 15 * time.Minute
	dialTimeout  = 10 * time.Second
	exitsQueue   = 1024
	rewaitPause  = 200 * time.Millisecond
	callDeadline = 30 * time.Second
)

// Runtime implements agent.Runtime.
type Runtime struct {
	cfg    Config
	client *containerd.Client
	groups cgroup.Hierarchy
	exits  chan cluster.AttemptID
	ctx    context.Context // of the waiters
	stop   context.CancelFunc
	wg     sync.WaitGroup

	mu      sync.Mutex
	waiting map[cluster.AttemptID]struct{}
}

// Open connects to containerd and begins to wait for the tasks that run.
func Open(ctx context.Context, cfg Config) (*Runtime, error) {
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
		cfg: cfg, client: c, groups: h, exits: make(chan cluster.AttemptID, exitsQueue),
		ctx: wctx, stop: stop, waiting: map[cluster.AttemptID]struct{}{},
	}
	tasks, err := r.List(ctx)
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	for _, t := range tasks {
		if t.Phase == agent.TaskRunning {
			r.await(t.ID)
		}
	}
	return r, nil
}

// Close lets go of containerd; containers go on.
func (r *Runtime) Close() error {
	r.stop()
	r.wg.Wait()
	return r.client.Close()
}

// Name implements agent.Runtime.
func (r *Runtime) Name() string { return "containerd" }

// Exits implements agent.Runtime.
func (r *Runtime) Exits() <-chan cluster.AttemptID { return r.exits }

func (r *Runtime) with(ctx context.Context) context.Context {
	return namespaces.WithNamespace(ctx, r.cfg.Namespace)
}

func (r *Runtime) file(id cluster.AttemptID, kind string) string {
	return filepath.Join(r.cfg.Dir, id.String()+"."+kind)
}

// Create implements agent.Runtime.
func (r *Runtime) Create(ctx context.Context, l *agent.Launch) error {
	ctx = r.with(ctx)
	id := l.ID.String()
	if err := r.prepareOutput(l); err != nil {
		return err
	}
	opts := []containerd.NewContainerOpts{
		containerd.WithContainerLabels(map[string]string{labelToken: strconv.FormatUint(uint64(l.Token), 10)}),
	}
	var imageEnv []string
	if l.Image != "" {
		img, err := r.image(ctx, l.Image)
		if err != nil {
			return err
		}
		spec, err := img.Spec(ctx)
		if err != nil {
			return &agent.LaunchError{Code: 125, Reason: "IMAGE", Err: err}
		}
		imageEnv = spec.Config.Env
		opts = append(opts, containerd.WithNewSnapshot(id, img))
	}
	specOpts, err := r.specOpts(l, imageEnv)
	if err != nil {
		return fmt.Errorf("create: %w", err)
	}
	opts = append(opts, containerd.WithNewSpec(specOpts...))
	c, err := r.client.NewContainer(ctx, id, opts...)
	if errdefs.IsAlreadyExists(err) {
		if c, err = r.client.LoadContainer(ctx, id); err != nil {
			return fmt.Errorf("create: %w", err)
		}
	} else if err != nil {
		return fmt.Errorf("create: %w", err)
	}
	if _, err := c.NewTask(ctx, cio.BinaryIO(r.cfg.Logger, map[string]string{loggerArg: r.file(l.ID, "output")})); err != nil && !errdefs.IsAlreadyExists(err) {
		return launchError(err)
	}
	return nil
}

// prepareOutput checks, as the user, what the logger will open, so that a
// wrong path is an error of the launch.
func (r *Runtime) prepareOutput(l *agent.Launch) error {
	o := outputSpec{UID: l.UID, GID: l.GID, Groups: l.Groups, Stdout: l.Stdout, Stderr: l.Stderr}
	if l.Image == "" {
		err := asuser.Do(asuser.ID{UID: l.UID, GID: l.GID, Groups: l.Groups}, func() error {
			st, err := os.Stat(l.Dir)
			if err == nil && !st.IsDir() {
				err = fmt.Errorf("%s is not a directory", l.Dir)
			}
			return err
		})
		if err != nil {
			return &agent.LaunchError{Code: 125, Reason: "WORKDIR", Err: err}
		}
	}
	out, errOut, err := openOutputs(o)
	if err != nil {
		return err
	}
	if errOut != out {
		errOut.Close()
	}
	out.Close()
	data, err := json.Marshal(o)
	if err != nil {
		return err
	}
	return os.WriteFile(r.file(l.ID, "output"), data, 0o600)
}

// image finds an image here, or pulls it.
func (r *Runtime) image(ctx context.Context, ref string) (containerd.Image, error) {
	img, err := r.client.GetImage(ctx, ref)
	if errdefs.IsNotFound(err) {
		pctx, cancel := context.WithTimeout(ctx, pullTimeout)
		defer cancel()
		img, err = r.client.Pull(pctx, ref, containerd.WithPullUnpack)
	}
	if err != nil {
		return nil, &agent.LaunchError{Code: 125, Reason: "IMAGE", Err: err}
	}
	unpacked, err := img.IsUnpacked(ctx, "")
	if err == nil && !unpacked {
		err = img.Unpack(ctx, "")
	}
	if err != nil {
		return nil, &agent.LaunchError{Code: 125, Reason: "IMAGE", Err: err}
	}
	return img, nil
}

// launchError tells what runc says of a command from other failures, as
// a shell would.
func launchError(err error) error {
	text := err.Error()
	has := func(parts ...string) bool {
		for _, p := range parts {
			if strings.Contains(text, p) {
				return true
			}
		}
		return false
	}
	switch {
	case has("executable file not found", "no such file or directory") && has("exec"):
		return &agent.LaunchError{Code: 127, Reason: "COMMAND", Err: err}
	case has("permission denied", "exec format error", "is a directory") && has("exec"):
		return &agent.LaunchError{Code: 126, Reason: "COMMAND", Err: err}
	case has("chdir to cwd", "mkdir /") && has("cwd"):
		return &agent.LaunchError{Code: 125, Reason: "WORKDIR", Err: err}
	}
	return fmt.Errorf("create task: %w", err)
}

// Start implements agent.Runtime.
func (r *Runtime) Start(ctx context.Context, id cluster.AttemptID) error {
	task, err := r.task(r.with(ctx), id)
	if err != nil {
		return fmt.Errorf("start: %w", err)
	}
	st, err := task.Status(r.with(ctx))
	if err != nil {
		return fmt.Errorf("start: %w", err)
	}
	if st.Status == containerd.Created {
		if err := os.WriteFile(r.file(id, "started"), []byte(time.Now().Format(time.RFC3339Nano)), 0o600); err != nil {
			return err
		}
		if err := task.Start(r.with(ctx)); err != nil {
			return launchError(err)
		}
	}
	r.await(id)
	return nil
}

func (r *Runtime) task(ctx context.Context, id cluster.AttemptID) (containerd.Task, error) {
	c, err := r.client.LoadContainer(ctx, id.String())
	if err != nil {
		return nil, err
	}
	return c.Task(ctx, nil)
}

// await announces when a task stops. When the connection breaks it waits
// anew: only a stopped task tells an exit code.
func (r *Runtime) await(id cluster.AttemptID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.waiting[id]; ok {
		return
	}
	r.waiting[id] = struct{}{}
	r.wg.Go(func() {
		defer func() {
			r.mu.Lock()
			delete(r.waiting, id)
			r.mu.Unlock()
		}()
		for r.ctx.Err() == nil {
			if r.awaitOnce(id) {
				select {
				case r.exits <- id:
				case <-r.ctx.Done():
				}
				return
			}
			select {
			case <-r.ctx.Done():
			case <-time.After(rewaitPause):
			}
		}
	})
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

// Signal implements agent.Runtime.
func (r *Runtime) Signal(ctx context.Context, id cluster.AttemptID, sig syscall.Signal) error {
	ctx = r.with(ctx)
	task, err := r.task(ctx, id)
	if errdefs.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	var opts []containerd.KillOpts
	if sig == syscall.SIGKILL {
		opts = append(opts, containerd.WithKillAll)
	}
	if err := task.Kill(ctx, sig, opts...); err != nil && !errdefs.IsNotFound(err) && !errdefs.IsFailedPrecondition(err) {
		return err
	}
	return nil
}

// Delete implements agent.Runtime.
func (r *Runtime) Delete(ctx context.Context, id cluster.AttemptID) error {
	ctx = r.with(ctx)
	c, err := r.client.LoadContainer(ctx, id.String())
	if err != nil && !errdefs.IsNotFound(err) {
		return err
	}
	if err == nil {
		if err := deleteContainer(ctx, c); err != nil {
			return err
		}
	}
	if err := r.removeRoot(id); err != nil {
		return err
	}
	for _, kind := range []string{"output", "started", "exit"} {
		if err := os.Remove(r.file(id, kind)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func deleteContainer(ctx context.Context, c containerd.Container) error {
	task, err := c.Task(ctx, nil)
	if err == nil {
		st, err := task.Status(ctx)
		if err != nil && !errdefs.IsNotFound(err) {
			return err
		}
		if st.Status == containerd.Running || st.Status == containerd.Paused {
			return fmt.Errorf("delete: task %s runs", c.ID())
		}
		if _, err := task.Delete(ctx, containerd.WithProcessKill); err != nil && !errdefs.IsNotFound(err) {
			return fmt.Errorf("delete task: %w", err)
		}
	} else if !errdefs.IsNotFound(err) {
		return err
	}
	if err := c.Delete(ctx, containerd.WithSnapshotCleanup); err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("delete container: %w", err)
	}
	return nil
}

// group is the control group of an attempt.
func (r *Runtime) group(id cluster.AttemptID) *cgroup.Group {
	return r.groups.Open(path.Join("/", r.cfg.CgroupParent, id.String()))
}
