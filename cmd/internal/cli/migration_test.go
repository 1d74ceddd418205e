package cli_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/berth-scheduler/berth/cmd/internal/cli"
	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/clitest"
	"github.com/berth-scheduler/berth/cmd/internal/cli/frame"
	"github.com/berth-scheduler/berth/cmd/internal/slurm"
)

// daemons are commands that other packages add to the tree.
var daemons = []string{"agent", "coordinator", "config", "doctor", "dev"}

// TestMigrationCommands: the guide's table of commands names those that there
// are, and all of Slurm's that the binary answers to.
func TestMigrationCommands(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("../../../docs/migration.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(data), "<!-- commands: checked by the tests of cmd/internal/cli -->")
	table, _, closed := strings.Cut(rest, "<!-- end of commands -->")
	if !ok || !closed {
		t.Fatal("docs/migration.md has lost the marks around its table of commands")
	}
	w := clitest.NewWorld(t)
	w.Env.Start()
	root := frame.Tree(w.Env, client.NewClient(w.Env), cli.Program())
	for _, m := range regexp.MustCompile("`berth ([^`]*)`").FindAllStringSubmatch(table, -1) {
		words := strings.Fields(m[1])
		if slices.Contains(daemons, words[0]) {
			continue
		}
		if cmd, left, err := root.Find(words); err != nil || len(left) > 0 || cmd == root {
			t.Errorf("the guide names berth %s, which is no command", m[1])
		}
	}
	for _, name := range slurm.Commands() {
		if !strings.Contains(table, "| `"+name+"` |") {
			t.Errorf("the guide does not name %s", name)
		}
	}
}
