package containerdrt

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"sync"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/errdefs"

	"github.com/berth-scheduler/berth/agent/cgroup"
	"github.com/berth-scheduler/berth/agent/containerdrt/gates"
	"github.com/berth-scheduler/berth/agent/containerdrt/shimproc"
	"github.com/berth-scheduler/berth/cluster"
)

const runcTimeout = 10 * time.Second

// runcRoot is where shims have runc keep its state.
const runcRoot = "/run/containerd/runc"

// clearer removes what attempts at creating a container left behind.
type clearer struct {
	cfg    *Config
	client *containerd.Client
	groups cgroup.Hierarchy
	gates  gates.Gates
	tries  *tryBook
	// clearing is held while earlier tries are removed.
	clearing sync.Mutex
}

// allShims returns the shims that our containerd started, by container.
func (c *clearer) allShims() map[string][]shimproc.Shim {
	all, err := shimproc.All(c.cfg.Address)
	if err != nil {
		c.cfg.Log.Warn("cannot look for shims", "err", err)
	}
	out := map[string][]shimproc.Shim{}
	for _, s := range all {
		if s.Namespace == c.cfg.Namespace {
			out[s.ID] = append(out[s.ID], s)
		}
	}
	return out
}

// clearEarlier removes what the tries before the newest left, for one attempt at a time.
func (c *clearer) clearEarlier(ctx context.Context, id cluster.AttemptID) error {
	c.clearing.Lock()
	defer c.clearing.Unlock()
	t := c.tries.of(id)
	if t.cleared+1 >= t.last {
		return nil
	}
	shims := c.allShims()
	for n := t.cleared + 1; n < t.last; n++ {
		name := nameOf(id, n)
		if err := c.clearTry(ctx, name, shims[name]); err != nil {
			return err
		}
		// The next agent should not start over: there may be many.
		if err := c.tries.change(id, func(t *tries) { t.cleared = n }); err != nil {
			return err
		}
	}
	return nil
}

// clearTry removes what a try left, wherever it was interrupted: a container, a task
// without one, a snapshot without one, a shim that containerd does not know, runc's state,
// control groups.
func (c *clearer) clearTry(ctx context.Context, name string, shims []shimproc.Shim) error {
	made, err := c.client.LoadContainer(ctx, name)
	switch {
	case err == nil:
		if err := c.deleteContainer(ctx, made); err != nil {
			return err
		}
	case !errdefs.IsNotFound(err):
		return err
	default:
		if len(shims) > 0 {
			if err := forget(ctx, c.client, name); err != nil {
				c.cfg.Log.Debug("a task without a container is left to containerd", "container", name, "err", err)
			}
		}
		if err := c.client.SnapshotService("").Remove(ctx, name); err != nil && !errdefs.IsNotFound(err) {
			return fmt.Errorf("remove the snapshot of %s: %w", name, err)
		}
	}
	c.endShims(ctx, name, shims)
	g := c.groupOf(name)
	if err := errors.Join(g.Kill(), g.Remove()); err != nil {
		return fmt.Errorf("end what is left of %s: %w", name, err)
	}
	return c.gates.Remove(name)
}

// deleteContainer deletes a container whose task is not running, and that task.
func (c *clearer) deleteContainer(ctx context.Context, made containerd.Container) error {
	task, err := taskOf(ctx, made)
	if err == nil {
		st, err := statusOf(ctx, task)
		if err != nil && !errdefs.IsNotFound(err) {
			return err
		}
		if st.Status == containerd.Running || st.Status == containerd.Paused || st.Status == containerd.Created && c.gates.Of(made.ID()) == gates.Open {
			return fmt.Errorf("delete: task %s runs", made.ID())
		}
		if _, err := task.Delete(ctx, containerd.WithProcessKill); err != nil && !errdefs.IsNotFound(err) {
			return fmt.Errorf("delete task: %w", err)
		}
	} else if !errdefs.IsNotFound(err) {
		return err
	} else if err := forget(ctx, c.client, made.ID()); err != nil {
		// Its shim died, and containerd is about to notice.
		c.cfg.Log.Debug("a task without a container is left to containerd", "task", made.ID(), "err", err)
	}
	if err := made.Delete(ctx, containerd.WithSnapshotCleanup); err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("delete container: %w", err)
	}
	return nil
}

// endShims ends the shims of a deleted container, and removes what they and runc kept about
// it.
func (c *clearer) endShims(ctx context.Context, name string, shims []shimproc.Shim) {
	var bundles []string
	for _, s := range shims {
		if filepath.Base(s.Dir) == name {
			bundles = append(bundles, s.Dir)
		}
		_ = s.Kill() // it may already be exiting
	}
	if _, err := os.Stat(filepath.Join(runcRoot, c.cfg.Namespace, name)); err == nil {
		cctx, cancel := context.WithTimeout(ctx, runcTimeout)
		defer cancel()
		out, err := exec.CommandContext(cctx, "runc", "--root", filepath.Join(runcRoot, c.cfg.Namespace), "delete", "--force", name).CombinedOutput()
		if err != nil {
			c.cfg.Log.Warn("cannot clear up an earlier try", "container", name, "err", err, "output", string(out))
		}
	}
	for _, dir := range bundles {
		err := shimproc.RemoveBundle(dir, c.cfg.Namespace, name)
		c.cfg.Log.Info("a shim was left of an earlier try", "container", name, "dir", dir, "err", err)
	}
}

// groupOf returns the control group of a container.
func (c *clearer) groupOf(name string) *cgroup.Group {
	return c.groups.Open(path.Join("/", c.cfg.CgroupParent, name))
}
