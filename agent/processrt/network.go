package processrt

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/berth-scheduler/berth/agent/launch"
	"github.com/berth-scheduler/berth/cluster"
)

// checkContainer rejects what only a container can provide.
func checkContainer(l *launch.Launch) error {
	switch {
	case l.ShmBytes > 0:
		return &launch.Error{Code: 125, Reason: "SHM", Err: errors.New("this node runs jobs without containers, and they share its /dev/shm; drop --shm")}
	case l.Network == cluster.NetNone && os.Getuid() != 0:
		return &launch.Error{Code: 125, Reason: "NETWORK", Err: errors.New("an agent that is not root cannot keep a job from the network; drop --net none")}
	}
	return nil
}

// loopback brings up the only interface of a process's network namespace, as in a
// container. It runs on an OS thread of its own, which ends with it: no other goroutine
// ever runs in that namespace.
func loopback(pid int) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked
		done <- loopbackHere(fmt.Sprintf("/proc/%d/ns/net", pid))
	}()
	if err := <-done; err != nil {
		return fmt.Errorf("bring up the loopback interface: %w", err)
	}
	return nil
}

func loopbackHere(namespace string) error {
	ns, err := os.Open(namespace)
	if err != nil {
		return err
	}
	defer ns.Close()
	if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter its network: %w", err)
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	req, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	req.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	// #nosec G103 -- x/sys/unix has the request, but no call that sets flags
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCSIFFLAGS, uintptr(unsafe.Pointer(req))); errno != 0 {
		return errno
	}
	return nil
}
