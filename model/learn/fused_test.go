package learn

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestNoFusableProducts reads the source of the packages whose results must be
// the same on each processor: a floating-point product must be rounded by a
// conversion before it is added to or subtracted from something, at once or by
// way of a variable, or the compiler may fuse the two on some processors. It may
// feed another product, a quotient, a comparison or a call.
func TestNoFusableProducts(t *testing.T) {
	t.Parallel()
	fset := token.NewFileSet()
	for _, p := range []struct {
		dir   string
		least int // products that it has at least
	}{{".", 5}, {"../fit", 10}, {"..", 30}} {
		entries, err := os.ReadDir(p.dir)
		if err != nil {
			t.Fatal(err)
		}
		var files []*ast.File
		for _, e := range entries {
			if !strings.HasSuffix(e.Name(), ".go") || strings.HasSuffix(e.Name(), "_test.go") {
				continue
			}
			f, err := parser.ParseFile(fset, filepath.Join(p.dir, e.Name()), nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, f)
		}
		found, products := fusable(fset, files)
		for _, at := range found {
			t.Errorf("%s: a product that may be fused with a sum; write float64(a*b)", fset.Position(at))
		}
		if products < p.least {
			t.Errorf("%s: found only %d floating-point products", p.dir, products)
		}
	}

	const planted = `package p
func f(a, b, c float64) float64 {
	d := a * b
	e := float64(a * b)
	e *= c
	return d + e + float64(a*b*c) + (a*b) - c/2 + max(a*b, c)/c
}
func g(a, b float64) (s float64) {
	s += a / b
	s -= a * b
	return s
}`
	f, err := parser.ParseFile(fset, "planted.go", planted, 0)
	if err != nil {
		t.Fatal(err)
	}
	var lines []int
	found, _ := fusable(fset, []*ast.File{f})
	for _, at := range found {
		lines = append(lines, fset.Position(at).Line)
	}
	if len(lines) != 5 {
		t.Errorf("objections to the planted source in lines %v, must be five: 6 four times, 10", lines)
	}
}

// fusable returns the summands that are unrounded products, and counts products.
// It knows nothing of what is imported, whether the machine has it built or not: floats
// come from builtin types alone, and a type that is not known counts as one.
func fusable(fset *token.FileSet, files []*ast.File) (found []token.Pos, products int) {
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{}}
	conf := types.Config{Error: func(error) {}}
	_, _ = conf.Check("p", fset, files, info) // imports are missing: the rest is typed all the same
	w := &fuse{info: info, raw: map[types.Object]bool{}}
	for range 2 { // the first time for what variables hold
		w.found, w.products = nil, 0
		for _, f := range files {
			ast.Inspect(f, w.visit)
		}
	}
	return w.found, w.products
}

type fuse struct {
	info     *types.Info
	raw      map[types.Object]bool // variables that may hold an unrounded product
	found    []token.Pos
	products int
}

func (w *fuse) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.AssignStmt:
		w.assign(n)
	case *ast.BinaryExpr:
		if w.product(n) {
			w.products++
		}
		if n.Op == token.ADD || n.Op == token.SUB {
			w.summand(n.X)
			w.summand(n.Y)
		}
	}
	return true
}

func (w *fuse) assign(n *ast.AssignStmt) {
	for i, l := range n.Lhs {
		id, ok := l.(*ast.Ident)
		if ok && len(n.Rhs) == len(n.Lhs) && w.float(l) {
			o := w.info.ObjectOf(id)
			w.raw[o] = w.raw[o] || n.Tok == token.MUL_ASSIGN || (n.Tok == token.ASSIGN || n.Tok == token.DEFINE) && w.product(n.Rhs[i])
		}
	}
	if n.Tok == token.ADD_ASSIGN || n.Tok == token.SUB_ASSIGN {
		w.summand(n.Lhs[0])
		w.summand(n.Rhs[0])
	}
}

func (w *fuse) summand(e ast.Expr) {
	if id, ok := ast.Unparen(e).(*ast.Ident); w.product(e) || ok && w.raw[w.info.ObjectOf(id)] {
		w.found = append(w.found, e.Pos())
	}
}

// product reports whether e is an unrounded product of floats, or a quotient by a
// constant, which the compiler may turn into one; one of the arguments of min or
// max will do.
func (w *fuse) product(e ast.Expr) bool {
	switch e := ast.Unparen(e).(type) {
	case *ast.BinaryExpr:
		return w.float(e) && (e.Op == token.MUL || e.Op == token.QUO && w.info.Types[e.Y].Value != nil)
	case *ast.UnaryExpr:
		return e.Op == token.SUB && w.product(e.X)
	case *ast.CallExpr:
		if id, ok := e.Fun.(*ast.Ident); ok && (id.Name == "min" || id.Name == "max") {
			for _, a := range e.Args {
				if w.product(a) {
					return true
				}
			}
		}
	}
	return false
}

// float reports whether e is a float and no constant, which is exact.
func (w *fuse) float(e ast.Expr) bool {
	tv, ok := w.info.Types[e]
	if id, isIdent := e.(*ast.Ident); isIdent && !ok {
		if o := w.info.ObjectOf(id); o != nil {
			tv.Type = o.Type()
		}
	}
	if tv.Value != nil || tv.Type == nil {
		return false
	}
	b, ok := tv.Type.Underlying().(*types.Basic)
	return ok && (b.Info()&types.IsFloat != 0 || b.Kind() == types.Invalid)
}
