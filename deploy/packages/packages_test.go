package packages

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// names are the packages, and the files by which each is known.
var names = map[string][]string{
	"berth": {
		"/usr/bin/berth", "/usr/bin/berth-top", "/usr/bin/berth-sbatch", "/usr/bin/berth-jq", "/usr/share/man/man1/berth.1.gz", "/usr/share/man/man1/berth-submit.1.gz",
		"/usr/lib/berth/slurm/sbatch", "/usr/lib/berth/slurm/man/man1/sbatch.1.gz", "/usr/lib/berth/slurm/man/man1/strigger.1.gz",
		"/usr/share/bash-completion/completions/berth", "/usr/share/fish/vendor_completions.d/berth.fish", "/etc/profile.d/berth.sh",
		"/etc/default/berth", "/usr/share/doc/berth/NOTICE", "/usr/share/doc/berth/CHANGELOG.md", "/usr/share/doc/berth/README.md", "/usr/share/doc/berth/berth.cdx.json",
		"/usr/share/doc/berth/docs/slurm.md",
	},
	"berthd":            {"/usr/bin/berthd", "/usr/bin/berth-job", "/usr/lib/sysusers.d/berth.conf", "/usr/lib/tmpfiles.d/berth.conf", "/usr/share/doc/berthd/berthd.cdx.json"},
	"berth-coordinator": {"/usr/lib/systemd/system/berth-coordinator.service", "/usr/share/doc/berth-coordinator/examples/coordinator.yaml"},
	"berth-agent": {
		"/usr/lib/systemd/system/berth-agent.service", "/usr/share/doc/berth-agent/examples/agent.yaml", "/usr/share/doc/berth-agent/examples/sshd-berth",
	},
	"berth-lab":    {"/usr/bin/berth-lab"},
	"berth-python": {"/berth_progress.py"},
}

// built returns the folder of packages that there are, or skips: make packages
// builds them, which takes minutes, and runs this test.
func built(t *testing.T, tool string) string {
	t.Helper()
	dir := os.Getenv("BERTH_PACKAGES")
	if dir == "" {
		t.Skip("no packages are looked at: make packages builds them and runs this test")
	}
	if _, err := exec.LookPath(tool); err != nil {
		t.Skipf("%s is not installed", tool)
	}
	return filepath.Join("../..", dir)
}

func output(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return string(out)
}

// packagesOf are the files of a format by package and architecture.
func packagesOf(t *testing.T, dir, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil {
		t.Fatal(err)
	}
	var have []string
	for _, f := range files {
		have = append(have, nameOf(f))
	}
	slices.Sort(have)
	if want := slices.Sorted(maps.Keys(names)); !slices.Equal(slices.Compact(have), want) {
		t.Fatalf("%s has packages %q, want %q", dir, have, want)
	}
	return files
}

// nameOf is the package that a file's name begins with.
func nameOf(file string) string {
	base := filepath.Base(file)
	if i := strings.IndexAny(base, "_0123456789"); i > 0 {
		base = strings.TrimRight(base[:i], "-")
	}
	return base
}

func TestDebs(t *testing.T) {
	dir := built(t, "dpkg-deb")
	for _, file := range packagesOf(t, dir, "*.deb") {
		t.Run(filepath.Base(file), func(t *testing.T) {
			name := nameOf(file)
			holds(t, names[name], regexp.MustCompile(`(?m)^(\S+) (\S+)\s.* \.(/\S*)(?: -> (\S+))?$`).FindAllStringSubmatch(output(t, "dpkg-deb", "-c", file), -1))
			if got := output(t, "dpkg-deb", "-f", file, "Package", "Maintainer", "Description", "Version"); !strings.Contains(got, "Package: "+name+"\n") || !strings.Contains(got, "GPU job scheduler") || strings.Contains(got, "${") {
				t.Errorf("control: %s", got)
			}
			control := t.TempDir()
			output(t, "dpkg-deb", "-e", file, control)
			conffiles, err := os.ReadFile(filepath.Join(control, "conffiles"))
			if name == "berth" && (err != nil || !strings.Contains(string(conffiles), "/etc/default/berth")) {
				t.Errorf("conffiles: %q, %v", conffiles, err)
			}
			for _, script := range []string{"postinst", "prerm", "postrm"} {
				_, err := os.Stat(filepath.Join(control, script))
				if service := name == "berth-coordinator" || name == "berth-agent"; (err == nil) != (service || name == "berthd" && script == "postinst") {
					t.Errorf("%s: %v", script, err)
				}
			}
			if depends := output(t, "dpkg-deb", "-f", file, "Depends"); strings.HasPrefix(name, "berth-") && name != "berth-python" && !strings.Contains(depends, "berthd (= ") {
				t.Errorf("depends on %q, not on berthd of the same version", depends)
			}
		})
	}
}

func TestRPMs(t *testing.T) {
	dir := built(t, "rpm")
	for _, file := range packagesOf(t, dir, "*.rpm") {
		t.Run(filepath.Base(file), func(t *testing.T) {
			name := nameOf(file)
			holds(t, names[name], regexp.MustCompile(`(?m)^(\S+) +(\S+)\s.* (/\S*)(?: -> (\S+))?$`).FindAllStringSubmatch(output(t, "rpm", "-qp", "-lv", file), -1))
			if got := output(t, "rpm", "-qp", "--qf", "%{NAME} %{LICENSE} %{SUMMARY}", file); !strings.HasPrefix(got, name+" Apache-2.0 GPU job scheduler") {
				t.Errorf("header: %s", got)
			}
			if requires := output(t, "rpm", "-qp", "--requires", file); strings.HasPrefix(name, "berth-") && name != "berth-python" && !strings.Contains(requires, "berthd = ") {
				t.Errorf("requires %q, not berthd of the same version", requires)
			}
		})
	}
}

// holds compares a listing with what a package must have: rows of mode, owner, path and
// where a link leads. All can read what there is, and only root can write it.
func holds(t *testing.T, want []string, rows [][]string) {
	t.Helper()
	var have []string
	for _, r := range rows {
		mode, path := r[1], r[3]
		have = append(have, path)
		if mode[0] == 'l' {
			program := "berth"
			if strings.HasSuffix(path, "/sbatch") {
				program = "berth-sbatch"
			}
			if strings.HasPrefix(path, "/usr/lib/berth/slurm/") && r[4] != "../../../bin/"+program && r[4] != "/usr/bin/"+program {
				t.Errorf("%s leads to %s", path, r[4])
			}
			continue
		}
		if mode[5] == 'w' || mode[8] == 'w' || mode[7] != 'r' || strings.ContainsAny(mode, "sS") {
			t.Errorf("%s has mode %s", path, mode)
		}
	}
	for _, w := range want {
		if !slices.ContainsFunc(have, func(p string) bool { return p == w || strings.HasSuffix(p, w) && strings.Count(w, "/") == 1 }) {
			t.Errorf("lacks %s; has %q", w, have)
		}
	}
}

// TestConfigs: every file of the tree that a package is to have is there, every script
// is one that sh can read, and all are from one mould.
func TestConfigs(t *testing.T) {
	files, err := filepath.Glob("*.yaml")
	if err != nil || len(files) != len(names) {
		t.Fatalf("%q, %v: want %d", files, err, len(names))
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), "\nname: "+strings.TrimSuffix(file, ".yaml")+"\n") && !strings.HasPrefix(string(text), "name: "+strings.TrimSuffix(file, ".yaml")+"\n") {
			t.Errorf("%s is not of that package", file)
		}
		for _, m := range regexp.MustCompile(`(?m)(?:src|postinstall|preremove|postremove): "?([a-zA-Z][^,"\n]*)`).FindAllStringSubmatch(string(text), -1) {
			if found, err := filepath.Glob(filepath.Join("../..", m[1])); err != nil || len(found) == 0 {
				t.Errorf("%s: there is no %s", file, m[1])
			}
		}
	}
	scripts, err := filepath.Glob("scripts/*.sh")
	if err != nil || len(scripts) != 7 {
		t.Fatalf("%q, %v", scripts, err)
	}
	for _, s := range append(scripts, "profile.sh") {
		output(t, "sh", "-n", s)
	}
}

// run runs a package's script with what dpkg or rpm says, without any program beside
// the shell.
func run(t *testing.T, script string, args ...string) string {
	t.Helper()
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("there is no sh")
	}
	cmd := exec.Command(sh, append([]string{filepath.Join("scripts", script)}, args...)...)
	cmd.Env = []string{"PATH=" + t.TempDir()}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", script, args, err, out)
	}
	return string(out)
}

// TestScriptsDeleteNothing: no script of a package has a word by which files go away.
func TestScriptsDeleteNothing(t *testing.T) {
	deletes := regexp.MustCompile(`\b(rm|rmdir|unlink|find|truncate|mv|userdel|deluser)\b`)
	err := fs.WalkDir(os.DirFS("scripts"), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(filepath.Join("scripts", path))
		if err != nil {
			return err
		}
		for i, line := range strings.Split(string(text), "\n") {
			if word := deletes.FindString(line); word != "" && !strings.HasPrefix(line, "#") {
				t.Errorf("%s:%d: %s: %s", path, i+1, word, line)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestFirstInstallSaysWhatIsNext, by what dpkg says and by what rpm does; an upgrade
// does not say it again.
func TestFirstInstallSaysWhatIsNext(t *testing.T) {
	if _, err := os.Stat("/run/systemd/system"); err == nil {
		t.Skip("the scripts would speak with this machine's systemd")
	}
	for _, d := range []string{"coordinator", "agent"} {
		want := fmt.Sprintf("berth-%s: it starts by: systemctl enable --now berth-%s", d, d)
		for _, args := range [][]string{{"configure", ""}, {"configure"}, {"1"}} {
			if got := run(t, "berth-"+d+".postinstall.sh", args...); !strings.HasPrefix(got, want) {
				t.Errorf("%s %q: %s", d, args, got)
			}
		}
		for _, args := range [][]string{{"configure", "0.0.9"}, {"2"}} {
			if got := run(t, "berth-"+d+".postinstall.sh", args...); got != "" {
				t.Errorf("%s %q: %s", d, args, got)
			}
		}
		for _, args := range [][]string{{"upgrade", "0.2.0"}, {"1"}} {
			if got := run(t, "berth-"+d+".preremove.sh", args...); got != "" {
				t.Errorf("%s %q: %s", d, args, got)
			}
		}
	}
}

// TestProfile: the switch puts the look-alikes before Slurm's commands, behind them,
// or nowhere, and once.
func TestProfile(t *testing.T) {
	text, err := os.ReadFile("profile.sh")
	if err != nil {
		t.Fatal(err)
	}
	defaults, err := filepath.Abs("default")
	if err != nil {
		t.Fatal(err)
	}
	script := strings.ReplaceAll(string(text), "/etc/default/berth", defaults)
	for say, want := range map[string]string{
		"": "/bin", "no": "/bin", "first": "/usr/lib/berth/slurm:/bin", "last": "/bin:/usr/lib/berth/slurm",
	} {
		cmd := exec.Command("/bin/sh", "-c", script+script+`echo "$PATH"`)
		cmd.Env = []string{"PATH=/bin", "BERTH_SLURM_COMMANDS=" + say}
		out, err := cmd.CombinedOutput()
		if got := strings.TrimSpace(string(out)); err != nil || got != want {
			t.Errorf("%q: PATH is %q, want %q, %v", say, got, want, err)
		}
	}
}
