package e2e

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// What the README says under "Use it" is typed as it stands there.
func TestReadmeCommands(t *testing.T) {
	needRoot(t)
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(readme), "\n## Use it\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var lines []string
	for _, m := range regexp.MustCompile(`(?m)^\$ (.*)$`).FindAllStringSubmatch(section, -1) {
		lines = append(lines, m[1])
	}
	if len(lines) < 6 || lines[0] != "bin/berth dev" {
		t.Fatalf("the commands of README's \"Use it\" are %q", lines)
	}
	dir, err := os.MkdirTemp("", "be2e-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Symlink(filepath.Dir(berth), filepath.Join(dir, "bin")); err != nil {
		t.Fatal(err)
	}
	// Clusters of other tests are not found.
	env := append(os.Environ(), "BERTH_SOCKET=", "TMPDIR="+dir)
	dev := exec.Command("sh", "-c", "exec "+lines[0])
	said := &syncBuffer{}
	dev.Dir, dev.Env, dev.Stderr = dir, env, said
	out, err := dev.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := dev.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = dev.Process.Signal(os.Interrupt)
		if err := dev.Wait(); err != nil {
			t.Errorf("%s: %v\n%s", lines[0], err, said)
		}
	})
	for sc := bufio.NewScanner(out); ; {
		if !sc.Scan() {
			t.Fatalf("%s ended before it was up\n%s", lines[0], said)
		}
		if strings.HasPrefix(sc.Text(), "Ctrl-C") {
			break
		}
	}
	for _, line := range lines[1:] {
		cmd := exec.Command("sh", "-c", line)
		cmd.Dir, cmd.Env = dir, env
		out, err := cmd.CombinedOutput()
		if err != nil || len(out) == 0 {
			t.Fatalf("%s: %v\n%s\n%s", line, err, out, said)
		}
	}
}
