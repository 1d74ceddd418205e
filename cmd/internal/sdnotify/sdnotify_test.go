package sdnotify_test

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/cmd/internal/sdnotify"
)

func env(m map[string]string) func(string) string { return func(k string) string { return m[k] } }

// listen stands in for systemd.
func listen(t *testing.T, name string) *net.UnixConn {
	t.Helper()
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func receive(t *testing.T, conn *net.UnixConn) string {
	t.Helper()
	if err := conn.SetReadDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 1024)
	n, err := conn.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	return string(buf[:n])
}

func TestSend(t *testing.T) {
	abstract := "@berth-sdnotify-test-" + strings.ReplaceAll(filepath.Base(t.TempDir()), "/", "-") + time.Now().Format("150405.000000")
	for name, socket := range map[string]string{"path": filepath.Join(t.TempDir(), "notify"), "abstract": abstract} {
		t.Run(name, func(t *testing.T) {
			systemd := listen(t, socket)
			n, err := sdnotify.FromEnv(env(map[string]string{"NOTIFY_SOCKET": socket}), 1)
			if err != nil || !n.Enabled() {
				t.Fatalf("enabled %v, %v", n.Enabled(), err)
			}
			if err := n.Send(sdnotify.Ready, "STATUS=leader"); err != nil {
				t.Fatal(err)
			}
			if got, want := receive(t, systemd), "READY=1\nSTATUS=leader"; got != want {
				t.Errorf("systemd got %q, want %q", got, want)
			}
		})
	}
}

func TestWithoutSystemd(t *testing.T) {
	n, err := sdnotify.FromEnv(env(nil), 1)
	if err != nil || n.Enabled() {
		t.Fatalf("enabled %v, %v", n.Enabled(), err)
	}
	if err := n.Send(sdnotify.Ready); err != nil {
		t.Errorf("Send: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := n.RunWatchdog(ctx, func() bool { t.Error("asked without a watchdog"); return true }); !errors.Is(err, context.Canceled) {
		t.Errorf("RunWatchdog: %v", err)
	}
}

func TestFromEnvRefuses(t *testing.T) {
	for name, m := range map[string]map[string]string{
		"relative socket":   {"NOTIFY_SOCKET": "notify"},
		"watchdog text":     {"NOTIFY_SOCKET": "/n", "WATCHDOG_USEC": "soon"},
		"watchdog negative": {"NOTIFY_SOCKET": "/n", "WATCHDOG_USEC": "-1"},
		"watchdog overflow": {"NOTIFY_SOCKET": "/n", "WATCHDOG_USEC": "9223372036854775807"},
	} {
		if _, err := sdnotify.FromEnv(env(m), 1); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	n, err := sdnotify.FromEnv(env(map[string]string{"NOTIFY_SOCKET": filepath.Join(t.TempDir(), "gone")}), 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Send(sdnotify.Ready); err == nil {
		t.Error("nobody listens, and Send says nothing")
	}
}

// TestWatchdog: systemd hears from a daemon that lives, and no more from one
// that does not.
func TestWatchdog(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "notify")
	systemd := listen(t, socket)
	n, err := sdnotify.FromEnv(env(map[string]string{"NOTIFY_SOCKET": socket, "WATCHDOG_USEC": "20000", "WATCHDOG_PID": "7"}), 7)
	if err != nil {
		t.Fatal(err)
	}
	var alive atomic.Bool
	alive.Store(true)
	asked := make(chan struct{}, 1000)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- n.RunWatchdog(ctx, func() bool { asked <- struct{}{}; return alive.Load() })
	}()
	if got := receive(t, systemd); got != "WATCHDOG=1" {
		t.Errorf("systemd got %q", got)
	}
	alive.Store(false)
	for len(asked) > 0 {
		<-asked
	}
	for range 2 { // the second comes after all that the first may have sent
		<-asked
	}
	drain(t, systemd)
	for range 3 {
		<-asked
	}
	if n := drain(t, systemd); n != 0 {
		t.Errorf("%d messages of a daemon that is not alive", n)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("RunWatchdog: %v", err)
	}
	other, err := sdnotify.FromEnv(env(map[string]string{"NOTIFY_SOCKET": socket, "WATCHDOG_USEC": "20000", "WATCHDOG_PID": "8"}), 7)
	if err != nil || other != mustPlain(t, socket) {
		t.Errorf("another process's watchdog: %+v, %v", other, err)
	}
}

func mustPlain(t *testing.T, socket string) sdnotify.Notifier {
	t.Helper()
	n, err := sdnotify.FromEnv(env(map[string]string{"NOTIFY_SOCKET": socket}), 7)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// drain reads what has arrived already, and counts it.
func drain(t *testing.T, conn *net.UnixConn) int {
	t.Helper()
	for n := 0; ; n++ {
		if err := conn.SetReadDeadline(time.Now().Add(time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Read(make([]byte, 64)); err != nil {
			return n
		}
	}
}
