package containerdrt

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-scheduler/berth/cluster"
)

// bundleFiles are what containerd and a shim put into a task's directory.
var bundleFiles = []string{
	"config.json", "options.json", "runtime", "rootfs", "work", "log", "log.json", "address", "shim-binary-path", "shim.pid", "init.pid", "bootstrap.json",
}

const runcTimeout = 10 * time.Second

// clearBundle removes the directory of a task that a containerd left which died
// while it made the task, or whose client did: containerd knows of no task, and
// none can be made there. It is asked for only when nothing was let go of this
// task, so that a shim that is still there, and the process that it holds before
// its first step, may be ended. It removes what is empty or known, and nothing
// below a mount.
func (r *Runtime) clearBundle(ctx context.Context, err error, id string) bool {
	_, text, _ := strings.Cut(err.Error(), "failed to start shim: mkdir ")
	dir, _, ok := strings.Cut(text, ": file exists")
	ns := filepath.Base(filepath.Dir(dir))
	if !ok || filepath.Base(dir) != id || ns != r.cfg.Namespace || filepath.Base(filepath.Dir(filepath.Dir(dir))) != "io.containerd.runtime.v2.task" {
		return false
	}
	attempt, perr := cluster.ParseAttemptID(id)
	if perr != nil {
		return false
	}
	for _, pid := range r.shimsOf(id) {
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may be on its way out
	}
	if err := r.group(attempt).Kill(); err != nil {
		r.cfg.Log.Warn("cannot end what an earlier try left", "task", id, "err", err)
	}
	if _, err := os.Stat(filepath.Join(runcRoot, ns, id)); err == nil {
		cctx, cancel := context.WithTimeout(ctx, runcTimeout)
		defer cancel()
		out, err := exec.CommandContext(cctx, "runc", "--root", filepath.Join(runcRoot, ns), "delete", "--force", id).CombinedOutput()
		if err != nil {
			r.cfg.Log.Warn("cannot clear up an earlier try", "task", id, "err", err, "output", string(out))
		}
	}
	_ = unix.Unmount(filepath.Join(dir, "rootfs"), unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW) // of an image; else there is no mount
	for _, name := range bundleFiles {
		_ = os.Remove(filepath.Join(dir, name)) // what stays keeps the directory
	}
	err = os.Remove(dir)
	r.cfg.Log.Info("an earlier try was in the way of a task", "task", id, "dir", dir, "err", err)
	return err == nil
}

// runcRoot is where shims have runc keep its notes.
const runcRoot = "/run/containerd/runc"

// shimsOf returns the shims that our containerd started for a task.
func (r *Runtime) shimsOf(id string) []int {
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return nil
	}
	var out []int
	for _, path := range lines {
		data, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		args := strings.Split(string(data), "\x00")
		if !strings.HasPrefix(filepath.Base(args[0]), "containerd-shim-runc") || after(args, "-namespace") != r.cfg.Namespace ||
			after(args, "-id") != id || after(args, "-address") != r.cfg.Address {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil {
			out = append(out, pid)
		}
	}
	return out
}

// after returns the argument behind a flag.
func after(args []string, flag string) string {
	if i := slices.Index(args, flag); i >= 0 && i+1 < len(args) {
		return args[i+1]
	}
	return ""
}
