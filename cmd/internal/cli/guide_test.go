package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestUserGuideShowsRealOutput finds each command of the user guide's console
// blocks among the golden files, with the same output.
func TestUserGuideShowsRealOutput(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("../../../docs/user-guide.md")
	if err != nil {
		t.Fatal(err)
	}
	var files []string
	for _, pattern := range []string{"testdata/*.golden", "*/testdata/*.golden"} { // ours and our packages'
		some, err := filepath.Glob(pattern)
		if err != nil || len(some) == 0 {
			t.Fatal("no golden files", err)
		}
		files = append(files, some...)
	}
	known := map[string]string{}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		known[f] = withoutMarks(string(text))
	}
	shown := 0
	for _, block := range strings.Split(string(raw), "```console\n")[1:] {
		block, _, _ = strings.Cut(block, "```")
		for _, part := range strings.Split("\n"+block, "\n$ ")[1:] {
			want := "$ " + strings.TrimRight(part, "\n") + "\n"
			shown++
			found := false
			for _, text := range known {
				found = found || strings.Contains("\n"+text, "\n"+want)
			}
			if !found {
				t.Errorf("no golden file has:\n%s", want)
			}
		}
	}
	if shown < 8 {
		t.Errorf("the guide shows %d commands, want some more", shown)
	}
}

// withoutMarks drops what transcripts add to what a terminal shows.
func withoutMarks(s string) string {
	var out []string
	for _, line := range strings.Split(s, "\n") {
		if !strings.HasPrefix(line, "-- ") {
			out = append(out, line)
		}
	}
	return strings.Join(out, "\n")
}
