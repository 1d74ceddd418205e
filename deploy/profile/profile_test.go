package profile

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/deploy/profile/torchfork"
)

// python finds an interpreter with PyTorch, that of PATH or Debian's own, and
// returns what stands for it without importing PyTorch each time.
func python(t *testing.T) string { return pythons(t).Fork }

func pythons(t *testing.T) torchfork.Python {
	t.Helper()
	p, err := interpreters()
	if err != nil {
		t.Skipf("no python3 here has PyTorch; on Debian: apt-get install python3-torch\n%v", err)
	}
	return p
}

// interpreters looks once, since importing PyTorch takes seconds.
var interpreters = sync.OnceValues(func() (torchfork.Python, error) { return torchfork.Start("python3", "/usr/bin/python3") })

func profile(t *testing.T, python string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, python, append([]string{"measure.py", "--timeout=900", "--trace-timeout=900"}, args...)...)
	cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
	cmd.WaitDelay = time.Second
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("measure.py: %v\n%s", err, errs.String())
	}
	return out.String()
}

// table is a CSV file as maps from column to text.
func table(t *testing.T, name string) (rows []map[string]string, header []string) {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range lines[1:] {
		row := map[string]string{}
		for i, c := range lines[0] {
			row[c] = l[i]
		}
		rows = append(rows, row)
	}
	return rows, lines[0]
}

func number(t *testing.T, row map[string]string, column string) float64 {
	t.Helper()
	v, err := strconv.ParseFloat(row[column], 64)
	if err != nil {
		t.Errorf("%s of %s: %v", column, row["model"], err)
	}
	return v
}

// TestOnCPU measures tiny models, cuts the file as a crash would, and goes on.
func TestOnCPU(t *testing.T) {
	p := python(t)
	file := filepath.Join(t.TempDir(), "profile.csv")
	args := []string{"--device", "cpu", "--preset", "test", "--seconds", "0.1", "--warmup", "1", "--min-steps", "3", "--out", file}
	profile(t, p, args...)
	rows, _ := table(t, file)
	kinds := map[string]int{}
	for _, r := range rows {
		kinds[r["kind"]+" "+r["mode"]]++
		checkRow(t, r)
	}
	// Two models, alone, against the other and against themselves.
	if kinds["single training"] != 3 || kinds["single inference"] != 2 || kinds["pair training"] != 4 {
		t.Errorf("rows by kind: %v", kinds)
	}
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if profile(t, p, args...); !same(t, file, whole) {
		t.Error("a second run over a finished file changed it")
	}
	lines := bytes.SplitAfter(whole, []byte("\n"))
	kept := bytes.Join(lines[:3], nil)
	if err := os.WriteFile(file, slices.Concat(kept, lines[3][:20]), 0o600); err != nil {
		t.Fatal(err)
	}
	profile(t, p, append(args, "--no-pairs", "--no-trace")...)
	again, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if rows, _ := table(t, file); len(rows) != 5 || !bytes.HasPrefix(again, kept) {
		t.Errorf("after a crash: %d rows:\n%s", len(rows), again)
	}
}

func same(t *testing.T, file string, want []byte) bool {
	t.Helper()
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Equal(got, want)
}

func checkRow(t *testing.T, r map[string]string) {
	t.Helper()
	if r["error"] != "" || r["oom"] != "0" {
		t.Errorf("%s: error %q, oom %s", r["model"], r["error"], r["oom"])
	}
	if median, p90 := number(t, r, "step_time_s"), number(t, r, "step_time_p90_s"); median <= 0 || p90 < median {
		t.Errorf("%s: step of %g s, 90%% within %g s", r["model"], median, p90)
	}
	if mem := number(t, r, "host_mem_mib"); mem < 30 {
		t.Errorf("%s: %g MiB of host memory", r["model"], mem)
	}
	number(t, r, "cpu_pct")
	if number(t, r, "params") < 1e5 || number(t, r, "flops") < 1e5 {
		t.Errorf("%s: %s parameters, %s FLOPs", r["model"], r["params"], r["flops"])
	}
	if saved := number(t, r, "saved_bytes"); saved > 0 != (r["mode"] == "training") {
		t.Errorf("%s %s: keeps %g bytes", r["model"], r["mode"], saved)
	}
	if r["kind"] == "pair" && (number(t, r, "normalized_speed") <= 0 || r["partner"] == "") {
		t.Errorf("%s beside %q: speed %s", r["model"], r["partner"], r["normalized_speed"])
	}
}

// TestReadme: each column of the file is explained, and no other.
func TestReadme(t *testing.T) {
	source, err := os.ReadFile("measure.py")
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	var columns []string
	for _, list := range regexp.MustCompile(`(?s)\n(?:KEY|TRACED|MEASURED|COLUMNS) = (.*?\])`).FindAllSubmatch(source, -1) {
		for _, c := range regexp.MustCompile(`"([a-z0-9_]+)"`).FindAllSubmatch(list[1], -1) {
			columns = append(columns, string(c[1]))
		}
	}
	_, explained, _ := strings.Cut(string(readme), "## Columns")
	explained, _, _ = strings.Cut(explained, "\n## ")
	var known []string
	for _, line := range strings.Split(explained, "\n") {
		cell, _, _ := strings.Cut(strings.TrimPrefix(line, "| "), " |")
		for _, c := range regexp.MustCompile("`([a-z0-9_]+)`").FindAllStringSubmatch(cell, -1) {
			if strings.HasPrefix(line, "| `") {
				known = append(known, c[1])
			}
		}
	}
	slices.Sort(columns)
	slices.Sort(known)
	if len(columns) < 40 || !slices.Equal(columns, known) {
		t.Errorf("columns of measure.py:\n%v\nof README.md:\n%v", columns, known)
	}
}

// TestOrder: the plain runs of all models come before any variation, and an
// afternoon holds a quick sweep's kinds of runs.
func TestOrder(t *testing.T) {
	p := python(t)
	models := "cnn_small,transformer_small,lstm_lm"
	list := func(preset string) []string {
		out := profile(t, p, "--list", "--no-pairs", "--preset", preset, "--models", models)
		return strings.Split(strings.TrimSuffix(out, "\n"), "\n")
	}
	quick, long := list("quick"), list("afternoon")
	for i, name := range strings.Split(models, ",") {
		if !strings.HasPrefix(quick[i], name+" training") || !strings.Contains(quick[i], "tf32 adamw") {
			t.Errorf("run %d is %q", i, quick[i])
		}
	}
	if len(long) < 2*len(quick) {
		t.Errorf("%d runs in an afternoon, %d quick ones", len(long), len(quick))
	}
	for _, run := range quick {
		if !slices.Contains(long, run) {
			t.Errorf("an afternoon lacks %q", run)
		}
	}
	seen := map[string]bool{}
	for _, run := range long {
		if seen[run] {
			t.Errorf("%q comes twice", run)
		}
		seen[run] = true
	}
}

// TestBadUse: mistakes end with a sentence, not with a stack.
func TestBadUse(t *testing.T) {
	p := python(t)
	other := filepath.Join(t.TempDir(), "other.csv")
	if err := os.WriteFile(other, []byte("a,b\n1,2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{
		"no model absent here":   {"--device", "cpu", "--models", "absent"},
		"has other columns than": {"--device", "cpu", "--preset", "test", "--out", other},
	} {
		out, err := exec.Command(p, append([]string{"measure.py", "--timeout=900", "--trace-timeout=900"}, args...)...).CombinedOutput()
		if err == nil || !bytes.Contains(out, []byte(want)) || bytes.Contains(out, []byte("Traceback")) {
			t.Errorf("%q: %v: %s", want, err, out)
		}
	}
	if b, err := os.ReadFile(other); err != nil || string(b) != "a,b\n1,2\n" {
		t.Errorf("the other file is now %q, %v", b, err)
	}
}

// TestWorkerFails: what does not fit is told from what cannot be done.
func TestWorkerFails(t *testing.T) {
	p := python(t)
	for name, c := range map[string]struct {
		batch, checkpointing int
		oom                  bool
		text                 string
	}{
		"too large":      {batch: 100_000_000, oom: true, text: "allocate memory"},
		"no blocks":      {batch: 1, checkpointing: 1, text: "no repeated parts"},
		"no such number": {batch: -1, text: "negative dimension"},
	} {
		t.Run(name, func(t *testing.T) {
			job, err := json.Marshal(map[string]any{
				"model": "tiny_mlp", "batch_size": c.batch, "seq_len": 0, "precision": "fp32", "optimizer": "sgd", "mode": "training",
				"checkpointing": c.checkpointing, "device": "cpu", "warmup": 1, "seconds": 0.1, "min_steps": 1,
			})
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), "sh", "-c", `ulimit -v 16000000; exec "$0" -B worker.py "$1"`, p, string(job))
			cmd.Stdin = strings.NewReader("begin\n")
			out, err := cmd.Output()
			if err != nil {
				t.Fatal(err)
			}
			var got struct {
				Event, Error string
				OOM          bool
			}
			if err := json.Unmarshal(out, &got); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			if got.Event != "failed" || got.OOM != c.oom || !strings.Contains(got.Error, c.text) {
				t.Errorf("%s", out)
			}
		})
	}
}
