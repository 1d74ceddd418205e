package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// tool returns the path of a program, or skips; in CI it fails instead, where
// a skipped test would go unseen.
func tool(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err == nil {
		return path
	}
	if ci := os.Getenv("CI"); ci == "1" || ci == "true" {
		t.Fatalf("%s is not installed; run deploy/ci/install-test-deps.sh", name)
	}
	t.Skipf("%s is not installed", name)
	return ""
}

// verify returns what systemd has against a unit. The binary need not be
// installed, so another stands in.
func verify(t *testing.T, name string, unit []byte) string {
	t.Helper()
	analyze := tool(t, "systemd-analyze")
	path := filepath.Join(t.TempDir(), name)
	text := strings.ReplaceAll(string(unit), "/usr/bin/berthd ", "/bin/true ")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(analyze, "verify", "--man=no", path).CombinedOutput()
	if err != nil {
		return string(out) + err.Error()
	}
	return string(out) // unknown keys are only warned of
}

func TestUnits(t *testing.T) {
	for name, want := range map[string][]string{
		"berth-coordinator.service": {
			"Type=notify", "User=berth", "Restart=on-failure", "RestartPreventExitStatus=65 78", "NoNewPrivileges=yes",
			"ProtectSystem=strict", "CapabilityBoundingSet=", "OOMScoreAdjust=-500", "LimitNOFILE=65536", "StateDirectory=berth/coordinator",
		},
		"berth-agent.service": {
			"Type=notify", "KillMode=process", "Delegate=yes", "Restart=on-failure", "RestartPreventExitStatus=65 78",
			"OOMScoreAdjust=-500", "OOMPolicy=continue", "StateDirectory=berth/agent",
		},
	} {
		t.Run(name, func(t *testing.T) {
			unit, err := os.ReadFile(filepath.Join("systemd", name))
			if err != nil {
				t.Fatal(err)
			}
			lines := strings.Split(string(unit), "\n")
			for _, line := range want {
				if !slices.Contains(lines, line) {
					t.Errorf("lacks %q", line)
				}
			}
			if out := verify(t, name, unit); out != "" {
				t.Errorf("systemd-analyze verify: %s", out)
			}
		})
	}
}

// TestVerifyCatches: a check that takes everything would be none.
func TestVerifyCatches(t *testing.T) {
	for name, unit := range map[string]string{
		"unknown key":  "[Service]\nExecStart=/bin/true\nKillMood=process\n",
		"no command":   "[Service]\nType=notify\n",
		"wrong choice": "[Service]\nExecStart=/bin/true\nKillMode=gently\n",
		"missing file": "[Service]\nExecStart=/nonexistent\n",
	} {
		if out := verify(t, "bad.service", []byte(unit)); out == "" {
			t.Errorf("%s: nothing said", name)
		}
	}
}

// TestUserAndFolders makes the user and the folders in a root of their own.
func TestUserAndFolders(t *testing.T) {
	sysusers, tmpfiles := tool(t, "systemd-sysusers"), tool(t, "systemd-tmpfiles")
	if os.Geteuid() != 0 {
		t.Skip("only root can give folders to another user")
	}
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "etc"), 0o755); err != nil {
		t.Fatal(err)
	}
	here, err := filepath.Abs("systemd")
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{sysusers, "--root=" + root, filepath.Join(here, "berth.sysusers.conf")},
		{tmpfiles, "--create", "--root=" + root, filepath.Join(here, "berth.tmpfiles.conf")},
	} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%q: %v\n%s", args, err, out)
		}
	}
	passwd, err := os.ReadFile(filepath.Join(root, "etc/passwd"))
	if err != nil || !strings.Contains(string(passwd), "berth:x:") {
		t.Errorf("user berth is not made: %v, %q", err, passwd)
	}
	for dir, mode := range map[string]os.FileMode{"run/berth": 0o755, "etc/berth/tls": 0o700, "var/lib/berth": 0o755} {
		info, err := os.Stat(filepath.Join(root, dir))
		if err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v, want mode %04o", dir, err, mode)
		}
	}
}

// TestMakeHelp: every target that people call has its line of help, and every
// line of help its target.
func TestMakeHelp(t *testing.T) {
	out, err := exec.Command(tool(t, "make"), "--no-print-directory", "-C", "..", "help").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, target := range []string{"build", "demo", "test", "short", "e2e", "bench", "fuzz", "lint", "generate", "check", "cover", "clean"} {
		if !strings.Contains(string(out), "\n  "+target+" ") {
			t.Errorf("help lacks %s:\n%s", target, out)
		}
		if out, err := exec.Command(tool(t, "make"), "--no-print-directory", "-C", "..", "-n", target).CombinedOutput(); err != nil {
			t.Errorf("make -n %s: %v\n%s", target, err, out)
		}
	}
}

// TestMissingToolsAreLoud: without its tools the script says which tests
// cannot run, and in CI it fails.
func TestMissingToolsAreLoud(t *testing.T) {
	sh := tool(t, "bash")
	empty := t.TempDir()
	run := func(ci string) (string, error) {
		cmd := exec.Command(sh, "ci/install-test-deps.sh")
		cmd.Env = []string{"PATH=" + empty, "CI=" + ci, "BERTH_NO_INSTALL=1"}
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	out, err := run("")
	if err != nil {
		t.Errorf("outside CI: %v", err)
	}
	for _, want := range []string{"containerd", "busybox", "gcc", "protoc", "systemd-analyze", "WILL NOT RUN"} {
		if !strings.Contains(out, want) {
			t.Errorf("says nothing of %s:\n%s", want, out)
		}
	}
	for _, ci := range []string{"1", "true"} {
		if out, err := run(ci); err == nil {
			t.Errorf("CI=%s: passes without the tools:\n%s", ci, out)
		}
	}
}

// TestPAMLines: the example's lines are what the page tells people to write, and
// commands that there are.
func TestPAMLines(t *testing.T) {
	lines, err := os.ReadFile("pam/sshd-berth")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../docs/pam.md")
	if err != nil {
		t.Fatal(err)
	}
	var seen []string
	for line := range strings.Lines(string(lines)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		f := strings.Fields(line)
		if len(f) < 8 || !slices.Equal(f[1:5], []string{"required", "pam_exec.so", "quiet", "stdout"}) || !slices.Equal(f[5:8], []string{"/usr/bin/berthd", "pam", f[0]}) {
			t.Errorf("not a line for pam_exec: %s", line)
		}
		if !strings.Contains(string(page), line) {
			t.Errorf("docs/pam.md lacks the line: %s", line)
		}
		seen = append(seen, f[0])
	}
	if !slices.Equal(seen, []string{"account", "session"}) {
		t.Errorf("lines for %v, want account and session", seen)
	}
}
