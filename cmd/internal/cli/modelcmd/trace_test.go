package modelcmd_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-scheduler/berth/cmd/internal/cli/clitest"
)

// TestTrace runs a shell script in Python's stead: what Python finds is the
// tracer's own tests' business.
func TestTrace(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	python := filepath.Join(dir, "python")
	answer := `{"v":1,"model":"Net","framework":"pytorch","torch":"2.5.1","mode":"fake","precision":"bf16","optimizer":"adamw","training":true,` +
		`"batch":8,"params":1000,"param_bytes":2097152,"saved_bytes":3145728,"traced_bytes":8388608,"notes":["a\u200bnote"]}`
	script := "#!/bin/sh\nif [ -n \"$FAIL\" ]; then echo 'oh no' >&2; exit 9; fi\necho noise\n" +
		"[ \"$CUDA_VISIBLE_DEVICES\" = '' ] && echo '" + answer + "' >&4\n"
	if err := os.WriteFile(python, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "train.py"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		args      []string
		fail      bool
		code      int
		out, errs []string
	}{
		"a script":       {args: []string{"--python", python, "train.py", "--epochs", "1"}, out: []string{"Net", "training, batch 8", "3 MiB", "8 MiB (weights, gradients", "PyTorch 2.5.1"}, errs: []string{"warning: a"}},
		"JSON":           {args: []string{"--python", python, "-o", "json", "train.py"}, out: []string{`"saved_bytes": 3145728`, `"traced_bytes": 8388608`, `"confidence"`}},
		"a function":     {args: []string{"--python", python, "--factory", "m:f"}, out: []string{"by shapes alone"}},
		"its output":     {args: []string{"--python", python, "-v", "train.py"}, out: []string{"Net"}, errs: []string{"noise\n"}},
		"a failure":      {args: []string{"--python", python, "train.py"}, fail: true, code: 1, errs: []string{"exit status 9", "oh no"}},
		"no script":      {code: 2, errs: []string{"the script is missing"}},
		"not there":      {args: []string{"absent.py"}, code: 2, errs: []string{"absent.py: no such file"}},
		"no function":    {args: []string{"--factory", "m"}, code: 2, errs: []string{"want module:function"}},
		"odd precision":  {args: []string{"--precision", "fp8", "train.py"}, code: 2, errs: []string{"want one of fp32"}},
		"odd optimizer":  {args: []string{"--optimizer", "lion", "train.py"}, code: 2, errs: []string{"want one of sgd"}},
		"two wishes":     {args: []string{"--optimizer", "sgd", "--inference", "train.py"}, code: 2, errs: []string{"inference has no optimizer"}},
		"odd memory":     {args: []string{"--memory", "much", "train.py"}, code: 2, errs: []string{"--memory"}},
		"little memory":  {args: []string{"--memory", "1M", "train.py"}, code: 2, errs: []string{"at least 256 MiB"}},
		"short time":     {args: []string{"--timeout", "1ms", "train.py"}, code: 2, errs: []string{"want 1s to 24h"}},
		"no interpreter": {args: []string{"--python", "/absent", "train.py"}, code: 1, errs: []string{"python cannot be started"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := clitest.NewWorld(t)
			w.Env.Getwd = func() (string, error) { return dir, nil }
			if c.fail {
				w.Env.Environ = func() []string { return []string{"PATH=/usr/bin:/bin", "FAIL=1"} }
			}
			if code := w.Run(append([]string{"features", "trace"}, c.args...)...); code != c.code {
				t.Errorf("exit code %d, want %d: %s", code, c.code, w.Errs.String())
			}
			for _, want := range c.out {
				if !strings.Contains(w.Out.String(), want) {
					t.Errorf("no %q in:\n%s", want, w.Out.String())
				}
			}
			for _, want := range c.errs {
				if !strings.Contains(w.Errs.String(), want) {
					t.Errorf("no %q in:\n%s", want, w.Errs.String())
				}
			}
		})
	}
}
