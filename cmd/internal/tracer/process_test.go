package tracer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// fakePython writes a shell script that stands in for Python. File 4 is where
// answers go.
func fakePython(t *testing.T, script string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "python")
	if err := os.WriteFile(name, []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return name
}

func config(python string) Config {
	return Config{Python: python, Target: "m:f", Factory: true, Dir: "testdata", Env: os.Environ(), Timeout: 10 * time.Minute}
}

// wantKind runs cfg and checks how it fails.
func wantKind(t *testing.T, ctx context.Context, cfg Config, kind Kind, text string) {
	t.Helper()
	_, err := Run(ctx, cfg)
	var e *ProgramError
	if !errors.As(err, &e) {
		t.Fatalf("error %v, want one of kind %s", err, kind)
	}
	if e.Kind != kind || !strings.Contains(e.Error(), text) {
		t.Errorf("kind %s, %q; want %s with %q", e.Kind, e, kind, text)
	}
}

func TestHostileAnswers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		script string
		kind   Kind
		text   string
	}{
		"a gigabyte without a line end":  {"head -c 1073741824 /dev/zero >&4; sleep 3600", KindGarbage, "not a line of at most 65536 bytes"},
		"a gigabyte of lines":            {"yes >&4", KindGarbage, "not an answer"},
		"a gigabyte of output":           {"head -c 1073741824 /dev/zero; exit 3", KindExit, "exit status 3"},
		"silence":                        {"exit 0", KindExit, "ended without an answer"},
		"half an answer":                 {`printf '{"v":1' >&4`, KindExit, "ended without an answer"},
		"not a number":                   {`echo '{"v":1,"flops":NaN}' >&4; sleep 3600`, KindGarbage, "invalid character"},
		"a negative number":              {"echo '" + strings.Replace(good, `"params":10`, `"params":-10`, 1) + "' >&4", KindGarbage, "parameters -10"},
		"words on its way out":           {"echo oh no >&2; kill -9 $$", KindExit, "signal: killed"},
		"a failure":                      {`echo '{"v":1,"error":"memory","detail":"none left"}' >&4; sleep 3600`, KindMemory, "raise --memory"},
		"closed pipes, and no end":       {"exec >&- 2>&- 4>&-; exec sleep 3600", KindExit, "ended without an answer"},
		"who leaves the group with them": {"setsid sleep 5 & exit 4", KindExit, "exit status 4"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			start := time.Now()
			wantKind(t, t.Context(), config(fakePython(t, c.script)), c.kind, c.text)
			if took := time.Since(start); took > 5*time.Minute {
				t.Errorf("took %v", took)
			}
		})
	}
}

func TestAnswerThenHang(t *testing.T) {
	t.Parallel()
	r, err := Run(t.Context(), config(fakePython(t, "echo '"+good+"' >&4; exec sleep 3600")))
	if err != nil || r.Features.Model != "Net" {
		t.Errorf("got %+v, %v", r, err)
	}
}

func TestAnswerThenCrash(t *testing.T) {
	t.Parallel()
	r, err := Run(t.Context(), config(fakePython(t, "echo '"+good+"' >&4; kill -11 $$")))
	if err != nil || r.Features.Model != "Net" {
		t.Errorf("got %+v, %v", r, err)
	}
}

// TestGroupIsKilled: whatever the program started is gone when Run returns,
// however it ended.
func TestGroupIsKilled(t *testing.T) {
	t.Parallel()
	kids := `sleep 3600 & a=$!; (trap "" HUP INT TERM; while :; do sleep 3600; done) & echo $a $! $$ >"$PIDS.new"; mv "$PIDS.new" "$PIDS"; `
	for name, end := range map[string]string{
		"exits":   "exit 0",
		"answers": "echo '" + good + "' >&4; sleep 3600",
		"crashes": "kill -9 $$",
		"hangs":   "wait",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pids := filepath.Join(t.TempDir(), "pids")
			cfg := config(fakePython(t, kids+end))
			cfg.Env = append(cfg.Env, "PIDS="+pids)
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			gone := errors.New("the user went away")
			if name == "hangs" {
				go func() {
					waitFor(t, func() bool { _, err := os.Stat(pids); return err == nil })
					cancel(gone)
				}()
			}
			_, err := Run(ctx, cfg)
			if name == "hangs" && !errors.Is(err, gone) {
				t.Errorf("error %v, want the context's", err)
			}
			checkDead(t, pids)
		})
	}
}

// checkDead fails when a process of the file's is alive. A killed one may be a
// zombie until its new parent looks.
func checkDead(t *testing.T, file string) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	pids := strings.Fields(string(b))
	if len(pids) < 2 {
		t.Fatalf("%q names too few processes", b)
	}
	for _, pid := range pids {
		waitFor(t, func() bool {
			st, err := os.ReadFile("/proc/" + pid + "/stat")
			if err != nil {
				return true
			}
			_, rest, _ := strings.Cut(string(st), ") ")
			return strings.HasPrefix(rest, "Z") || strings.HasPrefix(rest, "X")
		})
	}
}

func waitFor(t *testing.T, done func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Minute); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Error("what was waited for did not happen in ten minutes")
			return
		}
	}
}

// TestTimeout also checks that a program that ignores all signals ends.
func TestTimeout(t *testing.T) {
	t.Parallel()
	cfg := config(fakePython(t, `trap "" HUP INT TERM; while :; do sleep 3600; done`))
	cfg.Timeout = time.Second
	wantKind(t, t.Context(), cfg, KindTimeout, "no step was done after 1s; raise --timeout")
}

func TestPythonIsMissing(t *testing.T) {
	t.Parallel()
	wantKind(t, t.Context(), config("/nonexistent/python"), KindPython, "name its interpreter with --python")
}

func TestScriptIsMissing(t *testing.T) {
	t.Parallel()
	cfg := config("/bin/false")
	cfg.Factory, cfg.Target = false, "nonexistent.py"
	if _, err := Run(t.Context(), cfg); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v", err)
	}
	cfg.Target = "."
	if _, err := Run(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("error %v", err)
	}
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	cfg.Target = fifo
	if _, err := Run(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("error %v", err)
	}
}

func TestValidate(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"no python":      {func(c *Config) { c.Python = "" }, "name an interpreter"},
		"no target":      {func(c *Config) { c.Target = "" }, "is missing"},
		"no function":    {func(c *Config) { c.Target = "module:" }, "want module:function"},
		"short timeout":  {func(c *Config) { c.Timeout = 1 }, "want 1s to 24h0m0s"},
		"little memory":  {func(c *Config) { c.MemBytes = 1 << 20 }, "at least 256 MiB"},
		"negative batch": {func(c *Config) { c.Batch = -1 }, "batch -1"},
		"huge sequence":  {func(c *Config) { c.SeqLen = 1 << 50 }, "sequence length"},
		"zero byte":      {func(c *Config) { c.Target = "a:\x00" }, "zero byte"},
	} {
		cfg := config("python3")
		c.change(&cfg)
		if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q in it", name, err, c.want)
		}
	}
}

// TestBerthDies: the group ends with the process that traces, even when that
// one is killed.
func TestBerthDies(t *testing.T) {
	if os.Getenv("BERTH_TRACER_CHILD") != "" {
		cfg := config(os.Getenv("BERTH_TRACER_PYTHON"))
		cfg.Factory, cfg.Target, cfg.Args = false, "cases.py", []string{"children", os.Getenv("BERTH_TRACER_CHILD"), "stay"}
		_, err := Run(t.Context(), cfg)
		t.Fatalf("came back: %v", err)
	}
	t.Parallel()
	python := realPython(t)
	pids := filepath.Join(t.TempDir(), "pids")
	cmd := exec.Command(os.Args[0], "-test.run=^TestBerthDies$")
	cmd.Env = append(os.Environ(), "BERTH_TRACER_CHILD="+pids, "BERTH_TRACER_PYTHON="+python)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool { _, err := os.Stat(pids); return err == nil })
	cmd.Process.Kill()
	_ = cmd.Wait()
	checkDead(t, pids)
}

func TestTail(t *testing.T) {
	var all bytes.Buffer
	w := tail{also: &all}
	for i := range 2000 {
		fmt.Fprintf(&w, "line %d\x1b\n", i)
	}
	got := w.text()
	if len(got) > maxTail || !strings.HasSuffix(got, "\nline 1999") || !strings.HasPrefix(got, "line 1") || strings.Contains(got, "\x1b") {
		t.Errorf("%d bytes: %.40q … %q", len(got), got, got[len(got)-20:])
	}
	if n := strings.Count(all.String(), "\n"); n != 2000 {
		t.Errorf("%d lines were handed on", n)
	}
	w = tail{also: broken{}}
	if n, err := w.Write(bytes.Repeat([]byte("x"), 3*maxTail)); n != 3*maxTail || err != nil {
		t.Errorf("wrote %d, %v", n, err)
	}
	if len(w.text()) != maxTail {
		t.Errorf("kept %d bytes", len(w.text()))
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }
