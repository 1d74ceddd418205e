package daemon

import (
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/berth-scheduler/berth/cmd/internal/config"
	"github.com/berth-scheduler/berth/cmd/internal/gate"
	"github.com/berth-scheduler/berth/cmd/internal/telemetry"
	"github.com/berth-scheduler/berth/coordinator/coordtest"
)

var update = flag.Bool("update", false, "rewrite docs/metrics.md")

// noted is a registry that writes down what is registered, with or without
// values yet.
type noted struct {
	mu    sync.Mutex
	known map[string]metric
}

type metric struct{ kind, labels, help string }

var descText = regexp.MustCompile(`^Desc\{fqName: "([^"]*)", help: ("(?:[^"\\]|\\.)*"), (?:unit: "[^"]*", )?constLabels: \{([^}]*)\}, variableLabels: \{([^}]*)\}`)

// Register implements prometheus.Registerer.
func (n *noted) Register(c prometheus.Collector) error {
	ch := make(chan *prometheus.Desc, 64)
	c.Describe(ch)
	close(ch)
	n.mu.Lock()
	defer n.mu.Unlock()
	for d := range ch {
		m := descText.FindStringSubmatch(d.String())
		if m == nil {
			return fmt.Errorf("cannot read %s", d)
		}
		kind := "gauge"
		switch c.(type) {
		case *prometheus.HistogramVec, prometheus.Histogram:
			kind = "histogram"
		default:
			if strings.HasSuffix(m[1], "_total") {
				kind = "counter"
			}
		}
		var labels []string
		for part := range strings.SplitSeq(m[3]+","+m[4], ",") {
			if name, _, _ := strings.Cut(part, "="); name != "" {
				labels = append(labels, "`"+name+"`")
			}
		}
		var help string
		if err := json.Unmarshal([]byte(m[2]), &help); err != nil {
			return fmt.Errorf("help of %s: %w", m[1], err)
		}
		n.known[m[1]] = metric{kind, strings.Join(labels, ", "), help}
	}
	return nil
}

// MustRegister implements prometheus.Registerer.
func (n *noted) MustRegister(cs ...prometheus.Collector) {
	for _, c := range cs {
		if err := n.Register(c); err != nil {
			panic(err)
		}
	}
}

// Unregister implements prometheus.Registerer.
func (n *noted) Unregister(prometheus.Collector) bool { return true }

// exported is what coordinators and agents export of their own.
func exported(t *testing.T) (coordinators, agents map[string]metric) {
	t.Helper()
	c, a := &noted{known: map[string]metric{}}, &noted{known: map[string]metric{}}
	coordtest.Start(t, coordtest.Options{N: 1, Registry: c})
	newReloader(&Configured{Loaded: &config.Loaded[config.Coordinator]{Config: &config.Coordinator{}}}, &reloads{}, c, slog.New(slog.DiscardHandler))
	a.MustRegister(newHealthMetrics(nil), telemetry.NewStuck(nil))
	c.MustRegister(telemetry.NewStuck(nil))
	gate.New(nil, nil, nil, nil, a, slog.New(slog.DiscardHandler))
	c.mu.Lock() // what follows is registered by nobody else any more
	defer c.mu.Unlock()
	return c.known, a.known
}

// metricsPage is docs/metrics.md.
func metricsPage(coordinators, agents map[string]metric) string {
	var b strings.Builder
	b.WriteString(`# Metrics

Coordinators export them at ` + "`listen.metrics`" + `, by default 127.0.0.1:7071, and agents at 127.0.0.1:7073: plain HTTP
for Prometheus, path ` + "`/metrics`" + `. Each daemon also exports ` + "`berth_build_info`" + ` (always 1, with ` + "`version`, `revision`, `go`" + `) and what
Prometheus' client reports for every Go program (` + "`go_…`, `process_…`" + `). A test generates the tables from the program itself
(` + "`go test ./cmd/internal/daemon -run Metrics -update`" + `). [deploy/prometheus](../deploy/prometheus) has an example of a
scrape configuration, [deploy/grafana](../deploy/grafana) a dashboard of these metrics.

Labels never name users or jobs: those are for ` + "`berth history`, `berth report` and `berth eff`" + `.
`)
	for _, part := range []struct {
		head string
		of   map[string]metric
	}{{"Coordinators", coordinators}, {"Agents", agents}} {
		fmt.Fprintf(&b, "\n## %s\n\n| metric | kind | labels | what it is |\n| --- | --- | --- | --- |\n", part.head)
		var names []string
		for name := range part.of {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range names {
			m := part.of[name]
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", name, m.kind, m.labels, strings.ReplaceAll(m.help, "|", `\|`))
		}
	}
	return b.String()
}

// TestMetricsPage: the page lists all that is exported, and the dashboard and the
// alerts name nothing else.
func TestMetricsPage(t *testing.T) {
	t.Parallel()
	const path = "../../../docs/metrics.md"
	coordinators, agents := exported(t)
	if len(coordinators) < 20 || len(agents) < 2 {
		t.Fatalf("found %d and %d metrics", len(coordinators), len(agents))
	}
	page := metricsPage(coordinators, agents)
	if *update {
		if err := os.WriteFile(path, []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(have), page); d != "" {
		t.Errorf("docs/metrics.md is not what is exported; run: go test ./cmd/internal/daemon -run Metrics -update (-page +exported):\n%s", d)
	}
	known := func(name string) bool {
		m, ok := coordinators[name]
		if !ok {
			m, ok = agents[name]
		}
		if ok {
			return m.kind != "histogram" // it has no value by that name
		}
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			if base, is := strings.CutSuffix(name, suffix); is && coordinators[base].kind == "histogram" {
				return true
			}
		}
		return name == "berth_build_info"
	}
	names := regexp.MustCompile(`\bberth_[a-z0-9_]+`)
	for _, expr := range dashboardExprs(t) {
		found := names.FindAllString(expr, -1)
		if len(found) == 0 && !strings.HasPrefix(expr, "up{") {
			t.Errorf("dashboard: %s has no metric of Berth's", expr)
		}
		for _, name := range found {
			if !known(name) {
				t.Errorf("dashboard: %s is not exported, in %s", name, expr)
			}
		}
	}
	rules, err := os.ReadFile("../../../deploy/prometheus/berth.rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names.FindAllString(string(rules), -1) {
		if !known(name) {
			t.Errorf("alerts: %s is not exported", name)
		}
	}
}

// dashboardExprs are the questions that the dashboard asks.
func dashboardExprs(t *testing.T) []string {
	t.Helper()
	data, err := os.ReadFile("../../../deploy/grafana/berth.json")
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Title  string
		UID    string
		Panels []struct {
			ID      int
			Title   string
			Type    string
			GridPos struct{ X, Y, W, H int }
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(data, &board); err != nil {
		t.Fatal(err)
	}
	var exprs []string
	ids := map[int]struct{}{}
	for _, p := range board.Panels {
		if _, twice := ids[p.ID]; twice || p.Title == "" || p.Type == "" || p.GridPos.W == 0 || len(p.Targets) == 0 {
			t.Errorf("dashboard: panel %d %q is not complete, or there twice", p.ID, p.Title)
		}
		ids[p.ID] = struct{}{}
		for _, q := range p.Targets {
			exprs = append(exprs, q.Expr)
		}
	}
	if board.Title == "" || board.UID == "" || len(exprs) < 10 {
		t.Errorf("dashboard %q has %d questions", board.Title, len(exprs))
	}
	return exprs
}
