package arch

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestWhereChangesGo: the files that docs/contributing.md names are there, and in
// them what it says to look at.
func TestWhereChangesGo(t *testing.T) {
	root := filepath.Join("..", "..", "..")
	page, err := os.ReadFile(filepath.Join(root, "docs", "contributing.md"))
	if err != nil {
		t.Fatal(err)
	}
	quoted := regexp.MustCompile("`([^`]+)`")
	rows := 0
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 || !strings.Contains(cells[1], "`") {
			continue
		}
		rows++
		name := quoted.FindStringSubmatch(cells[1])[1]
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Errorf("docs/contributing.md: %v", err)
			continue
		}
		for _, word := range quoted.FindAllStringSubmatch(cells[2], -1) {
			if !strings.Contains(string(text), word[1]) {
				t.Errorf("docs/contributing.md: %s has no %s", name, word[1])
			}
		}
	}
	if rows < 20 {
		t.Errorf("docs/contributing.md: found %d files, want at least 20", rows)
	}
}
