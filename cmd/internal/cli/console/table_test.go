package console_test

import (
	"bufio"
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster/draws"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
)

var _ = draws.Fixed()

var painted = regexp.MustCompile("\x1b\\[[0-9]*m")

// printed is a small table of jobs on a terminal.
func printed(width int, vars map[string]string) string {
	var out strings.Builder
	e := &console.Env{IsTerminal: true, Width: func() int { return width }, Getenv: func(k string) string { return vars[k] }, Out: bufio.NewWriter(&out)}
	t := &console.Table{Cols: []console.Column{
		{Head: "JOBID", Right: true}, {Head: "NAME", Shrink: true}, {Head: "USER", Drop: 1}, {Head: "ST", Paint: console.StateColour}, {Head: "GPU", Shrink: true, Drop: 2}, {Head: "NODE(REASON)", Shrink: true},
	}}
	t.Add("7", "a-long-name-of-a-job", "ann", "R", "A100-SXM4-80GB:0", "n1")
	t.Add("8", "x", "bob", "F", "-", "-")
	t.Add("9", "x", "bob", "CD", "-", "-")
	t.Print(e)
	_ = e.Out.Flush()
	return out.String()
}

// TestNarrowTable: what matters least goes first, and no line is wider than the terminal.
func TestNarrowTable(t *testing.T) {
	t.Parallel()
	for width, want := range map[int]string{
		80: "JOBID  NAME                  USER  ST  GPU               NODE(REASON)", 50: "JOBID  NAME       USER  ST  GPU         NODE(REAS…", 40: "JOBID  NAME        USER  ST  NODE(REASO…",
		30: "JOBID  NAME      ST  NODE(REA…",
	} {
		if first, _, _ := strings.Cut(printed(width, nil), "\n"); first != want {
			t.Errorf("%d columns: %q, want %q", width, first, want)
		}
	}
	rapid.Check(t, func(rt *rapid.T) {
		width := rapid.IntRange(20, 100).Draw(rt, "width")
		plain, colour := printed(width, nil), printed(width, map[string]string{"TERM": "xterm"})
		for line := range strings.Lines(plain) {
			if n := console.TextWidth(strings.TrimSuffix(line, "\n")); n > width {
				rt.Fatalf("%d columns on a terminal of %d: %q", n, width, line)
			}
		}
		if painted.ReplaceAllString(colour, "") != plain {
			rt.Fatalf("colours change more than the colour:\n%s\n%s", colour, plain)
		}
	})
}

// TestColours: where the terminal has none, or the user wants none, there are none.
func TestColours(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		vars map[string]string
		want bool
	}{
		{map[string]string{"TERM": "xterm"}, true}, {map[string]string{"TERM": "dumb"}, false}, {nil, false}, {map[string]string{"TERM": "xterm", "NO_COLOR": "1"}, false},
	} {
		out := printed(80, c.vars)
		if have := strings.Contains(out, "\x1b[32mR\x1b[0m ") && strings.Contains(out, "\x1b[31mF\x1b[0m ") && strings.Contains(out, "  CD  "); have != c.want || !c.want && strings.Contains(out, "\x1b") {
			t.Errorf("%v: %q", c.vars, out)
		}
	}
}
