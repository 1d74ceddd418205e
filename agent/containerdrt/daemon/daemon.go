// Package daemon starts a private containerd, for development clusters and tests: with its
// own state and socket, and nothing left when it stops.
package daemon

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-scheduler/berth/agent/containerdrt/shimproc"
)

// Config describes a Daemon.
type Config struct {
	// Dir holds all its state; the path must be short, since it contains sockets.
	Dir string
}

// Daemon is a running containerd.
type Daemon struct {
	dir  string
	cmd  *exec.Cmd
	done chan struct{}
}

const (
	// maxSocketPath is what fits into sockaddr_un with its terminating NUL.
	maxSocketPath = 107
	startTimeout  = 2 * time.Minute
	stopTimeout   = 10 * time.Second
)

const config = `version = 2
root = %q
state = %q
disabled_plugins = ["io.containerd.grpc.v1.cri", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.internal.v1.tracing", "io.containerd.tracing.processor.v1.otlp"]
oom_score = 0
[grpc]
  address = %q
[ttrpc]
  address = %q
`

// Installed reports what is missing on this machine.
func Installed() error {
	for _, b := range []string{"containerd", "containerd-shim-runc-v2", "runc"} {
		if _, err := exec.LookPath(b); err != nil {
			return fmt.Errorf("%s is not installed; on Debian: apt-get install containerd runc", b)
		}
	}
	return nil
}

// Start runs containerd and waits until it answers.
func Start(ctx context.Context, cfg Config) (*Daemon, error) {
	if err := Installed(); err != nil {
		return nil, err
	}
	if n := len(filepath.Join(cfg.Dir, "ttrpc.sock")); n > maxSocketPath {
		return nil, fmt.Errorf("directory %s is too long for sockets by %d bytes; choose a shorter one", cfg.Dir, n-maxSocketPath)
	}
	d := &Daemon{dir: cfg.Dir}
	if err := os.MkdirAll(cfg.Dir, 0o711); err != nil {
		return nil, err
	}
	text := fmt.Sprintf(config, d.path("root"), d.path("state"), d.Socket(), d.path("ttrpc.sock"))
	if err := os.WriteFile(d.path("config.toml"), []byte(text), 0o600); err != nil {
		return nil, err
	}
	return d, d.Restart(ctx)
}

func (d *Daemon) path(parts ...string) string {
	return filepath.Join(append([]string{d.dir}, parts...)...)
}

// Socket returns the path of containerd's socket.
func (d *Daemon) Socket() string { return d.path("c.sock") }

// Restart starts containerd again after Kill; containers have kept running.
func (d *Daemon) Restart(ctx context.Context) error {
	log, err := os.OpenFile(d.path("log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	d.cmd = exec.Command("containerd", "--config", d.path("config.toml"))
	d.cmd.Stdout, d.cmd.Stderr = log, log
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := d.cmd.Start(); err != nil {
		return fmt.Errorf("start containerd: %w", err)
	}
	done, cmd := make(chan struct{}), d.cmd
	d.done = done
	go func() { _ = cmd.Wait(); close(done) }()
	deadline := time.After(startTimeout)
	for {
		if c, err := net.Dial("unix", d.Socket()); err == nil {
			return c.Close()
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), d.Stop())
		case <-done:
			return fmt.Errorf("containerd ended at once; its log is %s", log.Name())
		case <-deadline:
			return errors.Join(fmt.Errorf("containerd does not answer within %s; its log is %s", startTimeout, log.Name()), d.Stop())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// Kill ends containerd as a crash would. Shims and containers keep running.
func (d *Daemon) Kill() error {
	err := d.cmd.Process.Kill()
	<-d.done
	return err
}

// Stop ends every container, containerd and every shim that it started, and unmounts what
// they left.
func (d *Daemon) Stop() error {
	select {
	case <-d.done: // it was killed
	default:
		// killShims ends whatever this leaves.
		_ = d.clear()
	}
	_ = d.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-d.done:
	case <-time.After(stopTimeout):
		_ = d.cmd.Process.Kill()
		<-d.done
	}
	return errors.Join(d.killShims(), d.unmount())
}

// End ends what Start began with the directory dir in a process that was killed, and unmounts
// what is left of it.
func End(dir string) error {
	d := &Daemon{dir: dir}
	if c, err := net.Dial("unix", d.Socket()); err == nil {
		defer c.Close()
		if err := endPeer(c.(*net.UnixConn)); err != nil {
			return err
		}
	}
	return errors.Join(d.killShims(), d.unmount())
}

// endPeer kills the process at the other end of c, and waits until it has closed it.
func endPeer(c *net.UnixConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var peer *unix.Ucred
	if ctl := raw.Control(func(fd uintptr) {
		peer, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) // #nosec G115 -- a file's number
	}); ctl != nil || err != nil {
		return errors.Join(ctl, err)
	}
	if err := syscall.Kill(int(peer.Pid), syscall.SIGKILL); err != nil {
		return fmt.Errorf("end containerd: %w", err)
	}
	_, err = io.Copy(io.Discard, c)
	if errors.Is(err, syscall.ECONNRESET) {
		return nil
	}
	return err
}

// killShims ends the shims of this containerd, and with them their containers.
func (d *Daemon) killShims() error {
	for range 50 {
		shims, err := d.shims()
		if err != nil || len(shims) == 0 {
			return err
		}
		for _, s := range shims {
			if err := killContainer(s); err != nil {
				return err
			}
		}
		time.Sleep(20 * time.Millisecond)
	}
	return errors.New("shims of the containerd do not end")
}

func (d *Daemon) shims() ([]shimproc.Shim, error) { return shimproc.All(d.Socket()) }

func children(pid int) []int {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return nil
	}
	var out []int
	for _, f := range strings.Fields(string(data)) {
		if n, err := strconv.Atoi(f); err == nil {
			out = append(out, n)
		}
	}
	return out
}

// unmount detaches what is mounted below the directory, deepest first.
func (d *Daemon) unmount() error {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	defer f.Close()
	var points []string
	sc := bufio.NewScanner(f)
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		if fields := strings.Fields(sc.Text()); len(fields) > 4 && strings.HasPrefix(fields[4], d.dir+"/") {
			points = append(points, fields[4])
		}
	}
	if err := sc.Err(); err != nil {
		return err
	}
	var errs []error
	for i := len(points) - 1; i >= 0; i-- {
		if err := syscall.Unmount(points[i], syscall.MNT_DETACH); err != nil && !errors.Is(err, syscall.EINVAL) && !errors.Is(err, syscall.ENOENT) {
			errs = append(errs, fmt.Errorf("unmount %s: %w", points[i], err))
		}
	}
	return errors.Join(errs...)
}
