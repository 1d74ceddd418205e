package backupcmd_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-scheduler/berth/cmd/internal/cli/clitest"
)

// TestStoppedDirectoryIsShownCheckedAndMended goes through the commands on the directory
// that a restore makes.
func TestStoppedDirectoryIsShownCheckedAndMended(t *testing.T) {
	t.Parallel()
	w, dir := clitest.NewWorld(t, commands...), t.TempDir()
	file, data, peers := filepath.Join(dir, "b.snap"), filepath.Join(dir, "data"), filepath.Join(dir, "peers.json")
	want := func(code int, words string, args ...string) {
		t.Helper()
		if got := w.Run(args...); got != code || !strings.Contains(w.Out.String()+w.Errs.String(), words) {
			t.Errorf("berth %s: exit code %d, want %d and %q:\n%s%s", strings.Join(args, " "), got, code, words, &w.Out, &w.Errs)
		}
	}
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(file, string(backupOf(t, "hpc")))
	want(1, "not the data directory", "coordinator", "verify", "--dir", data)
	want(0, "Restored", "cluster", "snapshot", "restore", file, "--config", "../../../../deploy/coordinator.yaml", "--data", data)
	want(0, "ends at 4294967303", "coordinator", "verify", "--dir", data)
	want(0, "the newest snapshot ends at 4294967303", "coordinator", "log", "--dir", data)
	want(2, "at least 1", "coordinator", "log", "--dir", data, "--limit", "0")
	want(2, "give --skip-entry or --peers", "coordinator", "recover", "--dir", data)
	want(2, "add --i-skip-it-on-every-coordinator", "coordinator", "recover", "--dir", data, "--skip-entry", "7")
	want(1, "it was applied here", "coordinator", "recover", "--dir", data, "--skip-entry", "7", "--i-skip-it-on-every-coordinator")
	recovered := []string{"coordinator", "recover", "--dir", data, "--peers", peers, "--i-know-the-others-are-lost"}
	want(2, "no such file", recovered...)
	write(peers, `{"id": "c1"}`)
	want(2, "want a JSON list", recovered...)
	write(peers, `[{"id": "other", "address": "10.0.0.1:7070"}]`)
	want(1, "not among the members", recovered...)
	write(peers, `[{"id": "c1", "address": "10.0.0.1:7070"}]`)
	want(0, "1 members from now on", recovered...)
	want(0, "History:", "coordinator", "verify", "--dir", data)

	if err := os.Mkdir(filepath.Join(data, "history"), 0o700); err != nil {
		t.Fatal(err)
	}
	write(filepath.Join(data, "history", "seg-1-2"), strings.Repeat("x", 4096))
	want(1, "seg-1-2", "coordinator", "verify", "--dir", data)
	states, err := filepath.Glob(filepath.Join(data, "snapshots", "*", "state.bin"))
	if err != nil || len(states) == 0 {
		t.Fatalf("snapshots %v, %v", states, err)
	}
	for _, s := range states {
		write(s, "y")
	}
	want(1, "CRC mismatch", "coordinator", "verify", "--dir", data)
}
