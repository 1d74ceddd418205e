package containerdrt

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/berth-scheduler/berth/agent/asuser"
	"github.com/berth-scheduler/berth/agent/jobside"
	"github.com/berth-scheduler/berth/agent/launch"
	"github.com/berth-scheduler/berth/cluster"
)

func mountError(err error) error {
	return &launch.Error{Code: 125, Reason: "MOUNT", Err: err}
}

// binds are the sources of a launch's bind mounts. Each is opened with the user's rights,
// the only way to reach a home on NFS with root_squash, and what was opened and checked is
// bound to a place of ours, from which runc binds it: whatever happens to the path
// meanwhile, nothing else is mounted. (runc cannot take a descriptor of ours: the kernel
// binds nothing from another mount namespace.) The places are read-only, so that removing
// our directory removes no user's file, and are removed when runc is done.
type binds struct {
	dir   string
	files []*os.File
	specs []specs.Mount
}

// close removes the places. Those that cannot be removed now are removed with the task.
func (b *binds) close() error {
	for _, f := range b.files {
		_ = f.Close() // nothing is read or written through it
	}
	return unstage(b.dir)
}

// binder opens the sources of bind mounts.
type binder struct {
	cfg   *Config
	waits *asuser.Waits
}

func (m binder) dir(id cluster.AttemptID) string {
	return filepath.Join(m.cfg.Dir, "binds", id.String())
}

// open checks and opens what l mounts. The caller closes the result.
func (m binder) open(l *launch.Launch) (*binds, error) {
	b := &binds{dir: m.dir(l.ID)}
	if err := unstage(b.dir); err != nil { // left by an agent that died
		return nil, err
	}
	taken := map[string]struct{}{}
	for i, mt := range l.Mounts {
		if err := m.openOne(l, mt, taken, b); err != nil {
			if !errors.Is(err, asuser.ErrSilent) { // which may pass
				err = mountError(err)
			}
			return nil, errors.Join(err, b.close())
		}
		place := filepath.Join(b.dir, strconv.Itoa(i))
		if err := stage(b.files[i], place); err != nil {
			return nil, errors.Join(err, b.close())
		}
		mode := "rw"
		if mt.ReadOnly {
			mode = "ro"
		}
		b.specs = append(b.specs, specs.Mount{
			Destination: mt.Target, Type: "bind", Source: place, Options: []string{"rbind", "rprivate", "nosuid", "nodev", mode},
		})
	}
	return b, nil
}

func (m binder) openOne(l *launch.Launch, mt launch.Mount, taken map[string]struct{}, b *binds) error {
	if err := checkTarget(mt.Target, taken); err != nil {
		return err
	}
	if !mt.Own {
		if err := m.allowed(mt.Source); err != nil {
			return err
		}
	}
	f, err := asuser.Await(m.waits, asuser.User(l), func() (*os.File, error) { return asuser.OpenPath(mt.Source) }, func(f *os.File) { f.Close() })
	if err != nil {
		return fmt.Errorf("source: %w", err)
	}
	b.files = append(b.files, f)
	return mountable(f)
}

// stage binds an open file or directory to a place.
func stage(f *os.File, place string) error {
	var st unix.Stat_t
	err := errors.Join(unix.Fstat(int(f.Fd()), &st), os.MkdirAll(filepath.Dir(place), 0o700))
	if err == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR {
		err = os.Mkdir(place, 0o700)
	} else if err == nil {
		err = os.WriteFile(place, nil, 0o600)
	}
	if err == nil {
		err = unix.Mount(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), place, "", unix.MS_BIND|unix.MS_REC, "")
	}
	if err == nil {
		err = unix.Mount("", place, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV, "")
	}
	if err != nil {
		return fmt.Errorf("stage mount of %s: %w", f.Name(), err)
	}
	return nil
}

// unstage removes the places of one launch: only mounts, empty directories and empty files.
func unstage(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		place := filepath.Join(dir, e.Name())
		if err := unix.Unmount(place, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("unmount %s: %w", place, err)
		}
		if err := os.Remove(place); err != nil {
			return err
		}
	}
	return os.Remove(dir)
}

// allowed reports whether the node's policy allows a source.
func (m binder) allowed(source string) error {
	clean := filepath.Clean(source)
	if !filepath.IsAbs(source) || slices.Contains(strings.Split(source, "/"), "..") {
		return fmt.Errorf("source %q: want an absolute path with no .. in it", source)
	}
	for _, dir := range m.cfg.Policy.Mounts {
		if within(clean, dir) {
			return nil
		}
	}
	if len(m.cfg.Policy.Mounts) == 0 {
		return fmt.Errorf("source %s: this node mounts no directories into containers (containers.mounts in its agent.yaml)", clean)
	}
	return fmt.Errorf("source %s: this node mounts only what lies below %s (containers.mounts in its agent.yaml)", clean, strings.Join(m.cfg.Policy.Mounts, ", "))
}

// ownTargets are paths in a container that only we may fill.
var ownTargets = []string{"/proc", "/sys", "/dev", "/etc/hosts", "/etc/resolv.conf", jobside.Dir}

func checkTarget(target string, taken map[string]struct{}) error {
	clean := filepath.Clean(target)
	if !filepath.IsAbs(target) || clean == "/" || slices.Contains(strings.Split(target, "/"), "..") {
		return fmt.Errorf("target %q: want an absolute path in the container other than /, with no .. in it", target)
	}
	for _, own := range ownTargets {
		if within(clean, own) || within(own, clean) {
			return fmt.Errorf("target %s would hide %s of the container", clean, own)
		}
	}
	if _, dup := taken[clean]; dup {
		return fmt.Errorf("target %s is named twice", clean)
	}
	taken[clean] = struct{}{}
	return nil
}

// mountable rejects what is not data: sockets, devices, and the kernel's own file systems
// wherever they are mounted.
func mountable(f *os.File) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return fmt.Errorf("source %s: %w", f.Name(), err)
	}
	if kind := st.Mode & unix.S_IFMT; kind != unix.S_IFDIR && kind != unix.S_IFREG {
		return fmt.Errorf("source %s is neither a directory nor a plain file", f.Name())
	}
	var vol unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &vol); err != nil {
		return fmt.Errorf("source %s: %w", f.Name(), err)
	}
	switch int64(vol.Type) {
	case unix.PROC_SUPER_MAGIC, unix.SYSFS_MAGIC, unix.CGROUP_SUPER_MAGIC, unix.CGROUP2_SUPER_MAGIC,
		unix.DEVPTS_SUPER_MAGIC, unix.DEBUGFS_MAGIC, unix.TRACEFS_MAGIC, unix.SECURITYFS_MAGIC, unix.BPF_FS_MAGIC:
		return fmt.Errorf("source %s is a file system of the kernel's", f.Name())
	}
	return nil
}

func workDirError(err error) error {
	return &launch.Error{Code: 125, Reason: "WORKDIR", Err: err}
}

// barredDirs mean something different to each process.
var barredDirs = []string{"/proc", "/sys", "/dev"}

// freshDirs are empty when an image job starts.
var freshDirs = []string{"/tmp", "/run"}

// checkWorkDir checks that the working directory of an image job exists in its root, which
// look opens, or in one of its mounts: runc would create a missing one, as root.
func checkWorkDir(l *launch.Launch, b *binds, look func(func(root *os.File) error) error) error {
	dir := filepath.Clean(l.Dir)
	if !filepath.IsAbs(l.Dir) {
		return workDirError(fmt.Errorf("%q is not an absolute path", l.Dir))
	}
	if dir == "/" {
		return nil
	}
	for _, bad := range barredDirs {
		if within(dir, bad) {
			return workDirError(fmt.Errorf("%s may not lie under %s", dir, bad))
		}
	}
	best := -1
	for i, m := range b.specs {
		if within(dir, filepath.Clean(m.Destination)) && (best < 0 || len(m.Destination) > len(b.specs[best].Destination)) {
			best = i
		}
	}
	if best >= 0 {
		rel, err := filepath.Rel(filepath.Clean(b.specs[best].Destination), dir)
		if err != nil {
			return workDirError(err)
		}
		return asuser.Do(asuser.User(l), func() error { return dirIn(b.files[best], rel, unix.RESOLVE_BENEATH, dir) })
	}
	for _, fresh := range freshDirs {
		if dir == fresh {
			return nil
		}
		if within(dir, fresh) {
			return workDirError(fmt.Errorf("%s does not exist: %s of a container begins empty", dir, fresh))
		}
	}
	return look(func(root *os.File) error { return dirIn(root, dir, unix.RESOLVE_IN_ROOT, dir) })
}

// dirIn reports whether path, described as shown, is a directory below root. Before Linux
// 5.6 nothing can tell, and runc decides; the same holds for a link from one mount into
// another.
func dirIn(root *os.File, path string, how uint64, shown string) error {
	fd, err := unix.Openat2(int(root.Fd()), path, &unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: how | unix.RESOLVE_NO_MAGICLINKS})
	switch {
	case err == nil:
		return unix.Close(fd)
	case errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EXDEV):
		return nil
	case errors.Is(err, unix.ENOENT):
		return workDirError(fmt.Errorf("%s does not exist in the container", shown))
	case errors.Is(err, unix.ENOTDIR):
		return workDirError(fmt.Errorf("%s is not a directory in the container", shown))
	default:
		return workDirError(fmt.Errorf("%s: %w", shown, err))
	}
}
