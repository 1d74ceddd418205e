package doctor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Disk is the free space of a file system.
type Disk struct {
	// Type is the kernel's magic number of the file system.
	Type int64
	// Bytes and Inodes are totals, and the others what is free for users other
	// than root. Inodes is 0 if the file system has no fixed number.
	Bytes, FreeBytes, Inodes, FreeInodes uint64
}

// Clock is how far another clock is ahead of ours, give or take Bound.
type Clock struct{ Ahead, Bound time.Duration }

// Host is a machine as the checks see it. Its functions must not be nil; see
// System.
type Host struct {
	// Root is prefixed to paths of files; "" is the machine itself.
	Root string
	Now  func() time.Time
	// Run returns a program's standard output.
	Run func(ctx context.Context, name string, args ...string) (string, error)
	// Disk describes the file system that holds a path, which is below Root.
	Disk func(path string) (Disk, error)
	// Dial connects to an address or a unix socket; Listen tests whether an
	// address is free, "tcp" or "udp".
	Dial   func(ctx context.Context, network, addr string) error
	Listen func(network, addr string) error
	// NodeClock and UserClock ask a coordinator for its time: by its address
	// with the daemon's certificate, and through its socket for users.
	NodeClock, UserClock func(ctx context.Context, addr string) (Clock, error)
	// Metrics opens what a daemon of this machine exports at an address.
	Metrics func(ctx context.Context, addr string) (io.ReadCloser, error)
	// LookupUser resolves a uid through the name service.
	LookupUser func(uid string) (name string, err error)
	// Release returns the kernel's release.
	Release func() string
}

// System returns this machine. The two functions ask coordinators for their time.
func System(node, users func(ctx context.Context, addr string) (Clock, error)) *Host {
	return &Host{
		Now: time.Now, NodeClock: node, UserClock: users, Run: run, Disk: disk, Listen: listen, Metrics: metrics, Release: release,
		Dial: func(ctx context.Context, network, addr string) error {
			c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
			if err != nil {
				return err
			}
			return c.Close()
		},
		LookupUser: func(uid string) (string, error) {
			u, err := user.LookupId(uid)
			if err != nil {
				return "", err
			}
			return u.Username, nil
		},
	}
}

// errAbsent is Run's error for a missing program.
var errAbsent = errors.New("not installed, or not in the PATH")

func run(ctx context.Context, name string, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, name, args...).Output()
	if errors.Is(err, exec.ErrNotFound) {
		return "", fmt.Errorf("%s %w", name, errAbsent)
	}
	return strings.TrimSpace(string(out)), err
}

func disk(path string) (Disk, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return Disk{}, err
	}
	size := uint64(st.Bsize)
	return Disk{Type: int64(st.Type), Bytes: st.Blocks * size, FreeBytes: st.Bavail * size, Inodes: st.Files, FreeInodes: st.Ffree}, nil
}

func listen(network, addr string) error {
	if network == "udp" {
		c, err := net.ListenPacket(network, addr)
		if err != nil {
			return err
		}
		return c.Close()
	}
	l, err := net.Listen(network, addr)
	if err != nil {
		return err
	}
	return l.Close()
}

func release() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Release[:])
}

// path returns the location of one of the host's files.
func (h *Host) path(p string) string { return filepath.Join(h.Root, p) }

// read returns a small file, "" if it cannot be read.
func (h *Host) read(p string) string {
	data, err := os.ReadFile(h.path(p))
	if err != nil {
		return ""
	}
	return string(data)
}

func (h *Host) exists(p string) bool {
	_, err := os.Lstat(h.path(p))
	return err == nil
}

// mount is a line of /proc/self/mountinfo.
type mount struct {
	point, kind string
	options     []string // of the mount and of the file system
	super       string
}

// mounts lists the mounts, in order.
func (h *Host) mounts() []mount {
	var out []mount
	for line := range strings.Lines(h.read("/proc/self/mountinfo")) {
		pre, post, found := strings.Cut(strings.TrimSpace(line), " - ")
		f, g := strings.Fields(pre), strings.Fields(post)
		if !found || len(f) < 6 || len(g) < 3 {
			continue
		}
		out = append(out, mount{
			point: strings.ReplaceAll(f[4], `\040`, " "), kind: g[0], super: g[2],
			options: append(strings.Split(f[5], ","), strings.Split(g[2], ",")...),
		})
	}
	return out
}

// mountOf returns the mount that holds a path.
func (h *Host) mountOf(p string) (mount, bool) {
	var best mount
	found := false
	for _, m := range h.mounts() { // a later one on the same point hides an earlier one
		if (p == m.point || m.point == "/" || strings.HasPrefix(p, m.point+"/")) && len(m.point) >= len(best.point) {
			best, found = m, true
		}
	}
	return best, found
}

// networked reports whether a file system of this type is on other machines.
func networked(kind string) bool {
	switch kind {
	case "nfs", "nfs4", "cifs", "smb3", "lustre", "gpfs", "beegfs", "ceph", "glusterfs", "fuse.glusterfs", "afs", "9p", "wekafs", "panfs", "orangefs":
		return true
	}
	return strings.HasPrefix(kind, "fuse.") && strings.Contains(kind, "ssh")
}
