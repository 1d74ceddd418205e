package jobcmd_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/berth-scheduler/berth/cmd/internal/cli/clitest"
)

// TestOutputFolder: a missing folder in one's own is made, any other is told of, and a
// job that goes nowhere in particular asks for neither.
func TestOutputFolder(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, verb, output, uid string
		made, said              string
	}{
		{"own", "submit", "logs/%j.out", "", "logs", "made the folder DIR/logs for the job's output"},
		{"own, by sbatch", "sbatch", "logs/%j.out", "", "logs", ""},
		{"another's", "submit", "logs/%j.out", "31999", "", "warning: the folder DIR/logs, for the job's output, is not there;"},
		{"another's, by sbatch", "sbatch", "logs/%j.out", "31999", "", "warning: the folder DIR/logs, for the job's output, is not there;"},
		{"deeper", "submit", "a/b/%j.out", "", "", "warning: the folder DIR/a/b, for"},
		{"pattern", "submit", "%x/%j.out", "", "", ""},
		{"here", "submit", "%j.out", "", "", ""},
		{"there", "submit", "/tmp/%j.out", "", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := clitest.NewWorld(t)
			dir := t.TempDir()
			w.Env.Getwd = func() (string, error) { return dir, nil }
			w.Env.User = func() string {
				if c.uid != "" {
					return c.uid
				}
				return strconv.Itoa(os.Getuid())
			}
			w.Serve("/a", clitest.NewFake())
			args := []string{"submit", "--output", c.output, "--", "true"}
			if c.verb == "sbatch" {
				args = []string{"sbatch", "--output", c.output, "--wrap", "true"}
			}
			if code := w.Run(args...); code != 0 {
				t.Fatalf("exit code %d: %s", code, w.Errs.String())
			}
			said := strings.ReplaceAll(w.Errs.String(), dir, "DIR")
			if c.said == "" && strings.Contains(said, "folder") || !strings.Contains(said, c.said) {
				t.Errorf("said %q, want %q", said, c.said)
			}
			entries, err := os.ReadDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			var made []string
			for _, e := range entries {
				made = append(made, e.Name())
			}
			if got := strings.Join(made, " "); got != c.made {
				t.Errorf("made %q in %s, want %q", got, filepath.Base(dir), c.made)
			}
		})
	}
}
