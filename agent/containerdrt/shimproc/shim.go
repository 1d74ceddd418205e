// Package shimproc finds the processes that containerd starts next to containers, and
// removes what they leave behind. Any user can start a process with any arguments; this
// package believes only what is certain to be root's.
package shimproc

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/berth-scheduler/berth/agent/proc"
)

// Shim is a process that runs containers for a containerd.
type Shim struct {
	PID int
	// Namespace and ID are the container's, Address is the socket of its containerd.
	Namespace, ID, Address string
	// Dir is its working directory, which is the bundle of its task.
	Dir string
}

// All returns the shims of the containerd with this address.
func All(address string) ([]Shim, error) {
	dirs, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var out []Shim
	for _, d := range dirs {
		pid, err := strconv.Atoi(d.Name())
		if err != nil {
			continue
		}
		if s, ok := Of(pid); ok && s.Address == address {
			out = append(out, s)
		}
	}
	return out, nil
}

// Kill ends the shim, if its pid is still its own.
func (s Shim) Kill() error {
	p, err := os.FindProcess(s.PID) // refers to the process, not to its pid
	if err != nil {
		return err
	}
	defer p.Release()
	if now, ok := Of(s.PID); !ok || now != s {
		return os.ErrProcessDone
	}
	return p.Signal(syscall.SIGKILL)
}

// Of reports which shim process pid is, if it is one. The cheapest check, which nearly all
// fail, comes first.
func Of(pid int) (Shim, bool) {
	base := "/proc/" + strconv.Itoa(pid)
	data, err := os.ReadFile(base + "/cmdline")
	if err != nil {
		return Shim{}, false
	}
	args := strings.Split(string(data), "\x00")
	if !named(args[0]) || !genuine(pid) {
		return Shim{}, false
	}
	s := Shim{PID: pid, Namespace: after(args, "-namespace"), ID: after(args, "-id"), Address: after(args, "-address")}
	if s.Dir, err = os.Readlink(base + "/cwd"); err != nil {
		return Shim{}, false
	}
	return s, true
}

func named(path string) bool { return strings.HasPrefix(filepath.Base(path), "containerd-shim") }

// after returns the argument that follows a flag.
func after(args []string, flag string) string {
	if i := slices.Index(args, flag); i >= 0 && i+1 < len(args) {
		return args[i+1]
	}
	return ""
}

// genuine reports whether all ids of pid are root's, it sees the same files as we do, and
// it runs a program that is called a shim and that only root can have put where it is.
// Being root's is not enough: users start setuid programs, with any arguments and in a
// directory of their own.
func genuine(pid int) bool {
	base := "/proc/" + strconv.Itoa(pid)
	uids, err := proc.UIDs(pid)
	if err != nil || uids != [4]uint32{} {
		return false
	}
	theirs, err := os.Readlink(base + "/ns/mnt")
	ours, oerr := os.Readlink("/proc/self/ns/mnt")
	if err != nil || oerr != nil || theirs != ours {
		return false
	}
	exe, err := os.Readlink(base + "/exe")
	exe = strings.TrimSuffix(exe, " (deleted)") // after an upgrade
	return err == nil && filepath.IsAbs(exe) && named(exe) && rootsOnly(filepath.Dir(exe)) == nil
}

// rootsOnly returns an error unless only root can change what is below a directory, judging
// by the directory and all its parents.
func rootsOnly(dir string) error {
	for at := filepath.Clean(dir); ; at = filepath.Dir(at) {
		var st unix.Stat_t
		if err := unix.Lstat(at, &st); err != nil {
			return &os.PathError{Op: "stat", Path: at, Err: err}
		}
		shared := st.Mode&0o022 != 0 && (st.Mode&unix.S_ISVTX == 0 || at == dir)
		if st.Mode&unix.S_IFMT != unix.S_IFDIR || st.Uid != 0 || shared {
			return fmt.Errorf("%s is not a directory of root's alone", at)
		}
		if at == "/" {
			return nil
		}
	}
}
