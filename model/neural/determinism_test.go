package neural

import (
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"hash/crc32"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
)

// golden is the CRC-32C of the encoded models of TestGolden. It changes only
// with the arithmetic, the order of its steps, or the format.
var golden = map[string]uint32{"mlp": 0xda423279, "vae": 0xa1f0f65b}

// TestGolden trains, updates and predicts, and compares the bytes with those of
// every other processor. Run with GOAMD64=v3 it also shows that nothing depends
// on fused products, which the compiler may use there as it does on arm64.
func TestGolden(t *testing.T) {
	t.Parallel()
	// Rows without math functions, which differ between processors.
	r := rand.New(rand.NewPCG(9, 9))
	var x, y [][]float64
	for range 200 {
		v := []float64{r.Float64(), float64(1e9 * r.Float64()), float64(r.Uint64() % 5), 3}
		x = append(x, v)
		row := []float64{float64(v[0]*v[2]) - 1, v[1] + 1, math.NaN()}
		if v[2] > 0 {
			row[2] = v[2] / (v[0] + 1)
		}
		y = append(y, row)
	}
	cfg := DefaultConfig()
	cfg.Epochs, cfg.Hidden = 12, []int{16, 9}
	cfg.Inputs, cfg.Outputs = []Scale{0, ScaleLog, 0, 0}, []Scale{0, ScaleLog, 0}
	for _, a := range architectures {
		t.Run(a.name, func(t *testing.T) {
			b := train(t, a.train, x, y, cfg)
			if got := crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)); got != golden[a.name] {
				t.Errorf("checksum %#08x, must be %#08x: the arithmetic has changed", got, golden[a.name])
			}
			if string(b) != string(train(t, a.train, x, y, cfg)) {
				t.Error("the same seed gave other bytes")
			}
			cfg := cfg
			cfg.Seed++
			if string(b) == string(train(t, a.train, x, y, cfg)) {
				t.Error("another seed gave the same bytes")
			}
		})
	}
}

// train returns the bytes of a model trained on x and y, updated with the first
// rows, and those of a few predictions.
func train(t *testing.T, f func(x, y [][]float64, cfg Config) (Regressor, error), x, y [][]float64, cfg Config) []byte {
	t.Helper()
	m, err := f(x, y, cfg)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		if err := m.Update(x[i:i+2], y[i:i+2]); err != nil {
			t.Fatal(err)
		}
	}
	b := m.Encode()
	out := make([]float64, len(y[0]))
	for _, row := range x[:20] {
		if err := m.Predict(row, out); err != nil {
			t.Fatal(err)
		}
		for _, v := range out {
			for bits := math.Float64bits(v); bits != 0; bits >>= 8 {
				b = append(b, byte(bits))
			}
		}
	}
	return b
}

// TestNoFusableProducts reads the package's source: a floating-point product
// must be rounded by a conversion to float64, or feed another product or a
// quotient, never a sum, or the compiler may fuse the two on some processors.
func TestNoFusableProducts(t *testing.T) {
	t.Parallel()
	fset := token.NewFileSet()
	var files []*ast.File
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".go") && !strings.HasSuffix(e.Name(), "_test.go") {
			f, err := parser.ParseFile(fset, e.Name(), nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, f)
		}
	}
	products := 0
	for _, p := range fusable(t, fset, files, &products) {
		t.Errorf("%s: a product that may be fused with a sum; write float64(a*b)", fset.Position(p))
	}
	if products < 50 {
		t.Errorf("found only %d floating-point products", products)
	}

	src := "package p\nfunc f(a, b, c float64) float64 {\n d := a * b\n d *= c\n return d + float64(a*b*c) + (a*b)\n}\n"
	f, err := parser.ParseFile(fset, "planted.go", src, 0)
	if err != nil {
		t.Fatal(err)
	}
	if got := fusable(t, fset, []*ast.File{f}, &products); len(got) != 3 {
		t.Errorf("%d objections to the planted source, must be 3", len(got))
	}
}

// fusable returns where products of floats are left unrounded, and counts all.
func fusable(t *testing.T, fset *token.FileSet, files []*ast.File, products *int) []token.Pos {
	t.Helper()
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}}
	conf := types.Config{Importer: importer.ForCompiler(fset, "source", nil)}
	if _, err := conf.Check("p", fset, files, info); err != nil {
		t.Fatal(err)
	}
	isFloat := func(e ast.Expr) bool {
		tv := info.Types[e]
		b, ok := tv.Type.Underlying().(*types.Basic)
		return ok && b.Info()&types.IsFloat != 0 && tv.Value == nil // constants are exact
	}
	var found []token.Pos
	rounded := map[ast.Expr]bool{} // products whose parent rounds or multiplies them
	mark := func(es ...ast.Expr) {
		for _, e := range es {
			rounded[ast.Unparen(e)] = true
		}
	}
	for _, f := range files {
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				if tv := info.Types[n.Fun]; tv.IsType() && len(n.Args) == 1 {
					mark(n.Args[0])
				}
			case *ast.AssignStmt:
				if n.Tok == token.MUL_ASSIGN && isFloat(n.Lhs[0]) {
					found = append(found, n.Pos())
				}
			case *ast.BinaryExpr:
				if n.Op == token.MUL || n.Op == token.QUO {
					mark(n.X, n.Y)
				}
				if n.Op == token.MUL && isFloat(n) {
					*products++
					if !rounded[n] {
						found = append(found, n.Pos())
					}
				}
			}
			return true
		})
	}
	return found
}

func TestElementary(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 1))
	for range 100_000 {
		x := (r.Float64() - 0.5) * 2 * expLimit
		if got, want := exp(x), math.Exp(x); math.Abs(got-want) > 2e-15*want*max(1, math.Abs(x)/20) {
			t.Fatalf("exp(%v) = %v, must be %v", x, got, want)
		}
		v := math.Exp(x)
		if got, want := log(v), math.Log(v); math.Abs(got-want) > 4e-16*math.Abs(want)+1e-16 {
			t.Fatalf("log(%v) = %v, must be %v", v, got, want)
		}
	}
	for _, tc := range []struct{ got, want float64 }{
		{exp(0), 1}, {log(1), 0}, {exp(-1e9), exp(-expLimit)}, {exp(1e9), exp(expLimit)}, {log(math.MaxFloat64), math.Log(math.MaxFloat64)},
		{log(0.5), -math.Ln2}, {log(minLogged), math.Log(minLogged)},
	} {
		if tc.got != tc.want {
			t.Errorf("%v, must be %v", tc.got, tc.want)
		}
	}
	var sum, squares, fourth float64
	const n = 200_000
	for range n {
		g := gauss(r)
		sum, squares, fourth = sum+g, squares+g*g, fourth+g*g*g*g
	}
	if math.Abs(sum/n) > 0.01 || math.Abs(squares/n-1) > 0.02 || math.Abs(fourth/n-3) > 0.15 {
		t.Errorf("gauss has mean %v, variance %v and fourth moment %v, must be 0, 1 and 3", sum/n, squares/n, fourth/n)
	}
}
