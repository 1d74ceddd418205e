package sruncmd

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/berth-scheduler/berth/cmd/internal/sbatch"
)

// TestManPages: every option of the man pages of sbatch, srun and salloc is known, so
// that none is refused as one that there is not.
func TestManPages(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("testdata/manpages.txt")
	if err != nil {
		t.Fatal(err)
	}
	listed := 0
	for line := range strings.Lines(string(data)) {
		command, name, ok := strings.Cut(strings.TrimSpace(line), " -")
		if strings.HasPrefix(line, "#") || !ok {
			continue
		}
		listed++
		all := sbatch.SlurmOptions()
		if command != "sbatch" {
			all = slices.Concat(stepOptions, all)
		}
		if !slices.ContainsFunc(all, func(o sbatch.Option) bool { return "-"+o.Name == name || len(name) == 1 && o.Short == name[0] }) {
			t.Errorf("%s -%s is not known", command, name)
		}
	}
	if listed < 400 {
		t.Errorf("only %d options are listed", listed)
	}
}

// TestRefusedInWords: what would change what runs, and is not done, is refused with
// what to do instead, and what has no meaning here is taken without a word.
func TestRefusedInWords(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"--x11 xterm": "berth tunnel", "--bcast=/tmp/x ./x": "not sent to the nodes", "--het-group=1 ./x": "one group of nodes",
		"--bcast-exclude=/lib --compress=lz4 ./x": "", "-n1 ./a : -n2 ./b": "one group of nodes",
	} {
		_, err := parse(strings.Fields(args))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("srun %s: %v, want words of %q", args, err, want)
		}
	}
}
