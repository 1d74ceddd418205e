package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/berth-scheduler/berth/cluster/wait"
	"github.com/berth-scheduler/berth/cmd/internal/build"
	"github.com/berth-scheduler/berth/cmd/internal/sdnotify"
	"github.com/berth-scheduler/berth/cmd/internal/telemetry"
)

// service is what every daemon has in addition to its work: metrics for a
// scraper and notifications to systemd.
type service struct {
	reg    *prometheus.Registry
	under  *wait.Underway // what may hang
	notify sdnotify.Notifier
	log    *slog.Logger
	// pages are served next to the metrics, by path.
	pages map[string]http.Handler
}

func newService(log *slog.Logger) (*service, error) {
	reg, err := telemetry.NewRegistry(build.Info())
	if err != nil {
		return nil, err
	}
	n, err := sdnotify.FromEnv(os.Getenv, os.Getpid())
	if err != nil {
		return nil, err
	}
	s := &service{reg: reg, under: &wait.Underway{}, notify: n, log: log}
	return s, reg.Register(telemetry.NewStuck(s.under))
}

// run serves metrics at addr, if any, and feeds systemd's watchdog until
// ctx ends, and then tells systemd that it stops. healthy says why the daemon cannot serve now, or nil.
func (s *service) run(ctx context.Context, g *errgroup.Group, addr string, healthy func() error) error {
	if addr != "" {
		ln, err := net.Listen("tcp", addr)
		if err != nil {
			return fmt.Errorf("listen.metrics: %w", err)
		}
		mux := telemetry.Handler(s.reg, healthy, s.log)
		for path, h := range s.pages {
			mux.Handle(path, h)
		}
		srv := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
		g.Go(func() error {
			if err := srv.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
				return err
			}
			return nil
		})
		g.Go(func() error {
			<-ctx.Done()
			return srv.Close()
		})
	}
	g.Go(func() error {
		err := s.notify.RunWatchdog(ctx, func() bool { return true })
		if err := s.notify.Send(sdnotify.Stopping); err != nil {
			s.log.Warn("systemd does not know that this daemon stops", "err", err)
		}
		return err
	})
	return s.notify.Send(sdnotify.Ready)
}
