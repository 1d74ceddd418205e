package arch

import (
	"fmt"
	"go/ast"
	"maps"
	"slices"
	"strings"
	"testing"
)

// What one type and one folder may hold at most: more methods than that are read
// by nobody as one thing, and more files are a drawer.
const (
	maxMethods = 40
	maxFiles   = 20
)

// larger are the types and folders that were larger when the bounds were drawn,
// each with its size. They may only shrink: whoever makes one smaller writes the new
// figure here, and removes the row when it is at the bound.
var larger = map[string]int{}

// TestSizes holds types and folders to their bounds, and what is larger to what
// it was.
func TestSizes(t *testing.T) {
	sizes := sizesOf(readModule(t))
	for _, breach := range outgrown(sizes, larger) {
		t.Error(breach)
	}
}

// TestSizesCatch plants a breach of each kind.
func TestSizesCatch(t *testing.T) {
	sizes := map[string]int{"type a.T": maxMethods, "type a.U": maxMethods + 1, "folder b": maxFiles + 1, "type c.V": 50, "type d.W": 60, "type e.X": 70}
	rows := map[string]int{"type c.V": 50, "type d.W": 61, "type e.X": 69, "type gone.Y": 41}
	got := outgrown(sizes, rows)
	for i, want := range []string{"folder b has 21 files", "type a.U has 41 methods", "type d.W has 60 methods, fewer", "type e.X has 70 methods", "type gone.Y"} {
		if i >= len(got) || !strings.HasPrefix(got[i], want) {
			t.Fatalf("caught %q, want one that begins with %q at %d", got, want, i)
		}
	}
	if len(got) != 5 {
		t.Errorf("caught %q, want five", got)
	}
}

// sizesOf counts the methods of each type and the files of each folder, beside
// tests and generated code.
func sizesOf(files []*file) map[string]int {
	sizes := map[string]int{}
	for _, f := range files {
		if f.test() || f.generated {
			continue
		}
		sizes["folder "+f.dir()]++
		for _, decl := range f.ast.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && fn.Recv != nil {
				sizes["type "+f.dir()+"."+receiver(fn.Recv.List[0].Type)]++
			}
		}
	}
	return sizes
}

// receiver is the name of the type that a method belongs to.
func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return "?"
}

// outgrown is a line for each size above its bound, and for each row of larger
// that says more than is there.
func outgrown(sizes, larger map[string]int) []string {
	var bad []string
	names := maps.Clone(sizes)
	maps.Copy(names, larger)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		bound, what := maxMethods, "methods"
		if strings.HasPrefix(name, "folder ") {
			bound, what = maxFiles, "files"
		}
		n, was := sizes[name], larger[name]
		switch {
		case n > max(bound, was):
			bad = append(bad, fmt.Sprintf("%s has %d %s, more than %d: give a part of it a place of its own", name, n, what, max(bound, was)))
		case was > 0 && n < was:
			bad = append(bad, fmt.Sprintf("%s has %d %s, fewer than the %d of its row in larger: write the new figure there, or remove the row at %d", name, n, what, was, bound))
		}
	}
	return bad
}
