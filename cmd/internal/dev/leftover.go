package dev

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/berth-scheduler/berth/agent/containerdrt/daemon"
	"github.com/berth-scheduler/berth/agent/containerdrt/gates"
	"github.com/berth-scheduler/berth/agent/launcher"
	"github.com/berth-scheduler/berth/agent/processrt"
)

// temporary begins the names of temporary directories.
const temporary = "berth-dev-"

// occupy marks a directory as one in which a cluster runs, for as long as the file is open. It
// returns nil if another has it.
func occupy(dir string) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil { // #nosec G115 -- a file's number
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, nil //nolint:nilnil // as documented
		}
		return nil, err
	}
	return f, nil
}

// clearDead removes what this user's clusters in temporary directories left behind that ended
// without Stop, as by SIGKILL: their jobs, control groups, mounts and files.
func (o *Options) clearDead() {
	dirs, _ := filepath.Glob(filepath.Join(os.TempDir(), temporary+"*"))
	for _, dir := range dirs {
		var st syscall.Stat_t
		if dir == o.Dir || syscall.Lstat(dir, &st) != nil || st.Mode&syscall.S_IFMT != syscall.S_IFDIR || int(st.Uid) != os.Geteuid() {
			continue
		}
		if _, err := os.Stat(filepath.Join(dir, "c1")); err != nil {
			continue // of something else, or about to be a cluster's
		}
		f, err := occupy(dir)
		if f != nil && !answers(dir) {
			err = (&Options{Dir: dir}).clear()
		}
		if f != nil {
			f.Close()
		}
		if err != nil {
			fmt.Fprintf(o.Log, "what a killed cluster left in %s is not all removed: %v\n", dir, err)
		}
	}
}

// answers reports whether a coordinator of a directory runs.
func answers(dir string) bool {
	c, err := net.Dial("unix", filepath.Join(dir, "c1.sock"))
	if err != nil {
		return false
	}
	c.Close()
	return true
}

// clear removes all that is left of a cluster whose daemons have ended.
func (o *Options) clear() error {
	var errs []error
	stores, _ := filepath.Glob(filepath.Join(o.Dir, "*", "data", "process"))
	for _, dir := range stores {
		errs = append(errs, processrt.StopKeeper(dir))
	}
	if dir := filepath.Join(o.Dir, "containerd"); isDir(dir) {
		errs = append(errs, daemon.End(dir))
	}
	scripts, _ := filepath.Glob(filepath.Join(o.Dir, "*-scripts"))
	for _, dir := range scripts {
		errs = append(errs, launcher.LeaveRooms(dir), o.leaveNamespace(filepath.Base(dir[:len(dir)-len("-scripts")])))
	}
	return errors.Join(append(errs, o.removeGroups(), os.RemoveAll(o.Dir))...)
}

func isDir(path string) bool {
	st, err := os.Lstat(path)
	return err == nil && st.IsDir()
}

// leaveNamespace removes what runc and agents keep of containers that ended with their shims.
func (o *Options) leaveNamespace(node string) error {
	g := gates.Gates{Root: filepath.Join("/run/containerd/runc", o.namespace(node)), Namespace: o.namespace(node)}
	return errors.Join(os.RemoveAll(g.Root), g.Clear())
}
