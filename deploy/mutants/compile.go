package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// compiler type-checks packages of a tree, against the export data compiled by the go command.
type compiler struct {
	dir     string
	fset    *token.FileSet
	imports types.Importer
	listed  map[string]listed // by directory
}

// listed is what the go command reports about a package.
type listed struct {
	ImportPath, Dir, Export string
	GoFiles                 []string
}

func newCompiler(ctx context.Context, dir string) (*compiler, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-trimpath", "-export", "-deps", "-json=ImportPath,Dir,Export,GoFiles", "./...")
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("list packages: %w", err)
	}
	c := &compiler{dir: dir, fset: token.NewFileSet(), listed: map[string]listed{}}
	exports := map[string]string{}
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		exports[p.ImportPath] = p.Export
		c.listed[p.Dir] = p
	}
	c.imports = importer.ForCompiler(c.fset, "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(exports[path])
	})
	return c, nil
}

// compiles returns why a planted bug does not compile. It leaves the tree unchanged.
func (c *compiler) compiles(ctx context.Context, m mutant) (err error) {
	if err := apply(ctx, c.dir, m); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, apply(ctx, c.dir, m, "--reverse")) }()
	seen := map[string]bool{}
	for line := range strings.Lines(m.patch) {
		name, ok := strings.CutPrefix(strings.TrimSpace(line), "+++ b/")
		folder := filepath.Join(c.dir, filepath.Dir(name))
		if !ok || seen[folder] {
			continue
		}
		seen[folder] = true
		if err := c.check(c.listed[folder]); err != nil {
			return fmt.Errorf("%s no longer compiles: %w", m.id, err)
		}
	}
	return nil
}

func (c *compiler) check(p listed) error {
	var files []*ast.File
	for _, name := range p.GoFiles {
		f, err := parser.ParseFile(c.fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		files = append(files, f)
	}
	_, err := (&types.Config{Importer: c.imports}).Check(p.ImportPath, c.fset, files, nil)
	return err
}
