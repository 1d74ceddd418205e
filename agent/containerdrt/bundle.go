package containerdrt

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// bundleFiles are what containerd and a shim put into a task's directory.
var bundleFiles = []string{
	"config.json", "options.json", "runtime", "rootfs", "work", "log", "log.json", "address", "shim-binary-path", "shim.pid", "init.pid", "bootstrap.json",
}

const runcTimeout = 10 * time.Second

// removeBundle removes a task's directory that nobody uses: what is empty or
// known, and nothing below a mount.
func removeBundle(dir string) error {
	_ = unix.Unmount(filepath.Join(dir, "rootfs"), unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW) // of an image; else there is no mount
	for _, name := range bundleFiles {
		_ = os.Remove(filepath.Join(dir, name)) // what stays keeps the directory
	}
	return os.Remove(dir)
}

// runcRoot is where shims have runc keep its notes.
const runcRoot = "/run/containerd/runc"

// allShims returns the shims that our containerd started, by their containers.
func (r *Runtime) allShims() map[string][]int {
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return nil
	}
	out := map[string][]int{}
	for _, path := range lines {
		data, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		args := strings.Split(string(data), "\x00")
		if !strings.HasPrefix(filepath.Base(args[0]), "containerd-shim-runc") || after(args, "-namespace") != r.cfg.Namespace || after(args, "-address") != r.cfg.Address {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil {
			name := after(args, "-id")
			out[name] = append(out[name], pid)
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
