package simcmd_test

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-scheduler/berth/cmd/internal/cli/clitest"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/cli/frame"
	"github.com/berth-scheduler/berth/cmd/internal/cli/simcmd"
)

// simTrace is invented: two shared cards' worth of small jobs.
const simTrace = "job_id,arrival_s,duration_s,gpu_num,gpu_mem_mib,gpu_util_pct\n" +
	"a,0,600,1,4000,40\nb,0,600,1,4000,40\nc,60,1200,1,9000,70\nd,90,300,2,,\n"

func writeFile(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestSimRun(t *testing.T) {
	t.Parallel()
	path := writeFile(t, "tiny.csv", simTrace)
	cluster := writeFile(t, "cluster.yaml", "nodes:\n- {count: 1, gpus: 2, gpu_type: T4, gpu_mem_mib: 15360, idle_w: 10, max_w: 70}\n")
	w := clitest.NewWorld(t, simulator)
	if code := w.Run("sim", "run", "--trace", path, "--cluster", cluster, "--seeds", "2", "-o", "json"); code != 0 {
		t.Fatal(w.Errs.String())
	}
	var got struct {
		Results []map[string]any `json:"results"`
	}
	if err := json.Unmarshal(w.Out.Bytes(), &got); err != nil || len(got.Results) != 2 {
		t.Fatalf("%d results, %v", len(got.Results), err)
	}
	for _, key := range []string{
		"policy", "trace", "seed", "allocation_pct", "mean_jct_s", "median_jct_s", "p99_jct_s", "makespan_s", "mean_wait_s", "gpu_util_pct",
		"mem_util_pct", "fragmentation_pct", "ooms", "preemptions", "mean_slowdown", "energy_kwh", "finish_time_fairness", "decisions_per_s",
		"events_per_s", "lower_bound_makespan_s",
	} {
		if _, ok := got.Results[0][key]; !ok {
			t.Errorf("a result lacks %s", key)
		}
	}
	if got.Results[0]["trace"] != "tiny" || got.Results[1]["seed"] != 2.0 || got.Results[0]["mem_util_pct"] != nil {
		t.Errorf("trace %v, seed %v, memory %v", got.Results[0]["trace"], got.Results[1]["seed"], got.Results[0]["mem_util_pct"])
	}
}

// TestSimEqualRuns prints the same bytes twice, driven by the log and not.
func TestSimEqualRuns(t *testing.T) {
	t.Parallel()
	path := writeFile(t, "tiny.csv", simTrace)
	var first string
	for _, fsm := range []string{"on", "on", "off"} {
		w := clitest.NewWorld(t, simulator)
		if code := w.Run("sim", "compare", "--trace", path, "--policies", "ffd,slot,bestfit+sjf", "--util-error", "0.3", "--no-timing", "--fsm", fsm, "-o", "json"); code != 0 {
			t.Fatal(w.Errs.String())
		}
		if first == "" {
			first = w.Out.String()
		}
		if got := w.Out.String(); got != first {
			t.Errorf("--fsm %s printed something else:\n%s\nand before:\n%s", fsm, got, first)
		}
	}
}

// TestSimResize: with --resize results say what became of shares, and without it they are
// what they were.
func TestSimResize(t *testing.T) {
	t.Parallel()
	path := writeFile(t, "tiny.csv", strings.ReplaceAll(simTrace, ",,", ",3000,50"))
	run := func(want int, args ...string) string {
		w := clitest.NewWorld(t, simulator)
		if code := w.Run(append([]string{"sim", "run", "--trace", path, "--mem-margin", "0.5", "--no-timing"}, args...)...); code != want {
			t.Fatalf("%v: exit code %d, want %d: %s", args, code, want, w.Errs.String())
		}
		return w.Out.String() + w.Errs.String()
	}
	if a, b := run(0, "-o", "json"), run(0, "-o", "json", "--resize", "off"); a != b || strings.Contains(a, "cuts") || strings.Contains(a, "reserved_over") {
		t.Errorf("off:\n%s\nand left out:\n%s", b, a)
	}
	for _, fsm := range []string{"on", "off"} {
		if got := run(0, "-o", "json", "--resize", "eager", "--fsm", fsm); !strings.Contains(got, `"cuts": 4,`) || !strings.Contains(got, `"harmed": 0,`) || !strings.Contains(got, `"reserved_over_used": 1.`) {
			t.Errorf("eager, --fsm %s:\n%s", fsm, got)
		}
	}
	if got := run(0, "--resize", "conservative", "--late-growers", "0.5"); !strings.Contains(got, "RESERVED/USED") {
		t.Errorf("a table:\n%s", got)
	}
	if got := run(0, "--mem-peak-at", "0.1"); !strings.Contains(got, "RESERVED/USED") {
		t.Errorf("a table of shares that stay:\n%s", got)
	}
	if got := run(2, "--resize", "often"); !strings.Contains(got, `--resize "often": want off, conservative or eager`) {
		t.Errorf("a mode that is none: %s", got)
	}
	if got := run(1, "--late-growers", "1.5"); !strings.Contains(got, "0 to 1") {
		t.Errorf("more than all jobs: %s", got)
	}
}

func TestSimFormats(t *testing.T) {
	t.Parallel()
	path := writeFile(t, "tiny.csv", simTrace)
	plots := filepath.Join(t.TempDir(), "plots")
	w := clitest.NewWorld(t, simulator)
	if code := w.Run("sim", "run", "--trace", path, "-o", "csv", "--plot", plots, "--plot-format", "svg,png"); code != 0 {
		t.Fatal(w.Errs.String())
	}
	rows, err := csv.NewReader(bytes.NewReader(w.Out.Bytes())).ReadAll()
	if err != nil || len(rows) != 2 {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	for _, f := range []string{"svg", "png"} {
		files, err := filepath.Glob(filepath.Join(plots, "*."+f))
		if err != nil || len(files) != 6 {
			t.Errorf("drawings %v, %v; want a Gantt chart, the levels, the distribution and three bars", files, err)
		}
	}
	w = clitest.NewWorld(t, simulator)
	if code := w.Run("sim", "run", "--trace", path); code != 0 || !strings.Contains(w.Out.String(), "MAKESPAN") || !strings.Contains(w.Out.String(), "interference: curve") {
		t.Errorf("code %d, table:\n%s%s", code, w.Out.String(), w.Errs.String())
	}
}

func TestSimDemand(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"pods_default.csv": "name,cpu_milli,memory_mib,num_gpu,gpu_milli\np0,100,10,1,500\np1,100,10,1,1000\n",
		"nodes.csv":        "sn,cpu_milli,memory_mib,gpu,model\nn0,64000,10240,2,T4\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	w := clitest.NewWorld(t, simulator)
	if code := w.Run("sim", "run", "--trace", dir, "--demand", "3", "-o", "json"); code != 0 {
		t.Fatal(w.Errs.String())
	}
	var got simcmd.View
	if err := json.Unmarshal(w.Out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if r := got.Results[0]; r.AllocationPct == nil || *r.AllocationPct < 75 || r.MeanJCT != nil || r.RejectedPods == nil {
		t.Errorf("filled: %+v", r)
	}
}

func TestSimBadInput(t *testing.T) {
	t.Parallel()
	path := writeFile(t, "tiny.csv", simTrace)
	bad := writeFile(t, "bad.csv", "job_id,arrival_s,duration_s,gpu_num\na,x,1,1\nb,0,1,1\n")
	for name, c := range map[string]struct {
		args []string
		code int
		says string
	}{
		"no trace":         {[]string{"run"}, console.ExitUsage, "--trace is missing"},
		"no such trace":    {[]string{"run", "--trace", "/nonexistent/x"}, console.ExitNotFound, "no such file"},
		"no such policy":   {[]string{"run", "--trace", path, "--policy", "best"}, console.ExitUsage, "the policies are"},
		"no such order":    {[]string{"run", "--trace", path, "--order", "lifo"}, console.ExitUsage, "the orders are"},
		"no policies":      {[]string{"compare", "--trace", path}, console.ExitUsage, "--policies is missing"},
		"no such world":    {[]string{"run", "--trace", path, "--interference", "love"}, console.ExitUsage, "want one of curve"},
		"a table is named": {[]string{"run", "--trace", path, "--interference", "lucid"}, console.ExitUsage, "--colocation"},
		"a forecast alone": {[]string{"run", "--trace", path, "--power-forecast", "3h"}, console.ExitUsage, "--power-forecast: requires --power-idle"},
		"a short forecast": {[]string{"run", "--trace", path, "--power-idle", "1h", "--power-forecast", "1m"}, console.ExitUsage, "want a time from --power-every"},
		"too much spare":   {[]string{"run", "--trace", path, "--power-idle", "1h", "--power-forecast", "3h", "--power-spare", "101"}, console.ExitUsage, "want 0 to 100"},
		"no time to learn": {[]string{"run", "--trace", path, "--power-idle", "1h", "--power-forecast", "3h", "--power-learn", "-1h"}, console.ExitUsage, "must not be below 0"},
		"no seeds":         {[]string{"run", "--trace", path, "--seeds", "0"}, console.ExitUsage, "want 1 to 1000"},
		"unknown key":      {[]string{"run", "--trace", path, "--cluster", writeFile(t, "c.yaml", "nodes:\n- {count: 1, gpu: 2}\n")}, console.ExitFailed, "gpu not found"},
		"no nodes":         {[]string{"run", "--trace", path, "--cluster", writeFile(t, "d.yaml", "name: x\n")}, console.ExitFailed, "there are none"},
		"strict":           {[]string{"run", "--trace", bad, "--strict"}, console.ExitFailed, "row 2"},
		"experiment":       {[]string{"experiment", "nobel"}, console.ExitUsage, "the experiments are"},
		"no traces":        {[]string{"experiment", "yeung"}, console.ExitUsage, "--traces is missing"},
		"traces not there": {[]string{"experiment", "yeung", "--traces", "/nonexistent"}, console.ExitNotFound, "schedtune"},
	} {
		w := clitest.NewWorld(t, simulator)
		code := w.Run(append([]string{"sim"}, c.args...)...)
		if code != c.code || !strings.Contains(w.Errs.String(), c.says) {
			t.Errorf("%s: code %d, want %d with %q:\n%s", name, code, c.code, c.says, w.Errs.String())
		}
	}
	w := clitest.NewWorld(t, simulator)
	if code := w.Run("sim", "run", "--trace", bad, "-o", "csv"); code != 0 || !strings.Contains(w.Errs.String(), "1 of 2 rows gave no job") {
		t.Errorf("code %d:\n%s", code, w.Errs.String())
	}
}

// simulator is the command of these tests.
var simulator = frame.Command{Name: "sim", New: simcmd.NewSimCmd}
