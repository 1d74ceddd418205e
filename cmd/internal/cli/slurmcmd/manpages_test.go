package slurmcmd

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/cli/slurmcmd/accounting"
	"github.com/berth-scheduler/berth/cmd/internal/cli/slurmcmd/control"
	"github.com/berth-scheduler/berth/cmd/internal/cli/slurmcmd/option"
	"github.com/berth-scheduler/berth/cmd/internal/golden"
)

// withOptions are the commands whose options are those of a man page.
func withOptions() []*cobra.Command {
	e := &console.Env{}
	c := client.NewClient(e)
	return []*cobra.Command{NewSqueueCmd(e, c), NewSinfoCmd(e, c), control.NewScancelCmd(e, c), control.NewScontrolCmd(e, c), accounting.NewSacctCmd(e, c)}
}

// TestManPages: every option of Slurm's man pages is known, short and long, with a
// value where it has one and with none where not.
func TestManPages(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("testdata/manpages.txt")
	if err != nil {
		t.Fatal(err)
	}
	flags := map[string]*pflag.FlagSet{}
	for _, cmd := range withOptions() {
		flags[cmd.Name()] = cmd.Flags()
	}
	listed := 0
	for line := range strings.Lines(string(data)) {
		f := strings.Fields(line)
		if strings.HasPrefix(line, "#") || len(f) != 3 {
			continue
		}
		listed++
		fs, name := flags[f[0]], f[1]
		if name == "-h" && fs.ShorthandLookup("h") == nil { // help, see option.Command
			continue
		}
		flag := fs.Lookup(strings.TrimPrefix(name, "--"))
		if !strings.HasPrefix(name, "--") {
			flag = fs.ShorthandLookup(name[1:])
		}
		switch {
		case flag == nil:
			t.Errorf("%s %s is not known", f[0], name)
		case (f[2] != "-") != (flag.NoOptDefVal == "") && flag.Annotations[option.MarkAlone] == nil && flag.Name != "whole-hetjob":
			t.Errorf("%s %s: that it takes a value is wrong", f[0], name)
		}
	}
	if listed < 200 {
		t.Errorf("only %d options are listed", listed)
	}
}

// taken is the table of options for which nothing is done, or that are refused.
func taken() string {
	var b strings.Builder
	b.WriteString("| command | option | outcome | why, and what to do |\n| --- | --- | --- | --- |\n")
	for _, cmd := range withOptions() {
		cmd.Flags().SortFlags = true
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			outcome, why := "ignored", f.Annotations[option.MarkIgnored]
			if why == nil {
				outcome, why = "refused", f.Annotations[option.MarkRefused]
			}
			if why == nil {
				return
			}
			name := "`--" + f.Name + "`"
			if f.Shorthand != "" {
				name += ", `-" + f.Shorthand + "`"
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", cmd.Name(), name, outcome, why[0])
		})
	}
	return b.String()
}

// TestTakenOptionsDocs holds the table of docs/slurm.md to the commands; with -update it
// is written again.
func TestTakenOptionsDocs(t *testing.T) {
	t.Parallel()
	const path, begin, end = "../../../../docs/slurm.md", "<!-- taken: made by the tests of cmd/internal/cli/slurmcmd -->\n\n", "\n<!-- end of taken -->"
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(data), begin)
	table, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		t.Fatalf("%s has lost the marks around its table", path)
	}
	want := taken()
	if golden.Updating() {
		table = want
		if err := os.WriteFile(path, []byte(before+begin+want+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if d := cmp.Diff(want, table); d != "" {
		t.Errorf("%s:\n%s", path, d)
	}
}
