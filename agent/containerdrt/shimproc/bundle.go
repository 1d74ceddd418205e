package shimproc

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// tasks is the directory in containerd's state that holds the bundles, by namespace and
// container.
const tasks = "io.containerd.runtime.v2.task"

// bundleFiles are what containerd and a shim put into a task's directory.
var bundleFiles = []string{
	"config.json", "options.json", "runtime", "log", "log.json", "address", "shim-binary-path", "shim.pid", "init.pid", "bootstrap.json",
}

// RemoveBundle removes the directory of an unused task, in which the shim of container id
// of a namespace works or worked: only what is empty or known, and nothing below a mount. A
// directory that is not where containerd keeps its tasks, or that others than root could
// have put there, is left alone, which is an error. So is every directory before Linux 5.6,
// which cannot open one without following links.
func RemoveBundle(dir, namespace, id string) error {
	all := filepath.Dir(filepath.Dir(dir))
	if !plain(namespace) || !plain(id) || !filepath.IsAbs(dir) || filepath.Clean(dir) != dir ||
		filepath.Base(all) != tasks || dir != filepath.Join(all, namespace, id) {
		return fmt.Errorf("%s is not where containerd keeps task %s of namespace %s", dir, id, namespace)
	}
	if err := rootsOnly(all); err != nil {
		return err
	}
	top, err := openBelow(unix.AT_FDCWD, all, 0)
	if err != nil {
		return err
	}
	defer unix.Close(top)
	space, err := openBelow(top, namespace, unix.RESOLVE_BENEATH)
	if err != nil {
		return err
	}
	defer unix.Close(space)
	return removeIn(space, id)
}

func plain(name string) bool { return name != "" && name != ".." && filepath.Base(name) == name }

func removeIn(space int, id string) error {
	fd, err := openBelow(space, id, unix.RESOLVE_BENEATH|unix.RESOLVE_NO_XDEV)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	// Only of an image; otherwise there is no mount. Unmounting takes only names: this one
	// is looked up from the descriptor, and a link at its end is not followed.
	err = unix.Unmount("/proc/self/fd/"+strconv.Itoa(fd)+"/rootfs", unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("unmount the root of %s: %w", id, err)
	}
	for _, name := range bundleFiles {
		_ = unix.Unlinkat(fd, name, 0) // what remains keeps the directory
	}
	_ = unix.Unlinkat(fd, "rootfs", unix.AT_REMOVEDIR)
	_ = unix.Unlinkat(fd, "work", 0) // a link to containerd's own
	if err := unix.Unlinkat(space, id, unix.AT_REMOVEDIR); err != nil {
		return &os.PathError{Op: "remove", Path: id, Err: err}
	}
	return nil
}

func openBelow(at int, name string, how uint64) (int, error) {
	fd, err := unix.Openat2(at, name, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: how | unix.RESOLVE_NO_SYMLINKS,
	})
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return fd, nil
}
