package cli_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/cli/clitest"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/golden"
)

// TestBadInput holds what each mistake is answered with. No request may leave.
func TestBadInput(t *testing.T) {
	t.Parallel()
	type bad = struct {
		code int
		args []string
	}
	groups := map[string][]bad{
		"commands": {
			{2, []string{"sumbit"}},
			{2, []string{"run"}},
			{2, []string{"nonsense"}},
			{2, []string{"help", "sumbit"}},
			{2, []string{"help", "node", "drian"}},
			{2, []string{"node"}},
			{2, []string{"node", "lst"}},
			{2, []string{"qstat", "--me"}},
			{2, []string{"queue", "--mee"}},
			{2, []string{"submit", "--gpu", "1", "--", "true"}},
			{2, []string{"submit", "-Z", "--", "true"}},
			{2, []string{"submit", "--gpus"}},
			{2, []string{"queue", "-o", "xml"}},
			{2, []string{"why", "1", "2"}},
			{2, []string{"completion", "tcsh"}},
			{2, []string{"version", "x"}},
			{2, []string{"queue", "--state", "RUNING"}},
			{2, []string{"queue", "--watch", "--interval", "1ms"}},
			{2, []string{"queue", "--timeout", "soon"}},
		},
		"gpus": gpuValues("--gpus", "0", "-1", "1.5", "many", "99999999999999999999", "17", "", "01", "1 "),
		"mem":  gpuValues("--mem", "16gbit", "16000000000", "16 g", "0x10", "1e3G", "-4G", "", "9T"),
		"time": gpuValues("--time", "1:60:00", "00", "1y", "-5m", "9999999h", ""),
		"amounts": {
			{2, []string{"submit", "--gpu-util", "0", "--", "true"}},
			{2, []string{"submit", "--gpu-util", "101%", "--", "true"}},
			{2, []string{"submit", "--cpus", "0", "--", "true"}},
			{2, []string{"submit", "--cpus", "1.2345", "--", "true"}},
			{2, []string{"submit", "--cpus", "many", "--", "true"}},
			{2, []string{"submit", "--batch", "0", "--", "true"}},
			{2, []string{"submit", "--batch", "1000000000000", "--", "true"}},
			{2, []string{"submit", "--precision", "fp12", "--", "true"}},
			{2, []string{"submit", "--optimizer", "magic", "--", "true"}},
			{2, []string{"submit", "--exclusive=maybe", "--", "true"}},
			{2, []string{"submit", "--count", "0", "--", "true"}},
			{2, []string{"submit", "--count", "1001", "--", "true"}},
			{2, []string{"submit", "--request-id", "short", "--", "true"}},
			{2, []string{"submit", "--request-id", "with spaces in the middle", "--", "true"}},
		},
		"command": {
			{2, []string{"submit"}},
			{2, []string{"submit", "--"}},
			{2, []string{"submit", "python", "train.py"}},
			{2, []string{"submit", "a.yaml", "b.yaml"}},
			{2, []string{"submit", "--", "a\x00b"}},
		},
		"names": {
			{2, []string{"submit", "--name", "a\nb", "--", "true"}},
			{2, []string{"submit", "--name", "a\x00b", "--", "true"}},
			{2, []string{"submit", "--name", "a\x1b[31m", "--", "true"}},
			{2, []string{"submit", "--name", strings.Repeat("x", 10240), "--", "true"}},
			{2, []string{"submit", "--name", "../x", "--", "true"}},
			{2, []string{"submit", "--name", "", "--", "true"}},
			{2, []string{"submit", "--name=-rf", "--", "true"}},
			{2, []string{"submit", "--name", "\xff\xfe", "--", "true"}},
			{2, []string{"submit", "--node", "N 1", "--", "true"}},
			{2, []string{"submit", "--comment", "\xff", "--", "true"}},
			{2, []string{"submit", "--image", "\xff", "--", "true"}},
			{2, []string{"submit", "--gpu-type", "", "--", "true"}},
		},
		"ids": {
			{2, []string{"cancel"}},
			{2, []string{"cancel", "abc"}},
			{2, []string{"cancel", "0"}},
			{2, []string{"cancel", "-1"}},
			{2, []string{"cancel", "--", "-1"}},
			{2, []string{"cancel", "12", "1..1000000"}},
			{2, []string{"cancel", "1-1001"}},
			{2, []string{"cancel", "5-1"}},
			{2, []string{"cancel", "1,,2"}},
			{2, []string{"cancel", "99999999999999999999"}},
			{2, []string{"cancel", "012"}},
			{2, []string{"wait", "--timeout", "never", "12"}},
		},
		"conflicts": {
			{2, []string{"submit", "--chdir", "/proc/self/fd/7", "--", "true"}},
			{2, []string{"submit", "--output", "a\x1bb", "--", "true"}},
			{2, []string{"submit", "--onnx", "m.onnx", "--model", "resnet50", "--", "true"}},
			{2, []string{"submit", "--onnx", "/nonexistent/m.onnx", "--", "true"}},
			{2, []string{"submit", "--model", "resnet5O", "--", "true"}},
			{2, []string{"submit", "--export", "ALL,NONE", "--", "true"}},
			{2, []string{"submit", "--export", "=x", "--", "true"}},
			{2, []string{"submit", "--export", "BERTH_X=1", "--", "true"}},
			{2, []string{"submit", "--spec", "/nonexistent.yaml"}},
			{2, []string{"submit", "--spec", "/dev/zero"}},
			{2, []string{"submit", "--spec", "/"}},
		},
		"admin": {
			{2, []string{"node", "drain", "n1"}},
			{2, []string{"node", "drain", "N1", "--reason", "x"}},
			{2, []string{"node", "drain", "n1", "--reason", "a\x1b"}},
			{2, []string{"node", "list", "n 1"}},
			{2, []string{"node", "fence", "n1"}},
			{2, []string{"node", "remove", "n1"}},
			{2, []string{"node", "fence", "N1", "--yes"}},
			{2, []string{"show", "-o", "svg", "12"}},
			{2, []string{"show", "--plot", "-o", "png", "12", "13"}},
			{2, []string{"model", "show", "newest"}},
			{2, []string{"model", "show", "1", "2"}},
			{2, []string{"model", "rollback"}},
			{2, []string{"model", "rollback", "-1"}},
			{2, []string{"model", "pin", "1.5"}},
			{2, []string{"model", "export"}},
			{2, []string{"model", "import"}},
			{2, []string{"model", "import", "/nonexistent.weights"}},
			{2, []string{"model", "import", "/dev/zero"}},
			{2, []string{"token", "create"}},
			{2, []string{"token", "create", "--id", "n1", "--role", "root"}},
			{2, []string{"token", "create", "--id", "n1", "--ttl", "0"}},
			{1, []string{"features", "/dev/null"}},
			{1, []string{"features", "/nonexistent.onnx"}},
		},
	}
	for name, cases := range groups {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var all strings.Builder
			for _, tc := range cases {
				w := clitest.NewWorld(t)
				f := clitest.NewFake()
				w.Serve("/a", f)
				got := w.Transcript(tc.args...)
				if !strings.HasSuffix(got, "-- exit code "+string(rune('0'+tc.code))+"\n") {
					t.Errorf("want exit code %d:\n%s", tc.code, got)
				}
				if w.Errs.Len() == 0 || w.Out.Len() > 0 {
					t.Errorf("wants a message on standard error and nothing on standard output:\n%s", got)
				}
				if strings.ContainsAny(w.Errs.String(), "\x1b\x00\x7f") {
					t.Errorf("control characters in a message: %q", w.Errs.String())
				}
				if len(f.Requests) > 0 || len(f.Cancelled) > 0 {
					t.Errorf("%q: a request left", tc.args)
				}
				all.WriteString(strings.ReplaceAll(console.EscapeLines(got), strings.Repeat("x", 10240), "xxx(10 KiB)") + "\n")
			}
			golden.Check(t, "bad-"+name, all.String())
		})
	}
}

func gpuValues(flag string, values ...string) (out []struct {
	code int
	args []string
}) {
	for _, v := range values {
		out = append(out, struct {
			code int
			args []string
		}{2, []string{"submit", flag + "=" + v, "--", "true"}})
	}
	return out
}

// TestServerErrors holds the exit code of each class of error.
func TestServerErrors(t *testing.T) {
	t.Parallel()
	for code, want := range map[cluster.Code]int{
		cluster.CodeInternal: 1, cluster.CodeInvalid: 2, cluster.CodeNotFound: 3, cluster.CodeAlreadyExists: 1,
		cluster.CodeDenied: 1, cluster.CodeUnauthenticated: 1, cluster.CodeConflict: 1, cluster.CodeExhausted: 1, cluster.CodeOutOfRange: 1,
	} {
		t.Run(code.String(), func(t *testing.T) {
			t.Parallel()
			w := clitest.NewWorld(t)
			f := clitest.NewFake()
			calls := 0
			f.Hook = func(context.Context, string) error {
				calls++
				return &cluster.Error{Code: code, Msg: "the coordinator's words"}
			}
			w.Serve("/a", f)
			if got := w.Run("submit", "--", "true"); got != want {
				t.Errorf("exit code %d, want %d: %s", got, want, w.Errs.String())
			}
			if calls != 1 {
				t.Errorf("a definite answer was asked for %d times", calls)
			}
			if code != cluster.CodeInternal && !strings.Contains(w.Errs.String(), "the coordinator's words") {
				t.Errorf("message: %s", w.Errs.String())
			}
		})
	}
}

func TestWorkingDirectoryGone(t *testing.T) {
	t.Parallel()
	w := clitest.NewWorld(t)
	w.Serve("/a", clitest.NewFake())
	w.Env.Getwd = func() (string, error) { return "", errors.New("no such file or directory") }
	if code := w.Run("submit", "--", "true"); code != 1 || !strings.Contains(w.Errs.String(), "--chdir") {
		t.Errorf("exit code %d: %s", code, w.Errs.String())
	}
	if code := w.Run("submit", "-D", "/tmp", "--", "true"); code != 0 {
		t.Errorf("with --chdir: exit code %d: %s", code, w.Errs.String())
	}
}

func TestUnreadableModelDoesNotKeepTheJob(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "m.onnx")
	if err := os.WriteFile(name, []byte("this is no model"), 0o600); err != nil {
		t.Fatal(err)
	}
	w := clitest.NewWorld(t)
	w.Serve("/a", clitest.NewFake())
	if code := w.Run("submit", "--onnx", name, "--batch", "4", "--", "true"); code != 0 || !strings.Contains(w.Errs.String(), "warning: --onnx") {
		t.Errorf("exit code %d: %s", code, w.Errs.String())
	}
	if code := w.Run("features", name); code != 1 {
		t.Errorf("features: exit code %d: %s", code, w.Errs.String())
	}
}
