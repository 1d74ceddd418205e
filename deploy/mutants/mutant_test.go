package main

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

func TestSplit(t *testing.T) {
	const diff = "--- a/x.go\n+++ b/x.go\n@@ -1 +1 @@\n-a\n+b\n"
	ms, err := split("# a comment\n\n== A1 ./x ./y\nwrong\n" + diff + "\n== B2 ./z\nworse\n" + diff)
	if err != nil || len(ms) != 2 {
		t.Fatalf("%v, %v", ms, err)
	}
	if m := ms[0]; m.id != "A1" || !slices.Equal(m.tests, []string{"./x", "./y"}) || m.what != "wrong" || m.patch != diff {
		t.Errorf("got %+v", m)
	}
	for _, bad := range []string{"== A1\nwrong\n" + diff, "== A1 ./x\n" + diff, "== A1 ./x\nwrong\n"} {
		if _, err := split(bad); err == nil || !strings.Contains(err.Error(), "want a line with its id") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestFailures(t *testing.T) {
	for out, want := range map[string][]string{
		"--- FAIL: TestA (0.1s)\n    --- FAIL: TestA/sub (0s)\n--- FAIL: TestB (0s)\nFAIL\n": {"TestA", "TestB"},
		"panic: test timed out after 5m0s\nFAIL\tx\t300s\n":                                  {"test timed out after 5m0s"},
		"signal: killed\nFAIL\tx\t3s\n":                                                      {"go test failed"},
	} {
		if got := failures(out); !slices.Equal(got, want) {
			t.Errorf("%q: got %q, want %q", out, got, want)
		}
	}
}

// TestNote: what caught a bug is read back; of what was not tried the old note
// stays, and nothing that is no test, or of a bug that is gone, is kept.
func TestNote(t *testing.T) {
	dir := t.TempDir()
	all := []mutant{{id: "A1", tests: []string{"./x"}}, {id: "A2", tests: []string{"./x"}, last: catcher{"./x", "TestOld"}}, {id: "A3", tests: []string{"./x"}, last: catcher{"./x", "TestOld"}}, {id: "A4"}}
	err := note(dir, all, map[string]verdict{
		"A1": {failed: []catcher{{"./x", "test timed out"}, {"./x", "TestNew"}}}, "A3": {}, "A4": {failed: []catcher{{"./y", "go test failed"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	got, err := catchers(dir + "/" + caughtFile)
	if want := (map[string]catcher{"A1": {"./x", "TestNew"}, "A2": {"./x", "TestOld"}}); err != nil || !maps.Equal(got, want) {
		t.Errorf("read %v, %v; want %v", got, err, want)
	}
	if err := os.WriteFile(dir+"/"+caughtFile, []byte("A1 ./x\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := catchers(dir + "/" + caughtFile); err == nil || !strings.Contains(err.Error(), "want an id, a package and a test") {
		t.Errorf("a short line: %v", err)
	}
}

// TestOneThatDoesNotCompile: a bug after which an import is unused is not caught: it does
// not compile, and nothing is recorded of it, whatever is of another.
func TestOneThatDoesNotCompile(t *testing.T) {
	for _, needs := range []string{"git", "go"} {
		if _, err := exec.LookPath(needs); err != nil {
			t.Skip("needs ", needs)
		}
	}
	t.Chdir(t.TempDir())
	bug := func(id, now string) string {
		return fmt.Sprintf("== %s .\nwrong\n--- a/text.go\n+++ b/text.go\n@@ -5,3 +5,3 @@\n func text(n int) string {\n-\treturn strconv.Itoa(n)\n+\treturn %s\n }\n", id, now)
	}
	for name, text := range map[string]string{
		"go.mod":       "module text\n\ngo 1.26\n",
		"text.go":      "package text\n\nimport \"strconv\"\n\nfunc text(n int) string {\n\treturn strconv.Itoa(n)\n}\n",
		"text_test.go": "package text\n\nimport \"testing\"\n\nfunc TestText(t *testing.T) {\n\tif text(1) != \"1\" {\n\t\tt.Error(text(1))\n\t}\n}\n",
		"x.mutants":    bug("A1", `""`) + bug("A2", `strconv.Itoa(n) + "x"`),
	} {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command("git", "init", "-q").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	err := run(t.Context(), []string{"-dir", ".", "-note"})
	if err == nil || !strings.Contains(err.Error(), "A1 does not compile") || strings.Contains(err.Error(), "A2") {
		t.Errorf("it ended with %v", err)
	}
	got, err := catchers(caughtFile)
	if want := (map[string]catcher{"A2": {".", "TestText"}}); err != nil || !maps.Equal(got, want) {
		t.Errorf("recorded %v, %v; want %v", got, err, want)
	}
}
