package cli_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/berth-scheduler/berth/cmd/internal/cli/clitest"
	"github.com/berth-scheduler/berth/cmd/internal/cli/complete"
)

func TestCompletion(t *testing.T) {
	for typed, want := range map[string]string{
		"show ":                      "12\ttrain, RUNNING",
		"submit --gpu-type A":        "A100-SXM4-80GB",
		"node drain n":               "n1",
		"node drain n1 n":            "!n1",
		"queue --state RUNNING,":     "RUNNING,PENDING",
		"completion ":                "fish",
		"sbatch --nodel":             "--nodelist",
		"sbatch --nodelist=":         "--nodelist=n1",
		"sbatch --nodelist=n1,":      "--nodelist=n1,n2",
		"sbatch -w n":                "n2",
		"srun --mp":                  "--mpi",
		"squeue --nodel":             "--nodelist\tonly jobs on these nodes",
		"scancel ":                   "12\ttrain, RUNNING",
		"scontrol show node ":        "n2",
		"scontrol show node n1 ":     "n2",
		"scontrol ":                  "show",
		"scontrol show ":             "topology",
		"scontrol update ":           "!show",
		"scontrol hold ":             "12\ttrain, RUNNING",
		"show -o ":                   "json",
		"show --output ":             "svg",
		"show --output t":            "!node",
		"model list -o ":             "yaml",
		"sbatch --job-name=x scri":   ":0",
		"submit --gpus 1 -- python ": ":0",
	} {
		synctest.Test(t, func(t *testing.T) {
			w := clitest.NewWorld(t)
			f := clitest.NewFake()
			w.Serve("/a", f)
			words := strings.Split(typed, " ")
			if code := w.Run(append([]string{"__complete"}, words...)...); code != 0 {
				t.Errorf("%q: exit code %d: %s", typed, code, w.Errs.String())
			}
			lines := strings.Split(w.Out.String(), "\n")
			found := false
			unwanted, not := strings.CutPrefix(want, "!")
			for _, l := range lines {
				found = found || l == want || not && l == unwanted
			}
			if found == not {
				t.Errorf("%q: %q in\n%s", typed, want, w.Out.String())
			}
		})
	}
}

// Without a coordinator nothing is proposed, and soon.
func TestCompletionWithoutCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := clitest.NewWorld(t)
		if code := w.Run("__complete", "show", ""); code != 0 || w.Out.String() != ":4\n" {
			t.Errorf("exit code %d: %q", code, w.Out.String())
		}
	})
}

// bash without the package bash-completion proposes what berth does, cut where
// readline begins a word.
func TestBashCompletion(t *testing.T) {
	shell, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("bash is not installed")
	}
	script, _ := complete.Script("bash", []string{"sbatch"})
	dir := t.TempDir()
	write := func(name, content string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o755); err != nil { // #nosec G306 -- a program
			t.Fatal(err)
		}
	}
	write("berth", "#!/bin/sh\nprintf '%s|' \"$@\" > "+dir+"/asked\ncat "+dir+"/answer\n")
	if err := os.Symlink("berth", filepath.Join(dir, "sbatch")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ line, answer, asked, want string }{
		{"berth sho", "show\tShow all\n:4\n", "__complete|sho|", "show"},
		{"berth show ", "1\tsleep, PENDING\n2\tx, RUNNING\n:4\n", "__complete|show||", "1 2"},
		{"/usr/bin/sbatch --nodelist=n1,", "--nodelist=n1,n2\n--nodelist=n1,n3\n:4\n", "__complete|sbatch|--nodelist=n1,|", "n1,n2 n1,n3"},
		{"sbatch scri", ":0\n", "__complete|sbatch|scri|", "option -o default"},
		{"sbatch --part", "--partition=\n:6\n", "__complete|sbatch|--part|", "--partition= option -o nospace"},
	} {
		write("answer", c.answer)
		cmd := exec.Command(shell, "--norc", "-c", `source "$0"; compopt() { opts="option $*"; }
COMP_LINE=$1 COMP_POINT=${#1}; _berth_complete; echo "${COMPREPLY[@]} $opts"; complete -p sbatch >&2`, "/dev/stdin", c.line)
		cmd.Stdin = strings.NewReader(script)
		cmd.Env = []string{"PATH=" + dir + ":/usr/bin:/bin"}
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: %v, %s", c.line, err, out)
		}
		asked, _ := os.ReadFile(filepath.Join(dir, "asked"))
		if got := strings.Join(strings.Fields(string(out)), " "); got != c.want || string(asked) != c.asked {
			t.Errorf("%q: asked %q, proposed %q; want %q, %q", c.line, asked, got, c.asked, c.want)
		}
	}
}
