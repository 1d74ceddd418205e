package cli_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/cli"
	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/clitest"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/cli/frame"
	"github.com/berth-scheduler/berth/cmd/internal/golden"
)

// TestEveryCommandHelps walks all commands: each has a summary, an example
// whose commands and flags exist, and an answer to --help.
func TestEveryCommandHelps(t *testing.T) {
	t.Parallel()
	w := clitest.NewWorld(t)
	root := frame.Tree(w.Env, client.NewClient(w.Env), cli.Program())
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
		if cmd == root || cmd.Name() == "help" || frame.Awaits(cmd) != "" {
			return
		}
		if cmd.Short == "" || !strings.HasPrefix(cmd.Example, "  ") || !strings.Contains(cmd.Example, cmd.CommandPath()) {
			t.Errorf("%s: wants a summary and an example", cmd.CommandPath())
		}
		for word := range strings.FieldsSeq(cmd.Example) {
			name, isFlag := strings.CutPrefix(word, "--")
			name = strings.Trim(name, `)"`)
			if isFlag && name != "" && name != "epochs" && cmd.Flags().Lookup(name) == nil && !cmd.HasSubCommands() && cmd.Name() != "cancel" {
				t.Errorf("%s: its example has the unknown flag --%s", cmd.CommandPath(), name)
			}
		}
		fresh := clitest.NewWorld(t)
		if code := fresh.Run(append(strings.Fields(cmd.CommandPath())[1:], "--help")...); code != 0 || !strings.Contains(fresh.Out.String(), "Examples:") {
			t.Errorf("%s --help: exit code %d: %s", cmd.CommandPath(), code, fresh.Errs.String())
		}
	}
	walk(root)
}

func TestCompletionScriptsParse(t *testing.T) {
	t.Parallel()
	for _, shell := range []string{"bash", "zsh"} {
		w := clitest.NewWorld(t)
		if code := w.Run("completion", shell); code != 0 || !strings.Contains(w.Out.String(), "berth") {
			t.Fatalf("%s: exit code %d: %s", shell, code, w.Errs.String())
		}
		if _, err := exec.LookPath(shell); err != nil {
			continue
		}
		cmd := exec.Command(shell, "-n")
		cmd.Stdin = strings.NewReader(w.Out.String())
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s -n: %v: %s", shell, err, out)
		}
	}
}

func TestFeaturesOfAModelFile(t *testing.T) {
	t.Parallel()
	const model = "../../../model/zoo/onnx/resnet50.onnx"
	if _, err := os.Stat(model); err != nil {
		t.Fatal(err)
	}
	for name, args := range map[string][]string{
		"features":      {"features", model, "--batch", "64", "--optimizer", "adamw"},
		"features-json": {"features", model, "--batch", "8", "--inference", "-o", "json"},
	} {
		w := clitest.NewWorld(t)
		golden.Check(t, name, strings.ReplaceAll(w.Transcript(args...), filepath.Dir(model)+"/", ""))
	}
	w := clitest.NewWorld(t)
	f := clitest.NewFake()
	w.Serve("/a", f)
	if code := w.Run("submit", "--onnx", model, "--batch", "64", "--", "true"); code != 0 {
		t.Fatal(w.Errs.String())
	}
	if s := f.Requests[0].GetJobs()[0]; len(s.GetFeatures()) == 0 || s.GetGpus() != 1 {
		t.Errorf("a job with a model carries features and gets a GPU: %v", s)
	}
}

func TestQueueWatch(t *testing.T) {
	for name, terminal := range map[string]bool{"terminal": true, "pipe": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := clitest.NewWorld(t)
				w.Env.IsTerminal = terminal
				w.Serve("/a", clitest.NewFake())
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				w.RunCtx(ctx, "queue", "--watch")
				out := w.Out.String()
				if n := strings.Count(out, "JOBID"); n != 3 {
					t.Errorf("%d listings in 5 s, want 3", n)
				}
				if clears := strings.Count(out, "\x1b[H\x1b[J"); terminal && clears != 3 || !terminal && clears != 0 {
					t.Errorf("the screen was cleared %d times", clears)
				}
			})
		})
	}
}

func TestTooMuchForOneRequest(t *testing.T) {
	t.Parallel()
	w := clitest.NewWorld(t)
	f := clitest.NewFake()
	w.Serve("/a", f)
	w.Env.Environ = func() []string {
		return []string{"A=" + strings.Repeat("x", 4000), "B=" + strings.Repeat("x", 4000)}
	}
	if code := w.Run("submit", "--count", "1000", "--", "true"); code != console.ExitUsage || !strings.Contains(w.Errs.String(), "--export") || len(f.Requests) > 0 {
		t.Errorf("exit code %d, %d requests: %s", code, len(f.Requests), w.Errs.String())
	}
	if code := w.Run("submit", "--count", "1000", "--export", "NONE", "--", "true"); code != 0 {
		t.Errorf("exit code %d: %s", code, w.Errs.String())
	}
}

func TestWatchBeginsAgainWhenTheIndexIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := clitest.NewWorld(t)
		f := clitest.NewFake()
		n := 0
		f.Hook = func(_ context.Context, m string) error {
			if m == "WatchJobs" {
				if n++; n == 2 {
					f.Mu.Lock()
					f.Jobs[0].State = "COMPLETED"
					f.Mu.Unlock()
					return cluster.Errorf(cluster.CodeOutOfRange, "changes are no longer held")
				}
			}
			return nil
		}
		w.Serve("/a", f)
		wake := time.AfterFunc(time.Second, func() { f.Change(func() {}) })
		defer wake.Stop()
		if code := w.Run("wait", "12"); code != 0 || n < 3 {
			t.Errorf("exit code %d after %d streams: %s", code, n, w.Errs.String())
		}
	})
}

func TestTableWidths(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]int{"": 0, "abc": 3, "\u00e9": 1, "e\u0301": 1, "漢字": 4, "🚀": 2} {
		if got := console.TextWidth(s); got != want {
			t.Errorf("%q: %d columns, want %d", s, got, want)
		}
	}
	if got := console.Cut("漢字漢字", 5); got != "漢字…" {
		t.Errorf("got %q", got)
	}
	if got := console.Escape("a\x9b\x7f\xff\r\n\u200f"); strings.IndexFunc(got, func(r rune) bool { return r < ' ' || r > '~' }) >= 0 {
		t.Errorf("got %q", got)
	}
}

// TestSubmitsHelp shows few flags, or all of them, each once.
func TestSubmitsHelp(t *testing.T) {
	t.Parallel()
	w := clitest.NewWorld(t)
	if w.Run("submit", "--help"); strings.Count(w.Out.String(), "\n  -")+strings.Count(w.Out.String(), "\n      --") > 18 {
		t.Errorf("too many flags:\n%s", w.Out.String())
	}
	if code := w.Run("submit", "--help-all"); code != 0 {
		t.Fatal(w.Errs.String())
	}
	root := frame.Tree(w.Env, client.NewClient(w.Env), cli.Program())
	cmd, _, err := root.Find([]string{"submit"})
	if err != nil {
		t.Fatal(err)
	}
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		// A flag's line begins with spaces, or with its letter and a comma.
		if n := strings.Count(w.Out.String(), "  --"+f.Name+" ") + strings.Count(w.Out.String(), ", --"+f.Name+" "); !f.Hidden && n != 1 {
			t.Errorf("--%s is there %d times", f.Name, n)
		}
	})
}
