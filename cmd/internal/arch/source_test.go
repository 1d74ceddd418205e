package arch

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/build/constraint"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/berth-scheduler/berth"

// file is one Go file of the module. Files are parsed and not asked of go
// list, so that rules also hold for files that a build tag leaves out, and
// while some other package does not compile.
type file struct {
	path      string // slash-separated, from the module's root
	fset      *token.FileSet
	ast       *ast.File
	lines     int
	generated bool
}

// dir is the package's folder from the module's root.
func (f *file) dir() string { return path.Dir(f.path) }

func (f *file) test() bool { return strings.HasSuffix(f.path, "_test.go") }

func (f *file) program() bool { return f.ast.Name.Name == "main" }

func (f *file) at(pos token.Pos, format string, args ...any) string {
	return fmt.Sprintf("%s:%d: ", f.path, f.fset.Position(pos).Line) + fmt.Sprintf(format, args...)
}

// imports maps the local name of each import to its path.
func (f *file) imports() map[string]string {
	m := map[string]string{}
	for _, spec := range f.ast.Imports {
		p := importPath(spec)
		name := path.Base(p)
		if strings.HasPrefix(name, "v") && len(name) <= 3 {
			name = path.Base(path.Dir(p)) // math/rand/v2
		}
		if spec.Name != nil {
			name = spec.Name.Name
		}
		m[name] = p
	}
	return m
}

func importPath(spec *ast.ImportSpec) string {
	p, err := strconv.Unquote(spec.Path.Value)
	if err != nil {
		return spec.Path.Value
	}
	return p
}

// under reports whether dir is top or lies in it.
func under(dir, top string) bool { return dir == top || strings.HasPrefix(dir, top+"/") }

// parse makes a file from source text. It returns nil for files that only
// name tools.
func parse(name string, src []byte) (*file, error) {
	fset := token.NewFileSet()
	tree, err := parser.ParseFile(fset, name, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	for _, group := range tree.Comments {
		for _, c := range group.List {
			if expr, err := constraint.Parse(c.Text); err == nil && c.Pos() < tree.Package && expr.String() == "tools" {
				return nil, nil
			}
		}
	}
	return &file{path: name, fset: fset, ast: tree, lines: bytes.Count(src, []byte("\n")), generated: ast.IsGenerated(tree)}, nil
}

// readModule parses all Go files of the module.
func readModule(t *testing.T) []*file {
	t.Helper()
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(root, "go.mod")); err != nil {
		t.Fatalf("the module's root is not three folders up: %v", err)
	}
	var files []*file
	err = filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() && p != root && (name == "testdata" || name == "bin" || name == "vendor" || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_")) {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(name, ".go") {
			return nil
		}
		src, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		f, err := parse(filepath.ToSlash(rel), src)
		if err != nil || f == nil {
			return err
		}
		files = append(files, f)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Fatal("found no Go files")
	}
	return files
}
