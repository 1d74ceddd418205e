// Package sdnotify reports a daemon's state to systemd, by the protocol of
// sd_notify(3).
package sdnotify

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"
)

// States to send.
const (
	Ready     = "READY=1"
	Stopping  = "STOPPING=1"
	Reloading = "RELOADING=1"
	watchdog  = "WATCHDOG=1"
)

// Notifier sends states to the service manager. The zero Notifier, for
// systems without systemd, sends nothing. It is safe for concurrent use.
type Notifier struct {
	socket   string
	interval time.Duration
}

// FromEnv returns a Notifier from NOTIFY_SOCKET and WATCHDOG_USEC, as getenv
// returns them. A watchdog for another process (WATCHDOG_PID) is ignored.
func FromEnv(getenv func(string) string, pid int) (Notifier, error) {
	n := Notifier{socket: getenv("NOTIFY_SOCKET")}
	if n.socket == "" {
		return n, nil
	}
	if n.socket[0] != '/' && n.socket[0] != '@' {
		return Notifier{}, fmt.Errorf("NOTIFY_SOCKET %.100q is neither a path nor an abstract address", n.socket)
	}
	usec := getenv("WATCHDOG_USEC")
	if usec == "" {
		return n, nil
	}
	if p := getenv("WATCHDOG_PID"); p != "" && p != strconv.Itoa(pid) {
		return n, nil
	}
	us, err := strconv.ParseInt(usec, 10, 64)
	if err != nil || us <= 0 || us > int64(24*time.Hour/time.Microsecond) {
		return Notifier{}, fmt.Errorf("WATCHDOG_USEC %.100q is no number of microseconds up to a day", usec)
	}
	// Half the time allowed, as sd_watchdog_enabled(3) advises.
	n.interval = time.Duration(us) * time.Microsecond / 2
	return n, nil
}

// Enabled reports whether a service manager listens.
func (n Notifier) Enabled() bool { return n.socket != "" }

// Send sends states, such as Ready, in one message.
func (n Notifier) Send(states ...string) error {
	if !n.Enabled() {
		return nil
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: n.socket, Net: "unixgram"})
	if err != nil {
		return fmt.Errorf("notify systemd: %w", err)
	}
	_, err = conn.Write([]byte(strings.Join(states, "\n")))
	if err := errors.Join(err, conn.Close()); err != nil {
		return fmt.Errorf("notify systemd: %w", err)
	}
	return nil
}

// RunWatchdog notifies systemd twice per watchdog interval if alive returns
// true, until ctx ends; it returns ctx's cause. When alive returns false, or
// does not return, systemd restarts the daemon. Without a watchdog it waits
// for ctx.
func (n Notifier) RunWatchdog(ctx context.Context, alive func() bool) error {
	if n.interval == 0 {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	tick := time.NewTicker(n.interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
			if !alive() {
				continue
			}
			if err := n.Send(watchdog); err != nil {
				return err
			}
		}
	}
}
