package deploy

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestContainmentNamesTests: each test that docs/containment.md names is there,
// in a package of that name.
func TestContainmentNamesTests(t *testing.T) {
	doc, err := os.ReadFile("../docs/containment.md")
	if err != nil {
		t.Fatal(err)
	}
	dirs := map[string]string{
		"cluster": "../cluster", "containerdrt": "../agent/containerdrt", "runtimetest": "../agent/runtimetest", "hooks": "../agent/hooks",
		"asuser": "../agent/asuser", "launcher": "../agent/launcher", "e2e": "../e2e", "jobcmd": "../cmd/internal/cli/jobcmd", "config": "../cmd/internal/config",
		"processrt": "../agent/processrt", "relay": "../agent/relay", "cards": "../agent/cards", "notify": "../coordinator/notify", "daemon": "../cmd/internal/daemon",
	}
	named := regexp.MustCompile("`([a-z0-9]+)\\.((?:Test|test|Fuzz)[A-Za-z]+)`").FindAllStringSubmatch(string(doc), -1)
	if len(named) < 30 {
		t.Fatalf("%d tests are named", len(named))
	}
	code := map[string]string{}
	for _, m := range named {
		pkg, name := m[1], m[2]
		if code[pkg] == "" {
			files, err := filepath.Glob(filepath.Join(dirs[pkg], "*.go"))
			if err != nil || dirs[pkg] == "" {
				t.Fatalf("package %s: %v", pkg, err)
			}
			var b strings.Builder
			for _, f := range files {
				data, err := os.ReadFile(f)
				if err != nil {
					t.Fatal(err)
				}
				b.Write(data)
			}
			code[pkg] = b.String()
		}
		if !strings.Contains(code[pkg], "func "+name+"(") {
			t.Errorf("there is no %s in %s", name, dirs[pkg])
		}
	}
}
