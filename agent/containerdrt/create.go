package containerdrt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/defaults"
	"github.com/containerd/containerd/v2/pkg/cio"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/berth-scheduler/berth/agent/asuser"
	"github.com/berth-scheduler/berth/agent/jobside"
	"github.com/berth-scheduler/berth/agent/launch"
	"github.com/berth-scheduler/berth/agent/runtime"
	"github.com/berth-scheduler/berth/cluster"
)

// Create implements runtime.Runtime. It leaves nothing of a task that cannot be created.
func (r *Runtime) Create(ctx context.Context, l *launch.Launch) error {
	ctx = r.with(ctx)
	if t, err := r.Inspect(ctx, l.ID); err != nil || t.Phase != runtime.Absent {
		return err
	}
	if err := checkAsUser(&r.waits, l); err != nil {
		return err
	}
	if err := r.nextTry(l.ID); err != nil {
		return fmt.Errorf("create: %w", err)
	}
	if err := r.build.writeHelperSpec(l); err != nil {
		return fmt.Errorf("create: %w", err)
	}
	err := r.createTask(ctx, l)
	if err == nil {
		return nil
	}
	// Creation may have failed because the context ended.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callDeadline)
	defer cancel()
	if derr := r.clear(ctx, l.ID); derr != nil {
		r.cfg.Log.Warn("cannot clear up after a failed launch", "task", l.ID.String(), "err", derr)
	}
	return err
}

// checkAsUser checks, with the user's rights, what the helper would fail at later, so that
// it becomes an error of the launch.
func checkAsUser(w *asuser.Waits, l *launch.Launch) error {
	if l.Image != "" && l.Stdin != "" {
		return &launch.Error{Code: 125, Reason: "INPUT", Err: errors.New("an image job cannot read a file of the node as its input; redirect it in the job")}
	}
	if l.Image != "" && slices.ContainsFunc(l.Args, func(arg string) bool { return !utf8.ValidString(arg) }) {
		return &launch.Error{Code: 125, Reason: "COMMAND", Err: errors.New("an argument of an image job must be UTF-8; put other bytes into a file")}
	}
	files, err := asuser.Await(w, asuser.User(l), func() (*asuser.Files, error) {
		open := asuser.OpenOutputs
		if l.Image == "" {
			if err := asuser.CheckDir(l); err != nil {
				return nil, err
			}
			if _, err := asuser.LookPath(l); err != nil {
				return nil, err
			}
			open = asuser.OpenAll
		}
		look := *l
		look.Truncate = false // files are truncated only when it starts
		return open(&look)
	}, (*asuser.Files).Close)
	if errors.Is(err, asuser.ErrSilent) {
		return fmt.Errorf("open the directory %s and the output %s: %w", l.Dir, l.Stdout, err)
	}
	if err == nil {
		files.Close()
	}
	return err
}

// createTask creates the container and its task, stopped before the command.
func (r *Runtime) createTask(ctx context.Context, l *launch.Launch) error {
	b, err := r.binds.open(l)
	if err != nil {
		return err
	}
	defer func() {
		if err := b.close(); err != nil {
			r.cfg.Log.Warn("cannot clear up the mounts of a launch", "task", l.ID.String(), "err", err)
		}
	}()
	return r.createWith(ctx, l, b)
}

// createWith creates a task with the given bind mounts.
func (r *Runtime) createWith(ctx context.Context, l *launch.Launch, b *binds) error {
	opts := []containerd.NewContainerOpts{
		containerd.WithRuntime(runcRuntime, nil),
		containerd.WithContainerLabels(map[string]string{labelToken: strconv.FormatUint(uint64(l.Token), 10)}),
	}
	var imageEnv []string
	var img containerd.Image
	if l.Image != "" {
		found, release, err := r.images.find(ctx, l.Image, l.ID)
		if err != nil {
			return err
		}
		defer release()
		img = found
		if imageEnv, err = r.look.env(ctx, img); err != nil {
			return err
		}
		if err := r.look.root(ctx, img, l, b); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, callDeadline)
	defer cancel()
	specOpts, err := r.build.specOpts(l, imageEnv, b)
	if err != nil {
		return fmt.Errorf("create: %w", err)
	}
	c, err := r.newContainer(ctx, r.tries.name(l.ID), img, append(opts, containerd.WithNewSpec(specOpts...)))
	if err != nil {
		return fmt.Errorf("create: %w", err)
	}
	output := cio.NullIO // the helper in the container opens the files
	if l.Image != "" {
		output = cio.BinaryIO(r.cfg.Inside, map[string]string{jobside.LoggerArg: r.records.file(l.ID, kindHelper)})
	}
	task, err := c.NewTask(ctx, output)
	if err != nil {
		return launchError(err)
	}
	r.tidy(l.ID, int(task.Pid()))
	if err := r.group(l.ID).Verify(r.build.caps(l)); err != nil {
		return fmt.Errorf("create: %w", err)
	}
	return nil
}

// newContainer creates the record of a container and then the snapshot of its image, if it
// has one. The client's own call creates the snapshot first and a lease around both, which
// costs two more synced writes; what a record names needs no lease.
func (r *Runtime) newContainer(ctx context.Context, name string, img containerd.Image, opts []containerd.NewContainerOpts) (containerd.Container, error) {
	rec := containers.Container{ID: name}
	for _, opt := range opts {
		if err := opt(ctx, r.client, &rec); err != nil {
			return nil, err
		}
	}
	if img != nil {
		label, err := r.client.GetLabel(ctx, defaults.DefaultSnapshotterNSLabel)
		if err != nil {
			return nil, err
		}
		// The image's name keeps it from being evicted; nothing else in it is used.
		rec.Image, rec.SnapshotKey, rec.Snapshotter = img.Name(), name, cmp.Or(label, defaults.DefaultSnapshotter)
	}
	if _, err := r.client.ContainerService().Create(ctx, rec); err != nil {
		return nil, err
	}
	if img != nil {
		if err := containerd.WithNewSnapshot(name, img)(ctx, r.client, &rec); err != nil {
			return nil, err
		}
	}
	return r.client.LoadContainer(ctx, name)
}

// forget has containerd delete a task that it barely knows, with its shim. The client can
// only delete what it can load, so this is the bare call: its request has the wire form of
// a StringValue, and its answer is ignored.
func forget(ctx context.Context, c *containerd.Client, id string) error {
	conn, ok := c.Conn().(interface {
		Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error
	})
	if !ok {
		return errors.New("no connection to containerd")
	}
	err := conn.Invoke(ctx, "/containerd.services.tasks.v1.Tasks/Delete", wrapperspb.String(id), new(emptypb.Empty))
	if err != nil && status.Code(err) != codes.NotFound {
		return fmt.Errorf("delete a task without a container: %w", err)
	}
	return nil
}

// launchError distinguishes runc's errors about a command from other failures, as a shell
// would. runc reports them only as text: "... runc create failed: unable to start container
// process: exec: "x": executable file not found in $PATH".
func launchError(err error) error {
	if strings.Contains(err.Error(), `"runc": executable file not found`) {
		return fmt.Errorf("create task: runc is not installed on this node, or not in containerd's PATH: %w", err)
	}
	_, text, ok := strings.Cut(err.Error(), "unable to start container process: ")
	if !ok {
		return fmt.Errorf("create task: %w", err)
	}
	text = strings.TrimSuffix(text, ": unknown") // containerd's class of the error
	if what, ok := strings.CutPrefix(text, "exec: "); ok {
		return commandError(what)
	}
	if strings.Contains(text, "chdir to cwd") || strings.Contains(text, "mkdir") && strings.Contains(text, "cwd") {
		return &launch.Error{Code: 125, Reason: "WORKDIR", Err: errors.New(text)}
	}
	return fmt.Errorf("create task: %w", err)
}

// commandError turns runc's message about a command, such as `"x": is a directory`, into a
// shell's.
func commandError(what string) error {
	name, rest := what, ""
	if quoted, err := strconv.QuotedPrefix(what); err == nil {
		if name, err = strconv.Unquote(quoted); err == nil {
			rest = strings.TrimPrefix(what[len(quoted):], ": ")
		}
	}
	fail := func(code int, why string) error {
		return &launch.Error{Code: code, Reason: "COMMAND", Err: fmt.Errorf("%s: %s", name, why)}
	}
	switch {
	case strings.Contains(rest, "executable file not found"):
		return fail(127, "command not found in the image's PATH")
	case strings.Contains(rest, "no such file or directory"):
		return fail(127, "no such file in the image")
	case rest == "":
		return &launch.Error{Code: 126, Reason: "COMMAND", Err: errors.New(what)}
	}
	return fail(126, rest)
}

// Start implements runtime.Runtime.
func (r *Runtime) Start(ctx context.Context, id cluster.AttemptID) error {
	ctx, cancel := context.WithTimeout(r.with(ctx), callDeadline)
	defer cancel()
	t, task, err := r.inspect(ctx, id)
	if err != nil {
		return fmt.Errorf("start: %w", err)
	}
	switch t.Phase {
	case runtime.Absent:
		return fmt.Errorf("start: there is no task %s", id)
	case runtime.Created:
	case runtime.Running:
		r.await(id)
		return nil
	default:
		return nil
	}
	r.firsts.Hold(id, int(task.Pid()))
	r.firsts.HoldShim(id, int(task.Pid()))
	if t.Started.IsZero() {
		if err := r.aboutToStart(id); err != nil {
			return fmt.Errorf("start: %w", err)
		}
	}
	disarm := r.endTogether(id) // some jobs run out of memory immediately
	if err := task.Start(ctx); err != nil {
		disarm()
		return launchError(err)
	}
	r.awaitWith(id, disarm)
	return nil
}

// aboutToStart records that from here on the task may have run, even if we die, and sets up
// the gate that tells whether it did.
func (r *Runtime) aboutToStart(id cluster.AttemptID) error {
	if err := r.gates.Mark(r.tries.name(id)); err != nil {
		r.cfg.Log.Warn("nobody will know whether a task began if its start is cut off", "task", id.String(), "err", err)
	}
	return r.records.begin(id)
}
