package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/errdefs"

	"github.com/berth-scheduler/berth/agent/cgroup"
	"github.com/berth-scheduler/berth/agent/containerdrt/shimproc"
)

const clearTimeout = 20 * time.Second

// clear ends and deletes every container, so that runc removes what it set up. It needs a
// containerd that answers; killShims is for when there is none.
func (d *Daemon) clear() error {
	ctx, cancel := context.WithTimeout(context.Background(), clearTimeout)
	defer cancel()
	c, err := containerd.New(d.Socket(), containerd.WithTimeout(startTimeout))
	if err != nil {
		return err
	}
	defer c.Close()
	names, err := c.NamespaceService().List(ctx)
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	for _, name := range names {
		ctx := namespaces.WithNamespace(ctx, name)
		all, err := c.Containers(ctx)
		if err != nil {
			return err
		}
		for _, one := range all {
			wg.Go(func() {
				if err := remove(ctx, one); err != nil {
					mu.Lock()
					defer mu.Unlock()
					errs = append(errs, fmt.Errorf("container %s: %w", one.ID(), err))
				}
			})
		}
	}
	wg.Wait()
	for _, name := range names {
		// Empty, unless another containerd has a namespace of this name.
		_ = os.Remove(filepath.Join(runcRoot, name))
	}
	return errors.Join(errs...)
}

func remove(ctx context.Context, c containerd.Container) error {
	task, err := c.Task(ctx, nil)
	if err == nil {
		_, err = task.Delete(ctx, containerd.WithProcessKill)
	}
	if err != nil && !errdefs.IsNotFound(err) {
		return err
	}
	if err := c.Delete(ctx, containerd.WithSnapshotCleanup); err != nil && !errdefs.IsNotFound(err) {
		return err
	}
	return nil
}

// killContainer has runc end the container of a shim and remove what it set up, in place of
// the shim, which the caller ends first. Then it kills what has left the container's first
// process but not its control group.
func killContainer(s shimproc.Shim) error {
	group, gerr := groupOf(children(s.PID))
	if err := s.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	cmd := exec.Command("runc", "--root", filepath.Join(runcRoot, s.Namespace), "delete", "--force", s.ID)
	if out, err := cmd.CombinedOutput(); err != nil && !strings.Contains(string(out), "does not exist") {
		return fmt.Errorf("runc delete %s: %w: %s", s.ID, err, out)
	}
	if gerr != nil {
		return nil // none of its processes is alive
	}
	h, err := cgroup.Detect()
	if err != nil {
		return err
	}
	g := h.Open(group)
	return errors.Join(g.Kill(), g.Remove())
}

// runcRoot is where shims keep runc's state unless a client says otherwise.
const runcRoot = "/run/containerd/runc"

// groupOf returns the path of the first living process in the memory controller's
// hierarchy.
func groupOf(pids []int) (string, error) {
	for _, pid := range pids {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
		if err != nil {
			continue // it ended
		}
		if path := memoryGroup(string(data)); path != "" && path != "/" { // "/" is a zombie's
			return path, nil
		}
	}
	return "", errors.New("no process in a control group")
}

// memoryGroup parses /proc/PID/cgroup.
func memoryGroup(text string) string {
	unified := ""
	for line := range strings.Lines(text) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) != 3 {
			continue
		}
		if slices.Contains(strings.Split(f[1], ","), "memory") {
			return f[2]
		}
		if f[0] == "0" {
			unified = f[2]
		}
	}
	return unified
}
