package cli_test

import (
	"strings"
	"testing"

	"github.com/berth-scheduler/berth/cmd/internal/cli/clitest"
)

// TestJQ: --jq stands for -o json, filters lists and streams of any command, and what is
// wrong is said before the command does anything.
func TestJQ(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"queue", "--jq", ".[].id"}, 0, "12\n13\n"},
		{[]string{"queue", "-o", "json", "--jq", `.[] | select(.id == 12) | "\(.id) \(.state)"`}, 0, "12 "},
		{[]string{"show", "12", "--jq", ".id"}, 0, "12\n"},
		{[]string{"node", "list", "--jq", "length"}, 0, "\n"},
		{[]string{"version", "--jq", ".version | type"}, 0, "string\n"},
		{[]string{"queue", "--jq", ".["}, 2, "--jq: unexpected EOF at its end"},
		{[]string{"queue", "--jq", "", "-o", "table"}, 2, "--jq: works on JSON, but --output is \"table\""},
		{[]string{"queue", "-o", "yaml", "--jq", "."}, 2, "leave that out"},
		{[]string{"queue", "--jq", ".id"}, 1, "--jq: expected an object but got: array"},
		{[]string{"cancel", "7", "--jq", "."}, 2, "unknown flag --jq"},
	} {
		w := clitest.NewWorld(t)
		w.Serve("/a", clitest.NewFake())
		code := w.Run(c.args...)
		if got := w.Out.String() + w.Errs.String(); code != c.code || !strings.Contains(got, c.says) {
			t.Errorf("%q: code %d, want %d and %q:\n%s", c.args, code, c.code, c.says, got)
		}
	}
}
