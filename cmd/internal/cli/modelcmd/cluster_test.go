package modelcmd_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-scheduler/berth/cmd/internal/cli/clitest"
	"github.com/berth-scheduler/berth/cmd/internal/cli/modelcmd"
)

func TestModelTravelsThroughFiles(t *testing.T) {
	t.Parallel()
	w := clitest.NewWorld(t)
	w.Serve("/a", clitest.NewFake())
	path := filepath.Join(t.TempDir(), "site.weights")
	if code := w.Run("model", "export", "6", path); code != 0 || !strings.Contains(w.Out.String(), "version 6") {
		t.Fatalf("export: %d %s%s", code, w.Out.String(), w.Errs.String())
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != clitest.GoodWeights {
		t.Fatalf("exported %q, %v", got, err)
	}
	if code := w.Run("model", "import", path); code != 0 || w.Out.String() != "model version 8: in use (import)\n" {
		t.Errorf("import: %d %s%s", code, w.Out.String(), w.Errs.String())
	}
	if code := w.Run("model", "export", "-"); code != 0 || w.Out.String() != clitest.GoodWeights {
		t.Errorf("export to standard output: %d %q", code, w.Out.String())
	}
	w.Env.Stdin = strings.NewReader(clitest.GoodWeights)
	if code := w.Run("model", "import", "-"); code != 0 {
		t.Errorf("import of standard input: %d %s", code, w.Errs.String())
	}
	w.Env.Stdin = bytes.NewReader(make([]byte, modelcmd.MaxModelFile+1))
	if code := w.Run("model", "import", "-"); code != 2 || !strings.Contains(w.Errs.String(), "256 KiB") {
		t.Errorf("too much on standard input: %d %s", code, w.Errs.String())
	}
	if err := os.WriteFile(path, []byte("garbage"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code := w.Run("model", "import", path); code != 2 || !strings.Contains(w.Errs.String(), "not a weights file") {
		t.Errorf("garbage: %d %s", code, w.Errs.String())
	}
	if code := w.Run("model", "export", filepath.Join(path, "x")); code != 1 {
		t.Errorf("export into a file: %d %s", code, w.Errs.String())
	}
}

func TestDestructiveVerbsAskOnATerminal(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]int{"y\n": 0, "YES\n": 0, "n\n": 1, "\n": 1, "": 1} {
		for _, verb := range []string{"fence", "remove"} {
			w := clitest.NewWorld(t)
			f := clitest.NewFake()
			called := false
			f.Hook = func(context.Context, string) error { called = true; return nil }
			w.Serve("/a", f)
			w.Env.IsTerminal, w.Env.Stdin = true, strings.NewReader(answer)
			if code := w.Run("node", verb, "n1"); code != want || called != (want == 0) || !strings.Contains(w.Errs.String(), "[y/N]") {
				t.Errorf("%s, answer %q: exit code %d, want %d; called %t: %s", verb, answer, code, want, called, w.Errs.String())
			}
		}
	}
}
