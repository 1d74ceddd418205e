package sruncmd

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestMultiProg: files of --multi-prog are read as srun 22.05.8 was seen to read them.
func TestMultiProg(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		file, more, want string // a line for each of four tasks, words between bars; or the fault
	}{
		"words":     {"# a comment\n\n0      echo zero \"a b\" 'c d' %t %o $HOME\n1-2,3  echo range task:%t off:%o \\\n   more\n", "", "echo|zero|\"a|b\"|c d|0|0|$HOME\necho|range|task:1|off:0|more\necho|range|task:2|off:1|more\necho|range|task:3|off:2|more"},
		"the rest":  {"0 sh -c 'exit 3'\n* echo rest %t:%o a\\ b", "", "sh|-c|exit 3\necho|rest|1:1|a b\necho|rest|2:2|a b\necho|rest|3:3|a b"},
		"more":      {"0-9 echo", "1 %t", "echo|1|0\necho|1|1\necho|1|2\necho|1|3"},
		"no record": {"0 echo zero\n", "", "!Configuration file FILE invalid, no record for task id 1"},
		"twice":     {"0 echo a\n0-1 echo b\n", "", "!Duplicate record for task 0\nLine 2 of configuration file FILE invalid"},
		"no tasks":  {"x echo a\n", "", "!\"x\" is not a list of tasks: want 0, 1-3, 0,4-7 or *\nLine 1 of configuration file FILE invalid"},
		"nothing":   {"0-3\n", "", "!the program after the tasks is missing\nLine 1 of configuration file FILE invalid"},
		"many":      {"0-2000000000 true", "", "true\ntrue\ntrue\ntrue"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "multi")
			if err := os.WriteFile(path, []byte(tc.file), 0o600); err != nil {
				t.Fatal(err)
			}
			got, err := multiProg(path, strings.Fields(tc.more), 4)
			text := ""
			for i, words := range got {
				if i > 0 {
					text += "\n"
				}
				text += strings.Join(words, "|")
			}
			if err != nil {
				text = "!" + strings.ReplaceAll(err.Error(), path, "FILE")
			}
			if d := cmp.Diff(tc.want, text); d != "" {
				t.Errorf("(-want +got)\n%s", d)
			}
		})
	}
	if _, err := multiProg(filepath.Join(t.TempDir(), "no"), nil, 1); err == nil || !strings.HasPrefix(err.Error(), "Could not open multi_prog config file ") {
		t.Errorf("a missing file: %v", err)
	}
}
