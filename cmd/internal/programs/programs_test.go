package programs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestBeside: a program is found in the folder of the running one, by way of any
// link, and whoever lacks one learns which and where.
func TestBeside(t *testing.T) {
	dir, links := t.TempDir(), t.TempDir()
	for name, mode := range map[string]os.FileMode{Users: 0o755, Job: 0o755, Lab: 0o644} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	self := filepath.Join(links, "sbatch")
	if err := os.Symlink(filepath.Join(dir, Users), self); err != nil {
		t.Fatal(err)
	}
	if got, err := beside(self, Job); err != nil || got != filepath.Join(dir, Job) {
		t.Errorf("beside a link: %s, %v", got, err)
	}
	for name, want := range map[string]string{
		Daemon: "berthd is missing: it belongs into " + dir + ", beside berth;",
		Lab:    "berth-lab is no program that can be run",
	} {
		if got, err := beside(self, name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %q, %v; want %q", name, got, err, want)
		}
	}
}
