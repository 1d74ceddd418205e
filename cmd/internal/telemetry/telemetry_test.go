package telemetry_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/berth-scheduler/berth/cmd/internal/build"
	"github.com/berth-scheduler/berth/cmd/internal/telemetry"
)

func TestLoggerFormatAndLevel(t *testing.T) {
	for _, tc := range []struct {
		format telemetry.Format
		json   bool
	}{{telemetry.FormatAuto, true}, {telemetry.FormatJSON, true}, {telemetry.FormatText, false}} {
		var buf bytes.Buffer
		log, err := telemetry.NewLogger(&buf, "warn", tc.format)
		if err != nil {
			t.Fatal(err)
		}
		log.Info("below the level")
		log.Warn("coped", "job", 7)
		lines := strings.Split(strings.TrimSpace(buf.String()), "\n")
		if len(lines) != 1 {
			t.Fatalf("%s: %d lines, want only the warning", tc.format, len(lines))
		}
		if got := json.Valid([]byte(lines[0])); got != tc.json {
			t.Errorf("%s: JSON %v, want %v: %s", tc.format, got, tc.json, lines[0])
		}
	}
	if _, err := telemetry.NewLogger(&bytes.Buffer{}, "loud", telemetry.FormatText); err == nil || !strings.Contains(err.Error(), "debug, info, warn or error") {
		t.Errorf("level: %v", err)
	}
	if _, err := telemetry.NewLogger(&bytes.Buffer{}, "info", "xml"); err == nil || !strings.Contains(err.Error(), "auto, text or json") {
		t.Errorf("format: %v", err)
	}
}

func TestHandler(t *testing.T) {
	reg, err := telemetry.NewRegistry(build.Facts{Version: "v1", Revision: "abc", Go: "go1"})
	if err != nil {
		t.Fatal(err)
	}
	reg.MustRegister(broken{prometheus.NewDesc("berth_broken", "Fails.", nil, nil)})
	var buf bytes.Buffer
	var health error
	h := telemetry.Handler(reg, func() error { return health }, slog.New(slog.NewTextHandler(&buf, nil)))
	get := func(method, path string) (int, string) {
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, httptest.NewRequest(method, path, nil))
		return rec.Code, rec.Body.String()
	}
	code, body := get(http.MethodGet, "/metrics")
	for _, want := range []string{`berth_build_info{go="go1",revision="abc",version="v1"} 1`, "go_goroutines", "process_open_fds"} {
		if code != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("metrics: %d, lacks %q", code, want)
		}
	}
	if !strings.Contains(buf.String(), "collector is broken") {
		t.Errorf("the broken collector is not logged: %q", buf.String())
	}
	if code, body := get(http.MethodGet, "/healthz"); code != http.StatusOK || body != "ok\n" {
		t.Errorf("healthy: %d %q", code, body)
	}
	health = errors.New("no leader")
	if code, body := get(http.MethodGet, "/healthz"); code != http.StatusServiceUnavailable || !strings.Contains(body, "no leader") {
		t.Errorf("unhealthy: %d %q", code, body)
	}
	if code, _ := get(http.MethodPost, "/metrics"); code != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", code)
	}
	if code, _ := get(http.MethodGet, "/debug/pprof/"); code != http.StatusNotFound {
		t.Errorf("pprof: %d", code)
	}
}

// broken is a collector that gives an error instead of a value.
type broken struct{ desc *prometheus.Desc }

func (b broken) Describe(ch chan<- *prometheus.Desc) { ch <- b.desc }

func (b broken) Collect(ch chan<- prometheus.Metric) {
	ch <- prometheus.NewInvalidMetric(b.desc, errors.New("collector is broken"))
}
