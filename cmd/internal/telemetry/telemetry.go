// Package telemetry builds what the daemons report about themselves: the
// logger, the metrics registry and the HTTP handler that serves it. They are
// passed on explicitly; nothing uses a global one.
package telemetry

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/berth-scheduler/berth/cmd/internal/build"
	"github.com/berth-scheduler/berth/cmd/internal/tty"
)

// Format is how log lines are written.
type Format string

// The formats. Auto is text on a terminal and JSON elsewhere.
const (
	FormatAuto Format = "auto"
	FormatText Format = "text"
	FormatJSON Format = "json"
)

// NewLogger returns a logger that writes to w at the given level and above
// (debug, info, warn, error).
func NewLogger(w io.Writer, level string, format Format) (*slog.Logger, error) {
	levels := map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError}
	l, ok := levels[level]
	if !ok {
		return nil, fmt.Errorf("log level %.40q: want debug, info, warn or error", level)
	}
	opts := &slog.HandlerOptions{Level: l}
	switch {
	case format == FormatText, format == FormatAuto && isTerminal(w):
		return slog.New(slog.NewTextHandler(w, opts)), nil
	case format == FormatJSON, format == FormatAuto:
		return slog.New(slog.NewJSONHandler(w, opts)), nil
	default:
		return nil, fmt.Errorf("log format %.40q: want auto, text or json", format)
	}
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && tty.Is(f)
}

// NewRegistry returns a registry that holds berth_build_info and the Go and
// process metrics.
func NewRegistry(b build.Facts) (*prometheus.Registry, error) {
	reg := prometheus.NewRegistry()
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name:        "berth_build_info",
		Help:        "Always 1; the labels say which build runs.",
		ConstLabels: prometheus.Labels{"version": b.Version, "revision": b.Revision, "go": b.Go},
	})
	info.Set(1)
	for _, c := range []prometheus.Collector{info, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})} {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	return reg, nil
}

// Handler serves the registry at /metrics and answers /healthz with 200 while
// healthy returns nil, else with 503 and the reason. At most four scrapes run
// at once.
func Handler(reg *prometheus.Registry, healthy func() error, log *slog.Logger) *http.ServeMux {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{
		MaxRequestsInFlight: 4,
		ErrorHandling:       promhttp.ContinueOnError, // one broken collector must not blind the rest
		ErrorLog:            slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		if err := healthy(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = io.WriteString(w, "ok\n") // a client that left does not matter
	})
	return mux
}
