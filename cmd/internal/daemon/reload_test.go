package daemon

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/berth-scheduler/berth/cmd/internal/config"
	"github.com/berth-scheduler/berth/coordinator/lead"
)

const minimal = "id: c1\ncluster: {id: hpc}\nlisten: {advertise: \"c1:7070\"}\n"

// reloads is a reloader on a file, and what became of each reload.
type reloads struct {
	t     *testing.T
	path  string
	r     *reloader
	log   bytes.Buffer
	reg   *prometheus.Registry
	taken []lead.Scheduling
	unfit error
}

func (x *reloads) Suits(*lead.Scheduling) error    { return x.unfit }
func (x *reloads) SetScheduling(s lead.Scheduling) { x.taken = append(x.taken, s) }

func startReloads(t *testing.T, content string) *reloads {
	x := &reloads{t: t, reg: prometheus.NewRegistry(), path: filepath.Join(t.TempDir(), "coordinator.yaml")}
	x.write(content)
	again := func() (*config.Loaded[config.Coordinator], error) {
		return config.LoadCoordinator(config.Sources{Path: x.path})
	}
	l, err := again()
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(&x.log, nil))
	x.r = newReloader(&Configured{Loaded: l, Again: again}, x, x.reg, log)
	x.r.clock = func() time.Time { return time.Unix(1_700_000_000, 0) }
	return x
}

func (x *reloads) write(content string) {
	x.t.Helper()
	if err := os.WriteFile(x.path, []byte(content), 0o600); err != nil {
		x.t.Fatal(err)
	}
}

// reload reads content and returns what was logged.
func (x *reloads) reload(content string) string {
	x.t.Helper()
	x.write(content)
	x.log.Reset()
	x.r.reload(x.t.Context())
	return x.log.String()
}

// metric is the value of a metric; of a counter that of the refused ones, which
// come first.
func (x *reloads) metric(name string) float64 {
	x.t.Helper()
	all, err := x.reg.Gather()
	if err != nil {
		x.t.Fatal(err)
	}
	for _, f := range all {
		if f.GetName() != "berth_config_"+name {
			continue
		}
		if m := f.GetMetric()[0]; m.GetCounter() != nil {
			return m.GetCounter().GetValue()
		}
		return f.GetMetric()[0].GetGauge().GetValue()
	}
	x.t.Fatalf("no metric %s", name)
	return 0
}

func TestReload(t *testing.T) {
	t.Parallel()
	x := startReloads(t, minimal+"scheduling: {policy: slot, max_shares: 3}\n")
	log := x.reload(minimal + "scheduling: {policy: ffd, policies: [debug=slot+fifo], max_shares: 2, max_slowdown: 2, interval: 2s}\nlease: {agent: 30s}\n")
	if len(x.taken) != 1 {
		t.Fatalf("%d taken over: %s", len(x.taken), log)
	}
	s := x.taken[0]
	debug := s.Partitions["debug"]
	if s.Name() != "ffd" || debug.Name() != "slot+fifo" || s.Policy.MaxSlowdownMilli != 2000 || s.Policy.MaxShares != 3 || s.Interval != 2*time.Second {
		t.Errorf("taken over: %s, debug %s, %+v", s.Name(), debug.Name(), s.Policy)
	}
	for _, want := range []string{"needs a restart", "key=scheduling.max_shares", "key=lease.agent", "scheduling.policy scheduling.policies"} {
		if !strings.Contains(log, want) {
			t.Errorf("log lacks %q:\n%s", want, log)
		}
	}
	if got := x.metric("last_reload_success_timestamp_seconds"); got != 1_700_000_000 {
		t.Errorf("taken over at %v", got)
	}
	log = x.reload(minimal + "scheduling: {policy: fastest, policies: [a=b, c], intervall: 1s}\n")
	for _, want := range []string{"the one in use stays", "key=scheduling.policy ", "key=scheduling.policies[0]", "key=scheduling.policies[1]", "intervall"} {
		if !strings.Contains(log, want) {
			t.Errorf("log lacks %q:\n%s", want, log)
		}
	}
	if len(x.taken) != 1 || x.metric("last_reload_successful") != 0 || x.metric("reloads_total") != 1 {
		t.Errorf("a wrong file: %d taken over, last %v", len(x.taken), x.metric("last_reload_successful"))
	}
	if log = x.reload(minimal + "scheduling: {policy: slot, max_shares: 3}\n"); len(x.taken) != 2 || x.taken[1].Name() != "slot" || x.metric("last_reload_successful") != 1 {
		t.Errorf("back again: %d taken over:\n%s", len(x.taken), log)
	}
	if log = x.reload(minimal + "scheduling: {policy: slot, max_shares: 3}\n"); len(x.taken) != 2 || !strings.Contains(log, "count=0") {
		t.Errorf("the same again: %d taken over:\n%s", len(x.taken), log)
	}
	x.unfit = errors.New("job 7 waits for 2 nodes")
	if log = x.reload(minimal + "scheduling: {policy: slot+fifo, max_shares: 3}\n"); len(x.taken) != 2 || !strings.Contains(log, "the one in use stays") || !strings.Contains(log, "job 7 waits for 2 nodes") {
		t.Errorf("one that does not suit who waits: %d taken over:\n%s", len(x.taken), log)
	}
	x.unfit = nil
	if err := os.Remove(x.path); err != nil {
		t.Fatal(err)
	}
	x.log.Reset()
	x.r.reload(t.Context())
	if len(x.taken) != 2 || !strings.Contains(x.log.String(), "no such file") {
		t.Errorf("no file: %s", &x.log)
	}
}
