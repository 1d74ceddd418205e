package daemon

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/berth-scheduler/berth/cmd/internal/config"
	"github.com/berth-scheduler/berth/cmd/internal/sdnotify"
	"github.com/berth-scheduler/berth/coordinator/lead"
)

// Configured is a coordinator's configuration, and how to reread it.
type Configured struct {
	*config.Loaded[config.Coordinator]
	// Again rereads it from the same sources.
	Again func() (*config.Loaded[config.Coordinator], error)
	// Reload delivers a value whenever it is to be reread; may be nil.
	Reload <-chan os.Signal
}

// reloader applies the settings that may change while a coordinator runs. A
// configuration that cannot be read or used changes nothing.
type reloader struct {
	cfg   *Configured
	inUse *config.Loaded[config.Coordinator]
	use   scheduled
	log   *slog.Logger
	clock func() time.Time
	// notify tells systemd when a reload begins and ends, which systemctl status then shows.
	notify sdnotify.Notifier

	reloads *prometheus.CounterVec
	last    prometheus.Gauge // 1 if the last reload was applied
	at      prometheus.Gauge // when a reload was last applied
}

// The outcomes of a reload, for the metric.
const (
	reloadTaken   = "taken"
	reloadRefused = "refused"
)

// scheduled is a coordinator whose policies can be changed.
type scheduled interface {
	// Suits reports why policies cannot be used.
	Suits(s *lead.Scheduling) error
	SetScheduling(s lead.Scheduling)
}

func newReloader(cfg *Configured, use scheduled, reg prometheus.Registerer, log *slog.Logger) *reloader {
	r := &reloader{
		cfg: cfg, inUse: cfg.Loaded, use: use, log: log.With("component", "config"), clock: time.Now,
		reloads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "berth_config_reloads_total", Help: "Reloads of the configuration, by outcome.",
		}, []string{"result"}),
		last: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "berth_config_last_reload_successful", Help: "1 if the configuration on disk was valid when last read.",
		}),
		at: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "berth_config_last_reload_success_timestamp_seconds", Help: "When a configuration was last applied.",
		}),
	}
	reg.MustRegister(r.reloads, r.last, r.at)
	for _, result := range []string{reloadTaken, reloadRefused} {
		r.reloads.WithLabelValues(result) // so that it differs from a missing one
	}
	r.taken()
	return r
}

func (r *reloader) taken() {
	r.last.Set(1)
	r.at.Set(float64(r.clock().UnixMicro()) / 1e6)
}

// run rereads the configuration on request, until ctx ends, and tells systemd through notify.
func (r *reloader) run(ctx context.Context, notify sdnotify.Notifier) error {
	r.notify = notify
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-r.cfg.Reload:
			r.reload(ctx)
		}
	}
}

// reload rereads the configuration once.
func (r *reloader) reload(ctx context.Context) {
	r.tell(ctx, sdnotify.Reloading)
	defer r.tell(ctx, sdnotify.Ready)
	again, err := r.cfg.Again()
	var s *lead.Scheduling
	if err == nil {
		s, err = r.schedulingOf(again)
	}
	if err == nil {
		err = r.use.Suits(s)
	}
	if err != nil {
		r.refused(ctx, err)
		return
	}
	taken, restart := config.Changes(r.cfg.Loaded, r.inUse, again)
	if len(taken) > 0 {
		r.use.SetScheduling(*s)
	}
	r.inUse = again
	r.reloads.WithLabelValues(reloadTaken).Inc()
	r.taken()
	r.log.InfoContext(ctx, "configuration read again", "taken", strings.Join(taken, " "), "count", len(taken))
	for _, key := range restart {
		r.log.WarnContext(ctx, "configuration: needs a restart to take effect", "key", key)
	}
}

func (r *reloader) tell(ctx context.Context, state string) {
	if err := r.notify.Send(state); err != nil {
		r.log.WarnContext(ctx, "systemd does not know of a reload", "state", state, "err", err)
	}
}

// schedulingOf builds the policies of a reread configuration, with the
// settings for node registration as they were at the start.
func (r *reloader) schedulingOf(again *config.Loaded[config.Coordinator]) (*lead.Scheduling, error) {
	sched := again.Config.Scheduling
	sched.MaxShares = r.cfg.Config.Scheduling.MaxShares
	return schedulingOf(&sched)
}

func (r *reloader) refused(ctx context.Context, err error) {
	r.reloads.WithLabelValues(reloadRefused).Inc()
	r.last.Set(0)
	if ps, ok := errors.AsType[config.Problems](err); ok {
		for _, p := range ps {
			r.log.ErrorContext(ctx, "configuration", "key", p.Key, "where", p.Where, "detail", p.Text)
		}
		err = errors.New("see the lines before")
	}
	r.log.ErrorContext(ctx, "configuration not read again; the one in use stays", "err", err)
}
