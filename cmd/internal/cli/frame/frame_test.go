package frame_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/cli"
	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/clitest"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/cli/frame"
)

// others are commands of another program, which are at hand here.
func others() []frame.Command {
	return []frame.Command{
		{Name: "cluster", New: func(*console.Env, *client.Client) *cobra.Command {
			group := &cobra.Command{Use: "cluster"}
			group.AddCommand(&cobra.Command{Use: "init", Args: cobra.NoArgs, RunE: func(*cobra.Command, []string) error { return nil }})
			return group
		}},
		{Name: "agent", New: func(*console.Env, *client.Client) *cobra.Command {
			return &cobra.Command{Use: "agent", RunE: func(*cobra.Command, []string) error {
				return &console.ExitError{Code: console.ExitUnavailable, Err: cluster.Errorf(cluster.CodeInternal, "no certificate")}
			}}
		}},
	}
}

func TestCommandsOfTwoPrograms(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		args []string
		want int
		text string
	}{
		"merged into a group":  {[]string{"cluster", "init"}, 0, ""},
		"the group's own stay": {[]string{"cluster", "status", "x"}, 2, "takes no arguments"},
		"its usage errors":     {[]string{"cluster", "init", "x"}, 2, "berth cluster init --help"},
		"nearest of both":      {[]string{"cluster", "inti"}, 2, `did you mean "init"?`},
		"own exit code":        {[]string{"agent"}, 4, "no certificate"},
	} {
		w := clitest.NewWorld(t, others()...)
		if code := w.Run(tc.args...); code != tc.want || !strings.Contains(w.Errs.String(), tc.text) {
			t.Errorf("%s: exit code %d, want %d: %s", name, code, tc.want, w.Errs.String())
		}
	}
}

// TestAway: what another program has is started there as it was typed, with its help
// and its completions; what is mistyped is berth's to explain.
func TestAway(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		args    string
		program string // "" for none
		with    string // "" for args
	}{
		{"sim run --trace x -- -y", "berth-lab", ""},
		{"sim --help", "berth-lab", ""},
		{"--timeout 3s sim run", "berth-lab", "sim --timeout 3s run"},
		{"model eval --train d", "berth-lab", ""},
		{"agent join", "berthd", ""},
		{"cluster snapshot save f", "berthd", ""},
		{"help sim run", "berth-lab", ""},
		{"help model", "", ""},
		{"__complete sim", "", ""}, // the word itself is being typed
		{"__complete sim ", "berth-lab", ""},
		{"__complete sim r", "berth-lab", ""},
		{"__completeNoDesc cluster init --", "berthd", ""},
		{"__complete cluster ", "", ""},
		{"smi", "", ""},
	} {
		w := clitest.NewWorld(t)
		var program string
		var with []string
		w.Env.Become = func(name string, args []string) error {
			program, with = name, args
			return nil
		}
		args := strings.Split(tc.args, " ")
		w.Run(args...)
		want := args
		if tc.with != "" {
			want = strings.Split(tc.with, " ")
		}
		if program != tc.program || program != "" && !slices.Equal(with, want) {
			t.Errorf("berth %s became %q %q, want %q %q", tc.args, program, with, tc.program, want)
		}
	}
	w := clitest.NewWorld(t)
	if code := w.Run("smi"); code != console.ExitUsage || !strings.Contains(w.Errs.String(), `did you mean "sim"?`) {
		t.Errorf("smi: exit code %d: %s", code, w.Errs.String())
	}
}

// TestOnlyWhatIsAsked: the command that is typed is built and no other; what looks
// at all has all.
func TestOnlyWhatIsAsked(t *testing.T) {
	t.Parallel()
	built := map[string]int{}
	p := cli.Program()
	for i, c := range p.Commands {
		p.Commands[i].New = func(e *console.Env, cl *client.Client) *cobra.Command {
			built[c.Name]++
			return c.New(e, cl)
		}
	}
	w := clitest.NewWorld(t)
	if code := frame.Execute(t.Context(), []string{"version"}, w.Env, p); code != 0 || len(built) != 1 || built["version"] != 1 {
		t.Errorf("version: exit code %d, built %v", code, built)
	}
	for _, args := range [][]string{{"--help"}, {"help"}, {"nonsense"}, {"__complete", "q"}} {
		clear(built)
		frame.Execute(t.Context(), args, w.Env, p)
		if len(built) < 40 || built["queue"] != 1 {
			t.Errorf("%q: built %v", args, built)
		}
	}
	clear(built)
	if frame.Execute(t.Context(), nil, w.Env, p); len(built) > 0 {
		t.Errorf("berth alone is no command, and built %v", built)
	}
}

// TestNumbersOfArguments: too few and too many are said in words that name what the
// command takes, whoever counts them.
func TestNumbersOfArguments(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		takes cobra.PositionalArgs
		args  []string
		want  string
	}{
		{cobra.ExactArgs(1), nil, "an argument is missing: look THIS [THAT]"},
		{cobra.ExactArgs(2), []string{"a"}, `an argument is missing after "a": look THIS [THAT]`},
		{cobra.MinimumNArgs(2), []string{"a"}, `an argument is missing after "a": look THIS [THAT]`},
		{cobra.ExactArgs(1), []string{"a", "b"}, "2 arguments are too many: look THIS [THAT]"},
		{cobra.MaximumNArgs(0), []string{"a"}, "1 argument is too many: look THIS [THAT]"},
		{cobra.RangeArgs(1, 2), []string{"a", "b", "c"}, "3 arguments are too many: look THIS [THAT]"},
		{cobra.NoArgs, []string{"a"}, `takes no arguments, got "a"`},
		{console.OneArg("node"), nil, "node is missing"},
	} {
		cmd := &cobra.Command{Use: "look THIS [THAT]", Args: c.takes, RunE: func(*cobra.Command, []string) error { return nil }}
		frame.WrapUsage(cmd)
		if err := cmd.Args(cmd, c.args); err == nil || err.Error() != c.want {
			t.Errorf("%q: %v, want %s", c.args, err, c.want)
		}
	}
}
