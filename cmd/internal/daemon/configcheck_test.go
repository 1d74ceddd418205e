package daemon

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
)

// TestConfigCheck: the samples are well; every problem of a file is named, with the
// exit code by which a daemon would end.
func TestConfigCheck(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "agent.yaml")
	if err := os.WriteFile(bad, []byte("nood: {id: n1}\nlog: {level: loud}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		kind, path string
		want       []string
		fails      bool
	}{
		{"coordinator", "../../../deploy/coordinator.yaml", []string{"coordinator.yaml: no problems\n"}, false},
		{"agent", "../../../deploy/agent.yaml", []string{"agent.yaml: no problems\n"}, false},
		{"agent", bad, []string{"nood", "log.level"}, true},
		{"agent", bad + ".gone", []string{bad + ".gone"}, true},
		{"agents", bad, []string{"want coordinator or agent"}, true},
	} {
		var out bytes.Buffer
		cmd := newConfigCommand()
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		cmd.SetOut(&out)
		cmd.SetArgs([]string{"check", c.kind, "--config", c.path})
		err := cmd.Execute()
		text := out.String()
		if err != nil {
			text = err.Error()
		}
		var exit *console.ExitError
		if (err != nil) != c.fails || c.fails && (!errors.As(err, &exit) || exit.Code != exitConfig) {
			t.Errorf("check %s %s: %v", c.kind, c.path, err)
		}
		for _, want := range c.want {
			if !strings.Contains(text, want) {
				t.Errorf("check %s %s: lacks %q: %s", c.kind, c.path, want, text)
			}
		}
	}
}
