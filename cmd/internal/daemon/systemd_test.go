package daemon

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/berth-scheduler/berth/cmd/internal/sdnotify"
)

// systemd listens as systemd does; told returns the next message.
func systemd(t *testing.T) (n sdnotify.Notifier, told func() string) {
	t.Helper()
	t.Setenv("NOTIFY_SOCKET", filepath.Join(t.TempDir(), "notify"))
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: os.Getenv("NOTIFY_SOCKET"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if n, err = sdnotify.FromEnv(os.Getenv, os.Getpid()); err != nil {
		t.Fatal(err)
	}
	return n, func() string {
		t.Helper()
		buf := make([]byte, 1024)
		got, err := conn.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		return string(buf[:got])
	}
}

func TestSystemdIsToldOfStartAndStop(t *testing.T) {
	_, told := systemd(t)
	s, err := newService(slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	g, ctx := errgroup.WithContext(ctx)
	if err := s.run(ctx, g, "", nil); err != nil {
		t.Fatal(err)
	}
	if got := told(); got != "READY=1" {
		t.Fatalf("at the start systemd was told %q", got)
	}
	stop()
	if err := g.Wait(); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if got := told(); got != "STOPPING=1" {
		t.Fatalf("at the end systemd was told %q", got)
	}
}

func TestSystemdIsToldOfReloads(t *testing.T) {
	n, told := systemd(t)
	x := startReloads(t, minimal)
	x.r.notify = n
	for _, content := range []string{minimal, "nonsense"} {
		x.reload(content)
		if first, second := told(), told(); first != "RELOADING=1" || second != "READY=1" {
			t.Fatalf("reading %q, systemd was told %q, %q", content, first, second)
		}
	}
}
