package slurmcmd_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-scheduler/berth/cmd/internal/cli/clitest"
)

// TestSbatchSaysWhatIsNotDone, and nothing else: programs that call sbatch take
// words on its standard error for a failure. With -v it says all.
func TestSbatchSaysWhatIsNotDone(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "job.sh")
	script := "#!/bin/sh\n#SBATCH --job-name=x\n#SBATCH --ntasks=2 --mem-per-cpu=1G\n#SBATCH --export=ALL\n"
	write := func(more string) {
		if err := os.WriteFile(path, []byte(script+more+"true\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("")
	w := clitest.NewWorld(t)
	scriptJob(t, w, "sbatch", "-t", "10", path)
	if w.Errs.Len() > 0 {
		t.Errorf("says: %s", w.Errs.String())
	}
	w = clitest.NewWorld(t)
	scriptJob(t, w, "sbatch", "-v", "-t", "10", path)
	for _, want := range []string{"job.sh:2: --job-name=x: honoured", "job.sh:3: --mem-per-cpu=1G: mapped"} {
		if !strings.Contains(w.Errs.String(), want) {
			t.Errorf("-v: want %q in\n%s", want, w.Errs.String())
		}
	}
	write("#SBATCH --licenses=matlab\n")
	w = clitest.NewWorld(t)
	scriptJob(t, w, "sbatch", path)
	if got := w.Errs.String(); !strings.Contains(got, "--licenses=matlab: ignored") || strings.Count(got, "\n") != 1 {
		t.Errorf("of what is ignored: %s", got)
	}
	write("#SBATCH --uid=0\n")
	w = clitest.NewWorld(t)
	w.Serve("/a", clitest.NewFake())
	if code := w.Run("sbatch", path); code != 1 || !strings.Contains(w.Errs.String(), "--uid=0: refused") || strings.Contains(w.Errs.String(), "honoured") {
		t.Errorf("of what is refused: exit code %d: %s", code, w.Errs.String())
	}
	write("")
	w = clitest.NewWorld(t)
	scriptJob(t, w, "submit", path)
	if !strings.Contains(w.Errs.String(), "job.sh:2: --job-name=x: honoured") {
		t.Errorf("berth submit: %s", w.Errs.String())
	}
}

// TestWrapTakesTheEnvironment: SBATCH_* count for a command as for a script.
func TestWrapTakesTheEnvironment(t *testing.T) {
	t.Parallel()
	w := clitest.NewWorld(t)
	w.Env.Environ = func() []string {
		return []string{"PATH=/usr/bin", "SBATCH_JOB_NAME=named", "SBATCH_TIMELIMIT=10", "SBATCH_ACCOUNT=vision"}
	}
	j := scriptJob(t, w, "sbatch", "-t", "20", "--wrap", "true")
	if j.GetName() != "named" || j.GetAccount() != "vision" || j.GetTimeLimit().AsDuration().Minutes() != 20 || w.Errs.Len() > 0 {
		t.Errorf("name %q, account %q, %s: %s", j.GetName(), j.GetAccount(), j.GetTimeLimit().AsDuration(), w.Errs.String())
	}
	w = clitest.NewWorld(t)
	w.Env.Environ = func() []string { return []string{"PATH=/usr/bin", "SBATCH_JOB_NAME=named"} }
	if j := scriptJob(t, w, "submit", "--", "true"); j.GetName() != "true" {
		t.Errorf("berth submit of a command is called %q", j.GetName())
	}
}

// TestAllMemory: --mem=0 is all of the node's, and nothing is said of it.
func TestAllMemory(t *testing.T) {
	t.Parallel()
	for _, line := range []string{"sbatch --mem=0 --wrap true", "sbatch --exclusive --mem=0 --wrap true", "sbatch --mem-per-cpu=0 -n 4 --wrap true", "submit --mem all -- true"} {
		w := clitest.NewWorld(t)
		if j := scriptJob(t, w, strings.Fields(line)...); !j.GetAllMem() || j.GetMemMib() != 0 || w.Errs.Len() > 0 {
			t.Errorf("%s: all is %t, %d MiB; says %q", line, j.GetAllMem(), j.GetMemMib(), w.Errs.String())
		}
	}
	w := clitest.NewWorld(t)
	if j := scriptJob(t, w, "submit", "--mem", "all", "--mem", "2G", "--", "true"); j.GetAllMem() || j.GetMemMib() != 2048 {
		t.Errorf("the last --mem does not win: all is %t, %d MiB", j.GetAllMem(), j.GetMemMib())
	}
}
