package slurmcmd_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/berth-scheduler/berth/cmd/internal/cli/clitest"
	"github.com/berth-scheduler/berth/cmd/internal/slurm"
)

// TestCommandsDoneByOthers: commands of Slurm's that are not here say by which of
// Berth's their work is done, and those are there.
func TestCommandsDoneByOthers(t *testing.T) {
	t.Parallel()
	named := regexp.MustCompile(`berth ([a-z]+( (list|status))?)`)
	for _, name := range []string{"sattach", "sbcast", "scrontab", "sgather", "sprio", "sreport", "sstat", "strigger"} {
		w := clitest.NewWorld(t)
		if code := w.Run(name, "show", "user", "-n"); code != 1 || !strings.HasPrefix(w.Errs.String(), name+": error: ") || w.Out.Len() > 0 {
			t.Errorf("%s: exit code %d: %s%s", name, code, w.Out.String(), w.Errs.String())
		}
		for _, m := range named.FindAllStringSubmatch(w.Errs.String(), -1) {
			if code := w.Run(append(strings.Fields(m[1]), "--help")...); code != 0 {
				t.Errorf("%s names berth %s, which is no command: %s", name, m[1], w.Errs.String())
			}
		}
		if !slices.Contains(slurm.Commands(), name) {
			t.Errorf("there is no link %s", name)
		}
		if code := w.Run(name, "--version"); code != 0 || len(strings.Fields(w.Out.String())) != 2 {
			t.Errorf("%s --version: exit code %d: %q, want two words", name, code, w.Out.String())
		}
	}
}

// TestVersionOfTwoWords: scripts read the second.
func TestVersionOfTwoWords(t *testing.T) {
	t.Parallel()
	for _, line := range []string{"sbatch --version", "squeue -V", "sinfo --version", "scancel -V", "scontrol -V", "scontrol version", "sacct -V", "srun -V", "salloc --version"} {
		w := clitest.NewWorld(t)
		w.Serve("/a", clitest.NewFake())
		if code := w.Run(strings.Fields(line)...); code != 0 || w.Out.String() != "slurm-berth 22.05.8\n" {
			t.Errorf("%s: exit code %d: %q", line, code, w.Out.String())
		}
	}
}
