package e2e

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestPagesAsTheyStand types what pages for newcomers say, in their order.
func TestPagesAsTheyStand(t *testing.T) {
	t.Parallel()
	needRoot(t)
	for name, page := range map[string]struct {
		file, section string // "" is all of it
		least         int    // commands
		need          func(*testing.T)
	}{
		"README":       {"../README.md", "Use it", 6, nil},
		"five minutes": {"../docs/five-minutes.md", "", 12, nil},
		"PyTorch":      {"../docs/pytorch.md", "", 9, needTorch},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if page.need != nil {
				page.need(t)
			}
			text := read(t, page.file)
			if page.section != "" {
				_, text, _ = strings.Cut(text, "\n## "+page.section+"\n")
				text, _, _ = strings.Cut(text, "\n## ")
			}
			asItStands(t, text, page.least)
		})
	}
}

// titled are blocks that stand for a file, and typed what is typed.
var (
	titled = regexp.MustCompile("(?ms)^```[a-z]+ title=\"([a-z.]+)\"\n(.*?)^```$")
	typed  = regexp.MustCompile(`(?m)^\$ (.*)$`)
)

// asItStands writes a page's files and runs its commands beside a cluster: the one
// that the first of them starts, or that of bin/berth dev.
func asItStands(t *testing.T, text string, least int) {
	dir, err := os.MkdirTemp("", "be2e-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	for _, m := range titled.FindAllStringSubmatch(text, -1) {
		write(t, filepath.Join(dir, m[1]), m[2])
	}
	var lines []string
	for _, m := range typed.FindAllStringSubmatch(text, -1) {
		lines = append(lines, m[1])
	}
	if len(lines) < least {
		t.Fatalf("the commands are %q", lines)
	}
	first := "bin/berth dev"
	if strings.HasPrefix(lines[0], first) {
		first, lines = lines[0], lines[1:]
	}
	if err := os.Symlink(filepath.Dir(berth), filepath.Join(dir, "bin")); err != nil {
		t.Fatal(err)
	}
	// Clusters of other tests are not found.
	env := append(os.Environ(), "BERTH_SOCKET=", "TMPDIR="+dir, "PATH="+filepath.Join(dir, "bin")+":/usr/bin:/bin")
	dev := exec.Command("sh", "-c", "exec "+first)
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
			t.Errorf("%s: %v\n%s", first, err, said)
		}
	})
	for sc := bufio.NewScanner(out); ; {
		if !sc.Scan() {
			t.Fatalf("%s ended before it was up\n%s", first, said)
		}
		if strings.Contains(sc.Text(), "Ctrl-C") {
			break
		}
	}
	for _, line := range lines {
		run := func() ([]byte, error) {
			cmd := exec.Command("sh", "-c", line)
			cmd.Dir, cmd.Env = dir, env
			return cmd.CombinedOutput()
		}
		out, err := run()
		// Who types takes longer than a job to write its first line.
		for end := time.Now().Add(time.Minute); err != nil && strings.HasSuffix(line, "berth logs") && time.Now().Before(end); out, err = run() {
			time.Sleep(100 * time.Millisecond)
		}
		t.Logf("$ %s\n%s", line, out)
		if err != nil || len(out) == 0 && !strings.Contains(line, " > ") {
			t.Fatalf("%s: %v\n%s\n%s", line, err, out, said)
		}
	}
}
