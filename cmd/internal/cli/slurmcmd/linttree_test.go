package slurmcmd_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-scheduler/berth/cmd/internal/cli/clitest"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
)

// TestLintTree: a tree as projects have them, with what is no script, what
// cannot be read, and links that lead in circles.
func TestLintTree(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	put := func(name, text string, mode os.FileMode) {
		t.Helper()
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	const good, bad = "#!/bin/sh\n#SBATCH -G1\ntrue\n", "#!/bin/sh\n#SBATCH --uid=0\ntrue\n"
	put("a/good.sh", good, 0o644)
	put("a/refused", bad, 0o755)
	put("a/windows.sbatch", "#!/bin/sh\r\n#SBATCH -G1\r\n", 0o644)
	put("a/no-interpreter.slurm", "#SBATCH -G1\ntrue\n", 0o644)
	put("a/bom.sh", "\ufeff#!/bin/sh\n#SBATCH -G1\n", 0o644)
	put("a/ignored.sh", "#!/bin/sh\n#SBATCH -G1 --tmp=5G\ntrue\n", 0o644)
	put("a/plain.sh", "#!/bin/sh\necho no directives\n", 0o644)
	put("a/notes.txt", "write #SBATCH -G1\n#SBATCH -G1\n", 0o644)
	put("a/data.bin", "\x00\xff#!\n#SBATCH", 0o644)
	put("a/installer", "#!/bin/sh\n"+strings.Repeat("\x00\x01\xfe", 100_000), 0o755)
	put(".git/hooks/x.sh", bad, 0o755)
	for _, l := range [][2]string{{"..", "a/up"}, {"loop2", "loop1"}, {"loop1", "loop2"}, {"a/good.sh", "link.sh"}} {
		if err := os.Symlink(l[0], filepath.Join(root, l[1])); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(root, "a/pipe.sh"), 0o600); err != nil {
		t.Fatal(err)
	}
	here := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(root, here); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name string
		args []string
		code int
		want []string
	}{
		{"names", []string{root}, console.ExitFailed, []string{"a/bom.sh", "a/no-interpreter.slurm", "a/refused", "a/windows.sbatch"}},
		{"through a link", []string{here}, console.ExitFailed, []string{"a/bom.sh", "a/no-interpreter.slurm", "a/refused", "a/windows.sbatch"}},
		{"strict", []string{"--strict", root}, console.ExitFailed, []string{"a/bom.sh", "a/ignored.sh", "a/no-interpreter.slurm", "a/refused", "a/windows.sbatch"}},
		{"a good one", []string{filepath.Join(root, "link.sh")}, 0, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := clitest.NewWorld(t)
			if code := w.Run(append([]string{"lint", "-o", "name"}, tc.args...)...); code != tc.code {
				t.Errorf("exit code %d, want %d: %s", code, tc.code, w.Errs.String())
			}
			var got []string
			for line := range strings.Lines(w.Out.String()) {
				line = strings.TrimPrefix(strings.TrimPrefix(strings.TrimSpace(line), root+"/"), here+"/")
				got = append(got, line)
			}
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Error(d)
			}
		})
	}
	w := clitest.NewWorld(t)
	w.Run("lint", root)
	if !strings.Contains(w.Errs.String(), "6 scripts: 1 run as is, 1 run with something ignored, 4 would be refused") {
		t.Errorf("summary: %s", w.Errs.String())
	}
}

// TestLintCannotRead: what we may not read is told, and the rest looked at.
func TestLintCannotRead(t *testing.T) {
	t.Parallel()
	if os.Geteuid() == 0 {
		t.Skip("root may read everything")
	}
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "x.sh"), []byte("#!/bin/sh\n#SBATCH -G1\n"), 0); err != nil {
		t.Fatal(err)
	}
	w := clitest.NewWorld(t)
	if code := w.Run("lint", root); code != 0 || !strings.Contains(w.Errs.String(), "1 file or folder could not be read") {
		t.Errorf("exit code %d: %s", code, w.Errs.String())
	}
}

// TestLintHuge: two thousand files, half of them scripts, and all are in the JSON.
func TestLintHuge(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	const scripts = 1000
	for i := range scripts {
		dir := filepath.Join(root, fmt.Sprint(i%50))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%d.sh", i)), []byte("#!/bin/sh\n#SBATCH -G1 -t10\ntrue\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%d.txt", i)), []byte("data"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	w := clitest.NewWorld(t)
	if code := w.Run("lint", "-o", "json", root); code != 0 {
		t.Fatalf("exit code %d: %s", code, w.Errs.String())
	}
	var got []struct{ File, Outcome string }
	if err := json.Unmarshal(w.Out.Bytes(), &got); err != nil || len(got) != scripts {
		t.Errorf("%d scripts, %v", len(got), err)
	}
}
