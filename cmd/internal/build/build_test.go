package build_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/berth-scheduler/berth/cmd/internal/build"
	"github.com/berth-scheduler/berth/fsm"
)

func TestInfo(t *testing.T) {
	if b := build.Info(); b.Version != build.Version || !strings.HasPrefix(b.Go, "go") {
		t.Errorf("this program: %+v", b)
	}
	b := build.Facts{Version: "v1.2.3"}
	if got := b.String(); got != "v1.2.3" {
		t.Errorf("without a commit: %s", got)
	}
	b.Revision = "0123456789abcdef"
	if got := b.String(); got != "v1.2.3+0123456789ab" {
		t.Errorf("with a commit: %s", got)
	}
}

// TestChangelogHasTheRelease: whoever changes the version, or that of log entries,
// says so to those who upgrade.
func TestChangelogHasTheRelease(t *testing.T) {
	text, err := os.ReadFile("../../../CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## ["+strings.TrimPrefix(build.Version, "v")+"]")
	section, _, _ = strings.Cut(section, "\n## [")
	if want := fmt.Sprintf("Log entries are of versions 1 to %d.", fsm.EntryVersion); !strings.Contains(section, want) {
		t.Errorf("the section of %s in CHANGELOG.md lacks %q:\n%s", build.Version, want, section)
	}
}
