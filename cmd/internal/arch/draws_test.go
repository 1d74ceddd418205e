package arch

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// TestDrawsAreFixed: a package with property tests fixes what they draw, or a tree
// would have another answer in each run.
func TestDrawsAreFixed(t *testing.T) {
	for _, dir := range unfixed(readModule(t)) {
		t.Errorf("%s has property tests that draw other cases in each run: give one of its test files var _ = draws.Fixed()", dir)
	}
}

// TestDrawsCatch plants the breach.
func TestDrawsCatch(t *testing.T) {
	var files []*file
	for path, imports := range map[string]string{
		"a/x_test.go": `"pgregory.net/rapid"`, "a/y_test.go": `"` + module + `/cluster/draws"`, "b/x_test.go": `"pgregory.net/rapid"`, "c/x_test.go": `"testing"`,
	} {
		f, err := parse(path, []byte("package x\nimport _ "+imports+"\n"))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	if got := strings.Join(unfixed(files), " "); got != "b" {
		t.Errorf("caught %q, want b", got)
	}
}

// unfixed are the folders whose tests draw and import nothing that fixes it.
func unfixed(files []*file) []string {
	open := map[string]bool{}
	for _, f := range files {
		if !f.test() {
			continue
		}
		for _, spec := range f.ast.Imports {
			switch importPath(spec) {
			case "pgregory.net/rapid":
				if _, fixed := open[f.dir()]; !fixed {
					open[f.dir()] = true
				}
			case module + "/cluster/draws":
				open[f.dir()] = false
			}
		}
	}
	maps.DeleteFunc(open, func(dir string, open bool) bool { return !open || dir == "cluster/draws" })
	return slices.Sorted(maps.Keys(open))
}
